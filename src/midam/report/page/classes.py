"""Pages of several classes (one for each bag) and of several labels (any number for each bag)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Bin, reliability_bins
from midam.evaluate.proportions import Estimate, estimate_of, proportion
from midam.evaluate.ranking import FEW_BAGS
from midam.report.figures import ORANGE
from midam.report.page.render import Number, Section, Table
from midam.report.page.target_page import FEW, MOST_NAMES, UNDECIDED, ScoredBags, ScoredPart, TargetPage
from midam.report.plot_runs import Row, plot_forest
from midam.report.plot_scores import plot_class_rocs, plot_confusion, plot_reliability
from midam.report.words import PART_NAMES
from midam.targets import Target
from midam.targets.columns import ColumnTarget

_CURVES, _FOREST = 10, 30  # most classes with ROC curves, and most rows of the forest plot
_FOLDED, _PAIRS = 30, 15  # most classes of a confusion matrix on the page; most confusions in the list
_KINDS = ((1, "Missed: with the label, least probable"), (0, "False alarms: without it, most probable"))


class ClassesPage(TargetPage):
    """Page of several classes, one for each bag."""

    one, against = "class", "the rest"
    of_target = "multiclass"
    sides = ("of it", "others")

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Plot the ROC curve of each class or label."""
        labels = cast(ColumnTarget, target).table(part.values)
        plot_class_rocs(folder / "roc.png", names=target.names, labels=labels, **part.shown)

    def columns(self, bags: ScoredBags) -> NDArray[np.float64]:
        """Return labels [N, C] of 0 and 1, with NaN if unknown."""
        return cast(ColumnTarget, self.target).table(bags.values)

    @property
    def _shown(self) -> NDArray[np.float64]:
        return self.tested.scores if self.tested.predicted is None else self.tested.predicted

    @property
    def _measure(self) -> str:
        return "score" if self.tested.predicted is None else "probability"

    def counted(self) -> str:
        """Return the counts of bags and classes."""
        return self.tested.counted(f" of {plural(len(np.unique(self.codes)), 'class')}")

    def second(self) -> dict[str, Any] | None:
        """Return how many bags are classified correctly."""
        return {"measure": self._measure, "correct": np.trace(self.summary["confusion"])}

    def estimates(self) -> list[tuple[str, Estimate | None]]:
        """Return the AUROC of each class or label with its interval."""
        return [
            (name, estimate_of(part["auroc"], part["auroc_ci95"], part["positives"] + part["negatives"]))
            for name, part in self.summary["per_class"].items()
        ]

    def key_figures(self) -> dict[str, Any]:
        """Return the highest and the lowest AUROC of a class."""
        defined = [(name, estimate.value) for name, estimate in self.estimates() if estimate is not None]
        ends = [choose(defined, key=lambda entry: entry[1], default=(None, None)) for choose in (max, min)]
        return {"one": self.one, "ends": dict(zip(("Highest", "Lowest"), ends))}

    def flow_by_name(self) -> Table:
        """Return a table of the bags of each class in each part."""
        parts = self.study.parts
        gaps = any(np.isnan(part.values).any() for part in parts.values())
        rows: list[list[Any]] = [[name] for name in self.target.names]
        heads = [self.one]
        for part, bags in parts.items():
            heads += [PART_NAMES[part], "share", "unknown"][: 2 + gaps]
            for row, column in zip(rows, self.columns(bags).T):
                has, labeled = int((column == 1).sum()), int(np.isfinite(column).sum())
                row.extend([has, Number(has / labeled if labeled else None, ".1%"), len(column) - labeled][: 2 + gaps])
        return Table(f"Bags of each {self.one} in each part", heads, rows, sorts=True)

    def sections(self) -> list[Section]:
        """Return the sections on ranking, confusion and calibration."""
        content = decisions(self, self.codes, self._shown.argmax(axis=1), kind="class")
        return [
            Section("ranking", "Ranking: is each class scored above the rest?", "classes.html", self.ranking()),
            Section("operating", "Decisions: which class is predicted", "classes.html", content),
            self.calibration(),
        ]

    def ranking(self) -> dict[str, Any]:
        """Return ROC curves, a forest plot, and a table of the classes."""
        names, summary, lines = list(self.target.names), self.summary, self.estimates()
        if len(lines) > _FOREST:
            lines = sorted(lines, key=lambda line: 1.0 if line[1] is None else line[1].value)[:_FOREST]
        total = self.study.figure("auroc_macro")
        rows = [*(Row(name, estimate) for name, estimate in lines), Row("mean of all", total, "D", ORANGE)]
        bags: dict[str, Any] = {"labels": self.columns(self.tested), "scores": self.tested.scores}
        return {
            "curves": plot_class_rocs(names=names, summary=summary, **bags) if len(names) <= _CURVES else None,
            "forest": plot_forest(rows, "AUROC", reference=total and total.value, missing="not defined here"),
            **{"shown": len(lines), "count": len(names), "table": self._table()},
            **{"one": self.one, "against": self.against, "method": summary["auroc_macro_method"]},
        }

    def _table(self) -> Table:
        rows = []
        for (name, part), (_, estimate) in zip(self.summary["per_class"].items(), self.estimates()):
            has, others, key = part["positives"], part["negatives"], f"per_class.{name}"
            share = has / (has + others) if has + others else None
            figures = [Number(estimate, key=f"{key}.auroc"), Number(part["ap"], key=f"{key}.ap"), Number(share)]
            rows.append([name, has, others, *figures])
        heads = [self.one, *self.sides, "AUROC", "average precision", "no skill"]
        return Table(f"Each {self.one}; no skill is the average precision of chance", heads, rows, sorts=True)

    def bins(self, p: NDArray[np.float64]) -> tuple[list[Bin], str, str]:
        """Return the bins of the reliability curve for probabilities [N, C], and the names of its axes."""
        correct = (p.argmax(axis=1) == self.codes).astype(np.float64)
        bins = reliability_bins(correct, p.max(axis=1), groups=self.tested.groups)
        return bins, "Largest probability", "Share classified correctly"

    def calibration(self) -> Section:
        """Return the section of the reliability curve, and of the mean probability and share of each class."""
        content = {"missing": UNDECIDED} if self.tested.predicted is None else self._calibration(self.tested.predicted)
        return Section("calibration", "Calibration: do probabilities come true?", "classes.html", content)

    def _calibration(self, p: NDArray[np.float64]) -> dict[str, Any]:
        (bins, across, up), labels, rows = self.bins(p), self.columns(self.tested), list[list[Any]]()
        finite = np.isfinite(labels) & np.isfinite(p)
        for at, name in enumerate(self.target.names):
            inside = finite[:, at]
            rows.append([name, *(Number(float(x[inside, at].mean()) if inside.any() else None) for x in (p, labels))])
        table = Table("Mean probability and share", [self.one, "mean probability", "share of bags"], rows, sorts=True)
        curve, count = plot_reliability(bins, across=across, up=up), plural(len(bins), "bin")
        axes = {"across": across.lower(), "up": up.lower()}
        return {"missing": None, "curve": curve, **axes, "bins": count, "table": table, "one": self.one}

    def errors(self) -> Section | None:
        """Return the section of the bags whose true class had the lowest probability."""
        probabilities, codes, names = self._shown, self.codes, self.target.names
        called = probabilities.argmax(axis=1)
        true_probabilities = probabilities[np.arange(len(codes)), codes]
        wrong = np.flatnonzero(called != codes)

        def cells(i: int) -> list[Any]:
            values = [Number(float(true_probabilities[i])), Number(float(probabilities[i, called[i]]))]
            return [names[codes[i]], names[called[i]], *values]

        heads = ["class", "predicted", f"{self._measure} of the class", "of the predicted"]
        order = wrong[np.argsort(true_probabilities[wrong] - probabilities[wrong, called[wrong]], kind="stable")]
        return self.error_section(self.error_table("Misclassified", order, heads, cells))

    def rarest(self) -> tuple[int, str] | None:
        """Return how many bags the rarest class has."""
        least = min(part["positives"] for part in self.summary["per_class"].values())
        return (least, self.one) if FEW_BAGS <= least < FEW else None


class LabelsPage(ClassesPage):
    """Page of several labels, any number for each bag."""

    one, against = "label", "bags without it"
    of_target = "multilabel"
    sides = ("with it", "without")

    def counted(self) -> str:
        """Return the counts of bags and labels."""
        return self.tested.counted(f" with {plural(len(self.target.names), 'label')}")

    def second(self) -> dict[str, Any] | None:
        """Return the lowest and the highest AUROC of a label."""
        defined = sorted((estimate.value, name) for name, estimate in self.estimates() if estimate is not None)
        return {"low": defined[0], "high": defined[-1]} if len(defined) > 1 else None

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return the mean number of labels of a bag, and how many are unknown."""
        mean = Number(float(np.nansum(values)) / len(values), ".2f")
        return {"labels per bag": mean, "entries unknown": int(np.isnan(values).sum())}

    def sections(self) -> list[Section]:
        """Return the sections on ranking and calibration."""
        title = "Ranking: do bags with a label score higher than bags without it?"
        return [Section("ranking", title, "classes.html", self.ranking()), self.calibration()]

    def bins(self, p: NDArray[np.float64]) -> tuple[list[Bin], str, str]:
        """Return the bins of all labels together; the labels of a bag are one unit of the intervals."""
        values, units = self.tested.values, self.tested.ids if self.tested.groups is None else self.tested.groups
        finite = np.isfinite(values) & np.isfinite(p)
        of_entry = np.repeat(units[:, None], values.shape[1], axis=1)[finite]
        bins = reliability_bins(values[finite], p[finite], groups=of_entry)
        return bins, "Probability of a label", "Share that have it"

    def errors(self) -> Section | None:
        """Return the section of the labels whose probability was furthest from the truth."""
        p, values, names = self.tested.predicted, self.tested.values, self.target.names
        if p is None:
            return None
        tables = []
        for label, title in _KINDS:
            # For each bag, the present (or absent) label whose probability was furthest from 1 (or 0).
            off = np.where((values == label) & np.isfinite(p), np.abs(values - p), -np.inf)
            at, worst = off.argmax(axis=1), off.max(axis=1)
            order = np.argsort(-worst, kind="stable")

            def cells(i: int, at: NDArray[np.intp] = at) -> list[Any]:
                return [names[at[i]], Number(float(p[i, at[i]]))]

            bags = order[np.isfinite(worst[order])]
            tables.append(self.error_table(title, bags, ["label", "probability"], cells))
        return self.error_section(*tables)


def decisions(page: TargetPage, codes: ArrayLike, called: ArrayLike, *, kind: str) -> dict[str, Any]:
    """Return the confusion as a chart (of many classes, the most frequent errors) and a table, and metrics by class."""
    names, matrix = page.target.names, np.asarray(page.summary["confusion"], dtype=np.int64)
    content: dict[str, Any] = {"missing": None, "kind": kind, "calibrated": page.tested.predicted is not None}
    content |= {"chart": None, "pairs": None, "matrix": None, "count": len(names), "counted": plural(len(names), kind)}
    content["each"] = _each_class(codes, called, names, kind, page.tested.groups)
    if len(names) <= MOST_NAMES:
        content["chart"] = plot_confusion(names=names, confusion=matrix, kind=kind)
    else:
        content["pairs"] = _pairs(matrix, names, kind)
    if len(names) <= _FOLDED:
        rows = [
            [name, *(Number(count, ".0f", f"confusion.{i}.{j}") for j, count in enumerate(row))]
            for i, (name, row) in enumerate(zip(names, matrix.tolist()))
        ]
        content["matrix"] = Table(f"Bags of each {kind} by predicted {kind}", [f"true {kind}", *names], rows)
    return content


def _pairs(counts: NDArray[np.int64], names: Sequence[str], kind: str) -> Table | None:
    """Return the most frequent confusions; None if there are none."""
    wrong = sorted((-count, i, j) for (i, j), count in np.ndenumerate(counts) if i != j and count)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [[names[i], names[j], -int(less), Number(float(shares[i, j]), ".0%")] for less, i, j in wrong[:_PAIRS]]
    heads = [kind, "predicted", "bags", f"share of this {kind}"]
    return Table("The most frequent confusions", heads, rows, sorts=True) if rows else None


def _each_class(
    codes: ArrayLike, called: ArrayLike, names: Sequence[str], kind: str, groups: NDArray[np.str_] | None
) -> Table:
    """Return recall and precision of each class with intervals."""
    rows, right = list[list[Any]](), np.asarray(codes) == np.asarray(called)
    for code, name in enumerate(names):
        parts = [np.asarray(codes) == code, np.asarray(called) == code]
        shares = [proportion(right, groups=groups, among=part) for part in parts]
        rows.append([name, *(int(part.sum()) for part in parts), *shares])
    heads = [kind, "bags", "predicted", "recall", "precision"]
    return Table(f"Each {kind}, with 95% Wilson intervals", heads, rows, sorts=True)
