"""Files of instances, one or several a bag: which formats there are, and what a file holds."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.sources.columns import OpenFile
from midam.data.sources.hdf5 import open_hdf5, open_zarr
from midam.data.sources.plain import open_csv, open_npy, open_npz, open_tensor
from midam.errors import BagDataError, DataNotFoundError

OnFile = Callable[[int, int], None]

OPENERS: dict[str, Callable[[Path], OpenFile]] = {
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".pt": open_tensor,
    ".zarr": open_zarr,
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_csv,
}
_PROBES = 8  # files opened at a time: a network share answers several requests as fast as one


@dataclass(frozen=True)
class FileFacts:
    """What a file of instances holds.

    Attributes
    ----------
    rows : int
        Number of instances, at least 1.
    instance_shape : tuple of int
        Shape of one.
    dtype : numpy.dtype
        Of the instances.
    coords_width : int or None
        Numbers that give the place of an instance; None where there are none.
    coords_dtype : numpy.dtype or None
        Of the places.
    attributes : dict
        See `midam.data.sources.columns.OpenFile`.
    """

    rows: int
    instance_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    coords_width: int | None
    coords_dtype: np.dtype[Any] | None
    attributes: Mapping[str, Mapping[str, Any]]


def open_file(path: Path) -> OpenFile:
    """Open a file of instances; its suffix tells the format.

    Raises
    ------
    DataNotFoundError
        If there is no such file.
    BagDataError
        If the suffix is unknown or the file cannot be used.
    """
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        raise BagDataError(
            f"Expected a file of instances ({', '.join(OPENERS)}), got another suffix (in {path}); convert the file."
        )
    if not path.exists():
        raise DataNotFoundError(f"Expected a file, got none (in {path}); check the path.")
    return opener(path)


def probe(path: Path) -> FileFacts:
    """Open a file and say what it holds; the features are read only where the format knows no other way.

    Raises
    ------
    BagDataError
        If the file cannot be used: damaged, without features, empty, or with coordinates of another length.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "slide.npy"
    >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
    >>> probe(path).rows, probe(path).instance_shape
    (5, (3,))
    """
    opened = open_file(path)
    try:
        features, coords = opened.features, opened.coords
        if len(features.shape) < 2 or features.dtype.kind not in "biuf":
            raise BagDataError(
                f"Expected features [n, D] of real numbers, got {features.dtype} {list(features.shape)} (in {path}); "
                "write one row for each instance."
            )
        if 0 in features.shape:
            raise BagDataError(
                f"Expected at least one instance and one feature, got shape {list(features.shape)} (in {path}); "
                "remove the file or fill it."
            )
        if coords is not None and (
            len(coords.shape) != 2 or coords.shape[0] != features.shape[0] or coords.dtype.kind not in "iuf"
        ):
            raise BagDataError(
                f"Expected coordinates [{features.shape[0]}, 2], one row for each instance, got {coords.dtype} "
                f"{list(coords.shape)} (in {path}); extract the slide anew."
            )
        return FileFacts(
            rows=features.shape[0],
            instance_shape=features.shape[1:],
            dtype=features.dtype,
            coords_width=None if coords is None else coords.shape[1],
            coords_dtype=None if coords is None else coords.dtype,
            attributes=opened.attributes,
        )
    finally:
        opened.close()


def probe_files(paths: Sequence[Path], *, on_file: OnFile | None = None) -> list[FileFacts]:
    """Probe files, several at a time, and check that they hold the same kind of instances.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    on_file : callable, optional
        Called with the number of files that are done and the number of all, after each.

    Raises
    ------
    BagDataError
        As `probe`; or if shapes or dtypes differ, or only some files have coordinates: naming two files.
    """
    facts = []
    with ThreadPoolExecutor(max_workers=_PROBES) as pool:
        futures = [pool.submit(probe, path) for path in paths]
        try:
            for number, future in enumerate(futures, start=1):
                facts.append(future.result())
                if on_file is not None:
                    on_file(number, len(paths))
        finally:
            for future in futures:
                future.cancel()
    _check_same(paths, facts)
    return facts


def _check_same(paths: Sequence[Path], facts: Sequence[FileFacts]) -> None:
    for path, fact in zip(paths, facts, strict=True):
        first = facts[0]
        for what, one, other, advice in (
            ("instances of shape", first.instance_shape, fact.instance_shape, "use features of one encoder"),
            ("features of type", first.dtype, fact.dtype, "convert the files to one type"),
            ("coordinates of width", first.coords_width, fact.coords_width, "write them to all files or to none"),
        ):
            if one != other:
                raise BagDataError(f"Expected {what} {one} as in {paths[0]}, got {other} (in {path}); {advice}.")
