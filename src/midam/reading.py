"""Reading of files that midam writes: bounded, and checked against their form; errors name the file and the place."""

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from midam.errors import CheckpointError, MidamError, fault_list
from midam.lazy_imports import pandas as pd
from midam.names import plain_cell, visible

DEEPEST, MOST_VALUES, LARGEST = 64, 20_000_000, 2**64  # depth of nesting, number of values, size of a whole number
_MOST_BYTES = 1 << 30
_ADVICE = "restore a copy of it, or make it again"


class Form(BaseModel):
    """Content of a file, by name and type; further entries are ignored."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)


def _ascending(bounds: list[float]) -> list[float]:
    if bounds[0] > bounds[1]:
        raise ValueError("the lower bound is above the upper one")
    return bounds


Number = Annotated[FiniteFloat, Field(ge=-1e300, le=1e300)]
_ROUNDING = 1e-9  # excess of a sum of shares over 1
Share = Annotated[float, Field(ge=-_ROUNDING, le=1 + _ROUNDING)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(ge=1, lt=2**53)]
Interval = Annotated[list[Number], Field(min_length=2, max_length=2), AfterValidator(_ascending)]


def read_bytes(path: Path, *, error: type[MidamError] = CheckpointError, most: int = _MOST_BYTES) -> bytes:
    """Read a regular file of at most `most` bytes; refuse a folder, pipe or device without blocking."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise error(f"Expected a file, got a folder, pipe or device (in {path}); {_ADVICE}.")
            content = file.read(most + 1)
    except FileNotFoundError:
        raise error(f"Expected the file {path.name}, got nothing at {path}; {_ADVICE}.") from None
    except OSError as reason:
        cause = reason.strerror or type(reason).__name__
        raise error(f"Expected a file that can be read, got {cause} (in {path}); {_ADVICE}.") from None
    if len(content) > most:
        raise error(f"Expected at most {most} bytes, got more (in {path}); {_ADVICE}.")
    return content


def read_text(path: Path, *, error: type[MidamError] = CheckpointError, most: int = _MOST_BYTES) -> str:
    """Read the text of a file in UTF-8."""
    try:
        return read_bytes(path, error=error, most=most).decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise error(f"Expected text in UTF-8, got other bytes at {reason.start} (in {path}); {_ADVICE}.") from None


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text; raise a `ValueError` for an infinite or too long number, a duplicate key, or deep nesting."""
    try:
        content = json.loads(text, parse_constant=_not_finite, object_pairs_hook=_once)
    except (RecursionError, MemoryError):
        raise ValueError(f"parts inside each other, more than {DEEPEST} deep") from None
    fault = plain_fault(content)
    if fault is not None:
        raise ValueError(fault)
    return content


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        content = parse_json(read_bytes(path))
    except MidamError:
        raise
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise CheckpointError(f"Expected a whole JSON file, got a damaged one (in {path}); copy it again.")
    return content


def check_form(
    content: Any,
    form: type[BaseModel],
    path: Path,
    *,
    expected: str = "",
    error: type[MidamError] = CheckpointError,
    advice: str = _ADVICE,
) -> None:
    """Refuse content of a file that lacks the form; the message names the `expected` content, the key and the file."""
    try:
        form.model_validate(content)
    except ValidationError as reason:
        wanted, faults = f"Expected {expected or f'{path.name} as midam writes it'}, got", list[str]()
        for fault in reason.errors(include_url=False):
            where = ".".join(map(str, fault["loc"])) or "content"
            message = fault["msg"].removeprefix("Value error, ")
            faults.append(f"{wanted} {where}: {message} (in {path}); {advice}.")
        raise error(fault_list(f"{wanted} {len(faults)} faults (in {path}):", faults)) from None


def plain_fault(values: Any, *, deepest: int = DEEPEST, most: int = MOST_VALUES) -> str | None:
    """Return the fault of a tree of values that is too large or not plain (text, number, list, dictionary), or None.

    A repeated part counts each time.
    """
    left, seen = [(values, 0)], 0
    while left:
        value, depth = left.pop()
        seen += 1
        if isinstance(value, dict):
            seen += len(value)
            strange = next((x for x in value if not isinstance(x, str | int | float | None) or "\0" in str(x)), None)
            if strange is not None:
                return f"the key {str(strange)[:40]!r}"
            left += [(part, depth + 1) for part in value.values()]
        elif isinstance(value, list):
            left += [(part, depth + 1) for part in value]
        elif isinstance(value, int):
            if abs(value) >= LARGEST:
                return "a whole number beyond 64 bits"
        elif "\0" in value if isinstance(value, str) else not isinstance(value, float | None):
            return "a text with NUL" if isinstance(value, str) else type(value).__name__
        if depth > deepest or seen + len(left) > most:
            return f"parts inside each other, more than {deepest} deep or {most} in all"
    return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file (hex)."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_table(path: Path, digest: str | None, *, names: Iterable[str] = ()) -> "pd.DataFrame":
    """Read a CSV table that `midam.runs.folder.csv_text` wrote, as text; refuse content without the `digest`.

    `names` are columns whose control characters the file shows as escapes.
    """
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(f"Expected {path.name} as midam wrote it, got other content (in {path}); {_ADVICE}.")
    shown = {visible(name): name for name in names}
    frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False).map(plain_cell)
    return frame.rename(columns=lambda name: shown.get(plain_cell(name), plain_cell(name)))


def check_archive(path: Path) -> None:
    """Check the checksums of a `torch.save` file; raise a `ValueError` for them, or for parts that grow when read.

    torch stores all parts uncompressed: a compressed or doubled part holds more than its bytes in the file.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        packed = next((part.filename for part in parts if part.file_size != part.compress_size), None)
        if packed is not None or sum(part.file_size for part in parts) > path.stat().st_size:
            raise ValueError(f"parts of more bytes than the file, such as {packed or parts[0].filename}")
        broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"the checksum of {broken} is wrong")


def _not_finite(word: str) -> Any:
    raise ValueError(f"the number {word}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a key twice")
    return entries
