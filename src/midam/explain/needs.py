"""Packages that explanations need, asked for before a bag is scored."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from midam.data.sources.formats.images import ImageReader
from midam.data.sources.formats.open_file import need
from midam.data.sources.formats.slides import SlideReader
from midam.runs.instance_files import need_h5py

_IMAGES = {"module": "PIL.Image", "what": "images", "extra": "images", "package": "pillow"}
_SLIDES = {"module": "openslide", "what": "slides", "extra": "wsi"}


def check_packages(files: Iterable[Path]) -> None:
    """Refuse to begin where h5py is missing, or what draws those of the files that are there.

    Raises
    ------
    MidamError
        Names the package, and what to install.
    """
    need_h5py()
    for suffix, paths in groupby(sorted(set(files), key=_suffix), key=_suffix):
        how = _SLIDES if suffix in SlideReader.suffixes else _IMAGES if suffix in ImageReader.suffixes else None
        there = None if how is None else next((path for path in paths if path.exists()), None)
        if how is not None and there is not None:
            need(path=there, **how)


def _suffix(path: Path) -> str:
    return path.suffix.lower()
