"""Fitting the standardizers to the training instances, in bounded memory."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from midam.data.bags import Bags
from midam.data.on_disk import on_disk
from midam.nn.standardizer import Standardizer

_MAX_INSTANCES = 200_000
_MAX_VALUES = 50_000_000
_MAX_VALUES_ON_DISK = 4_000_000  # 8 MB of float16: what stays on disk is not to fill the memory here
_STREAM = 7


def fit_standardizers(standardizers: Sequence[nn.Module | None], train: Bags, *, seed: int) -> None:
    """Fit the standardizers among `standardizers` to the training instances, or to a sample of very many; all alike.

    Parameters
    ----------
    standardizers : sequence of nn.Module or None
        At least one `Standardizer`.
    train : Bags
        The training bags. Up to 200 000 instances of 50 000 000 numbers are taken, of those on disk 4 000 000 numbers;
        of more, so many, uniformly without replacement.
    seed : int
        Of the sample.
    """
    first, *others = (standardizer for standardizer in standardizers if isinstance(standardizer, Standardizer))
    values = _MAX_VALUES_ON_DISK if on_disk(train.instances) else _MAX_VALUES
    limit = max(1, min(_MAX_INSTANCES, values // int(np.prod(train.instance_shape))))
    total = train.num_instances
    if total > limit:
        chosen = distinct_sorted(total, limit, np.random.default_rng([seed, _STREAM]))
    else:
        chosen = np.arange(total)
    ends = np.cumsum(train.sizes)
    bag = np.searchsorted(ends, chosen, side="right")
    first.fit(torch.from_numpy(np.asarray(train.gather(train.starts[bag] + chosen - (ends - train.sizes)[bag]))))
    for standardizer in others:
        standardizer.load_state_dict(first.state_dict())


def distinct_sorted(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` distinct whole numbers below `total`, uniformly, ascending, in O(count) memory.

    Examples
    --------
    >>> len(distinct_sorted(10**12, 5, np.random.default_rng(0)))
    5
    >>> distinct_sorted(4, 4, np.random.default_rng(0))
    array([0, 1, 2, 3])
    """
    if 2 * count > total:
        return np.delete(np.arange(total), distinct_sorted(total, total - count, rng))
    # Each round draws only as many as are missing: the set is that of the first distinct numbers of one sequence.
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        found = np.union1d(found, rng.integers(total, size=count - len(found)))
    return found
