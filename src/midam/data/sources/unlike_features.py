"""Columns of a table that are likely no features: they name patients, number instances, or give away the label."""

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.label_values import Coded
from midam.data.sources.table_columns import is_group_like, is_row_like
from midam.errors import Note, given
from midam.synonyms import is_id_like

if TYPE_CHECKING:
    import pandas as pd

_OF_LABEL = re.compile(r"(labels?|target|class|outcome|event|time|survival|status|diagnosis|grade|stage|death)(_.*)?")
_FEW = 8  # bags: with no more of them a feature can be such by chance


def is_label_like(name: str) -> bool:
    """Whether a column is called as one of labels is: label, label_er, time, event, grade, status."""
    return _OF_LABEL.fullmatch(name.strip().lower()) is not None


def warn_of_features(
    frame: "pd.DataFrame", features: Sequence[str], codes: NDArray[np.int64], labels: Coded, *, where: str
) -> None:
    """Warn of columns that are read as features, and are likely none.

    - One called as patients are, with one value in each bag.
    - One called as instances are, that counts them, or called an id, with a whole number of its own in each row.
    - One with one value in each bag: a label, or a covariate. Where it is called as
      labels are, or where it follows the label of the bags, it gives the answer away.
    - One of two values, the larger of which stands in the positive bags and in no other: labels of instances.

    Parameters
    ----------
    frame : DataFrame
        The table, of M rows.
    features : sequence of str
        Its columns that are features, numeric and without gaps.
    codes : int64 array [M]
        Number of the bag of each row, from 0.
    labels : Coded
        What the bags are ranked by.
    where : str
        Where the table is from, for messages.
    """
    firsts = np.unique(codes, return_index=True)[1]
    many = len(firsts) > _FEW
    several, named = many and len(codes) > len(firsts), []
    telling, of_bags, of_instances = [], [], []
    known = _label_columns(labels)
    for column in features:
        if (is_row_like(column) and set(frame[column].groupby(codes).diff().dropna()) == {1}) or (
            several and is_id_like(column) and _names_rows(frame[column].to_numpy())
        ):
            _warn(column, where, f"if it numbers the instances, leave it out with {given(ignore_columns=[column])}")
        elif _is_constant(values := frame[column].to_numpy(), codes, firsts):
            if is_group_like(column):
                named.append(column)
            elif is_label_like(column) or (several and any(_follows(values[firsts], label) for label in known)):
                telling.append(column)
            elif several and (values[firsts] != values[firsts[0]]).any():
                of_bags.append(column)
        elif any(_holds_label(values, codes, label) for label in known if many):
            of_instances.append(column)
    for column in named:
        group, leave = given(group_column=column), given(ignore_columns=[column])
        why = f"if it names patients, give {group}, so that no patient is in two splits, or leave it out with {leave}"
        _warn(column, where, why)
    _warn_of_several(telling, where, "one value in each bag, as labels have: if a value tells the label")
    _warn_of_several(of_instances, where, "the larger of two values in the positive bags alone: if these are labels")
    if of_bags:
        has, are = ("has", "is") if len(of_bags) == 1 else ("have", "are")
        take, leave = given(covariates=of_bags), given(ignore_columns=of_bags)
        warnings.warn(
            f"{_columns(of_bags)} {has} one value in each bag, and {are} read as features (in {where}): "
            f"name what is known of a bag beside them with {take}, and leave out what is not known of new bags with "
            f"{leave}",
            Note,
            stacklevel=5,
        )


def _warn(column: str, where: str, why: str) -> None:
    warnings.warn(f"column {column} is read as a feature (in {where}): {why}", stacklevel=6)


def _warn_of_several(columns: list[str], where: str, why: str) -> None:
    if columns:
        what, them = (
            ("is read as a feature and has", "it") if len(columns) == 1 else ("are read as features and have", "them")
        )
        leave = given(ignore_columns=columns)
        warnings.warn(f"{_columns(columns)} {what} {why}, leave {them} out with {leave} (in {where})", stacklevel=6)


def _columns(names: Sequence[str]) -> str:
    return f"column {names[0]}" if len(names) == 1 else f"columns {', '.join(names[:-1])} and {names[-1]}"


def _is_constant(values: NDArray[np.float64], codes: NDArray[np.int64], firsts: NDArray[np.intp]) -> bool:
    """Whether values [M] are one in each bag; for most columns the first rows decide."""
    start = (values[:64] == values[firsts[codes[:64]]]).all()
    return bool(start and (values == values[firsts[codes]]).all())


def _names_rows(values: NDArray[np.float64]) -> bool:
    """Whether values [M] are whole numbers, another one in each row."""
    return bool((values == np.floor(values)).all() and len(np.unique(values)) == len(values))


def _label_columns(labels: Coded) -> list[NDArray[np.float64]]:
    """Columns [N] of the label: 0 and 1, codes of classes, one a label, time and event."""
    if labels.outcome is None:
        return [] if labels.labels is None else [labels.labels.astype(np.float64)]
    return [*labels.outcome.values.T]


def _follows(values: NDArray[np.float64], label: NDArray[np.float64]) -> bool:
    """Whether bags in the order of their values [N] are in that of their labels [N], or in the reverse one."""
    known = ~np.isnan(label) & np.array([value is not None for value in values], dtype=np.bool_)
    distinct, of = np.unique(values[known], return_inverse=True)
    low, high = np.full(len(distinct), np.inf), np.full(len(distinct), -np.inf)
    np.minimum.at(low, of, label[known])
    np.maximum.at(high, of, label[known])
    if len(distinct) < 2 or (low != high).any() or low.min() == low.max():
        return False
    steps = np.diff(low)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _holds_label(values: NDArray[np.float64], codes: NDArray[np.int64], label: NDArray[np.float64]) -> bool:
    """Whether values [M] are two, the larger of which stands in bags of the label 1 alone, and in each of them."""
    low, high = values.min(), values.max()
    if low == high or not set(np.unique(label)) <= {0.0, 1.0} or not np.isin(values[:64], (low, high)).all():
        return False
    most = np.zeros(len(label))
    np.maximum.at(most, codes, (values == high).astype(np.float64))
    return bool(np.isin(values, (low, high)).all() and (most == label).all())
