"""Turn trials into a table of methods and its plot, with notes on left-out folds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from midam.compare.folds import Fold
from midam.compare.trials import Status, prediction_table, trial_columns
from midam.data.bags import Bags
from midam.evaluate.labeled_instances import IN_BAG
from midam.evaluate.metrics import NEAR_CHANCE
from midam.methods.store import Row
from midam.report.words import INSTANCE_NAMES, METRIC_NAMES
from midam.settings.training import TrainingSettings
from midam.targets import target_of

# Why folds are left out, by column of the summary: the statuses that it counts, and the words of a note.
_REASONS = {
    "one_class": ((Status.ONE_CLASS_TEST, Status.ONE_CLASS_TRAIN), "whose test or training part holds one class only"),
    "unranked": ((Status.UNRANKED_TEST,), "whose test part holds no two bags that their labels order"),
    "unfit": ((Status.UNFIT_TRAIN,), "whose training part holds too few bags of a class or label, or too few events"),
    "no_validation": ((Status.NO_VALIDATION,), "whose training part has too few bags for validation bags"),
    "diverged": ((Status.DIVERGED,), "where the training diverged"),
}


class CorrectedInterval(NamedTuple):
    """A mean over trials and its interval; NaN if undefined.

    Examples
    --------
    The AUROC of three folds:

    >>> interval = corrected_interval([0.8, 0.9, 1.0], ratio=0.5)
    >>> round(interval.mean, 2), round(interval.low, 2), round(interval.high, 2), interval.trials
    (0.9, 0.51, 1.29, 3)
    """

    mean: float
    low: float
    high: float
    trials: int


def corrected_interval(values: ArrayLike, *, ratio: float, level: float = 0.95) -> CorrectedInterval:
    """Return the mean of J trials and the corrected resampled t interval, with J - 1 degrees of freedom.

    The bounds are NaN for fewer than two trials, or trials without spread.

    Parameters
    ----------
    values : array_like, shape [J]
        A finite metric of each trial, such as an AUROC or a paired difference.
    ratio : float > 0
        Ratio of test to training bags of a trial, 1/9 for 10 folds.
    level : float in (0, 1), default 0.95
        Level of the interval.

    Examples
    --------
    >>> interval = corrected_interval([0.8, 0.9, 1.0], ratio=0.5)
    >>> round(interval.mean, 3), round(interval.high - interval.mean, 4)
    (0.9, 0.3928)
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean()) if x.size else np.nan
    if x.size < 2 or np.ptp(x) == 0:
        return CorrectedInterval(mean, np.nan, np.nan, x.size)
    half = float(stats.t.ppf((1 + level) / 2, x.size - 1) * np.sqrt((1 / x.size + ratio) * x.var(ddof=1)))
    return CorrectedInterval(mean, mean - half, mean + half, x.size)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    Attributes
    ----------
    trials : DataFrame
        A row for each trial, with the columns of `midam.compare.trials`, by method, repeat and fold.
    summary : DataFrame
        A row for each method: number of used `folds`; means of `auroc`, `auprc`, `difference` to the first method
        (paired by fold) and `seconds` per trial; 95% intervals; the number of left-out folds by reason.
        Undefined metrics are NaN. For other targets than two classes, `metric` replaces `auroc` and `auprc`. With
        labels of instances: `auroc_in_bag`, `auprc_in_bag` and `hit_rate` of the methods that are models.
    remarks : tuple of str
        Notes on the folds.
    predictions : DataFrame
        Out-of-fold scores, a row for each test bag of each trial: bag, method, repeat, fold, score, label, positive
        (the name of the class that scores higher) and, if known, group. Scores of two methods, or of two folds, have no
        common scale.
    metric : str
        Main metric of the comparison, a key of `midam.report.words.METRIC_NAMES`.

    Examples
    --------
    >>> from midam.compare import repeated_folds, run_comparison
    >>> bags = Bags.from_list([[[float(i % 2)], [0.1 * i]] for i in range(12)], [0, 1] * 6)
    >>> methods = ["mean-map-svm", "bag-statistics-logistic"]
    >>> comparison = run_comparison(bags, methods, repeated_folds(bags, repeats=1, folds=2))
    >>> comparison.summary[["method", "folds"]].values.tolist()
    [['mean-map-svm', 2], ['bag-statistics-logistic', 2]]
    """

    trials: pd.DataFrame
    summary: pd.DataFrame
    remarks: tuple[str, ...] = ()
    predictions: pd.DataFrame = field(default_factory=pd.DataFrame)
    metric: str = "auroc"

    @property
    def basis(self) -> str:
        """Sentence on what the intervals of the summary depend on."""
        if len(self.trials[["repeat", "fold"]].drop_duplicates()) == 1:
            estimator = "Obuchowski 1997, else DeLong 1988" if self.metric == "auroc" else "infinitesimal jackknife"
            return (
                f"One fold: intervals of the {METRIC_NAMES[self.metric]} and of the paired difference on its test "
                f"bags, by groups where they are known ({estimator}). They leave out the variation with training bags "
                "and seed."
            )
        return (
            "Means over folds; intervals with the correction of Nadeau and Bengio (2003), as folds share training "
            "bags; differences paired by fold. No interval: fewer than two usable folds, or folds without spread."
        )

    @property
    def notes(self) -> list[str]:
        """Remarks, and notes on left-out folds."""
        rows = self.summary.to_dict("records")
        lost = [(row, name) for row in rows for name in _reasons(self.metric) if row[name]]
        notes = [f"{row['method']}: {row[name]} folds left out, {_REASONS[name][1]}" for row, name in lost]
        return [*self.remarks, *notes]

    def markdown(self) -> str:
        """Return table and notes as Markdown."""
        first, metric = self.summary["method"].iloc[0], METRIC_NAMES[self.metric]
        heads = ["method", f"{metric} [95% interval]", f"difference to {first} [95% interval]"]
        heads += [*(["AUPRC"] if self.metric == "auroc" else []), "folds", "seconds"]
        of_instances = [name for name in IN_BAG if name in self.summary]
        heads += [f"instances: {INSTANCE_NAMES[name]} [95% interval]" for name in of_instances]
        lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for row in self.summary.to_dict("records"):
            cells = [row["method"], format_interval(row, self.metric), format_interval(row, "difference", sign=True)]
            folds = row["folds"] + sum(row[reason] for reason in _reasons(self.metric))
            cells += [format_number(row["auprc"])] if self.metric == "auroc" else []
            cells += [f"{row['folds']} of {folds}", format_number(row["seconds"], digits=2)]
            cells += [format_interval(row, name) for name in of_instances]
            lines.append(f"| {' | '.join(cells)} |")
        lines += [
            "",
            f"{self.basis} Seconds per trial, selection included. Methods that choose settings on validation bags "
            "train on the rest of the training part; `midam`, baselines train on all of it.",
        ]
        return "\n".join([*lines, *([""] if self.notes else []), *(f"- {note}." for note in self.notes)]) + "\n"


def make_comparison(bags: Bags, rows: Sequence[Row], methods: Sequence[str], folds: Sequence[Fold]) -> Comparison:
    """Make the tables of the trials of these methods on these folds of the bags."""
    ratios = {(fold.repeat, fold.fold): len(fold.test) / len(fold.train) for fold in folds}
    by_method: dict[str, dict[tuple[int, int], Row]] = {name: {} for name in methods}
    for row in rows:
        if row["method"] in by_method and (row["repeat"], row["fold"]) in ratios:
            by_method[row["method"]][row["repeat"], row["fold"]] = row
    first = by_method[methods[0]]
    tested = bags.subset(folds[0].test) if len(folds) == 1 else None
    metric = target_of(bags).metric
    summary = [_summarize(name, by_method[name], first, ratios, tested, metric=metric) for name in methods]
    if any(row["instances"] for row in rows):
        summary = [entry | _of_instances(by_method[entry["method"]], ratios) for entry in summary]
    ordered = [of_method[key] for of_method in by_method.values() for key in sorted(of_method)]
    trials, scores = pd.DataFrame(ordered, columns=trial_columns(metric)), prediction_table(bags, ordered, folds)
    return Comparison(trials, pd.DataFrame(summary), predictions=scores, metric=metric)


def stopped_early(summary: pd.DataFrame, trained: Collection[str], epochs: int, *, metric: str = "auroc") -> list[str]:
    """Return a note on `trained` methods that are near chance after fewer epochs than the default."""
    usual = TrainingSettings().epochs
    weak = summary["method"].isin(list(trained)) & (summary[metric] < NEAR_CHANCE)
    if epochs >= usual or not weak.any():
        return []
    few = f"{epochs} epoch" + "s" * (epochs > 1)
    return [
        f"near chance after {few} ({usual} are the default): {', '.join(summary['method'][weak])}; train for longer"
    ]


def format_interval(row: Mapping[Any, Any], name: str, *, sign: bool = False) -> str:
    """Format a metric of a summary row as ``0.912 [0.880, 0.944]``; a dash if it is undefined."""
    form = "+.3f" if sign else ".3f"
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    interval = f"[{low:{form}}, {high:{form}}]" if low < high else "[-]"
    return f"{value:{form}} {interval}" if np.isfinite(value) else "-"


def format_number(value: float, *, digits: int = 3) -> str:
    """Format a number of the summary; a dash if it is undefined."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def _summarize(
    name: str,
    rows: Mapping[tuple[int, int], Row],
    first: Mapping[tuple[int, int], Row],
    ratios: Mapping[tuple[int, int], float],
    tested: Bags | None,
    *,
    metric: str,
) -> dict[str, Any]:
    """Return a row of the summary; `tested` are the test bags of a single fold."""
    used = {key: row[metric] for key, row in rows.items() if row[metric] is not None}
    reference = {key: row[metric] for key, row in first.items() if row[metric] is not None and rows is not first}
    areas = corrected_interval(list(used.values()), ratio=_mean(ratios[key] for key in used))
    pairs = {key: area - reference[key] for key, area in used.items() if key in reference}
    gaps = corrected_interval(list(pairs.values()), ratio=_mean(ratios[key] for key in pairs))
    if tested is not None:
        areas, gaps = _on_test_bags(tested, rows, areas), _on_test_bags(tested, rows, gaps, first)
    statuses = [row["status"] for row in rows.values()]
    return {
        "method": name,
        "folds": areas.trials,
        metric: areas.mean,
        # The t interval may exceed the range of an AUROC.
        f"{metric}_low": float(np.maximum(areas.low, 0.0)),
        f"{metric}_high": float(np.minimum(areas.high, 1.0)),
        **({"auprc": _mean(rows[key]["auprc"] for key in used)} if metric == "auroc" else {}),
        "difference": gaps.mean,
        "difference_low": float(np.maximum(gaps.low, -1.0)),
        "difference_high": float(np.minimum(gaps.high, 1.0)),
        "paired_folds": gaps.trials,
        "seconds": _mean(rows[key]["seconds"] for key in used),
        **{reason: sum(status in _REASONS[reason][0] for status in statuses) for reason in _reasons(metric)},
    }


def _of_instances(rows: Mapping[tuple[int, int], Row], ratios: Mapping[tuple[int, int], float]) -> dict[str, float]:
    """Return the entries on labeled instances, the mean over the folds in which they are defined."""
    entries: dict[str, float] = {}
    for name in IN_BAG:
        values = {key: row["instances"][name] for key, row in rows.items() if row["instances"]}
        known = {key: value for key, value in values.items() if value is not None}
        interval = corrected_interval(list(known.values()), ratio=_mean(ratios[key] for key in known))
        low, high = float(np.maximum(interval.low, 0.0)), float(np.minimum(interval.high, 1.0))
        entries |= {name: interval.mean, f"{name}_low": low, f"{name}_high": high}
    return entries


def _reasons(metric: str) -> list[str]:
    """Return the columns of the summary that count left-out folds."""
    others = ("unranked", "unfit") if metric == "auroc" else ("one_class",)
    return [name for name in _REASONS if name not in others]


def _on_test_bags(
    tested: Bags,
    rows: Mapping[tuple[int, int], Row],
    interval: CorrectedInterval,
    first: Mapping[tuple[int, int], Row] | None = None,
) -> CorrectedInterval:
    """Return a single fold's metric, or its difference to `first`, with the interval on the fold's test bags."""
    if interval.trials == 0:
        return interval
    ((key, row),) = rows.items()
    target, groups, scores = target_of(tested), tested.groups, np.asarray(row["scores"])
    values = target.values(tested)
    if first is not None:
        gap = target.difference(values, scores, np.asarray(first[key]["scores"]), groups=groups)
        return interval._replace(low=gap.low, high=gap.high)
    estimate = target.estimate(values, scores, groups=groups)
    return interval if estimate is None else interval._replace(low=estimate.low, high=estimate.high)


def _mean(values: Any) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
