"""Short texts of objects that hold arrays: types and shapes instead of numbers."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BARS, _PIXELS = 12, 160
_SHOWN = 8  # entries: longer lists and dictionaries are not written out


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
        parts = [f"{one.name}={_brief(getattr(self, one.name))}" for one in fields(self) if one.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(parts)})"


def _brief(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape") and value.shape:
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, str | bytes | range) or not isinstance(value, Sized):
        return repr(value)
    if isinstance(value, Mapping) and len(value) <= _SHOWN:
        return "{" + ", ".join(f"{key!r}: {_brief(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, list | tuple | Mapping):
        return repr(value)
    if len(value) > _SHOWN:
        return f"{type(value).__name__} of {len(value)}"
    inner = ", ".join(_brief(one) for one in value)
    return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"


def html_table(title: str, rows: Mapping[str, object], picture: str = "") -> str:
    """Return an HTML table of names and values for a notebook, with the HTML `picture` below it."""
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items()]
    return f"<div><b>{escape(title)}</b><table>{''.join(lines)}</table>{picture}</div>"


def html_bars(sizes: NDArray[np.int64], heading: str) -> str:
    """Return a histogram of whole numbers as bars of HTML."""
    low, high = int(sizes.min()), int(sizes.max())
    edges = np.unique(np.linspace(low, high + 1, _BARS + 1).astype(np.int64))
    counts = np.histogram(sizes, edges)[0]
    bars = [
        f'<tr><td style="text-align: right">{first}{f" to {end - 1}" if end - 1 > first else ""}</td>'
        f'<td style="text-align: left"><div style="background: #0072B2; height: 0.9em; width: '
        f'{round(_PIXELS * count / counts.max())}px"></div></td><td>{count}</td></tr>'
        for first, end, count in zip(edges, edges[1:], counts)
    ]
    return f"<table><tr><th>{escape(heading)}</th><th></th><th>bags</th></tr>{''.join(bars)}</table>"
