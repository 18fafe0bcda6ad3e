"""Features matched to a model by name, and missing values filled with mean, median or zero."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import number_of
from midam.data.on_disk import Rows, on_disk
from midam.data.validate import FEATURES_SHOWN, feature_order
from midam.errors import Note, given, listed

_NINES = tuple(10.0**digits - 1 for digits in range(2, 9))
_MARKS = (*_NINES, *(-nines for nines in _NINES), -32768.0, -(2.0**31), -(2.0**63))
_OUTSIDE = 5  # times the size of all other values
_READ = 1 << 26  # bytes of features on disk that are read to look for marks


def missing_counts(bags: Bags) -> NDArray[np.int64]:
    """Return the number of missing values (NaN) of each feature, in an instance's shape; bags on disk have none."""
    counts = np.zeros(bags.instance_shape, dtype=np.int64)
    for number in range(len(bags) if _may_miss(bags) else 0):
        counts += np.isnan(bags[number]).sum(axis=0)
    return counts


def missing_shares(bags: Bags) -> NDArray[np.float32] | None:
    """Return the share of missing values of each feature in each bag [N, ...]; None if no value is missing."""
    if not _may_miss(bags) or not missing_counts(bags).any():
        return None
    return np.stack([np.isnan(bags[number]).mean(axis=0, dtype=np.float32) for number in range(len(bags))])


def fill_values(train: Bags, strategy: str) -> NDArray[Any]:
    """Return a fill value for each feature: the mean or median of its known values in the training bags, or 0.

    Parameters
    ----------
    train : Bags
        The bags to train on, and no others.
    strategy : {"mean", "median", "zero"}
        Mean and median are over the known values, with equal weight for all instances. A feature without any value is
        filled with 0, with a warning.

    Returns
    -------
    array
        In the shape of an instance.

    Examples
    --------
    >>> train = Bags.from_arrays([[1.0, np.nan], [3.0, 5.0]], [0, 1], [0, 1], missing=True)
    >>> fill_values(train, "mean")
    array([2., 5.])
    """
    if strategy == "zero" or not _may_miss(train):
        return np.zeros(train.instance_shape, dtype=train.instances.dtype)
    rows = np.concatenate([train[number] for number in range(len(train))])
    empty = np.isnan(rows).all(axis=0)
    if empty.any():
        names = [place_name(train, at) for at in np.argwhere(empty)]
        text = f"no training bag has a value of {listed(names)}: gaps are filled with 0"
        text += f"; leave out what is rarely known, in a table with {given(ignore=names)}"
        warnings.warn(f"{text} (in {train.source})", stacklevel=4)
        rows = np.where(empty, 0, rows)
    statistic: Any = {"mean": np.nanmean, "median": np.nanmedian}[strategy]
    return np.asarray(statistic(rows.astype(np.float64, copy=False), axis=0), dtype=train.instances.dtype)


def impute(bags: Bags, values: NDArray[Any]) -> Bags:
    """Return the same bags with `values`, in the shape of an instance, instead of missing values.

    Examples
    --------
    >>> bags = Bags.from_arrays([[1.0, np.nan], [3.0, 5.0]], [0, 1], missing=True)
    >>> impute(bags, np.array([0.0, 9.0]))[0]
    array([[1., 9.]])
    """
    rows = bags.instances
    if not isinstance(rows, np.ndarray) or not _may_miss(bags) or not np.isnan(rows).any():
        return bags
    return bags.replace(instances=np.where(np.isnan(rows), np.asarray(values, dtype=rows.dtype), rows), digests=None)


def _may_miss(bags: Bags) -> bool:
    return isinstance(bags.instances, np.ndarray) and bags.instances.dtype.kind == "f"


def place_name(bags: Bags, at: NDArray[np.int64]) -> str:
    """Return the name of a feature, or its position in an instance."""
    if bags.feature_names is not None and len(at) == 1:
        return bags.feature_names[int(at[0])]
    return ",".join(map(str, at.tolist()))


def align_features(bags: Bags, names: Sequence[str] | None, *, reference: str) -> Bags:
    """Return bags with the features of these names, in this order; the names are those of the `reference`.

    If the bags or the reference have no names, the features keep their order and get the names of the other side, with
    a note. `reference` says in messages whose features these are. Features on disk are not read.

    Examples
    --------
    >>> bags = Bags.from_arrays([[1.0, 2.0]], [0], feature_names=["b", "a"])
    >>> align_features(bags, ["a", "b"], reference="the run")[0].tolist()
    [[2.0, 1.0]]
    """
    features = bags.feature_names
    if features == (None if names is None else tuple(names)):
        return bags
    if names is None or features is None:
        if len(bags.instance_shape) != 1 or len(names or features or ()) != bags.instance_shape[0]:
            return bags  # another width, which the caller refuses
        order = f"keep their order: {reference} has no names"
        if features is None:
            order = f"have no names: they are read in the order of {reference}"
        shown = listed(names or features or (), most=FEATURES_SHOWN)
        warnings.warn(f"the features {order}: {shown} (in {bags.source})", Note, stacklevel=3)
        return bags.replace(feature_names=names)
    places = np.array(feature_order(names, features, reference=reference, where=bags.source))
    x = bags.instances
    picked = _PickedRows(x, places) if on_disk(x) else np.ascontiguousarray(x[..., places])
    columns = None if bags.columns is None else [bags.columns[place] for place in places.tolist()]
    return bags.replace(instances=picked, feature_names=names, columns=columns, digests=None)


class _PickedRows(Rows):
    """Selected features of instances on disk, in a given order."""

    def __init__(self, rows: Any, places: NDArray[np.int64]) -> None:
        self._rows, self._places = rows, places
        self.shape, self.dtype = (*rows.shape[:-1], len(places)), rows.dtype
        if isinstance(rows, Rows):
            self.paths, self.plan = rows.paths, f"{rows.plan} {places.tolist()}"

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._rows[positions])[..., self._places]

    def close(self) -> None:
        if isinstance(self._rows, Rows):
            self._rows.close()


def warn_of_marks(bags: Bags) -> None:
    """Warn of `marked_missing` values."""
    if line := marked_missing(bags):
        advice = f"if it marks a missing value, leave the field empty; features then need {given(impute='median')}"
        warnings.warn(f"{line}: {advice} (in {bags.source})", stacklevel=4)


def marked_missing(bags: Bags) -> str:
    """Return a sentence on features, covariates and labels with a usual mark of missing values, such as -9999.

    The mark lies far outside of the other values.

    "" if there are none; features of more than 64 MiB on disk are not looked at.

    Examples
    --------
    >>> rows = [[0.1], [0.3], [-9999.0], [0.2]]
    >>> marked_missing(Bags.from_arrays(rows, [0, 0, 1, 1], [0, 1], feature_names=["area"]))
    '-9999 in 1 of 4 values of area lies far outside the others'
    """
    marks, columns, x = np.array(_MARKS, dtype=np.float64), dict[str, NDArray[np.float64]](), bags.instances
    if len(bags.instance_shape) == 1 and not (on_disk(x) and x.nbytes > _READ):
        x = x if len(x) == bags.num_instances and not on_disk(x) else bags.gather(bags.rows())  # copies them
        ends = np.stack([np.fmin.reduce(x, axis=0), np.fmax.reduce(x, axis=0)]).astype(np.float64)
        places = np.flatnonzero(np.isin(ends, marks).any(axis=0)).tolist()
        columns = {place_name(bags, np.array([at])): x[:, at].astype(np.float64) for at in places}
    if bags.covariates is not None:
        pairs = zip(bags.covariates.names, bags.covariates.columns)
        columns |= {f"the covariate {name}": column for name, column in pairs if column.dtype.kind == "f"}
    if bags.outcome is not None:
        labels = bags.outcome.columns().items()
        columns |= {f"the {name}": np.array([*map(number_of, map(str, column))], np.float64) for name, column in labels}
    named = list[str]()
    for name, values in columns.items():
        others = np.abs(values[~np.isnan(values) & ~np.isin(values, marks)])
        for mark in np.intersect1d(values, marks).tolist() if len(others) else ():
            if others.max() * _OUTSIDE < abs(mark):
                named.append(f"{mark:.0f} in {(values == mark).sum()} of {len(values)} values of {name}")
    return f"{listed(named, most=FEATURES_SHOWN)} lies far outside the others" if named else ""
