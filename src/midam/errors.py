"""All errors that `midam` raises on purpose: each is a `MidamError`, and most also have the fitting built-in type.

The command line turns each of them into one message and exit code 2 (130 for a stopped run). The words of messages are
here too: near names, and lists.
"""

import difflib
import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

_ID = re.compile(
    r"uu?id|(study|series|instance)uid|mrn|ssn|\w*(barcode|identifier)|(\w*record|accession|serial|specimen)(no|nr|number)?"
)
_ALIKE = 0.7  # similarity of two names: one may be meant for the other


def plain_key(name: object) -> str:
    """Return a name without case, hyphens and other signs.

    Examples
    --------
    >>> plain_key("--Learning-Rate") == plain_key("learning_rate") == plain_key("learningRate")
    True
    """
    return re.sub(r"[\W_]", "", str(name).casefold())


def is_id_like(name: str) -> bool:
    """Return whether a column name is that of an id: id, transaction_id, TransactionID, uuid, MRN, accession_number."""
    called = re.search(r"(^|[^A-Za-z]|[a-z](?=I))(id|ID|Id)$", name) is not None
    return called or _ID.fullmatch(plain_key(name)) is not None


class MidamError(Exception):
    """Base class of all errors that `midam` raises on purpose."""


class BagDataError(MidamError, ValueError):
    """Bags, labels, groups or features that cannot be used."""


class OneClassError(BagDataError):
    """Only one class of bags where both are needed."""


class LeakageError(BagDataError):
    """Bags of one group are in more than one split."""


class DataNotFoundError(MidamError, FileNotFoundError):
    """No data under this name or path."""


class ConfigError(MidamError, ValueError):
    """An invalid setting, or an invalid combination of settings; `faults` holds a message for each."""

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = list(faults) or [message]


class CheckpointError(MidamError, ValueError):
    """A checkpoint that is damaged, or that does not belong to this run."""


class StoreError(MidamError, OSError):
    """A store that cannot be written: its place is taken, or the disk is full."""


class RunExistsError(MidamError, FileExistsError):
    """The run folder already holds a run."""


class ExportError(MidamError, ValueError):
    """A run that an export format cannot hold."""


class DivergedError(MidamError):
    """The loss or the weights are no longer finite."""


class StaleStateError(DivergedError):
    """A training climbed at the tracked state of its bags, but the whole bags do not rank so: no model came of it."""


class RunStoppedError(MidamError):
    """The run was stopped; it can be resumed."""


class RankLostError(MidamError):
    """One of the processes that train one model has died or stopped responding."""


class TrialsLostError(MidamError):
    """Trials (`names`) whose worker died in every attempt; all others are done."""

    def __init__(self, message: str, names: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.names = list(names)


class Note(UserWarning):
    """A decision of midam that is reported in a line, such as the choice of the positive label."""


def with_place(error: Exception | str, place: str) -> str:
    """Return the message of an error with a place before its advice.

    Examples
    --------
    >>> with_place(BagDataError("Expected X, got Y; do Z."), "in bags.csv")
    'Expected X, got Y (in bags.csv); do Z.'
    """
    return str(error).replace("; ", f" ({place}); ", 1)


def nearest(name: object, known: Iterable[object], *, count: int = 1, otherwise: str | None = None) -> str:
    """Return a suggestion for an unknown name: the known names that look like it, else up to eight, or `otherwise`.

    Examples
    --------
    >>> nearest("atention", ["attention", "mean"])
    "did you mean 'attention'?"
    >>> nearest("x", ["attention", "mean"])
    'known are attention, mean.'
    """
    names = sorted(map(str, known))
    plain = {plain_key(one): one for one in names}
    near = [repr(plain[key]) for key in difflib.get_close_matches(plain_key(name), plain, n=count, cutoff=_ALIKE)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    if otherwise is not None:
        return otherwise
    return f"known are {listed(names, most=8)}." if names else "there are none."


def with_article(noun: str) -> str:
    """Return a noun with its article, a or an.

    Examples
    --------
    >>> with_article("event"), with_article("label")
    ('an event', 'a label')
    """
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def listed(names: Sequence[object], *, most: int = 5, sep: str = ", ") -> str:
    """Return names separated by commas, with a count of those beyond `most`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return sep.join(map(str, names[:most])) + more


def plural(count: int, one: str) -> str:
    """Return a count with its noun, in the plural if needed.

    Examples
    --------
    >>> plural(1, "bag"), plural(2, "class")
    ('1 bag', '2 classes')
    """
    return f"{count:,} {one}" + ("" if count == 1 else "es" if one.endswith("s") else "s")


def fault_list(head: str, faults: Sequence[str], *, most: int = 10) -> str:
    """Return the message of several faults: a line for each after `head`.

    Examples
    --------
    >>> print(fault_list("Expected two ages, got none:", ["Expected a, got b; fix it.", "Expected c, got d; fix it."]))
    Expected two ages, got none:
    - Expected a, got b; fix it.
    - Expected c, got d; fix it.
    """
    if len(faults) == 1:
        return faults[0]
    rest = [f"and {len(faults) - most} more"] if len(faults) > most else []
    return "\n- ".join([head, *faults[:most], *rest])


def path_of(value: object, kind: str) -> Path:
    """Return the path of a text; raise a `ConfigError` that names the `kind` for another type.

    Examples
    --------
    >>> path_of(3, "a run folder")
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected the path of a run folder, got int; pass a string or a Path.
    """
    if not isinstance(value, str | Path):
        raise ConfigError(f"Expected the path of {kind}, got {type(value).__name__}; pass a string or a Path.")
    return Path(value)


def require(value: object, kind: type, name: str, advice: str) -> None:
    """Refuse an argument `name` of another type with a `ConfigError`; for float, any finite number is accepted.

    Examples
    --------
    >>> require(None, int, "in_channels", "give the number of channels")
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected `in_channels` of type int, got NoneType; give the number of channels.
    """
    wanted = {int: Integral, float: Real}.get(kind, kind)
    if not isinstance(value, wanted) or (wanted is not kind and isinstance(value, bool)):
        raise ConfigError(f"Expected `{name}` of type {kind.__name__}, got {type(value).__name__}; {advice}.")
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        raise ConfigError(f"Expected `{name}` as a finite number, got {value}; {advice}.")


def require_choice(choices: Sequence[object], **values: object) -> None:
    """Refuse arguments that are not among the choices, with a `ConfigError`.

    Examples
    --------
    >>> require_choice(("group", "batch"), norm="layer")
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected `norm` as one of 'group', 'batch', got 'layer'; choose one of them.
    """
    for name, value in values.items():
        # The type is checked first, because an array compares elementwise.
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in choices:
            known = ", ".join(map(repr, choices))
            raise ConfigError(f"Expected `{name}` as one of {known}, got {value!r}; choose one of them.")


def require_counts(least: int = 1, /, **counts: object) -> None:
    """Refuse arguments that are not whole numbers of at least 1, or another `least`, with a `ConfigError`.

    Examples
    --------
    >>> require_counts(in_features=2.5)
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected `in_features` as a whole number of at least 1, got 2.5; give another.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            got = repr(value) if isinstance(value, Real) else type(value).__name__
            raise ConfigError(f"Expected `{name}` as a whole number of at least {least}, got {got}; give another.")


def require_counts_if_given(least: int = 1, /, **counts: object) -> None:
    """Act as `require_counts` for arguments that may be None."""
    require_counts(least, **{name: value for name, value in counts.items() if value is not None})


def require_positive(advice: str, /, *, most: float = math.inf, **numbers: Any) -> None:
    """Refuse arguments that are not finite numbers above 0, or that are above `most`, with a `ConfigError`.

    Examples
    --------
    >>> require_positive("1 forgets the past", most=1, pair_rate=1.5)
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected pair_rate in (0, 1], got 1.5; 1 forgets the past.
    """
    for name, value in numbers.items():
        require(value, float, name, advice)
        if not 0 < value <= most:
            wanted = "> 0" if most == math.inf else f"in (0, {most:g}]"
            raise ConfigError(f"Expected {name} {wanted}, got {value}; {advice}.")


def install(extra: str) -> str:
    """Return advice for a missing package: the command that adds the packages of an extra to this midam.

    The command works for any source of midam: pip keeps the installed midam, and asks no index for it.

    Examples
    --------
    >>> install("hdf5")
    'run `python -m pip install "midam[hdf5]"`'
    """
    return f'run `python -m pip install "midam[{extra}]"`'


def need_package(module: str, purpose: str, *, extra: str, package: str = "", where: object = None) -> Any:
    """Import a module of an extra; if it is missing, raise a `MidamError` with the `purpose` and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name, place = package or module.partition(".")[0], "" if where is None else f" (in {where})"
        raise MidamError(f"Expected the package {name} {purpose}, got none{place}; {install(extra)}.") from None


def first_line(error: Exception) -> str:
    """Return the first line of an error of other code, after the name of its type.

    Examples
    --------
    >>> first_line(ValueError("too long"))
    'ValueError: too long'
    """
    line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def given(**parameters: object) -> str:
    """Format parameters and their values for messages; the command line shows them as its flags.

    Examples
    --------
    >>> given(fold=3, labels="slides.csv")
    "`fold=3`, `labels='slides.csv'`"
    """
    return ", ".join(f"`{name}={value!r}`" for name, value in parameters.items())
