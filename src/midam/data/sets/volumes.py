"""Bags of many volumes in one array."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_rows import FileRows, Parts
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.formats.volumes import open_array
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.probe import FileFacts, facts_of
from midam.errors import ConfigError


class VolumeSet(Parts):
    """The volumes of an array [N, D, H, W], cut when they are read; pickling carries the path of a memory map."""

    def __init__(
        self, volumes: NDArray[Any], names: list[str], options: ImageOptions, facts: list[FileFacts] | None = None
    ) -> None:
        self._volumes, self._options = volumes, options
        self._names, self.plan = names, repr(options)
        super().__init__(names, facts or [facts_of(self._open(n), where=name) for n, name in enumerate(names)])

    def read(self, number: int, column: str, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Rows of one volume."""
        rows: NDArray[Any] = getattr(self._open(number, self.facts[number].places), column)[index]
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        path = getattr(self._volumes, "filename", None)
        return _volume_set, (self._volumes if path is None else str(path), self._names, self._options, self.facts)

    def _open(self, number: int, places: Places | None = None) -> OpenFile:
        return open_array(self._volumes[number], Path(self._names[number]), self._options, held=0, places=places)


def bags_of_volumes(
    volumes: NDArray[Any],
    *,
    ids: NDArray[np.str_],
    labels: NDArray[np.int64],
    options: ImageOptions,
    source: str,
    **others: Any,
) -> Bags:
    """Bags of an array of volumes [N, D, H, W]; those of a memory map stay on disk, others are cut now.

    A volume that is not finite or shows nothing is refused; `others` are groups and splits.
    """
    if options.spacing is not None:
        raise ConfigError(f"Expected no `spacing` with arrays, whose spacing is unknown, got some for {source}.")
    volumes_of = VolumeSet(volumes, [f"{source}, bag {bag}" for bag in ids], options)
    rows = FileRows(volumes_of)
    return Bags(
        rows if isinstance(volumes, np.memmap) else rows[:],
        sizes=np.diff(volumes_of.offsets),
        ids=ids,
        labels=labels,
        coords=None if options.volume else FileRows(volumes_of, "coords")[:],
        cut=options.cut("volume" if options.volume else "slices"),
        source=source,
        **others,
    )


def _volume_set(volumes: Any, *parameters: Any) -> VolumeSet:
    return VolumeSet(np.load(volumes, mmap_mode="r") if isinstance(volumes, str) else volumes, *parameters)
