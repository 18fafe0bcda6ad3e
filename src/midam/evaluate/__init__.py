"""Streamed scores, metrics with honest intervals, calibration."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.evaluate.bands import Bands as Bands
    from midam.evaluate.bands import curve_bands as curve_bands
    from midam.evaluate.calibrate import PlattCalibrator as PlattCalibrator
    from midam.evaluate.calibrate import calibration_line as calibration_line
    from midam.evaluate.conformal import ConformalSets as ConformalSets
    from midam.evaluate.conformal import coverage_range as coverage_range
    from midam.evaluate.covariates import covariates_of as covariates_of
    from midam.evaluate.intervals import Interval as Interval
    from midam.evaluate.intervals import auroc_interval as auroc_interval
    from midam.evaluate.intervals import paired_delong as paired_delong
    from midam.evaluate.metrics import auprc as auprc
    from midam.evaluate.metrics import measure as measure
    from midam.evaluate.metrics import operating_point as operating_point
    from midam.evaluate.metrics import summarize as summarize
    from midam.evaluate.metrics import threshold_metrics as threshold_metrics
    from midam.evaluate.predict import InstanceScores as InstanceScores
    from midam.evaluate.predict import instance_scores as instance_scores
    from midam.evaluate.proportions import Estimate as Estimate
    from midam.evaluate.proportions import proportion as proportion
    from midam.evaluate.proportions import threshold_for as threshold_for
    from midam.evaluate.ranking import auroc as auroc
    from midam.evaluate.reliability import calibration_interval as calibration_interval
    from midam.evaluate.reliability import reliability_bins as reliability_bins
    from midam.evaluate.subgroups import Subgroup as Subgroup
    from midam.evaluate.subgroups import find_subgroups as find_subgroups
    from midam.evaluate.subgroups import make_levels as make_levels
    from midam.evaluate.utility import net_benefit as net_benefit
    from midam.evaluate.utility import net_benefit_of_all as net_benefit_of_all

__all__, __getattr__, __dir__ = exports(__name__)
