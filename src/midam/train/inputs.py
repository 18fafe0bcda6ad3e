"""Training bags as a training reads them: standardizers, and instances, labels and weights on the device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, instance_tensor
from midam.data.on_disk import fits, on_disk
from midam.nn.standardizer import Standardizer
from midam.settings import ResolvedSettings, Settings
from midam.targets import target_of

_MOST_READ_ONCE = 2**29  # bytes
_MAX_INSTANCES = 200_000
_MAX_VALUES = 50_000_000
_MAX_VALUES_ON_DISK = 4_000_000  # 8 MB of float16: instances on disk should not fill the memory here
_STREAM = 7


def open_reader(
    config: ResolvedSettings, bags: Bags, *, transform: nn.Module | None, device: torch.device
) -> InstanceReader:
    """Open bags by the settings; with a `transform`, bags on disk are read into memory once, except for a GPU."""
    read_once = transform is not None and on_disk(bags.instances) and device.type != "cuda"
    resident = True if read_once else config.run.resident
    return InstanceReader(bags, device=device, resident=resident, workers=config.run.workers, transform=transform)


def labels_of(bags: Bags, reader: InstanceReader) -> Tensor:
    """Return the labels [N], or [N, L] for a target other than two classes, on the reader's device.

    They are float32, or float64 if different numbers or times would tie in float32 (except on Apple's GPUs).
    """
    values = target_of(bags).values(bags)
    wide = values.ndim == 2 and _tie_in_float32(values[:, 0]) and reader.device.type != "mps"
    return torch.from_numpy(values).to(device=reader.device, dtype=torch.float64 if wide else torch.float32)


def weights_of(bags: Bags, reader: InstanceReader) -> Tensor | None:
    """Return the weight of each bag over the mean weight of its class [N], on the reader's device.

    It is None if the bags of a class have equal weights: the AUC does not depend on the weights of the classes.
    """
    if bags.weights is None:
        return None
    labels, relative = bags.require_labels(), bags.weights.copy()
    for inside in (labels == 0, labels == 1):
        relative[inside] /= relative[inside].mean()
    alike = np.allclose(relative, 1, rtol=0, atol=1e-6)
    return None if alike else torch.from_numpy(relative).to(device=reader.device, dtype=torch.float32)


def _tie_in_float32(numbers: NDArray[Any]) -> bool:
    """Return whether two different numbers of [N] become equal in float32; NaN, an unknown label, is ignored."""
    known = np.unique(numbers[~np.isnan(numbers)])
    return len(np.unique(known.astype(np.float32))) < len(known)


def standardized_once(config: Settings, bags: Bags) -> bool:
    """Return whether instances are standardized once in memory, not at each visit.

    Feature vectors are, images stay bytes. Vectors on disk are only if they take at most 512 MiB as float32 and a
    quarter of the memory that is free now.
    """
    if not config.model.standardize or len(bags.instance_shape) != 1:
        return False
    if not on_disk(bags.instances):
        return True
    needed = 4 * bags.num_instances * bags.instance_shape[0]
    return config.run.resident is None and needed <= _MOST_READ_ONCE and fits(4 * needed)


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
    chosen = distinct_sorted(bags.num_instances, min(bags.num_instances, limit), rng)  # draws nothing up to the limit
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
