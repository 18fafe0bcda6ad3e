"""Figures, descriptions and console output about bags and runs."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.report.describe import BagDescription as BagDescription
    from midam.report.describe import describe_bags as describe_bags
    from midam.report.importance import Importance as Importance
    from midam.report.importance import permutation_importance as permutation_importance
    from midam.report.plot_order import plot_grade_scores as plot_grade_scores
    from midam.report.plot_order import plot_number_scores as plot_number_scores
    from midam.report.plot_order import plot_survival as plot_survival
    from midam.report.plot_runs import plot_curves as plot_curves
    from midam.report.plot_runs import plot_sizes as plot_sizes
    from midam.report.plot_scores import plot_class_rocs as plot_class_rocs
    from midam.report.plot_scores import plot_confusion as plot_confusion
    from midam.report.plot_scores import plot_roc as plot_roc

__all__, __getattr__, __dir__ = exports(__name__)
