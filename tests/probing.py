"""Files of instances that are opened and put together, as a folder of them is."""

from collections.abc import Sequence
from pathlib import Path

from midam.data.sources.file_rows import FileSet, warn_of_scans
from midam.data.sources.probe import FileFacts, sift_files
from midam.data.sources.request import DEFAULTS, ImageOptions, Request
from midam.errors import BagDataError


def probe_files(
    paths: Sequence[Path], options: ImageOptions = DEFAULTS, *, reader: str | None = None
) -> list[FileFacts]:
    """Probe files, several at a time, and check that they hold the same kind of instances."""
    facts, wrong = sift_files(paths, Request("", images=options, reader=reader))
    if wrong:
        raise BagDataError(next(iter(wrong.values())))
    return [*facts.values()]


def probed(paths: Sequence[Path], options: ImageOptions = DEFAULTS, *, reader: str | None = None) -> FileSet:
    """Probe files, and put them together."""
    files = FileSet(paths, probe_files(paths, options, reader=reader), options, reader)
    warn_of_scans(paths, files.facts)
    return files
