"""Every error that `midam` raises on purpose: a `MidamError`, most also of the built-in kind that fits.

The command line turns each of them into one message and exit code 2 (130 for a stopped run).
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class MidamError(Exception):
    """Base class of all errors that `midam` raises on purpose."""


class BagDataError(MidamError, ValueError):
    """Bags, labels, groups or features that cannot be used."""


class OneClassError(BagDataError):
    """Only one class of bags where both are needed."""


class LeakageError(BagDataError):
    """Bags of one group stand in more than one split."""


class DataNotFoundError(MidamError, FileNotFoundError):
    """No data under this name or path."""


class ConfigError(MidamError, ValueError):
    """A setting, or a combination of settings, that makes no sense."""


class CheckpointError(MidamError, ValueError):
    """A checkpoint that is damaged, or that belongs to something else."""


class StoreError(MidamError, OSError):
    """A store that cannot be written: its place is taken, or the disk is full."""


class UntrustedError(MidamError):
    """Code of somebody else that the `settings` of a file name, and that nobody has trusted yet."""

    def __init__(self, message: str, settings: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.settings = dict(settings)


class RunExistsError(MidamError, FileExistsError):
    """The run folder already holds a run."""


class ExportError(MidamError, ValueError):
    """A run that an export format cannot hold."""


class DivergedError(MidamError):
    """The loss or the weights are no longer finite."""


class RunStoppedError(MidamError):
    """The run was stopped; it can be resumed."""


class RankLostError(MidamError):
    """Of several processes that train one model, some (`lost`, numbers from 0) have died or fallen silent."""

    def __init__(self, message: str, lost: frozenset[int]) -> None:
        super().__init__(message)
        self.lost = lost


class TrialsLostError(MidamError):
    """Trials whose worker died each time that they were tried (`names`); all others are done."""

    def __init__(self, message: str, names: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.names = list(names)


class Note(UserWarning):
    """What midam has decided and says in a line, such as which label it takes for the positive one."""


def nearest(name: object, known: Iterable[str], *, count: int = 1) -> str:
    """What a message says of a name that is not known: the nearest known ones, else all or the first eight.

    Examples
    --------
    >>> nearest("atention", ["attention", "mean"])
    "did you mean 'attention'?"
    >>> nearest("x", ["attention", "mean"])
    'known are attention, mean.'
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=count, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(found) for found in near)}?"
    if len(names) > 8:
        return f"known are {', '.join(names[:8])} and {len(names) - 8} more."
    return f"known are {', '.join(names)}." if names else "there are none."


def install(extra: str) -> str:
    """What a message says of a package that is missing: a line that adds the packages of an extra to this midam.

    It works wherever midam came from: pip takes the midam that is installed, and asks no index for it.

    Examples
    --------
    >>> install("hdf5")
    'run `python -m pip install "midam[hdf5]"`'
    """
    return f'run `python -m pip install "midam[{extra}]"`'


def need_package(module: str, purpose: str, *, extra: str, package: str = "", where: object = None) -> Any:
    """Import a module of an extra; where it is missing, a `MidamError` says for which `purpose` to install what."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name, place = package or module.partition(".")[0], "" if where is None else f" (in {where})"
        raise MidamError(f"Expected the package {name} {purpose}, got none{place}; {install(extra)}.") from None


def first_line(error: Exception) -> str:
    """First line of an error of others, under its name.

    Examples
    --------
    >>> first_line(ValueError("too long"))
    'ValueError: too long'
    """
    line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def given(**parameters: object) -> str:
    """Parameters and their values as messages write them; the command line shows them as its flags.

    Examples
    --------
    >>> given(fold=3, labels="slides.csv")
    "`fold=3`, `labels='slides.csv'`"
    """
    return ", ".join(f"`{name}={value!r}`" for name, value in parameters.items())
