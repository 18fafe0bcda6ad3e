"""The evaluation of a run by its target: predictions, figures of each split, and a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate import Decision
from midam.runs.baseline import COMPARED, Beside
from midam.runs.data import SplitBags
from midam.runs.folder import SPLITS, RunFolder, csv_text
from midam.targets import Target, label_columns, target_of

Scores = NDArray[np.float64]


class RunEvaluation:
    """Scores [N] or [N, C] of all bags of a run, and the decision that is fitted on its validation bags.

    Attributes
    ----------
    target : Target
        That of the bags.
    decision : Decision or None
        From scores to predictions; None where the validation bags do not suffice.
    """

    def __init__(self, parts: SplitBags, scores: Scores) -> None:
        self.target = target_of(parts.bags)
        self._parts, self._scores = parts, scores
        self._values = self.target.values(parts.bags)
        held_out = parts.splits == "val"
        self.decision = self.target.decide(self._values[held_out], scores[held_out])

    def predictions(self) -> str:
        """Text of predictions.csv."""
        bags, splits = self._parts.bags, self._parts.splits
        return predictions_text(bags, self.target, self._scores, splits=splits, decision=self.decision)

    def summarize(self) -> dict[str, Any]:
        """Entries of summary.json of each split."""
        bags, splits = self._parts.bags, self._parts.splits
        return summarize_parts(bags, self.target, splits, self._scores, names=SPLITS, decision=self.decision)

    def main_metrics(self) -> dict[str, float | None]:
        """Main metric of each split; None where there is none."""
        parts = {name: self._parts.splits == name for name in SPLITS}
        return {
            f"{name}_{self.target.metric}": self.target.metric_value(self._values[inside], self._scores[inside])
            for name, inside in parts.items()
        }

    def draw(self, folder: RunFolder, summary: Mapping[str, Any], data: str, beside: Beside) -> None:
        """Draw how well the scores of the test bags follow the labels; of the validation bags where those cannot."""
        metric = self.target.metric
        part = next((name for name in COMPARED if summary.get(name, {}).get(metric) is not None), None)
        if part is None:
            return
        from midam.report.page.run_page import page_class
        from midam.report.page.target_page import ScoredPart

        inside = self._parts.splits == part
        held, title = (self._values[inside], self._scores[inside], summary[part]), f"{data}: {part} bags"
        drawn = ScoredPart(*held, self.decision, title, beside.scores)
        page_class(self.target).draw(folder.root, self.target, drawn)


def predictions_text(
    bags: Bags,
    target: Target,
    scores: Scores,
    *,
    splits: NDArray[np.str_] | None = None,
    decision: Decision | None,
    header: bool = True,
) -> str:
    """Predictions as CSV, a row a bag: bag, labels, split, scores, what these mean, instances, group.

    A single score column is "score", several are "score_NAME"; what they mean is what `Target.predictions` says.
    Labels, split and group have columns where they are known, instances where the splits are; what is not known of a
    bag is empty.
    """
    columns: dict[str, Sequence[Any] | None] = {
        "bag": bags.ids.tolist(),
        **label_columns(bags),
        "split": None if splits is None else splits.tolist(),
        **dict(zip(target.score_columns, scores.reshape(len(bags), -1).T.tolist(), strict=True)),
        **target.predictions(scores, decision),
        "instances": None if splits is None else bags.sizes.tolist(),
        "group": None if bags.groups is None else bags.groups.tolist(),
    }
    known = {name: values for name, values in columns.items() if values is not None}
    return csv_text(list(known), (dict(zip(known, row)) for row in zip(*known.values(), strict=True)), header=header)


def summarize_parts(
    bags: Bags,
    target: Target,
    parts: NDArray[np.str_],
    scores: Scores,
    *,
    names: Sequence[str],
    decision: Decision | None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Entries of `Target.summarize` for each of the `names` that some labeled bags have as their part."""
    values, result = target.values(bags), {}
    for name in names:
        inside = parts == name
        if inside.any():
            groups = None if bags.groups is None else bags.groups[inside]
            given: dict[str, Any] = {"groups": groups, "decision": decision, "metrics": metrics}
            result[name] = target.summarize(values[inside], scores[inside], **given)
    return result
