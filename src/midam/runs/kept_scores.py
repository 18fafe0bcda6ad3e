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
from midam.files import Journal, remove_own
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

    def __init__(
        self, run: LoadedRun, bags: Bags, part: range, *, instances: Path | None, journal: Journal | None
    ) -> None:
        self._run, self._bags, self._part, self._instances = run, prepared(run.model, bags), part, instances
        self._chunk_size = run.settings.run.chunk_size or usual_chunk(bags.instance_shape)
        self._groups = [range(i, i + 1) for i in part]
        if instances is None:
            groups = bag_groups(self._bags.sizes[part.start : part.stop], chunk_size=self._chunk_size)
            self._groups = [part[group.start : group.stop] for group in groups]
        self._journal = journal
        self._rows: list[Any] = [] if journal is None else self._held(journal)

    @property
    def done(self) -> int:
        """Number of bags whose scores are known."""
        return sum(map(len, self._groups[: len(self._rows)]))

    def score(self, on_bags: Callable[[range], None]) -> Scores:
        """Score the other bags; returns the scores [n] or [n, C] of all.

        `on_bags` is called with the positions in the part of bags whose scores are known.
        """
        model, chunk_size = self._run.model, self._chunk_size
        on_bags(range(self.done))
        lost = self._lost()

        def add(scores: Scores) -> None:
            if lost:
                del lost[0]
                return
            first, group = self.done, self._groups[len(self._rows)]
            row = [self._digest(group, scores.tolist()), scores.tolist()]
            if self._journal is not None:
                self._journal.add([row])
            self._rows = [*self._rows, row] if self._journal is None else self._journal.rows
            on_bags(range(first, self.done))

        if self._instances is not None:
            write_instance_scores(
                model,
                self._bags,
                self._instances,
                part=[*lost, *self._part[self.done :]],
                columns=self._run.target.columns,
                chunk_size=chunk_size,
                on_score=add,
            )
        else:
            known = covariates_of(model, self._bags)
            for group in self._groups[len(self._rows) :]:
                bags, of_group = self._bags.subset(group), None if known is None else known[list(group)]
                add(predict(model, bags, chunk_size=chunk_size, covariates=of_group))
        return np.concatenate([np.array(scores) for _, scores in self._rows])

    def _held(self, journal: Journal) -> list[Any]:
        """Return the rows of a stopped call."""
        alike = journal.damaged is None and len(journal.rows) <= len(self._groups)
        for row, group in zip(journal.rows, self._groups):
            alike = alike and isinstance(row, list) and len(row) == 2 and row[0] == self._digest(group, row[1])
        if not alike:
            raise RunExistsError(
                f"Expected scores of the same run, options and bags, got others (in {journal.path}), left by a stopped "
                "call; remove the file, or choose another."
            )
        return journal.rows

    def _lost(self) -> list[int]:
        """Return the positions of bags with a row whose files of instances are missing."""
        if self._instances is None:
            return []
        names = file_names(self._bags)
        return [i for i in self._part[: self.done] if not (self._instances / f"{names[i]}.h5").exists()]

    def _digest(self, group: range, scores: object) -> str:
        folder = None if self._instances is None else str(self._instances.resolve())
        facts = [self._run.digest(), self._chunk_size, folder, self._bags.subset(group).fingerprint(), scores]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def vectors_beside(out: Path, data: str, bags: str | None) -> Path:
    """Return the start of the paths next to OUT that keep the vectors of raw files for a call.

    The same `data` and --bags make the same call. The vectors stay until its `journal_of` ends.
    """
    call = hashlib.sha256(json.dumps([str(Path(data).resolve()), bags]).encode()).hexdigest()[:12]
    return out.with_name(f".{out.name}.vectors") / call


@contextmanager
def journal_of(out: Path, vectors: Path | None = None) -> Iterator[Journal]:
    """Hold OUT.part, which keeps the scores of a stopped call; without a row it is removed at the end.

    Without an error, the `vectors` of the call are removed too; those of other stopped calls stay.

    Raises a `ConfigError` if another process writes it.
    """
    path = out.with_name(f"{out.name}.part")
    busy = ConfigError(
        f"Expected no other prediction that writes {path}, got one that is running; wait for its end, or choose "
        "another file."
    )
    with Journal(path, busy=busy) as journal:
        try:
            yield journal
        finally:
            if not journal.rows and journal.damaged is None:
                journal.remove()
    if vectors is not None:
        with suppress(OSError):
            for path in vectors.parent.glob(f"*{vectors.name}-*"):
                remove_own(path)
            vectors.parent.rmdir()
