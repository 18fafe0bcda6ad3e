"""Few cases instead of all combinations: most faults show in one value, or in two values together."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any


def all_pairs(*lists: Iterable[Any], sensible: Callable[..., bool] = lambda *_: True) -> list[tuple[Any, ...]]:
    """Return combinations of one value of each list in which each two values of two lists that can meet do so.

    `sensible` says of a combination whether it is one.

    >>> len(all_pairs("abcd", "xyz", "01"))
    12
    """
    rows = [row for row in itertools.product(*lists) if sensible(*row)]
    meetings = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing, chosen = set().union(*meetings.values()), []
    while missing:
        chosen.append(max(rows, key=lambda row: len(meetings[row] & missing)))
        missing -= meetings[chosen[-1]]
    return chosen


def each(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return so many combinations that each value is in one: as many as the longest list has.

    >>> each("abc", "01")
    [('a', '0'), ('b', '1'), ('c', '0')]
    """
    values = [list(values) for values in lists]
    return [tuple(own[i % len(own)] for own in values) for i in range(max(map(len, values)))]
