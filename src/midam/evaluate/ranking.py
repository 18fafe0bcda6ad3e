"""Ranks of bag scores: the AUROC, its placement values and its bootstrap, which metrics and intervals share.

The AUROC is the probability that a positive bag scores higher than a negative one, ties counting one half. Both it and
the DeLong variance follow from midranks in O(N log N).
"""

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import name_array
from midam.errors import BagDataError, OneClassError

Labels = NDArray[np.int64]
Scores = NDArray[np.float64]

# Bounds the memory of the bootstrap: resamples times bags at once.
_CHUNK_ENTRIES = 2_000_000


def check_bags(labels: ArrayLike, scores: ArrayLike) -> tuple[Labels, Scores]:
    """Labels [N] as int64 and scores [N] as float64.

    A `BagDataError` for no bag, shapes that differ, a label other than 0 and 1, or a score that is not finite.
    """
    try:
        y, s = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        got = f"{type(labels).__name__} and {type(scores).__name__}"
        raise BagDataError(f"Expected labels and scores as numbers, got {got}; pass two arrays of length N.") from None
    if y.ndim != 1 or y.shape != s.shape or y.size == 0:
        raise BagDataError(
            f"Expected one label and one score a bag, got shapes {y.shape} and {s.shape}; pass two arrays of length N."
        )
    for bag in np.flatnonzero(~np.isin(y, (0, 1))):
        raise BagDataError(f"Expected labels 0 and 1, got {y[bag]} (bag {bag}); recode the labels.")
    for bag in np.flatnonzero(~np.isfinite(s)):
        raise BagDataError(f"Expected finite scores, got {s[bag]} (bag {bag}); check the model's output.")
    return y.astype(np.int64), s


def check_two_classes(labels: Labels) -> tuple[int, int]:
    """Numbers of positive and negative bags; an `OneClassError` where one of them is 0."""
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    if positives == 0 or negatives == 0:
        found = f"{positives} positive and {negatives} negative"
        raise OneClassError(f"Expected bags of both classes, got {found}; evaluate on bags of both classes.")
    return positives, negatives


def group_numbers(groups: ArrayLike | None, bags: int) -> NDArray[np.intp] | None:
    """Groups of the bags as numbers 0, 1, ... in sorted order; None where no groups are known.

    A `BagDataError` if there is not one group a bag, or a bag has none.
    """
    if groups is None:
        return None
    names = np.asarray(groups, dtype=object)
    if names.shape != (bags,):
        raise BagDataError(f"Expected one group a bag, got {names.shape} for {bags} bags; pass an array of length N.")
    for bag, name in enumerate(names):
        if name is None or (isinstance(name, float) and np.isnan(name)):
            raise BagDataError(f"Expected a group for each bag, got none (bag {bag}); name its group.")
    return np.unique(name_array(names), return_inverse=True)[1].reshape(-1)


def auroc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve from midranks, ``P(h+ > h-) + P(h+ = h-) / 2``, in [0, 1] (Mann and Whitney 1947).

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        Bag labels, 0 or 1, and finite bag scores, larger means more positive.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used; an `OneClassError` for bags of one class.

    Examples
    --------
    >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
    0.875
    """
    y, s = check_bags(labels, scores)
    positives, negatives = check_two_classes(y)
    wins = float(scipy.stats.rankdata(s)[y == 1].sum()) - positives * (positives + 1) / 2
    return wins / (positives * negatives)


def placements(labels: Labels, scores: Scores) -> tuple[Scores, Scores]:
    """Share of the other class that each bag is ranked rightly against: of positive bags [P], of negative ones [N - P].

    The mean of each is the AUROC. Sun and Xu (2014), IEEE Signal Processing Letters 21:1389.
    """
    pos, neg = scores[labels == 1], scores[labels == 0]
    ranks = scipy.stats.rankdata(scores)
    of_pos = (ranks[labels == 1] - scipy.stats.rankdata(pos)) / neg.size
    of_neg = 1.0 - (ranks[labels == 0] - scipy.stats.rankdata(neg)) / pos.size
    return of_pos, of_neg


def resampled_aurocs(
    labels: Labels, scores: Scores, units: NDArray[np.intp], *, seed: int, resamples: int
) -> NDArray[np.float64]:
    """AUROC of `resamples` draws of whole groups (`units`), drawn again where a class is lost.

    A resample is a count a group, so the scores are sorted once and each AUROC is a weighted sum over runs of ties.
    Field and Welsh (2007), Journal of the Royal Statistical Society B 69:369.
    """
    order = np.argsort(scores, kind="stable")
    ties = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    positive, sorted_units = labels[order] == 1, units[order]
    count = int(units.max()) + 1
    rows = max(1, min(resamples, _CHUNK_ENTRIES // labels.size))
    generator = np.random.default_rng(seed)
    areas: list[NDArray[np.float64]] = []
    while sum(map(len, areas)) < resamples:
        weights = generator.multinomial(count, np.full(count, 1 / count), size=rows)[:, sorted_units].astype(float)
        pos = np.add.reduceat(weights * positive, ties, axis=1)
        neg = np.add.reduceat(weights * ~positive, ties, axis=1)
        pairs = pos.sum(axis=1) * neg.sum(axis=1)
        wins = (pos * (np.cumsum(neg, axis=1) - neg / 2)).sum(axis=1)
        kept = pairs > 0
        areas.append(wins[kept] / pairs[kept])
    return np.concatenate(areas)[:resamples]
