"""Public archives: download and parse."""

import gzip
import http.client
import io
import re
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sets.unix_compress import decompress
from midam.errors import BagDataError, DataNotFoundError

Progress = Callable[[int, int | None], None]
_CHUNK = 1 << 16
_TIMEOUT = 60.0  # seconds to wait for an answer


def download(url: str, path: Path, *, progress: Progress | None = None) -> None:
    """Download a file (http, https, file; by the proxies of the environment), which the caller removes.

    `progress` is called with the bytes so far and in all (None: unknown). An incomplete answer, or none, is a
    `DataNotFoundError`.
    """
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "midam"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, path.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length is not None and length.isdigit() else None
            done = 0
            while chunk := answer.read(_CHUNK):
                done += file.write(chunk)
                if progress is not None:
                    progress(done, total)
        if total is not None and done != total:
            raise OSError(f"{done} of {total} bytes")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataNotFoundError(f"Expected an archive at {url}, got {error}; check the connection.") from error


def parse_archive(path: Path, *, member: str, form: str, features: int) -> Bags:
    """Read the bags of D features from a zip or tar; a bag is positive if an instance is.

    `member` is a regular expression, case ignored; members ``.Z`` and ``.gz`` are decompressed. `form` is ``"musk"``
    (lines ``molecule,conformation,f1,...,fD,class``) or ``"svm"`` (``instance:bag:label i:value ...``, i from 1).
    """
    try:
        text = _read_member(path, member).decode("ascii")
        found = list((_musk_rows if form == "musk" else _svm_rows)(text, features))
        if not found:
            raise ValueError("an empty table")
        names, rows, positive = zip(*found, strict=True)
        ids, codes = np.unique(names, return_inverse=True)
        labels = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(labels, codes, np.array(positive, dtype=np.int64))
        return Bags.from_arrays(np.stack(rows), codes, labels, ids=ids, source=str(path))
    except BagDataError:
        raise
    except (ValueError, IndexError, OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise BagDataError(
            f"Expected a {form} table in an archive, got: {error} (in {path}); fetch the archive again."
        ) from error


def _read_member(path: Path, pattern: str) -> bytes:
    """Bytes of the first member that fits the pattern."""
    finder = re.compile(pattern, re.IGNORECASE)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            name = next((n for n in names if finder.search(n)), None)
            data = archive.read(name) if name is not None else b""
    else:
        with tarfile.open(path) as tar:
            names = [info.name for info in tar if info.isfile()]
            name = next((n for n in names if finder.search(n)), None)
            file = tar.extractfile(name) if name is not None else None
            data = file.read() if file is not None else b""
    if name is None:
        raise BagDataError(f"Expected a member like {pattern}, got {', '.join(names[:8])} (in {path}); fetch it again.")
    if name.endswith(".Z"):
        return decompress(data)
    return gzip.decompress(data) if name.endswith(".gz") else data


def _musk_rows(text: str, features: int) -> Iterator[tuple[str, NDArray[np.float64], bool]]:
    """Bag, features and label of each instance."""
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = line.split(",")
        if len(fields) != features + 3:
            raise ValueError(f"{len(fields)} fields for {features + 3}")
        yield fields[0], np.array(fields[2:-1], dtype=np.float64), float(fields[-1]) > 0


def _svm_rows(text: str, features: int) -> Iterator[tuple[str, NDArray[np.float64], bool]]:
    """Bag, features and label of each instance."""
    for line in filter(None, map(str.strip, io.StringIO(text))):
        if line.startswith("#"):
            continue
        head, *cells = line.split()
        _, bag, label = head.split(":")
        row = np.zeros(features)
        for cell in cells:
            index, value = cell.split(":")
            if int(index) < 1:
                raise ValueError(f"feature {index}")
            row[int(index) - 1] = float(value)
        yield bag, row, float(label) > 0
