"""Features found by their names, whatever their order: the one place where those of bags meet those of a model."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.on_disk import Rows, on_disk
from midam.data.validate import feature_order, first_features
from midam.errors import Note


def align_features(bags: Bags, names: Sequence[str] | None, *, of: str) -> Bags:
    """Bags with the features of these names, in this order; what messages call `of` has these.

    Where one of the two has no names, the features are taken in their order, with a note, and their names from then on
    are those of the other. What is on disk is not read.

    Examples
    --------
    >>> bags = Bags.from_arrays([[1.0, 2.0]], [0], feature_names=["b", "a"])
    >>> align_features(bags, ["a", "b"], of="the run")[0].tolist()
    [[2.0, 1.0]]
    """
    own = bags.feature_names
    if own == (None if names is None else tuple(names)):
        return bags
    if names is None or own is None:
        if len(bags.instance_shape) != 1 or len(names or own or ()) != bags.instance_shape[0]:
            return bags  # of another width, which is refused by whoever needs it
        order = (
            f"have no names, and are taken in the order of {of}"
            if own is None
            else f"are taken in order: {of} has no names"
        )
        warnings.warn(
            f"the features {order}: {first_features(names or own or ())} (in {bags.source})", Note, stacklevel=3
        )
        return bags.replace(feature_names=names)
    places = np.array(feature_order(names, own, of=of, where=bags.source))
    x = bags.instances
    picked = _PickedRows(x, places) if on_disk(x) else np.ascontiguousarray(x[..., places])
    return bags.replace(instances=picked, feature_names=names, digests=None)


class _PickedRows(Rows):
    """Features of instances on disk, in an order of their own."""

    def __init__(self, rows: Any, places: NDArray[np.int64]) -> None:
        self._rows, self._places = rows, places
        self.shape, self.dtype = (*rows.shape[:-1], len(places)), rows.dtype
        if isinstance(rows, Rows):
            self.paths, self.plan = rows.paths, f"{rows.plan} {places.tolist()}"

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        rows = self._rows.take(positions) if isinstance(self._rows, Rows) else self._rows[positions]
        return np.asarray(rows)[..., self._places]

    def read(self, low: int, high: int) -> NDArray[Any]:
        return np.asarray(self._rows[low:high])[..., self._places]

    def close(self) -> None:
        if isinstance(self._rows, Rows):
            self._rows.close()
