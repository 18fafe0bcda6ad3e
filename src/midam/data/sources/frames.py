"""Arrays of bags in a data frame with a row for each instance: columns of the bag, the label and the features.

Warnings name columns that are probably not features: they name patients, number instances, or reveal the label.
"""

import warnings
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources import table_columns as tables
from midam.data.sources.labels import gap_advice, label_columns, labels_or_none, word_of
from midam.data.sources.request import COLUMNS, Request
from midam.data.sources.table_columns import Faults
from midam.data.sources.table_files import check_fields, renamed, worded_columns
from midam.data.validate import feature_order, usable
from midam.data.validate import wanted as expected_of
from midam.errors import BagDataError, ConfigError, Note, given, with_article
from midam.lazy_imports import pandas as pd
from midam.names import name_of, names_of

_AT_ONCE = 8  # columns that are compared at a time


def warn_of_features(table: "Table", features: Sequence[str], x: NDArray[Any]) -> None:
    """Warn about columns that are read as features but are probably not features, from their names.

    - A column named like patients, with one value in each bag.
    - A column named like instances, which counts them.
    - A column with one value in each bag: a label, if it is named like labels, or a covariate.

    Whether values reveal the label is checked before a training, for data from any source.

    Parameters
    ----------
    table : Table
        The table, after `find_bags`.
    features : sequence of str
        Its columns that are features.
    x : array, shape [M, len(features)]
        Their numbers.
    """
    frame, codes, firsts, where = table.frame, table.codes, table.first, table.where
    several, telling, of_bags = len(codes) > len(firsts) > tables.FEW, [], []
    for column, values in zip(features, x.T, strict=True):
        if tables.is_row_like(column) and set(pd.Series(values).groupby(codes).diff().dropna()) == {1}:
            _warn(column, where, f"if it numbers the instances, leave it out with {given(ignore=[column])}")
        elif _is_constant(values, codes, firsts):
            if tables.is_group_like(column):
                name, leave = given(groups=column), given(ignore=[column])
                why = f"if it names patients, give {name}, so that no patient is in two splits, or leave it out with"
                _warn(column, where, f"{why} {leave}")
            elif tables.is_label_like(column):
                telling.append(column)
            elif several and (values[firsts] != values[firsts[0]]).any():
                of_bags.append(column)
    if telling:
        one, leave = len(telling) == 1, given(ignore=telling)
        verb, them = ("is read as a feature and has", "it") if one else ("are read as features and have", "them")
        why = f"one value in each bag, as labels have: if a value reveals the label, leave {them} out with {leave}"
        warnings.warn(f"{_columns(telling)} {verb} {why} (in {where})", stacklevel=5)
    if of_bags:
        has, are = ("has", "is") if len(of_bags) == 1 else ("have", "are")
        take, leave = given(covariates=of_bags), given(ignore=of_bags)
        text = f"{_columns(of_bags)} {has} one value in each bag, and {are} read as features (in {where}): name "
        text += f"facts about a bag with {take}, and leave out facts that are unknown for new bags with {leave}"
        warnings.warn(text, Note, stacklevel=5)
    if several:
        _note_copies(frame, features, where)


def _note_copies(frame: "pd.DataFrame", features: Sequence[str], where: str) -> None:
    """Note rows that repeat another row in every column, in a table where this does not happen by chance."""
    rows = np.arange(len(frame))
    with suppress(TypeError):  # lists in a column that is left out cannot be compared
        for begin in range(0, frame.shape[1], _AT_ONCE):  # few rows are left after the first columns of numbers
            rows = rows[frame.iloc[rows, begin : begin + _AT_ONCE].duplicated(keep=False).to_numpy()]
        copies = int(frame.iloc[rows].duplicated().sum())
        if copies and any(2 * frame[column].nunique() > len(frame) for column in features):
            text = f"{copies} of {len(frame)} rows repeat another row of their bag in every column (in {where})"
            warnings.warn(f"{text}: each counts as an instance; drop copies made by mistake", Note, stacklevel=6)


def _warn(column: str, where: str, why: str) -> None:
    warnings.warn(f"column {column} is read as a feature (in {where}): {why}", stacklevel=6)


def _columns(names: Sequence[str]) -> str:
    return f"column {names[0]}" if len(names) == 1 else f"columns {', '.join(names[:-1])} and {names[-1]}"


def _is_constant(values: NDArray[np.float64], codes: NDArray[np.int64], firsts: NDArray[np.intp]) -> bool:
    """Return whether values [M] are constant in each bag; for most columns, the first rows decide."""
    start = (values[:64] == values[firsts[codes[:64]]]).all()
    return bool(start and (values == values[firsts[codes]]).all())


def frame_arrays(frame: "pd.DataFrame", source: str, **columns: Any) -> dict[str, Any]:
    """Return the arguments of `Bags.from_arrays` for a frame whose rows are instances; messages call it `source`.

    `columns` are parameters of `read_bags`. The bags have labels if a label column is named, or a column is called
    label. Their names are in the column `bag_column` or, without such a column, in the first of two levels of the
    index.
    """
    if not hasattr(frame, "iloc"):
        raise BagDataError(f"Expected a DataFrame of pandas, got {with_article(type(frame).__name__)}; convert it.")
    where, names, levels = source, names_of(frame.columns, source), [name_of(name) for name in frame.index.names]
    label = name_of(columns.get("label_column", "label"))
    has_target = columns.get("target", "auto") != "auto" or len(columns.get("grades", ())) > 0
    needs_labels = label != "label" or label in names or has_target
    request = Request(source, **columns, require_labels=needs_labels).completed()
    bag = request.bag_column
    table = renamed(frame, where).reset_index(drop=True)
    if bag not in names and (bag in levels or len(levels) == 2):
        table.insert(0, bag, frame.index.get_level_values(levels.index(bag) if bag in levels else 0).to_numpy())
    elif bag not in names:
        example = given(bag_column=next((name for name in names if name != label), "bag"))
        raise BagDataError(
            f"Expected the bags in the column {bag!r} or in the first of two levels of the index, got neither (in "
            f"{where}); name the column with {example}, or set the index."
        )
    reading = f"read with {given(impute=True)} and " if "bag_column" in columns else ""
    gaps = f"drop it, or {reading}train with {given(impute='median')}"
    parts = () if request.groups in table.columns else tables.group_parts(request.groups)
    named = [("split", request.split), ("instance_label", request.instance_label)]
    named += [("groups", part) for part in parts]
    named += [(name, column) for name in ("coords", "ignore") for column in getattr(request, name)]
    tables.require_columns(table.columns, named, where)
    arrays = table_arrays(Table(where, table, gaps=gaps), request)
    arrays["sites"], arrays["covariates"] = tables.split_sites(arrays["covariates"], request, where)
    return arrays


def table_arrays(table: "Table", request: Request) -> dict[str, Any]:
    """Return the arguments of `Bags.from_arrays` for a table.

    Without `require_labels`, every column but the bag's may be absent.
    """
    of_labels = label_columns(table.frame.columns, request)
    named = [*(getattr(request, name) for name in COLUMNS), *tables.group_parts(request.groups)]
    named += [*request.coords, *request.covariate_columns, *of_labels]
    used = table.frame.columns if request.features is None else [*request.features, *named]
    check_fields(table.frame, [name for name in used if name not in request.ignore], table.where)
    table.frame = tables.without_words(table.frame, worded_columns(table.frame.columns, request), request)
    table.frame = tables.with_groups(table.frame, request)
    bag, coords, ignored, truth = request.bag_column, list(request.coords), list(request.ignore), request.instance_label
    if not request.require_labels:
        existing = set(table.frame.columns)
        truth = truth if truth in existing else None
        coords, ignored = ([name for name in names if name in existing] for names in (coords, ignored))
    others = [("bag_column", bag), ("instance_label", truth)]
    others += [*(("coords", name) for name in coords), *(("ignore", name) for name in ignored)]
    label, group, split = tables.columns_of(table.frame, request, *others, split_by_name=False)
    table.name_values([bag, group, split], [*label, *request.covariate_columns])
    table.find_bags(bag)
    fields = table.of_bags(label, group, split, request)
    special = {bag, group, request.split, *tables.group_parts(group), *of_labels}
    special |= {*request.covariate_columns, *coords, *ignored}
    instance_labels = None if truth is None else table.instance_labels(truth, special)
    special |= {truth}
    present = [str(name) for name in table.frame.columns if name not in special]
    features = table.features(present, request.features)
    outcome = fields.get("outcome")
    kinds = tables.read_kinds(
        table.frame, features, table.codes, request, table.faults, labels=[] if outcome is None else [*outcome.values.T]
    )
    table.frame, features = kinds.frame, kinds.features
    instances = table.numbers(features, missing=bool(request.impute), apart=request.features is None)
    places = table.numbers(coords) if coords else None
    table.faults.refuse()
    if request.features is None:
        kinds.report(table.where)
        warn_of_features(table, features, instances)
    return {
        "X": instances,
        "bag": table.codes,
        "ids": table.ids,
        **fields,
        "coords": places,
        "instance_labels": instance_labels,
        "feature_names": features,
        "columns": kinds.columns,
        "source": table.where,
        "missing": request.impute,
    }


class Table:
    """A data frame with its origin, the bag of each row once `find_bags` has named them, and its faults.

    Messages call a row `unit` and advise `gaps` about missing values; `first` is the number of the first row in the
    file.
    """

    codes: NDArray[np.int64]
    ids: NDArray[np.str_]
    first: NDArray[np.int64]  # row of each bag

    def __init__(self, where: str, frame: "pd.DataFrame", *, unit: str = "row", first: int = 1, gaps: str) -> None:
        self.where, self.frame, self.unit, self._first, self._gaps = where, frame, unit, first, gaps
        self.faults = Faults(where, unit)
        if len(frame) == 0:
            raise BagDataError(f"Expected at least one row, got none (in {where}); add the instances.")

    def name_values(self, names: Sequence[str | None], others: Sequence[str]) -> None:
        """Bring the values of the columns `names` into the form of names, and the values of `others` that are texts."""
        texts = [name for name in others if isinstance(self.frame[name].dtype, pd.CategoricalDtype | pd.StringDtype)]
        texts += [name for name in others if self.frame[name].dtype == object]
        columns = dict.fromkeys(filter(None, (*names, *texts)))
        self.frame = self.frame.assign(**{name: tables.names_in(self.frame[name], self.where) for name in columns})

    def find_bags(self, column: str) -> None:
        """Number the bags by the column that names them."""
        codes, names = pd.factorize(self.frame[column].astype(str))
        self.codes, self.ids = codes.astype(np.int64), np.asarray(names, dtype=np.str_)
        self.first = np.unique(codes, return_index=True)[1]
        advice = "name the bag: NA and None are no names"
        self._add(self.faults, self.frame[column].isna(), column, "a bag in each row", advice, got="none")
        self.faults.refuse()  # such rows have no bag

    def of_bags(self, label: Sequence[str], group: str | None, split: str | None, request: Request) -> dict[str, Any]:
        """Return the `metadata` of the bags, of columns that are the same in all rows of a bag; {} if there are faults.

        Faults of labels and groups become a note if the request ignores them.
        """
        if group == request.bag_column and request.require_labels:
            text = f"the groups are the bags themselves, column {group} (in {self.where}): leave out `groups`"
            warnings.warn(f"{text}, or name the column of patients", Note, stacklevel=6)
        ignored = request.bad_labels == "ignore"
        of_labels, of_groups = (Faults(self.where, self.unit) if ignored else self.faults for _ in range(2))
        self._one_each(label, of_labels, request, gaps=len(label) > 1)
        self._one_each(filter(None, [group]), of_groups, request, exact=True)
        self._one_each(filter(None, [split]), self.faults, request)
        self._one_each(request.covariate_columns, self.faults, request, gaps=True, exact=True)
        if ignored and of_labels.messages:  # the groups stay, which keep patients whole
            labels_or_none(request, of_labels.refuse)
            label = ()
        if ignored and of_groups.messages:
            labels_or_none(request, of_groups.refuse)
            group = None
        if self.faults.messages:
            return {}
        try:
            return tables.metadata(
                self.frame.iloc[self.first], request, label, group, split, ids=self.ids.tolist(), of_files=False
            )
        except BagDataError as error:
            self.faults.add_error(error)
        return {}

    def _one_each(
        self, columns: Iterable[str], faults: Faults, request: Request, *, gaps: bool = False, exact: bool = False
    ) -> None:
        """Add faults for `gaps`, unless they are allowed, and for several values in a bag; case counts if `exact`."""
        for column in columns:
            codes, distinct = pd.factorize(self.frame[column])
            if not gaps:
                advice = gap_advice(request, column, "fill it in", label=column in label_columns(self.frame, request))
                self._add(faults, codes < 0, column, f"{with_article(column)} in each row", advice, got="none")
            words = [str(value) if exact else word_of(str(value)).casefold() for value in distinct]
            words = [tables.SPLIT_NAMES.get(word, word) for word in words] if column == request.split else words
            places = np.append(np.unique(np.array(words, dtype=np.str_), return_inverse=True)[1], -1)[codes]
            firsts = self.first[self.codes]
            wrong = places != places[firsts]
            for row in np.flatnonzero(wrong)[:1].tolist() if gaps or codes.min() >= 0 else []:
                got = " and ".join(str(self.frame[column].iloc[place]) for place in (firsts[row], row))
                self._add(faults, wrong, column, f"one {column} in a bag", f"correct the column {column}", got=got)

    def instance_labels(self, column: str, others: Collection[object]) -> NDArray[np.float32]:
        """Return the labels of instances in a column: 0, 1, or NaN in an empty field; it is none of the `others`."""
        if column in others:
            raise ConfigError(
                f"Expected a column of its own for `instance_label`, got {column!r}, which has another use (in "
                f"{self.where}); name another column."
            )
        series = self.frame[column]
        none = ["", *tables.words_for_none(series.dropna().unique())]
        gaps = series.isna() | series.astype(str).str.strip().isin(none)
        words = series.astype(str).str.strip().str.casefold().replace({"true": "1", "false": "0"})
        labels = pd.to_numeric(words, errors="coerce").to_numpy(np.float32, na_value=np.nan)
        advice = "write 1 for an instance that makes its bag positive, 0 for another, nothing if unknown"
        self._add(self.faults, ~np.isin(labels, (0, 1)) & ~gaps, column, "labels 0 and 1 of instances", advice)
        if gaps.all():
            self._add(self.faults, gaps, column, "some labels of instances", "name another column", got="none")
        return np.where(gaps, np.float32(np.nan), labels)

    def features(self, present: list[str], wanted: Sequence[str] | None) -> list[str]:
        """Return the columns of the features: the wanted ones, in their order, or all."""
        if not present:
            raise BagDataError(f"Expected at least one feature column, got none (in {self.where}); add numeric ones.")
        if wanted is None:
            return present
        return [present[place] for place in feature_order(wanted, present, reference="training", where=self.where)]

    def numbers(self, columns: list[str], *, missing: bool = False, apart: bool = False) -> NDArray[Any]:
        """Return the values of numeric columns, [M, len(columns)]: finite, or NaN if values may be `missing`.

        With `apart`, in training, refuse different whole numbers that become equal in float64. Features of a run are
        all needed: no message advises to leave one out.
        """
        objects = [name for name, kind in self.frame[columns].dtypes.items() if kind.kind in "Om"]
        if objects:
            self.frame = self.frame.assign(**{str(name): tables.plain_numbers(self.frame[name]) for name in objects})
        kinds = self.frame[columns].dtypes  # for all columns at once: a table may have many
        numeric = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind) for kind in kinds]
        sound, wrong = [column for column, is_number in zip(columns, numeric) if is_number], {}
        whole = [column for column, kind in zip(columns, kinds) if kind.kind in "iu"]
        for column in (column for column, is_number in zip(columns, numeric) if not is_number):
            values = self.frame[column]
            gaps = values.isna()
            words = pd.to_numeric(values.astype(str), errors="coerce").isna() & ~gaps
            wrong[column] = words if words.any() else ~gaps
        leave = given(ignore=list(wrong))
        leave = f", or leave out columns that are not features with {leave}" if apart else ""
        several = apart and len(self.codes) > len(np.unique(self.codes))  # before a training
        of_bags = [column for column in wrong if several and not tables.is_group_like(column)]
        of_bags = [c for c in of_bags if (self.frame[c].groupby(self.codes).nunique(dropna=False) == 1).all()]
        texts = [c for c in wrong if apart and c not in of_bags and not tables.is_group_like(c)]
        texts = [c for c in texts if tables.is_code_like(c) or 2 * wrong[c].sum() > self.frame[c].notna().sum()]
        for column, rows in wrong.items():
            other = f"name it with {given(groups=column)}" if tables.is_group_like(column) else "correct it"
            if column in texts:
                other = f"name it with {given(categories=texts)}"
                if not tables.is_code_like(column) and tables.holds_amounts(self.frame[column]):
                    other = "write plain numbers, such as 1000.5 and 0.05 for 5%, and not as text"
            if column in of_bags:
                facts, text = given(covariates=of_bags), given(categories=of_bags)
                other = f"name facts about a bag with {facts}, or text that does not reveal the label with {text}"
            names = {name.lower() for name in self.frame[column].dropna().astype(str).unique()}
            if apart and names and names <= tables.SPLIT_NAMES.keys():
                other = f"name it with {given(split=column)}"
            self._add(self.faults, rows, column, f"numbers in column {column}", f"{other}{leave}")
        for column in whole if apart else ():
            values = self.frame[column].dropna()
            low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
            if low != high and float(low) == float(high):
                wanted, first = "whole numbers that stay distinct in float64", np.arange(len(self.frame)) == 0
                advice = "subtract their common offset first"
                self._add(self.faults, first, column, wanted, advice, got=f"{low} to {high}")
        narrow = all(str(dtype) in ("float32", "float16") for dtype in self.frame[sound].dtypes)
        array: NDArray[Any] = self.frame[sound].to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
        gap = np.isnan(array)
        for wrong_values, usual in ((gap & (not missing), self._gaps), (~gap & ~usable(array), "drop or correct it")):
            for row, place in np.argwhere(wrong_values)[:1].tolist():
                column, got = sound[place], array[row, place]
                leave = f"leave the column out with {given(ignore=[column])} if it is no feature"
                advice = leave if apart and tables.is_label_like(column) else usual
                self._add(self.faults, wrong_values.any(axis=1), column, expected_of(float(got)), advice, got=got)
        return np.require(array, requirements="W")  # torch warns of a view of a frame, which is read-only

    def number(self, row: int) -> int:
        """Return the number of a row in the file."""
        return int(self.frame.index[row]) + self._first

    def _add(self, faults: Faults, wrong: Any, column: str, expected: str, advice: str, *, got: object = None) -> None:
        """Add a fault for the rows in which a column is wrong; the message names the first row and its value."""
        rows = np.flatnonzero(wrong).tolist()
        if rows:
            value = repr(str(self.frame[column].iloc[rows[0]])) if got is None else got
            numbers = [self.number(row) for row in rows]
            bag = f", bag {self.ids[code]}" if (code := self.codes[rows[0]]) >= 0 else ""
            place = f"in {self.where}, {self.unit} {numbers[0]}, column {column}{bag}"
            faults.add(expected, value, place, numbers, advice=advice)
