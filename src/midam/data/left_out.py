"""Files and whole bags that were left out when bags were read, each with the reason."""

from collections.abc import Sequence
from typing import NamedTuple

from midam.errors import plural

WHEN_MADE = "were left out when this store was made"


class LeftOut(NamedTuple):
    """A file, or a row of a table, that is not part of the bags.

    Attributes
    ----------
    bag, file : str
        Bag and file that it belongs to; empty if unknown.
    reason : str
        Why it was left out.
    kept : int
        Number of other files that its bag keeps; 0 where the bag is left out.
    """

    bag: str
    file: str
    reason: str
    kept: int = 0


def left_out_words(rows: Sequence[LeftOut]) -> str:
    """Return the number of entries in words, and of the bags that were left out as a whole."""
    several = "s" * (len(rows) != 1)
    return f"{len(rows)} file{several} or row{several}, and {plural(len(lost_bags(rows)), 'whole bag')},"


def lost_bags(rows: Sequence[LeftOut]) -> list[str]:
    """Return the names of the bags that were left out as a whole."""
    return list(dict.fromkeys(row.bag for row in rows if not row.kept and row.bag))
