"""Several classes, of which a bag has one, and several labels, of which it has any: a score column for each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.outcomes import Decision
from midam.targets.base import Target

_LEAST = 2  # bags of a class in training: of one alone nothing general can be learned, and nothing tested


class Multiclass(Target):
    """Classes, each ranked against the rest."""

    name = "multiclass"
    pairs = "classes"
    objectives = ("minmax-auc", "pairwise", "bce", "cross-entropy")
    metric = "auroc_macro"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.names

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """Probability of each class, and the most probable class."""
        shares = None if decision is None else decision.predict(scores)
        taken = [None] * len(scores) if shares is None else [self.names[code] for code in shares.argmax(axis=1)]
        return _probabilities(self.names, shares, len(scores)) | {"class": taken}

    def leading(self, scores: NDArray[Any], decision: Decision | None) -> NDArray[np.int64]:
        """The most probable class; without probabilities that of the highest score."""
        return _largest(scores, decision)

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The classes."""
        return values[:, 0].astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse a class with fewer than two bags."""
        counts = np.bincount(self.strata(self.values(bags)), minlength=len(self.names))
        rare = [f"{name} ({count})" for name, count in zip(self.names, counts.tolist()) if count < _LEAST]
        if rare:
            raise BagDataError(
                f"Expected at least {_LEAST} training bags of each class, got fewer of {', '.join(rare)} (in "
                f"{bags.source}); add bags, join classes, or leave such bags out."
            )

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether there are bags of two classes."""
        return len(np.unique(values)) > 1


class Multilabel(Target):
    """Labels, each of which ranks the bags that have it above those that have not."""

    name = "multilabel"
    pairs = "labels"
    objectives = ("minmax-auc", "pairwise", "bce")
    metric = "auroc_macro"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.names

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """Probability of each label."""
        return _probabilities(self.names, None if decision is None else decision.predict(scores), len(scores))

    def leading(self, scores: NDArray[Any], decision: Decision | None) -> NDArray[np.int64]:
        """The most probable label; without probabilities that of the highest score."""
        return _largest(scores, decision)

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The rarest label that a bag has, from 1; 0 of bags without."""
        has = values == 1
        order = np.argsort(has.sum(axis=0), kind="stable")
        return np.where(has.any(axis=1), order[has[:, order].argmax(axis=1)] + 1, 0).astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse a label without two bags that have it and two that have not."""
        values = self.values(bags)
        counts = [((values == 1).sum(axis=0)), ((values == 0).sum(axis=0))]
        rare = [
            f"{name} ({with_it} with, {without} without)"
            for name, with_it, without in zip(self.names, *counts)
            if min(with_it, without) < _LEAST
        ]
        if rare:
            raise BagDataError(
                f"Expected at least {_LEAST} training bags with each label and as many without, got fewer of "
                f"{', '.join(rare)} (in {bags.source}); add bags, or leave the column out of `label_column`."
            )

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether some label is there and not there."""
        return bool(((values == 1).any(axis=0) & (values == 0).any(axis=0)).any())


def _largest(scores: NDArray[Any], decision: Decision | None) -> NDArray[np.int64]:
    """Column of the largest probability, or of the highest score; one without a probability is never taken."""
    shares = scores if decision is None else np.nan_to_num(decision.predict(scores), nan=-1.0)
    return np.asarray(shares.argmax(axis=1), dtype=np.int64)


def _probabilities(names: tuple[str, ...], shares: NDArray[np.float64] | None, count: int) -> dict[str, list[Any]]:
    """Columns of probabilities; None where there is none."""
    found = np.full((count, len(names)), np.nan) if shares is None else shares
    return {
        f"probability_{name}": [None if np.isnan(share) else float(share) for share in column]
        for name, column in zip(names, found.T, strict=True)
    }
