"""Base of grades, numbers and times: one score that follows an order of bags, measured by the C-index."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import model_validator

from midam.errors import OneClassError
from midam.evaluate.concordance import concordance_interval, paired_concordance
from midam.evaluate.metrics import FEW_BAGS
from midam.evaluate.proportions import Estimate
from midam.evaluate.ranking import Pairs
from midam.reading import Interval, Share
from midam.targets.base import Decided, Difference, Groups, Scores, Target, difference_method
from midam.targets.columns import check_width
from midam.targets.forms import PartForm, all_or_none


class RankedForm(PartForm):
    """Entries of grades, numbers and times."""

    c_index: Share | None
    c_index_ci95: Interval | None
    c_index_method: str | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        all_or_none(self, "c_index", "c_index_ci95", "c_index_method")
        return self


class RankedTarget(Target):
    """Base of the targets with one score, measured by the share of comparable pairs that it orders rightly."""

    metric = "c_index"
    linear = "ridge regression"
    width = 1
    """Columns of the values."""

    def comparable(self, values: NDArray[Any]) -> Pairs:
        """Pairs of bags that the values [N, L] order."""
        return Pairs.of_numbers(check_width(values, self.width)[:, 0])

    def sides(self, values: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Bags that some other is ranked below, and bags that are."""
        return [self.comparable(values).sides]

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Grades or numbers by ridge regression."""
        from sklearn.linear_model import Ridge

        return Ridge().fit(x, values[:, 0]).predict(scored)

    def metric_value(self, values: NDArray[Any], scores: Scores) -> float | None:
        """C-index; None where no pair is comparable."""
        try:
            return self.comparable(values).concordance(scores)
        except OneClassError:
            return None

    def estimate(self, values: NDArray[Any], scores: Scores, *, groups: Groups = None) -> Estimate | None:
        """C-index with its interval; None where no pair is comparable."""
        found = describe_concordance("c_index", self.comparable(values), scores, groups)
        if found["c_index"] is None:
            return None
        low, high = found["c_index_ci95"]
        return Estimate(found["c_index"], low, high, len(scores))

    def difference(self, values: NDArray[Any], scores: Scores, other: Scores, *, groups: Groups = None) -> Difference:
        """C-index of `scores` minus that of `other` scores."""
        found = paired_concordance(self.comparable(values), scores, other, groups=groups)
        return Difference(*found, difference_method("paired jackknife", groups))

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """C-index, and what `further` adds."""
        result = describe_concordance("c_index", self.comparable(values), scores, groups)
        result |= {"bags": len(scores), **self.further(values, scores, decision, groups=groups)}
        counted, count = self.counted(values)
        wide = "the interval of the C-index is wide and its coverage approximate"
        few = [f"Fewer than {FEW_BAGS} {counted} ({count}): {wide}."] if count < FEW_BAGS else []
        return {**result, "warnings": [f"No C-index: {self.incomparable}."] if result["c_index"] is None else few}

    incomparable = "all labels are equal"

    def counted(self, values: NDArray[Any]) -> tuple[str, int]:
        """Units that the interval depends on, and their number."""
        return "bags", len(values)

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Further figures."""
        raise NotImplementedError


def describe_concordance(key: str, pairs: Pairs, scores: Scores, groups: Groups) -> dict[str, Any]:
    """C-index, its interval and how that was found, by entries that begin with `key`; None where there is none."""
    try:
        value, interval = pairs.concordance(scores), concordance_interval(pairs, scores, groups=groups)
    except OneClassError:
        return {key: None, f"{key}_ci95": None, f"{key}_method": None}
    return {key: value, f"{key}_ci95": [interval.low, interval.high], f"{key}_method": interval.method}


def correlation(statistic: Callable[[Scores, Scores], Any], values: Scores, scores: Scores) -> float | None:
    """A rank correlation; None where one of the two does not vary."""
    return float(statistic(values, scores).statistic) if np.ptp(values) > 0 and np.ptp(scores) > 0 else None


def kendall_tau(values: Scores, scores: Scores) -> float | None:
    """Kendall's tau; None where one of the two does not vary."""
    return correlation(scipy.stats.kendalltau, values, scores)


def named(names: Sequence[str], scores: Scores, decision: Decided) -> list[Any]:
    """Names of the grades or groups that a decision gives; None without one."""
    return [None] * len(scores) if decision is None else [names[code] for code in decision.predict(scores).tolist()]
