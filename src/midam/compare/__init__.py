"""Many methods on the same folds of any labelled bags: trials, intervals, a table and a picture."""

from midam.compare.folds import Fold, repeated_folds
from midam.compare.methods import known_methods
from midam.compare.run import run_comparison
from midam.compare.summary import Comparison

__all__ = ["Comparison", "Fold", "known_methods", "repeated_folds", "run_comparison"]
