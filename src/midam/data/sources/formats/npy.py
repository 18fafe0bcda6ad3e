"""One NumPy file a bag, ``.npy`` or ``.npz``; an array of three axes is a volume."""

import math
import threading
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from midam.data.free_memory import require_free
from midam.data.sources.file_reader import FileReader
from midam.data.sources.formats.open_file import (
    COORDS,
    FEATURE_NAMES,
    FEATURES,
    OpenFile,
    pick_features,
    sound,
    squeezed,
)
from midam.data.sources.formats.volumes import open_array
from midam.data.sources.request import ImageOptions, Places
from midam.data.validate import is_unicode
from midam.errors import BagDataError
from midam.files import size_text
from midam.names import name_of
from midam.settings.cut import VOLUMES

# Python 3.11 may fail where several threads parse literals, as the headers of arrays are, at a time.
PARSING = threading.Lock()
_ANEW = "write it again with numpy.save"
_CHUNK = 1 << 20
_SMALL, _GROWTH = 1 << 28, 200  # bytes of a member that need no check; how much larger than that the content may be


class NpyReader(FileReader):
    """An array [n, ...], as a memory map."""

    what = "arrays"
    suffixes = (".npy",)
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; Python objects are refused."""
        kind = "a whole .npy file of plain numbers"
        with sound(kind, path, advice=_ANEW):
            with PARSING:
                whole = np.lib.format.open_memmap(path, mode="r")
            size = path.stat().st_size
        if whole.offset + whole.nbytes != size:
            raise BagDataError(
                f"Expected {whole.offset + whole.nbytes} bytes, as the header says, got {size} (in {path}); {_ANEW}."
            )
        rows = squeezed(whole)
        return open_array(rows, path, options, held=0, places=places) if rows.ndim == 3 else OpenFile(rows)


class NpzReader(FileReader):
    """A single array [n, ...], or ``features`` or ``feats``, and perhaps ``coords`` and ``feature_names``."""

    what = "arrays"
    suffixes = (".npz",)
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Read a file; Python objects are refused."""
        known = (*FEATURES, COORDS, FEATURE_NAMES)
        arrays, others = read_archive(path, known)
        if len(arrays) == 1 and not others:
            arrays = {"features": next(iter(arrays.values()))}
        refuse_near(others, arrays, known, path)
        features, coords = squeezed(pick_features(arrays, path)), arrays.get(COORDS)
        if features.ndim == 3 and coords is None:
            return open_array(features, path, options, held=features.nbytes, places=places)
        names = arrays[FEATURE_NAMES].tolist() if FEATURE_NAMES in arrays else None
        held = features.nbytes + (0 if coords is None else coords.nbytes)
        return OpenFile(features, coords, held=held, names=names)


def read_archive(
    path: Path, wanted: Collection[str], *, content: IO[bytes] | None = None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Arrays of an npz file, those `wanted` or the only one, and the names of the others, which are not loaded.

    Each member is read to its end, so that its checksum is compared; Python objects are refused, and arrays that do not
    fit into memory. `content` stands for a file that is read already.
    """
    arrays: dict[str, NDArray[Any]] = {}
    others: list[str] = []
    with (
        sound("a sound npz archive", path, advice=f"{_ANEW}z"),
        zipfile.ZipFile(path if content is None else content) as archive,
    ):
        members = archive.infolist()
        taken = [one for one in members if len(members) == 1 or one.filename.removesuffix(".npy") in wanted]
        require_free(sum(member.file_size for member in taken), "arrays", source=str(path))
        for member in members:
            name = member.filename.removesuffix(".npy")
            if member.file_size > max(_SMALL, _GROWTH * member.compress_size):
                raise BagDataError(
                    f"Expected arrays that grow at most {_GROWTH} times when they are read, got {name!r} of "
                    f"{size_text(member.file_size)} in {size_text(member.compress_size)} (in {path}); remove it."
                )
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
    """Read an array; a header that says more than the `size` of its member is refused before memory is taken for it."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with PARSING:
        shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise BagDataError(
            f"Expected plain arrays, got Python objects (in {path}, key {name}), which were not loaded; save bags as "
            "one flat array X and the bag number of each instance."
        )
    count = math.prod(shape)
    if count * dtype.itemsize > size:
        raise BagDataError(
            f"Expected as many bytes as the header says, for shape {list(shape)}, got {size} (in {path}, key {name}); "
            f"{_ANEW}z."
        )
    content = np.empty(count * dtype.itemsize, dtype=np.uint8)
    at = 0
    while at < len(content):
        part = stream.read(min(_CHUNK, len(content) - at))
        if not part:
            raise BagDataError(f"Expected {len(content)} bytes, got {at} (in {path}, key {name}); {_ANEW}z.")
        content[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    if stream.read(1):
        raise BagDataError(f"Expected as many bytes as the header says, got more (in {path}, key {name}); {_ANEW}z.")
    array: NDArray[Any] = np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    if dtype.kind == "U" and not is_unicode(array):
        raise BagDataError(f"Expected texts of Unicode letters, got others (in {path}, key {name}); {_ANEW}z.")
    return array


def refuse_near(
    others: Iterable[str], arrays: Mapping[str, Any], known: Iterable[str], path: Path, **same: str
) -> None:
    """Refuse a name that is nearly that of a known array, or means the `same`: ignored, it would not be missed."""
    for name in others:
        plain = name_of(name).lower().strip("_ ")
        meant = same.get(plain) or next((key for key in known if plain in (key.lower(), f"{key.lower()}s")), None)
        if meant is not None and meant not in arrays:
            raise BagDataError(
                f"Expected the key {meant!r}, got {name!r} (in {path}); rename it, or remove it if it means something "
                "else."
            )
