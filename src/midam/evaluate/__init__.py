"""Streamed scores, metrics with honest intervals, calibration."""
# ruff: noqa: F401

from typing import TYPE_CHECKING

from midam.exports import exports

if TYPE_CHECKING:
    from midam.evaluate.calibrate import PlattCalibrator, calibration_line
    from midam.evaluate.intervals import Interval, auroc_interval, paired_delong
    from midam.evaluate.metrics import auprc, measure, operating_point, summarize, threshold_metrics
    from midam.evaluate.predict import InstanceScores, instance_scores
    from midam.evaluate.ranking import auroc

__all__, __getattr__, __dir__ = exports(__name__)
