"""What a run leaves behind, and what is told of one, where its bags are ranked by more than 0 and 1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.outcomes import Decision
from midam.evaluate.outcomes.classes import one_against_rest
from midam.runs.beside import COMPARED, Beside, train_beside
from midam.runs.data import SplitBags
from midam.runs.folder import SPLITS, RunFolder, csv_text
from midam.targets import Target

Scores = NDArray[np.float64]


def outcome_predictions(
    bags: Bags,
    target: Target,
    scores: Scores,
    *,
    splits: NDArray[np.str_] | None = None,
    decision: Decision | None,
    header: bool = True,
) -> str:
    """Predictions as CSV, a row a bag: bag, its labels where known, split, a column a score, and what these mean.

    A single score column is "score", several are "score_NAME". What the scores mean is what `Target.told` says.
    """
    by_column = scores.reshape(len(bags), -1).T.tolist()
    columns: dict[str, Sequence[Any] | None] = {
        "bag": bags.ids.tolist(),
        **({} if bags.outcome is None else bags.outcome.columns()),
        "split": None if splits is None else splits.tolist(),
        **dict(zip(target.score_columns, by_column, strict=True)),
        **target.told(scores, decision),
        "instances": None if splits is None else bags.sizes.tolist(),
        "group": None if bags.groups is None else bags.groups.tolist(),
    }
    known = {name: values for name, values in columns.items() if values is not None}
    return csv_text(list(known), (dict(zip(known, row)) for row in zip(*known.values(), strict=True)), header=header)


def summarize_outcomes(
    bags: Bags,
    target: Target,
    parts: NDArray[np.str_],
    scores: Scores,
    *,
    names: Sequence[str],
    decision: Decision | None,
) -> dict[str, Any]:
    """What `Target.summarize` says of each part of labeled bags that has some."""
    values, found = target.values(bags), {}
    for name in names:
        inside = parts == name
        if inside.any():
            groups = None if bags.groups is None else bags.groups[inside]
            found[name] = target.summarize(values[inside], scores[inside], groups=groups, decision=decision)
    return found


class OutcomeJudge:
    """Judges scores [N] or [N, C] of bags with an outcome."""

    def __init__(self, parts: SplitBags, target: Target, scores: Scores) -> None:
        self._parts, self._target, self._scores = parts, target, scores
        self._values = target.values(parts.bags)
        held = parts.splits == "val"
        self._decision = target.decide(self._values[held], scores[held])

    def made(self) -> dict[str, Any]:
        """What turns scores into predictions."""
        said = None if self._decision is None else self._decision.to_dict()
        return {"calibrator": None, "threshold": None, "decision": said}

    def predictions(self) -> str:
        """Text of predictions.csv."""
        how: dict[str, Any] = {"splits": self._parts.splits, "decision": self._decision}
        return outcome_predictions(self._parts.bags, self._target, self._scores, **how)

    def beside(self, *, seed: int) -> Beside:
        """Train the baseline, and compare it with the scores."""
        return train_beside(self._parts, self._scores, seed=seed)

    def summarize(self) -> dict[str, Any]:
        """Entries of summary.json of each split."""
        how: dict[str, Any] = {"names": SPLITS, "decision": self._decision}
        return summarize_outcomes(self._parts.bags, self._target, self._parts.splits, self._scores, **how)

    def about(self) -> dict[str, Any]:
        """The target, and the names of its classes, labels or grades."""
        return {"target": self._target.name, "names": list(self._target.names)}

    def merits(self, scores: Scores) -> dict[str, float | None]:
        """Figure of merit of each split; None where there is none."""
        parts = {name: self._parts.splits == name for name in SPLITS}
        return {
            f"{name}_{self._target.metric}": self._target.merit(self._values[of], scores[of])
            for name, of in parts.items()
        }

    def draw(self, folder: RunFolder, summary: Mapping[str, Any], data: str, beside: Beside) -> None:  # noqa: ARG002
        """Draw how well the scores follow the labels: ROC curves of classes, grades, numbers, or survival by risk."""
        from midam.report.outcome_figures import plot_class_rocs, plot_grade_scores, plot_number_scores, plot_survival

        merit = self._target.metric
        part = next((name for name in COMPARED if summary.get(name, {}).get(merit) is not None), None)
        if part is None:
            return
        inside = self._parts.splits == part
        values, scores, names = self._values[inside], self._scores[inside], self._target.names
        how: dict[str, Any] = {"title": f"{data}: {part} bags"}
        told = {} if self._decision is None else self._decision.to_dict()
        if self._target.pairs in ("classes", "labels"):
            labels = one_against_rest(values[:, 0], len(names)) if self._target.pairs == "classes" else values
            plot_class_rocs(folder.roc, names=names, labels=labels, scores=scores, summary=summary[part], **how)
        elif self._target.name == "ordinal":
            how |= {"cuts": told.get("cuts", ()), "summary": summary[part]}
            plot_grade_scores(folder.scores, names=names, grades=values[:, 0], scores=scores, **how)
        elif self._target.name == "continuous":
            knots = (told["scores"], told["numbers"]) if told else None
            how |= {"knots": knots, "summary": summary[part]}
            plot_number_scores(folder.scores, name=names[0], values=values[:, 0], scores=scores, **how)
        elif self._decision is not None:
            groups = self._decision.predict(scores)
            plot_survival(folder.scores, time=values[:, 0], event=values[:, 1], groups=groups, **how)
