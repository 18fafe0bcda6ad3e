"""Descriptions of bags, the page of a run with its figures, and console output."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.report.describe import BagDescription as BagDescription
    from midam.report.describe import describe_bags as describe_bags

__all__, __getattr__, __dir__ = exports(__name__)
