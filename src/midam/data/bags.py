"""Bags of instances: all bags of a data set share one flat array of instances, in memory or on disk."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data import validate
from midam.data.covariates import Column, Covariates
from midam.data.digests import bag_digests, facts_of
from midam.data.left_out import LeftOut
from midam.data.on_disk import Rows, row_positions
from midam.data.target_labels import TargetLabels
from midam.data.validate import SPLITS, ClassName
from midam.errors import BagDataError, plural
from midam.names import names_of, warn_of_alike

if TYPE_CHECKING:
    import pandas as pd


# Arrays with a value for each bag; a subset takes its part of them, and of those in `_SELECTED`.
_BY_BAG = ("labels", "groups", "sites", "splits", "sources", "attributes", "weights", "digests")
_SELECTED = ("starts", "sizes", "ids", "outcome", "covariates", *_BY_BAG)
_LAYOUT = {"instances", "starts", "sizes", "ids", "coords", "feature_names", "columns"}


class BagFields(TypedDict, total=False):
    """What `Bags` may hold besides their instances; the docstring of `Bags` describes each."""

    ids: ArrayLike | None
    labels: ArrayLike | None
    classes: Sequence[ClassName] | None
    outcome: TargetLabels | None
    covariates: Covariates | Mapping[str, ArrayLike] | None
    groups: ArrayLike | None
    sites: ArrayLike | None
    splits: ArrayLike | None
    weights: ArrayLike | None
    coords: Any
    instance_labels: ArrayLike | None
    digests: ArrayLike | None
    feature_names: Sequence[str] | None
    columns: Sequence[Column] | None
    sources: ArrayLike | None
    attributes: ArrayLike | None
    cut: Mapping[str, Any] | None
    left_out: Sequence[LeftOut]


class Bags:
    """N bags over one flat array of M instances: bag i is the slice ``instances[starts[i] : starts[i] + sizes[i]]``.

    Each bag has one label; instances need none. The constructor checks the structure; `from_arrays` and `from_list`
    check the values too. Parameters become read-only attributes. Arrays are shared, not copied: do not write to them.

    Parameters
    ----------
    instances : numpy.ndarray, numpy.memmap or midam.data.on_disk.Rows, shape [M, ...]
        Instances of all bags, of any numeric dtype.
    sizes, starts : array of int, shape [N]
        Number of instances of each bag, at least 1, and position of its first instance. Default: one bag after the
        other.
    ids : array of str, shape [N], optional
        Unique names of the bags. Default ``"0"``, ``"1"``, ...
    labels : array of int or str, shape [N], optional
        0 (negative) or 1 (positive), kept as int64; or names in `classes`. None if the labels are unknown.
    classes : pair, optional
        What the labels 0 and 1 are called, as ``("benign", "malignant")``: two strings, numbers or booleans.
    outcome : TargetLabels, optional
        Labels of any target, instead of `labels`. Two classes become `labels` and `classes`; with another target,
        `labels` is None.
    covariates : Covariates or mapping of arrays [N], optional
        Metadata of the bags: numbers or categories by name, see `Covariates`.
    groups : array of str, shape [N], optional
        Group of each bag, such as its patient, slide or scanner; no group may be in two splits.
    sites : array of str, shape [N], optional
        Hospital or scanner that each bag comes from, empty if unknown: the folds of a cross-validation by site.
        Stores and npz files keep no sites; save them as a covariate there.
    splits : array of str, shape [N], optional
        ``"train"``, ``"val"`` or ``"test"``.
    weights : array [N], optional
        How much each bag counts in a training on two classes, above 0; files keep no weights.
    coords : array or Rows, shape [M, C], optional
        Coordinates of each instance in its bag, for example in pixels.
    instance_labels : array, shape [M], optional
        Known labels of the instances: 1 for one that makes its bag positive, 0 for another, NaN if unknown; float32.
        They evaluate scores of instances and explanations, and are never used in training.
    digests : array of uint8, shape [N, 32], optional
        Known SHA-256 of each bag's content, see `bag_digests`.
    sources : array of str, shape [N], optional
        File or files that each bag was read from, a line each.
    feature_names : sequence of str, optional
        Names of the features along the last axis.
    columns : sequence of Column, optional
        Kinds of the features, if some are categories or times, which training encodes. Default: all are numbers.
    attributes : array of str, shape [N], optional
        JSON of the attributes of the files of each bag: ``{file: {array: {name: value}}}``, see `described`.
    cut : dict, optional
        How images, slides or volumes were cut into instances, if known.
    left_out : sequence of LeftOut
        Files and bags that were not read, and why.
    source : str, default "memory"
        Where the bags come from; error messages name it.

    Raises
    ------
    BagDataError
        If a check fails; the message names the first bag at fault.

    Examples
    --------
    >>> import numpy as np
    >>> bags = Bags(np.arange(10.0).reshape(5, 2), sizes=[3, 2], labels=[1, 0])
    >>> len(bags), bags.num_instances, bags.instance_shape
    (2, 5, (2,))
    >>> bags[1]
    array([[6., 7.],
           [8., 9.]])
    """

    def __init__(
        self,
        instances: NDArray[Any] | Rows,
        *,
        sizes: ArrayLike,
        starts: ArrayLike | None = None,
        source: str = "memory",
        **fields: Unpack[BagFields],
    ) -> None:
        refuse_others(fields, _FORMS, "Bags")
        vars(self).update(dict.fromkeys(_FORMS), left_out=(), source=source)
        self._take({"ids": None, **fields, "instances": instances, "sizes": sizes, "starts": starts})

    instances: NDArray[Any] | Rows
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ids: NDArray[np.str_]
    labels: NDArray[np.int64] | None
    classes: validate.TwoNames | None
    outcome: TargetLabels | None
    covariates: Covariates | None
    groups: NDArray[np.str_] | None
    sites: NDArray[np.str_] | None
    splits: NDArray[np.str_] | None
    weights: NDArray[np.float64] | None
    coords: NDArray[Any] | Rows | None
    instance_labels: NDArray[np.float32] | None
    digests: NDArray[np.uint8] | None
    feature_names: tuple[str, ...] | None
    columns: tuple[Column, ...] | None
    sources: NDArray[np.object_] | None
    attributes: NDArray[np.object_] | None
    cut: dict[str, Any] | None
    left_out: tuple[LeftOut, ...]
    source: str

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        bag: ArrayLike,
        y: ArrayLike | None = None,
        *,
        source: str = "memory",
        missing: bool = False,
        **fields: Unpack[BagFields],
    ) -> Self:
        """Make bags from instances `X` [M, ...], bag numbers `bag` [M] from 0 to N - 1, and labels `y` [N].

        The rest is as in `Bags`. Unsorted instances are copied into bag order and keep their order within a bag. With
        `missing`, some values may be NaN; `midam.data.missing` fills them.

        Examples
        --------
        >>> Bags.from_arrays([[1.0], [2.0], [3.0]], bag=[1, 0, 1], y=[0, 1])[1].ravel()
        array([1., 3.])
        """
        validate.refuse_other_order(X, bag, fields.get("coords"), fields.get("instance_labels"))
        fields.setdefault("feature_names", validate.column_names(X))
        # np.asarray would turn a memory map into a plain array.
        X = validate.as_array(X) if hasattr(X, "resolve_neg") else np.asanyarray(X)
        numbers = validate.int_array(bag, "bag numbers", source)
        if X.ndim == 0 or len(X) != len(numbers):
            got = f"{len(numbers)} for instances {X.shape} (in {source})"
            raise BagDataError(f"Expected one bag number for each instance, got {got}; give both the same length.")
        outcome = fields.get("outcome")
        values = outcome.values if y is None and outcome is not None else y
        expected = 0 if values is None else len(np.atleast_1d(np.asarray(values)))
        if expected == len(numbers) > numbers.max(initial=-1) + 1:
            raise BagDataError(f"Expected labels of bags, got one for each instance (in {source}); give one a bag.")
        sizes = validate.count_instances(numbers, expected, fields.get("ids"), source)
        arrays = {name: fields.get(name) for name in ("coords", "instance_labels")}
        parts: dict[str, Any] = {name: np.asanyarray(part) for name, part in arrays.items() if part is not None}
        if np.any(np.diff(numbers) < 0):
            order = np.argsort(numbers, kind="stable")
            X = X[order]
            # The constructor refuses parts of another length.
            parts = {name: part[order] if len(part) == len(order) else part for name, part in parts.items()}
        bags = cls(X, sizes=sizes, source=source, **{**fields, **parts, **({} if y is None else {"labels": y})})
        bags.check(missing=missing)
        if source == "memory":  # the readers of files warn themselves
            warn_of_doubts(bags)
        return bags

    @classmethod
    def from_list(
        cls,
        arrays: Sequence[ArrayLike],
        labels: ArrayLike | None = None,
        *,
        source: str = "memory",
        missing: bool = False,
        **fields: Any,
    ) -> Self:
        """Make bags from a list of arrays [n_i, ...], one per bag; `coords` is a list too, the rest as in `Bags`.

        Columns of DataFrames are matched by name. With `missing`, some values may be NaN.

        Examples
        --------
        >>> Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1]).sizes
        array([1, 2])
        """
        parts = [validate.bag_array(part, number) for number, part in enumerate(arrays)]
        features = [validate.column_names(part) for part in arrays]
        first = next(filter(None, features), None)
        for bag, columns in enumerate(features):
            if columns and first and columns != first:
                order = validate.feature_order(first, columns, reference="the first bag", where=f"bag {bag}")
                parts[bag] = parts[bag][:, order]
        fields.setdefault("feature_names", first)
        ids, coords = fields.get("ids"), fields.get("coords")
        names = validate.id_array(np.arange(len(parts)) if ids is None else ids, source)
        instances, sizes = validate.concatenate(parts, names, "instances", source), [len(part) for part in parts]
        if coords is not None:
            rows = [validate.as_array(part) for part in coords]
            if [len(part) for part in rows] != sizes:
                raise BagDataError(f"Expected one row of coordinates for each instance, got others (in {source}).")
            fields["coords"] = validate.concatenate(rows, names, "coordinates", source)
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        return cls.from_arrays(instances, numbers, labels, source=source, missing=missing, **fields)

    @classmethod
    def from_dataframe(
        cls,
        frame: "pd.DataFrame",
        bag_column: str = "bag",
        label_column: str = "label",
        *,
        source: str = "a DataFrame",
        impute: bool = False,
        **options: Any,
    ) -> "Bags":
        """Make bags from a DataFrame whose rows are instances, as `midam.read_bags` does from a table.

        Bags are in the order of their first rows; every column that is not named is a feature. Without a column
        `bag_column`, the level of the index of this name, or else the first of two, names the bag; without a column
        "label", the bags have no labels. Messages call the frame `source`; the frame is not changed. With `impute`,
        values may be NaN: an estimator or a run with `impute` fills them. The other parameters are those of
        `midam.read_bags`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"bag": ["a", "a", "b"], "label": [1, 1, 0], "area": [1.0, 2.0, 3.0]})
        >>> Bags.from_dataframe(frame)
        Bags(2 bags, 1 positive, 3 instances (1,))
        """
        from midam.data.sources.frames import FRAME_OPTIONS, frame_arrays

        refuse_others(options, FRAME_OPTIONS, "Bags.from_dataframe")
        named = {"bag_column": bag_column, "label_column": label_column, "impute": impute}
        bags = cls.from_arrays(**frame_arrays(frame, source, **named, **options))
        warn_of_doubts(bags)
        return bags

    def __setattr__(self, name: str, value: object) -> None:
        if "source" in vars(self):  # set last
            raise AttributeError(f"Bags.{name} is read-only; make new Bags.")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, index: Any) -> Self: ...

    def __getitem__(self, index: Any) -> Any:
        """Return the instances [n_i, ...] of the bag at a position: a view of memory, or a read from disk.

        For positions, a slice or a mask, return the bags that `subset` selects, so that scikit-learn's splits keep ids,
        groups and all other metadata.
        """
        if isinstance(index, tuple) and len(index) == 2 and index[1] is ...:  # how scikit-learn asks for rows
            index = index[0]
        if isinstance(index, slice) or np.ndim(index):
            return self.subset(np.arange(len(self))[index] if isinstance(index, slice) else index)
        start = int(self.starts[index])
        return self.instances[start : start + int(self.sizes[index])]

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        """Raise a `TypeError`: bags of different sizes are no array."""
        raise TypeError("Expected an array, got bags, whose sizes may differ; take bags[i] or bags.instances.")

    def __repr__(self) -> str:
        labeled = "unlabeled" if self.labels is None else f"{int(self.labels.sum())} positive"
        labeled = labeled if self.outcome is None else self.outcome.target
        return f"Bags({plural(len(self), 'bag')}, {labeled}, {self.num_instances} instances {self.instance_shape})"

    @property
    def shape(self) -> tuple[int]:
        """Number of bags, for scikit-learn."""
        return (len(self),)

    @property
    def num_instances(self) -> int:
        """Number of instances in these bags; the flat array can hold more."""
        return int(self.sizes.sum())

    @property
    def instance_shape(self) -> tuple[int, ...]:
        """Shape of one instance."""
        return tuple(self.instances.shape[1:])

    def subset(self, index: ArrayLike) -> Self:
        """Select bags by position [n], in any order and each at most once, or by a mask [N]; the instances are shared.

        Examples
        --------
        >>> Bags.from_list([[[1.0]], [[2.0]], [[3.0]]]).subset([2, 0]).ids.tolist()
        ['2', '0']
        """
        masked = str(getattr(index, "dtype", "")) in ("bool", "boolean")
        index = np.asarray(validate.in_bag_order(index, self.ids, "mask") if masked else index)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "biu"):  # digits of a name are no position
            got = f"{index.dtype} of shape {index.shape} (in {self.source})"
            raise BagDataError(f"Expected positions or a mask, got {got}; give a list of integers.")
        positions = np.arange(len(self))[index if index.dtype == np.bool_ else index.astype(np.int64)]
        if len(positions) == 0:
            raise BagDataError(f"Expected at least one bag, got none (in {self.source}); give some bags.")
        if len(np.unique(positions)) < len(positions):
            validate.check_names(self.ids[positions], self.source)
        return self._changed(taken({name: getattr(self, name) for name in _SELECTED}, positions))

    def replace(self, **changes: Any) -> Self:
        """Return these bags with other parameters of `Bags`, as in ``bags.replace(labels=[0, 1])``.

        With other instances, the known digests no longer apply.
        """
        refuse_others(changes, vars(self), "Bags.replace")
        bags = self._changed({} if {"instances", "sizes", "starts"}.isdisjoint(changes) else {"digests": None})
        bags._take(changes)
        return bags

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with other attributes, which are not checked."""
        bags = object.__new__(type(self))
        vars(bags).update(vars(self), **changes)
        return bags

    def _take(self, changes: Mapping[str, Any]) -> None:
        """Set parameters to values in their form; refuse those that do not fit together."""
        facts, outcome = vars(self), changes.get("outcome")
        if outcome is not None and outcome.target == "binary":
            names = None if outcome.names == ("0", "1") else outcome.names
            changes = {**changes, "labels": outcome.values[:, 0].astype(np.int64), "classes": names, "outcome": None}
        elif outcome is not None:
            changes = {**changes, "classes": None}
        if not {"sizes", "ids"}.isdisjoint(changes):  # all other fields depend on them
            changes = {**facts, **changes}
        rows: Any = getattr(changes.get("ids"), "index", None)  # a Series of the table that the other Series are from
        facts.update(changes)
        for name, form in _FORMS.items():
            value = facts[name]
            if name not in changes or (value is None and name not in ("starts", "ids")):
                continue
            alike = hasattr(rows, "equals") and rows.equals(getattr(value, "index", None))
            if name in _BY_BAG and not alike:
                value = validate.in_bag_order(value, self.ids, name[:-1])
            facts[name] = column = form(value, self)
            if name in (*_BY_BAG, "ids"):
                validate.check_length(column[:, 0] if name == "digests" else column, len(self), name[:-1], self.source)
        if not _LAYOUT.isdisjoint(changes):
            self._check_layout()
        if self.outcome is not None and self.labels is not None:
            raise BagDataError(f"Expected labels or an outcome, got both (in {self.source}); leave one out.")
        if self.outcome is not None and self.weights is not None:
            got = f"{self.outcome.target} (in {self.source})"
            raise BagDataError(f"Expected two classes with weights, got {got}; leave them out.")

    def where_split(self, name: str) -> NDArray[np.int64]:
        """Return the positions of the bags of a split ("train", "val" or "test"), ascending; for `subset`."""
        if name not in SPLITS:
            raise BagDataError(f"Expected a split of {', '.join(SPLITS)}, got {name!r}; name one of them.")
        if self.splits is None:
            raise BagDataError(f"Expected bags with splits, got none (in {self.source}); split the bags first.")
        return np.flatnonzero(self.splits == name)

    def gather(self, rows: ArrayLike) -> NDArray[Any]:
        """Copy instances at flat positions of any shape (a bag's start + the position inside it), or of a mask [M]."""
        return np.asarray(self.instances[row_positions(rows, len(self.instances))])

    def rows(self) -> NDArray[np.int64]:
        """Return the flat positions of the instances of these bags, one bag after the other."""
        return np.repeat(self.starts + self.sizes - np.cumsum(self.sizes), self.sizes) + np.arange(self.num_instances)

    def places(self, index: int) -> NDArray[Any] | None:
        """Return the coordinates [n_i, C] of the instances of one bag; None for bags without coordinates."""
        start = int(self.starts[index])
        return None if self.coords is None else self.coords[start : start + int(self.sizes[index])]

    def described(self, index: int) -> dict[str, Any]:
        """Return the attributes of the files of a bag, by file and array: magnification, patch size, encoder, ...

        Examples
        --------
        >>> Bags.from_list([[[1.0]]]).replace(attributes=['{"a.h5": {"coords": {"patch_size": 256}}}']).described(0)
        {'a.h5': {'coords': {'patch_size': 256}}}
        """
        return {} if self.attributes is None else dict(json.loads(str(self.attributes[index])))

    @property
    def known_labels(self) -> TargetLabels | None:
        """Labels of any target: the `outcome`, or the `labels` with the names of their classes; None if unknown."""
        two = None if self.labels is None else TargetLabels.of("binary", self.labels, names=self.classes or (0, 1))
        return self.outcome if two is None else two

    def require_labels(self) -> NDArray[np.int64]:
        """Return labels 0 or 1, int64 [N]; refuse bags without labels or with another target."""
        if self.outcome is not None:
            got = f"the target {self.outcome.target!r} (in {self.source})"
            raise BagDataError(f"Expected labels of two classes, got {got}; name a positive value, or another method.")
        if self.labels is None:
            raise BagDataError(f"Expected labeled bags, got bags without labels (in {self.source}); add the labels.")
        return self.labels

    def _check_layout(self) -> None:
        """Refuse instances, and what belongs to them, that do not fit together."""
        instances, source = self.instances, self.source
        validate.check_rows(instances, self.coords, source, sound=isinstance(instances, np.ndarray | Rows))
        validate.check_layout(self.starts, self.sizes, self.ids, len(instances), source)
        if self.instance_labels is not None and self.instance_labels.shape != (len(instances),):
            got = f"shape {self.instance_labels.shape} (in {source})"
            raise BagDataError(f"Expected instance labels [{len(instances)}], got {got}; give them all.")
        if self.feature_names is not None:
            validate.check_feature_names(self.feature_names, instances.shape[-1], source)
        if self.columns is not None and tuple(column.name for column in self.columns) != self.feature_names:
            raise BagDataError(f"Expected `columns` named as the features, got others (in {source}); rename them.")

    def check(self, *, missing: bool = False) -> None:
        """Read the bags by chunks; refuse values beyond 1.8e19 and, unless values may be `missing`, NaN."""
        if self.instances.dtype.kind != "f" and self.instances.dtype != np.uint64:
            return
        order = np.argsort(self.starts, kind="stable")
        starts = self.starts[order]
        for first, last in validate.row_chunks(self.instances, starts, self.sizes[order]):
            chunk = self.instances[first:last]
            good = validate.usable(chunk) | (np.isnan(chunk) if missing else False)
            for row in np.flatnonzero(~good.reshape(len(chunk), -1).all(axis=1))[:1].tolist():
                bag = order[np.searchsorted(starts, first + row, side="right") - 1]
                at, where = first + row - int(self.starts[bag]), f"{self.source}, bag {self.ids[bag]}"
                rows = chunk[row : row + 1]
                validate.refuse_not_finite(np.where(missing & np.isnan(rows), 0, rows), slice(at, None), where)

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of the content and of what is known of each bag, such as its label, group and split.

        Bags with the same values have the same fingerprint, in memory or on disk.
        """
        return hashlib.sha256(json.dumps(facts_of(self, bag_digests(self))).encode()).hexdigest()


def _starts(starts: ArrayLike | None, bags: Bags) -> NDArray[np.int64]:
    return np.cumsum(bags.sizes) - bags.sizes if starts is None else validate.int_array(starts, "starts", bags.source)


def _covariates(covariates: Covariates | Mapping[str, ArrayLike], bags: Bags) -> Covariates:
    if not isinstance(covariates, Covariates):
        columns = {name: validate.in_bag_order(values, bags.ids, name) for name, values in covariates.items()}
        covariates = Covariates.of(columns, source=bags.source)
    covariates.check(bags.ids, bags.source)
    return covariates


# Each makes a parameter of `Bags` what their attribute holds; the later ones may use the earlier ones.
_FORMS: dict[str, Callable[[Any, Bags], Any]] = {
    "sizes": lambda sizes, bags: validate.int_array(sizes, "sizes", bags.source),
    "starts": _starts,
    "ids": lambda ids, bags: validate.id_array(np.arange(len(bags)) if ids is None else ids, bags.source),
    "classes": lambda names, bags: validate.class_names(names, bags.source),
    "labels": lambda labels, bags: validate.label_array(labels, bags.ids, bags.source, classes=bags.classes),
    "outcome": lambda outcome, bags: outcome.check(bags.ids, bags.source) or outcome,
    "covariates": _covariates,
    "groups": lambda groups, bags: validate.group_array(groups, bags.ids, bags.source),
    "sites": lambda sites, bags: validate.site_array(sites, bags.source),
    "splits": lambda splits, bags: validate.split_array(splits, bags.ids, bags.source),
    "weights": lambda weights, bags: validate.weight_array(weights, bags.source),
    "instance_labels": lambda labels, bags: validate.instance_label_array(labels, len(bags.instances), bags.source),
    "digests": lambda digests, bags: validate.digest_array(digests, bags.source),
    "feature_names": lambda names, bags: tuple(names_of(names, bags.source)),
    "columns": lambda columns, bags: tuple(columns),  # noqa: ARG005
    "sources": lambda texts, bags: validate.text_array(texts),  # noqa: ARG005
    "attributes": lambda texts, bags: validate.text_array(texts),  # noqa: ARG005
    "cut": lambda cut, bags: dict(cut),  # noqa: ARG005
    "coords": lambda coords, bags: coords,  # noqa: ARG005
    "left_out": lambda rows, bags: tuple(rows),  # noqa: ARG005
}


def taken(fields: Mapping[str, Any], index: Any) -> dict[str, Any]:
    """Return parameters of `Bags` with a value for each bag, for the bags at these positions; None stays None."""
    parts = {name: part for name, part in fields.items() if part is not None}
    return {**fields, **{name: x.subset(index) if hasattr(x, "subset") else x[index] for name, x in parts.items()}}


def refuse_others(fields: Collection[str], known: Collection[str], caller: str) -> None:
    """Raise a `TypeError` for a keyword that `caller` does not take, as Python does."""
    for name in sorted({*fields} - {*known})[:1]:
        raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")


def warn_of_doubts(bags: Bags) -> None:
    """Warn once about ids, groups, sites and classes that are nearly the same, and about images with channels last."""
    classes = [name for name in bags.classes or () if isinstance(name, str)]
    kinds = {"bags": bags.ids.tolist(), "classes": classes if bags.outcome is None else bags.outcome.names}
    kinds |= {name: column.tolist() for name in ("groups", "sites") if (column := getattr(bags, name)) is not None}
    warn_of_alike(kinds, source=bags.source)
    shape = bags.instance_shape
    if len(shape) == 3 and shape[1] >= 8 and shape[2] in (1, 3, 4):
        text = f"instances of shape {shape} look like images with their channels last (in {bags.source})"
        warn(f"{text}: they are read as [channels, rows, columns]; move the axis with numpy.moveaxis", stacklevel=4)


def both_classes(bags: Bags) -> None:
    """Refuse labeled bags of one class only, with a `OneClassError`."""
    labels = bags.require_labels()
    validate.require_both(int(labels.sum()), int((labels == 0).sum()), bags.source)
