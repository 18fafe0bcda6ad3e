"""One form of every name that is read (bags, groups, sites, labels, categories, columns, files), and look-alikes."""

import difflib
import math
import os
import re
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from midam.errors import BagDataError, Note, listed

# Zero-width characters (the byte order mark is one) and marks of the direction of text; joiners shape some scripts.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_JOINERS = "\u200c\u200d"
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_WHOLE = re.compile(r"0*(\d+?)(\.0*)?")
# Words that a table may write for none; `none` and `na` in small letters are no such words.
MISSING = frozenset(
    [
        *("NA", "N/A", "n/a", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "<NA>", "#N/A", "#NA", "#N/A N/A"),
        *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "NaT"),
    ]
)
EXACT = 2**53  # float64 holds each whole number below it
_SHOWN = 3
_ALIKE = 0.7  # of two names of files, from which one is suggested for the other
_MOST = 1000  # files of a folder that a message looks through


def name_of(value: object) -> str:
    r"""A name as text in one form, so that names that look the same are the same.

    Unicode in NFC; no blanks around it, no-break and zero-width ones among them; every space inside a plain one; a
    whole number without a point; without the apostrophe of `safe_cell`. Letters keep their case.

    Examples
    --------
    >>> name_of("e\u0301volu\u00e9\u00a0") == "\u00e9volu\u00e9", name_of(7.0), name_of("007")
    (True, '7', '007')
    """
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, Real) and not isinstance(value, Integral):  # also of numpy
        number = float(value)
        if number.is_integer() and abs(number) >= EXACT:
            raise BagDataError(
                f"Expected names as text or as whole numbers below 2**53, got the decimal number {number:.0f}, which "
                "may have been another before it was rounded; store such names as text."
            )
        value = int(number) if number.is_integer() else value
    text = str(value)
    if not text.isascii():
        text = _SPACES.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip(_JOINERS)
    return plain_cell(text.strip())


def is_missing(value: object, named: Collection[str] = ()) -> bool:
    """Whether a value stands for none: None, NaN, no text, or a word such as NA or None unless `named` has it.

    Examples
    --------
    >>> is_missing(" "), is_missing("None"), is_missing("None", named={"none"}), is_missing("none")
    (True, True, False, False)
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    text = str(value).strip()
    return not text or (text in MISSING and text.casefold() not in named)


def safe_cell(text: str) -> str:
    """Text as a table takes it: with an apostrophe before what a spreadsheet would run as a formula.

    That is text that begins with =, +, -, @, a tab or a line break and is no number. `plain_cell` takes it off.

    Examples
    --------
    >>> safe_cell("=cmd"), safe_cell("-5"), safe_cell("P-1"), safe_cell("'=cmd")
    ("'=cmd", '-5', 'P-1', "''=cmd")
    """
    return f"'{text}" if _is_formula(text) else text


def plain_cell(text: str) -> str:
    """The text of which `safe_cell` made this.

    Examples
    --------
    >>> plain_cell("'=cmd"), plain_cell("'tis"), plain_cell("=cmd")
    ('=cmd', "'tis", '=cmd')
    """
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def _is_formula(text: str) -> bool:
    if not _FORMULA.match(text):
        return False
    try:
        float(text.lstrip("'"))
    except ValueError:
        return True
    return False


def nearby(path: Path, known: Iterable[str] = (), *, otherwise: str = "check the path.") -> str:
    """Advice on a path that is not there: names like it in its folder, or `known` ones; `otherwise` if none."""
    names = [] if path.exists() else _listed(path.parent)[:_MOST]
    plain, wanted = {name.casefold(): name for name in sorted([*names, *known])}, path.name.casefold()
    near = difflib.get_close_matches(wanted, plain, n=3, cutoff=_ALIKE)
    near = near or [name for name in plain if wanted and name.startswith(wanted)][:3]
    return f"did you mean {' or '.join(repr(plain[name]) for name in near)}?" if near else otherwise


def missing(path: Path, expected: str) -> str:
    """Return the message that a file is not there."""
    return f"Expected {expected}, got none (in {path}); {nearby(path)}"


def advice_on(path: Path) -> str:
    """Advice for a missing file of a run: its folder may be the one above runs, as of `midam fit --fold all`."""
    runs = sorted(str(one.parent) for one in path.parent.glob(f"*/{path.name}"))
    return f"name one of the runs in it, such as {listed(runs, most=3)}." if runs else nearby(path.parent)


def on_disk(path: str | Path) -> Path:
    """The path as the disk spells it, if its names are in another form of Unicode, or written with backslashes.

    A path that exists is returned unchanged, and so is one without a match; two files that match are refused.
    """
    path = Path(path)
    if os.path.lexists(path):
        return path
    plain = path if os.sep == "\\" else Path(str(path).replace("\\", "/"))
    existing = Path(plain.anchor)
    for part in plain.parts[len(existing.parts) :]:
        if os.path.lexists(existing / part):
            existing = existing / part
            continue
        wanted = _file_key(part)
        fits = [name for name in _listed(existing) if _file_key(name) == wanted]
        if len(fits) > 1:
            raise BagDataError(
                f"Expected one file of the name {wanted!r}, got {len(fits)} whose names look the same (in {existing}): "
                f"{', '.join(map(ascii, fits))}; rename all but one."
            )
        if not fits:
            return path
        existing = existing / fits[0]
    return existing


def _file_key(name: str) -> str:
    """Name of a file; blanks before its suffix stand at the end of what people see as its name."""
    stem, suffix = os.path.splitext(name)
    return name_of(stem) + name_of(suffix)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # a folder that is missing, or no folder: then the path is not found
        return []


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Names that differ only in case, in blanks inside them, or as 1, 01 and 1.0 do; each list in its order."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(_near(name), []).append(name)
    return [tuple(same) for same in groups.values() if len(same) > 1]


def warn_of_alike(kinds: Mapping[str, Iterable[str]], *, source: str) -> None:
    """Warn once of names of a kind that are nearly the same, and are kept apart.

    Examples
    --------
    >>> warn_of_alike({"groups": ["P1", "P2"]}, source="memory")
    """
    parts = []
    for kind, names in kinds.items():
        groups = alike(names)
        if groups:
            parts.append(f"{kind} {listed([' and '.join(same) for same in groups], most=_SHOWN, sep='; ')}")
    if parts:
        warnings.warn(
            f"names that differ only in case, blanks or zeros are kept apart: {', '.join(parts)} (in {source}); write "
            "them alike if they mean the same",
            stacklevel=3,
        )


def merge_words(words: Iterable[str], kind: str, *, source: str) -> dict[str, str]:
    """Spelling of each word, the first one, by its casefolded form; a note names those that differ only in case."""
    spellings: dict[str, list[str]] = {}
    for word in dict.fromkeys(words):
        spellings.setdefault(word.casefold(), []).append(word)
    pairs = [" and ".join(same) for same in spellings.values() if len(same) > 1]
    if pairs:
        text = f"{kind} that differ only in case are read as one: {'; '.join(pairs[:_SHOWN])} (in {source})"
        warnings.warn(text, Note, stacklevel=4)
    return {form: same[0] for form, same in spellings.items()}


def _near(name: str) -> str:
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    name = name.casefold()
    if " " in name:
        name = " ".join(name.split())
    whole = _WHOLE.fullmatch(name) if name[:1].isdigit() else None
    return name if whole is None else whole[1]
