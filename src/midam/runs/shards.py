"""Shards: parts of the bags that separate processes score, and the merge of their tables."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from midam.errors import ConfigError, DataNotFoundError
from midam.evaluate.predict import bag_groups
from midam.files import write_json, write_parts
from midam.names import missing
from midam.plain_files import open_plain
from midam.reading import Count, Form, Positive, check_form, parse_json, read_bytes

_FORMAT = "midam shard"
_VERSION = 1
_NAME = re.compile(r".*\.shard-\d+-of-\d+")
_BLOCK = 1 << 20
_SHOWN = 8
_SLURM = "SLURM_ARRAY_TASK_"


@dataclass(frozen=True)
class Shard:
    """Shard `number` of `count`; numbers begin at 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def of(cls, text: str, *, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the shard that a text such as 3/16 names; for "auto", the shard of this task of a SLURM job array.

        The tasks of an array are counted from 1 in their order; their first number and step do not matter.

        Examples
        --------
        >>> Shard.of("3/16")
        Shard(number=3, count=16)
        >>> of_task = {"ID": "8", "MIN": "0", "MAX": "12", "COUNT": "4", "STEP": "4"}
        >>> Shard.of("auto", environment={f"SLURM_ARRAY_TASK_{name}": value for name, value in of_task.items()})
        Shard(number=3, count=4)
        """
        if text == "auto":
            return cls(*_of_task(environment))
        match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise ConfigError(
                f"Expected --shard as K/N with K from 1 to N, such as 3/16, or auto, got {text!r}; choose another."
            )
        return cls(number, count)


def _of_task(environment: Mapping[str, str]) -> tuple[int, int]:
    names = ("ID", "MIN", "MAX", "COUNT")
    values = {name: environment.get(_SLURM + name, "") for name in (*names, "STEP")}
    missing = [_SLURM + name for name in names if not values[name].isdigit()]
    if missing:
        raise ConfigError(
            f"Expected a task of a SLURM job array for --shard auto, got no {missing[0]}; name the shard, as in "
            "--shard 3/16."
        )
    task, first, last, count = (int(values[name]) for name in names)
    step = int(values["STEP"]) if values["STEP"].isdigit() and int(values["STEP"]) else 1
    if (last - first) // step + 1 != count or (task - first) % step or not first <= task <= last:
        raise ConfigError(
            f"Expected the tasks of a SLURM job array without gaps for --shard auto, got {count} from {first} to "
            f"{last} in steps of {step}; name the shard, as in --shard 3/16."
        )
    return (task - first) // step + 1, count


def shard_range(sizes: NDArray[np.int64], shard: Shard, *, chunk_size: int) -> range:
    """Return the contiguous positions of a shard's bags; all shards have about the same number of instances.

    `sizes` [N] are the sizes of all bags. A shard consists of whole groups of `midam.evaluate.predict.bag_groups`, so
    that the same bags are scored together for any number of shards, and scores equal those of one pass to the bit. If
    there are fewer groups than shards, some shards are empty.

    Examples
    --------
    >>> sizes = np.full(10_000, 10)
    >>> [len(shard_range(sizes, Shard(number, 2), chunk_size=100)) for number in (1, 2)]
    [4960, 5040]
    """
    groups = list(bag_groups(sizes, chunk_size=chunk_size))
    stops = np.array([group.stop for group in groups])
    ends = np.cumsum(sizes)[stops - 1]
    # A group belongs to the shard whose range of instances contains the group's middle.
    middles = ends + np.append(0, ends[:-1])
    belongs = middles * shard.count // (2 * int(ends[-1])) + 1
    edges = np.append(0, stops)
    low, high = np.searchsorted(belongs, [shard.number, shard.number + 1])
    return range(int(edges[low]), int(edges[high]))


def shard_path(out: Path, shard: Shard) -> Path:
    """Return the path of a shard's file for predictions `out`.

    Examples
    --------
    >>> shard_path(Path("scores.csv"), Shard(3, 16)).name
    'scores.shard-03-of-16.csv'
    """
    number = str(shard.number).zfill(len(str(shard.count)))
    return out.with_name(f"{out.stem}.shard-{number}-of-{shard.count}{out.suffix}")


class ShardFacts(Form):
    """Facts about the table of a shard, kept in a .json file of the same name.

    Attributes
    ----------
    number, count : int
        Shard `number` of `count`; numbers begin at 1.
    first, bags, of_bags : int
        Position of its first bag, number of its bags, and number of all bags.
    run, data : str
        Digests of the run and of the data.
    run_source, data_source : str
        Names of run and data in messages.
    call : dict
        Options that the scores depend on.
    header : int
        Bytes of the table's header line; `write_shard` sets `header` and `table`.
    table : str
        SHA-256 of the table.
    """

    number: Positive
    count: Positive
    first: Count
    bags: Count
    of_bags: Positive
    run: str
    data: str
    run_source: str
    data_source: str
    call: dict[str, Any]
    header: Positive
    table: str

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.number > self.count or self.first + self.bags > self.of_bags:
            raise ValueError("a shard beyond the last one, or bags beyond the last one")
        return self

    @classmethod
    def read(cls, table: Path) -> Self:
        """Read the facts about the table of a shard; raise a `ConfigError` if they are missing or wrong."""
        path = _facts_path(table)
        try:
            content = parse_json(read_bytes(path, error=ConfigError))
        except ValueError:  # `ConfigError` is a subclass
            content = None
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ConfigError(f"Expected the facts of a shard next to {table}, got none in {path}; score it again.")
        if content.pop("version", None) != _VERSION:
            raise ConfigError(f"Expected a shard of this version of midam, got another (in {path}); score it again.")
        others = [name for name in content if name not in cls.model_fields]
        if others:
            raise ConfigError(f"Expected the facts of a shard, got others, {others[0]} (in {path}); score it again.")
        check_form(content, cls, path, expected="the facts of a shard", error=ConfigError, advice="score it again")
        facts = cls(**content)
        if not table.is_file() or _digest(table) != facts.table:
            raise ConfigError(
                f"Expected the table of a shard as it was written, got another (in {table}); score it again."
            )
        return facts


def write_shard(out: Path, facts: ShardFacts, parts: Iterator[bytes]) -> None:
    """Write the table of a shard and then its facts; the first of `parts` is the header."""
    digest, header = hashlib.sha256(), next(parts)

    def digested() -> Iterator[bytes]:
        for part in chain([header], parts):
            digest.update(part)
            yield part

    write_parts(out, digested(), typed=True)
    entries = {**facts.model_dump(), "header": len(header), "table": digest.hexdigest()}
    write_json(_facts_path(out), {"format": _FORMAT, "version": _VERSION, **entries})


def shard_files(paths: Sequence[Path]) -> list[Path]:
    """Return the tables of shards among these files and in these folders, without their facts and journals."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise DataNotFoundError(missing(path, "a file or folder of shards"))
        files += [file for file in sorted(path.iterdir()) if _NAME.fullmatch(file.stem)] if path.is_dir() else [path]
    tables = [path for path in files if path.suffix not in (".json", ".part", ".lock")]
    if not tables:
        places = ", ".join(map(str, paths))
        raise ConfigError(f"Expected files of shards, got none (in {places}); name the files, or their folder.")
    return tables


def merge_shards(tables: Sequence[Path], out: Path) -> ShardFacts:
    """Merge the tables of all shards of a prediction into one file, which equals the file of one pass to the byte.

    Returns the facts of the first shard. Raises a `ConfigError` for a shard that is missing, damaged or given twice, or
    that belongs to another run, other data, other options or another number of shards.
    """
    shards = {path: ShardFacts.read(path) for path in tables}
    first = _of_one_prediction(shards)
    _all_once(shards, first)
    ordered = sorted(shards, key=lambda path: shards[path].number)
    heads = {path: _head(path, facts) for path, facts in shards.items()}
    other = next((path for path in ordered if heads[path] != heads[ordered[0]]), None)
    if other is not None:
        raise ConfigError(
            f"Expected shards with the same columns, got different columns in {other} and {ordered[0]}; score both "
            "with the same tables of labels."
        )

    def joined() -> Iterator[bytes]:
        yield heads[ordered[0]]
        for path in ordered:
            with open_plain(path) as file:
                file.seek(shards[path].header)
                yield from iter(lambda file=file: file.read(_BLOCK), b"")  # type: ignore[misc]

    write_parts(out, joined(), typed=True)
    return first


def _of_one_prediction(shards: Mapping[Path, ShardFacts]) -> ShardFacts:
    """Return the facts of the first shard; raise a `ConfigError` if another shard does not match them."""
    (path, first), *others = shards.items()
    for other, facts in others:
        for name, equal, keys in (
            ("run", "one run", "run_source"),
            ("data", "the same data", "data_source"),
            ("of_bags", "the same data", "data_source"),
            ("count", "one number of shards", "count"),
            ("call", "the same options", "call"),
        ):
            if getattr(first, name) != getattr(facts, name):
                raise ConfigError(
                    f"Expected shards of {equal}, got {_text(first, keys)} (in {path}) and {_text(facts, keys)} (in "
                    f"{other}), which differ; name only the shards of one prediction."
                )
    return first


def _text(facts: ShardFacts, name: str) -> str:
    value = getattr(facts, name)
    return ", ".join(f"{key} {option}" for key, option in value.items()) if isinstance(value, dict) else str(value)


def _all_once(shards: Mapping[Path, ShardFacts], first: ShardFacts) -> None:
    files: dict[int, Path] = {}
    for path, facts in shards.items():
        if facts.number in files:
            raise ConfigError(
                f"Expected each shard once, got shard {facts.number}/{facts.count} in {files[facts.number]} and in "
                f"{path}; name one of them."
            )
        files[facts.number] = path
    missing = [number for number in range(1, first.count + 1) if number not in files]
    if missing:
        text = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        raise ConfigError(
            f"Expected all {first.count} shards, got {len(files)}, without {text} (in {next(iter(shards)).parent}); "
            f"score them, as with --shard {missing[0]}/{first.count}, or name their files too."
        )


def _facts_path(table: Path) -> Path:
    return table.with_suffix(".json")


def _head(table: Path, facts: ShardFacts) -> bytes:
    with open_plain(table) as file:
        return file.read(facts.header)


def _digest(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
