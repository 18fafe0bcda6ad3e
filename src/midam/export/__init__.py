"""Export a run as a folder with which others score bags without midam."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.export.run import export_run as export_run

__all__, __getattr__, __dir__ = exports(__name__)
