"""What several classes (one for each bag) and several labels (any number for each bag) add to the page."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Bin, reliability_bins
from midam.evaluate.proportions import estimate_of, proportion
from midam.report.page.render import Figure, Note, Number, Pair, Part, Table
from midam.report.page.target_page import MOST_NAMES, UNDECIDED, ScoredBags, TargetPage
from midam.report.plot_scores import plot_class_rocs, plot_confusion, plot_reliability
from midam.targets.columns import ColumnTarget

_CURVES = 10  # most classes with ROC curves
_KINDS = ((1, "Missed: with the label, least probable"), (0, "False alarms: without it, most probable"))


class ClassesPage(TargetPage):
    """Several classes, one for each bag."""

    of_target, one, against = "multiclass", "class", "the rest"
    claim = ", a bag of a class scored above a bag of another, by the score of that class,"
    pairs = "such pairs, averaged over the classes"
    validates = "probabilities"
    scaled = "temperature scaling with an offset of each class"

    def columns(self, bags: ScoredBags) -> NDArray[np.float64]:
        """Return labels [N, C] of 0 and 1, with NaN if unknown."""
        return cast(ColumnTarget, self.target).table(bags.values)

    @property
    def _shown(self) -> NDArray[np.float64]:
        return self.tested.scores if self.tested.predicted is None else self.tested.predicted

    @property
    def _measure(self) -> str:
        return "score" if self.tested.predicted is None else "probability"

    def figures(self) -> list[Figure]:
        """Return ROC curves, unless there are many, and of classes also the confusion."""
        names, tested = self.target.names, self.tested
        if len(names) > _CURVES:
            return confusion(self, "class")
        bags: dict[str, Any] = {"labels": self.columns(tested), "scores": tested.scores, "summary": self.summary}
        rocs = plot_class_rocs(names=names, **bags)
        text = f"Each {self.one} is ranked by a score of its own, against {self.against}."
        return [Figure(rocs, "ROC curves.", text), *confusion(self, "class")]

    def tables(self) -> list[Any]:
        """Return tables of the classes and of their predictions."""
        names, rows = list(self.target.names), list[list[Any]]()
        for name in names:
            part, key = self.summary["per_class"][str(name)], f"per_class.{name}"
            area = estimate_of(part["auroc"], part["auroc_ci95"], part["positives"] + part["negatives"])
            figures = [Number(area, key=f"{key}.auroc"), Number(part["ap"], key=f"{key}.ap")]
            rows.append([name, part["positives"], part["negatives"], *figures])
        heads = [self.one, "with it", "without", "AUROC", "average precision"]
        return [Table(f"Each {self.one}", heads, rows, sorts=True), *self.decisions()]

    def decisions(self) -> list[Any]:
        """Return tables of the predicted classes."""
        return decisions(self, self._shown.argmax(axis=1), "class")

    def bins(self, p: NDArray[np.float64]) -> tuple[list[Bin], str, str]:
        """Return the bins of the reliability curve for probabilities [N, C], and the names of its axes."""
        correct = (p.argmax(axis=1) == self.codes).astype(np.float64)
        bins = reliability_bins(correct, p.max(axis=1), groups=self.tested.groups)
        return bins, "Largest probability", "Share classified correctly"

    def checks(self) -> list[Part]:
        """Return the reliability curve, and the mean probability and share of each class."""
        p, title, rows = self.tested.predicted, "Calibration: do probabilities come true?", list[list[Any]]()
        if p is None:
            return [Part(title, [UNDECIDED])]
        (bins, across, up), labels = self.bins(p), self.columns(self.tested)
        finite = np.isfinite(labels) & np.isfinite(p)
        for at, name in enumerate(self.target.names):
            inside = finite[:, at]
            rows.append([name, *(Number(float(x[inside, at].mean()) if inside.any() else None) for x in (p, labels))])
        table = Table("Mean probability and share", [self.one, "mean probability", "share of bags"], rows, sorts=True)
        curve = Figure(plot_reliability(bins, across=across, up=up), "Reliability.", f"{plural(len(bins), 'bin')}.")
        note = f"Probabilities come from {self.scaled} on the validation bags, and apply to their shares."
        return [Part(title, [Pair([curve, table]), Note(note)])]

    def errors(self) -> list[Part]:
        """Return the bags whose true class is furthest behind the predicted class."""
        probabilities, codes, names = self._shown, self.codes, self.target.names
        called = probabilities.argmax(axis=1)
        true_probabilities = probabilities[np.arange(len(codes)), codes]
        wrong = np.flatnonzero(called != codes)

        def cells(i: int) -> list[Any]:
            values = [Number(float(true_probabilities[i])), Number(float(probabilities[i, called[i]]))]
            return [names[codes[i]], names[called[i]], *values]

        heads = ["class", "predicted", f"{self._measure} of the class", "of the predicted"]
        order = wrong[np.argsort(true_probabilities[wrong] - probabilities[wrong, called[wrong]], kind="stable")]
        return [self.error_table("Misclassified", order, heads, cells)]


class LabelsPage(ClassesPage):
    """Several labels, any number for each bag."""

    of_target, one, against = "multilabel", "label", "bags without it"
    claim = ", a bag with a label scored above a bag without it, by the score of that label,"
    pairs = "such pairs, averaged over the labels"
    scaled = "Platt scaling of each label"

    def figures(self) -> list[Figure]:
        """Return ROC curves, unless there are many."""
        return super().figures()[:1] if len(self.target.names) <= _CURVES else []

    def decisions(self) -> list[Any]:
        """Return nothing: labels are not predicted."""
        return []

    def bins(self, p: NDArray[np.float64]) -> tuple[list[Bin], str, str]:
        """Return the bins of all labels together; the labels of a bag are one unit of the intervals."""
        values, units = self.tested.values, self.tested.ids if self.tested.groups is None else self.tested.groups
        finite = np.isfinite(values) & np.isfinite(p)
        of_entry = np.repeat(units[:, None], values.shape[1], axis=1)[finite]
        bins = reliability_bins(values[finite], p[finite], groups=of_entry)
        return bins, "Probability of a label", "Share that have it"

    def errors(self) -> list[Part]:
        """Return the labels whose probability was furthest from the truth."""
        p, values, names, tables = self.tested.predicted, self.tested.values, self.target.names, list[Part]()
        if p is None:
            return []
        for label, title in _KINDS:
            # For each bag, the present (or absent) label whose probability was furthest from 1 (or 0).
            off = np.where((values == label) & np.isfinite(p), np.abs(values - p), -np.inf)
            at, worst = off.argmax(axis=1), off.max(axis=1)
            order = np.argsort(-worst, kind="stable")

            def cells(i: int, at: NDArray[np.intp] = at) -> list[Any]:
                return [names[at[i]], Number(float(p[i, at[i]]))]

            bags = order[np.isfinite(worst[order])]
            tables.append(self.error_table(title, bags, ["label", "probability"], cells))
        return tables


def confusion(page: TargetPage, kind: str) -> list[Figure]:
    """Return the confusion of classes or grades as a chart, unless there are many or nothing was predicted."""
    names, counts = page.target.names, page.summary.get("confusion")
    if counts is None or len(names) > MOST_NAMES:
        return []
    text = f"Rows: true {kind}; columns: predicted {kind}. The darker a cell, the larger its share of the row."
    return [Figure(plot_confusion(names=names, confusion=counts, kind=kind), "Confusion.", text)]


def decisions(page: TargetPage, called: ArrayLike, kind: str) -> list[Table]:
    """Return recall and precision of each class or grade with intervals."""
    names, groups, rows, right = page.target.names, page.tested.groups, list[list[Any]](), page.codes == called
    for code, name in enumerate(names):
        parts = [page.codes == code, np.asarray(called) == code]
        shares = [proportion(right, groups=groups, among=part) for part in parts]
        rows.append([name, *(int(part.sum()) for part in parts), *shares])
    heads = [kind, "bags", "predicted", "recall", "precision"]
    return [Table(f"Predictions of each {kind}, with 95% Wilson intervals", heads, rows, sorts=True)]
