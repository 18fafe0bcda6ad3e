"""Standardizers fitted to the training instances."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import instance_tensor
from midam.data.on_disk import on_disk
from midam.nn.standardizer import Standardizer

_MAX_INSTANCES = 200_000
_MAX_VALUES = 50_000_000
_MAX_VALUES_ON_DISK = 4_000_000  # 8 MB of float16: instances on disk should not fill the memory here
_STREAM = 7


def fit_standardizers(standardizers: Sequence[nn.Module | None], train: Bags, *, seed: int) -> None:
    """Fit the standardizers among `standardizers`, at least one, to the training instances; all get the same fit.

    Of more than 200 000 instances or 50 000 000 numbers (on disk 4 000 000), as many are drawn without replacement.
    """
    first, *others = (standardizer for standardizer in standardizers if isinstance(standardizer, Standardizer))
    values = _MAX_VALUES_ON_DISK if on_disk(train.instances) else _MAX_VALUES
    limit = max(1, min(_MAX_INSTANCES, values // int(np.prod(train.instance_shape))))
    rows = random_instances(train, limit, np.random.default_rng([seed, _STREAM]))
    first.fit(rows, names=train.feature_names, source=train.source)
    for standardizer in others:
        standardizer.load_state_dict(first.state_dict())


def random_instances(bags: Bags, limit: int, rng: np.random.Generator) -> Tensor:
    """Return all instances, or `limit` of them, drawn without replacement: [M, ...]."""
    total = bags.num_instances
    chosen = distinct_sorted(total, min(total, limit), rng)  # draws nothing up to the limit
    ends = np.cumsum(bags.sizes)
    bag = np.searchsorted(ends, chosen, side="right")
    return instance_tensor(bags.gather(bags.starts[bag] + chosen - (ends - bags.sizes)[bag]))


def distinct_sorted(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` distinct whole numbers below `total`, uniformly, ascending, in O(count) memory."""
    if 2 * count > total:
        return np.delete(np.arange(total), distinct_sorted(total, total - count, rng))
    # Each round draws only the missing count: the set is that of the first distinct numbers of one sequence.
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < count:
        numbers = np.union1d(numbers, rng.integers(total, size=count - len(numbers)))
    return numbers
