"""What several classes (one for each bag) and several labels (any number for each bag) add to the page."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Bin, reliability_bins
from midam.evaluate.proportions import estimate_of, proportion
from midam.report.page.render import Figure, Note, Number, Pair, Part, Table
from midam.report.page.target_page import MOST_NAMES, UNDECIDED, ScoredBags, TargetPage, number_column
from midam.report.plot_scores import plot_class_rocs, plot_reliability
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
        """Return ROC curves, unless there are many."""
        names, tested = self.target.names, self.tested
        if len(names) > _CURVES:
            return []
        rocs = plot_class_rocs(names, self.columns(tested), tested.scores, self.summary)
        text = f"Each {self.one} is ranked by a score of its own, against {self.against}."
        return [Figure(rocs, "ROC curves.", text)]

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
        curve = Figure(plot_reliability(bins, across, up), "Reliability.", f"{plural(len(bins), 'bin')}.")
        note = f"Probabilities come from {self.scaled} on the validation bags, and apply to their shares."
        return [Part(title, [Pair([curve, table]), Note(note)])]

    def errors(self) -> list[Part]:
        """Return the bags whose true class is furthest behind the predicted class."""
        probabilities, codes, names, rows = self._shown, self.codes, self.names, np.arange(len(self.tested))
        called = probabilities.argmax(axis=1)
        of_class, of_called = probabilities[rows, codes], probabilities[rows, called]
        columns = {"class": names[codes], "predicted": names[called]}
        shown = {f"{self._measure} of the class": of_class, "of the predicted": of_called}
        wrong = np.flatnonzero(called != codes)
        order = wrong[np.argsort(of_class[wrong] - of_called[wrong], kind="stable")]
        columns |= {head: number_column(values) for head, values in shown.items()}
        return [self.error_table("Misclassified", order, columns)]


class LabelsPage(ClassesPage):
    """Several labels, any number for each bag."""

    of_target, one, against = "multilabel", "label", "bags without it"
    claim = ", a bag with a label scored above a bag without it, by the score of that label,"
    pairs = "such pairs, averaged over the labels"
    scaled = "Platt scaling of each label"

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
        p, values, tables = self.tested.predicted, self.tested.values, list[Part]()
        if p is None:
            return []
        for label, title in _KINDS:
            # For each bag, the present (or absent) label whose probability was furthest from 1 (or 0).
            off = np.where((values == label) & np.isfinite(p), np.abs(values - p), -np.inf)
            at, worst = off.argmax(axis=1), off.max(axis=1)
            order = np.argsort(-worst, kind="stable")
            columns = {"label": self.names[at], "probability": number_column(p[np.arange(len(p)), at])}
            tables.append(self.error_table(title, order[np.isfinite(worst[order])], columns))
        return tables


def decisions(page: TargetPage, called: ArrayLike, kind: str) -> list[Table]:
    """Return the confusion of classes or grades, unless there are many, and recall and precision with intervals."""
    names, groups, rows, right = page.target.names, page.tested.groups, list[list[Any]](), page.codes == called
    for code, name in enumerate(names):
        parts = [page.codes == code, np.asarray(called) == code]
        shares = [proportion(right, groups=groups, among=part) for part in parts]
        rows.append([name, *(int(part.sum()) for part in parts), *shares])
    heads = [kind, "bags", "predicted", "recall", "precision"]
    tables = [Table(f"Predictions of each {kind}, with 95% Wilson intervals", heads, rows, sorts=True)]
    if (confusion := page.summary.get("confusion")) is not None and len(names) <= MOST_NAMES:
        counts = [[name, *row] for name, row in zip(names, confusion, strict=True)]
        tables.insert(
            0, Table(f"Confusion: bags by true {kind} (row) and predicted {kind} (column)", ["", *names], counts)
        )
    return tables
