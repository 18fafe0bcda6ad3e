"""Figures and pages about a run."""
