"""Labels of tables, numbers or words, coded as 0 and 1: rules that find the positive class.

The rules, in this order:

1. the value that `positive` names is 1, all others are 0;
2. if two classes are known already (from a run or a store), the first is 0 and the second 1;
3. 0 and 1 stay as they are;
4. in a plain pair, a word of `NEGATIVE` is 0 and a word of `POSITIVE` is 1, with a note; so are -1 and 1;
5. anything else is refused without `positive`.

Upper and lower case, and blanks around a word, make no difference; 1, 1.0 and "1" are one value, "01" is another.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.request import Request
from midam.data.target_labels import TargetLabels
from midam.data.validate import TwoNames
from midam.errors import BagDataError, Note, given, with_article
from midam.names import is_missing, merge_words, name_of

T = TypeVar("T")
NEGATIVE = (
    *("no", "n", "negative", "neg", "false", "benign", "normal", "normal_tissue", "healthy", "control", "absent"),
    *("wildtype", "wild type", "wild-type", "wt", "unaffected", "non-tumor", "nontumor", "no tumor"),
)
POSITIVE = (
    *("yes", "y", "positive", "pos", "true", "malignant", "cancer", "tumor", "tumour", "tumor_tissue", "abnormal"),
    *("diseased", "disease", "sick", "case", "present", "mutant", "mutated", "mut", "affected", "metastasis"),
)
_PLAIN = {**dict.fromkeys(NEGATIVE, 0), **dict.fromkeys(POSITIVE, 1)}
PLAIN_WORDS = frozenset(_PLAIN)
_WHOLE = re.compile(r"^\+?(-?\d+)(\.0*)?(e[+-]?0+)?$", re.IGNORECASE)
_SHOWN = 8
_OTHERS = " Or choose another `target`: multiclass, ordinal or continuous."


class Coded(NamedTuple):
    """Labels 0 or 1 of each value, and the names of the two classes (None: 0 and 1); or another outcome."""

    labels: NDArray[np.int64] | None = None
    classes: TwoNames | None = None
    outcome: TargetLabels | None = None


def code_labels(
    values: Sequence[object], request: Request, *, origin: str, column: str = "label", ids: Sequence[str] = ()
) -> Coded:
    """Code the labels of a column, or of another `origin`, as 0 and 1 by the rules of this module; refuse gaps."""
    refuse_gaps(values, column, request, ids)
    words = [word_of(value) for value in values]
    codes, classes = _rule(merge_words(words, f"labels in {origin}", source=request.where), request, origin)
    return Coded(np.array([codes[word.casefold()] for word in words], dtype=np.int64), classes)


def word_of(value: object) -> str:
    """Return a value as text in the form of names; a whole number has no decimals, exponent of 0 or plus sign."""
    return _WHOLE.sub(r"\1", name_of(value))


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


def refuse_gaps(values: Sequence[object], column: str, request: Request, ids: Sequence[str] = ()) -> None:
    """Refuse missing values in a column of labels; the message names the first bag at fault, if `ids` are given."""
    named = named_words(request)
    gaps = [row for row, value in enumerate(values) if is_missing(value, named)]
    if gaps:
        advice = gap_advice(request, column, "fill it in, or leave such bags out")
        raise BagDataError(
            f"Expected {with_article(column)} of each bag, got none for {len(gaps)} of {len(values)} (in "
            f"{place_of(gaps[0], request, ids)}); {advice}."
        )


def place_of(row: int, request: Request, ids: Sequence[str]) -> str:
    """Return the place of a row for a message: the table and, if the `ids` are known, the bag."""
    return f"{request.where}, bag {ids[row]}" if len(ids) else request.where


def _rule(names: dict[str, str], request: Request, origin: str) -> tuple[dict[str, int], TwoNames | None]:
    """Return the code of each value, and the names of the classes."""
    known, where = sorted(names), request.where
    shown = ", ".join(names[key] for key in known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    got = f"in {origin}, got {shown} (in {where})"
    positive = None if request.positive is None else word_of(request.positive)
    pair = None if request.classes is None or len(request.classes) != 2 else (request.classes[0], request.classes[1])
    classes = None if pair is None else (word_of(pair[0]), word_of(pair[1]))
    if positive is None and classes is not None:
        class_codes = {name.casefold(): code for code, name in enumerate(classes)}
        if set(known) <= class_codes.keys():
            return class_codes, pair
        if classes[0] == _rest(classes[1]) and classes[1].casefold() in known:
            positive = classes[1]
    key = None if positive is None else positive.casefold()
    if key is not None and key not in names:
        raise BagDataError(f"Expected the positive value {positive!r} {got}; name one of these as `positive`.")
    if set(known) <= {"0", "1"} and key in (None, "1"):
        return {"0": 0, "1": 1}, None
    if key is not None:
        others = [names[other] for other in known if other != key]
        other = others[0] if len(others) == 1 else _rest(names[key])
        return {name: int(name == key) for name in known}, (other, names[key])
    codes = {"-1": 0, "1": 1} if set(known) == {"-1", "1"} else {key: _PLAIN[key] for key in known if key in _PLAIN}
    words = {code: names[key] for key, code in codes.items()}
    if len(codes) < len(known) or len(words) < len(known):
        wanted = "" if classes is None else f", or {' and '.join(classes)} as in training,"
        such = given(positive=names[max(known, key=lambda key: (_PLAIN.get(key, 0.5), key))])
        raise BagDataError(
            f"Expected labels 0 and 1{wanted} {got}; say which value is positive, such as {such}: all others are 0."
            f"{_OTHERS if len(known) > 2 and wanted == '' else ''}"
        )
    if len(words) == 1:
        return codes, None
    if set(known) != {"false", "true"}:
        text = f"{words[1]} is positive (1) and {words[0]} negative (0) in {origin} (in {where})"
        warnings.warn(f"{text}; {given(positive=words[0])} swaps them", Note, stacklevel=6)
    return codes, (words[0], words[1])


def _rest(name: object) -> str:
    """Return the name of all classes but one."""
    return f"not {name}"
