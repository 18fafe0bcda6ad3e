"""Forms of y and their codes: classes, several labels, grades, numbers, survival."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from midam.data.bags import Bags
from midam.data.sources.labels import NEGATIVE, LabelColumn, code_labels, plain_pair, word_of
from midam.data.sources.request import Request
from midam.data.target_labels import TargetLabels
from midam.data.validate import check_feature_names
from midam.errors import BagDataError, OneClassError
from midam.lazy_imports import pandas as pd
from midam.names import name_of
from midam.sklearn.inputs import is_frame, selected

_SHOWN = 5
MADE_FOR = {
    **dict.fromkeys(("binary", "multiclass", "multilabel"), "MIDAMClassifier"),
    **dict.fromkeys(("ordinal", "continuous"), "MIDAMRanker"),
    "survival": "MIDAMSurvival",
}
_TIME, _EVENT = "time", "event"


class Labeled(NamedTuple):
    """Bags with the labels or the outcome of y."""

    bags: Bags
    classes: NDArray[Any]  # classes, labels or grades as in y, in the order of their codes; empty for numbers
    positive: Any = None  # the positive class of two


def with_classes(bags: Bags, y: Any, *, positive: object, estimator: object) -> Labeled:
    """Return bags with the classes or labels in y.

    Parameters
    ----------
    bags : Bags
        Bags; their labels are used if y is None.
    y : array [N] or [N, L], or None
        Two or more classes, of any values; with several columns 0, 1, or NaN for an unknown label.
    positive : object
        The positive class of two; if None, the positive class of the bags, else the second.
    estimator : object
        Estimator, named in messages.

    Raises
    ------
    BagDataError
        If y has another form, or a label is missing.
    OneClassError
        If there is only one class.
    """
    y = _classes_of(bags, estimator) if y is None else y
    y = y.toarray() if issparse(y) else y
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        return _several_labels(bags, y, positive)
    if getattr(y, "dtype", None) == "boolean" and not y.isna().any():  # of pandas
        y = np.asarray(y, dtype=bool)
    given = column_or_1d(y, warn=True)
    _check_length(bags, given)
    if given.dtype.kind == "O" and any(value is None or value != value for value in given):  # noqa: PLR0124
        raise BagDataError("Expected a label for each bag, got none for some: y contains NaN; drop these bags.")
    plain, given = given.tolist(), in_form(given)
    _check_finite(given)
    check_classification_targets(given)
    if changed := [value for value, name in zip(plain, given.tolist()) if value != name]:
        warn(f"{changed[0]!r} in y is read, and predicted, as {name_of(changed[0])!r}", stacklevel=5)
    classes = np.unique(given)
    if len(classes) > 2:
        _refuse_positive(positive, f"{len(classes)} classes")
        words = list(map(word_of, classes.tolist()))
        outcome = TargetLabels.of("multiclass", np.searchsorted(classes, given), names=words)
        return Labeled(bags.replace(labels=None, outcome=outcome), classes)
    shown = ", ".join(map(repr, classes.tolist()))
    if len(classes) < 2:
        raise OneClassError(f"Expected positive and negative bags, got one class: {shown}; add bags of the other.")
    of_bags = None if bags.classes is None or set(bags.classes) != set(classes.tolist()) else bags.classes[1]
    positive = name_of(positive) if isinstance(positive, str) else positive
    chosen = positive if positive is not None else of_bags if of_bags is not None else classes[1]
    if chosen not in classes.tolist():
        raise BagDataError(f"Expected `positive` in {shown}, got {positive!r}; name one, or give y == {positive!r}.")
    second, words = bool(chosen == classes[1]), [*map(str, classes.tolist())]
    if positive is None and of_bags is None and words[1].casefold() in NEGATIVE and plain_pair(words):
        warn(f"{words[1]!r}, the second class, is positive: positive={words[0]!r} swaps them", stacklevel=5)
    names = None if second and classes.tolist() == [0, 1] else (classes[int(not second)], classes[int(second)])
    labels = (given == chosen).astype(np.int64)
    return Labeled(bags.replace(labels=labels, classes=names, outcome=None), classes, classes[int(second)])


def with_order(bags: Bags, y: Any, *, grades: Sequence[Any] | NDArray[Any] | None, estimator: object) -> Labeled:
    """Return bags with the grades [N] in y, or with its numbers [N] if `grades` (the lowest first) is None.

    If y is None, the labels of the bags are used. A `BagDataError` is raised if y holds other values.
    """
    if y is None:
        outcome = _outcome_of(bags, estimator, "ordinal", "continuous")
        if outcome.target == "ordinal" and grades is None:
            return Labeled(bags, np.array(outcome.names))
        y = outcome.columns()["label"]
    values = column_or_1d(y, warn=True)
    _check_length(bags, values)
    if grades is None:
        _check_finite(values)
        return _coded(bags, {"y": values}, target="continuous")
    return _coded(bags, {"y": values}, np.array(list(grades)), target="ordinal", grades=tuple(map(word_of, grades)))


def with_times(bags: Bags, y: Any, *, estimator: object) -> Labeled:
    """Return bags with the times and events [N, 2] of `times_of`; if y is None, with those of the bags."""
    if y is None:
        _outcome_of(bags, estimator, "survival")
        return Labeled(bags, np.empty(0))
    values = np.asarray(y)
    _check_length(bags, values)
    request, ids = Request("y"), bags.ids.tolist()
    parts = (LabelColumn(name, x.tolist(), request, ids, "y") for name, x in zip((_TIME, _EVENT), values.T))
    numbers = np.stack([part.numbers("give time and event as numbers") for part in parts], axis=1)
    outcome = TargetLabels.of("survival", numbers, names=(_TIME, _EVENT))
    return Labeled(bags.replace(labels=None, outcome=outcome), np.empty(0))


def times_of(y: Any) -> Any:
    """Return time and event of N bags, in this order: an array [N, 2], or a DataFrame with its index.

    In a structured array or a DataFrame, the event is the column of truth values; if there is none, the names time and
    event decide, and in a DataFrame else the order. Another form raises a `BagDataError`.
    """
    if y is None:
        return None
    names = list(y.columns) if is_frame(y) else getattr(getattr(y, "dtype", None), "names", None)
    if names is None:
        array = np.asarray(y)
        if array.ndim != 2 or array.shape[1] != 2:
            raise _no_times(f"shape {array.shape}")
        return array
    if len(names) != 2:
        raise _no_times(f"the columns {', '.join(map(str, names[:_SHOWN]))}")
    kinds = y.dtypes if is_frame(y) else [y.dtype[name] for name in names]
    truths = [str(kind) in ("bool", "boolean") for kind in kinds]
    ordered = _time_and_event(names, truths)
    if is_frame(y):
        return y[list(ordered or names)].astype({name: float for name, truth in zip(names, truths) if truth})
    if ordered is None:
        raise _no_times(f"the fields {', '.join(names)}")
    return np.stack([y[name].astype(np.float64) for name in ordered], axis=1)


def in_form(y: Any) -> Any:
    """Return labels y [N] with texts normalized like names, or objects that are numbers or truth values, as an array.

    Other y stay as they are.
    """
    given = np.asarray(y).ravel()
    if given.dtype.kind == "O" and all(isinstance(value, int | float | np.number) for value in given.tolist()):
        return np.array(given.tolist())
    if not any(isinstance(value, str) for value in given.tolist()):
        return y
    named = [name_of(value) if isinstance(value, str) else value for value in given.tolist()]
    return np.array(named, dtype=np.str_ if given.dtype.kind == "U" else object)


def in_columns(y: Any, names: NDArray[Any]) -> Any:
    """Return labels y [N, L] with the columns of the labels `names`; those of a DataFrame are matched by name."""
    if is_frame(y) and (names.dtype.kind in "UO" or {*y.columns} == {*names.tolist()}):
        y = selected(y, tuple(map(name_of, y.columns)), names.tolist(), "y")
    if np.shape(y)[1:] != names.shape:
        raise BagDataError(f"Expected {len(names)} labels of a bag as in fit, got shape {np.shape(y)}; give all.")
    return y


def _several_labels(bags: Bags, y: Any, positive: object) -> Labeled:
    """Return bags with several labels, named by the columns of a DataFrame, else by number."""
    values = np.asarray(y)
    columns = y.columns if is_frame(y) else range(values.shape[1])
    classes = np.array([name_of(name) if isinstance(name, tuple) else name for name in columns])
    _check_length(bags, values)
    _refuse_positive(positive, f"{len(classes)} labels")
    names = check_feature_names(list(map(word_of, classes.tolist())), len(classes), "y", kind="labels")
    return _coded(bags, dict(zip(names, values.T)), classes, target="multilabel")


def _coded(bags: Bags, columns: Mapping[str, NDArray[Any]], classes: Any = (), **options: Any) -> Labeled:
    """Return bags with the labels of columns of y, read as those of a table."""
    values, ids = {name: column.tolist() for name, column in columns.items()}, bags.ids.tolist()
    outcome = code_labels(values, Request("y", **options), ids=ids, origin="column {} of y" if len(values) > 1 else "y")
    return Labeled(bags.replace(labels=None, outcome=outcome), np.asarray(classes))


def _refuse_positive(positive: object, got: str) -> None:
    if positive is not None:
        advice = f"leave `positive` out, or give y == {positive!r}"
        raise BagDataError(f"Expected two classes in y with `positive`, got {got}; {advice}.")


def _classes_of(bags: Bags, estimator: object) -> Any:
    if bags.outcome is not None:
        outcome = _outcome_of(bags, estimator, "multiclass", "multilabel")
        if outcome.target == "multiclass":
            return np.array(outcome.names)[outcome.values[:, 0].astype(np.int64)]
        return pd.DataFrame(outcome.values, columns=list(outcome.names))
    if bags.labels is None:
        raise _no_labels(bags, estimator)
    return np.array((0, 1) if bags.classes is None else bags.classes)[bags.labels]


def _outcome_of(bags: Bags, estimator: object, *targets: str) -> TargetLabels:
    if bags.outcome is not None and bags.outcome.target in targets:
        return bags.outcome
    if bags.outcome is None and bags.labels is None:
        raise _no_labels(bags, estimator)
    target = "binary" if bags.outcome is None else bags.outcome.target
    raise BagDataError(
        f"Expected bags of the target {' or '.join(targets)}, got {target} (in {bags.source}); use "
        f"{MADE_FOR.get(target, 'midam fit')}, or pass another y."
    )


def _no_labels(bags: Bags, estimator: object) -> BagDataError:
    message = f"Expected labels, got bags without (in {bags.source})"
    return BagDataError(f"{message}: {type(estimator).__name__} requires y to be passed, but the target y is None.")


def _check_finite(given: NDArray[Any]) -> None:
    try:
        assert_all_finite(given, input_name="y")
    except ValueError as reason:
        fault = str(reason).splitlines()[0].removesuffix(".")
        raise BagDataError(f"Expected a label for each bag, got none for some: {fault}; drop these bags.") from None


def _check_length(bags: Bags, given: NDArray[Any]) -> None:
    if len(given) != len(bags):
        advice = "give one label per bag"
        if max(bags.sizes) == 1:
            advice += ". Each row of X is a bag: for larger ones give a list of arrays, or a MultiIndex (bag, instance)"
        raise BagDataError(f"Expected {len(bags)} labels, got {len(given)}; {advice}.")


def _time_and_event(names: Sequence[Any], truths: Sequence[bool]) -> tuple[Any, Any] | None:
    """Return the names of time and event if one of the two columns holds truth values, or if one has such a name."""
    if sum(truths) == 1:
        return names[truths.index(False)], names[truths.index(True)]
    first, second = (str(name).casefold() for name in names)
    swapped, straight = first == _EVENT or second == _TIME, first == _TIME or second == _EVENT
    return (names[swapped], names[not swapped]) if swapped or straight else None


def _no_times(got: str) -> BagDataError:
    return BagDataError(
        f"Expected time and event of each bag in y, got {got}; give an array [N, 2], a DataFrame of two columns, or a "
        "structured array of an event (True or False) and a time."
    )
