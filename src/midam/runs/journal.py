"""Journal of a call: finished work on disk, so that the same call can continue after a stop."""

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.digests import contents_digest
from midam.errors import ConfigError, MidamError, RunExistsError
from midam.files import Journal

_LAYOUT = 2  # version of the lines: each holds the scores of several bags


class CallJournal(Journal):
    """File of a line with the call, then a line for each finished step; one process at a time writes it.

    `call` holds everything besides the bags that the results depend on, as JSON. `busy` is raised if another process
    holds the file, `other` if the file belongs to another call or a line does not match its checksum.
    """

    def __init__(self, path: Path, call: dict[str, Any], *, busy: MidamError, other: MidamError) -> None:
        super().__init__(path, busy=busy)
        if not self.rows and self.damaged is None:
            try:
                self.add([call])
            except OSError:
                super().close()
                path.unlink(missing_ok=True)
                raise
        elif self.damaged is not None or self.rows[0] != call or not self._sound():
            super().close()
            raise other

    @property
    def steps(self) -> list[Any]:
        """The finished steps."""
        return [step for _, step in self.rows[1:]]

    def add_steps(self, steps: Sequence[Any]) -> None:
        """Append steps; they are on the disk when the call returns."""
        self.add([_checksum(step), step] for step in steps)

    def _sound(self) -> bool:
        lines = self.rows[1:]
        return all(isinstance(line, list) and len(line) == 2 and line[0] == _checksum(line[1]) for line in lines)


def _checksum(row: Any) -> str:
    return f"{zlib.crc32(json.dumps(row).encode()):08x}"


def _is_scored(row: Any) -> bool:
    """Return whether a row holds a position, a count, a digest, and base64 numbers of a multiple of the count."""
    kinds = (int, int, str, str)
    if not isinstance(row, list) or [type(part) for part in row] != list(kinds) or row[0] < 0 or row[1] < 1:
        return False
    try:
        scores = np.frombuffer(base64.b64decode(row[3], validate=True), dtype="<f8")
    except ValueError:
        return False
    return len(scores) > 0 and len(scores) % row[1] == 0 and bool(np.isfinite(scores).all())


class ScoreJournal(CallJournal):
    """Journal of scores, next to the file of all scores; a journal without a score is removed when it is closed.

    A line describes neighboring bags: position of the first, count, digest of their content, and scores. Raises a
    `RunExistsError` if the file belongs to another call, and a `ConfigError` if another process writes it.
    """

    def __init__(self, path: Path, call: dict[str, Any]) -> None:
        busy = ConfigError(
            f"Expected no other prediction that writes {path}, got one that is running; wait for its end, or choose "
            "another file."
        )
        other = RunExistsError(
            f"Expected scores of the same run and options, got others (in {path}), left by a stopped call; remove the "
            "file, or choose another."
        )
        super().__init__(path, {"scores": _LAYOUT, **call}, busy=busy, other=other)
        if not all(map(_is_scored, self.steps)):
            super().close()
            raise other
        self._scores = {(first, count): (content, scores) for first, count, content, scores in self.steps}

    def close(self) -> None:
        """Let go of the file."""
        super().close()
        if not self._scores:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        """Return the number of bags with scores."""
        return sum(count for _, count in self._scores)

    def known(self, bags: Bags, group: range) -> NDArray[np.float64] | None:
        """Return scores [n] or [n, C] of these bags if they were scored together and have not changed, else None."""
        entry = self._scores.get((group.start, len(group)))
        if entry is None or entry[0] != contents_digest(bags.subset(group)):
            return None
        scores = np.frombuffer(base64.b64decode(entry[1]), dtype="<f8").reshape(len(group), -1)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def add_scores(self, bags: Bags, group: range, scores: NDArray[np.float64]) -> None:
        """Add the scores of the bags at the positions `group`."""
        text = base64.b64encode(np.ascontiguousarray(scores, dtype="<f8").tobytes()).decode()
        row = [group.start, len(group), contents_digest(bags.subset(group)), text]
        self.add_steps([row])
        self._scores[group.start, len(group)] = (row[2], text)
