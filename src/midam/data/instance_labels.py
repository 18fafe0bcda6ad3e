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
