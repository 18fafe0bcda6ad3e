"""Finished trials on disk: one line of JSON each, so that a stopped study goes on where it was.

Beside a page they are published packed, `trials/NAME.jsonl.gz`: its figures can be checked, and the study carried on by
someone who has not the machine that it began on.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.errors import BagDataError, DataNotFoundError
from midam.files import write_bytes
from midam.train.config import FitConfig, to_dict

Row = dict[str, Any]
Key = tuple[Any, ...]

# How a file of published trials ends.
PACKED = ".jsonl.gz"

# Settings that the rows of a study name themselves, or that change no number.
_NAMED = ("seed", "lr", "margin", "threads", "logger", "accelerator")
# Settings that are older than the first trials; a later one counts where it is not left at its default, so that
# trials that were finished before there was such a setting stay valid.
_FIRST = (
    "pooling estimator objective members epochs decay_at optimizer momentum weight_decay num_positive num_negative "
    "num_instances state_rate state_schedule lag dual_lr objective_weight dual_domain temperature pooling_args encoder "
    "hidden dropout norm standardize scaling clip chunk_size val_fraction test_fraction select patience bag_column "
    "label_column groups split coords ignore allow_leakage precision"
)
# Their defaults were once these numbers, and still are for the mlp.
_ONCE: dict[str, Any] = {"clip": 3.0, "chunk_size": 4096}


class Store:
    """Rows of JSON in a file that only grows.

    A line that was cut off by a crash is dropped when the file is opened.

    Parameters
    ----------
    path : Path
        The file; its folder is made.

    Attributes
    ----------
    rows : list of dict
        What is in the file.

    Raises
    ------
    BagDataError
        If a line before the last is damaged.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "trials.jsonl"
    >>> Store(path).add([{"split": 0, "auroc": 0.9}])
    >>> Store(path).rows
    [{'split': 0, 'auroc': 0.9}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        text = path.read_bytes() if path.exists() else b""
        whole, _, cut = text.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self.rows.append(json.loads(line))
            except ValueError:
                raise BagDataError(
                    f"Expected a line of JSON, got damage (in {path}, line {number}); remove the line."
                ) from None
        if cut:
            os.truncate(path, len(text) - len(cut))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, in one write."""
        new = [dict(row) for row in rows]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in new))
            file.flush()
        self.rows += new

    def publish(self, folder: Path) -> Path:
        """Write ``FOLDER/NAME.jsonl.gz``, byte for byte the same from the same rows; returns its path."""
        path = folder / f"{self.path.stem}{PACKED}"
        write_packed(path, self.path.read_bytes())
        return path


def write_packed(path: Path, content: bytes) -> None:
    """Write a gzip file, the same for the same content, into a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, gzip.compress(content, compresslevel=9, mtime=0))


def take_published(path: Path, cache: Path) -> int:
    """Add published trials that the cache does not hold to it; returns how many.

    Parameters
    ----------
    path : Path
        What `Store.publish` wrote.
    cache : Path
        Folder of the finished trials; ``CACHE/NAME.jsonl`` grows or is made.

    Raises
    ------
    DataNotFoundError
        If there is no such file.
    BagDataError
        If the file is no packed store.

    Examples
    --------
    >>> import tempfile
    >>> first, second = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> store = Store(first / "study.jsonl")
    >>> store.add([{"split": 0}, {"split": 1}])
    >>> packed = store.publish(first / "trials")
    >>> take_published(packed, second), take_published(packed, second), Store(second / "study.jsonl").rows
    (2, 0, [{'split': 0}, {'split': 1}])
    """
    if not path.is_file():
        raise DataNotFoundError(f"Expected published trials, got no file {path}; name one, e.g. trials/table2{PACKED}.")
    if not path.name.endswith(PACKED):
        raise BagDataError(f"Expected published trials, NAME{PACKED}, got {path}; name such a file.")
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        rows: list[Row] = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError, zlib.error):
        raise BagDataError(f"Expected lines of JSON packed by gzip, got damage (in {path}); fetch it again.") from None
    store = Store(cache / path.name.removesuffix(".gz"))
    held = {json.dumps(row) for row in store.rows}
    new = [row for row in rows if json.dumps(row) not in held]
    store.add(new)
    return len(new)


def settings_hash(config: FitConfig, *, bags: Bags | None = None) -> str:
    """Return a short digest of the settings that the rows do not name, and of the bags.

    Examples
    --------
    >>> settings_hash(FitConfig(lr=0.1)) == settings_hash(FitConfig(lr=0.2)) != settings_hash(FitConfig(momentum=0.9))
    True
    """
    usual, first = to_dict(FitConfig()), set(_FIRST.split())
    # Bags of images have their encoder named by the studies on them.
    config = config.for_instances((1,))
    settings = to_dict(config)
    if config.encoder == "mlp":
        settings |= {name: value for name, value in _ONCE.items() if settings[name] is None}
    values = {
        name: value
        for name, value in settings.items()
        if name not in _NAMED and (name in first or value != usual[name])
    }
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    if bags is not None:
        digest.update(_content(bags))
    return digest.hexdigest()[:12]


@lru_cache(maxsize=32)
def _content(bags: Bags) -> bytes:
    parts = (bags.instances, bags.starts, bags.sizes, bags.require_labels())
    digests = [hashlib.sha256(np.ascontiguousarray(part).tobytes()).digest() for part in parts]
    return b"".join(digests)
