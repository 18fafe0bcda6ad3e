"""One class per bag, or any number of labels per bag: each class or label has a score column and an AUROC."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.classes import (
    class_aurocs,
    class_intervals,
    macro_auroc,
    macro_auroc_interval,
    one_against_rest,
    paired_macro_auroc,
)
from midam.evaluate.decisions import LabelCalibrator, TemperatureCalibrator
from midam.evaluate.metrics import auprc
from midam.evaluate.proportions import Estimate, proportion
from midam.evaluate.ranking import FEW_BAGS
from midam.targets.base import (
    CardWords,
    Decided,
    Difference,
    Groups,
    Scores,
    Target,
    difference_method,
    logistic_shares,
    read_numbers,
)

LEAST_BAGS = 2  # training bags of a class: from a single bag, nothing general can be learned


class ColumnTarget(Target):
    """Base of the targets with a score column for each name, measured by the macro AUROC."""

    metric = "auroc_macro"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the classes or labels."""
        return self.names

    def table(self, values: NDArray[Any]) -> Scores:
        """Return labels [N, C], a column per name: 1, 0, or NaN if unknown."""
        raise NotImplementedError

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Read probabilities [N, C]; NaN for a label without a probability."""
        probabilities = np.stack([read_numbers(table[f"probability_{name}"]) for name in self.columns], axis=1)
        return None if np.isnan(probabilities).all() else probabilities

    def sides(self, values: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return, for each class or label, the bags with it and the others."""
        return [(column == 1, column == 0) for column in self.table(values).T]

    def metric_value(self, values: NDArray[Any], scores: Scores) -> float | None:
        """Return the macro AUROC; None if no column has bags of both kinds."""
        return macro_auroc(self.table(values), scores)

    def estimate(self, values: NDArray[Any], scores: Scores, *, groups: Groups = None) -> Estimate | None:
        """Return the macro AUROC with its interval; None if no column has bags of both kinds."""
        table = self.table(values)
        value, interval = macro_auroc(table, scores), macro_auroc_interval(table, scores, groups=groups)
        return None if value is None or interval is None else Estimate(value, interval.low, interval.high, len(scores))

    def difference(
        self, values: NDArray[Any], scores: Scores, other: Scores, *, groups: Groups = None, **_: Any
    ) -> Difference:
        """Return the macro AUROC of `scores` minus that of `other` scores."""
        figures = paired_macro_auroc(self.table(values), scores, other, groups=groups)
        return Difference(*figures, difference_method("paired jackknife", groups))

    def main_column(self, scores: Scores, decision: Decided) -> NDArray[np.int64]:
        """Return the most probable column, or that of the highest score; never one without a probability."""
        shares = scores if decision is None else np.nan_to_num(decision.predict(scores), nan=-1.0)
        return np.asarray(shares.argmax(axis=1), dtype=np.int64)

    def predictions(self, scores: Scores, decision: Decided) -> dict[str, list[Any]]:
        """Return the probability of each column; None if there is none."""
        shares = np.full((len(scores), self.count), np.nan) if decision is None else decision.predict(scores)
        return {
            f"probability_{name}": [None if np.isnan(share) else float(share) for share in column]
            for name, column in zip(self.names, shares.T, strict=True)
        }

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:  # noqa: ARG002
        """Return the AUROC and average precision of each column, and the macro AUROC."""
        table = self.table(values)
        areas, intervals = class_aurocs(table, scores), class_intervals(table, scores, groups=groups)
        macro = macro_auroc_interval(table, scores, groups=groups, columns=intervals)
        positives, negatives = (table == 1).sum(axis=0), (table == 0).sum(axis=0)
        known, per_class = np.isfinite(areas), {}
        for column, (name, interval) in enumerate(zip(self.names, intervals, strict=True)):
            inside = np.isfinite(table[:, column])
            none = interval is None
            per_class[str(name)] = {
                "positives": int(positives[column]),
                "negatives": int(negatives[column]),
                "auroc": None if none else float(areas[column]),
                "auroc_ci95": None if interval is None else [interval.low, interval.high],
                "ap": None if none else auprc(table[inside, column], scores[inside, column]),
            }
        few = known & (np.minimum(positives, negatives) < FEW_BAGS)
        return {
            "bags": len(table),
            "auroc_macro": float(areas[known].mean()) if macro else None,
            "auroc_macro_ci95": [macro.low, macro.high] if macro else None,
            "auroc_macro_method": macro.method if macro else None,
            "auroc_weighted": float(np.average(areas[known], weights=positives[known])) if macro else None,
            "per_class": per_class,
            "warnings": _remarks(self.names, ~known, few),
        }


def describe_calls(codes: Scores, called: NDArray[np.int64], count: int, groups: ArrayLike | None) -> dict[str, Any]:
    """Return metrics of predicted classes or grades: accuracy with Wilson's interval, balanced accuracy, confusion."""
    from sklearn.metrics import confusion_matrix

    confusion, share = confusion_matrix(codes, called, labels=range(count)), proportion(codes == called, groups=groups)
    sizes = confusion.sum(axis=1)
    return {
        "accuracy": share and share.value,
        "accuracy_ci95": share and [share.low, share.high],
        "balanced_accuracy": float((np.diag(confusion)[sizes > 0] / sizes[sizes > 0]).mean()),
        "confusion": confusion.tolist(),
    }


def _remarks(names: Sequence[str], missing: NDArray[np.bool_], few: NDArray[np.bool_]) -> list[str]:
    kinds = (
        (missing, "No AUROC, and not in the macro AUROC, as no bags have it, or none lack it:"),
        (few, f"Fewer than {FEW_BAGS} bags with or without a class, so that intervals are wide and approximate:"),
    )
    return [f"{text} {', '.join(str(name) for name in np.array(names)[mask])}." for mask, text in kinds if mask.any()]


class Multiclass(ColumnTarget):
    """Classes, each ranked against the rest."""

    name = "multiclass"
    pairs = "classes"
    decided_by = TemperatureCalibrator
    objectives = ("minmax-auc", "pairwise", "bce", "cross-entropy")
    name_limits = (2, None)
    card = CardWords(
        "classification",
        "gives a score in [0, 1] for each of {count} classes ({names}), which ranks bags of it above the others",
        "a probability of each class, and the most probable one",
        (("accuracy", "accuracy"), ("balanced accuracy", "balanced_accuracy")),
    )

    def check(self, bags: Bags) -> None:
        """Refuse a class with fewer than two bags."""
        counts = np.bincount(self.strata(self.values(bags)), minlength=len(self.names))
        rare = [f"{name} ({count})" for name, count in zip(self.names, counts.tolist()) if count < LEAST_BAGS]
        if rare:
            got = f"Expected at least {LEAST_BAGS} training bags of each class, got fewer of {', '.join(rare)}"
            raise BagDataError(f"{got} (in {bags.source}); add bags, join classes, or leave such bags out.")

    def table(self, values: NDArray[Any]) -> Scores:
        """Return 1 in the column of the bag's class, else 0."""
        return one_against_rest(values[:, 0], len(self.names))

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return the probabilities of the classes by logistic regression."""
        return logistic_shares(x, values[:, 0].astype(np.int64), scored)

    def predictions(self, scores: Scores, decision: Decided) -> dict[str, list[Any]]:
        """Return the probability of each class, and the most probable class."""
        codes = self.main_column(scores, decision).tolist()
        called = [None] * len(scores) if decision is None else [self.names[code] for code in codes]
        return super().predictions(scores, decision) | {"class": called}

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return the metrics of each class, and of the predicted class (the largest probability or score)."""
        result = super().describe(values, scores, decision, groups=groups)
        warnings = result.pop("warnings")
        calls = describe_calls(values[:, 0].astype(np.float64), self.main_column(scores, decision), self.count, groups)
        return {**result, **calls, "warnings": warnings}


class Multilabel(ColumnTarget):
    """Labels; each ranks the bags with it above the bags without it."""

    name = "multilabel"
    pairs = "labels"
    decided_by = LabelCalibrator
    objectives = ("minmax-auc", "pairwise", "bce")
    name_limits = (1, None)
    card = CardWords(
        "classification",
        "gives a score in [0, 1] for each of {count} labels ({names}), which ranks bags with it above those without",
        "a probability of each label",
        (("weighted AUROC", "auroc_weighted"),),
    )

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the rarest label of each bag, numbered from 1; 0 for bags without labels."""
        has = values == 1
        order = np.argsort(has.sum(axis=0), kind="stable")
        return np.where(has.any(axis=1), order[has[:, order].argmax(axis=1)] + 1, 0).astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse a label that fewer than two bags have, or that fewer than two bags lack."""
        counts = [(self.values(bags) == kind).sum(axis=0).tolist() for kind in (1, 0)]
        known = [(name, *pair) for name, *pair in zip(self.names, *counts) if min(pair) < LEAST_BAGS]
        if known:
            rare = ", ".join(f"{name} ({with_it} with, {without} without)" for name, with_it, without in known)
            got = f"Expected at least {LEAST_BAGS} training bags with and without each label, got fewer of {rare}"
            raise BagDataError(f"{got} (in {bags.source}); add bags, or leave the column out of `label_column`.")

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Return whether some label has bags with and without it."""
        return bool(((values == 1).any(axis=0) & (values == 0).any(axis=0)).any())

    def table(self, values: NDArray[Any]) -> Scores:
        """Return the labels unchanged."""
        return values

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return the probability of each label by logistic regression on the bags whose entry is known."""
        shares = []
        for column in values.T:
            known = ~np.isnan(column)
            shares.append(logistic_shares(x[known], column[known].astype(np.int64), scored)[:, 1])
        return np.stack(shares, axis=1)

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> LabelCalibrator:
        """Fit the calibrator that gives the probability of each label."""
        return LabelCalibrator.fit(scores, values, names=self.names)
