"""The instances of a bag, ranked by their contribution to its score."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import instance_tensor
from midam.data.instance_labels import labels_of
from midam.data.sources.file_rows import instance_columns
from midam.errors import BagDataError
from midam.evaluate.pooled import MOST_NUMBERS, PooledBags, Scores
from midam.evaluate.predict import prepared
from midam.explain.words import instance_text
from midam.nn.scorer import BagEnsemble, BagScorer

Origins = Mapping[str, Mapping[str, Sequence[Any]]]
Parts = Callable[[int, NDArray[np.float64]], NDArray[Any] | None]  # see `midam.explain.raw.RawFiles.parts`
FEATURES_SHOWN, _TELLING = 5, 0.1  # for each instance; part of what the first adds below which none is shown
LABEL = "instance_label"
# Top instances whose parts are explained; parts of a picture along each side, and windows around their peak.
LARGE, PARTS, _NEAR = 4, 8, 5
_LEAST_SHARE = 0.05  # of the largest contribution: the parts of others are not explained


class TellingFeature(NamedTuple):
    """A feature of an instance whose value raised the score of the bag.

    Attributes
    ----------
    name : str
        Name of the feature, or its number; of a category, the column.
    value, typical : float or str
        Its value, and the median over the ordinary instances; or a category, and the most frequent one. The ordinary
        instances are those of negative training bags; with other labels than two classes, all training instances.
    low, high : float or None
        Quartiles over the ordinary instances; None for a category.
    share : float or None
        Share of the ordinary instances in this category; None for a number.
    adds : float
        The score minus the score of the bag with the typical value instead, above 0. The instances listed before are
        left out of the bag.

    Examples
    --------
    >>> TellingFeature("heat", 9.5, 2.0, low=1.5, high=2.5, share=None, adds=0.4).name
    'heat'
    """

    name: str
    value: float | str
    typical: float | str
    low: float | None
    high: float | None
    share: float | None
    adds: float


@dataclass(frozen=True)
class Features:
    """What a run knows about the features of ordinary instances."""

    names: Sequence[str]  # of the features [D]
    columns: NDArray[np.str_]  # column of each feature
    typical: NDArray[np.float64]  # [D]
    means: NDArray[np.float64]  # [D]
    middle: NDArray[np.float64]  # [2, D], quartiles

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
        return cls(names, columns, np.array(typical), np.array(ordinary["means"]), np.array(ordinary["middle"]))

    def telling(
        self, rest: PooledBags, bags: Bags, pick: NDArray[np.int64], before: Scores, *, most: int
    ) -> dict[int, tuple[TellingFeature, ...]]:
        """Return at most `most` telling features of the instance of each bag that `rest`, these bags, lacks, by bag.

        `pick` [K] are the positions of these instances among those of all `bags`, -1 for none; `before` [K] are the
        scores of the bags with them.
        """
        bag, typical = np.flatnonzero(pick >= 0), self.typical.astype(bags.instances.dtype)
        rows = bags.gather(bags.rows()[pick[bag]])
        of_column = self.columns == np.array([*dict.fromkeys(self.columns)])[:, None]  # [C, D]
        telling = dict[int, tuple[TellingFeature, ...]]()
        step = max(1, MOST_NUMBERS // len(typical) ** 2)
        for low in range(0, len(rows), step):
            part, place = rows[low : low + step], bag[low : low + step]
            at, column = np.nonzero((part != typical) @ of_column.T)
            changed, lost = np.where(of_column[column], typical, part[at]), np.zeros((len(part), len(of_column)))
            if len(at):
                lost[at, column] = before[place[at]] - rest.with_instance(place[at], instance_tensor(changed))
            for i, row, lost_by in zip(place.tolist(), part, lost):
                best = np.argsort(-lost_by, kind="stable")[:most]
                shown = best[lost_by[best] > max(_TELLING * lost_by[best[0]], 0)]
                telling[i] = tuple(self._feature(row, np.flatnonzero(of_column[j]), lost_by[j]) for j in shown)
        return telling

    def _feature(self, row: NDArray[Any], inside: NDArray[np.int64], loss: float) -> TellingFeature:
        """Return the feature of an instance in a column, whose features are `inside`."""
        j, name = inside[0], str(self.columns[inside[0]])
        if self.names[j] == name:
            low, high = self.middle[:, j].tolist()
            return TellingFeature(name, float(row[j]), float(self.typical[j]), low, high, None, float(loss))
        value, typical = (
            next((self.names[j][len(name) + 1 :] for j in inside if x[j]), "none") for x in (row, self.typical)
        )
        share = float(self.means[inside] @ (row[inside] != 0))
        return TellingFeature(name, value, typical, None, None, share, float(loss))


class PartMap(NamedTuple):
    """What the parts of a picture add, [h, w], and its peak: x and y of what adds most, in sides of the picture."""

    added: NDArray[np.float64]
    peak: tuple[float, float]


@dataclass(frozen=True)
class Explanation:
    """Contributions of the instances of a bag to its score.

    Attributes
    ----------
    bag, index : str, int
        Id of the bag, and its position in the bags.
    score : float
        Score of the bag in [0, 1].
    contribution : float32 array [n]
        Contribution of each instance: the score minus the score of the bag without it, in [-1, 1]. For a single
        instance, the score.
    alone, weight : float32 array [n]
        Score of a bag with this instance alone, and weight of the instance in the pooling, which sums to 1; means over
        the members of an ensemble.
    weighted : bool
        Whether every scorer weights its instances; mean, noisy-or, noisy-and and summaries of a bag do not.
    coords : array [n, C] or None
        Coordinates of the instances.
    order : int64 array [n]
        Positions of the instances in descending order of contribution; equal ones by `alone`, then by position.
    columns : mapping
        Facts about each instance from its file, see `midam.data.sources.file_rows.instance_columns`: the file's name,
        and for slices the number, UID and position; for a table see `midam.data.sources.inputs.rows_of`. Known
        labels of instances are in "instance_label": 0, 1, or None if unknown.
    features : mapping
        For some of the top instances, by position: up to five features whose values add most to the score of the bag.
    parts : mapping
        For some of the top instances that are pictures, by position: what each part adds to the score of the bag, the
        score minus that of the bag in whose picture windows over the part are covered, and the peak, see `PartMap`.

    Examples
    --------
    The third instance raises the score of the bag from 0.5 to 0.95:

    >>> from midam.nn.pooling import MaxPooling
    >>> model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    >>> _ = torch.nn.init.ones_(model.pooling.scorer.weight), torch.nn.init.zeros_(model.pooling.scorer.bias)
    >>> explanation = explain_bag(model, Bags.from_list([np.array([[-2.0], [0.0], [3.0]], np.float32)]), 0)
    >>> round(explanation.score, 2), int(explanation.order[0]), round(float(explanation.contribution[2]), 2)
    (0.95, 2, 0.45)
    """

    bag: str
    index: int
    score: float
    contribution: NDArray[np.float32]
    alone: NDArray[np.float32]
    weight: NDArray[np.float32]
    weighted: bool
    coords: NDArray[Any] | None
    order: NDArray[np.int64]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    features: Mapping[int, Sequence[TellingFeature]] = field(default_factory=dict)
    parts: Mapping[int, PartMap] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def relative_weight(self) -> NDArray[np.float32]:
        """Weights as multiples of the uniform weight 1/n, [n]; their mean is 1."""
        return self.weight * np.float32(len(self))

    @property
    def several_files(self) -> bool:
        """Whether the instances are known to come from several files."""
        return len(set(self.columns.get("file", ()))) > 1

    @property
    def positions(self) -> NDArray[np.float64]:
        """First coordinate of each instance, [n], such as the number of a slice; without coordinates, its position."""
        coords = np.arange(len(self))[:, None] if self.coords is None else self.coords
        return np.asarray(coords[:, 0], dtype=np.float64)

    def instance(self, i: int) -> dict[str, Any]:
        """Return an instance as in explain.json."""
        return named(i, self.coords, self.columns) | {
            "contribution": float(self.contribution[i]),
            "score": float(self.alone[i]),
            "weight": float(self.weight[i]),
            "relative_weight": float(self.weight[i]) * len(self),
            "features": [feature._asdict() for feature in self.features.get(i, ())],
        }

    def name(self, i: int) -> str:
        """Return number and coordinates of an instance, its file if there are several, and its row or slice."""
        one = named(i, self.coords, self.columns)
        return instance_text(one if self.several_files else one | {"columns": {**one["columns"], "file": None}})


def explain_bag(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    index: int,
    *,
    column: int | None = None,
    chunk_size: int | None = None,
    features: Features | None = None,
    top: int = 8,
    parts: Parts | None = None,
    origins: Origins = MappingProxyType({}),
) -> Explanation:
    """Explain the score of one bag; its instances are encoded once, a chunk at a time.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call.
    bags, index : Bags, int
        Bags, and the position of the bag to explain.
    column : int, optional
        Score column to explain, from 0; required if the model has several.
    chunk_size : int, optional
        Instances encoded at a time, >= 1; default: `midam.settings.usual_chunk`.
    features : Features, optional
        What is known about the features of ordinary instances; if given, the telling features of the `top` instances
        are found.
    top : int
        Number of these top instances.
    parts : callable, optional
        Returns, for the position of an instance that is a picture and for windows, the instance and the same without
        each window, [1 + w, ...], or None; see `midam.explain.raw.RawFiles.parts`. Called for up to `LARGE` instances.
    origins : mapping
        Columns of the instances by bag, see `midam.data.sources.inputs.rows_of`.

    Raises
    ------
    MidamError
        If there is no such bag.

    Examples
    --------
    >>> from midam.nn.pooling import AttentionPooling
    >>> bags = Bags.from_list([np.eye(4, dtype=np.float32)])
    >>> explanation = explain_bag(BagScorer(torch.nn.Identity(), AttentionPooling(4)), bags, 0)
    >>> contribution = explanation.contribution
    >>> len(explanation), bool(contribution[explanation.order[0]] == contribution.max())
    (4, True)
    """
    if not 0 <= index < len(bags):
        raise BagDataError(f"Expected a bag from 0 to {len(bags) - 1}, got {index} (in {bags.source}); name another.")
    bag = prepared(model, bags.subset([index]))
    pooled = PooledBags(model, bag, column=column, chunk_size=chunk_size)
    # Rounded, so that equal instances rank in the order of the bag on every processor.
    weight, alone = (x.astype(np.float32) for x in (pooled.weights_of_instances(), pooled.alone()))
    contribution, telling = pooled.contributions(), dict[int, Sequence[TellingFeature]]()
    order = np.lexsort((-alone, -contribution)).astype(np.int64)
    if features is not None:
        score = pooled.scores()
        for i in order[:top].tolist():
            without, pick = _without(pooled, i), np.array([i])
            telling[i] = features.telling(without, bag, pick, score, most=FEATURES_SHOWN)[0]
    return Explanation(
        bag=str(bags.ids[index]),
        index=index,
        score=float(pooled.predicted()[0]),
        contribution=contribution,
        alone=alone,
        weight=weight,
        weighted=all(member.pooling.weighted for member in pooled.members),
        coords=bags.places(index),
        order=order,
        columns=known_columns(bags, index, origins),
        features=telling,
        parts={} if parts is None else _of_parts(pooled, order[:LARGE], contribution, parts),
    )


def known_columns(bags: Bags, index: int, origins: Origins = MappingProxyType({})) -> dict[str, Sequence[Any]]:
    """Return what is known about the instances of a bag: their files, rows or slices, and labels, in columns [n].

    The labels are in the column "instance_label", if any is known. `origins` are further columns by bag, see
    `midam.data.sources.inputs.rows_of`; columns of other lengths are left out.
    """
    columns: dict[str, Sequence[Any]] = {**instance_columns(bags, index)}
    labels = labels_of(bags.subset([index]))
    if labels is not None:
        columns[LABEL] = [None if np.isnan(label) else int(label) for label in labels]
    columns |= origins.get(str(bags.ids[index]), {})
    return {name: rows for name, rows in columns.items() if len(rows) == bags.sizes[index]}


def named(instance: int, places: NDArray[Any] | None, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return an instance of a bag with its `known_columns` and its place, as in explain.json."""
    return {
        "instance": instance,
        "columns": {name: column[instance] for name, column in columns.items()},
        "place": [] if places is None else [x if math.isfinite(x) else None for x in places[instance].tolist()],
    }


def _without(pooled: PooledBags, instance: int) -> PooledBags:
    """Return the bag without an instance."""
    return pooled.keep(np.arange(len(pooled.segment)) != instance)


def _of_parts(
    pooled: PooledBags, top: NDArray[np.int64], contribution: NDArray[np.float32], parts: Parts
) -> dict[int, PartMap]:
    """Return what the parts of the `top` instances add: the mean loss without each of the four windows over a part.

    Windows a quarter of the sides wide cover the picture. Others, half as wide, lie around the peak of this map, and
    their peak is the final one. Instances that add little next to the one that adds most are left out.
    """
    sizes = np.abs(contribution)
    maps = dict[int, PartMap]()
    for instance in top[sizes[top] >= _LEAST_SHARE * sizes.max()].tolist():
        peak = (0.5, 0.5)
        for half, count in ((1 / PARTS, PARTS + 1), (0.5 / PARTS, _NEAR)):
            steps = half * (np.arange(count) - (count - 1) / 2)
            middles = np.stack(np.meshgrid(peak[1] + steps, peak[0] + steps, indexing="ij"), axis=-1).reshape(-1, 1, 2)
            rows = parts(instance, np.clip(middles + np.array([[-half], [half]]), 0, 1))
            if rows is None:
                break
            bag, x = np.zeros(len(rows), dtype=np.int64), torch.from_numpy(rows.astype(np.float32))
            scores = _without(pooled, instance).with_instance(bag, x)
            windows = (scores[0] - scores[1:]).reshape(count, count)
            added = (windows[:-1, :-1] + windows[1:, :-1] + windows[:-1, 1:] + windows[1:, 1:]) / 4
            peak = peak_of(added, peak, half)
            maps[instance] = PartMap(maps[instance].added if instance in maps else added, peak)
    return maps


def peak_of(added: NDArray[np.float64], middle: tuple[float, float], step: float) -> tuple[float, float]:
    """Return x and y of what adds most, in sides of the picture: the center of the best part and its neighbors.

    The parts [h, w] lie around the `middle`, x and y, with a `step` from one to the next.

    Examples
    --------
    >>> peak_of(np.array([[0.0, 0.0], [0.0, 1.0]]), (0.5, 0.5), 0.5)
    (0.75, 0.75)
    """
    row, column = np.unravel_index(int(np.argmax(added)), added.shape)
    rows, columns = (slice(max(at - 1, 0), at + 2) for at in (row, column))
    near = np.clip(added[rows, columns], 0, None) ** 2
    near = near / near.sum() if near.sum() > 0 else np.full(near.shape, 1 / near.size)
    y, x = (at + step * (np.arange(n) - (n - 1) / 2) for at, n in zip(middle[::-1], added.shape))
    return float(near.sum(axis=0) @ x.clip(0, 1)[columns]), float(near.sum(axis=1) @ y.clip(0, 1)[rows])
