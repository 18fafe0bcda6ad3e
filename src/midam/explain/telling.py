"""The features of an instance whose values raised the score of its bag, next to ordinary values.

A feature counts by occlusion: the score of the bag minus its score when this value of this instance becomes the typical
one. The features of a category are replaced together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import instance_tensor
from midam.evaluate.pooled import MOST_NUMBERS
from midam.nn.scorer import BagEnsemble
from midam.runs.data import percentiles

MOST = 3  # features of an instance
_TELLING = 0.1  # of what the first feature adds; less is not shown
Losses = Callable[[Tensor, NDArray[np.int64]], NDArray[np.float64]]


class TellingFeature(NamedTuple):
    """A feature of an instance whose value raised the score of the bag.

    Attributes
    ----------
    name : str
        Name of the feature, or its number; of a category, the column.
    value, typical : float or str
        Its value, and the median over the ordinary instances; or a category, and the most frequent one. The ordinary
        instances are those of negative training bags; with other labels than two classes, all training instances.
    quantiles : tuple of float or None
        Quantiles over the ordinary instances, at `midam.runs.data.LEVELS`; None for a category.
    percentile : float or None
        Percentage of the ordinary instances with a lower value, within 1 and 99; None for a category.
    share : float or None
        Share of the ordinary instances in this category; None for a number.
    adds : float
        The score minus the score of the bag with the typical value instead, above 0. The instances listed before are
        left out of the bag.

    Examples
    --------
    >>> heat = TellingFeature("heat", 9.5, 2.0, (0.0, 0.5, 1.5, 2.0, 2.5, 3.5, 4.0), 99.0, None, adds=0.4)
    >>> heat.value > heat.quantiles[-1]
    True
    """

    name: str
    value: float | str
    typical: float | str
    quantiles: tuple[float, ...] | None
    percentile: float | None
    share: float | None
    adds: float


@dataclass(frozen=True)
class Features:
    """What a run knows about the features of ordinary instances."""

    names: Sequence[str]  # of the features [D]
    columns: NDArray[np.str_]  # column of each feature
    typical: NDArray[np.float64]  # [D]
    means: NDArray[np.float64]  # [D]
    quantiles: NDArray[np.float64]  # [7, D]

    @classmethod
    def of(cls, data: Mapping[str, Any], model: BagEnsemble, bags: Bags) -> "Features | None":
        """Return the facts of a run's `data` about vectors; None for pictures, many features, or a network's."""
        typical, ordinary = data.get("typical"), data.get("ordinary")
        if typical is None or ordinary is None or "network" in (data.get("cut") or {}):
            return None
        names = bags.feature_names or [f"feature {j}" for j in range(len(typical))]
        known = model.inputs.columns if model.inputs is not None else None
        categories = known.of_categories if known is not None else {}  # a category has several features
        columns = np.array([categories.get(name, name) for name in names])
        return cls(names, columns, np.array(typical), np.array(ordinary["means"]), np.array(ordinary["quantiles"]))

    def telling(self, rows: NDArray[Any], losses: Losses, *, most: int = MOST) -> list[tuple[TellingFeature, ...]]:
        """Return at most `most` telling features of each of the instances `rows` [T, D].

        `losses(x, at)` returns what the score of a bag loses when its instance `at` [R], a position in `rows`, becomes
        x [R, D].
        """
        typical, width = self.typical.astype(rows.dtype), rows.shape[1]
        results: list[tuple[TellingFeature, ...]] = []
        step = max(1, MOST_NUMBERS // width**2)
        for low in range(0, len(rows), step):
            part = rows[low : low + step]
            at, feature = np.nonzero(part != typical)
            features: list[list[tuple[float, int]]] = [[] for _ in part]
            if len(at):
                first = (self.columns == self.columns[feature, None]).argmax(axis=1)
                at, first = np.unique([at, first], axis=1)
                changed = np.where(self.columns == self.columns[first, None], typical, part[at])
                lost = losses(instance_tensor(changed), low + at)
                for i, j, loss in zip(at.tolist(), first.tolist(), lost.tolist()):
                    features[i].append((loss, j))
            results += [self._described(row, lost_by, most) for row, lost_by in zip(part, features)]
        return results

    def _described(self, row: NDArray[Any], lost: Sequence[tuple[float, int]], most: int) -> tuple[TellingFeature, ...]:
        """Return the features of an instance that add most, from the losses and the first feature of each column."""
        best = sorted(lost, key=lambda pair: -pair[0])[:most]
        least = _TELLING * best[0][0] if best else 0.0
        return tuple(self._feature(row, j, loss) for loss, j in best if loss > max(least, 0.0))

    def _feature(self, row: NDArray[Any], first: int, loss: float) -> TellingFeature:
        name = str(self.columns[first])
        inside = np.flatnonzero(self.columns == name)
        value, typical = (_value(inside, name, self.names, x) for x in (row, self.typical))
        if isinstance(value, str):
            share = float(self.means[inside] @ (row[inside] != 0))
            return TellingFeature(name, value, typical, None, None, share, loss)
        quantiles = self.quantiles[:, first]
        (percentile,) = percentiles(np.array([value]), quantiles).tolist()
        return TellingFeature(name, value, typical, tuple(quantiles.tolist()), percentile, None, loss)


def _value(places: NDArray[np.int64], column: str, names: Sequence[str], x: NDArray[Any]) -> float | str:
    """Return the number of an instance in a column with features at these places, or the words of its category."""
    if names[places[0]] == column:
        return float(x[places[0]])
    return next((names[j][len(column) + 1 :] for j in places if x[j]), "none")
