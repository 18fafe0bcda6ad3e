"""Intervals for trials on images: groups of test bags are resampled, the same for both methods of a pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midam.compare.summary import corrected_interval
from studies.split_statistics import Estimate

RESAMPLES = 4000
_ROWS = 500


@dataclass(frozen=True, eq=False)
class BagScores:
    """The test bags of a trial and their scores."""

    test: NDArray[np.int64]  # Positions in the set [n]
    scores: NDArray[np.float64]  # Of one method [n]


@dataclass(frozen=True)
class Paired:
    """A mean difference of two methods over trials, or the mean of one."""

    # With the 95% interval of the bootstrap by group of the test bags: its dependence on these patients or tiles
    grouped: Estimate
    # 95% bounds of Nadeau and Bengio's corrected t over trials: its dependence on training bags and seeds too; NaN if
    # trials share their test bags, or for one trial
    corrected: tuple[float, float]
    # Trials, and groups of test bags
    trials: int
    groups: int


def weighted_aurocs(
    labels: NDArray[np.int64], scores: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the AUROC for each row of bag weights [R, n]; NaN if a class has no weight.

    Examples
    --------
    >>> weights = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> weighted_aurocs(np.array([0, 0, 1]), np.array([0.1, 0.9, 0.5]), weights)
    array([0.5, 1. , nan])
    """
    order = np.argsort(scores, kind="stable")
    ties = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    positive, own = labels[order] == 1, weights[:, order]
    pos = np.add.reduceat(own * positive, ties, axis=1)
    neg = np.add.reduceat(own * ~positive, ties, axis=1)
    pairs = pos.sum(axis=1) * neg.sum(axis=1)
    wins = (pos * (np.cumsum(neg, axis=1) - neg / 2)).sum(axis=1)
    return np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), np.nan)


def compare_trials(
    labels: NDArray[np.int64],
    units: NDArray[np.intp],
    first: Sequence[BagScores],
    second: Sequence[BagScores] | None = None,
    *,
    ratio: float | None = None,
) -> Paired:
    """Return the mean over trials of the AUROC of `first`, or of its difference to `second`, with its intervals.

    A resample draws the same number of groups with replacement, and weights the test bags of all trials by them; a
    trial without bags of a class in a resample is left out of it. `units` is the group of each bag, 0 to G - 1; `ratio`
    is the ratio of test to training bags, if the trials test different bags.
    """
    trials = [(a.test, a.scores, None if second is None else b.scores) for a, b in zip(first, second or first)]
    ones = [np.ones((1, len(test))) for test, _, _ in trials]
    values = [float(_difference(labels, *trial, one)[0]) for trial, one in zip(trials, ones)]
    tested = np.unique(units[np.concatenate([test for test, _, _ in trials])])
    number = np.full(int(units.max()) + 1, -1)
    number[tested] = np.arange(len(tested))
    rng = np.random.default_rng(0)
    found = []
    for _ in range(0, RESAMPLES, _ROWS):
        counts = rng.multinomial(len(tested), np.full(len(tested), 1 / len(tested)), size=_ROWS).astype(float)
        areas = np.array([_difference(labels, *trial, counts[:, number[units[trial[0]]]]) for trial in trials])
        held = np.isfinite(areas)
        count = held.sum(axis=0)
        found.append(np.where(held, areas, 0.0).sum(axis=0)[count > 0] / count[count > 0])
    bounds = np.quantile(np.concatenate(found), [0.025, 0.975])
    t = corrected_interval(values, ratio=ratio) if ratio is not None else None
    corrected = (np.nan, np.nan) if t is None else (t.low, t.high)
    return Paired(Estimate(float(np.mean(values)), *map(float, bounds)), corrected, len(trials), len(tested))


def _difference(
    labels: NDArray[np.int64],
    test: NDArray[np.int64],
    first: NDArray[np.float64],
    second: NDArray[np.float64] | None,
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    area = weighted_aurocs(labels[test], first, weights)
    return area if second is None else area - weighted_aurocs(labels[test], second, weights)
