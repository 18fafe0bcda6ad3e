"""Inputs of an estimator of bags: forms of X, features matched by name, labels by bag."""

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array

from midam.data import validate
from midam.data.bags import Bags, both_classes, warn_of_doubts
from midam.data.missing import align_features
from midam.data.sources.frames import frame_arrays
from midam.data.sources.table_columns import plain_numbers
from midam.errors import BagDataError, listed
from midam.lazy_imports import pandas as pd
from midam.names import name_of

PerBag = ArrayLike | None  # a value for each bag, or none
ROWS = "rows in memory"  # the source of bags of one instance that came as rows [N, D]


def bags_of(
    X: Any,
    *,
    estimator: object,
    names: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: bool = False,
) -> Bags:
    """Make bags of X, the input of an estimator.

    Parameters
    ----------
    X : Bags, DataFrame, array or sequence
        `Bags`; a DataFrame with a MultiIndex of two levels, bag and instance; a sequence of N arrays [n_i, ...], or
        of N DataFrames, whose columns are matched by name; an array [N, n, ...] of bags of one size; rows [N, D], each
        a bag of one instance.
    estimator : object
        Estimator, named in messages.
    names : sequence of str, optional
        Features to select, in this order, if X has names; others are left out with a note.
    kinds : mapping of str to str, optional
        Kinds of the columns of a DataFrame, if known: see `midam.read_bags`.
    missing : bool
        Whether values may be NaN.

    Raises
    ------
    BagDataError
        If X is none of these, a bag is invalid, or a feature is missing.
    """
    validate.refuse_masked(X)
    if isinstance(X, Bags):
        return X if names is None or X.feature_names is None else align_features(X, names, reference="fit")
    if isinstance(X, str | PathLike):
        raise BagDataError(f"Expected bags, got the string {str(X)!r}; read files with midam.read_bags.")
    if is_frame(X):
        return _bags_of_frame(X, estimator, names, kinds, missing=missing)
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = list(X)
    if isinstance(X, list | tuple):
        if any(is_frame(part) for part in X):
            return _bags_of_frame(_stacked(X, names), estimator, names, kinds, missing=missing)
        if any(issparse(part) for part in X):
            raise TypeError("Expected dense bags, got sparse ones; give arrays, such as bag.toarray().")
        parts = [validate.bag_array(part, number) for number, part in enumerate(X)]
        if any(part.ndim > 1 for part in parts):
            return Bags.from_list(parts, missing=missing)
        X = parts if parts else np.empty((0, 1))
    elif not issparse(X):
        stack = validate.as_array(X) if hasattr(X, "resolve_neg") else np.asanyarray(X)
        if stack.ndim == 0:
            forms = "Bags, a DataFrame, an array, or a list of arrays, one per bag"
            raise BagDataError(f"Expected bags, got {type(X).__name__}; give {forms}.")
        if stack.ndim > 2:
            flat = stack.reshape(stack.shape[0] * stack.shape[1], *stack.shape[2:])
            bags = Bags(flat, sizes=np.full(len(stack), stack.shape[1]))
            bags.check(missing=missing)
            return bags
    rows = check_array(X, input_name="X", estimator=estimator, ensure_all_finite=not missing or "allow-nan")
    return _bags_of_rows(rows)


def is_frame(X: object) -> bool:
    """Return whether X is a DataFrame of pandas."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def with_weights(bags: Bags, weights: Any) -> Bags:
    """Return the bags whose weight [N] is not 0, with their weights."""
    values = validate.as_array(weights, np.float64)
    validate.check_length(values, len(bags), "weight", bags.source)
    if not values.any():
        raise BagDataError("Expected a weight above 0, got zero for each bag; give weights above 0.")
    kept = bags.subset(np.flatnonzero(values)).replace(weights=values[values != 0])
    both_classes(kept)
    return kept


def per_bag(values: Any, X: Any, kind: str) -> Any:
    """Return labels or groups (`kind`, for messages) in the order of the bags of X.

    A Series or DataFrame that has the bags of a DataFrame, or the names of `Bags`, as index is put in their order, see
    `in_bag_order`. With a value per row of a DataFrame, all rows of a bag must have the same value.
    """
    validate.refuse_masked(values)
    if isinstance(X, Bags) or (is_frame(X) and X.index.nlevels == 1 and X.index.is_unique):
        return validate.in_bag_order(values, X.ids if isinstance(X, Bags) else X.index.map(name_of), kind, strict=False)
    indexed = hasattr(values, "iloc") and values.index.nlevels == 1
    if not (is_frame(X) and X.index.nlevels == 2) or values is None:
        return values
    codes, level = X.index.get_level_values(0).factorize()
    again, bags = level.map(name_of).factorize()
    if len(values) == len(X) and (len(X) != len(bags) or (hasattr(values, "iloc") and not indexed)):
        if hasattr(values, "iloc") and not values.index.equals(X.index):
            raise BagDataError(f"Expected {kind}s of rows with the index of X, got another index; set it to X.index.")
        rows, first = np.asarray(values), np.unique(again[codes], return_index=True)[1]
        for row in np.flatnonzero(_differ(rows, rows[first][again[codes]]))[:1]:
            raise BagDataError(f"Expected one {kind} in a bag, got several (bag {level[codes[row]]}); correct them.")
        return values.iloc[first] if is_frame(values) else rows[first]
    named = indexed and len(values) == len(bags) and values.index.isin(level).all()
    if not indexed or ([*values.index] == [*range(len(values))] and not named):
        return values
    return validate.in_order(values, bags, kind)


def warn_of_groups_for_bags(bags: Bags) -> None:
    """Warn if each row is a bag of one instance, but the groups look like bags: several rows with one label each."""
    if bags.source != ROWS or bags.groups is None or bags.labels is None:
        return
    names, group = np.unique(bags.groups, return_inverse=True)
    kinds = len(np.unique(np.stack([group, bags.labels]), axis=1).T)
    if kinds == len(names) < len(bags):
        warn(
            f"each of the {len(bags)} rows of X is read as a bag of one instance, and rows of a group have the same "
            "label; if the groups are the bags, use Bags.from_dataframe(frame, bag_column), or give X a MultiIndex "
            "(bag, instance)",
            stacklevel=6,
        )


def warn_of_known_groups(bags: Bags, groups: Collection[str], ids: Collection[str]) -> None:
    """Warn about bags of the `groups` of a training, as patients, that are not among its bags `ids`."""
    if bags.groups is not None:
        known = np.isin(bags.groups, [*groups]) & ~np.isin(bags.ids, [*ids])
        if known.any():
            text = f"{known.sum()} of {len(bags)} bags are of groups of the training, as patients: a metric of them"
            warn(f"{text} is too good; split by groups, as GroupKFold does", stacklevel=5)


def _differ(first: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether the rows [M] of two arrays [M] or [M, L] differ; values missing in both are equal."""
    differ = np.asarray((first != other) & ((first == first) | (other == other)))  # noqa: PLR0124
    return np.asarray(differ.reshape(len(differ), -1).any(axis=1))


def _bags_of_rows(rows: NDArray[Any], names: tuple[str, ...] | None = None) -> Bags:
    return Bags(rows, sizes=np.ones(len(rows), dtype=np.int64), feature_names=names, source=ROWS)


def _bags_of_frame(
    frame: "pd.DataFrame",
    estimator: object,
    names: Sequence[str] | None,
    kinds: Mapping[str, str] | None,
    *,
    missing: bool,
) -> Bags:
    levels, columns = frame.index.nlevels, _names(frame)
    advice = "give it a MultiIndex (bag, instance), or make bags with Bags.from_dataframe(frame, bag_column=...)"
    if levels > 2 or "bag" in [*map(name_of, frame.index.names)][1:]:
        got = f"{levels}: {', '.join(map(str, frame.index.names))}"
        raise BagDataError(f"Expected an index of two levels, bag and instance, got {got}; {advice}.")
    for column in ("bag", "label") if names is None else ():
        if column in columns:
            raise BagDataError(f"Expected only features, got the column {column!r}; leave it out, {advice}.")
    if levels == 1 and not frame.index.is_unique:
        raise BagDataError(f"Expected one row per bag, got several of one index; {advice}.")
    frame = selected(frame, columns, names, "a DataFrame")
    if levels == 2:
        arrays = frame_arrays(frame, "a DataFrame", impute=missing, features=names, kinds=kinds)
        bags = Bags.from_arrays(**arrays)
        warn_of_doubts(bags)
        return bags
    if "m" in {kind.kind for kind in frame.dtypes}:
        frame = frame.apply(plain_numbers)
    try:
        rows = check_array(frame, input_name="X", estimator=estimator, ensure_all_finite=not missing or "allow-nan")
    except ValueError:
        words = [name for name in frame.columns if pd.to_numeric(frame[name], errors="coerce").isna().all()]
        if not words:
            raise
        raise BagDataError(
            f"Expected numbers, got text in {listed(words)} (in a DataFrame); encode or drop them. If one names the "
            f"bags: Bags.from_dataframe(frame, bag_column={words[0]!r})."
        ) from None
    return _bags_of_rows(rows, _names(frame))


def _stacked(frames: Sequence[Any], names: Sequence[str] | None) -> "pd.DataFrame":
    """Return one DataFrame of those of the bags; their columns are those of the first in any order, or the `names`."""
    parts: list[Any] = []
    for number, frame in enumerate(frames):
        if not is_frame(frame):
            raise BagDataError(f"Expected only DataFrames, got {type(frame).__name__} (bag {number}); convert it.")
        if not len(frame):
            raise BagDataError(validate.empty_bag_message(number, "memory"))
        columns, first = _names(frame), parts[0].columns if parts else _names(frame)
        if names is None and set(columns) != set(first):
            differ = sorted(set(columns) ^ set(first))[0]
            got = f"got {differ!r} only in some (bag {number})"
            raise BagDataError(f"Expected the same columns in all bags, {got}; add or drop it.")
        part = selected(frame, columns, list(first) if names is None else names, f"bag {number}")
        parts.append(part.reset_index(drop=True))
    return pd.concat(parts, keys=range(len(parts)))


def selected(frame: Any, columns: tuple[str, ...], names: Sequence[str] | None, where: str) -> Any:
    """Return the columns of a DataFrame with these `names`; `columns` are the normalized names of its columns."""
    names = columns if names is None else names
    places = validate.feature_order(names, columns, reference="fit", where=where)
    return frame.set_axis(list(columns), axis=1)[[columns[place] for place in places]]


def _names(frame: Any) -> tuple[str, ...]:
    return validate.check_feature_names(frame.columns, frame.shape[1], "a DataFrame", kind="columns")
