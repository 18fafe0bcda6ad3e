"""Scores of the bags that are done, on disk while the others are computed, so that a stopped call can go on."""

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags, bag_digests
from midam.errors import ConfigError, RunExistsError


class ScoreJournal:
    """A file beside the one that will hold all scores: a line that says of which call, then a line a bag.

    Each group of lines is on the disk before the next bags are scored. A last line that was cut off is dropped. A
    context manager: while it is open, no other process can write the same file.

    Parameters
    ----------
    path : Path
        The file; made with the first scores.
    call : dict
        What the scores depend on beside the bags, as JSON.

    Raises
    ------
    RunExistsError
        If the file holds scores of another call, or anything else.
    ConfigError
        If another process writes the file.
    """

    def __init__(self, path: Path, call: dict[str, Any]) -> None:
        self.path = path
        self._call = call
        self._done: dict[str, tuple[str, float]] = {}
        self._length = 0
        self._file: BinaryIO | None = None
        if path.exists():
            self._read(self._open())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __len__(self) -> int:
        """Bags that are done."""
        return len(self._done)

    def known(self, bags: Bags) -> dict[int, float]:
        """Scores by position, of the bags that were scored with the very instances that they hold now."""
        named = [i for i, bag in enumerate(bags.ids) if str(bag) in self._done]
        if not named:
            return {}
        found = {}
        for i, digest in zip(named, bag_digests(bags.subset(named))):
            content, score = self._done[str(bags.ids[i])]
            if content == digest:
                found[i] = score
        return found

    def add(self, bags: Bags, index: Sequence[int], scores: NDArray[np.float64]) -> None:
        """Note the scores of the bags at the positions `index`."""
        contents = bag_digests(bags.subset(index))
        names = [str(bags.ids[i]) for i in index]
        lines = [] if self._length else [json.dumps(self._call)]
        for name, content, score in zip(names, contents, scores.tolist()):
            lines.append(json.dumps([name, content, score]))
        self._append("".join(f"{line}\n" for line in lines).encode())
        self._done.update(zip(names, zip(contents, scores.tolist())))

    def remove(self) -> None:
        """Remove the file, once the scores stand elsewhere."""
        self.path.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        try:
            file = self._file or self._open()
            file.truncate(self._length)
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except ConfigError:
            raise
        except OSError as error:
            if not self._length:
                with suppress(OSError):
                    self.remove()
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._length += len(data)

    def _open(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("ab+", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConfigError(
                f"Expected no other prediction that writes {self.path}, got one that is running; wait for its end, or "
                "choose another --out."
            ) from None
        self._file = file
        return file

    def _read(self, file: BinaryIO) -> None:
        file.seek(0)
        data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        try:
            call, *rows = [json.loads(line) for line in whole.splitlines()] or [self._call]
            found = {str(name): (str(content), float(score)) for name, content, score in rows}
        except (ValueError, TypeError):
            call, found = None, {}
        if call != self._call:
            raise RunExistsError(
                f"Expected scores of the same run and options, got others (in {self.path}), which a call that was "
                "stopped has left; remove the file, or choose another --out."
            )
        self._length, self._done = len(whole), found
