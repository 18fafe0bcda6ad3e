"""What is made at its first use, and what a file that is decoded as a whole gives by rows."""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.open_file import Column

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that is made when it is first asked for, once, whichever thread asks.

    Parameters
    ----------
    make : callable
        Returns the value. If it raises, the next call tries anew.

    Examples
    --------
    >>> value = Lazy(lambda: [1, 2])
    >>> value() is value()
    True
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._lock = threading.Lock()

    def __call__(self) -> T:
        """Return the value."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]


class LazyColumn:
    """Rows of a file that is read as a whole when the first of them is asked for.

    Parameters
    ----------
    column : callable
        Returns the rows, such as a `Lazy`.
    """

    def __init__(self, column: Callable[[], Column]) -> None:
        self._column = column

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, ...]."""
        return self._column().shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        """In the byte order of the machine."""
        return self._column().dtype

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the rows low, ..., high - 1."""
        return self._column().read(low, high)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows [m], ascending and distinct."""
        return self._column().gather(rows)
