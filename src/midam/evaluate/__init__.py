"""Streamed scores, metrics with honest intervals, calibration."""
