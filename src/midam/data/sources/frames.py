"""Tables with a row for each instance: the features, as numbers, dates or categories, and the arrays of the bags.

Warnings name columns that are probably not features: they name patients, number instances, or reveal the label.
"""

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data import covariates as forms
from midam.data.covariates import Column, example_of_codes, number_of
from midam.data.sources import table_columns as tables
from midam.data.sources.request import COLUMNS, COVARIATES, Request
from midam.data.sources.table_columns import Table
from midam.data.sources.table_files import check_fields, renamed, worded_columns
from midam.data.validate import SPLIT_NAMES, feature_order, usable
from midam.data.validate import wanted as expected_of
from midam.errors import BagDataError, ConfigError, Note, given, is_id_like, listed, with_article
from midam.lazy_imports import pandas as pd
from midam.names import merge_words, name_of, names_of, warn_of_alike

MOST, ROWS = 100, 5  # text of at most so many values, each in so many rows on average, is categories
_DIGITS = r"(\d+|\d{1,3}([.' ]\d{3}|,\d{2,3})+)([.,]\d*)?"  # 1,000.50; not a version, such as 2.1.0
_AMOUNT = re.compile(rf"[-+(]?\s*[$\u00a3\u20ac\u00a5]?\s*[-+]?{_DIGITS}\s*([%$\u00a3\u20ac\u00a5]|[A-Z]{{3}})?\)?")
_BAGS = 3  # of each category on average, if each bag has one
_TRUE, _FALSE = {"true", "yes", "t", "y"}, {"false", "no", "f", "n"}
FEW = 8  # bags: with no more of them, a column may look like ids by chance
_OF_TIME = re.compile(r".*(time|date|stamp|unix|epoch).*|(.*[^a-z])?ts([^a-z].*)?")
_SECONDS, _SPAN = 9e8, 1.3e9  # unix seconds from 1998 to 2039
_CODES = 3  # from so many different whole numbers on, they may be codes
# Parameters of a table of instances, and of them those that apply to a DataFrame.
TABLE_OPTIONS = (*COLUMNS, *COVARIATES, "instance_label", "coords", "ignore", "positive", "target", "grades")
FRAME_OPTIONS = (*TABLE_OPTIONS[2:], "classes")


def warn_of_features(table: Table, features: Sequence[str], x: NDArray[Any]) -> None:
    """Warn about columns that are read as features but are probably not features, from their names.

    - A column named like patients, with one value in each bag.
    - A column named like instances, which numbers them.
    - A column of 0 and 1, named like labels of instances.
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
    codes, firsts, where = table.codes, table.first, table.where
    several, telling, of_bags = len(codes) > len(firsts) > FEW, list[str](), list[str]()
    for column, values in zip(features, x.T, strict=True):
        leave, why = given(ignore=[column]), ""
        constant = _is_constant(values, codes, firsts)
        if tables.is_row_like(column) and _numbers_instances(pd.Series(values), codes, firsts):
            why = f"if it numbers the instances, leave it out with {leave}"
        elif tables.is_truth_like(column) and not constant and {*values[~np.isnan(values)]} == {0, 1}:
            why = f"if it labels the instances, give {given(instance_label=column)}, or leave it out with {leave}"
        elif constant:
            if tables.is_group_like(column):
                why = f"if it names patients, give {given(groups=column)}, so that no patient is in two splits, or "
                why += f"leave it out with {leave}"
            elif tables.is_label_like(column):
                telling.append(column)
            elif several and (values[firsts] != values[firsts[0]]).any():
                of_bags.append(column)
        if why:
            warnings.warn(f"column {column} is read as a feature (in {where}): {why}", stacklevel=5)
    if telling:
        text = f"features with one value in each bag, as labels have: {', '.join(telling)} (in {where}); if a value"
        warnings.warn(f"{text} reveals the label, leave it out with {given(ignore=telling)}", stacklevel=5)
    if of_bags:
        text = f"features with one value in each bag: {', '.join(of_bags)} (in {where}); name facts about a bag with"
        text += f" {given(covariates=of_bags)}, and leave out what is unknown for new bags with {given(ignore=of_bags)}"
        warnings.warn(text, Note, stacklevel=5)


def _numbers_instances(values: "pd.Series[Any]", codes: NDArray[np.int64], firsts: NDArray[np.intp]) -> bool:
    """Return whether values [M] are row numbers: ascending in each bag, or different in all rows."""
    return tables.numbers_rows(values.groupby(codes).diff().dropna().to_numpy()) or _names_rows(values, firsts)


def _is_constant(values: NDArray[np.float64], codes: NDArray[np.int64], firsts: NDArray[np.intp]) -> bool:
    """Return whether values [M] are constant in each bag; for most columns, the first rows decide."""
    return bool((values[:64] == values[firsts[codes[:64]]]).all() and (values == values[firsts[codes]]).all())


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
    request = Request(source, **columns, require_labels=label != "label" or label in names or has_target).completed()
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
    named = [("split", request.split), *(("groups", part) for part in parts), *_roles(request)]
    tables.require_columns(table.columns, named, where)
    return table_arrays(Table(where, table, unit="row", first=1, gaps=gaps), request)


def _roles(request: Request) -> list[tuple[str, str]]:
    """Return the columns that are neither features nor facts about bags, each after the parameter that names it."""
    truth = [] if request.instance_label is None else [("instance_label", request.instance_label)]
    return truth + [(role, name) for role in ("coords", "ignore") for name in getattr(request, role)]


def table_arrays(table: Table, request: Request) -> dict[str, Any]:
    """Return the arguments of `Bags.from_arrays` for a table.

    Without `require_labels`, every column but the bag's may be absent.
    """
    worded, bag = worded_columns(table.frame.columns, request), request.bag_column
    used = table.frame.columns if request.features is None else [*request.features, *worded, *request.coords]
    check_fields(table.frame, [name for name in used if name not in request.ignore], table.where)
    table.frame = tables.with_groups(tables.without_words(table.frame, worded, request), request)
    others = [(role, name) for role, name in _roles(request) if request.require_labels or name in table.frame]
    truth = next((name for role, name in others if role == "instance_label"), None)
    coords, ignored = ([name for role, name in others if role == wanted] for wanted in ("coords", "ignore"))
    columns = tables.columns_of(table.frame, request, ("bag_column", bag), *others, split_by_name=False)
    table.name_values([bag, columns.group, columns.split], [*columns.label, *request.covariate_columns])
    table.find_bags(bag)
    fields = table.of_bags(columns, request)
    special = {*worded, *coords, *ignored}
    instance_labels = None if truth is None else _instance_labels(table, truth, special)
    special |= {str(truth)}
    present = [str(name) for name in table.frame.columns if name not in special]
    if not present:
        raise BagDataError(f"Expected at least one feature column, got none (in {table.where}); add numeric ones.")
    if request.features is not None:
        places = feature_order(request.features, present, reference="training", where=table.where)
        present = [present[place] for place in places]
    outcome = fields.get("outcome")
    labels = [] if outcome is None else [*outcome.values.T]
    features, kinds, notes = _read_kinds(table, present, request, labels=labels)
    instances = _numbers(table, features, missing=bool(request.impute), apart=request.features is None)
    coordinates = _numbers(table, coords) if coords else None
    table.refuse()
    if request.features is None:
        _report_kinds(table, features, kinds, notes)
        warn_of_features(table, features, instances)
    return {
        "X": instances,
        "bag": table.codes,
        "ids": table.ids,
        **fields,
        "coords": coordinates,
        "instance_labels": instance_labels,
        "feature_names": features,
        "columns": kinds,
        "source": table.where,
        "missing": request.impute,
    }


def _instance_labels(table: Table, column: str, others: Collection[object]) -> NDArray[np.float32]:
    """Return the labels of instances in a column: 0, 1, or NaN in an empty field; it is none of the `others`."""
    if column in others:
        got = f"{column!r}, which has another use (in {table.where}); name another column"
        raise ConfigError(f"Expected a column of its own for `instance_label`, got {got}.")
    series = table.frame[column]
    gaps = series.isna() | series.astype(str).str.strip().isin(["", *tables.words_for_none(series.dropna().unique())])
    words = series.astype(str).str.strip().str.casefold().replace({"true": "1", "false": "0"})
    labels = pd.to_numeric(words, errors="coerce").to_numpy(np.float32, na_value=np.nan)
    advice = "write 1 for an instance that makes its bag positive, 0 for another, nothing if unknown"
    table.faults += table.fault(~np.isin(labels, (0, 1)) & ~gaps, column, "labels 0 and 1 of instances", advice)
    if gaps.all():
        table.faults += table.fault(gaps, column, "some labels of instances", "name another column", got="none")
    return np.where(gaps, np.float32(np.nan), labels)


def _numbers(table: Table, columns: list[str], *, missing: bool = False, apart: bool = False) -> NDArray[Any]:
    """Return the values of numeric columns, [M, len(columns)]: finite, or NaN if values may be `missing`.

    Features of a run are all needed: no message advises to leave one out unless they are `apart`, in training.
    """
    objects = [name for name, kind in table.frame[columns].dtypes.items() if kind.kind in "Om"]
    if objects:
        table.frame = table.frame.assign(**{str(name): tables.plain_numbers(table.frame[name]) for name in objects})
    kinds = table.frame[columns].dtypes  # for all columns at once: a table may have many
    numeric = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind) for kind in kinds]
    sound, wrong = [column for column, is_number in zip(columns, numeric) if is_number], {}
    for column in (column for column, is_number in zip(columns, numeric) if not is_number):
        values = table.frame[column]
        gaps = values.isna()
        words = pd.to_numeric(values.astype(str), errors="coerce").isna() & ~gaps
        wrong[column] = words if words.any() else ~gaps
    leave = f", or leave out columns that are not features with {given(ignore=list(wrong))}" if apart else ""
    several = apart and len(table.codes) > len(np.unique(table.codes))  # before a training
    of_bags = [column for column in wrong if several and not tables.is_group_like(column)]
    of_bags = [c for c in of_bags if (table.frame[c].groupby(table.codes).nunique(dropna=False) == 1).all()]
    texts = [c for c in wrong if apart and c not in of_bags and not tables.is_group_like(c)]
    texts = [c for c in texts if tables.is_code_like(c) or 2 * wrong[c].sum() > table.frame[c].notna().sum()]
    for column, rows in wrong.items():
        other = f"name it with {given(groups=column)}" if tables.is_group_like(column) else "correct it"
        if column in texts:
            other = f"name it with {given(categories=texts)}"
            if not tables.is_code_like(column) and _holds_amounts(table.frame[column]):
                other = "write plain numbers, such as 1000.5 and 0.05 for 5%, and not as text"
        if column in of_bags:
            facts, text = given(covariates=of_bags), given(categories=of_bags)
            other = f"name facts about a bag with {facts}, or text that does not reveal the label with {text}"
        names = {name.lower() for name in table.frame[column].dropna().astype(str).unique()}
        if apart and names and names <= SPLIT_NAMES.keys():
            other = f"name it with {given(split=column)}"
        table.faults += table.fault(rows, column, f"numbers in column {column}", f"{other}{leave}")
    narrow = all(str(dtype) in ("float32", "float16") for dtype in table.frame[sound].dtypes)
    array: NDArray[Any] = table.frame[sound].to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    level = (array[:1] == array).all(axis=0) if apart else []
    for column in (column for column, equal in zip(sound, level) if equal and kinds[column].kind in "iu"):
        if table.frame[column].nunique() > 1:
            low, high = table.frame[column].min(), table.frame[column].max()
            wanted, first = "whole numbers that stay distinct in float64", np.arange(len(table.frame)) == 0
            advice = "subtract their common offset first"
            table.faults += table.fault(first, column, wanted, advice, got=f"{low} to {high}")
    gap = np.isnan(array)
    for wrong_values, usual in ((gap & (not missing), table.gaps), (~gap & ~usable(array), "drop or correct it")):
        for row, place in np.argwhere(wrong_values)[:1].tolist():
            column, got = sound[place], array[row, place]
            leave = f"leave the column out with {given(ignore=[column])} if it is no feature"
            advice = leave if apart and tables.is_label_like(column) else usual
            table.faults += table.fault(wrong_values.any(axis=1), column, expected_of(float(got)), advice, got=got)
    return np.require(array, requirements="W")  # torch warns of a view of a frame, which is read-only


def _report_kinds(
    table: Table, features: Sequence[str], columns: Sequence[Column] | None, notes: Mapping[str, str]
) -> None:
    """Note the kinds of columns, with what was read of others than numbers; warn about numbers that may be codes."""
    if notes:
        shown = ", ".join(f"{name} ({note})" for name, note in notes.items())
        kept = [name for name in notes if name in features]
        leave = f"; leave out columns that are not features with {given(ignore=kept[-1:])}" if kept else ""
        warnings.warn(f"columns that are not plain numbers: {shown} (in {table.where}){leave}", Note, stacklevel=6)
    codes, taken = [], {*notes, *(column.name for column in columns or () if column.kind != "number")}
    most = table.frame[[*features]].max(numeric_only=True)
    large = {*most.index[most.to_numpy(dtype=np.float64, na_value=0) >= 19000101]}
    for name in (name for name in features if name not in taken):
        is_code, is_id = tables.is_code_like(name), is_id_like(name)
        if not (is_code or is_id or name in large):
            continue
        values = table.frame[name].dropna()
        distinct = np.unique(values.to_numpy(dtype=np.float64))
        whole = bool((distinct == np.floor(distinct)).all())
        if len(distinct) < _CODES:
            continue
        if whole and (instead := _times_in(name, distinct)):
            text = f"column {name} is read as a plain number, but {distinct[0]:.0f} may be a time"
            warnings.warn(f"{text}: write times as {instead} (in {table.where})", stacklevel=6)
        elif is_code or (is_id and whole and ROWS * len(distinct) <= len(values)):
            codes.append(name)
    if codes:
        text = f"numbers in {listed(codes)} are read as amounts: if they are codes"
        warnings.warn(f"{text}, give {given(categories=codes)} (in {table.where})", stacklevel=6)


def _times_in(name: str, distinct: NDArray[np.float64]) -> str | None:
    """Return how to write times that all these whole numbers seem to be: 20230131, or seconds since 1970."""
    if dates := forms.packed_dates(distinct):
        return dates[1]
    scale = max((scale for scale in (1.0, 1e3, 1e6, 1e9) if _SECONDS * scale <= distinct[0]), default=0.0)
    if not scale or distinct[-1] > (_SECONDS + _SPAN) * scale or not _OF_TIME.fullmatch(name.lower()):
        return None
    return f"{np.datetime64(int(distinct[0] / scale), 's')}".replace("T", " ")


def _read_kinds(
    table: Table, features: Sequence[str], request: Request, *, labels: Sequence[NDArray[np.float64]]
) -> tuple[list[str], list[Column] | None, dict[str, str]]:
    """Make feature columns numbers, of the kinds of a run, or of kinds inferred from the values; other text stays.

    Return the features, their kinds unless all are numbers, and a note on each that was not a number. `labels` are the
    known labels of the bags, each as numbers [N].
    """
    frame, codes, firsts, where = table.frame, table.codes, table.first, table.where
    of_instances = [name for name in request.categories if name not in request.covariate_columns]
    wanted = [("categories", name) for name in of_instances if request.features is None]
    tables.require_columns(features, wanted, where)
    columns, changed, notes = list[Column](), dict[str, Any](), dict[str, str]()
    new = not request.require_labels and len(firsts) <= FEW
    for name in features:
        raw, kind = frame[name], "" if request.kinds is None else request.kinds.get(name, "number")
        if name in request.categories or (not kind and isinstance(raw.dtype, pd.CategoricalDtype)):
            kind = "category"
        values = raw if kind == "category" else tables.plain_numbers(raw)
        if raw is not values:
            changed[name] = values
            if any(isinstance(value, timedelta) for value in raw.dropna().iloc[:1]):
                notes[name] = "durations, in seconds"
        if request.features is None and not kind and is_id_like(name) and _names_rows(values, firsts):
            notes[name] = "an id of each row, left out"
            continue
        words: tuple[str, ...] = ()
        names: tuple[str, ...] = ()
        made, of_row = None, codes
        if kind == "category" or not pd.api.types.is_numeric_dtype(values):
            words, of_row = _words(values, f"{where}, column {name}")
        kind = kind or _kind(name, values, words, of_row, firsts[codes], labels=None if new else labels)
        try:
            if kind == "category":
                made, names = _places(words, of_row, name, where)
                if name not in request.categories:
                    notes[name] = f"{len(names)} categories"
            elif kind == "time" and (times := _times(values, words, of_row, name, where)) is not None:
                made, notes[name] = times, "dates"
            elif kind == "number" and words and (numbers := _numbers_of(words)) is not None:
                made, notes[name] = numbers[0][of_row], numbers[1]
        except BagDataError as error:
            table.add_error(error)
            made = np.zeros(len(frame))
        columns.append(Column(name, "number" if made is None else kind, names))  # type: ignore[arg-type]
        if made is not None:
            changed[name] = made
    table.frame = frame.assign(**changed) if changed else frame
    plain = all(column.kind == "number" for column in columns)
    return [column.name for column in columns], None if plain else columns, notes


def _words(values: "pd.Series[Any]", where: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct values of a column as categories, with "" (missing) last, and the place of each row."""
    of_row, distinct = pd.factorize(values)
    words = (*(forms.category_of(value, where) for value in distinct), "")
    return words, np.where(of_row < 0, len(words) - 1, of_row)


def _kind(
    name: str,
    values: "pd.Series[Any]",
    words: tuple[str, ...],
    of_row: NDArray[np.int64],
    firsts: NDArray[np.intp],
    *,
    labels: Sequence[NDArray[np.float64]] | None,
) -> str:
    """Return the kind of a column; "" for text to refuse: many values, nearly numbers, patients, splits, or a label.

    `firsts` [M] is the first row of the bag of each row. Of text with one value in each bag, bags count instead of
    rows. New bags, whose `labels` are None, may hold each category once.
    """
    known = {word.casefold() for word in words if word}
    if not known:
        return "number"
    if tables.is_group_like(name):
        return ""
    if pd.api.types.is_datetime64_any_dtype(values) or forms.are_dates(words):
        return "time"
    if _numbers_of(words):
        return "number"
    bags = np.unique(firsts)
    constant = len(bags) < len(firsts) and bool((of_row == of_row[firsts]).all())
    if constant and (known <= SPLIT_NAMES.keys() or _tells(name, of_row[bags], labels or ())):
        return ""
    rows, least = (of_row[bags], _BAGS) if constant and len(bags) > FEW else (of_row, ROWS)
    often = labels is None or int((rows < len(words) - 1).sum()) >= least * len(known)
    numbers = [word for word in known if number_of(word) is not None or _AMOUNT.fullmatch(word.upper())]
    return "category" if often and len(known) <= MOST and 2 * len(numbers) < len(known) else ""


def _holds_amounts(values: "pd.Series[Any]") -> bool:
    """Return whether most texts of a column are amounts such as 5%, $5.00 and 1,000, and none codes such as 0117."""
    words = values.dropna().astype(str).str.strip().str.upper().tolist()
    return not example_of_codes(words) and 2 * sum(bool(_AMOUNT.fullmatch(w)) for w in {*words}) > len({*words})


def _tells(name: str, values: NDArray[np.int64], labels: Sequence[NDArray[np.float64]]) -> bool:
    """Return whether values [N] of bags tell a label: by the name of the column, or as each value has one label."""
    if tables.is_label_like(name):
        return True
    repeated = FEW < len(values) >= 2 * len(np.unique(values))
    ends = [pd.Series(label).groupby(values).agg(["min", "max"]).dropna() for label in labels if repeated]
    return any((end["min"] == end["max"]).all() and end["min"].nunique() > 1 for end in ends)


def _places(
    words: tuple[str, ...], of_row: NDArray[np.int64], name: str, where: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the place of each row's category, -1 if missing, and the categories, which ignore case."""
    spelled = merge_words([word for word in words if word], f"categories of column {name}", source=where)
    names = tuple(sorted(spelled.values()))
    warn_of_alike({f"categories of column {name}": names}, source=where)
    place = {word.casefold(): number for number, word in enumerate(names)}
    return np.array([place.get(word.casefold(), -1) for word in words], dtype=np.float64)[of_row], names


def _times(
    values: "pd.Series[Any]", words: tuple[str, ...], of_row: NDArray[np.int64], name: str, where: str
) -> NDArray[np.float64] | None:
    """Return a column of times as days since 1970-01-01, in UTC if they state an offset; None for another column."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return forms.days_since(pd.to_datetime(values, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[ms]"))
    days = forms.days_of(words, name, where, kind="column") if words else None
    return None if days is None else days[of_row]


def _numbers_of(words: tuple[str, ...]) -> tuple[NDArray[np.float64], str] | None:
    """Return a number for each word and a note, if all are times of day, or stand for yes or no; otherwise None."""
    if (hours := forms.hours_of(words)) is not None:
        return hours, "times of day, in hours"
    plain = [word.casefold() for word in words]
    if not set(plain) <= {"", *_TRUE, *_FALSE}:
        return None
    values = np.array([np.nan if not word else float(word in _TRUE) for word in plain])
    return values, "1 for yes, 0 for no" if any(words) else "empty"


def _names_rows(values: "pd.Series[Any]", firsts: NDArray[np.intp]) -> bool:
    """Return whether a column has a different value, a whole number or a text, in each row of many bags."""
    if not FEW < len(firsts) < len(values) or not values.is_unique or values.isna().any():
        return False
    return not pd.api.types.is_numeric_dtype(values) or bool((values == np.floor(values)).all())
