"""Bags of a torchmil dataset, read item by item."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags, warn_of_doubts
from midam.data.sources.file_rows import FileRows, Parts
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.probe import FileFacts, facts_of, unlike
from midam.data.validate import as_array, refuse_not_finite
from midam.errors import BagDataError
from midam.names import names_of


class TorchmilDataset(Protocol):
    """Interface of a torchmil dataset: a length, and items that map names to tensors."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_torchmil(dataset: TorchmilDataset, *, source: str = "torchmil") -> Bags:
    """Wrap a torchmil dataset as bags whose instances stay in it.

    Each item is read once for its size, then again whenever its instances are read; import the bags into a store
    (`midam.data.write_store`) to train on many. Ask the dataset for no more than
    ``bag_keys=["X", "Y", "y_inst", "coords"]``: an
    adjacency matrix would be computed at each read. Items that the dataset keeps in memory after a read are released
    again.

    Parameters
    ----------
    dataset : torchmil dataset
        Its items hold ``X`` [n, ...], and perhaps ``Y`` (one number, 0 or 1), ``y_inst`` (labels of instances, 0 or 1,
        unknown if negative or NaN) and ``coords`` [n, C]. Bags are named as it names them (``bag_names``), else "0",
        "1", ..., and labeled if all items are.
    source : str, default "torchmil"
        Name of the dataset in messages.

    Examples
    --------
    >>> import torch
    >>> items = [{"X": torch.ones(2, 3), "Y": torch.tensor([1.0])}, {"X": torch.zeros(4, 3), "Y": torch.tensor([0])}]
    >>> from_torchmil(items)
    Bags(2 bags, 1 positive, 6 instances (3,))
    """
    names = getattr(dataset, "bag_names", None)
    ids = names_of(range(len(dataset)) if names is None else names, source)
    items = ItemSet(dataset, ids, source)
    bags = Bags(
        FileRows(items),
        sizes=np.diff(items.offsets),
        ids=ids,
        labels=None if None in items.labels else np.array(items.labels),
        coords=FileRows.places(items),
        instance_labels=items.instance_labels,
        source=source,
    )
    warn_of_doubts(bags)
    return bags


class ItemSet(Parts):
    """Items of a dataset, each read once for its facts, and again whenever its instances are read."""

    def __init__(self, dataset: TorchmilDataset, ids: list[str], source: str) -> None:
        self._dataset, self._ids, self._source = dataset, ids, source
        if not ids:
            raise BagDataError(f"Expected at least one item, got none (in {source}); give a dataset with bags.")
        self.labels: list[float | None] = []
        self._of_instances: list[NDArray[np.float32] | None] = []
        names = [f"{source}, bag {name}" for name in ids]
        facts = [self._facts(number, name) for number, name in enumerate(names)]
        for error in unlike(dict(enumerate(zip(names, facts)))).values():
            raise error
        super().__init__(names, facts)

    def open(self, number: int) -> OpenFile:
        """Read an item."""
        arrays = self._arrays(number)
        held = sum(array.nbytes for array in arrays.values())
        return OpenFile(arrays["X"], arrays.get("coords"), held=held, handle=False)

    @property
    def instance_labels(self) -> NDArray[np.float32] | None:
        """Labels of all instances [M], NaN if unknown; None if no item has any."""
        if all(labels is None for labels in self._of_instances):
            return None
        sizes = np.diff(self.offsets)
        parts = zip(self._of_instances, sizes, strict=True)
        return np.concatenate([np.full(size, np.nan, np.float32) if part is None else part for part, size in parts])

    def _facts(self, number: int, name: str) -> FileFacts:
        arrays = self._arrays(number)
        label = arrays.get("Y")
        if label is not None and label.size != 1:
            raise BagDataError(f"Expected one label, got {label.size} (in {name}); choose one of them.")
        self.labels.append(None if label is None else float(label.reshape(())))
        of_instances = arrays.get("y_inst")
        if of_instances is not None:
            if of_instances.size != len(arrays["X"]):
                raise BagDataError(
                    f"Expected {len(arrays['X'])} labels of instances, got {of_instances.size} (in {name}, key "
                    "y_inst); give one for each instance, or leave the key out."
                )
            of_instances = of_instances.reshape(-1).astype(np.float32)
            of_instances = np.where(of_instances < 0, np.float32(np.nan), of_instances)
        self._of_instances.append(of_instances)
        facts = facts_of(OpenFile(arrays["X"], arrays.get("coords")), where=name)
        refuse_not_finite(arrays["X"], slice(0, None), name, advice="drop or impute it")
        return facts

    def _arrays(self, number: int) -> dict[str, NDArray[Any]]:
        held = getattr(self._dataset, "loaded_bags", None)
        before = set(held) if isinstance(held, dict) else set()
        item: Mapping[str, Any] = self._dataset[number]
        if isinstance(held, dict):
            for name in set(held) - before:
                del held[name]
        keys = set(item.keys())
        if "X" not in keys:
            raise BagDataError(
                f"Expected the instances under the key X, got {', '.join(sorted(map(str, keys)))} (in {self._source}, "
                f"bag {self._ids[number]}); add X to the keys of the dataset."
            )
        return {key: as_array(item[key]) for key in ("X", "Y", "y_inst", "coords") if key in keys}
