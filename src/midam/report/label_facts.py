"""Facts about the labels of bags that are not two classes, and warnings of what can spoil a result."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.target_labels import CODED, TargetLabels
from midam.evaluate import class_aurocs, class_intervals, concordance_interval, median_follow_up
from midam.evaluate.classes import one_against_rest
from midam.evaluate.metrics import FEW_BAGS
from midam.evaluate.ranking import Pairs

_SHOWN = 30  # classes that are listed
_TOLD = 5  # classes that a warning names
_UNITS = {"multiclass": "class", "ordinal": "grade", "multilabel": "label"}
_PLURALS = {"class": "classes", "grade": "grades", "label": "labels"}


def label_words(target: str, names: Sequence[str], counts: Sequence[int]) -> str:
    """The kind of labels, in two words; `counts` begins with the events where there are any.

    Examples
    --------
    >>> label_words("multiclass", ["a", "b", "c"], []), label_words("survival", ["time", "event"], [47])
    ('3 classes', '47 events')
    """
    if target in _UNITS:
        return f"{len(names)} {_PLURALS[_UNITS[target]]}"
    return f"{counts[0]} events" if target == "survival" else "numbers"


def label_counts(outcome: TargetLabels) -> NDArray[np.int64]:
    """Bags of each class or grade, with each label [C], with the event [1]; of numbers none [0].

    Examples
    --------
    >>> label_counts(TargetLabels.of("ordinal", [0, 2, 2], names=["low", "mid", "high"])).tolist()
    [1, 0, 2]
    """
    if outcome.target == "survival":
        counted = outcome.values[:, 1:] == 1
    elif outcome.target in _UNITS:
        counted = _columns(outcome) == 1
    else:
        counted = np.zeros((len(outcome), 0), dtype=bool)
    return counted.sum(axis=0, dtype=np.int64)


def label_facts(outcome: TargetLabels, sizes: NDArray[np.int64]) -> dict[str, str]:
    """Facts about an outcome, name and value, of bags of these sizes [N]."""
    facts, count = {"target": outcome.target}, len(outcome)
    if outcome.target == "survival":
        (events,), time = label_counts(outcome).tolist(), outcome.values[:, 0]
        facts["events"] = f"{events} ({events / count:.1%}), {count - events} without until they were last seen"
        facts["times"] = _spread(time)
        median = median_follow_up(*outcome.values.T)
        facts["median follow-up"] = "not reached" if median is None else f"{median:g} (reverse Kaplan-Meier)"
        return facts
    if outcome.target not in _UNITS:
        return facts | {outcome.names[0]: _spread(outcome.values[:, 0])}
    columns, counts = _columns(outcome), label_counts(outcome)
    shares = [f"{name} {own}" for name, own in zip(outcome.names, counts.tolist())]
    facts[_PLURALS[_UNITS[outcome.target]]] = _listed(shares)
    if outcome.target == "multilabel":
        each = (columns == 1).sum(axis=1)
        facts["labels a bag"] = f"{each.mean():.2f} ({each.min()} to {each.max()})"
        gaps = np.isnan(columns).sum(axis=0)
        if gaps.any():
            facts["unknown"] = _listed([f"{outcome.names[at]} {gaps[at]}" for at in np.flatnonzero(gaps).tolist()])
    if sizes.min() < sizes.max():
        means = [f"{name} {sizes[own].mean():.1f}" for name, own in zip(outcome.names, columns.T == 1) if own.any()]
        facts["mean bag size"] = _listed(means)
    return facts


def split_words(outcome: TargetLabels) -> str:
    """Labels of the bags of a split: the least of any class or label, the events, the median."""
    if not len(outcome):
        return "none"
    if outcome.target not in _UNITS:
        counts = label_counts(outcome).tolist()
        return f"{counts[0]} events" if counts else f"median {np.median(outcome.values):g}"
    unit = _UNITS[outcome.target]
    return f"at least {label_counts(outcome).min()} {'with' if unit == 'label' else 'of'} each {unit}"


def label_warnings(outcome: TargetLabels) -> Iterator[str]:
    """Classes, labels or events that are missing or rare."""
    if outcome.target in _UNITS:
        yield from _rare(outcome)
    elif outcome.target == "survival":
        (events,) = label_counts(outcome).tolist()
        if events < FEW_BAGS:
            few = f"few events: {events}; intervals will be wide"
            yield few if events else "no events: nothing can be trained or tested"
    elif len(np.unique(outcome.values)) == 1:
        yield "one number alone: nothing can be trained or tested"
    if outcome.target == "multilabel":
        yield from _alike(outcome)


def size_warnings(bags: Bags, outcome: TargetLabels, *, groups: NDArray[np.str_] | None) -> Iterator[str]:
    """Say where the sizes of the bags rank them; the level is 0.95 for all classes or labels together."""
    advice = "compare your result with it, and prefer poolings that do not see the size"
    if outcome.target in ("multilabel", "multiclass"):
        labels = _columns(outcome)
        scores = np.repeat(bags.sizes[:, None].astype(np.float64), labels.shape[1], axis=1)
        found = class_intervals(labels, scores, groups=groups, level=1 - 0.05 / labels.shape[1])
        areas = class_aurocs(labels, scores)
        telling = [at for at, one in enumerate(found) if one is not None and not one.low <= 0.5 <= one.high]
        telling.sort(key=lambda at: -abs(areas[at] - 0.5))
        if telling:
            unit, shown = _UNITS[outcome.target], [f"{areas[at]:.3f} for {outcome.names[at]}" for at in telling]
            alone = f"its AUROC alone is {_listed(shown, _TOLD)} (intervals at 95% for all {len(found)} exclude 0.5)"
            yield f"the bag size tells the {unit}: {alone}; {advice}"
        return
    survival = outcome.target == "survival"
    pairs = Pairs.of_times(*outcome.values.T) if survival else Pairs.of_numbers(outcome.values[:, 0])
    if not pairs.total > 0:
        return
    sizes = bags.sizes.astype(np.float64)
    low, high, _ = concordance_interval(pairs, sizes, groups=groups)
    if not low <= 0.5 <= high:
        what = {"survival": "who has the event first", "ordinal": "the grade"}.get(outcome.target, "the number")
        yield (
            f"the bag size tells {what}: its C-index alone is {pairs.concordance(sizes):.3f} (95% CI {low:.3f} to "
            f"{high:.3f}); {advice}"
        )


def kinds(bags: Bags) -> tuple[NDArray[np.int64] | None, tuple[str, str]]:
    """Labels of the bags [N], 1 or 0, and what those are called: of survival the events; None where there are none."""
    if bags.outcome is not None and bags.outcome.target == "survival":
        return bags.outcome.values[:, 1].astype(np.int64), ("with the event", "without")
    return bags.labels, ("positive", "negative")


def label_codes(bags: Bags) -> NDArray[np.int64] | None:
    """A number [N] that is equal where the labels of two bags are; None of unlabeled bags."""
    if bags.outcome is None:
        return bags.labels
    values = (
        np.nan_to_num(bags.outcome.values, nan=-1.0) if bags.outcome.target == "multilabel" else bags.outcome.values
    )
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def _columns(outcome: TargetLabels) -> NDArray[np.float64]:
    """Labels [N, C] of classes, grades or labels, 1 and 0, NaN where it is not known."""
    if outcome.target in CODED:
        return one_against_rest(outcome.values[:, 0], len(outcome.names))
    return outcome.values


def _rare(outcome: TargetLabels) -> Iterator[str]:
    columns, unit = _columns(outcome), _UNITS[outcome.target]
    without = (columns == 0).sum(axis=0) if unit == "label" else np.full(len(outcome.names), len(outcome))
    for counts, how in ((label_counts(outcome), "with" if unit == "label" else "of"), (without, "without")):
        none = [outcome.names[at] for at in np.flatnonzero(counts == 0).tolist()]
        few = [
            f"{outcome.names[at]} ({counts[at]})" for at in np.flatnonzero((counts > 0) & (counts < FEW_BAGS)).tolist()
        ]
        if none:
            yield f"no bags {how} the {unit} {_listed(none, _TOLD)}: nothing can be trained or tested of it"
        if few:
            yield f"few bags {how} a {unit}: {_listed(few, _TOLD)}; intervals will be wide"


def _alike(outcome: TargetLabels) -> Iterator[str]:
    """Say which labels are the same in all bags: a column that was copied, or two words for one thing."""
    columns: dict[bytes, list[str]] = {}
    for name, column in zip(outcome.names, np.nan_to_num(outcome.values, nan=-1.0).T):
        columns.setdefault(column.tobytes(), []).append(name)
    for names in columns.values():
        if len(names) > 1:
            yield f"labels that are the same in all bags: {_listed(names, _TOLD)}"


def _spread(values: NDArray[np.float64]) -> str:
    low, lower, median, upper, high = np.percentile(values, [0, 25, 50, 75, 100])
    return f"{low:.4g} to {high:.4g}, median {median:.4g}, quartiles {lower:.4g} and {upper:.4g}"


def _listed(parts: Sequence[str], most: int = _SHOWN) -> str:
    more = f", and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more
