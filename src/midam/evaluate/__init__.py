"""Streamed scores, metrics with honest intervals, calibration."""

from typing import TYPE_CHECKING

from midam.exports import exports

if TYPE_CHECKING:
    from midam.evaluate.calibrate import PlattCalibrator as PlattCalibrator
    from midam.evaluate.calibrate import calibration_line as calibration_line
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
    from midam.evaluate.ranking import auroc as auroc

__all__, __getattr__, __dir__ = exports(__name__)
