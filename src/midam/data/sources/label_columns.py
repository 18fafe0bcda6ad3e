"""Label columns of tables, coded as labels 0 and 1 or as `TargetLabels`.

If the request names no target, it is inferred in these cases, with a note:

1. one column with `positive`, or of at most two values: binary, by the rule of `midam.data.sources.label_values`;
2. one column of more than two words, none of them from a plain pair such as no and yes: multiclass;
3. the columns ``time`` and ``event``, without a column of labels: survival;
4. several named columns of 0 and 1, empty if unknown: multilabel.

All else is refused until the request names the target: numbers may be classes, grades or a quantity.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.covariates import number_of
from midam.data.sources.label_values import PLAIN_WORDS, Coded, code_labels, place_of, refuse_gaps, word_of
from midam.data.sources.request import Request
from midam.data.target_labels import CODED, TargetLabels
from midam.data.validate import usable, wanted
from midam.errors import BagDataError, ConfigError, Note, given, nearest
from midam.names import is_missing, merge_words

TARGETS = ("binary", "multiclass", "multilabel", "ordinal", "continuous", "survival")
SURVIVAL = ("time", "event")
_LABEL, _OF_SEVERAL = "label", "label_"
_SHOWN = 8
_FEW = 20  # so few numbers, or classes that do not all differ, are never taken for ids


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
    in_words = not any(number_of(word) is not None for word in words) and not words & PLAIN_WORDS
    return request.positive is not None or request.classes is not None or len(words) <= 2 or not in_words


def code_columns(columns: Mapping[str, Sequence[object]], request: Request, *, ids: Sequence[str] = ()) -> Coded:
    """Return the labels or outcome of n bags from columns [n], where a missing value is None or NaN.

    Messages name the bags by their `ids` [n], if these are known.
    """
    names = tuple(columns)
    if request.target not in ("auto", *TARGETS):
        raise ConfigError(f"Expected a known target, got {request.target!r}; {nearest(request.target, TARGETS)}")
    if len(names) == 1:
        (values,) = columns.values()
        if is_binary(values, request):
            return code_labels(values, request, origin=f"column {names[0]}", column=names[0], ids=ids)
    target = _target(columns, request)
    if target == "multilabel":
        outcome = _several(columns, request)
    elif target == "survival":
        outcome = _survival(columns, request, ids)
    else:
        outcome = _single(target, columns, request, ids)
    if request.target == "auto" and target != "multiclass":
        text = f"columns {' and '.join(names)}" if len(names) < 3 else f"{len(names)} columns"
        warnings.warn(f"labels of the {text} (in {request.where}): the target is {target}", Note, stacklevel=5)
    return Coded(outcome=outcome)


def as_asked(outcome: TargetLabels | None, request: Request) -> TargetLabels | None:
    """Return the outcome of data that have one, with the classes or labels of the request in its order.

    Refuse another target than the request names, and other classes.
    """
    target = "binary" if outcome is None else outcome.target
    if request.target not in ("auto", target):
        raise BagDataError(
            f"Expected labels of the target {request.target!r}, got {target!r} (in {request.where}), which defines its "
            "own labels; leave `target` out, or choose other data."
        )
    if outcome is None or request.classes is None or request.target == "auto" or target not in (*CODED, "multilabel"):
        return outcome
    place_of = {word_of(name).casefold(): place for place, name in enumerate(request.classes)}
    matches = [place_of.get(name.casefold()) for name in outcome.names]
    used = range(len(matches)) if target == "multilabel" else sorted(set(outcome.values[:, 0].astype(int).tolist()))
    unknown = [outcome.names[place] for place in used if matches[place] is None]
    if unknown or (target == "multilabel" and len(matches) < len(place_of)):
        got = f"{unknown[0]!r}" if unknown else f"{len(matches)} of them"
        raise BagDataError(
            f"Expected the {'labels' if target == 'multilabel' else 'classes'} {', '.join(map(str, request.classes))} "
            f"as in training, got {got} (in {request.where}); use data with the same ones."
        )
    places = np.array([-1 if place is None else place for place in matches])
    values = (
        outcome.values[:, np.argsort(places)] if target == "multilabel" else places[outcome.values.astype(np.int64)]
    )
    return TargetLabels.of(target, values, names=[str(name) for name in request.classes])


def _target(columns: Mapping[str, Sequence[object]], request: Request) -> str:
    names, target = tuple(columns), request.target
    if target == "auto":
        target = "multiclass" if len(names) == 1 else "multilabel"
        if len(names) == 2 and tuple(name.casefold() for name in names) == SURVIVAL:
            target = "survival"
    count = {"survival": 2, "multilabel": None}.get(target, 1)
    if count is not None and len(names) != count:
        example = "such as label_column='time,event'" if count == 2 else "such as label_column='label'"
        raise ConfigError(
            f"Expected {count} label column{'s' * (count > 1)} for the target {target!r}, got {', '.join(names)} (in "
            f"{request.where}); name {'time and event' if count == 2 else 'one'}, {example}."
        )
    return target


def _single(target: str, columns: Mapping[str, Sequence[object]], request: Request, ids: Sequence[str]) -> TargetLabels:
    ((column, values),) = columns.items()
    if target == "continuous":
        numbers = _numbers(values, column, request, ids)
        if len(numbers) > _FEW and (np.diff(np.sort(numbers)) == 1).all():
            text = f"column {column} holds each of {numbers.min():g} to {numbers.max():g} once (in {request.where})"
            advice = "if it numbers the bags, name the column of the label with `label_column`"
            warnings.warn(f"{text}: {advice}", stacklevel=5)
        return TargetLabels.of(target, numbers, names=[column])
    words = [word_of(value) for value in values]
    refuse_gaps(values, column, request, ids)
    known = request.classes if request.classes is not None else request.grades or None
    names = _classes(words, request, column) if known is None else [word_of(name) for name in known]
    if known is None and target == "ordinal" and any(number_of(name) is None for name in names):
        raise BagDataError(
            f"Expected `grades` with the words of column {column}, got none: {', '.join(names[:_SHOWN])} (in "
            f"{request.where}); list them, the lowest first."
        )
    codes = {name.casefold(): code for code, name in enumerate(names)}
    wrong = next((row for row, word in enumerate(words) if word.casefold() not in codes), None)
    if wrong is not None:
        expected = f"one of the {_kinds(request)} {', '.join(names)}"
        raise _misfit(expected, column, words[wrong], place_of(wrong, request, ids), "correct it")
    return TargetLabels.of(target, [codes[word.casefold()] for word in words], names=names)


def _classes(words: Sequence[str], request: Request, column: str) -> list[str]:
    """Return the names of the classes of a column; refuse a column that names the bags."""
    kinds, where = _kinds(request), request.where
    spelled = merge_words(words, f"{kinds} in column {column}", source=where).values()
    names = sorted(spelled, key=lambda name: (number_of(name) is None, number_of(name) or 0.0, name.casefold()))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    if len(names) > max(_FEW, len(words) // 2) or len(names) == len(words) > 2:
        raise BagDataError(
            f"Expected {kinds} in column {column}, got {len(names)} different values for {len(words)} bags: {shown} "
            f"(in {where}), so it names the bags; name the column of the label with `label_column`."
        )
    if len(names) < 2:
        raise BagDataError(
            f"Expected several {kinds} in column {column}, got only {shown} (in {where}); add bags of others."
        )
    if request.target == "auto":
        text = f"{len(names)} classes in column {column}: {shown} (in {where}): the target is multiclass"
        warnings.warn(f"{text}; {given(positive=names[-1])} ranks one against the rest", Note, stacklevel=6)
    return names


def _several(columns: Mapping[str, Sequence[object]], request: Request) -> TargetLabels:
    names = [name.removeprefix(_OF_SEVERAL) for name in columns]
    values = np.full((len(next(iter(columns.values()))), len(names)), np.nan)
    for place, (column, entries) in enumerate(columns.items()):
        present = [row for row, value in enumerate(entries) if not is_missing(value)]
        words = {word_of(entries[row]) for row in present}
        if not words <= {"0", "1", "False", "True", "false", "true"}:
            wrong = sorted(words - {"0", "1"})[0]
            raise BagDataError(
                f"Expected 0, 1 or nothing in column {column}, one of {len(names)} labels, got {wrong} (in "
                f"{request.where}); recode the column, or name another one with `label_column`."
            )
        values[present, place] = [word_of(entries[row]).casefold() in ("1", "true") for row in present]
    if request.classes is not None and list(map(str, request.classes)) != names:
        raise BagDataError(
            f"Expected the labels {', '.join(map(str, request.classes))} as in training, got {', '.join(names)} (in "
            f"{request.where}); name their columns with `label_column`, in this order."
        )
    return TargetLabels.of("multilabel", values, names=names)


def _survival(columns: Mapping[str, Sequence[object]], request: Request, ids: Sequence[str]) -> TargetLabels:
    (time, times), (event, events) = columns.items()
    words = [word_of(value) for value in events]
    where = request.where
    refuse_gaps(events, event, request, ids)
    known = sorted({word.casefold() for word in words})
    happened = None if request.positive is None else word_of(request.positive).casefold()
    if happened is None:
        happened = "true" if set(known) <= {"false", "true"} else "1"
        if not set(known) <= {"0", "1"} and happened == "1":
            raise BagDataError(
                f"Expected events 0 and 1 in column {event}, got {', '.join(known[:_SHOWN])} (in {where}); name the "
                f"event, such as {given(positive=known[-1])}: all others, such as an earlier transplant, count as "
                "censored."
            )
    elif happened not in known:
        raise BagDataError(
            f"Expected the event {request.positive!r} in column {event}, got {', '.join(known[:_SHOWN])} (in {where}); "
            "name one of these as `positive`."
        )
    advice = "write the time of the event, or of the last visit if there was no event"
    numbers = _numbers(times, time, request, ids, advice)
    flags = np.array([word.casefold() == happened for word in words], dtype=np.float64)
    return TargetLabels.of("survival", np.stack([numbers, flags], axis=1), names=(time, event))


def _kinds(request: Request) -> str:
    return "grades" if request.target == "ordinal" else "classes"


def _numbers(
    values: Sequence[object], column: str, request: Request, ids: Sequence[str], advice: str = "correct it"
) -> NDArray[np.float64]:
    parsed = [number_of(str(value).strip()) for value in values]
    wrong = next((row for row, number in enumerate(parsed) if number is None), None)
    if wrong is not None:
        got = "none" if is_missing(values[wrong]) else str(values[wrong])
        raise _misfit("numbers", column, got, place_of(wrong, request, ids), advice)
    numbers = np.array(parsed, dtype=np.float64)
    for row in np.flatnonzero(~usable(numbers))[:1].tolist():
        place, advice = place_of(row, request, ids), "correct it, give it in another unit"
        raise _misfit(wanted(numbers[row]), column, values[row], place, advice)
    return numbers


def _misfit(expected: str, column: str, got: object, where: str, advice: str) -> BagDataError:
    text = f"Expected {expected} in column {column}, got {got} (in {where}); {advice}, or leave such bags out."
    return BagDataError(text)


def known_names(outcome: TargetLabels) -> tuple[Any, ...] | None:
    """Return the names of classes, grades or labels with which more bags of this kind are read; None without."""
    return outcome.names if outcome.target in (*CODED, "multilabel") else None
