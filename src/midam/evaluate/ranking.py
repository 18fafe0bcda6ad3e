"""Ranking metrics of bag scores: the AUROC, its placement values and bootstrap, and the pairs that labels order.

The AUROC is the probability that a positive bag scores higher than a negative one, ties counting one half. Both it and
the DeLong variance follow from midranks in O(N log N).

A pair is *comparable* if the labels determine which of the two bags should score higher: the larger of two numbers or
grades, the earlier of two times to an event. Pairs with tied scores count one half.

With censored times, a pair is comparable if the earlier time is an event. Bags with an event at the same time are not
comparable; a bag that is censored at the time of an event has outlived it. These are the conventions of
scikit-survival's `concordance_index_censored` and of lifelines' `concordance_index`; scores are tied only if they are
equal, without a tolerance. Pairs are counted in O(N log N).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import as_array, name_array, refuse_other_order
from midam.errors import BagDataError, OneClassError
from midam.names import is_missing

Labels = NDArray[np.int64]
Scores = NDArray[np.float64]

FEW_BAGS = 20  # of a class; with fewer, intervals and thresholds are approximate
_MOST_DRAWN = 2_000_000  # of the bootstrap, resamples times units at once
_MOST_BINS = 2048  # of scores in the bootstrap: intervals need no more
Positions = NDArray[np.intp]


def check_bags(labels: ArrayLike, scores: ArrayLike, *more: ArrayLike | None) -> tuple[Labels, Scores]:
    """Return labels [N] as int64 and scores [N] as float64.

    Raise a `BagDataError` for no bag, different shapes, a label other than 0 and 1, a score that is not finite, or
    Series of the same bags in different orders, among them `more`.
    """
    refuse_other_order(labels, scores, *more)
    y = one_per_bag(labels)
    refuse(y, ~np.isin(y, (0, 1)), "labels 0 and 1", "recode the labels")
    return y.astype(np.int64), check_scores(scores, y.size)


def check_probabilities(labels: ArrayLike, probabilities: ArrayLike, *more: ArrayLike | None) -> tuple[Labels, Scores]:
    """Return what `check_bags` returns; raise a `BagDataError` for a probability outside [0, 1] too."""
    y, p = check_bags(labels, probabilities, *more)
    refuse(p, (p < 0) | (p > 1), "probabilities in [0, 1]", "calibrate the scores first")
    return y, p


def check_two_classes(labels: Labels) -> tuple[int, int]:
    """Return the numbers of positive and negative bags; raise an `OneClassError` if one of them is 0."""
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    if positives == 0 or negatives == 0:
        counts = f"{positives} positive and {negatives} negative"
        raise OneClassError(f"Expected bags of both classes, got {counts}; evaluate on bags of both classes.")
    return positives, negatives


def check_numbers(values: ArrayLike, *more: ArrayLike | None) -> Scores:
    """Return labels [N] as float64; raise a `BagDataError` for one that is not finite, or as `check_bags`."""
    refuse_other_order(values, *more)
    y = one_per_bag(values, np.float64)
    refuse(y, ~np.isfinite(y), "finite labels", "leave the bag out")
    return y


def check_times(time: ArrayLike, event: ArrayLike, *more: ArrayLike | None) -> tuple[Scores, NDArray[np.bool_]]:
    """Return times [N] as float64, events [N] as bool; raise a `BagDataError` as `check_bags`."""
    t = check_numbers(time, event, *more)
    e = one_per_bag(event, kind="event", bags=t.size)
    refuse(e, ~np.isin(e, (0, 1)), "events 0 (censored) and 1", "recode the events")
    return t, e.astype(bool)


def check_scores(scores: ArrayLike, bags: int) -> Scores:
    """Return scores [N] as float64; raise a `BagDataError` for another shape, or a score that is not finite."""
    s = one_per_bag(scores, np.float64, kind="score", bags=bags)
    refuse(s, ~np.isfinite(s), "finite scores", "check the model's output")
    return s


def one_per_bag(
    values: ArrayLike, dtype: type | None = None, *, kind: str = "label", bags: int | None = None
) -> NDArray[Any]:
    """Return values [N]; raise a `BagDataError`, which calls a value a `kind`, unless there is one for each bag."""
    array = as_array(values, dtype)
    if array.ndim != 1 or array.size == 0 or bags not in (None, array.size):
        wanted = "" if bags is None else f" for {bags} bags"
        raise BagDataError(f"Expected one {kind} per bag, got shape {array.shape}{wanted}; pass an array [N].")
    return array


def refuse(values: NDArray[Any], wrong: NDArray[np.bool_], wanted: str, advice: str) -> None:
    """Raise a `BagDataError` that names the bag, and the column of a table, of the first of the `wrong` values."""
    for bag, *column in np.argwhere(wrong).tolist():
        place = "".join([f"bag {bag}", *(f", column {c}" for c in column)])
        raise BagDataError(f"Expected {wanted}, got {values[bag, *column]} ({place}); {advice}.")


def part_numbers(parts: ArrayLike, bags: int, *, kind: str) -> Positions:
    """Return the part of each bag, such as its group or fold, as numbers 0, 1, ... in sorted order.

    Raise a `BagDataError`, which calls a part a `kind`, unless there is one for each bag.
    """
    names = one_per_bag(parts, object, kind=kind, bags=bags)
    refuse(names, np.array([is_missing(name) for name in names]), f"a {kind} for each bag", f"name its {kind}")
    return np.unique(name_array(names), return_inverse=True)[1].reshape(-1)


def group_numbers(groups: ArrayLike | None, bags: int) -> Positions | None:
    """Return the groups of bags as `part_numbers`; None without groups."""
    return None if groups is None else part_numbers(groups, bags, kind="group")


def units_of(groups: ArrayLike | None, bags: int) -> tuple[Positions, bool]:
    """Return the independent unit of each bag, and whether units are groups: if a group holds several bags."""
    numbers = group_numbers(groups, bags)
    return (np.arange(bags), False) if numbers is None or numbers.max() + 1 == bags else (numbers, True)


def auroc(labels: ArrayLike, scores: ArrayLike, *, folds: ArrayLike | None = None) -> float:
    """Return the area under the ROC curve, ``P(h+ > h-) + P(h+ = h-) / 2``, in [0, 1], from midranks.

    It is the statistic of Mann and Whitney (1947).

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        Bag labels, 0 or 1, and finite bag scores, larger means more positive.
    folds : array_like, shape [N], optional
        Folds of cross-validated scores; only pairs of bags of one fold are compared.

    Raises
    ------
    BagDataError
        If the arrays do not match, or hold invalid values; an `OneClassError` for bags of one class, or if no fold
        holds both.

    Examples
    --------
    >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
    0.875
    >>> auroc([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.8], folds=[0, 0, 1, 1])
    1.0
    """
    y, s = check_bags(labels, scores, folds)
    positives, negatives = check_two_classes(y)
    if folds is not None:
        return float(placements(y, s, folds)[0].mean())
    wins = float(scipy.stats.rankdata(s)[y == 1].sum()) - positives * (positives + 1) / 2
    return wins / (positives * negatives)


def placements(labels: Labels, scores: Scores, folds: ArrayLike | None = None) -> tuple[Scores, Scores]:
    """Return, for each positive bag [P] and each negative bag [N - P], the share of the other class it is ordered with.

    A pair counts if its order is correct. The mean over either class is the AUROC. Sun and Xu (2014), IEEE Signal
    Processing Letters 21:1389.

    With `folds` [N], only pairs of bags of one fold count: their models differ, and with them the scale of the scores.
    The mean is then the share of these pairs that are ordered, and each value is that mean plus the bag's influence on
    it, so that variances are computed from them as before.
    """
    if folds is None:
        pos, neg = scores[labels == 1], scores[labels == 0]
        ranks = scipy.stats.rankdata(scores)
        of_pos = (ranks[labels == 1] - scipy.stats.rankdata(pos)) / neg.size
        of_neg = 1.0 - (ranks[labels == 0] - scipy.stats.rankdata(neg)) / pos.size
        return of_pos, of_neg
    wins, pairs, fold_of = np.zeros(labels.size), np.zeros(labels.size), part_numbers(folds, labels.size, kind="fold")
    for fold in range(int(fold_of.max()) + 1):
        inside = fold_of == fold
        y, ahead = labels[inside], np.zeros(int(inside.sum()))
        counts = {label: int((y == label).sum()) for label in (0, 1)}
        if min(counts.values()):
            for label, share in zip((1, 0), placements(y, scores[inside])):
                ahead[y == label] = share * counts[1 - label]
        wins[inside], pairs[inside] = ahead, np.where(y == 1, counts[0], counts[1])
    total = pairs[labels == 1].sum()
    if not total:
        raise OneClassError("Expected a fold with bags of both classes, got none; take fewer folds.")
    area = wins[labels == 1].sum() / total
    of_pos, of_neg = (
        area + (wins - area * pairs)[labels == label] * (labels == label).sum() / total for label in (1, 0)
    )
    return of_pos, of_neg


def unit_draws(count: int, resamples: int) -> Iterator[Scores]:
    """Yield how often each of `count` units is in some bootstrap resamples, [r, U], the same in each call."""
    rng, most = np.random.default_rng(0), max(1, _MOST_DRAWN // count)
    for left in range(resamples, 0, -most):
        yield rng.multinomial(count, np.full(count, 1 / count), size=min(left, most)).astype(np.float64)


def resampled_areas(
    positive: NDArray[np.bool_], scores: Scores, units: Positions, *, resamples: int
) -> dict[str, tuple[float, Scores]]:
    """Return "auroc" and "auprc" of bags or instances of both kinds, each with its values in resamples of whole units.

    `units` [N] are numbers from 0 on. Resamples that lack a kind are left out. Field and Welsh (2007), Journal of the
    Royal Statistical Society B 69:369.
    """
    distinct, at = np.unique(-scores, return_inverse=True)
    exact = [np.bincount(at[side], minlength=len(distinct))[None] for side in (positive, ~positive)]
    if len(distinct) > _MOST_BINS:
        at = (scipy.stats.rankdata(-scores, method="dense") * _MOST_BINS // (len(distinct) + 1)).astype(np.int64)
    shape, ones = (int(units.max()) + 1, int(at.max()) + 1), np.ones(len(at))
    tables = [scipy.sparse.csr_matrix((ones[x], (units[x], at[x])), shape=shape) for x in (positive, ~positive)]
    drawn = [[counts @ table for table in tables] for counts in unit_draws(shape[0], resamples)]
    binned = [np.asarray(table.sum(axis=0)) for table in tables]
    areas = dict[str, tuple[float, Scores]]()
    for name, area in (("auroc", counted_auroc), ("auprc", counted_auprc)):
        value = float(area(*exact)[0])
        resampled = np.concatenate([area(*counts) for counts in drawn]) - area(*binned)[0] + value
        areas[name] = value, resampled[np.isfinite(resampled)].clip(0, 1)
    return areas


def counted_auroc(true: NDArray[Any], false: NDArray[Any]) -> Scores:
    """Return the AUROC [R] from counts [R, S] of both labels at descending scores; NaN with one label."""
    below = false.sum(axis=1, keepdims=True, dtype=np.float64) - np.cumsum(false, axis=1)
    with np.errstate(invalid="ignore"):
        return (true * (below + false / 2)).sum(axis=1) / (true.sum(axis=1) * false.sum(axis=1, dtype=np.float64))


def counted_auprc(true: NDArray[Any], false: NDArray[Any]) -> Scores:
    """Return the average precision [R] from counts [R, S] of both labels at descending scores; NaN with one label."""
    hits, alarms = (np.cumsum(side, axis=1, dtype=np.float64) for side in (true, false))
    with np.errstate(invalid="ignore"):
        precision = np.nan_to_num(hits / (hits + alarms))
        return np.where(alarms[:, -1] > 0, (true * precision).sum(axis=1) / hits[:, -1], np.nan)


class Pairs:
    """The comparable pairs of bags with these labels; `of_numbers` and `of_times` make them.

    Attributes
    ----------
    total : float
        Number of pairs.
    sides : (array of bool [N], array of bool [N])
        The bags that are the upper bag of a pair, which should score higher, and those that are the lower bag of one.

    Examples
    --------
    >>> pairs = Pairs.of_numbers([0.0, 1.0, 1.0, 2.0])
    >>> pairs.total, pairs.concordance([0.1, 0.4, 0.3, 0.4])
    (5.0, 0.9)
    """

    def __init__(self, time: Scores, event: NDArray[np.bool_], made_from: Sequence[Any]) -> None:
        self.made_from = made_from  # a Series has the order of the bags
        # Sorted by time, events before censored bags at the same time: a bag is the upper bag of all pairs with the
        # bags after its run of equal (time, event), and the lower bag of all pairs with events before this run.
        self._order: Positions = np.lexsort((~event, time))
        self._place = np.argsort(self._order)
        t, self._event = time[self._order], event[self._order].astype(np.float64)
        first = np.append(True, (np.diff(t) > 0) | (np.diff(self._event) != 0))
        starts, run = np.flatnonzero(first), np.cumsum(first) - 1
        self._start, self._stop = starts[run], np.append(starts[1:], t.size)[run]
        self._upper = self._event * (t.size - self._stop)  # pairs of each bag as the upper bag, and as the lower one
        self._lower = _sums(self._event)[self._start]
        self.total = float(self._upper.sum())
        self.sides = (self._upper > 0)[self._place], (self._lower > 0)[self._place]

    @classmethod
    def of_numbers(cls, values: ArrayLike) -> Self:
        """Make the pairs of different numbers or grades [N]; the larger should score higher.

        For 0 and 1 the concordance is the AUROC; without ties it is ``(1 + Kendall's tau) / 2``.
        """
        y = check_numbers(values)
        return cls(-y, np.ones(y.size, dtype=bool), [values])

    @classmethod
    def of_times(cls, time: ArrayLike, event: ArrayLike) -> Self:
        """Make the pairs of times [N], censored where `event` is 0; the bag with the earlier event should score higher.

        The concordance is Harrell's C-index (1996, Statistics in Medicine 15:361).
        """
        return cls(*check_times(time, event), [time, event])

    @property
    def spread(self) -> tuple[float, float]:
        """Numbers of pairs of pairs over ``total^2``: of each pair with itself, and with pairs that share a side.

        For P bags above N bags they are 1 / (P N) and (P + N) / (2 P N), as in the variance of an AUROC.
        """
        shared = float((self._upper**2).sum() + (self._lower**2).sum()) / 2
        return 1 / self.total, shared / self.total**2

    def concordance(self, scores: ArrayLike) -> float:
        """Return the share of comparable pairs that scores [N] order correctly, in [0, 1]; ties count one half.

        Raise an `OneClassError` if no pair is comparable.
        """
        return min(float(self._upper_wins(self._ranks(scores)).sum()) / self.total, 1.0)

    def wins(self, scores: ArrayLike) -> tuple[Scores, Scores]:
        """Return each bag's correctly ordered pairs [N], and all its pairs [N]; errors as in `concordance`."""
        ranks = self._ranks(scores)
        below, tied = _weight_below(ranks, self._event, np.zeros_like(self._start), self._start)
        won = self._upper_wins(ranks) + self._lower - below - tied / 2
        return won[self._place], (self._upper + self._lower)[self._place]

    def _upper_wins(self, ranks: Positions) -> Scores:
        below, tied = _weight_below(ranks, np.ones(ranks.size), self._stop, np.full_like(self._stop, ranks.size))
        return self._event * (below + tied / 2)

    def _ranks(self, scores: ArrayLike) -> Positions:
        """Return the rank of each score among the distinct scores, from 0, in the order of the times."""
        refuse_other_order(*self.made_from, scores)
        s = check_scores(scores, self._order.size)
        if not self.total > 0:
            raise OneClassError("Expected two bags that their labels order, got none; evaluate on bags that differ.")
        return np.unique(s[self._order], return_inverse=True)[1].reshape(-1)


def _sums(values: NDArray[Any]) -> Scores:
    """Return the sums of the first 0, 1, ..., N values."""
    return np.append(0.0, np.cumsum(values, dtype=np.float64))


def _weight_below(ranks: Positions, weights: Scores, start: Positions, stop: Positions) -> tuple[Scores, Scores]:
    """Return, for each entry, the weight of entries in ``[start, stop)`` with a lower rank, and with an equal rank.

    It is a wavelet matrix: from the highest bit on, a stable partition splits entries by this bit of their rank, and
    each range follows the entries that agree with its entry so far. Claude, Navarro and Ordonez (2015), Information
    Systems 47:15.
    """
    entry_ranks, below = ranks, np.zeros(ranks.size)
    for bit in reversed(range(int(ranks.max()).bit_length())):
        one = (ranks >> bit & 1).astype(bool)
        zeros, weight = _sums(~one).astype(np.intp), _sums(np.where(one, 0.0, weights))
        large = (entry_ranks >> bit & 1).astype(bool)
        below += np.where(large, weight[stop] - weight[start], 0.0)
        start, stop = (np.where(large, zeros[-1] + at - zeros[at], zeros[at]) for at in (start, stop))
        order = np.argsort(one, kind="stable")
        ranks, weights = ranks[order], weights[order]
    total = _sums(weights)
    return below, total[stop] - total[start]
