"""The instances of a bag, ranked by their contribution to its score."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bag_files import instance_columns
from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.data.brief import BriefRepr
from midam.data.instance_labels import labels_of
from midam.data.sources.formats.open_file import Lazy
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError
from midam.evaluate.predict import InstanceScores, evaluation, gathered, of_bag, prepared, reader_of
from midam.explain.contributions import InstanceSpool, contributions, exchanged
from midam.nn.ensemble import BagEnsemble, column_of
from midam.nn.scorer import BagScorer
from midam.runs.instance_files import write_bag
from midam.runs.loaded import LoadedRun
from midam.runs.scoring import predict_run
from midam.settings import usual_chunk

FEATURES_SHOWN = 5  # for each instance
LABEL = "instance_label"
LARGE, PARTS = 4, 8  # top instances whose parts are explained; parts of a picture along each side
_EVEN, _LITTLE = 0.1, 0.01  # of the uniform weight, and of the score: less does not stand out
_LEAST_SHARE = 0.05  # of the largest contribution: the parts of others are not explained
_ROWS = ("line", "row")  # columns about instances of a table
# Facts about a slice from its file, in words.
_OF_SLICES = {"laterality": "{}", "view": "{}", "instance_number": "no. {}", "frame_number": "frame {}"}
_OF_SLICES |= {"slice_index": "index {}", "position_mm": "at {:.6g} mm"}


class FeatureShare(NamedTuple):
    """Contribution of a feature's value in one instance to the score of the bag.

    Attributes
    ----------
    name : str
        Name of the feature, or its number; of a category, the column.
    value, typical : float or str
        Value of the feature, and its median over instances of negative training bags, see `midam.runs.typical`; or a
        category, and the most frequent one.
    adds : float
        The score minus the score of the bag with the typical value instead, in [-1, 1].
    """

    name: str
    value: float | str
    typical: float | str
    adds: float


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
        Facts about each instance from its file, see `midam.data.bag_files.instance_columns`: the file's name, and for
        slices the number, UID and position; for a table see `midam.data.sources.table_readers.rows_of`. Known labels of
        instances are in "instance_label": 0, 1, or None if unknown.
    features : mapping
        For some of the top instances, by position: the features that add most to the score of the bag.
    parts : mapping
        For some of the top instances that are pictures, by position: what each part adds to the score of the bag, the
        score minus that of the bag in whose picture windows over the part are covered, [h, w].

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
    features: Mapping[int, Sequence["FeatureShare"]] = field(default_factory=dict)
    parts: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

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
        file = self.columns["file"][instance] if self.several_files else ""
        parts = (file, origin_text(self.facts(instance)))
        place = () if self.coords is None else self.coords[instance]
        return instance_name(instance, place, ", ".join(filter(None, parts)))


def instance_name(instance: int, place: Iterable[float | None] = (), file: str = "") -> str:
    """Return the number of an instance, with its coordinates and file if they add information.

    Examples
    --------
    >>> instance_name(3, [512, 1024]), instance_name(3, [3]), instance_name(3), instance_name(3, [math.nan, 0], "a.h5")
    ('#3 (512, 1024)', '#3', '#3', '#3 (no place), a.h5')
    """
    numbers = list(place)
    unknown = any(x is None or not math.isfinite(x) for x in numbers)
    place_text = "no place" if unknown else ", ".join(f"{x:.10g}" for x in numbers)
    name = f"#{instance} ({place_text})" if place_text not in ("", str(instance)) else f"#{instance}"
    return f"{name}, {file}" if file else name


def row_text(columns: Mapping[str, Any]) -> str:
    """Return the table row of an instance, and its time if known; "" for other data.

    Examples
    --------
    >>> row_text({"line": 17, "score": 0.5}), row_text({"line": 17, "time": "2025-03-01 04:10"})
    ('line 17', 'line 17, 2025-03-01 04:10')
    """
    row = next((f"{name} {columns[name]}" for name in _ROWS if name in columns), "")
    return ", ".join([row, *filter(None, [columns.get("time")])]) if row else ""


def origin_text(facts: Mapping[str, Any]) -> str:
    """Return where an instance comes from: its row of a table, its slice of a scan, or ""."""
    return row_text(facts) or slice_text(facts)


def slice_text(facts: Mapping[str, Any]) -> str:
    """Return number and position of a slice, or side, view and file of an image without a position; "" if unknown.

    Examples
    --------
    >>> slice_text({"instance_number": 13, "position_mm": 58.5, "slice_file": "012.dcm"})
    'no. 13 at 58.5 mm'
    >>> slice_text({"laterality": "L", "view": "CC", "slice_file": "left.dcm"})
    'L CC, left.dcm'
    """
    known = {name: value for name, value in facts.items() if value is not None}
    text = " ".join(text.format(known[name]) for name, text in _OF_SLICES.items() if name in known)
    file = "" if "position_mm" in known else known.get("slice_file", "")
    return ", ".join(filter(None, [text, file]))


def share_text(share: Mapping[str, Any]) -> str:
    """Return a feature of `FeatureShare` with its value, or the words of its category, and the typical one.

    Examples
    --------
    >>> share_text({"name": "shop", "value": "bakery", "typical": "grocery"})
    'shop bakery (typical grocery)'
    """
    value, typical = (x if isinstance(x, str) else f"{x:.4g}" for x in (share["value"], share["typical"]))
    return f"{share['name']} {value} (typical {typical})"


def explain_bag(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    index: int,
    *,
    column: int | None = None,
    chunk_size: int | None = None,
    typical: Sequence[float] | None = None,
    top: int = 8,
    parts: Callable[[int], NDArray[Any] | None] | None = None,
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
    typical : sequence of float [D], optional
        Typical value of each feature; if given, the features of the `top` instances get contributions too. The features
        of a category are replaced together.
    top : int
        Number of top instances whose features get contributions.
    parts : callable, optional
        Returns, for the position of an instance that is a picture, the instance and the same without each of its
        windows, [1 + 81, ...], or None; see `midam.explain.raw.RawFiles.parts`. Called for up to `LARGE` instances.
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
    chunk_size = usual_chunk(bag.instance_shape) if chunk_size is None else chunk_size
    model = column_of(of_bag(model, bag, 0), column)
    batch = WholeBatch.unlabeled(reader_of(model, bag), torch.tensor([0]))
    with InstanceSpool(model, batch, chunk_size=chunk_size) as spool, evaluation(model):
        added = Lazy(lambda: contributions(spool))
        if write_to is None:
            deque(spool.chunks(), maxlen=0)
        else:
            write_bag(
                write_to,
                spool,
                bags,
                index,
                chunk_size=chunk_size,
                extra_columns=lambda: {"contribution": added()},
                about=about,
            )
        instances, contribution = gathered(spool, spool.seen), added()
        # Ties of contributions are broken by weight, logit, score, then position.
        keys = (-instances.score, -instances.attention, -instances.weight, -contribution)
        order = np.lexsort(keys).astype(np.int64)
        return Explanation(
            bag=str(bags.ids[index]),
            index=index,
            score=spool.bag_score(),
            pooling=spool.pooling,
            instances=instances,
            contribution=contribution,
            weighted=all(scorer.pooling.weighted for scorer in spool.scorers),
            coords=bags.places(index),
            order=order,
            columns={**instance_columns(bags, index), **known_labels(bags, index)},
            features={} if typical is None else _shares(model, bag, spool, order[:top], np.asarray(typical)),
            parts={} if parts is None else _of_parts(model, bag, spool, _with_parts(order, contribution), parts),
        )


def known_labels(bags: Bags, index: int) -> dict[str, list[int | None]]:
    """Return the labels of the instances of a bag as the column "instance_label"; no column if all are unknown."""
    labels = labels_of(bags.subset([index]))
    return {} if labels is None else {LABEL: [None if np.isnan(label) else int(label) for label in labels]}


def _shares(
    model: BagScorer | BagEnsemble, source: Bags, spool: InstanceSpool, top: NDArray[np.int64], typical: NDArray[Any]
) -> dict[int, list[FeatureShare]]:
    """Return, for the `top` instances, the columns that change the score most when set to their typical value."""
    rows = source.gather(source.starts[0] + top)
    names = source.feature_names or [f"feature {j}" for j in range(len(typical))]
    at, feature = np.nonzero(rows != typical.astype(rows.dtype))
    shares: dict[int, list[FeatureShare]] = {int(instance): [] for instance in top}
    if not len(at):
        return shares
    columns = np.array(feature_columns(model, names))
    at, first = np.unique([at, (columns == columns[feature, None]).argmax(axis=1)], axis=1)
    changed = np.where(columns == columns[first, None], typical.astype(rows.dtype), rows[at])
    with _spooled(model, source, changed) as others:
        for number, instance in enumerate(shares):
            places = np.flatnonzero(at == number)
            if len(places):
                adds = exchanged(spool, instance, others, slice(int(places[0]), int(places[-1]) + 1))
                for i in places[np.argsort(-np.abs(adds), kind="stable")[:FEATURES_SHOWN]]:
                    name, inside = str(columns[first[i]]), np.flatnonzero(columns == columns[first[i]])
                    value, usual = (feature_value(inside, name, names, x) for x in (rows[number], typical))
                    shares[instance].append(FeatureShare(name, value, usual, float(adds[i - places[0]])))
    return shares


def _with_parts(order: NDArray[np.int64], contribution: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the first `LARGE` instances, without those that add little next to the one that adds most."""
    sizes = np.abs(contribution)
    return order[:LARGE][sizes[order[:LARGE]] >= _LEAST_SHARE * sizes.max()]


def _of_parts(
    model: BagScorer | BagEnsemble,
    source: Bags,
    spool: InstanceSpool,
    top: NDArray[np.int64],
    parts: Callable[[int], NDArray[Any] | None],
) -> dict[int, NDArray[np.float64]]:
    """Return what the parts of the `top` instances add: the mean loss without each of the four windows over a part."""
    added = {}
    for instance in top.tolist():
        rows = parts(instance)
        if rows is not None:
            with _spooled(model, source, rows.astype(np.float32)) as others:
                losses = exchanged(spool, instance, others, slice(0, len(rows)))
            windows = (losses[1:] - losses[0]).reshape(PARTS + 1, PARTS + 1)
            rows_of_two = windows[:-1] + windows[1:]
            added[instance] = (rows_of_two[:, :-1] + rows_of_two[:, 1:]) / 4
    return added


def _spooled(model: BagScorer | BagEnsemble, source: Bags, rows: NDArray[Any]) -> InstanceSpool:
    """Return a finished pass through other instances [m, D] of the bag `source`."""
    alone = {"coords": None, "digests": None, "attributes": None, "instance_labels": None}
    bag = source.replace(instances=rows, starts=np.zeros(1, np.int64), sizes=np.array([len(rows)]), **alone)
    batch = WholeBatch.unlabeled(reader_of(model, bag), torch.tensor([0]))
    spool = InstanceSpool(model, batch, chunk_size=usual_chunk(bag.instance_shape))
    deque(spool.chunks(), maxlen=0)
    return spool


def feature_columns(model: BagScorer | BagEnsemble, names: Sequence[str]) -> list[str]:
    """Return the column of each feature: a category has several features."""
    known = model.inputs if isinstance(model, BagEnsemble) else None
    categories = known.columns.of_categories if known is not None and known.columns is not None else {}
    return [categories.get(name, name) for name in names]


def feature_value(places: NDArray[np.int64], column: str, names: Sequence[str], x: NDArray[Any]) -> float | str:
    """Return the number of an instance in a column with features at these places, or the words of its category."""
    if names[places[0]] == column:
        return float(x[places[0]])
    return next((names[j][len(column) + 1 :] for j in places if x[j]), "none")


def column_scores(
    run: LoadedRun, bags: Bags, index: int, label: str | None
) -> tuple[NDArray[np.float64] | None, int | None]:
    """Return scores [1, C] of a bag and the column to explain: of `label`, or the most probable; None if C is 1."""
    if run.target.count == 1:
        return None, None
    scores, _ = predict_run(run, bags.subset([index]))
    return scores, int(run.target.main_column(scores, run.decision)[0]) if label is None else run.target.column(label)


def label_words(outcome: TargetLabels) -> str:
    """Return the label of one bag in words.

    Examples
    --------
    >>> label_words(TargetLabels.of("survival", [[12.5, 0]], names=["time", "event"]))
    'no event until 12.5'
    >>> label_words(TargetLabels.of("multilabel", [[1, 0, 1]], names=["fat", "blood", "bone"]))
    'fat, bone'
    """
    labels = {name: values[0] for name, values in outcome.columns().items()}
    if outcome.target == "multilabel":
        return ", ".join(name for name, value in zip(outcome.names, labels.values()) if value == 1) or "none"
    if outcome.target == "survival":
        return "{} {:g}".format("event at" if labels["event"] else "no event until", labels["time"])
    return f"{labels['label']:g}" if outcome.target == "continuous" else str(labels["label"])


def predicted_words(predicted: dict[str, Any] | None) -> str | None:
    """Return the prediction of a bag in words; None if there is none.

    Examples
    --------
    >>> predicted_words({"grade": "high"}), predicted_words({"number": 3.14159}), predicted_words({"risk": None})
    ('predicted grade high', 'predicted number 3.142', None)
    """
    present = {key: value for key, value in (predicted or {}).items() if value is not None}
    parts = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in present.items()]
    return f"predicted {', '.join(parts)}" if parts else None
