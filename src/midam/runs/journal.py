"""Scores of the bags that are done, on disk while the others are computed, so that a stopped call can go on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags, bag_digests
from midam.data.locked_lines import LockedLines
from midam.errors import ConfigError, RunExistsError


class ScoreJournal(LockedLines):
    """A file beside the one that will hold all scores: a line that says of which call, then a line a bag.

    Each group of lines is on the disk before the next bags are scored. While the journal is open, no other process can
    write the same file; one without a score is removed when it is closed.

    Parameters
    ----------
    path : Path
        The file; its folder is made if missing.
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
        path.parent.mkdir(parents=True, exist_ok=True)
        busy = (
            f"Expected no other prediction that writes {path}, got one that is running; wait for its end, or choose "
            "another --out."
        )
        super().__init__(path, busy=ConfigError(busy))
        self._call = call
        try:
            self._done = self._read_scores()
        except RunExistsError:
            super().__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._done:
            self.remove()
        super().__exit__()

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
        lines = [] if self._done else [json.dumps(self._call)]
        for name, content, score in zip(names, contents, scores.tolist()):
            lines.append(json.dumps([name, content, score]))
        self.append("".join(f"{line}\n" for line in lines))
        self._done.update(zip(names, zip(contents, scores.tolist())))

    def _read_scores(self) -> dict[str, tuple[str, float]]:
        lines = self.read()
        try:
            call, *rows = [json.loads(line) for line in lines] or [self._call]
            found = {str(name): (str(content), float(score)) for name, content, score in rows}
        except (ValueError, TypeError):
            call, found = None, {}
        if call != self._call:
            raise RunExistsError(
                f"Expected scores of the same run and options, got others (in {self.path}), which a call that was "
                "stopped has left; remove the file, or choose another --out."
            )
        self.cut(sum(len(line) + 1 for line in lines) if found else 0)
        return found
