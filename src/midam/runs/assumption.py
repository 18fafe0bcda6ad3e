"""Check whether a run keeps the assumption of multi-instance learning: on its held-out bags, or on other bags."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError, plural
from midam.evaluate.assumption import FEWEST, check_assumption, checked_bags, verdicts
from midam.evaluate.calibrate import BinaryDecision
from midam.evaluate.decisions import Decision
from midam.evaluate.predict import predict, prepared
from midam.nn.scorer import BagEnsemble
from midam.runs.loaded import LoadedRun

MOST = 100  # bags of each class
OF_FIT = 30  # the same, at the end of a training


def check_run(run: LoadedRun, bags: Bags, *, most: int = MOST) -> dict[str, Any]:
    """Return how a run's scores of positive bags change when instances are added, removed, or counted twice.

    Parameters
    ----------
    run, bags : LoadedRun, Bags
        A run of two classes. Without labels, the bags that the run calls positive count as positive.
    most : int
        Most bags of each class that are tested, drawn at random.

    Returns
    -------
    dict
        The result of `midam.evaluate.assumption.check_assumption`, with "passed", the verdict on each test, "positives"
        ("labeled" or "called"), and "part": "new", or "train" if the run knows more than half of the tested bags.

    Raises
    ------
    ConfigError
        If the run has other labels than two classes, or neither the bags have labels nor the run a threshold.
    BagDataError
        If one kind of bags is missing, or all are too large.
    """
    if run.target.name != "binary":
        raise ConfigError(
            f"Expected a run of two classes, got the target {run.target.name!r} (in {run.source}): only of two classes "
            "one is positive because of what its bags hold; train a run on one class against the others."
        )
    bags = prepared(run.model, run.recoded(bags))
    run.warn_of_lost_groups(bags)
    if bags.labels is None and run.threshold is None:
        advice = "name their column with `label_column`, or a table of them with `labels`."
        raise ConfigError(f"Expected labeled bags for a run without a threshold, got none (in {bags.source}); {advice}")
    positive = np.asarray(bags.labels) == 1
    if bags.labels is None:
        positive = predict(run.model, bags, chunk_size=run.settings.run.chunk_size) >= np.float64(run.threshold or 0.0)
    index = checked_bags(run.model, bags, positive, most=most)
    counts = [int((positive[index] == label).sum()) for label in (True, False)]
    if not all(counts):
        raise BagDataError(
            f"Expected positive and negative bags, got {plural(int(positive.sum()), 'positive bag')} of "
            f"{len(positive)}, {counts[0]} of them and {counts[1]} negative ones small enough (in {bags.source}); give "
            "bags of both kinds, with at most some million numbers each."
        )
    result = _check(run.model, run.decision, bags.subset(index), positive[index], run.settings.run.chunk_size)
    known = np.mean([split in ("train", "val") for split in run.known_splits(bags.subset(index))])
    positives = "called" if bags.labels is None else "labeled"
    return {"part": "train" if known > 0.5 else "new", "positives": positives} | result


def check_fit(
    model: BagEnsemble, bags: Bags, index: NDArray[np.intp], decision: Decision | None, *, chunk_size: int
) -> dict[str, Any] | None:
    """Return the result of `check_run` for the bags at these positions; None for few of a class, or other labels."""
    if bags.labels is None:
        return None
    held = bags.subset(index)
    positive = np.asarray(held.labels) == 1
    chosen = checked_bags(model, held, positive, most=OF_FIT)
    if min((positive[chosen] == label).sum() for label in (True, False)) < FEWEST:
        return None
    return {"positives": "labeled"} | _check(model, decision, held.subset(chosen), positive[chosen], chunk_size)


def _check(
    model: BagEnsemble, decision: Decision | None, bags: Bags, positive: NDArray[np.bool_], chunk_size: int
) -> dict[str, Any]:
    known = decision if isinstance(decision, BinaryDecision) else None
    facts: dict[str, Any] = {"threshold": None if known is None else known.threshold, "chunk_size": chunk_size}
    ranks = known is not None and known.calibrator.ranks
    facts |= {"probability": known.predict if known is not None and ranks else None}
    result = check_assumption(model, bags, positive, **facts)
    return {**result, "passed": verdicts(result)}
