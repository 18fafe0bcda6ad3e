"""Tables with a row for each instance, file or bag: their columns by name, and the labels and metadata of the bags."""

import json
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam import errors
from midam.data.covariates import Covariates
from midam.data.sources.file_names import NameIndex
from midam.data.sources.labels import code_labels, gap_advice, label_columns, labels_or_none, named_words, word_of
from midam.data.sources.request import Request
from midam.data.validate import SPLIT_NAMES, site_array, split_array
from midam.errors import BagDataError, ConfigError, Note, given, listed, with_article
from midam.lazy_imports import pandas as pd
from midam.names import alike, is_missing, name_of, names_of

FILE_COLUMNS = ("bag", "slide_id", "filename", "slide", "id", "file", "path", "0")  # DSMIL's list has a column 0
PATIENT_COLUMNS = (
    *("patient", "patient_id", "patientid", "case_id", "case", "submitter_id"),
    *("subject", "subject_id", "participant_id"),  # of BIDS and its like
)
GROUP_COLUMNS = ("group", *PATIENT_COLUMNS)
_SIGNS = re.compile(r"[\W_]")
_OF_GROUP = re.compile(
    r"(patient|pat|pid|mrn|subject|case|participant|person|slide|group)s?(id|no|nr|number|code|name|group)?"
)
_OF_LABEL = re.compile(r"(labels?|target|class|outcome|event|time|survival|status|diagnosis|grade|stage|death)(_.*)?")
_OF_ROW = re.compile(r"(instance|unnamed|row|index|idx|level|tile|patch|object|cell|nucleus)s?(id|no|nr|number|index)?")
_OF_TRUTH = re.compile(r".*(label|annotation|truth|witness).*|(is)?(tumou?r|cancer|malignant|lesion|abnormal)")
_OF_CODE = re.compile(r".*(code|zip|mcc|type|category|channel|country|region|branch|merchant|department|icd(9|10|11)?)")
_SHOWN = 10


def require_columns(known: Iterable[object], columns: Iterable[tuple[str, str | None]], where: str) -> None:
    """Refuse a table of `known` columns that lacks some of `columns`, each given with its parameter, if any."""
    present = [str(name) for name in known]
    absent = [(parameter, name) for parameter, name in columns if name is not None and name not in present]
    if absent:
        text = " and ".join(f"{name!r}" + (f" of `{parameter}`" if parameter else "") for parameter, name in absent)
        wanted, advice = f"column{'s' * (len(absent) > 1)} {text}", errors.nearest(absent[0][1], present, count=3)
        raise BagDataError(f"Expected the {wanted}, got none (in {where}); name another: {advice}")


def group_parts(column: str | None) -> tuple[str, ...]:
    """Return the columns that together name the group: both of `site,patient`, or a single one."""
    return () if column is None else tuple(name_of(part) for part in column.split(","))


def with_groups(frame: "pd.DataFrame", request: Request) -> "pd.DataFrame":
    """Return the table; if several columns name the group (`site,patient`), add a column of values site/patient.

    A name that holds the separator is quoted, so that two groups never get the same name.
    """
    column, parts = request.groups, group_parts(request.groups)
    present = set(map(str, frame.columns))
    if column is None or len(parts) < 2 or column in present or request.header_groups(present):
        return frame
    if not (request.require_labels or present >= {*parts}):
        return frame
    require_columns(frame.columns, [("groups", name) for name in parts], request.where)
    rows = zip(*(names_in(frame[name], request.where).tolist() for name in parts), strict=True)
    joined = ["/".join(map(_quoted, row)) if all(isinstance(name, str) for name in row) else np.nan for row in rows]
    return frame.assign(**{column: np.array(joined, dtype=object)})


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False) if "/" in name or name.startswith('"') else name


def names_in(values: "pd.Series[Any]", where: object) -> "pd.Series[Any]":
    """Return the values of a column as names; missing values stay missing. Messages call the table `where`."""
    codes, distinct = pd.factorize(values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values)
    kind = np.dtype(getattr(values.dtype, "numpy_dtype", values.dtype if isinstance(values.dtype, np.dtype) else "O"))
    parts: Any = map(kind.type, distinct) if kind.kind == "f" else distinct  # pandas turns short decimals into float
    names = np.array([*names_of(parts, f"{where}, column {values.name}"), np.nan], dtype=object)
    return pd.Series(names[codes], index=values.index, dtype=object)


def without_words(frame: "pd.DataFrame", columns: Iterable[object], request: Request) -> "pd.DataFrame":
    """Return the table with words such as NA or None in `columns` as gaps, except words that name a class of labels.

    `request.read_as_missing` records the words that are read as gaps, for the messages about gaps.
    """
    gaps, labels = {}, label_columns(frame.columns, request)
    for name in dict.fromkeys(map(str, columns)):
        if name not in frame.columns:
            continue
        words = words_for_none(frame[name].dropna().unique(), named_words(request) if name in labels else ())
        if words:
            rows = frame[name].isin(words)
            gaps[name] = frame[name].mask(rows)
            counts = frame[name][rows].astype(str).str.strip().value_counts()
            request.read_as_missing[name] = ", ".join(f"{word!r} in {count} rows" for word, count in counts.items())
    return frame.assign(**gaps)


def words_for_none(values: Iterable[object], named: Collection[str] = ()) -> list[str]:
    """Return the texts among the values that stand for a missing value, unless they are `named`."""
    texts = (value for value in values if isinstance(value, str) and value.strip())
    return [text for text in dict.fromkeys(texts) if is_missing(text, named)]


def has_labels(frame: "pd.DataFrame", request: Request) -> bool:
    """Return whether labels are required, or are there anyway."""
    columns = label_columns(frame.columns, request)
    complete = all(column in frame.columns for column in columns)
    return request.require_labels or (complete and not all(bool(frame[column].isna().all()) for column in columns))


def is_code_like(name: str) -> bool:
    """Return whether a column of this name may hold codes, such as icd10 or zip."""
    return _OF_CODE.fullmatch(name.lower()) is not None


def plain_numbers(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return numbers such as `decimal.Decimal` as float64, durations as seconds; other columns as they are."""
    if isinstance(values.dtype, pd.CategoricalDtype) and pd.api.types.is_numeric_dtype(values.cat.categories):
        return values.astype(np.float64)
    kind = values.dtype.kind
    boxed = values.dtype == object or (kind == "O" and pd.api.types.is_numeric_dtype(values))
    objects = values.dropna() if boxed else values.iloc[:0]
    if kind == "m" or (len(objects) and all(isinstance(value, timedelta) for value in objects)):
        return (pd.to_timedelta(values) / pd.Timedelta(seconds=1)).astype(np.float64)
    if not len(objects) or not all(isinstance(value, Real | Decimal) for value in objects):
        return values
    return pd.Series([np.nan if pd.isna(value) else float(value) for value in values], values.index, dtype=np.float64)


def find_column(frame: "pd.DataFrame", candidates: Sequence[str]) -> str | None:
    """Return the first column that has one of the names, in any case: patient_id, PatientID or Patient ID."""
    plain = {_SIGNS.sub("", str(name).lower()): str(name) for name in reversed(frame.columns)}
    return next((plain[key] for name in candidates if (key := _SIGNS.sub("", name)) in plain), None)


def is_group_like(name: str) -> bool:
    """Return whether a column has a name of patients or other groups: patient, PatientID, case_no, slide group."""
    return name.lower() in GROUP_COLUMNS or _OF_GROUP.fullmatch(re.sub(r"[^a-z]", "", name.lower())) is not None


def is_label_like(name: str) -> bool:
    """Return whether a column has a name of labels: label, label_er, time, event, grade, status."""
    return _OF_LABEL.fullmatch(name.strip().lower()) is not None


def is_row_like(name: str) -> bool:
    """Return whether a column has a name of instance numbers: instance, ObjectNumber, index, level_1, row."""
    return _OF_ROW.fullmatch(re.sub(r"[^a-z]", "", name.lower())) is not None


def is_truth_like(name: str) -> bool:
    """Return whether a column has a name of labels of instances: instance_label, is_tumor, ground truth."""
    return _OF_TRUTH.fullmatch(re.sub(r"[^a-z]", "", name.lower())) is not None


def numbers_rows(steps: NDArray[np.float64]) -> bool:
    """Return whether these differences between rows [M] are those of row numbers, of which some may be left out."""
    return len(steps) > 0 and bool(((steps >= 1) & (steps == np.floor(steps))).all())


def find_file_column(
    frame: "pd.DataFrame", files: NameIndex, named: str | None, *, avoid: Sequence[str], where: str
) -> str:
    """Return the column that names the files: the given one, a usual name, or the only one with the most names."""
    if named is not None:
        require_columns(frame.columns, [("bag_column", named)], where)
        return named
    counts = {str(c): files.count(frame[c].dropna()) for c in frame.columns if c not in avoid}
    common = [name for name in (find_column(frame, [name]) for name in FILE_COLUMNS) if name and counts.get(name)]
    chosen = common[0] if common else max(counts, key=lambda name: counts[name], default="")
    if not counts.get(chosen):
        near = alike([*files.names, *(str(value) for c in counts for value in frame[c].dropna().unique())])
        twins = [(same[0], same[-1]) for same in near if same[0] in files.names and same[-1] not in files.names]
        differ = f"; {twins[0][0]} and {twins[0][1]} differ" if twins else ""
        wanted, got = f"{files.names[0]!r} of {files.source}", f"none among {', '.join(counts) or 'no columns'}"
        advice = "name it with `bag_column`, or give the table of slides as `slides`"
        text = f"Expected a column that names the files, such as {wanted}, got {got} (in {where}){differ}"
        raise BagDataError(f"{text}; {advice}.")
    positions = {c: [files.certain(value) if isinstance(value, str) else None for value in frame[c]] for c in counts}
    chosen_files = positions.pop(chosen)
    for name, other in positions.items():
        pairs = [(a, b) for a, b in zip(chosen_files, other) if a is not None and b is not None]
        as_many = len({*other} - {None}) >= max(1, len({*chosen_files} - {None}))
        if as_many and (not pairs or any(a != b for a, b in pairs)):
            raise ConfigError(
                f"Expected one column that names the files, got {chosen!r} and {name!r}, which do not name the "
                f"same files in the same rows (in {where}); say which with `bag_column`, or leave the other one out of "
                "the table."
            )
    return chosen


class BagColumns(NamedTuple):
    """Columns of a table that hold the labels, the group and the split of a bag, as far as it has any."""

    label: tuple[str, ...]
    group: str | None
    split: str | None


def columns_of(
    frame: "pd.DataFrame", request: Request, *others: tuple[str, str | None], split_by_name: bool = True
) -> BagColumns:
    """Return the columns of the label, the group and the split; refuse a table that lacks a named column.

    `others` are further required columns, each with the parameter that names it. With `split_by_name`, the splits may
    stand in a column split that is not named.
    """
    label, group, split = label_columns(frame.columns, request), request.groups, request.split
    if not request.require_labels:
        group, split = (name if name in frame.columns else None for name in (group, split))
    group = None if request.header_groups(frame.columns) else group
    by_name = split_by_name and split is None and request.split_file is None
    split = "split" if by_name and "split" in frame.columns and "split" not in label else split
    split = None if request.bad_labels == "ignore" else split  # scores need none
    label = label if has_labels(frame, request) else ()
    parameters = [*others, *(("label_column", name) for name in label), ("groups", group)]
    parameters += [("split", split), *request.named_covariates]
    require_columns(frame.columns, parameters, request.where)
    return BagColumns(label, group, split)


def read_covariates(columns: Any, request: Request) -> dict[str, Any]:
    """Return the covariates and sites that a request names, from a frame or columns by name; None if it names none.

    A missing column is refused. Before a training, a note describes each covariate; the site alone is no covariate.
    """
    where, training, fields = request.where, request.require_labels, dict.fromkeys(("covariates", "sites"))
    if not request.covariate_columns:
        return fields
    require_columns(columns, request.named_covariates, where)
    values = {name: columns[name] for name in request.covariate_columns}
    read, notes = Covariates.of(values, categories=request.category_columns, source=where), list[str]()
    for name, column in zip(read.names, read.columns):
        missing_words = words_for_none(np.asarray(columns[name]).ravel().tolist())
        words = request.read_as_missing.get(name) or ", ".join(map(repr, missing_words))
        if words and column.dtype.kind != "f":
            text = f"{words} of column {name} counts as a missing value (in {where})"
            notes.append(f"{text}; if it is a category, write another word")
    if request.site_column is not None:
        fields["sites"] = sites = site_array(read.columns[read.names.index(request.site_column)], where)
        names = np.unique(sites[sites != ""]).tolist()
        notes.append(f"sites: {len(names)} in the column {request.site_column} ({listed(names)}) (in {where})")
    if request.covariates:
        fields["covariates"] = covariates = read.select(request.covariates, source=where)
        notes.append(f"covariates: {covariates.summary()} (in {where})")
    for note in notes if training else ():
        warnings.warn(note, Note, stacklevel=4)
    return fields


class Table:
    """A data frame with its origin, the bag of each row once `find_bags` has named them, and its faults.

    Messages call a row `unit`, a bag `owner`, and advise `gaps` about missing values; `first` is the number of the
    first row in the file.
    """

    ids: NDArray[np.str_]
    first: NDArray[np.int64]  # row of each bag

    def __init__(
        self,
        where: str,
        frame: "pd.DataFrame",
        *,
        unit: str = "line",
        first: int = 2,
        gaps: str = "",
        owner: Literal["bag", "file"] = "bag",
    ) -> None:
        self.where, self.frame, self.unit, self._first = where, frame, unit, first
        self.gaps, self._owner = gaps, owner
        self.codes = np.full(len(frame), -1)  # the bag of each row
        self.faults: list[str] = []
        if len(frame) == 0:
            raise BagDataError(f"Expected at least one row, got none (in {where}); add the instances.")

    def name_values(self, names: Sequence[str | None], others: Sequence[str]) -> None:
        """Bring the values of the columns `names` into the form of names, and the values of `others` that are texts."""
        texts = [name for name in others if isinstance(self.frame[name].dtype, pd.CategoricalDtype | pd.StringDtype)]
        texts += [name for name in others if self.frame[name].dtype == object]
        columns = dict.fromkeys(filter(None, (*names, *texts)))
        self.frame = self.frame.assign(**{name: names_in(self.frame[name], self.where) for name in columns})

    def find_bags(self, column: str) -> None:
        """Number the bags by the column that names them."""
        codes, names = pd.factorize(self.frame[column].astype(str))
        self.codes, self.ids = codes.astype(np.int64), np.asarray(names, dtype=np.str_)
        self.first = np.unique(codes, return_index=True)[1]
        advice = "name the bag: NA and None are no names"
        self.faults += self.fault(self.frame[column].isna(), column, "a bag in each row", advice, got="none")
        self.refuse()  # such rows have no bag

    def gaps_in(self, columns: Iterable[str | None], request: Request) -> list[str]:
        """Return a fault for each of the columns that lacks a value in some rows."""
        labels, faults = label_columns(self.frame.columns, request), list[str]()
        for column in filter(None, columns):
            advice = gap_advice(request, column, "fill it in", label=column in labels)
            expected = f"{with_article(column)} in each row"
            faults += self.fault(self.frame[column].isna(), column, expected, advice, got="none")
        return faults

    def of_bags(self, columns: BagColumns, request: Request, *, of_files: bool = False) -> dict[str, Any]:
        """Return the outcome, groups, splits, sites and covariates of the bags, as `Bags` takes them; None if absent.

        They are {} if there are faults. Of a table `of_files`, warn about columns that may name patients; those of a
        table of instances are its features.
        """
        if columns.group == request.bag_column and request.require_labels and not of_files:
            text = f"the groups are the bags themselves, column {columns.group} (in {self.where}): leave out `groups`"
            warnings.warn(f"{text}, or name the column of patients", Note, stacklevel=6)
        frame, (label, group, split) = self.one_each(columns, request)
        if self.faults:
            return {}
        values, ids = {name: frame[name].tolist() for name in label}, self.ids.tolist()
        in_header = request.header_groups(frame.columns)
        group = None if in_header else group
        if of_files and group is None and request.require_labels and not in_header:
            free = frame.columns.difference([*label, split, *request.covariate_columns])
            others = [name for name in free if is_group_like(name) and 1 < frame[name].nunique() < len(ids)]
            if others:
                text = f"if {listed(others)} names patients (in {request.where}), give {given(groups=others[0])}"
                warnings.warn(f"{text}, so that no patient is in two splits", stacklevel=4)
        try:
            outcome = labels_or_none(request, lambda: code_labels(values, request, ids=ids)) if label else None
            groups = None if group is None else frame[group].to_numpy(dtype=np.str_)
            splits = None if split is None else split_array(frame[split].tolist(), ids, request.where)
            return {"outcome": outcome, "groups": groups, "splits": splits, **read_covariates(frame, request)}
        except BagDataError as error:
            self.add_error(error)
        return {}

    def one_each(
        self, columns: BagColumns, request: Request, others: Sequence[str] = ()
    ) -> tuple["pd.DataFrame", BagColumns]:
        """Return a row for each bag, with its known values, and the columns that are used.

        Covariates, and one of several labels, may be missing in some rows; the label, group, split and `others` may
        not. Several values in a bag are faults; those of labels and groups become a note if the request ignores them.
        """
        ignored, known = request.bad_labels == "ignore", dict[str, Any]()
        of_labels, of_groups = (list[str]() if ignored else self.faults for _ in range(2))
        roles = [(of_labels, columns.label, len(columns.label) > 1), (of_groups, [columns.group], False)]
        roles += [(self.faults, [columns.split, *others], False), (self.faults, request.covariate_columns, True)]
        for faults, names, gaps in roles:
            for name in names:
                if name is not None and name not in known:
                    faults.extend([] if gaps else self.gaps_in([name], request))
                    expected = f"one {'name of' if name in others[:1] else f'{name} in'} a {self._owner}"
                    known[name] = self._one_each(name, expected, faults, columns)
        for faults, change in ((of_labels, {"label": ()}), (of_groups, {"group": None})):
            if ignored and faults:  # without labels, the groups stay, which keep patients whole
                labels_or_none(request, partial(self.refuse, faults))
                columns = columns._replace(**change)
        return self.frame.iloc[self.first].assign(**known), columns

    def _one_each(self, column: str, expected: str, faults: list[str], columns: BagColumns) -> "pd.Series[Any]":
        """Return the first known value of each bag in a column; add a fault for several values in a bag."""
        codes, distinct = pd.factorize(self.frame[column])
        is_split = column == columns.split
        words = [str(value) for value in distinct]
        if column in columns.label or is_split:  # in other columns, upper and lower case are two values
            words = [word_of(word).casefold() for word in words]
            words = [SPLIT_NAMES.get(word, word) for word in words] if is_split else words
        places = np.append(np.unique(np.array(words, dtype=np.str_), return_inverse=True)[1], -1)[codes]
        known = np.flatnonzero(codes >= 0)[::-1]
        first = self.first.copy()
        first[self.codes[known]] = known
        firsts = first[self.codes]
        wrong = (codes >= 0) & (places != places[firsts])
        for row in np.flatnonzero(wrong)[:1].tolist():
            got = " and ".join(str(self.frame[column].iloc[place]) for place in (firsts[row], row))
            faults += self.fault(wrong, column, expected, f"correct the column {column}", got=got)
        return self.frame[column].iloc[first].set_axis(self.frame.index[self.first])

    def number(self, row: int) -> int:
        """Return the number of a row in the file."""
        return int(self.frame.index[row]) + self._first

    def refuse(self, faults: Sequence[str] | None = None) -> None:
        """Raise a `BagDataError` that lists these faults, by default all of the table, if there are any."""
        faults = self.faults if faults is None else faults
        head = f"Expected a sound table, got {len(faults)} kinds of faults (in {self.where}); correct them:"
        if faults:
            raise BagDataError(errors.fault_list(head, faults, most=_SHOWN))

    def add_error(self, error: BagDataError) -> None:
        """Add a fault that another function found."""
        self.faults.append(str(error) if self.where in str(error) else errors.with_place(error, f"in {self.where}"))

    def fault(self, wrong: Any, column: str, expected: str, advice: str, *, got: object = None) -> list[str]:
        """Return the fault of the rows in which a column is wrong, with the first row and its value; [] if none is."""
        rows = np.flatnonzero(wrong).tolist()
        if not rows:
            return []
        value = repr(str(self.frame[column].iloc[rows[0]])) if got is None else got
        numbers = list(dict.fromkeys(map(self.number, rows)))  # a row of a patient stands for each of its files
        bag = f", {self._owner} {self.ids[code]}" if (code := self.codes[rows[0]]) >= 0 else ""
        all_rows = f"; {len(numbers)} such {self.unit}s: {listed(numbers, most=10)}" if len(numbers) > 1 else ""
        place = f"in {self.where}, {self.unit} {numbers[0]}, column {column}{bag}{all_rows}"
        return [f"Expected {expected}, got {value} ({place}); {advice}."]
