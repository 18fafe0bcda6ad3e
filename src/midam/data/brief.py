"""Text of objects that hold arrays: what they are, not their numbers."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from typing import Any

_SHOWN = 8  # entries, up to which a list or a dictionary is written out


class BriefRepr:
    """A dataclass (with ``repr=False``) whose arrays and long lists are shown by their type and shape.

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
        return "{" + ", ".join(f"{key!r}: {_brief(own)}" for key, own in value.items()) + "}"
    if not isinstance(value, list | tuple | Mapping):
        return repr(value)
    if len(value) > _SHOWN:
        return f"{type(value).__name__} of {len(value)}"
    inner = ", ".join(_brief(one) for one in value)
    return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
