"""The sets of feature vectors, bundled, downloaded from public archives or added by hand; and a digest of bags."""

import gzip
import hashlib
import http.client
import io
import re
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sources.request import ImageOptions, refuse_unused
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, DataNotFoundError
from studies.sets.npz import read_npz, write_npz

Progress = Callable[[int, int | None], None]
_CHUNK = 1 << 16
_MAGIC = b"\x1f\x9d"
_CLEAR = 256
_TIMEOUT = 60.0  # seconds to wait for an answer


def download(url: str, path: Path, *, progress: Progress | None = None) -> None:
    """Download a file (http, https or file, through the environment's proxies); the caller removes it.

    `progress` is called with the bytes so far and in total (None: unknown). An incomplete or missing answer raises a
    `DataNotFoundError`.
    """
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "midam"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, path.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length is not None and length.isdigit() else None
            received = 0
            while chunk := answer.read(_CHUNK):
                received += file.write(chunk)
                if progress is not None:
                    progress(received, total)
        if total is not None and received != total:
            raise OSError(f"{received} of {total} bytes")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataNotFoundError(f"Expected an archive at {url}, got {error}; check the connection.") from error


def parse_archive(path: Path, *, member: str, form: str, features: int) -> Bags:
    """Read the bags of D features from a zip or tar; a bag is positive if one of its instances is.

    `member` is a regular expression, case ignored; members ``.Z`` and ``.gz`` are decompressed. `form` is ``"musk"``
    (lines ``molecule,conformation,f1,...,fD,class``) or ``"svm"`` (``instance:bag:label i:value ...``, i from 1).
    """
    try:
        text = _read_member(path, member).decode("ascii")
        parsed = list((_musk_rows if form == "musk" else _svm_rows)(text, features))
        if not parsed:
            raise ValueError("an empty table")
        names, rows, positive = zip(*parsed, strict=True)
        ids, codes = np.unique(names, return_inverse=True)
        labels = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(labels, codes, np.array(positive, dtype=np.int64))
        return Bags.from_arrays(np.stack(rows), codes, labels, ids=ids, source=str(path))
    except BagDataError:
        raise
    except (ValueError, IndexError, OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise BagDataError(f"Expected a {form} table, got: {error} (in {path}); fetch the archive again.") from error


def _read_member(path: Path, pattern: str) -> bytes:
    """Return the bytes of the first member that matches the pattern."""
    finder = re.compile(pattern, re.IGNORECASE)
    with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path) as archive:
        opened: Callable[[str], Any]
        if isinstance(archive, zipfile.ZipFile):
            names, opened = archive.namelist(), archive.open
        else:
            names, opened = [info.name for info in archive if info.isfile()], archive.extractfile
        name = next((n for n in names if finder.search(n)), None)
        file = None if name is None else opened(name)
        data = b"" if file is None else file.read()
    if name is None:
        raise BagDataError(f"Expected a member like {pattern}, got {', '.join(names[:8])} (in {path}); fetch it again.")
    if name.endswith(".Z"):
        return decompress(data)
    return gzip.decompress(data) if name.endswith(".gz") else data


def _musk_rows(text: str, features: int) -> Iterator[tuple[str, NDArray[np.float64], bool]]:
    """Yield bag, features and label of each instance."""
    for line in filter(None, map(str.strip, text.splitlines())):
        fields = line.split(",")
        if len(fields) != features + 3:
            raise ValueError(f"{len(fields)} fields for {features + 3}")
        yield fields[0], np.array(fields[2:-1], dtype=np.float64), float(fields[-1]) > 0


def _svm_rows(text: str, features: int) -> Iterator[tuple[str, NDArray[np.float64], bool]]:
    """Yield bag, features and label of each instance."""
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


def decompress(data: bytes) -> bytes:
    """Decode a ``.Z`` file of Unix ``compress`` (Welch, Computer 17(6), 1984), the format of UCI's MUSK tables.

    Codes of 9 to 16 bits come in groups of eight, lowest bit first; when the width grows, the rest of the group is
    filler.
    """
    if len(data) < 3 or data[:2] != _MAGIC or not 10 <= data[2] & 0x1F <= 16:
        raise BagDataError("Expected a .Z file of the Unix compress program, got other bytes; fetch the file again.")
    limit = 1 << (data[2] & 0x1F)
    first_free = 257 if data[2] & 0x80 else 256
    letters = [bytes([i]) for i in range(256)]
    table = letters + [b""] * (first_free - 256)
    width, group, position, previous = 9, 24, 24, b""
    padded = data + b"\0\0"
    output = []
    while position + width <= 8 * len(data):
        byte = position >> 3
        code = int.from_bytes(padded[byte : byte + 3], "little") >> (position & 7) & ((1 << width) - 1)
        position += width
        if code == _CLEAR and first_free == 257:
            group = position = _next_group(position, group, width)
            table, width, previous = [*letters, b""], 9, b""
            continue
        if code < len(table):
            entry = table[code]
        elif code == len(table) and previous:
            entry = previous + previous[:1]
        else:
            raise BagDataError(f"Expected a sound .Z file, got code {code} out of turn; fetch the file again.")
        output.append(entry)
        if previous and len(table) < limit:
            table.append(previous + entry[:1])
        previous = entry
        if len(table) >= 1 << width and 1 << width < limit:
            group = position = _next_group(position, group, width)
            width += 1
    return b"".join(output)


def _next_group(position: int, group: int, width: int) -> int:
    """Return the bit where the next group of eight codes starts."""
    bits = 8 * width
    return group - (group - position) // bits * bits


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class CatalogSet:
    """Facts about a set of the catalog, with its counts."""

    name: str
    description: str
    license: str
    citation: str
    bags: int
    instances: int
    url: str | None = None  # public archive or, of a set with `obtain`, its origin; None: bundled
    obtain: str = ""  # how to obtain a set that has no public archive
    digest: str = ""  # of the content, see the kind of the set
    part: str | None = None  # default of the part in a name such as pdgm:FLAIR; None: no parts


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class TabularSet(CatalogSet):
    """A set of feature vectors; `member` and `form` as in `studies.sets.tabular.parse_archive`.

    Targets other than two classes have the `names` of `TargetLabels` and `counts`: bags of each class, with each label
    or with the event; empty for numbers.
    """

    features: int
    target: str = "binary"
    positives: int | None = None  # of two classes
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    member: str = ""
    form: str = ""

    @property
    def archive(self) -> str | None:
        """Address of the public archive; None if there is none."""
        return None if self.obtain else self.url

    @property
    def places(self) -> tuple[str, ...]:
        """Files to look for under ``$MIDAM_DATA`` or the cache."""
        return (f"{'tabular' if self.target == 'binary' else 'targets'}/{self.name}.npz", f"{self.name}.npz")

    @property
    def file(self) -> str:
        """Name of the file in the cache."""
        return f"{self.name}.npz"

    def read(self, name: str, path: Path, options: ImageOptions) -> Bags:
        """Read and verify the set; its file has the keys X, bag and y, or time and event (1: it happened)."""
        refuse_unused(options, (), kind="features", where=name)
        advice = self.obtain or "fetch it again"
        bags = read_npz(path, target=self.target, positive="1" if self.target == "survival" else None)
        return canonical(bags, name=name, digest=self.digest, advice=advice, names=self.names)

    def keep(self, archive: Path, target: Path) -> None:
        """Verify the downloaded bags, and write them into the cache."""
        bags = parse_archive(archive, member=self.member, form=self.form, features=self.features)
        write_npz(canonical(bags, name=self.name, digest=self.digest, advice="fetch it again"), target)

    def offline(self, target: Path) -> str:
        """Return how to get the set without a connection."""
        places = f"{self.file} or tabular/{self.file}"
        return f"set MIDAM_DATA to a folder that holds {places} (keys X, bag, y), or put the file at {target}"


class _Part(NamedTuple):
    digest: bytes
    rows: NDArray[np.float32]  # instances in lexicographic order
    bag: int


def content_digest(bags: Bags) -> str:
    """Return the SHA-256 of labels or outcome and instances (float32, rounded to 5 decimals), in any order."""
    return _join(_digested(bags))


def canonical(bags: Bags, *, name: str, digest: str, advice: str, names: Sequence[str] = ()) -> Bags:
    """Return bags of the expected `content_digest`, as float32 in canonical order, with ids ``name-0000``, ...

    Other bags are refused; `advice` says what to do once their file is removed. `names` are those of the outcome, which
    the digest does not cover.
    """
    parts = sorted(_digested(bags), key=lambda part: part.digest)
    actual = _join(parts)
    if actual != digest:
        raise BagDataError(
            f"Expected the content of {name} (digest {digest[:12]}), got {len(bags)} bags of digest {actual[:12]} "
            f"(in {bags.source}); remove the file and {advice}."
        )
    order, outcome = [part.bag for part in parts], bags.outcome
    if outcome is not None:
        outcome = TargetLabels.of(outcome.target, _rounded(outcome.values[order]), names=names)
    return Bags.from_list(
        [part.rows for part in parts],
        None if bags.labels is None else bags.labels[order],
        outcome=outcome,
        ids=[f"{name}-{number:04d}" for number in range(len(parts))],
        source=name,
    )


def _digested(bags: Bags) -> list[_Part]:
    parts = []
    for number, label in enumerate(_label_bytes(bags)):
        rows = bags[number].reshape(int(bags.sizes[number]), -1).astype(np.float32)
        rounded = _rounded(rows).astype("<f4")
        order = np.lexsort(rounded.T[::-1])
        parts.append(_Part(hashlib.sha256(label + rounded[order].tobytes()).digest(), rows[order], number))
    return parts


def _label_bytes(bags: Bags) -> list[bytes]:
    """Return the label of each bag as bytes: 0 or 1, or the target and its numbers."""
    if bags.outcome is None:
        return [bytes([label]) for label in bags.require_labels().tolist()]
    head = f"{bags.outcome.target}:".encode()
    return [head + row.tobytes() for row in _rounded(bags.outcome.values).astype("<f4")]


def _rounded(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return numbers rounded to 5 decimals, so that a copy in float32 has those of its float64 original."""
    rounded = np.round(values.astype(np.float32).astype(np.float64), 5) + 0.0  # -0 becomes 0
    return np.where(np.isnan(rounded), np.nan, rounded)


def _join(parts: Sequence[_Part]) -> str:
    return hashlib.sha256(b"".join(sorted(part.digest for part in parts))).hexdigest()
