"""Words of other libraries and tables for names of midam: suggestions look here before they compare letters."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_ID = re.compile(
    r"uu?id|(study|series|instance)uid|mrn|ssn|\w*(barcode|identifier)|(\w*record|accession|serial|specimen)(no|nr|number)?"
)


@cache
def word_tables() -> dict[str, Any]:
    """Read the tables of words: `names` and `values` of midam, `columns`, `options` of commands, and `advice`."""
    import yaml

    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    tables: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # C is ten times as fast
    return tables | {"advice": {one["words"]: one["text"] for one in tables["advice"]}}


def plain_key(name: object) -> str:
    """Return a name without case, hyphens and other signs.

    Examples
    --------
    >>> plain_key("--Learning-Rate") == plain_key("learning_rate") == plain_key("learningRate")
    True
    """
    return _plain(str(name))


def same_meaning(name: object, known: Iterable[str], *, columns: bool = False) -> list[str]:
    """Return the `known` names that equal a name up to signs, or that mean the same; `columns` are names in tables.

    Examples
    --------
    >>> same_meaning("learning-rate", ["epochs", "lr", "pair_rate"])
    ['lr']
    >>> same_meaning("label", ["channel", "Diagnosis"], columns=True)
    ['Diagnosis']
    >>> same_meaning("bag", ["age", "customer_id"], columns=True)
    ['customer_id']
    """
    key, names = plain_key(name), list(known)
    alike = [one for one in names if plain_key(one) == key]
    if alike or not key:
        return alike
    if columns:
        groups = word_tables()["columns"]
        words = [word for group in groups if key in (keys := _keys(group)) for word in keys]
        # In the order of the table of words, the most common word first.
        matches = [one for word in dict.fromkeys(words) for one in names if plain_key(one) == word]
        return matches or [one for one in names if key in _keys(" ".join(groups[1:3])) and is_id_like(one)]
    tables = word_tables()["names"], word_tables()["values"]
    ours = [name for table in tables for name, words in table.items() if key in _keys(words)]
    return [one for name in dict.fromkeys(map(plain_key, ours)) for one in names if plain_key(one) == name]


def is_usual_column(name: object) -> bool:
    """Return whether the meaning of a column of this name is known."""
    return any(plain_key(name) in _keys(words) for words in word_tables()["columns"])


def is_id_like(name: str) -> bool:
    """Return whether a column name is that of an id: id, transaction_id, TransactionID, uuid, MRN, accession_number."""
    called = re.search(r"(^|[^A-Za-z]|[a-z](?=I))(id|ID|Id)$", name) is not None
    return called or _ID.fullmatch(plain_key(name)) is not None


def is_known_word(name: object) -> bool:
    """Return whether a name has a known meaning elsewhere, so that shared letters with another name are no hint."""
    key = plain_key(name)
    tables = word_tables()
    words = [*tables["names"].values(), *tables["values"].values(), *tables["advice"]]
    return any(key in _keys(group) for group in words)


def advice_for(name: object) -> str:
    """Return advice for a word of another library that has no counterpart in midam; empty if there is none."""
    key = plain_key(name)
    return next((text for words, text in word_tables()["advice"].items() if key in _keys(words)), "")


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


@cache
def _keys(words: str) -> dict[str, None]:
    return dict.fromkeys(map(plain_key, words.split()))
