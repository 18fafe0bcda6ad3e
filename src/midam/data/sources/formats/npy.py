"""One file of features per bag: NumPy's ``.npy`` and ``.npz``, ``.csv`` as DSMIL writes it, and torch's ``.pt``.

No content of a file is executed.
"""

import math
import pickle
import re
import threading
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from midam.data.on_disk import require_free
from midam.data.sources.file_names import FileReader
from midam.data.sources.formats.open_file import ARRAYS, Column, OpenFile, check_growth, pick_arrays, sound, squeezed
from midam.data.sources.request import ImageOptions, Places
from midam.data.sources.table_files import TextTable, check_header, sound_text
from midam.data.statistics import coarse
from midam.data.validate import is_unicode
from midam.errors import BagDataError
from midam.lazy_imports import pandas as pd
from midam.lazy_imports import torch
from midam.names import name_of
from midam.reading import check_archive

# Python 3.11 may fail if several threads parse literals at a time, such as the headers of arrays.
PARSING = threading.Lock()
_ANEW = "write it again with numpy.save"
_CHUNK = 1 << 20
_SMALL = 1 << 28  # bytes of a member that need no check
_SIGNS = re.compile(r"[\W_]")
_PLAIN = (
    *("float16", "bfloat16", "float32", "float64", "bool"),
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
)


class NpyReader(FileReader):
    """Reader of an array [n, ...], as a memory map."""

    what = "arrays"
    suffixes = (".npy",)

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a file; refuse Python objects."""
        kind = "a whole .npy file of plain numbers"
        with sound(kind, path, advice=_ANEW):
            with PARSING:
                whole = np.lib.format.open_memmap(path, mode="r")
            size, stated = path.stat().st_size, whole.offset + whole.nbytes
        if stated != size:
            raise BagDataError(f"Expected {stated} bytes, as the header says, got {size} (in {path}); {_ANEW}.")
        return OpenFile(squeezed(whole))


class NpzReader(FileReader):
    """Reader of one array [n, ...], or ``features`` or ``feats`` with optional ``coords`` and ``feature_names``."""

    what = "arrays"
    suffixes = (".npz",)

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Read a file; refuse Python objects."""
        arrays, others = read_archive(path, ARRAYS)
        if len(arrays) == 1 and not others:
            arrays = {"features": next(iter(arrays.values()))}
        refuse_near(others, arrays, ARRAYS, path)
        features, coords, names = pick_arrays({name: squeezed(array) for name, array in arrays.items()}, path)
        num_bytes = features.nbytes + (0 if coords is None else coords.nbytes)
        return OpenFile(features, coords, held=num_bytes, names=None if names is None else names.tolist())


def read_archive(path: Path, wanted: Collection[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Read the `wanted` arrays of an npz file, or its only one; return them and the names of the others.

    Each member is read to its end, so that its checksum is compared. Python objects, and arrays that do not fit into
    memory, are refused.
    """
    arrays: dict[str, NDArray[Any]] = {}
    others: list[str] = []
    with sound("a sound npz archive", path, advice=f"{_ANEW}z"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        chosen_members = [one for one in members if len(members) == 1 or one.filename.removesuffix(".npy") in wanted]
        require_free(sum(member.file_size for member in chosen_members), "arrays", source=str(path))
        for member in members:
            name = member.filename.removesuffix(".npy")
            check_growth(member.file_size, member.compress_size, f"{path}, key {name}", small=_SMALL)
            if name in arrays or name in others:
                raise BagDataError(f"Expected one array of a name, got two {name!r} (in {path}); keep one.")
            with sound("plain arrays in a sound npz archive", path, advice=f"{_ANEW}z"), archive.open(member) as stream:
                if name == member.filename or (name not in wanted and len(members) > 1):
                    others.append(name)
                else:
                    arrays[name] = _array(stream, member.file_size, name, path)
                while stream.read(_CHUNK):
                    pass
    return arrays, others


def _array(stream: IO[bytes], size: int, name: str, path: Path) -> NDArray[Any]:
    """Read an array; refuse a header that states other bytes than the `size` of its member, before they are read."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with PARSING:
        shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise BagDataError(
            f"Expected plain arrays, got Python objects (in {path}, key {name}), which are not loaded; save numbers or "
            "texts, and all instances as one array X."
        )
    needed, stated = math.prod(shape) * dtype.itemsize, size - stream.tell()
    content = bytearray(stream.read() if needed == stated else b"")
    if needed != len(content):
        got = f"{len(content) or stated} (in {path}, key {name}); {_ANEW}z"
        raise BagDataError(f"Expected {needed} bytes for shape {list(shape)}, as the header says, got {got}.")
    array: NDArray[Any] = np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    if dtype.kind == "U" and not is_unicode(array):
        raise BagDataError(f"Expected strings in Unicode, got other characters (in {path}, key {name}); {_ANEW}z.")
    return array


def refuse_near(
    others: Iterable[str], arrays: Mapping[str, Any], known: Iterable[str], path: Path, **same: str
) -> None:
    """Refuse a name that is nearly that of a known array, or means the `same`: it would be ignored silently."""
    words = {word: key for key in known for word in (f"{key}s", key)} | same
    meanings = {_SIGNS.sub("", word.lower()): key for word, key in words.items()}
    for name in others:
        meant = meanings.get(_SIGNS.sub("", name_of(name).lower()))
        if meant is not None and meant not in arrays:
            raise BagDataError(f"Expected the key {meant!r}, got {name!r} (in {path}); rename or remove it.")


class CsvReader(FileReader):
    """Reader of a CSV of numbers; a first line with a word names the features, a first line 0, 1, ... is skipped."""

    what = "features"
    suffixes = (".csv",)
    maybe_table = True

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Read a file."""
        with sound_text("a CSV with a row for each instance", path):
            table = TextTable(path)
            table.separator = ","  # that pandas reads below
            words = table.header
            numbers = [_number(word) for word in words]
            has_names, counted = None in numbers, numbers == list(range(len(numbers))) != []
            if has_names:
                check_header(words, path)
            header = 0 if has_names or counted else None
            frame = pd.read_csv(path, header=header, index_col=False, encoding="utf-8-sig")
        for column in frame.columns:
            if len(frame) and not pd.api.types.is_numeric_dtype(frame[column]):
                wrong = frame[column][pd.to_numeric(frame[column], errors="coerce").isna()]
                got = f"{str(wrong.iloc[0])!r} in column {column!r} (in {path})"
                raise BagDataError(f"Expected only numbers, got {got}; keep only features in the CSV of a bag.")
        array = frame.to_numpy(dtype=np.float64)
        if not (len(array) and coarse(array.min(axis=0), array.max(axis=0)).any()):
            with np.errstate(over="ignore"):  # values beyond float32 become infinite: reading them is refused
                array = array.astype(np.float32)
        return OpenFile(array, held=array.nbytes, names=words if has_names else None)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


class TensorReader(FileReader):
    """Reader of a tensor [n, D], or a dictionary of ``features`` or ``feats`` and ``coords``.

    A file that torch >= 1.6 wrote is mapped into memory.
    """

    what = "features"
    suffixes = (".pt",)

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a file."""
        with sound("a whole .pt file", path, advice="write the file again"):
            mapped = zipfile.is_zipfile(path)
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
            except pickle.UnpicklingError as error:
                got = f"other Python objects, which are not loaded, or damage (in {path}); save the features again"
                raise BagDataError(f"Expected only tensors and plain containers, got {got}.") from error
        features, coords, names = pick_arrays(content if isinstance(content, dict) else {"features": content}, path)
        parts = [features] if coords is None else [features, coords]
        for tensor in parts:
            is_tensor = isinstance(tensor, torch.Tensor)
            if not is_tensor or not _is_plain(tensor):
                kind = f"{tensor.dtype} on {tensor.device}" if is_tensor else type(tensor).__name__
                raise BagDataError(
                    f"Expected a dense tensor [n, D] of plain numbers, got {kind} (in {path}); save one."
                )
        return OpenFile(
            _column(features),
            None if coords is None else _column(coords),
            held=0 if mapped else sum(tensor.untyped_storage().nbytes() for tensor in parts),
            names=names,
        )

    def verify(self, path: Path) -> None:
        """Compare the checksums, which torch ignores."""
        with sound("a whole .pt file", path, advice="write the file again"):
            if zipfile.is_zipfile(path):
                check_archive(path)


class _BFloat16:
    """Rows of a tensor of bfloat16, which NumPy lacks, as float32."""

    def __init__(self, tensor: "torch.Tensor") -> None:
        self._tensor, self.shape, self.dtype = tensor, tuple(tensor.shape), np.dtype(np.float32)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        return self._tensor[index].float().numpy()


def _is_plain(tensor: "torch.Tensor") -> bool:
    """Return whether NumPy, or `_BFloat16`, can read the numbers of a tensor in place."""
    dense = not tensor.is_quantized and not tensor.is_nested and str(tensor.layout) == "torch.strided"
    return dense and tensor.device.type == "cpu" and tensor.ndim > 0 and _kind(tensor) in _PLAIN


def _column(tensor: "torch.Tensor") -> Column:
    # A view such as x.conj().imag only marks its numbers as negated.
    tensor = squeezed(tensor.detach().resolve_neg())
    return _BFloat16(tensor) if _kind(tensor) == "bfloat16" else tensor.numpy()


def _kind(tensor: "torch.Tensor") -> str:
    """Return the name of the type of a tensor's numbers, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")
