"""Figures, descriptions and console output about bags and runs."""

from typing import TYPE_CHECKING

from midam.exports import exports

if TYPE_CHECKING:
    from midam.report.describe import BagDescription as BagDescription
    from midam.report.describe import describe_bags as describe_bags
    from midam.report.figures import plot_curves as plot_curves
    from midam.report.figures import plot_roc as plot_roc
    from midam.report.figures import plot_sizes as plot_sizes

__all__, __getattr__, __dir__ = exports(__name__)
