"""Grades and numbers, and the base of survival: one score ranks the bags, and the C-index measures it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError, OneClassError
from midam.evaluate.concordance import concordance_interval, paired_concordance
from midam.evaluate.decisions import GradeCuts, NumberScale, quadratic_kappa
from midam.evaluate.proportions import Estimate, estimate_of
from midam.evaluate.ranking import FEW_BAGS, Pairs
from midam.targets.base import (
    CardWords,
    Decided,
    Difference,
    Groups,
    Scores,
    Target,
    difference_method,
    read_codes,
    read_numbers,
)
from midam.targets.columns import describe_calls

_BINS = 5  # of numbers, for splits with equal shares of low and high ones


class RankedTarget(Target):
    """Base of the targets with one score, measured by the share of comparable pairs that it orders correctly."""

    metric = "c_index"
    linear = "ridge regression"
    predicted: ClassVar[str]
    """Column of the predictions in a table."""
    differing: ClassVar[str]
    """Which training bags are needed, in words."""

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Read the positions [N] of the grades or risk groups."""
        return read_codes(table[self.predicted], self.predicted_names)

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """Return the grade or the risk group by its name."""
        if decision is None:
            return {self.predicted: [None] * len(scores)}
        return {self.predicted: [self.predicted_names[code] for code in decision.predict(scores).tolist()]}

    def check(self, bags: Bags) -> None:
        """Refuse bags that all have the same label."""
        if not self.has_metric(self.values(bags)):
            raise BagDataError(
                f"Expected training bags {self.differing}, got only one (in {bags.source}); add bags of others."
            )

    def comparable(self, values: NDArray[Any]) -> Pairs:
        """Return the pairs of bags that the values [N, L] order."""
        return Pairs.of_numbers(values[:, 0])

    def sides(self, values: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return the bags that belong above another bag, and those that belong below."""
        return [self.comparable(values).sides]

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return grades or numbers by ridge regression."""
        from sklearn.linear_model import Ridge

        return Ridge().fit(x, values[:, 0]).predict(scored)

    def metric_value(self, values: NDArray[Any], scores: Scores) -> float | None:
        """Return the C-index; None if no pair is comparable."""
        try:
            return self.comparable(values).concordance(scores)
        except OneClassError:
            return None

    def estimate(self, values: NDArray[Any], scores: Scores, *, groups: Groups = None) -> Estimate | None:
        """Return the C-index with its interval; None if no pair is comparable."""
        entries = describe_concordance("c_index", self.comparable(values), scores, groups)
        return estimate_of(entries["c_index"], entries["c_index_ci95"], len(scores))

    def difference(
        self, values: NDArray[Any], scores: Scores, other: Scores, *, groups: Groups = None, **_: Any
    ) -> Difference:
        """Return the C-index of `scores` minus that of `other` scores."""
        figures = paired_concordance(self.comparable(values), scores, other, groups=groups)
        return Difference(*figures, difference_method("paired jackknife", groups))

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return the C-index and the metrics of `further`."""
        result = describe_concordance("c_index", self.comparable(values), scores, groups)
        result |= {"bags": len(scores), **self.further(values, scores, decision, groups=groups)}
        counted, count = self.counted(values)
        wide = "the interval of the C-index is wide and its coverage approximate"
        few = [f"Fewer than {FEW_BAGS} {counted} ({count}): {wide}."] if count < FEW_BAGS else []
        return {**result, "warnings": [f"No C-index: {self.incomparable}."] if result["c_index"] is None else few}

    incomparable = "all labels are equal"

    def counted(self, values: NDArray[Any]) -> tuple[str, int]:
        """Return the name and the number of the units that the interval depends on."""
        return "bags", len(values)

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return the metrics besides the C-index."""
        raise NotImplementedError


def describe_concordance(key: str, pairs: Pairs, scores: Scores, groups: Groups) -> dict[str, Any]:
    """Return the C-index, its interval and the method of the interval, as entries that begin with `key`, or None."""
    try:
        value, interval = pairs.concordance(scores), concordance_interval(pairs, scores, groups=groups)
    except OneClassError:
        return {key: None, f"{key}_ci95": None, f"{key}_method": None}
    return {key: value, f"{key}_ci95": [interval.low, interval.high], f"{key}_method": interval.method}


class Continuous(RankedTarget):
    """Numbers: of two bags, the one with the larger number gets the higher score."""

    name = "continuous"
    predicted, differing = "number", "with different numbers"
    pairs = "order"
    decided_by = NumberScale
    objectives = ("pairwise",)
    name_limits = (1, 1)
    decided_figure = "mae"
    card = CardWords(
        "regression",
        "gives one score in [0, 1] that follows a number ({names}): the larger, the higher",
        "the number",
        (("Spearman's rho", "spearman"), ("mean absolute error", "mae"), ("that of the median", "mae_constant")),
    )

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Read the predicted numbers [N]."""
        predicted_numbers = read_numbers(table["number"])
        return None if np.isnan(predicted_numbers).all() else predicted_numbers

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """Return the predicted number."""
        return {"number": [None] * len(scores) if decision is None else decision.predict(scores).tolist()}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the fifth of the numbers that each bag belongs to."""
        numbers = values[:, 0]
        return np.searchsorted(np.quantile(numbers, np.arange(1, _BINS) / _BINS), numbers, side="right")

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return one stratum for all bags."""
        return np.zeros(len(values), dtype=np.int64)

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:  # noqa: ARG002
        """Return Spearman's correlation and, with a decision, the mean absolute errors of it and of the median."""
        numbers = values[:, 0]
        varies = np.ptp(numbers) > 0 and np.ptp(scores) > 0
        rho = float(scipy.stats.spearmanr(numbers, scores).statistic) if varies else None
        result: dict[str, Any] = {"spearman": rho}
        if decision is not None:
            result["mae"] = float(np.abs(decision.predict(scores) - numbers).mean())
            result["mae_constant"] = float(np.abs(np.median(numbers) - numbers).mean())
        return result


class Ordinal(RankedTarget):
    """Grades: of two bags, the one with the higher grade gets the higher score."""

    name = "ordinal"
    predicted, differing = "grade", "of at least two grades"
    pairs = "order"
    decided_by = GradeCuts
    objectives = ("pairwise",)
    name_limits = (2, None)
    decided_figure = "quadratic_kappa"
    card = CardWords(
        "classification",
        "gives one score in [0, 1] that follows {count} grades, from low to high: {names}",
        "a grade",
        (("kappa", "quadratic_kappa"), ("accuracy", "accuracy")),
    )

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> GradeCuts:
        """Fit the cuts of the score between grades."""
        return GradeCuts.fit(scores, values[:, 0], count=len(self.names))

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return, with a decision, the quadratic kappa and the metrics of predicted grades."""
        if decision is None:
            return {}
        grades, called, count = values[:, 0], decision.predict(scores), len(self.names)
        kappa = {"quadratic_kappa": quadratic_kappa(grades, called, count)}
        return kappa | describe_calls(grades, called, count, groups)
