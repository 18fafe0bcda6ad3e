"""Scores that are on the disk as soon as they are known, so that a stopped prediction continues."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import ConfigError, RunExistsError
from midam.evaluate.predict import bag_groups, covariates_of, predict, prepared
from midam.files import Journal
from midam.runs.instance_files import file_names, write_instance_scores
from midam.runs.loaded import LoadedRun
from midam.settings import usual_chunk

Scores = NDArray[np.float64]


class KeptScores:
    """The scores of a run for the bags at the positions `part`, group by group, with those of a stopped call.

    A row of the `journal` holds the scores of a group, and a digest of them, the run, the options and the content of
    the bags: rows of another call are refused with a `RunExistsError`. If instances are written to the folder
    `instances`, a group is one bag; a file that is missing though its row is there is written again.
    """

    def __init__(self, run: LoadedRun, bags: Bags, part: range, *, instances: Path | None, journal: Journal) -> None:
        self._run, self._bags, self._part, self._instances = run, prepared(run.model, bags), part, instances
        self._chunk_size = run.settings.run.chunk_size or usual_chunk(bags.instance_shape)
        self._groups = [range(i, i + 1) for i in part]
        if instances is None:
            groups = bag_groups(self._bags.sizes[part.start : part.stop], chunk_size=self._chunk_size)
            self._groups = [part[group.start : group.stop] for group in groups]
        self._call = [run.digest(), self._chunk_size, None if instances is None else str(instances.resolve())]
        self._journal = journal
        alike = journal.damaged is None and len(journal.rows) <= len(self._groups)
        for row, group in zip(journal.rows, self._groups):
            alike = alike and isinstance(row, list) and len(row) == 2 and row[0] == self._digest(group, row[1])
        if not alike:
            got = f"others (in {journal.path}), left by a stopped call; remove the file, or choose another"
            raise RunExistsError(f"Expected scores of the same run, options and bags, got {got}.")

    @property
    def done(self) -> int:
        """Number of bags whose scores are known."""
        return sum(map(len, self._groups[: len(self._journal.rows)]))

    def score(self, on_bags: Callable[[range], None]) -> Scores:
        """Score the other bags; returns the scores [n] or [n, C] of all.

        `on_bags` is called with the positions in the part of bags whose scores are known.
        """
        model, done, kept = self._run.model, self.done, len(self._journal.rows)
        on_bags(range(done))

        def add(scores: Scores) -> None:
            first, group = self.done, self._groups[len(self._journal.rows)]
            self._journal.add([[self._digest(group, scores.tolist()), scores.tolist()]])
            on_bags(range(first, self.done))

        if self._instances is None:
            known = covariates_of(model, self._bags)
            for group in self._groups[kept:]:
                bags, of_group = self._bags.subset(group), None if known is None else known[list(group)]
                add(predict(model, bags, chunk_size=self._chunk_size, covariates=of_group))
        else:
            names, columns = file_names(self._bags), self._run.target.columns
            lost = [i for i in self._part[:done] if not (self._instances / f"{names[i]}.h5").exists()]
            for part, on_score in ((lost, None), (self._part[done:], add)):
                options: dict[str, Any] = {"columns": columns, "chunk_size": self._chunk_size, "on_score": on_score}
                write_instance_scores(model, self._bags, self._instances, part=part, **options)
        return np.concatenate([np.array(scores) for _, scores in self._journal.rows])

    def _digest(self, group: range, scores: object) -> str:
        facts = [*self._call, self._bags.subset(group).fingerprint(), scores]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@contextmanager
def journal_of(out: Path) -> Iterator[Journal]:
    """Hold OUT.part, which keeps the scores of a stopped call; it is removed at the end.

    After an error, only a journal without a row is, and with it the folder that was made for it.

    Raises a `ConfigError` if another process writes it.
    """
    path = out.with_name(f"{out.name}.part")
    text = f"Expected no other prediction that writes {path}, got one that is running"
    busy, new = ConfigError(f"{text}; wait for its end, or choose another file."), not out.parent.exists()
    with Journal(path, busy=busy) as journal:
        try:
            yield journal
        except BaseException:
            if not journal.rows and journal.damaged is None:
                journal.remove()
            if new:
                with suppress(OSError):  # a folder that holds something stays
                    out.parent.rmdir()
            raise
        journal.remove()
