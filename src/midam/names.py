"""Normal form of all names (bags, groups, sites, labels, categories, columns, files), and names that look alike."""

import math
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from midam.errors import BagDataError, Note, listed, nearest, with_place

# Zero-width characters (with the byte order mark) and marks of text direction, without the joiners of some scripts.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
# They move the cursor, reverse the text or end its line; lone surrogates cannot be printed. Tab and line feed stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_JOINERS = "\u200c\u200d"
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_ZEROS, _WHOLE = re.compile(r"(?<![\d.])0+(?=\d)"), re.compile(r"^(\d+)\.0*$")
# Words that tables use for a missing value; `none` and `na` in small letters do not count.
MISSING = frozenset(
    [
        *("NA", "N/A", "n/a", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "<NA>", "#N/A", "#NA", "#N/A N/A"),
        *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "NaT"),
    ]
)
EXACT = 2**53  # float64 holds every whole number below this
_BITS = {"float16": 11, "float32": 24}  # of the whole numbers that short decimals of numpy hold
_SHOWN = 3
_MOST = 1000  # files of a folder that a message searches


def name_of(value: object) -> str:
    r"""Return a name as text in one form, so that names that look the same are equal.

    The text is in Unicode NFC, without blanks around it (also no-break and zero-width ones), with plain spaces inside,
    and without the apostrophe of `safe_cell`; a whole number has no decimal point. Letters keep their case.

    Examples
    --------
    >>> name_of("e\u0301volu\u00e9\u00a0") == "\u00e9volu\u00e9", name_of(7.0), name_of("007")
    (True, '7', '007')
    """
    if isinstance(value, Real) and not isinstance(value, Integral):  # also of numpy
        number, bits = float(value), _BITS.get(type(value).__name__, 53)
        if number.is_integer() and abs(number) >= 2**bits:
            raise BagDataError(
                f"Expected names as text or as whole numbers below 2**{bits}, got the decimal number {number:.0f}, "
                "which may be a rounded name; store such names as text."
            )
        value = int(number) if number.is_integer() else value
    text = text_of(value) if isinstance(value, bytes) else str(value)  # names of files may be no valid Unicode
    if "\0" in text:
        raise BagDataError(f"Expected names without NUL, got {text[:40]!r}; rename it.")
    if not text.isascii():
        text = _SPACES.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip(_JOINERS)
    return plain_cell(text.strip())


def names_of(values: Iterable[object], where: object) -> list[str]:
    """Return values as names in valid Unicode; the error on one that is no name says `where` they are."""
    try:
        return [text_of(name_of(value)) for value in values]
    except BagDataError as error:
        raise BagDataError(with_place(error, f"in {where}")) from None


def text_of(value: object) -> str:
    """Return a value as text; raise a `BagDataError` if it is not valid Unicode, or bytes that are not UTF-8."""
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        text.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        got = f"{error.reason} at position {error.start}"
        raise BagDataError(f"Expected text in valid Unicode, got: {got}; write it in UTF-8, or leave it out.") from None
    return text


def visible(text: str) -> str:
    r"""Return text with control characters, which a terminal would obey, as their escapes.

    Examples
    --------
    >>> visible("a\x1b[2J") == r"a\x1b[2J"
    True
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def is_missing(value: object, named: Collection[str] = ()) -> bool:
    """Return whether a value is missing: None, NaN, empty text, or a word such as NA or None that is not in `named`.

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
    """Return text for a table: with an apostrophe before text that a spreadsheet would run as a formula.

    Such text begins with =, +, -, @, a tab or a line break and is not a number. `plain_cell` removes the apostrophe.

    Examples
    --------
    >>> safe_cell("=cmd"), safe_cell("-5"), safe_cell("P-1"), safe_cell("'=cmd")
    ("'=cmd", '-5', 'P-1', "''=cmd")
    """
    return f"'{text}" if _is_formula(text) else text


def plain_cell(text: str) -> str:
    """Return the text from which `safe_cell` made this text.

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


def nearby(path: Path, *, otherwise: str = "check the path.") -> str:
    """Return advice on a missing path: names in its folder that look like it and are not hidden, else `otherwise`."""
    names = [] if path.exists() else [name for name in sorted(_listed(path.parent)[:_MOST]) if name[0] != "."]
    return nearest(path.name, names, count=3, otherwise=otherwise)


def missing(path: Path, expected: str) -> str:
    """Return the message about a missing file."""
    return f"Expected {expected}, got none (in {path}); {nearby(path)}"


def advice_on(path: Path) -> str:
    """Return advice on a missing file of a run: its folder may hold several runs."""
    runs = sorted(str(one.parent) for one in path.parent.glob(f"*/{path.name}"))
    return f"name one of the runs in it, such as {listed(runs, most=3)}." if runs else nearby(path.parent)


def on_disk(path: str | Path) -> Path:
    """Return the path as spelled on the disk, if its names have another form of Unicode, or backslashes.

    A path that exists, or that has no match, is returned unchanged; two matching files are refused.
    """
    path = Path(path)
    if os.path.lexists(path):
        return path
    plain = path if os.sep == "\\" else Path(str(path).replace("\\", "/"))
    existing = Path(plain.anchor)
    for part in plain.parts[len(existing.parts) :]:
        wanted, exact = _file_key(part), os.path.lexists(existing / part)
        fits = [part] if exact else [name for name in _listed(existing) if _file_key(name) == wanted]
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
    """Return the normal form of a file name; blanks before its suffix count as blanks at the end."""
    stem, suffix = os.path.splitext(name)
    return name_of(stem) + name_of(suffix)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the folder is missing, or not a folder
        return []


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of names that differ only in case, blanks or zeros, as P1 and P01, or 1 and 1.0; order is kept."""
    return [tuple(same) for same in _grouped(names, _near).values() if len(same) > 1]


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Return the distinct names by their key, in order."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(key(name), []).append(name)
    return groups


def warn_of_alike(kinds: Mapping[str, Iterable[str]], *, source: str) -> None:
    """Warn once about names of a kind that are nearly the same, and are kept apart.

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
    """Return the first spelling of each word by its casefolded form; a note lists words that differ only in case."""
    spellings = _grouped(words, str.casefold)
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
    return _WHOLE.sub(r"\1", _ZEROS.sub("", name))
