"""Compare methods on the same folds of labeled bags: trials, intervals, a table and a picture."""

from midam.compare.folds import Fold, repeated_folds
from midam.compare.plan import LEARNING_RATES, Grid
from midam.compare.report import write_comparison_report
from midam.compare.run import run_comparison
from midam.compare.summary import Comparison, CorrectedInterval, corrected_interval
from midam.compare.workers import Workers
from midam.methods.method import Baseline, ModelBaseline
from midam.methods.names import known_methods

__all__ = ["LEARNING_RATES", "Baseline", "Comparison", "CorrectedInterval", "Fold", "Grid", "ModelBaseline"]
__all__ += ["Workers", "corrected_interval", "known_methods", "repeated_folds", "run_comparison"]
__all__ += ["write_comparison_report"]
