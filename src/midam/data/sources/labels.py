"""Labels of bags: columns of a table, attributes of files, keys of an archive, or y of scikit-learn as `TargetLabels`.

If the request names no target, it is inferred in these cases, with a note:

1. one column with `positive`, or of at most two values: binary;
2. one column of more than two words, none of them from a plain pair such as no and yes: multiclass;
3. the columns ``time`` and ``event``, without a column of labels: survival;
4. several named columns of 0 and 1, empty if unknown: multilabel.

All else is refused until the request names the target: numbers may be classes, grades or a quantity. Two classes are
coded as 0 and 1 by these rules, in this order:

1. the value that `positive` names is 1, all others are 0;
2. if two classes are known already (from a run or a store), the first is 0 and the second 1;
3. 0 and 1 stay as they are;
4. in a plain pair, a word of `NEGATIVE` is 0 and a word of `POSITIVE` is 1, with a note; so are -1 and 1;
5. anything else is refused without `positive`.

Upper and lower case, and blanks around a word, make no difference; 1, 1.0 and "1" are one value, "01" is another.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from midam.data.covariates import TRUTHS, number_of
from midam.data.sources.request import Request
from midam.data.target_labels import CODED, TargetLabels
from midam.data.validate import usable, wanted
from midam.errors import BagDataError, ConfigError, Note, given, nearest, with_article
from midam.names import is_missing, merge_words, name_of
from midam.registry import TARGETS

T = TypeVar("T")
NEGATIVE = (
    *("no", "n", "negative", "neg", "false", "benign", "normal", "normal_tissue", "healthy", "control", "absent"),
    *("wildtype", "wild type", "wild-type", "wt", "unaffected", "non-tumor", "nontumor", "no tumor"),
)
POSITIVE = (
    *("yes", "y", "positive", "pos", "true", "malignant", "cancer", "tumor", "tumour", "tumor_tissue", "abnormal"),
    *("diseased", "disease", "sick", "case", "present", "mutant", "mutated", "mut", "affected", "metastasis"),
)
_UNKNOWN = {"?", "-", "unknown", "unclear", "uncertain", "indeterminate", "equivocal", "inconclusive", "missing"}
_PLAIN = {**dict.fromkeys(NEGATIVE, 0), **dict.fromkeys(POSITIVE, 1)}
SURVIVAL = ("time", "event")
_LABEL, _OF_SEVERAL = "label", "label_"
_WHOLE = re.compile(r"^\+?(-?\d+)(\.0*)?(e[+-]?0+)?$", re.IGNORECASE)
_SHOWN = 8
_FEW = 20  # so few numbers, or classes that do not all differ, are never taken for ids
_OTHERS = " Or choose another `target`: multiclass, ordinal or continuous."


class LabelColumn(NamedTuple):
    """A column of labels: its values [n], its name, and how messages call it and the bags of its rows."""

    name: str
    values: Sequence[object]
    request: Request
    ids: Sequence[str]
    origin: str

    def words(self) -> list[str]:
        """Return the values as words; refuse gaps, unless the request names their word as a class."""
        named = named_words(self.request)
        gaps = [row for row, value in enumerate(self.values) if is_missing(value, named)]
        if gaps:
            advice = gap_advice(self.request, self.name, "fill it in, or leave such bags out")
            got = f"none for {len(gaps)} of {len(self.values)} (in {self.place(gaps[0])})"
            raise BagDataError(f"Expected {with_article(self.name)} of each bag, got {got}; {advice}.")
        return [word_of(value) for value in self.values]

    def numbers(self, advice: str) -> NDArray[np.float64]:
        """Return the values as numbers."""
        parsed = [number_of(str(value).strip()) for value in self.values]
        wrong = next((row for row, number in enumerate(parsed) if number is None), None)
        if wrong is not None:
            got = "none" if is_missing(self.values[wrong]) else self.values[wrong]
            raise self.misfit("numbers", got, wrong, advice)
        numbers = np.array(parsed, dtype=np.float64)
        for row in np.flatnonzero(~usable(numbers))[:1].tolist():
            raise self.misfit(wanted(numbers[row]), self.values[row], row, "correct it, give it in another unit")
        return numbers

    def place(self, row: int) -> str:
        """Return the place of a row for a message: the table and, if the ids are known, the bag."""
        return f"{self.request.where}, bag {self.ids[row]}" if len(self.ids) else self.request.where

    def misfit(self, expected: str, got: object, row: int, advice: str) -> BagDataError:
        """Return the error about a value."""
        text = f"Expected {expected} in {self.origin}, got {got} (in {self.place(row)}); {advice}"
        return BagDataError(f"{text}, or leave such bags out.")


def code_labels(
    columns: Mapping[str, Sequence[object]], request: Request, *, ids: Sequence[str] = (), origin: str = "column {}"
) -> TargetLabels:
    """Return the labels of n bags from columns [n], where a missing value is None or NaN.

    Messages name the bags by their `ids` [n], if these are known, and call a column by the `origin`.
    """
    if request.target not in ("auto", *TARGETS.own):
        raise ConfigError(f"Expected a known target, got {request.target!r}; {nearest(request.target, TARGETS.own)}")
    target, names = _target(columns, request), tuple(columns)
    parts = [LabelColumn(name, values, request, ids, origin.format(name)) for name, values in columns.items()]
    if target == "multilabel":
        labels = _several(parts, request)
    elif target == "survival":
        labels = _survival(parts[0], parts[1], request)
    elif target in ("binary", *CODED):
        labels = _classes(target, *parts)
    else:
        numbers = parts[0].numbers("correct it, or name the grades, the lowest first, with `grades`")
        labels = TargetLabels.of(target, numbers, names=[parts[0].name])
    if request.target == "auto" and target in ("multilabel", "survival"):
        text = f"columns {' and '.join(names)}" if len(names) < 3 else f"{len(names)} columns"
        warnings.warn(f"labels of the {text} (in {request.where}): the target is {target}", Note, stacklevel=5)
    return labels


def label_columns(present: Iterable[object], request: Request) -> tuple[str, ...]:
    """Return the label columns among the columns `present`: one, one for each of several labels, or time and event.

    A request names several columns with commas. Default: ``label``; for survival ``time`` and ``event``; for several
    labels all columns that begin with ``label_``.
    """
    names, column = [str(name) for name in present], request.label_column
    if column in names:
        return (column,)
    if column != _LABEL:
        return tuple(part.strip() for part in column.split(","))
    if request.target == "survival" or (request.target == "auto" and set(SURVIVAL) <= set(names)):
        return SURVIVAL
    several = tuple(name for name in names if name.startswith(_OF_SEVERAL))
    return several if request.target == "multilabel" and several else (column,)


def is_binary(values: Iterable[object], request: Request) -> bool:
    """Return whether the rule of binary labels, which codes or refuses values, applies to a column of these values."""
    if request.target != "auto":
        return request.target == "binary"
    words = {word_of(value).casefold() for value in values}
    in_words = not any(number_of(word) is not None for word in words) and not words & _PLAIN.keys()
    return request.positive is not None or request.classes is not None or len(words) <= 2 or not in_words


def word_of(value: object) -> str:
    """Return a value as text in the form of names; a whole number has no decimals, exponent of 0 or plus sign."""
    return _WHOLE.sub(r"\1", name_of(value))


def _form(name: object) -> str | float:
    """Return a class in the form that all its spellings share: False is 0 and True 1, in any case."""
    return TRUTHS.get(word := word_of(name).casefold(), word)


def plain_pair(words: Iterable[str]) -> bool:
    """Return whether two words are a plain pair, one of a negative and one of a positive class."""
    return {_PLAIN.get(word.casefold()) for word in words} == {0, 1}


def labels_or_none(request: Request, read: Callable[[], T]) -> T | None:
    """Return the result of `read`; if it fails and the request ignores bad labels, return None with a note."""
    try:
        return read()
    except BagDataError as fault:
        if request.bad_labels == "error":
            raise
        warnings.warn(f"labels are ignored, as scoring needs none: {fault}", Note, stacklevel=5)
        return None


def named_words(request: Request) -> set[str]:
    """Return the words that the request names as classes, grades or the positive value."""
    named = (request.positive, *request.grades, *(request.classes or ()))
    return {word_of(name).casefold() for name in named if name is not None}


def gap_advice(request: Request, column: str, usual: str, *, label: bool = True) -> str:
    """Return the advice about gaps in a column: the `usual` one, or how to keep words that were read as gaps."""
    words = request.read_as_missing.get(column)
    if words is None:
        return usual
    rename = "class, rename it, or name it with `positive` or among `grades`" if label else "name, write another word"
    meaning = f"{words} of column {column} counts as a missing {'label' if label else column}"
    return f"{meaning}: {usual}, or if it is a {rename}" if usual else f"{meaning}: if it is a {rename}"


def as_asked(outcome: TargetLabels, request: Request, ids: Sequence[str]) -> TargetLabels:
    """Return the outcome of bags that have one, with the classes or labels of the request in its order.

    Refuse another target than the request names, and other classes.
    """
    target = outcome.target
    if request.target not in ("auto", target):
        got = f"got {target!r} (in {request.where}), which has labels of its own; leave `target` out, or take others"
        raise BagDataError(f"Expected labels of the target {request.target!r}, {got}.")
    named = target == "binary" or (request.target != "auto" and target in (*CODED, "multilabel"))
    asked = (named and request.classes is not None) or request.positive is not None
    return code_labels(outcome.columns(), request, ids=ids) if asked else outcome


def _target(columns: Mapping[str, Sequence[object]], request: Request) -> str:
    names, target = tuple(columns), request.target
    if target == "auto" and len(names) == 1:
        return "binary" if is_binary(columns[names[0]], request) else "multiclass"
    if target == "auto":
        return "survival" if tuple(name.casefold() for name in names) == SURVIVAL else "multilabel"
    count = {"survival": 2, "multilabel": None}.get(target, 1)
    if count is not None and len(names) != count:
        example = f"such as {given(label_column='time,event' if count == 2 else 'label')}"
        raise ConfigError(
            f"Expected {count} label column{'s' * (count > 1)} for the target {target!r}, got {', '.join(names)} (in "
            f"{request.where}); name {'time and event' if count == 2 else 'one'}, {example}."
        )
    return target


def _classes(target: str, column: LabelColumn) -> TargetLabels:
    """Return the labels of a column of classes or grades, whose names are known or those of the column."""
    words, request = column.words(), column.request
    if target == "binary":
        spelled = merge_words(words, f"labels in {column.origin}", source=request.where)
        odd = next((row for row, word in enumerate(words) if word.casefold() not in {*TRUTHS, *_PLAIN}), None)
        place = request.where if odd is None or not column.ids else f"{request.where}, bag {column.ids[odd]}"
        codes, names = _rule(spelled, request, column.origin, place)
        return TargetLabels(target, np.array([codes[word.casefold()] for word in words], np.float64)[:, None], names)
    kinds = "grades" if target == "ordinal" else "classes"
    known = request.classes if request.classes is not None else request.grades or None
    names = _names(words, kinds, column) if known is None else tuple(map(word_of, known))
    codes = {name.casefold(): code for code, name in enumerate(names)}
    if len(codes) < len(names):
        raise ConfigError(f"Expected {kinds} that differ in more than case, got {', '.join(names)}; rename them.")
    wrong = next((row for row, word in enumerate(words) if word.casefold() not in codes), None)
    if wrong is not None:
        like = " as in training" if known is request.classes else ""
        raise column.misfit(f"one of the {kinds} {', '.join(names)}{like}", words[wrong], wrong, "correct it")
    return TargetLabels.of(target, [codes[word.casefold()] for word in words], names=names)


def _names(words: Sequence[str], kinds: str, column: LabelColumn) -> tuple[str, ...]:
    """Return the names of the classes of a column; refuse a column that names the bags."""
    request, origin, where = column.request, column.origin, column.request.where
    spelled = merge_words(words, f"{kinds} in {origin}", source=where).values()
    names = sorted(spelled, key=lambda name: (number_of(name) is None, number_of(name) or 0.0, name.casefold()))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    if len(names) > max(_FEW, len(words) // 2) or len(names) == len(words) > 2:
        got = f"{len(names)} different values for {len(words)} bags: {shown} (in {where}), so it names the bags"
        raise BagDataError(
            f"Expected {kinds} in {origin}, got {got}; name the column of the label with `label_column`."
        )
    if len(names) < 2:
        raise BagDataError(f"Expected several {kinds} in {origin}, got only {shown} (in {where}); add bags of others.")
    if kinds == "grades" and any(number_of(name) is None for name in names):
        got = f"none: {shown} (in {where}); list them, lowest first"
        raise BagDataError(f"Expected `grades` with the words of {origin}, got {got}.")
    if request.target == "auto":
        text = f"{len(names)} classes in {origin}: {shown} (in {where}): the target is multiclass"
        warnings.warn(f"{text}; {given(positive=names[-1])} ranks one against the rest", Note, stacklevel=6)
    return tuple(names)


def _several(columns: Sequence[LabelColumn], request: Request) -> TargetLabels:
    names = [column.name.removeprefix(_OF_SEVERAL) for column in columns]
    values = np.full((len(columns[0].values), len(names)), np.nan)
    for place, column in enumerate(columns):
        words = ["" if is_missing(value) else word_of(value) for value in column.values]
        wrong = {word for word in words if word and word.casefold() not in TRUTHS}
        if wrong:
            wanted, got = f"{column.origin}, one of {len(names)} labels", f"{min(wrong)} (in {request.where})"
            advice = "recode the column, or name another one with `label_column`"
            raise BagDataError(f"Expected 0, 1 or nothing in {wanted}, got {got}; {advice}.")
        values[:, place] = [TRUTHS.get(word.casefold(), np.nan) for word in words]
    known = names if request.classes is None else [*map(str, request.classes)]
    if sorted(known) != sorted(names):
        got = f"{', '.join(names)} (in {request.where}); name their columns with `label_column`"
        raise BagDataError(f"Expected the labels {', '.join(known)} as in training, got {got}.")
    return TargetLabels.of("multilabel", values[:, [names.index(name) for name in known]], names=known)


def _survival(time: LabelColumn, event: LabelColumn, request: Request) -> TargetLabels:
    words, where = [word.casefold() for word in event.words()], request.where
    known = sorted(set(words))
    happened = None if request.positive is None else word_of(request.positive).casefold()
    shown = f"{event.origin}, got {', '.join(known[:_SHOWN])} (in {where})"
    if happened is not None and happened not in known:
        raise BagDataError(f"Expected the event {request.positive!r} in {shown}; name one of these as `positive`.")
    if happened is None and not (set(known) <= {"0", "1"} or set(known) <= {"false", "true"}):
        raise BagDataError(
            f"Expected events 0 and 1 in {shown}; recode them, or name the event, such as {given(positive=known[-1])}: "
            "all others, such as an earlier transplant, count as censored."
        )
    _warn_of_unknown({*known} - {happened}, f"censored in {event.origin} (in {where})")
    numbers = time.numbers("write the time of the event, or of the last visit if there was no event")
    flags = [word in ("1", "true") if happened is None else word == happened for word in words]
    return TargetLabels.of("survival", np.stack([numbers, np.array(flags)], axis=1), names=(time.name, event.name))


def _warn_of_unknown(others: Iterable[str], meaning: str) -> None:
    """Warn of words among the `others` than the positive one that mean that a label is not known."""
    for word in sorted(_UNKNOWN.intersection(map(str.casefold, others))):
        warnings.warn(f"{word} counts as {meaning}: if the label is not known, leave such bags out", stacklevel=8)


def _rule(names: dict[str, str], request: Request, origin: str, place: str) -> tuple[dict[str, int], tuple[Any, ...]]:
    """Return the code of each value, and the names of the two classes; `place` is that of the first odd value."""
    known, where = sorted(names), request.where
    shown = ", ".join(names[key] for key in known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    got = f"in {origin}, got {shown} (in {where})"
    positive = None if request.positive is None else word_of(request.positive)
    pair = tuple(request.classes or ())
    classes = tuple(map(word_of, pair)) if len(pair) == 2 else ()
    if positive is None and classes and classes[0] == f"not {classes[1]}" and classes[1].casefold() in known:
        positive = classes[1]
    key = None if positive is None else positive.casefold()
    if key is not None and key not in names:
        raise BagDataError(f"Expected the positive value {positive!r} {got}; name one of these as `positive`.")
    if classes:
        of_run, forms = {_form(name): code for code, name in enumerate(classes)}, list(map(_form, known))
        codes = {name: of_run.get(form, -1) if key is None else int(name == key) for name, form in zip(known, forms)}
        alike = all(of_run.get(form, codes[name]) == codes[name] for name, form in zip(known, forms))
        if not alike or -1 in codes.values() or len({*forms}) < len(known):
            raise BagDataError(
                f"Expected labels {classes[0]} and {classes[1]} as in training {got}; write them so, or name the value "
                f"that means {classes[1]} as `positive`: all others are 0."
            )
        return codes, pair
    if set(known) <= {"0", "1"} and key in (None, "1"):
        return {"0": 0, "1": 1}, ("0", "1")
    if set(known) <= TRUTHS.keys() and len({TRUTHS[word] for word in known}) < len(known):
        raise BagDataError(f"Expected labels 0 and 1 {got}; write True as 1 and False as 0.")
    if key is not None:
        others = [names[other] for other in known if other != key]
        other = others[0] if len(others) == 1 else f"not {names[key]}"
        _warn_of_unknown(others, f"0 in {origin} (in {where})")
        return {name: int(name == key) for name in known}, (other, names[key])
    codes = {"-1": 0, "1": 1} if set(known) == {"-1", "1"} else {key: _PLAIN[key] for key in known if key in _PLAIN}
    words = {code: names[key] for key, code in codes.items()}
    if len(codes) < len(known) or len(words) < len(known):
        such = given(positive=names[max(known, key=lambda key: (_PLAIN.get(key, 0.5), key))])
        raise BagDataError(
            f"Expected labels 0 and 1 in {origin}, got {shown} (in {place}); say which value is positive, such as "
            f"{such}: all others are 0.{_OTHERS if len(known) > 2 else ''}"
        )
    if len(words) == 1:
        return codes, ("0", "1")
    if set(known) != {"false", "true"}:
        text = f"{words[1]} is positive (1) and {words[0]} negative (0) in {origin} (in {where})"
        warnings.warn(f"{text}; {given(positive=words[0])} swaps them", Note, stacklevel=7)
    return codes, (words[0], words[1])
