"""Bags of a torchmil dataset, read item by item."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.on_disk import Rows
from midam.errors import BagDataError


class TorchmilDataset(Protocol):
    """What a torchmil dataset has: a length, and items that map names to tensors."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_torchmil(dataset: TorchmilDataset, *, source: str = "torchmil") -> Bags:
    """Wrap a torchmil dataset as bags whose instances stay in it.

    Each item is read once to learn the sizes, then again when its instances are asked for; import the bags into a
    store (`midam.data.write_store`) to train on many. Ask the dataset for no more than ``bag_keys=["X", "Y",
    "coords"]``: instance labels are left alone, and an adjacency matrix would be computed at each read. Items that the
    dataset keeps in memory once it has read them are released again.

    Parameters
    ----------
    dataset : torchmil dataset
        Its items hold ``X`` [n, ...], and perhaps ``Y`` (one number, 0 or 1) and ``coords`` [n, C]. Bags are named as
        it names them (``bag_names``), else "0", "1", ..., and labeled if all items are.
    source : str, default "torchmil"
        What messages call it.

    Examples
    --------
    >>> items = [{"X": torch.ones(2, 3), "Y": torch.tensor([1.0])}, {"X": torch.zeros(4, 3), "Y": torch.tensor([0])}]
    >>> from_torchmil(items)
    Bags(2 bags, 1 positive, 6 instances (3,))
    """
    names = getattr(dataset, "bag_names", None)
    ids = [str(name) for name in (names if names is not None else range(len(dataset)))]
    items = _Items(dataset, ids, source)
    facts = [items.facts(number) for number in range(len(ids))]
    if not facts:
        raise BagDataError(f"Expected at least one item, got none (in {source}); give a dataset with bags.")
    for fact in facts[1:]:
        fact.check_like(facts[0], source)
    sizes = np.array([fact.size for fact in facts], dtype=np.int64)
    labels = [fact.label for fact in facts if fact.label is not None]
    return Bags(
        ItemRows(items, sizes, "X"),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        ids=ids,
        labels=labels if len(labels) == len(facts) else None,
        coords=None if facts[0].coords is None else ItemRows(items, sizes, "coords"),
        source=source,
    )


@dataclass(frozen=True)
class _Facts:
    """What an item holds."""

    bag: str
    size: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    label: float | None
    coords: int | None

    def check_like(self, first: "_Facts", source: str) -> None:
        """Refuse an item of another width or type than the first."""
        for what in ("shape", "dtype", "coords"):
            one, other = getattr(first, what), getattr(self, what)
            if one != other:
                raise BagDataError(
                    f"Expected {what} {one} as in bag {first.bag}, got {other} (in {source}, bag {self.bag}); use "
                    "features of one encoder."
                )


class _Items:
    """Items of a dataset as arrays; the last one is kept, for it is read in chunks."""

    def __init__(self, dataset: TorchmilDataset, ids: list[str], source: str) -> None:
        self.dataset, self.ids, self.source = dataset, ids, source
        self._lock = threading.Lock()
        self._last: tuple[int, dict[str, NDArray[Any]]] | None = None

    def arrays(self, number: int) -> dict[str, NDArray[Any]]:
        """The arrays of an item."""
        with self._lock:
            if self._last is None or self._last[0] != number:
                self._last = number, self._read(number)
            return self._last[1]

    def facts(self, number: int) -> _Facts:
        """Check an item and say what it holds."""
        arrays, bag = self.arrays(number), self.ids[number]
        x, label, coords = arrays["X"], arrays.get("Y"), arrays.get("coords")
        where = f"(in {self.source}, bag {bag})"
        if label is not None and label.size != 1:
            raise BagDataError(f"Expected one label, got {label.size} {where}; choose one of them.")
        if coords is not None and (coords.ndim != 2 or len(coords) != len(x)):
            raise BagDataError(
                f"Expected coordinates [{len(x)}, C], got {list(coords.shape)} {where}; give one row for each instance."
            )
        if not np.isfinite(x).all():
            raise BagDataError(f"Expected finite numbers, got NaN or infinity {where}; drop or impute them.")
        return _Facts(
            bag=bag,
            size=len(x),
            shape=tuple(x.shape[1:]),
            dtype=x.dtype,
            label=None if label is None else float(label.reshape(())),
            coords=None if coords is None else coords.shape[1],
        )

    def release(self) -> None:
        """Let go of the last item."""
        with self._lock:
            self._last = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Items, (self.dataset, self.ids, self.source)

    def _read(self, number: int) -> dict[str, NDArray[Any]]:
        held = getattr(self.dataset, "loaded_bags", None)
        before = set(held) if isinstance(held, dict) else set()
        item: Mapping[str, Any] = self.dataset[number]
        if isinstance(held, dict):
            for name in set(held) - before:
                del held[name]
        keys = set(item.keys())
        if "X" not in keys:
            raise BagDataError(
                f"Expected the instances under the key X, got {', '.join(sorted(map(str, keys)))} (in {self.source}, "
                f"bag {self.ids[number]}); add X to the keys of the dataset."
            )
        return {key: _array(item[key]) for key in ("X", "Y", "coords") if key in keys}


class ItemRows(Rows):
    """Instances, or their coordinates, of all items, as one array of rows; made by `from_torchmil`."""

    def __init__(self, items: _Items, sizes: NDArray[np.int64], key: str) -> None:
        self._items, self._sizes, self._key = items, sizes, key
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        first = items.arrays(0)[key]
        self.shape = (int(self._offsets[-1]), *first.shape[1:])
        self.dtype = first.dtype

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the instances at `positions` [m]; each item is read once."""
        found = np.empty((len(positions), *self.shape[1:]), self.dtype)
        numbers = np.searchsorted(self._offsets, positions, side="right") - 1
        for number in np.unique(numbers).tolist():
            here = numbers == number
            found[here] = self._items.arrays(number)[self._key][positions[here] - self._offsets[number]]
        return found

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the instances low, ..., high - 1."""
        return self.gather(np.arange(low, high))

    def close(self) -> None:
        """Let go of the item that was read last."""
        self._items.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemRows, (self._items, self._sizes, self._key)


def _array(value: Any) -> NDArray[Any]:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
