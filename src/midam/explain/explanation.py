"""The instances of a bag, ranked by their contribution to its score."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.data.brief import BriefRepr
from midam.data.instance_labels import labels_of
from midam.data.sources.file_rows import instance_columns
from midam.errors import BagDataError
from midam.evaluate.pooled import PooledBags
from midam.evaluate.predict import InstancePass, InstanceScores, evaluation, gathered, of_bag, prepared, reader_of
from midam.explain.words import Features, TellingFeature, instance_text
from midam.nn.scorer import BagEnsemble, BagScorer, column_of
from midam.runs.instance_files import write_bag
from midam.settings import usual_chunk

Origins = Mapping[str, Mapping[str, Sequence[Any]]]
Parts = Callable[[int, NDArray[np.float64]], NDArray[Any] | None]  # see `midam.explain.raw.RawFiles.parts`
FEATURES_SHOWN = 5  # for each instance
LABEL = "instance_label"
# Top instances whose parts are explained; parts of a picture along each side, and windows around their peak.
LARGE, PARTS, _NEAR = 4, 8, 5
_EVEN, _LITTLE = 0.1, 0.01  # of the uniform weight, and of the score: less does not stand out
_LEAST_SHARE = 0.05  # of the largest contribution: the parts of others are not explained


class PartMap(NamedTuple):
    """What the parts of a picture add, [h, w], and its peak: x and y of what adds most, in sides of the picture."""

    added: NDArray[np.float64]
    peak: tuple[float, float]


@dataclass(frozen=True, repr=False)
class Explanation(BriefRepr):
    """Contributions of the instances of a bag to its score.

    Attributes
    ----------
    bag, index : str, int
        Id of the bag, and its position in the bags.
    score, pooling : float, str
        Score of the bag in [0, 1], as `midam.evaluate.predict.predict` gives it, and the names of the poolings.
    instances : InstanceScores
        Score, attention logit and weight of each instance, as they were pooled.
    contribution : float32 array [n]
        Contribution of each instance: the score minus the score of the bag without it, in [-1, 1]. For a single
        instance, the score.
    weighted : bool
        Whether every scorer weights its instances; mean, noisy-or, noisy-and and summaries of a bag do not.
    coords : array [n, C] or None
        Coordinates of the instances.
    order : int64 array [n]
        Positions of the instances in descending order of contribution.
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
    pooling: str
    instances: InstanceScores
    contribution: NDArray[np.float32]
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
        return self.instances.weight * np.float32(len(self))

    @property
    def even_weights(self) -> str | None:
        """Range of the relative weights, if no instance stands out by its weight or by what it adds; else None."""
        weights, most = self.relative_weight, np.abs(self.contribution).max()
        stands_out = len(self) == 1 or np.abs(weights - 1).max() > _EVEN or most >= _LITTLE
        return None if stands_out else f"{weights.min():.2f} to {weights.max():.2f}"

    @property
    def several_files(self) -> bool:
        """Whether the instances are known to come from several files."""
        return len(set(self.columns.get("file", ()))) > 1

    @property
    def positions(self) -> NDArray[np.float64]:
        """First coordinate of each instance, [n], such as the number of a slice; without coordinates, its position."""
        coords = np.arange(len(self))[:, None] if self.coords is None else self.coords
        return np.asarray(coords[:, 0], dtype=np.float64)

    def facts(self, instance: int) -> dict[str, Any]:
        """Return the known facts about an instance from its file, by name of the column."""
        return {name: column[instance] for name, column in self.columns.items() if column[instance] is not None}

    def multiple(self, instance: int) -> str:
        """Return the weight of an instance as a multiple of the uniform weight."""
        return f"{self.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}"

    def name(self, instance: int) -> str:
        """Return number and coordinates of an instance, its file if there are several, and its row or slice."""
        hidden = {LABEL} if self.several_files else {LABEL, "file"}
        columns = {name: value for name, value in self.facts(instance).items() if name not in hidden}
        place = () if self.coords is None else self.coords[instance]
        return instance_text({"instance": instance, "place": place, "columns": columns})


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
    write_to: Path | None = None,
    about: Mapping[str, Any] = MappingProxyType({}),
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
    write_to : Path, optional
        Also write the HDF5 file of the bag, see `midam.runs.instance_files.write_instance_scores`; an old one is
        replaced.
    about : Mapping
        Further attributes of this file.

    Raises
    ------
    MidamError
        If there is no such bag, or the file cannot be written.

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
    chunk_size = chunk_size or usual_chunk(bags.instance_shape)
    batch = WholeBatch.unlabeled(reader_of(model, bag), torch.tensor([0]))
    passed = InstancePass(column_of(of_bag(model, bag, 0), column), batch, chunk_size=chunk_size)
    chunks = list[tuple[torch.Tensor, torch.Tensor]]()
    pooled = PooledBags(
        model, bag, column=column, chunk_size=chunk_size, on_chunk=lambda *chunk: chunks.append(passed.take(*chunk))
    )
    contribution = pooled.contributions()
    with evaluation(model):
        instances, score = gathered(passed, chunks), passed.bag_score()
        if write_to is not None:
            write_bag(write_to, passed, bags, index, chunks=chunks, extra={"contribution": contribution}, about=about)
    # Ties of contributions are broken by weight, logit, score, then position.
    keys = (-instances.score, -instances.attention, -instances.weight, -contribution)
    order = np.lexsort(keys).astype(np.int64)
    return Explanation(
        bag=str(bags.ids[index]),
        index=index,
        score=score,
        pooling=passed.pooling,
        instances=instances,
        contribution=contribution,
        weighted=all(scorer.pooling.weighted for scorer in passed.scorers),
        coords=bags.places(index),
        order=order,
        columns=known_columns(bags, index),
        features={} if features is None else _telling(pooled, bag, features, order[:top].tolist()),
        parts={} if parts is None else _of_parts(pooled, _with_parts(order, contribution).tolist(), parts),
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


def _telling(
    pooled: PooledBags, bag: Bags, features: Features, top: Sequence[int]
) -> dict[int, tuple[TellingFeature, ...]]:
    """Return the telling features of each of the `top` instances: the others stay in the bag."""
    telling, score = dict[int, tuple[TellingFeature, ...]](), pooled.scores()
    for instance in top:
        added = _exchange(pooled, instance)
        row = bag.gather(bag.starts + instance)
        (telling[instance],) = features.telling(row, lambda x, _: score - added(x), most=FEATURES_SHOWN)  # noqa: B023
    return telling


def _exchange(pooled: PooledBags, instance: int) -> Callable[[torch.Tensor], NDArray[np.float64]]:
    """Return a function that gives the scores of the bag in which an instance is replaced by one of x [T, ...]."""
    rest = pooled.keep(np.arange(len(pooled.segment)) != instance)
    return lambda x: rest.with_instance(np.zeros(len(x), dtype=np.int64), x)


def _with_parts(order: NDArray[np.int64], contribution: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the first `LARGE` instances, without those that add little next to the one that adds most."""
    sizes = np.abs(contribution)
    return order[:LARGE][sizes[order[:LARGE]] >= _LEAST_SHARE * sizes.max()]


def _of_parts(pooled: PooledBags, top: Sequence[int], parts: Parts) -> dict[int, PartMap]:
    """Return what the parts of the `top` instances add: the mean loss without each of the four windows over a part.

    Windows a quarter of the sides wide cover the picture. Others, half as wide, lie around the peak of this map, and
    their peak is the final one.
    """
    maps = dict[int, PartMap]()
    for instance in top:
        peak = (0.5, 0.5)
        for half, count in ((1 / PARTS, PARTS + 1), (0.5 / PARTS, _NEAR)):
            steps = half * (np.arange(count) - (count - 1) / 2)
            middles = np.stack(np.meshgrid(peak[1] + steps, peak[0] + steps, indexing="ij"), axis=-1).reshape(-1, 1, 2)
            rows = parts(instance, np.clip(middles + np.array([[-half], [half]]), 0, 1))
            if rows is None:
                break
            scores = _exchange(pooled, instance)(torch.from_numpy(rows.astype(np.float32)))
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
