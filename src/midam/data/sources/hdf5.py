"""One HDF5 or Zarr file a slide, as CLAM, TRIDENT and STAMP write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midam.data.sources.open_file import COORDS, DatasetColumn, OpenFile, pick_features, plain_attributes
from midam.errors import BagDataError, MidamError


def open_hdf5(path: Path) -> OpenFile:
    """Open ``features`` or ``feats`` [n, ...] and, where there are any, ``coords`` [n, C].

    Raises
    ------
    MidamError
        If the package h5py is missing.
    BagDataError
        If the file is damaged or lacks the features.
    """
    try:
        import h5py  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the package h5py to read HDF5, got none (in {path}); install midam[hdf5]."
        ) from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise BagDataError(
            f"Expected a whole HDF5 file, got: {error} (in {path}); copy or write the file anew."
        ) from error
    try:
        # A group of that name is no array.
        arrays = {name: node for name, node in file.items() if isinstance(node, h5py.Dataset)}
        return _opened(arrays, file, path, close=file.close)
    except (OSError, RuntimeError, KeyError) as error:
        file.close()
        raise BagDataError(
            f"Expected a sound HDF5 file, got: {error} (in {path}); copy or write the file anew."
        ) from error
    except BagDataError:
        file.close()
        raise


def open_zarr(path: Path) -> OpenFile:
    """Open a Zarr array, or a group with the arrays of `open_hdf5`; versions 2 and 3 of the format.

    Raises
    ------
    MidamError
        If the package zarr is missing.
    BagDataError
        If the store is damaged or lacks the features.
    """
    try:
        import zarr  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the package zarr to read Zarr, got none (in {path}); install midam[zarr]."
        ) from error
    try:
        node = zarr.open(str(path), mode="r")
        arrays = {"features": node} if isinstance(node, zarr.Array) else dict(node.arrays())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BagDataError(
            f"Expected a Zarr array or group, got: {error} (in {path}); copy or write it anew."
        ) from error
    return _opened(arrays, node, path)


def _opened(arrays: Mapping[str, Any], root: Any, path: Path, **options: Any) -> OpenFile:
    features, coords = pick_features(arrays, path), arrays.get(COORDS)
    nodes = {"features": features, "coords": coords}
    if root is not features:
        nodes = {"file": root, **nodes}
    return OpenFile(
        DatasetColumn(features),
        None if coords is None else DatasetColumn(coords),
        attributes=plain_attributes(**nodes),
        serial=True,
        **options,
    )
