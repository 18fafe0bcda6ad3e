"""Known labels of instances, which evaluate scores of instances and never train."""

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags


def labels_of(bags: Bags) -> NDArray[np.float32] | None:
    """Return the instance labels, bag after bag [num_instances], NaN if unknown; None if all are unknown.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0], [2.0]], [[3.0]]]).replace(instance_labels=[1, 0, np.nan])
    >>> labels_of(bags.subset([1])) is None, labels_of(bags.subset([0]))
    (True, array([1., 0.], dtype=float32))
    """
    labels = None if bags.instance_labels is None else bags.instance_labels[bags.rows()]
    return None if labels is None or np.isnan(labels).all() else labels


def label_counts(bags: Bags) -> NDArray[np.int64]:
    """Return the number of positive, negative and unknown instance labels of each bag, [N, 3]."""
    labels = labels_of(bags)
    if labels is None:
        return np.stack([np.zeros_like(bags.sizes), np.zeros_like(bags.sizes), bags.sizes], axis=1)
    kinds = np.stack([labels == 1, labels == 0, np.isnan(labels)], axis=1)
    return np.asarray(np.add.reduceat(kinds, np.cumsum(bags.sizes) - bags.sizes, axis=0, dtype=np.int64))


def labels_text(labels: NDArray[np.float32]) -> str:
    """Return the labels of a bag's instances as text: positions of the positive ones, "?" and those of unknown ones.

    Examples
    --------
    >>> labels_text(np.array([0, 1, 1, 1, 0, 1, np.nan], np.float32))
    '1-3 5 ? 6'
    """
    unknown = np.flatnonzero(np.isnan(labels))
    return " ".join([*_spans(np.flatnonzero(labels == 1)), *(["?", *_spans(unknown)] if len(unknown) else [])])


def read_labels_text(text: str, size: int) -> NDArray[np.float32]:
    """Return the labels [size] that `labels_text` has written; a `ValueError` refuses positions outside the bag.

    Examples
    --------
    >>> read_labels_text("1-3 ? 4", 5)
    array([ 0.,  1.,  1.,  1., nan], dtype=float32)
    """
    labels = np.zeros(size, np.float32)
    for value, words in zip((1.0, np.nan), text.split("?"), strict=False):
        for word in words.split():
            ends = [int(end) for end in word.split("-")]
            if not 0 <= ends[0] <= ends[-1] < size or len(ends) > 2:
                raise ValueError(f"instance labels at {word} of {size} instances")
            labels[ends[0] : ends[-1] + 1] = value
    if text.count("?") > 1:
        raise ValueError("instance labels that are unknown twice")
    return labels


def _spans(positions: NDArray[np.int64]) -> list[str]:
    """Return ascending positions as spans.

    Examples
    --------
    >>> _spans(np.array([2, 3, 4, 7]))
    ['2-4', '7']
    """
    if not len(positions):
        return []
    parts = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [f"{part[0]}" if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
