"""One tensor file, NumPy file or CSV a bag; what a file holds is never executed."""

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, Places
from midam.data.sources.open_file import COORDS, FEATURES, ArrayColumn, OpenFile, pick_features, squeezed
from midam.data.sources.table_columns import first_line
from midam.data.sources.volumes import open_array
from midam.errors import BagDataError


class TensorColumn:
    """Rows of a tensor on the CPU; bfloat16, which NumPy lacks, is read as float32."""

    def __init__(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        self._tensor = tensor[0] if tensor.ndim == 3 and len(tensor) == 1 else tensor
        self._wide = tensor.dtype == torch.bfloat16
        self.shape = tuple(self._tensor.shape)
        self.dtype: np.dtype[Any] = np.dtype(np.float32) if self._wide else self._tensor[:0].numpy().dtype

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the rows low, ..., high - 1."""
        return self._copy(self._tensor[low:high])

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows [m]."""
        return self._copy(self._tensor[torch.from_numpy(rows)])

    def _copy(self, rows: Tensor) -> NDArray[Any]:
        found: NDArray[Any] = (rows.float() if self._wide else rows.clone()).numpy()
        return found


def open_tensor(path: Path) -> OpenFile:
    """Open a ``.pt`` file: a tensor [n, D], or a dictionary with ``features`` or ``feats`` and ``coords``.

    The file is mapped where it was written by torch 1.6 or later. Only tensors and plain containers are unpickled.

    Raises
    ------
    BagDataError
        If the file is damaged or holds anything else.
    """
    mapped = zipfile.is_zipfile(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise BagDataError(
            f"Expected tensors and plain containers alone, got other Python objects, which were not loaded, or damage "
            f"(in {path}); save the features anew: torch.save(tensor, path)."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise BagDataError(f"Expected a whole .pt file, got: {error} (in {path}); write the file anew.") from error
    tensors = content if isinstance(content, dict) else {"features": content}
    features, coords = pick_features(tensors, path), tensors.get(COORDS)
    parts = [tensor for tensor in (features, coords) if tensor is not None]
    for tensor in parts:
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.ndim == 0:
            raise BagDataError(
                f"Expected a dense tensor [n, D], got {type(tensor).__name__} (in {path}); save the features as one "
                "tensor."
            )
    return OpenFile(
        TensorColumn(features),
        None if coords is None else TensorColumn(coords),
        held=0 if mapped else sum(tensor.untyped_storage().nbytes() for tensor in parts),
    )


def open_npy(path: Path, options: ImageOptions = DEFAULTS, places: Places | None = None) -> OpenFile:
    """Open a ``.npy`` file [n, ...] as a memory map; three axes are a volume.

    Raises
    ------
    BagDataError
        If the file is damaged or holds Python objects.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise BagDataError(
            f"Expected a whole .npy file of plain numbers, got: {error} (in {path}); write it anew with numpy.save."
        ) from error
    rows = squeezed(array)
    return open_array(rows, path, options, held=0, places=places) if rows.ndim == 3 else OpenFile(ArrayColumn(rows))


def open_npz(path: Path, options: ImageOptions = DEFAULTS, places: Places | None = None) -> OpenFile:
    """Read a ``.npz`` file of one bag: a single array [n, ...], or ``features`` or ``feats`` and ``coords``.

    A single array of three axes is a volume.

    Raises
    ------
    BagDataError
        If the file is damaged or holds Python objects.
    """
    if not zipfile.is_zipfile(path):
        raise BagDataError(f"Expected an npz archive, got another format (in {path}); write it anew with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = [name for name in archive.files if name in (*FEATURES, COORDS)]
            if len(archive.files) == 1:
                arrays = {"features": archive[archive.files[0]]}
            else:
                arrays = {name: archive[name] for name in names}
            others = dict.fromkeys(archive.files)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BagDataError(
            f"Expected a sound npz archive of plain numbers, got: {error} (in {path}); write it anew with numpy.savez."
        ) from error
    features, coords = squeezed(pick_features(arrays or others, path)), arrays.get(COORDS)
    if features.ndim == 3 and coords is None:
        return open_array(features, path, options, held=features.nbytes, places=places)
    return OpenFile(
        ArrayColumn(features),
        None if coords is None else ArrayColumn(coords),
        held=features.nbytes + (0 if coords is None else coords.nbytes),
    )


def open_csv(path: Path) -> OpenFile:
    """Read a ``.csv`` file of one bag, as DSMIL writes them: a row an instance, a column a feature, as float32.

    The first line is a header if it holds a word, or the column numbers 0, 1, ...

    Raises
    ------
    BagDataError
        If a value is no number or the rows differ in length.
    """
    try:
        numbers = [_number(word) for word in first_line(path)]
        header = None in numbers or numbers == list(range(len(numbers)))
        frame = pd.read_csv(path, header=0 if header else None, encoding="utf-8-sig")
    except (ValueError, OSError) as error:
        if isinstance(error, BagDataError):
            raise
        raise BagDataError(
            f"Expected a CSV with a row for each instance, got: {str(error).strip()} (in {path}); correct the file."
        ) from error
    for column in frame.columns:
        if len(frame) and not pd.api.types.is_numeric_dtype(frame[column]):
            wrong = frame[column][pd.to_numeric(frame[column], errors="coerce").isna()]
            raise BagDataError(
                f"Expected numbers alone, got {str(wrong.iloc[0])!r} in column {column!r} (in {path}); a CSV of one "
                "bag holds nothing but features."
            )
    array = frame.to_numpy(dtype=np.float32)
    return OpenFile(ArrayColumn(array), held=array.nbytes)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
