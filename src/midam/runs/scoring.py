"""Score bags with trained runs: read bags once for all, keep scores in journals, write tables, check disk space."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.on_disk import Rows
from midam.data.validate import row_chunks
from midam.errors import ConfigError
from midam.evaluate.predict import bag_groups, covariates_of, predict_each, prepared
from midam.files import require_space
from midam.runs.folder import RunFolder
from midam.runs.instance_files import bytes_of_files, write_instance_scores
from midam.runs.journal import ScoreJournal
from midam.runs.loaded import LoadedRun
from midam.runs.results import predictions_text
from midam.train.trainer import Trainer

Scores = NDArray[np.float64]
OnBags = Callable[[Sequence[int]], None]
_GROUP_LINE = 128  # bytes of a group in a journal besides its scores
_ROW = 80  # bytes of a bag in predictions.csv besides its names
_REPORT = 1 << 20  # bytes of the figures and the page of a run
_TEXT, _NUMBER = 16, 16  # bytes of an entry in a checkpoint besides its letters


@dataclass(frozen=True)
class Scoring:
    """Bags that one run scores: those at the positions `part` of `bags`.

    `midam.evaluate.predict.prepared` matches features by name and fills missing values. Scores that the `journal` holds
    are not computed again; new scores are added to it group by group.
    """

    run: LoadedRun
    bags: Bags
    part: range
    journal: ScoreJournal | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bags", prepared(self.run.model, self.bags))

    def groups(self) -> Iterator[range]:
        """Yield the positions of the bags that are scored together."""
        sizes = self.bags.sizes[self.part.start : self.part.stop]
        for group in bag_groups(sizes, chunk_size=self.run.settings.run.chunk_size) if len(sizes) else ():
            yield range(self.part.start + group.start, self.part.start + group.stop)

    def rows(self, group: range) -> slice:
        """Return the positions of a group's scores among the scores of the part."""
        return slice(group.start - self.part.start, group.stop - self.part.start)


def predict_run(
    run: LoadedRun,
    bags: Bags,
    *,
    instances: Path | None = None,
    part: range | None = None,
    journal: ScoreJournal | None = None,
    on_bags: OnBags | None = None,
) -> tuple[Scores, Scores | None]:
    """Return scores [N], or [N, C] for several columns, and probabilities [N], None if the run is not calibrated.

    Parameters
    ----------
    run, bags : LoadedRun, Bags
        The run; bags with or without labels.
    instances : Path, optional
        Folder for scores of the instances, one file for each bag; see `midam.runs.instance_files`.
    part : range, optional
        Positions of the N bags to score, neighbors; default: all.
    journal : ScoreJournal, optional
        Scores that it holds are not computed again; new scores are added to it group by group.
    on_bags : callable, optional
        Called with the positions of bags that were just scored.
    """
    part = range(len(bags)) if part is None else part
    if instances is not None:
        options: dict[str, Any] = {"columns": run.target.columns, "chunk_size": run.settings.run.chunk_size}
        scores = write_instance_scores(
            run.model, bags, instances, part=part, **options, journal=journal, on_bags=on_bags
        )
    else:
        [scores] = score_together([Scoring(run, bags, part, journal)], on_bags=on_bags)
    return scores, None if run.calibrator is None else run.calibrator.predict(scores)


def score_together(scorings: Sequence[Scoring], *, on_bags: OnBags | None = None) -> list[Scores]:
    """Return scores [n] or [n, C] of each run, for bags with the same instances, parts and chunks.

    A group of bags is read once for all runs whose journal does not hold it; scores equal those of separate calls.
    """
    first, run_scores = scorings[0], [np.empty(_shape(scoring)) for scoring in scorings]
    all_covariates = [covariates_of(scoring.run.model, scoring.bags) for scoring in scorings]
    for group in first.groups():
        missing = []
        for number, scoring in enumerate(scorings):
            restored = None if scoring.journal is None else scoring.journal.known(scoring.bags, group)
            if restored is None:
                missing.append(number)
            else:
                run_scores[number][scoring.rows(group)] = restored
        if missing:
            covariates = [None if (x := all_covariates[i]) is None else x[group.start : group.stop] for i in missing]
            models = [scorings[number].run.model for number in missing]
            chunk = first.run.settings.run.chunk_size
            scores = predict_each(models, first.bags.subset(group), chunk_size=chunk, covariates=covariates)
            for number, group_scores in zip(missing, scores, strict=True):
                scoring = scorings[number]
                run_scores[number][scoring.rows(group)] = group_scores
                if scoring.journal is not None:
                    scoring.journal.add_scores(scoring.bags, group, group_scores)
        if on_bags is not None:
            on_bags(group)
    return run_scores


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


def passes(scorings: Sequence[Scoring]) -> list[list[Scoring]]:
    """Group the scorings that can share one pass over the instances: same bags, same chunks."""
    groups: dict[tuple[int, int], list[Scoring]] = {}
    for scoring in scorings:
        groups.setdefault((id(scoring.bags.instances), scoring.run.settings.run.chunk_size), []).append(scoring)
    return list(groups.values())


def prediction_parts(scoring: Scoring, scores: Scores) -> Iterator[bytes]:
    """Yield the CSV of the scores [n] or [n, C] of a part: the header, then the rows of each group.

    Scores are turned into predictions group by group, so that the rows of a part equal those of one pass over all bags.
    """
    head = scoring.bags.subset([0])
    blank = np.zeros((1, *scores.shape[1:]))
    whole, row = (_text(scoring.run, head, blank, header=header) for header in (True, False))
    yield whole[: len(whole) - len(row)].encode()
    for group in scoring.groups():
        yield _text(scoring.run, scoring.bags.subset(group), scores[scoring.rows(group)], header=False).encode()


def _text(run: LoadedRun, bags: Bags, scores: Scores, *, header: bool) -> str:
    return predictions_text(bags, run.target, scores, decision=run.decision, header=header)


def _shape(scoring: Scoring) -> tuple[int, ...]:
    """Return the shape of the scores of a part: [n], or [n, C] for several columns."""
    rows, columns = len(scoring.part), scoring.run.target.count
    return (rows,) if columns == 1 else (rows, columns)


def require_score_space(scorings: Sequence[Scoring], outs: Sequence[Path], *, instances: Path | None = None) -> None:
    """Refuse a disk without space for the tables of scores, their journals, and the instance files.

    The sizes are estimates: for a table, the size of its first row times the number of bags.
    """
    needed = {out: _bytes_of_scores(scoring) for out, scoring in zip(outs, scorings, strict=True)}
    if instances is not None:
        scoring = scorings[0]
        done = 0 if scoring.journal is None else len(scoring.journal)
        sizes = scoring.bags.sizes[scoring.part.start + done : scoring.part.stop]
        needed[instances] = bytes_of_files(scoring.run.model, sizes, coords=scoring.bags.coords)
    require_space(needed, "scores")


def _bytes_of_scores(scoring: Scoring) -> int:
    """Return the bytes of a table, and of the scores that its journal does not hold yet."""
    count, done = len(scoring.part), 0 if scoring.journal is None else len(scoring.journal)
    groups, row = sum(1 for _ in scoring.groups()), ""
    if count:  # the row of the first bag with a score of 1/3, a text of usual length
        scores = np.full((1, *_shape(scoring)[1:]), 1 / 3)
        row = _text(scoring.run, scoring.bags.subset([scoring.part.start]), scores, header=False)
    of_bag = 11 * scoring.run.target.count  # 8 bytes in base64
    return count * len(row.encode()) + of_bag * max(0, count - done) + _GROUP_LINE * groups


def require_run_space(
    folder: RunFolder, bags: Bags, origin: Mapping[str, Any], *, trainer: Trainer | None = None
) -> None:
    """Refuse a disk without space for the remaining files of a run: checkpoints, model, predictions and report.

    A new file is written next to the old one before it replaces it, so the last checkpoint counts twice. The model size
    of a method of one step is unknown in advance, and left out.
    """
    of_bags = stored_bytes(origin)
    needed = of_bags + len(bags) * (_ROW + bags.ids.itemsize // 4) + _REPORT
    if trainer is not None:
        weights = stored_bytes(trainer.model.state_dict())
        needed += 2 * (stored_bytes(trainer.state_dict()) + of_bags) + 2 * weights
        if not trainer.epoch:  # the optimizer has no state yet
            trained = sum(p.numel() * p.element_size() for p in trainer.model.parameters() if p.requires_grad)
            settings = trainer.config.training
            needed += 2 * trained * (2 if settings.optimizer == "adam" else int(settings.momentum > 0))
    written = sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())
    require_space({folder.root: max(0, needed - written)}, "checkpoints, predictions and report of the run")


def stored_bytes(content: Any) -> int:
    """Return the approximate bytes of a checkpoint with this content: tensors, texts and numbers, also nested."""
    if isinstance(content, Tensor):
        return content.nbytes
    if isinstance(content, str):
        return len(content) + _TEXT
    if isinstance(content, Mapping):
        return sum(stored_bytes(name) + stored_bytes(value) for name, value in content.items())
    return sum(map(stored_bytes, content)) if isinstance(content, list | tuple) else _NUMBER
