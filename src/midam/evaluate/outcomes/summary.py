"""What a run reports about scored bags whose label is more than 0 or 1, and the one figure that chooses its weights."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.metrics import FEW_BAGS, auprc
from midam.evaluate.outcomes.classes import (
    accuracy,
    balanced_accuracy,
    class_aurocs,
    class_intervals,
    confusion_matrix,
    macro_auroc,
    macro_auroc_interval,
    one_against_rest,
)
from midam.evaluate.outcomes.concordance import concordance_interval, ipcw_pairs, ipcw_truncation
from midam.evaluate.outcomes.decide import Decision
from midam.evaluate.outcomes.grades import quadratic_kappa
from midam.evaluate.outcomes.pairs import Pairs
from midam.evaluate.outcomes.survival import kaplan_meier, log_rank, median_follow_up, median_time
from midam.evaluate.proportions import Estimate, proportion
from midam.evaluate.ranking import Scores, group_numbers

_PRIMARY = {
    "multiclass": "auroc_macro",
    "multilabel": "auroc_macro",
    "ordinal": "c_index",
    "continuous": "c_index",
    "survival": "c_index",
}


def primary(target: str) -> str:
    """Name of the figure that a target is judged by first, a key of `summarize_outcome`: "auroc_macro" or "c_index".

    Examples
    --------
    >>> primary("survival")
    'c_index'
    """
    if target not in _PRIMARY:
        raise ConfigError(f"Expected one of {', '.join(_PRIMARY)}, got {target!r}; name the target.")
    return _PRIMARY[target]


def primary_value(target: str, values: ArrayLike, scores: ArrayLike) -> float | None:
    """The `primary` figure alone, in O(N log N): what validation asks for after each epoch.

    None where it does not exist: no class has bags of both kinds, or no pair is comparable. Parameters and errors as of
    `summarize_outcome`.

    Examples
    --------
    >>> primary_value("survival", [[1, 1], [2, 1], [3, 0]], [0.9, 0.2, 0.4])
    0.6666666666666666
    """
    if primary(target) == "auroc_macro":
        table, own = class_table(target, values, scores)
        return macro_auroc(table, own)
    label, own = label_columns(target, values, scores)
    try:
        return comparable_pairs(target, label).concordance(own)
    except OneClassError:
        return None


def primary_estimate(
    target: str, values: ArrayLike, scores: ArrayLike, *, groups: ArrayLike | None = None
) -> Estimate | None:
    """The `primary` figure with its interval, as `summarize_outcome` has them; None where it does not exist.

    Examples
    --------
    >>> found = primary_estimate("continuous", [[1], [2], [3]], [0.1, 0.2, 0.3])
    >>> found.value, found.high, found.bags
    (1.0, 1.0, 3)
    """
    count = len(np.asarray(scores))
    if primary(target) == "auroc_macro":
        table, own = class_table(target, values, scores)
        value, interval = macro_auroc(table, own), macro_auroc_interval(table, own, groups=groups)
        return None if value is None or interval is None else Estimate(value, interval.low, interval.high, count)
    label, own = label_columns(target, values, scores)
    found = _concordance("c_index", comparable_pairs(target, label), own, groups)
    if found["c_index"] is None:
        return None
    low, high = found["c_index_ci95"]
    return Estimate(found["c_index"], low, high, count)


def summarize_outcome(
    target: str,
    names: Sequence[str],
    values: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    decision: Decision | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """All that a run reports about scored bags, ready for JSON (None in place of a number that does not exist).

    Parameters
    ----------
    target : {"multiclass", "multilabel", "ordinal", "continuous", "survival"}
        What bags are ranked by.
    names : sequence of str
        The classes, labels or grades.
    values : array_like, shape [N, L]
        Class code or grade [N, 1]; labels [N, L], 1, 0 or NaN; number [N, 1]; time and event [N, 2].
    scores : array_like, shape [N, C] or [N]
        Of each class or label; else one a bag, larger means a larger label or an earlier event.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag, for the intervals.
    decision : Decision, optional
        Fitted on validation bags, see `midam.evaluate.outcomes.decide`.
    seed : int, default 0
        Seed of the bootstrap that intervals of single classes rest on where there are groups.

    Returns
    -------
    dict
        `bags`, `groups` (their number) where known, `warnings` (a list of sentences), and

        - of classes and labels: `auroc_macro`, `auroc_macro_ci95`, `auroc_macro_method`, `auroc_weighted` (by
          positive bags), `per_class` by name: `positives`, `negatives`, `auroc`, `auroc_ci95`, `ap`; of classes
          `accuracy`, `accuracy_ci95` (Wilson's, see `midam.evaluate.proportion`), `balanced_accuracy` and `confusion`
          (a row each class), a bag being called the class of the largest probability, or score without a decision;
        - of the others: `c_index`, `c_index_ci95`, `c_index_method`;
        - of grades `kendall_tau` and, with a decision, `quadratic_kappa` and these figures of classes;
        - of numbers `kendall_tau`, `spearman` and, with a decision, `mae` (mean absolute error) beside `mae_constant`,
          that of the median of these bags;
        - of times: `events`, `median_follow_up`, `c_ipcw`, `c_ipcw_ci95`, `c_ipcw_truncation` (None: none was needed),
          and with a decision `risk_groups`, a row each group that has bags (`group`, `bags`, `events`, `median_time`),
          and `log_rank_p`.

    Raises
    ------
    MidamError
        Another target; arrays that do not fit together, or hold values that cannot be used.

    Examples
    --------
    >>> found = summarize_outcome("continuous", ["age"], [[31.0], [44.0], [52.0], [60.0]], [0.1, 0.4, 0.3, 0.8])
    >>> round(found["c_index"], 3), [round(bound, 2) for bound in found["c_index_ci95"]], len(found["warnings"])
    (0.833, [0.22, 0.99], 1)
    """
    if primary(target) == "auroc_macro":
        result = _of_classes(target, names, values, scores, groups=groups, decision=decision, seed=seed)
    else:
        label, own = label_columns(target, values, scores)
        result = _concordance("c_index", comparable_pairs(target, label), own, groups)
        result["bags"] = len(own)
        if target == "ordinal":
            result |= _of_grades(label, own, decision, count=len(names), groups=groups)
        elif target == "continuous":
            result |= _of_numbers(label, own, decision)
        else:
            result |= _of_times(label, own, decision, groups=groups)
        result["warnings"] = _remarks(target, label, result)
    if groups is not None:
        units = group_numbers(groups, result["bags"])
        result["groups"] = None if units is None else int(units.max()) + 1
        if target == "survival" and decision is not None and result["groups"] < result["bags"]:
            result["warnings"].append("Some groups hold several bags: the log-rank test takes bags as independent.")
    return result


def _of_classes(
    target: str,
    names: Sequence[str],
    values: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None,
    decision: Decision | None,
    seed: int,
) -> dict[str, Any]:
    table, own = class_table(target, values, scores)
    if len(names) != table.shape[1]:
        raise BagDataError(f"Expected a name of each of {table.shape[1]} columns, got {len(names)}; name them all.")
    areas, intervals = class_aurocs(table, own), class_intervals(table, own, groups=groups, seed=seed)
    macro = macro_auroc_interval(table, own, groups=groups, columns=intervals)
    positives, negatives = (table == 1).sum(axis=0), (table == 0).sum(axis=0)
    known = np.isfinite(areas)
    per_class = {}
    for column, name in enumerate(names):
        interval, inside = intervals[column], np.isfinite(table[:, column])
        none = interval is None
        per_class[str(name)] = {
            "positives": int(positives[column]),
            "negatives": int(negatives[column]),
            "auroc": None if none else float(areas[column]),
            "auroc_ci95": None if interval is None else [interval.low, interval.high],
            "ap": None if none else auprc(table[inside, column], own[inside, column]),
        }
    result: dict[str, Any] = {
        "bags": len(table),
        "auroc_macro": float(areas[known].mean()) if macro else None,
        "auroc_macro_ci95": [macro.low, macro.high] if macro else None,
        "auroc_macro_method": macro.method if macro else None,
        "auroc_weighted": float(np.average(areas[known], weights=positives[known])) if macro else None,
        "per_class": per_class,
    }
    if target == "multiclass":
        codes = np.asarray(values, dtype=np.float64).reshape(len(table), -1)[:, 0]
        called = (own if decision is None else decision.predict(own)).argmax(axis=1)
        result |= _calls(codes, called, len(names), groups)
    few = known & (np.minimum(positives, negatives) < FEW_BAGS)
    return result | {"warnings": _class_remarks(names, ~known, few)}


def _class_remarks(names: Sequence[str], missing: NDArray[np.bool_], few: NDArray[np.bool_]) -> list[str]:
    def listed(which: NDArray[np.bool_]) -> str:
        return ", ".join(str(names[column]) for column in np.flatnonzero(which).tolist())

    found = []
    if missing.any():
        found.append(f"No AUROC, and no part in the macro AUROC: {listed(missing)} (no bags of it, or no others).")
    if few.any():
        what = "their intervals are wide and the coverage approximate"
        found.append(f"Fewer than {FEW_BAGS} bags of a class, or of the others: {listed(few)}; {what}.")
    return found


def _concordance(key: str, pairs: Pairs, scores: Scores, groups: ArrayLike | None) -> dict[str, Any]:
    try:
        value, interval = pairs.concordance(scores), concordance_interval(pairs, scores, groups=groups)
    except OneClassError:
        return {key: None, f"{key}_ci95": None, f"{key}_method": None}
    return {key: value, f"{key}_ci95": [interval.low, interval.high], f"{key}_method": interval.method}


def _calls(codes: Scores, called: NDArray[np.int64], count: int, groups: ArrayLike | None) -> dict[str, Any]:
    """How well classes or grades are called."""
    confusion, share = confusion_matrix(codes, called, count), proportion(codes == called, groups=groups)
    return {
        "accuracy": accuracy(confusion),
        "accuracy_ci95": None if share is None else [share.low, share.high],
        "balanced_accuracy": balanced_accuracy(confusion),
        "confusion": confusion.tolist(),
    }


def _of_grades(
    label: Scores, scores: Scores, decision: Decision | None, *, count: int, groups: ArrayLike | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"kendall_tau": _correlation(scipy.stats.kendalltau, label[:, 0], scores)}
    if decision is not None:
        grades, called = label[:, 0], decision.predict(scores)
        found["quadratic_kappa"] = quadratic_kappa(grades, called, count)
        found |= _calls(grades, called, count, groups)
    return found


def _of_numbers(label: Scores, scores: Scores, decision: Decision | None) -> dict[str, Any]:
    numbers = label[:, 0]
    found = {
        "kendall_tau": _correlation(scipy.stats.kendalltau, numbers, scores),
        "spearman": _correlation(scipy.stats.spearmanr, numbers, scores),
    }
    if decision is not None:
        found["mae"] = float(np.abs(decision.predict(scores) - numbers).mean())
        found["mae_constant"] = float(np.abs(np.median(numbers) - numbers).mean())
    return found


def _of_times(label: Scores, scores: Scores, decision: Decision | None, *, groups: ArrayLike | None) -> dict[str, Any]:
    time, event = label.T
    truncation = ipcw_truncation(time, event)
    found: dict[str, Any] = {"events": int(event.sum()), "median_follow_up": median_follow_up(time, event)}
    found |= _concordance("c_ipcw", ipcw_pairs(time, event, truncation=truncation), scores, groups)
    found["c_ipcw_truncation"] = _finite(truncation)
    if decision is not None:
        group = decision.predict(scores)
        rows = []
        for own in np.unique(group):
            inside = group == own
            row = {"group": int(own), "bags": int(inside.sum()), "events": int(event[inside].sum())}
            rows.append(row | {"median_time": median_time(kaplan_meier(time[inside], event[inside]))})
        found["risk_groups"] = rows
        found["log_rank_p"] = log_rank(time, event, group) if len(rows) > 1 else None
    return found


def _remarks(target: str, label: Scores, result: dict[str, Any]) -> list[str]:
    if result["c_index"] is None:
        lacking = "no event with a bag behind it" if target == "survival" else "all labels are equal"
        return [f"No C-index: {lacking}."]
    what, count = ("events", int(label[:, 1].sum())) if target == "survival" else ("bags", len(label))
    wide = "the interval of the C-index is wide and its coverage approximate"
    return [f"Fewer than {FEW_BAGS} {what} ({count}): {wide}."] if count < FEW_BAGS else []


def class_table(target: str, values: ArrayLike, scores: ArrayLike) -> tuple[Scores, Scores]:
    """Labels [N, C], one column a class or label, and scores [N, C]."""
    table, own = _two_dimensions(values), np.asarray(scores, dtype=np.float64)
    if target == "multiclass":
        table = one_against_rest(table[:, 0], own.shape[1] if own.ndim == 2 else 0)
    return table, own


def label_columns(target: str, values: ArrayLike, scores: ArrayLike) -> tuple[Scores, Scores]:
    """Labels [N, 1], or time and event [N, 2], and scores [N]."""
    table, width = _two_dimensions(values), 2 if target == "survival" else 1
    if table.shape[1] != width:
        raise BagDataError(f"Expected labels of shape [N, {width}], got {table.shape}; pass the columns of the target.")
    return table, np.asarray(scores, dtype=np.float64)


def _two_dimensions(values: ArrayLike) -> Scores:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise BagDataError(f"Expected labels of each bag, got shape {table.shape}; pass a table [N, L].")
    return table


def comparable_pairs(target: str, label: Scores) -> Pairs:
    """The pairs that the labels [N, 1], or time and event [N, 2], order."""
    return Pairs.of_times(label[:, 0], label[:, 1]) if target == "survival" else Pairs.of_numbers(label[:, 0])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _correlation(of: Callable[[Scores, Scores], Any], values: Scores, scores: Scores) -> float | None:
    """A rank correlation; None where one of the two does not vary."""
    return float(of(values, scores).statistic) if np.ptp(values) > 0 and np.ptp(scores) > 0 else None
