"""Streamed scores, metrics with honest intervals, calibration."""
# ruff: noqa: F401

from typing import TYPE_CHECKING

from midam.exports import exports

if TYPE_CHECKING:
    from midam.evaluate.bands import Bands, curve_bands
    from midam.evaluate.calibrate import PlattCalibrator, calibration_line
    from midam.evaluate.conformal import ConformalSets, coverage_range
    from midam.evaluate.intervals import Interval, auroc_interval, paired_delong
    from midam.evaluate.metrics import auprc, measure, operating_point, summarize, threshold_metrics
    from midam.evaluate.predict import InstanceScores, instance_scores
    from midam.evaluate.proportions import Estimate, proportion, threshold_for
    from midam.evaluate.ranking import auroc
    from midam.evaluate.reliability import calibration_interval, reliability_bins
    from midam.evaluate.subgroups import Subgroup, find_subgroups, make_levels
    from midam.evaluate.utility import net_benefit, net_benefit_of_all

__all__, __getattr__, __dir__ = exports(__name__)
