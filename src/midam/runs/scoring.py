"""Score bags with trained runs: read bags once for all, keep finished rows on the disk, check disk space."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.digests import contents_digest
from midam.data.on_disk import Rows
from midam.data.validate import row_chunks
from midam.errors import ConfigError, RunExistsError
from midam.evaluate.predict import bag_groups, covariates_of, predict, predict_each, prepared
from midam.files import Journal, require_space
from midam.names import safe_cell
from midam.runs.instance_files import bytes_of_files, file_names, write_instance_scores
from midam.runs.loaded import LoadedRun
from midam.runs.results import predictions_text
from midam.runs.typical import warn_of_units

Scores = NDArray[np.float64]
OnBags = Callable[[Sequence[int]], None]
_GROUP_LINE = 128  # bytes of a group in a journal besides its scores


class ScoreTable:
    """The table of scores of one run, for the bags at the positions `part`, which are scored group by group.

    `midam.evaluate.predict.prepared` matches features by name and fills missing values. With a `journal`, each group of
    rows is on the disk when it is scored, and the rows of a stopped call are kept. If instances are written to the
    folder `instances`, a group is one bag.
    """

    def __init__(
        self, run: LoadedRun, bags: Bags, part: range, *, instances: Path | None = None, journal: Journal | None = None
    ) -> None:
        self.run, self.bags, self.part, self.instances = run, prepared(run.model, bags), part, instances
        self.journal = journal
        self._rows: list[Any] = [] if journal is None else journal.rows
        folder = None if instances is None else str(instances.resolve())
        self._call = [run.digest(), run.settings.run.chunk_size, folder]
        if journal is not None and (journal.damaged is not None or len(self._rows) > sum(1 for _ in self.groups())):
            raise self._other()

    @property
    def done(self) -> int:
        """Number of bags whose rows are there."""
        return sum(len(group) for group in islice(self.groups(), len(self._rows)))

    def groups(self) -> Iterator[range]:
        """Yield the positions of the bags that are scored together."""
        if self.instances is not None:
            yield from (range(i, i + 1) for i in self.part)
            return
        sizes = self.bags.sizes[self.part.start : self.part.stop]
        for group in bag_groups(sizes, chunk_size=self.run.settings.run.chunk_size) if len(sizes) else ():
            yield range(self.part.start + group.start, self.part.start + group.stop)

    def has(self, number: int, group: range) -> bool:
        """Return whether the rows of a group, the `number`-th from 0, are there; refuse those of another call."""
        if number >= len(self._rows) or self.journal is None:
            return False
        row = self._rows[number]
        if not (isinstance(row, list) and len(row) == 2) or row[0] != self._digest(group, row[1]):
            raise self._other()
        return True

    def add(self, group: range, scores: Scores) -> None:
        """Add the rows of the next group, with scores [n] or [n, C]; on return they are on the disk."""
        text = self.text(group, scores)
        if self.journal is None:
            self._rows.append([None, text])
        else:
            self.journal.add([[self._digest(group, text), text]])

    def text(self, group: range, scores: Scores, *, header: bool = False) -> str:
        """Return rows as CSV, with or without the header."""
        bags, run = self.bags.subset(group), self.run
        return predictions_text(bags, run.target, scores, decision=run.decision, header=header)

    def content(self) -> Iterator[bytes]:
        """Yield the CSV of all bags: the header, then the rows of each group."""
        columns = self.run.target.count
        blank = np.zeros(1 if columns == 1 else (1, columns))
        whole, row = (self.text(range(1), blank, header=header) for header in (True, False))
        yield whole[: len(whole) - len(row)].encode()
        yield from (text.encode() for _, text in self._rows)

    def called(self, *, every: bool) -> tuple[NDArray[np.int64], Scores]:
        """Return the positions of the bags called positive, or of `every` bag, and the scores [N] or [N, C] by bag.

        The scores are those of the rows; bags outside the part have NaN. Without a threshold, every bag is returned.
        """
        target, names = self.run.target, self.run.target.score_columns
        scores, called = np.full((len(self.bags), len(names)), np.nan), np.zeros(len(self.bags), dtype=bool)
        rows = csv.DictReader(io.StringIO(b"".join(self.content()).decode()))
        positive = safe_cell(str((target.names or (0, 1))[-1]))
        for i, row in zip(self.part, rows, strict=True):
            scores[i] = [float(row[name]) for name in names]
            # A score is written with 9 digits, which may not tell it from the threshold; its class does.
            called[i] = every or self.run.threshold is None or row["class"] == positive
        return np.flatnonzero(called), scores[:, 0] if len(names) == 1 else scores

    def _digest(self, group: range, text: object) -> str:
        """Return the digest of run and options, content of the bags, and rows."""
        facts = [*self._call, contents_digest(self.bags.subset(group)), text]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _other(self) -> RunExistsError:
        path = None if self.journal is None else self.journal.path
        return RunExistsError(
            f"Expected scores of the same run, options and bags, got others (in {path}), left by a stopped call; "
            "remove the file, or choose another."
        )


@contextmanager
def journal_of(out: Path) -> Iterator[Journal]:
    """Hold OUT.part, which keeps the rows of a stopped call; without a row it is removed at the end.

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


def predict_run(run: LoadedRun, bags: Bags, *, on_bags: OnBags | None = None) -> tuple[Scores, Scores | None]:
    """Return scores [N], or [N, C] for several columns, and probabilities [N], None if the run is not calibrated.

    `on_bags` is called with the positions of bags that were just scored.
    """
    bags = prepared(run.model, bags)
    warn_of_units(bags, run.data, run=run.source)
    scores = predict(run.model, bags, chunk_size=run.settings.run.chunk_size, on_bags=on_bags)
    return scores, None if run.calibrator is None else run.calibrator.predict(scores)


def score_tables(tables: Sequence[ScoreTable], *, on_bags: OnBags | None = None) -> None:
    """Score the missing rows of tables for the same instances, parts and chunks.

    A group of bags is read once for all runs that lack it; scores equal those of separate calls.
    """
    first = tables[0]
    all_covariates = {id(table): covariates_of(table.run.model, table.bags) for table in tables}
    for number, group in enumerate(first.groups()):
        missing = [table for table in tables if not table.has(number, group)]
        if missing:
            of_tables = [all_covariates[id(table)] for table in missing]
            covariates = [None if x is None else x[group.start : group.stop] for x in of_tables]
            models, chunk = [table.run.model for table in missing], first.run.settings.run.chunk_size
            scores = predict_each(models, first.bags.subset(group), chunk_size=chunk, covariates=covariates)
            for table, table_scores in zip(missing, scores, strict=True):
                table.add(group, table_scores)
        if on_bags is not None:
            on_bags(group)


def score_instances(table: ScoreTable, *, on_bags: OnBags | None = None) -> None:
    """Write the missing files of instances, and the missing rows; a file that no row belongs to is refused."""
    if table.instances is None:
        return
    names = file_names(table.bags)
    rows = {i: table.has(number, range(i, i + 1)) for number, i in enumerate(table.part)}
    left = [i for i, has_row in rows.items() if not has_row or not (table.instances / f"{names[i]}.h5").exists()]
    if on_bags is not None:
        on_bags([i for i in rows if i not in {*left}])

    def note(index: int, scores: Scores) -> None:
        if not rows[index]:
            table.add(range(index, index + 1), scores)

    options: dict[str, Any] = {"columns": table.run.target.columns, "chunk_size": table.run.settings.run.chunk_size}
    write_instance_scores(
        table.run.model, table.bags, table.instances, part=left, **options, note=note, on_bags=on_bags
    )


def read_together(runs: Sequence[LoadedRun], read: Callable[[LoadedRun], Bags]) -> list[Bags]:
    """Return the result of `read` for each run; bags with the same instances share them in memory.

    Raises a `ConfigError` if runs take instances of different shapes.
    """
    all_bags: list[Bags] = []
    for run in runs:
        bags = read(run)
        if all_bags and bags.instance_shape != all_bags[0].instance_shape:
            raise ConfigError(
                f"Expected runs with the same instance shape, got {list(all_bags[0].instance_shape)} of "
                f"{runs[0].source} and {list(bags.instance_shape)} of {run.source} (in {bags.source}); score each "
                "separately."
            )
        same = next((other for other in all_bags if _same_instances(other, bags)), None)
        all_bags.append(bags if same is None else bags.replace(instances=same.instances))
    return all_bags


def _same_instances(one: Bags, other: Bags) -> bool:
    """Return whether bags have equal ids and instances: equal in memory, or the same reading of the same files."""
    for name in ("ids", "starts", "sizes"):
        if not np.array_equal(getattr(one, name), getattr(other, name)):
            return False
    x, y = one.instances, other.instances
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if isinstance(x, Rows) or isinstance(y, Rows):
        from_files = isinstance(x, Rows) and isinstance(y, Rows) and bool(x.paths)
        return from_files and (type(x), x.paths, x.plan) == (type(y), y.paths, y.plan)  # type: ignore[union-attr]
    return all(np.array_equal(x[low:high], y[low:high]) for low, high in row_chunks(x, one.starts, one.sizes))


def passes(tables: Sequence[ScoreTable]) -> list[list[ScoreTable]]:
    """Group the tables that can share one pass over the instances: same bags, same chunks."""
    groups: dict[tuple[int, int], list[ScoreTable]] = {}
    for table in tables:
        groups.setdefault((id(table.bags.instances), table.run.settings.run.chunk_size), []).append(table)
    return list(groups.values())


def require_score_space(tables: Sequence[ScoreTable], outs: Sequence[Path]) -> None:
    """Refuse a disk without space for the tables of scores, their journals, and the instance files.

    The sizes are estimates: for a table, the size of its first row times the number of bags.
    """
    needed = {out: _bytes_of_scores(table) for out, table in zip(outs, tables, strict=True)}
    for table in tables:
        if table.instances is not None:
            sizes = table.bags.sizes[table.part.start + table.done : table.part.stop]
            needed[table.instances] = bytes_of_files(table.run.model, sizes, coords=table.bags.coords)
    require_space(needed, "scores")


def _bytes_of_scores(table: ScoreTable) -> int:
    """Return the bytes of a table, and of the rows that its journal does not hold yet."""
    if not table.part:
        return 0
    columns = table.run.target.count  # a score of 1/3 has a text of usual length
    row = len(table.text(table.part[:1], np.full(1 if columns == 1 else (1, columns), 1 / 3)).encode())
    left = 0 if table.journal is None else len(table.part) - table.done
    return row * (len(table.part) + left) + _GROUP_LINE * sum(1 for _ in table.groups())
