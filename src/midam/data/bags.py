"""Bags of instances: all bags of a data set share one flat array of instances, in memory or on disk."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data import validate
from midam.data.brief import html_bars, html_table
from midam.data.covariates import Column, Covariates
from midam.data.digests import fingerprint
from midam.data.left_out import LeftOut
from midam.data.on_disk import Rows, row_positions
from midam.data.target_labels import TargetLabels
from midam.data.validate import SPLITS, ClassName
from midam.errors import BagDataError
from midam.names import names_of, warn_of_alike

if TYPE_CHECKING:
    import pandas as pd

_OPTIONAL = ("groups", "sites", "splits", "sources", "attributes", "weights")
_PER_BAG = ("starts", "sizes", "ids", "labels", "digests", *_OPTIONAL)


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
        Labels of a target other than two classes; then `labels` is None.
    covariates : Covariates or mapping of arrays [N], optional
        Metadata of the bags: numbers or categories by name, see `Covariates`.
    groups : array of str, shape [N], optional
        Group of each bag, such as its patient, slide or scanner; no group may be in two splits.
    sites : array of str, shape [N], optional
        Hospital or scanner that each bag comes from, empty if unknown; batches can be balanced by site. Stores and npz
        files keep no sites; save them as a covariate there.
    splits : array of str, shape [N], optional
        ``"train"``, ``"val"`` or ``"test"``.
    weights : array [N], optional
        How much each bag counts in a training on two classes, above 0; files keep no weights.
    coords : array or Rows, shape [M, C], optional
        Coordinates of each instance in its bag, for example in pixels.
    witnesses : array of bool, shape [M], optional
        Instances known to make their bag positive; only for curves and explanations, never for training.
    digests : array of uint8, shape [N, 32], optional
        Known SHA-256 of each bag's content, see `bag_digests`. Strings of hexadecimal digits, shape [N], are accepted
        too.
    sources : array of str, shape [N], optional
        File or files that each bag was read from.
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
        ids: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        classes: Sequence[ClassName] | None = None,
        outcome: TargetLabels | None = None,
        covariates: Covariates | Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        sites: ArrayLike | None = None,
        splits: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        coords: NDArray[Any] | Rows | None = None,
        witnesses: ArrayLike | None = None,
        digests: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        columns: Sequence[Column] | None = None,
        sources: ArrayLike | None = None,
        attributes: ArrayLike | None = None,
        cut: Mapping[str, Any] | None = None,
        left_out: Sequence[LeftOut] = (),
        source: str = "memory",
    ) -> None:
        sizes = validate.int_array(sizes, "sizes", source)
        starts = np.cumsum(sizes) - sizes if starts is None else starts
        ids = validate.id_array(np.arange(len(sizes)) if ids is None else ids, source)
        names = None if classes is None else validate.class_names(classes, source)
        if isinstance(covariates, Mapping):
            covariates = Covariates.of(covariates, source=source)
        self.instances = instances
        self.starts = validate.int_array(starts, "starts", source)
        self.sizes = sizes
        self.ids = ids
        self.labels = None if labels is None else validate.label_array(labels, ids, source, classes=names)
        self.classes = names
        self.outcome = outcome
        self.covariates = covariates
        self.groups = None if groups is None else validate.group_array(groups, ids, source)
        self.sites = None if sites is None else validate.site_array(sites, source)
        self.splits = None if splits is None else validate.name_array(splits, source)
        self.weights = None if weights is None else validate.weight_array(weights, source)
        self.coords = coords
        self.witnesses = None if witnesses is None else validate.witness_array(witnesses, len(instances), source)
        self.digests = None if digests is None else validate.digest_array(digests, source)
        self.feature_names = None if feature_names is None else tuple(names_of(feature_names, source))
        self.columns = None if columns is None else tuple(columns)
        self.sources = None if sources is None else validate.text_array(sources)
        self.attributes = None if attributes is None else validate.text_array(attributes)
        self.cut = None if cut is None else dict(cut)
        self.left_out = tuple(left_out)
        self.source = source
        self.check(finite=False)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        bag: ArrayLike,
        y: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        classes: Sequence[ClassName] | None = None,
        outcome: TargetLabels | None = None,
        covariates: Covariates | Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        splits: ArrayLike | None = None,
        coords: ArrayLike | None = None,
        witnesses: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        columns: Sequence[Column] | None = None,
        source: str = "memory",
        missing: bool = False,
    ) -> Self:
        """Make bags from instances `X` [M, ...], bag numbers `bag` [M] from 0 to N - 1, and labels `y` [N].

        The rest is as in `Bags`. Unsorted instances are copied into bag order and keep their order within a bag. With
        `missing`, some values may be NaN; `midam.data.missing` fills them.

        Examples
        --------
        >>> Bags.from_arrays([[1.0], [2.0], [3.0]], bag=[1, 0, 1], y=[0, 1])[1].ravel()
        array([1., 3.])
        """
        # np.asarray would turn a memory map into a plain array.
        X = validate.as_array(X) if hasattr(X, "resolve_neg") else np.asanyarray(X)
        numbers = validate.int_array(bag, "bag numbers", source)
        if X.ndim == 0 or len(X) != len(numbers):
            raise BagDataError(
                f"Expected one bag number for each instance, got {len(numbers)} for instances {X.shape} "
                f"(in {source}); give both the same length."
            )
        names = None if ids is None else validate.id_array(ids, source)
        given_labels = outcome if y is None else np.atleast_1d(np.asarray(y))
        expected = 0 if given_labels is None else len(given_labels)
        sizes = validate.count_instances(numbers, expected, names, source)
        arrays = {"coords": coords, "witnesses": witnesses}
        parts = {name: np.asanyarray(part) for name, part in arrays.items() if part is not None}
        if np.any(np.diff(numbers) < 0):
            order = np.argsort(numbers, kind="stable")
            X = X[order]
            # The constructor refuses parts of another length.
            parts = {name: part[order] if len(part) == len(order) else part for name, part in parts.items()}
        others: dict[str, Any] = {"classes": classes, "groups": groups, "splits": splits, "source": source, **parts}
        others |= {"feature_names": feature_names, "columns": columns, "outcome": outcome, "covariates": covariates}
        bags = cls(X, sizes=sizes, ids=names, labels=y, **others)
        bags.check(missing=missing)
        if source == "memory":  # the readers of files warn themselves
            warn_of_alike_names(bags)
        return bags

    @classmethod
    def from_list(
        cls,
        arrays: Sequence[ArrayLike],
        labels: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        classes: Sequence[ClassName] | None = None,
        outcome: TargetLabels | None = None,
        covariates: Covariates | Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        splits: ArrayLike | None = None,
        coords: Sequence[ArrayLike] | None = None,
        source: str = "memory",
        missing: bool = False,
    ) -> Self:
        """Make bags from a list of arrays [n_i, ...], one per bag; `coords` is a list too, the rest as in `Bags`.

        With `missing`, some values may be NaN.

        Examples
        --------
        >>> Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1]).sizes
        array([1, 2])
        """
        parts = [validate.bag_array(part, number) for number, part in enumerate(arrays)]
        names = validate.id_array(np.arange(len(parts)) if ids is None else ids, source)
        instances = validate.concatenate(parts, names, "instances", source)
        sizes = np.array([len(p) for p in parts], dtype=np.int64)
        places = None
        if coords is not None:
            rows = [validate.as_array(part) for part in coords]
            if [len(c) for c in rows] != sizes.tolist():
                raise BagDataError(
                    f"Expected coordinates as long as the bags, got other lengths (in {source}); give one row of "
                    "coordinates for each instance."
                )
            places = validate.concatenate(rows, names, "coordinates", source)
        others: dict[str, Any] = {"classes": classes, "groups": groups, "splits": splits, "source": source}
        others |= {"outcome": outcome, "covariates": covariates}
        bags = cls(instances, sizes=sizes, ids=names, labels=labels, coords=places, **others)
        bags.check(missing=missing)
        warn_of_alike_names(bags)
        return bags

    @classmethod
    def from_dataframe(
        cls,
        frame: "pd.DataFrame",
        bag_column: str = "bag",
        label_column: str = "label",
        *,
        group_column: str | None = None,
        split_column: str | None = None,
        coord_columns: Sequence[str] = (),
        ignore_columns: Sequence[str] = (),
        categories: Sequence[str] = (),
        covariates: Sequence[str] = (),
        site_column: str | None = None,
        positive: str | None = None,
        target: str = "auto",
        grades: Sequence[str] = (),
        classes: Sequence[ClassName] | None = None,
        source: str = "a DataFrame",
        impute: bool = False,
    ) -> "Bags":
        """Make bags from a DataFrame whose rows are instances, as `midam.read_bags` does from a table.

        Bags are in the order of their first rows; every column that is not named is a feature. Without a column
        `bag_column`, the first of two levels of the index names the bag; without a column "label", the bags have no
        labels. Messages call the frame `source`; the frame is not changed. With `impute`, values may be NaN: an
        estimator or a run with `impute` fills them. The other parameters are those of `midam.read_bags`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"bag": ["a", "a", "b"], "label": [1, 1, 0], "area": [1.0, 2.0, 3.0]})
        >>> Bags.from_dataframe(frame)
        Bags(2 bags, 1 positive, 3 instances (1,))
        """
        arguments = {**locals()}
        for name in ("cls", "frame", "source"):
            del arguments[name]
        from midam.data.sources.frames import frame_arrays

        arrays, sites = frame_arrays(frame, source, **arguments)
        bags = cls.from_arrays(**arrays)
        bags = bags if sites is None else bags.replace(sites=sites)
        warn_of_alike_names(bags)
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
        if isinstance(index, slice):
            index = np.arange(len(self))[index]
        if np.ndim(index):
            return self.subset(index)
        start = int(self.starts[index])
        return self.instances[start : start + int(self.sizes[index])]

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        """Raise a `TypeError`: bags of different sizes are no array."""
        raise TypeError(
            "Expected an array, got bags, whose sizes may differ; take one bag, bags[i], or all instances, "
            "bags.instances. For permutation importance: midam.permutation_importance(model.to_run(), bags)."
        )

    def __repr__(self) -> str:
        labeled = "unlabeled" if self.labels is None else f"{int(self.labels.sum())} positive"
        labeled = labeled if self.outcome is None else self.outcome.target
        count = "1 bag" if len(self) == 1 else f"{len(self)} bags"
        return f"Bags({count}, {labeled}, {self.num_instances} instances {self.instance_shape})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: counts, and a histogram of the bag sizes."""
        rows: dict[str, object] = {"bags": len(self), "instances": f"{self.num_instances} of {self.instance_shape}"}
        if self.outcome is not None:
            rows["labels"] = self.outcome.target
        elif self.labels is not None:
            rows["positive bags"] = int(self.labels.sum())
        for name, values in (("groups", self.groups), ("splits", self.splits)):
            if values is not None:
                distinct = np.unique(values)
                rows[name] = ", ".join(distinct) if len(distinct) <= len(SPLITS) else len(distinct)
        return html_table(str(self.source), rows, html_bars(self.sizes, "instances"))

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
        index = np.asarray(index)
        rows = index if index.dtype == np.bool_ else index.astype(np.int64)
        parts = {name: getattr(self, name) for name in _PER_BAG}
        selected = {name: None if part is None else part[rows] for name, part in parts.items()}
        tables = {"outcome": self.outcome, "covariates": self.covariates}
        return self.replace(**selected, **{k: None if v is None else v.subset(rows) for k, v in tables.items()})

    def replace(self, **changes: Any) -> Self:
        """Return these bags with other parameters of `Bags`, as in ``bags.replace(labels=[0, 1])``."""
        return type(self)(**{**vars(self), **changes})

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
        before = np.cumsum(self.sizes) - self.sizes
        return np.repeat(self.starts - before, self.sizes) + np.arange(self.num_instances)

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

    def require_labels(self) -> NDArray[np.int64]:
        """Return labels 0 or 1, int64 [N]; refuse bags without labels or with another target."""
        if self.outcome is not None:
            raise BagDataError(
                f"Expected labels of two classes, got the target {self.outcome.target!r} (in {self.source}); name "
                "a positive value, or use a method for this target."
            )
        if self.labels is None:
            raise BagDataError(f"Expected labeled bags, got bags without labels (in {self.source}); add the labels.")
        return self.labels

    def check(self, *, finite: bool = True, missing: bool = False) -> None:
        """Check the structure; with `finite`, also read all instances by chunks and refuse infinity and NaN.

        With `missing`, NaN is allowed.
        """
        ids, source = self.ids, self.source
        validate.check_rows(self.instances, self.coords, source, sound=isinstance(self.instances, np.ndarray | Rows))
        validate.check_layout(self.starts, self.sizes, ids, len(self.instances), source)
        if self.feature_names is not None:
            validate.check_feature_names(self.feature_names, self.instances.shape[-1], source)
        if self.columns is not None and tuple(column.name for column in self.columns) != self.feature_names:
            raise BagDataError(f"Expected `columns` named as the features, got others (in {source}); rename them.")
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                validate.check_length(getattr(self, name), len(ids), name[:-1], source)
        if self.digests is not None:
            validate.check_length(self.digests[:, 0], len(ids), "digest", source)
        if self.splits is not None:
            validate.check_splits(self.splits, ids, source)
        if self.outcome is not None:
            if self.labels is not None:
                raise BagDataError(f"Expected labels or an outcome, got both (in {source}); leave one out.")
            if self.weights is not None:
                target = self.outcome.target
                raise BagDataError(f"Expected two classes with weights, got {target} (in {source}); leave them out.")
            self.outcome.check(ids, source)
        if self.covariates is not None:
            self.covariates.check(ids, source)
        if finite and (self.instances.dtype.kind == "f" or self.instances.dtype == np.uint64):
            self._check_values(missing=missing)

    def _check_values(self, *, missing: bool) -> None:
        """Read the bags by chunks; refuse values beyond 1.8e19 and, unless values may be `missing`, NaN."""
        order = np.argsort(self.starts, kind="stable")
        for first, last in validate.row_chunks(self.instances, self.starts[order], self.sizes[order]):
            chunk = self.instances[first:last]
            if missing:
                chunk = np.nan_to_num(chunk, nan=0.0, posinf=np.inf, neginf=-np.inf)
            good = validate.usable(chunk.reshape(len(chunk), -1)).all(axis=1)
            if not good.all():
                row = int(np.argmin(good))
                bag = order[np.searchsorted(self.starts[order], first + row, side="right") - 1]
                at = first + row - int(self.starts[bag])
                validate.refuse_not_finite(chunk[row:], slice(at, None), f"{self.source}, bag {self.ids[bag]}")

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of the content and of ids, sizes, labels, covariates, columns and sites.

        Bags with the same values have the same fingerprint, in memory or on disk.
        """
        return fingerprint(self)


def warn_of_alike_names(bags: Bags) -> None:
    """Warn once about ids, groups, sites and classes that are nearly the same."""
    classes = [name for name in bags.classes or () if isinstance(name, str)]
    kinds = {"bags": bags.ids.tolist(), "classes": classes if bags.outcome is None else bags.outcome.names}
    kinds |= {name: column.tolist() for name in ("groups", "sites") if (column := getattr(bags, name)) is not None}
    warn_of_alike(kinds, source=bags.source)


def both_classes(bags: Bags) -> None:
    """Refuse labeled bags of one class only, with a `OneClassError`."""
    labels = bags.require_labels()
    validate.require_both(int(labels.sum()), int((labels == 0).sum()), bags.source)
