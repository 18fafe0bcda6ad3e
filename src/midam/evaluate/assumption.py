"""Whether a model keeps the assumption of multi-instance learning: a bag is positive because of what it holds.

Three tests of a trained model, after the unit tests of methods by Raff and Holt (2023, Reproducibility in Multiple
Instance Learning: A Case For Algorithmic Unit Tests, NeurIPS). What is added to a positive bag, if it comes from
negative bags, should not lower its score; what is removed should, if it is what decided; and a bag of which each
instance counts twice should have the same score.

All changed bags are merges of statistics: each instance is encoded once, see `midam.evaluate.pooled`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.pooled import MOST_NUMBERS, PooledBags, numbers_of
from midam.evaluate.proportions import proportion
from midam.evaluate.ranking import units_of
from midam.nn.scorer import BagEnsemble, BagScorer, scorers_of

Scores = NDArray[np.float64]
ADDED, DOUBLED = "one negative bag", "each instance twice"
LARGER = 10  # a positive bag grows to this many times its size
SHARES = (0.1, 0.5)  # of the instances that are removed
FEWEST = 5  # bags of each class
_NUMBERS = 2**26  # of the instances that are encoded
_RESAMPLES = 1000


def checked_bags(
    model: BagScorer | BagEnsemble, bags: Bags, positive: NDArray[np.bool_], *, most: int
) -> NDArray[np.int64]:
    """Return the positions of at most `most` bags of each class that are tested, ascending, drawn at random.

    Bags are left out that would need too much time or memory: those tested hold at most 2^26 numbers, and the poolings
    keep at most 2^22 of them.
    """
    width = max(int(np.prod(bags.instance_shape)) * MOST_NUMBERS // _NUMBERS, numbers_of(model))
    rng, chosen = np.random.default_rng(0), list[int]()
    for label in (True, False):
        held, count = 0, 0
        for i in rng.permutation(np.flatnonzero(positive == label)).tolist():
            size = int(bags.sizes[i]) * width
            if count < most and held + size <= MOST_NUMBERS // 2:
                chosen, held, count = [*chosen, i], held + size, count + 1
    return np.sort(np.array(chosen, dtype=np.int64))


def check_assumption(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    positive: NDArray[np.bool_],
    *,
    probability: Callable[[Scores], Scores] | None = None,
    threshold: float | None = None,
    chunk_size: int | None = None,
) -> dict[str, Any]:
    """Return how the scores of positive bags change when instances are added, removed, or counted twice.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        A model of one score column.
    bags : Bags
        The tested bags, all encoded at once, see `checked_bags`.
    positive : array of bool [N]
        Which bags are positive; both kinds are needed.
    probability : callable, optional
        Turns scores into probabilities, whose changes are then reported.
    threshold : float, optional
        Score from which on a bag is called positive.
    chunk_size : int, optional
        As for `midam.evaluate.predict.predict`.

    Returns
    -------
    dict
        "positive", "negative" (numbers of bags), "measure" ("probability" or "score"), "counts" (whether a pooling
        counts instances by its definition), "before" and "negatives" (the "median" of the measure over positive and
        negative bags, and "called": the share from the threshold on, with Wilson's interval), and "changes": for each
        change its "test" ("adding", "removing" or "doubling"), "name", "median" and "called" afterwards, and "change"
        (the median of the differences, with its 95% interval from bootstrap resamples of whole groups). An unknown
        number is None.

    Examples
    --------
    >>> import torch
    >>> from midam.nn.pooling import MaxPooling
    >>> model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    >>> _ = torch.nn.init.ones_(model.pooling.scorer.weight), torch.nn.init.zeros_(model.pooling.scorer.bias)
    >>> bags = Bags.from_list([np.array([[-3.0], [2.0 * (k % 2)], [-4.0]], np.float32) for k in range(10)])
    >>> result = check_assumption(model, bags, np.arange(10) % 2 == 1, threshold=0.7)
    >>> [(row["name"], row["called"]["value"]) for row in result["changes"]][:3]
    [('one negative bag', 1.0), ('10 times as large', 1.0), ('top 10%', 0.0)]
    """
    pooled = PooledBags(model, bags, chunk_size=chunk_size)
    tested, others, rng = np.flatnonzero(positive), np.flatnonzero(~positive), np.random.default_rng(0)
    measure = probability or (lambda scores: scores)
    scores = pooled.scores()
    before, groups = scores[tested], None if bags.groups is None else bags.groups[tested]

    def level(values: Scores, units: Any) -> dict[str, Any]:
        share = None if threshold is None else proportion(values >= threshold, groups=units)
        called = None if share is None else {"value": share.value, "low": share.low, "high": share.high}
        return {"median": float(np.median(measure(values))), "called": called}

    def row(test: str, name: str, after: Scores) -> dict[str, Any]:
        change = _median(measure(after) - measure(before), groups)
        return {"test": test, "name": name, **level(after, groups), "change": change}

    alone = [[i] for i in tested.tolist()]
    one = [[i, int(rng.choice(others))] for (i,) in alone]
    many = (_grown(bags.sizes, pair, others, rng, most=MOST_NUMBERS // numbers_of(model)) for pair in one)
    larger = np.concatenate([pooled.compose([parts]).scores() for parts in many])
    changes = [("adding", ADDED, pooled.compose(one).scores()), ("adding", f"{LARGER} times as large", larger)]
    changes += [("removing", name, after) for name, after in _removals(pooled.compose(alone), rng)]
    changes.append(("doubling", DOUBLED, pooled.compose([[i, i] for (i,) in alone]).scores()))
    return {
        "positive": len(tested),
        "negative": len(others),
        "measure": "score" if probability is None else "probability",
        "counts": any(scorer.pooling.counts for scorer in scorers_of(model)),
        "before": level(before, groups),
        "negatives": level(scores[others], None if bags.groups is None else bags.groups[others]),
        "changes": [row(*change) for change in changes],
    }


def verdicts(result: Mapping[str, Any]) -> dict[str, bool]:
    """Return which tests a model passes, from the result of `check_assumption`.

    - adding: with the instances of one negative bag more, the median falls by at most 0.05.
    - removing: without the tenth of the instances that add most, at least half of the distance to negative bags is
      gone, and twice as much as without as many random ones.
    - doubling: the median changes by at most 0.01; not judged if the pooling counts instances by its definition.
    """
    rows = {row["name"]: row for row in result["changes"]}
    gap = result["before"]["median"] - result["negatives"]["median"]
    falls = [-rows[name]["change"]["value"] for name in ("top 10%", "random 10%")]
    passed = {
        "adding": rows[ADDED]["change"]["value"] >= -0.05,
        "removing": bool(gap > 0 and falls[0] >= 0.5 * gap and falls[0] >= 2 * falls[1]),
        "doubling": abs(rows[DOUBLED]["change"]["value"]) <= 0.01,
    }
    return {test: outcome for test, outcome in passed.items() if test != "doubling" or not result["counts"]}


def _grown(
    sizes: NDArray[np.int64], parts: Sequence[int], others: NDArray[np.int64], rng: np.random.Generator, *, most: int
) -> list[int]:
    """Return a bag with negative bags that make it ten times as large, or as large as `most` instances allow."""
    grown, held = list(parts), int(sizes[list(parts)].sum())
    while held < min(LARGER * sizes[parts[0]], most):
        grown.append(int(rng.choice(others)))
        held += int(sizes[grown[-1]])
    return grown


def _removals(pooled: PooledBags, rng: np.random.Generator) -> list[tuple[str, Scores]]:
    """Return the scores without the instances that add most, and without as many at random; one is always left."""
    segment, sizes = pooled.segment.numpy(), pooled.sizes.numpy()
    rows = list[tuple[str, Scores]]()
    removed = np.zeros(len(segment), dtype=bool)
    for share in SHARES:
        count = np.clip(np.ceil(share * sizes).astype(np.int64), 1, np.maximum(sizes - 1, 0))
        left = pooled.keep(~removed)
        places, bag = np.flatnonzero(~removed), segment[~removed]
        # Under a maximum no other instance adds anything: ties go to the one with the higher score alone.
        order = np.lexsort((-left.alone(), -left.contributions(), bag))
        missing = (count - np.bincount(segment[removed], minlength=len(sizes)))[bag[order]]
        removed[places[order[_rank(bag[order]) < missing]]] = True
        shuffled, drawn = np.lexsort((rng.random(len(segment)), segment)), np.empty(len(segment), dtype=np.int64)
        drawn[shuffled] = _rank(segment[shuffled])
        rows.append((f"top {share:.0%}", pooled.keep(~removed).scores()))
        rows.append((f"random {share:.0%}", pooled.keep(drawn >= count[segment]).scores()))
    return rows


def _rank(bag: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each instance among those of its bag, for ascending bags [m]."""
    return np.arange(len(bag)) - np.searchsorted(bag, bag)


def _median(changes: Scores, groups: Sequence[str] | NDArray[np.str_] | None) -> dict[str, float | None]:
    """Return the median, with the 95% interval of bootstrap resamples of whole groups, or of bags without groups."""
    units, _ = units_of(groups, len(changes))
    count, value, rng = int(units.max()) + 1, float(np.median(changes)), np.random.default_rng(0)
    if count < 2:
        return {"value": value, "low": None, "high": None}
    order = np.argsort(changes)
    draws = (np.bincount(rng.integers(count, size=count), minlength=count)[units[order]] for _ in range(_RESAMPLES))
    resamples = (np.repeat(changes[order], copies) for copies in draws)
    medians = [(x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2 for x in resamples]
    low, high = np.percentile(medians, [2.5, 97.5]).tolist()
    return {"value": value, "low": low, "high": high}
