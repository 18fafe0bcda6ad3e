"""Short texts of objects that hold arrays: types and shapes instead of numbers."""

from collections.abc import Mapping
from dataclasses import fields
from html import escape
from reprlib import Repr
from typing import Any

from numpy.typing import NDArray


class _Brief(Repr):
    """Texts of values, with few entries of lists and dictionaries, and none of arrays."""

    def repr_ndarray(self, array: NDArray[Any], _level: int) -> str:
        """Return type and shape."""
        return f"{array.dtype} {list(array.shape)}"


_BRIEF = _Brief()
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = 8
_BRIEF.maxstring = _BRIEF.maxother = 1000


class BriefRepr:
    """Base of dataclasses (with ``repr=False``) whose text shows arrays and long lists by type and shape.

    Examples
    --------
    >>> import numpy as np
    >>> from midam.evaluate import InstanceScores
    >>> InstanceScores(*np.zeros((3, 10_000), np.float32))
    InstanceScores(score=float32 [10000], attention=float32 [10000], weight=float32 [10000], members=())
    """

    def __repr__(self) -> str:
        parts = [f"{one.name}={_BRIEF.repr(getattr(self, one.name))}" for one in fields(self) if one.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(parts)})"


def html_table(title: str, rows: Mapping[str, object], picture: str = "") -> str:
    """Return an HTML table of names and values for a notebook, with the HTML `picture` below it."""
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items()]
    return f"<div><b>{escape(title)}</b><table>{''.join(lines)}</table>{picture}</div>"
