"""Batches of bags: sampled ones (a few instances a bag, static shapes) and whole ones (read in chunks)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.rows import on_disk
from midam.data.sampling import BagSampler
from midam.errors import ConfigError
from midam.functional.objectives import ClassWeights, class_weights

_ROWS_AT_A_TIME = 65536


class InstanceReader:
    """Reads instances of a `Bags` by flat position, as tensors on one device.

    Parameters
    ----------
    bags : Bags
        In memory or memory-mapped.
    device : torch.device or str
        Where the tensors go.
    resident : bool
        Keep all instances on the device, so that a read is an index into a tensor. Default: unless they are on disk.
    transform : callable, optional
        Applied to the instances [M, ...], once where they are resident, otherwise at each read.
    """

    def __init__(
        self,
        bags: Bags,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._array = bags.instances
        resident = not on_disk(self._array) if resident is None else resident
        self._transform = transform or _unchanged
        self._tensor = self._transformed(np.ascontiguousarray(self._array[:])) if resident else None
        self.starts = torch.from_numpy(bags.starts)
        self.sizes = torch.from_numpy(bags.sizes)

    def rows(self, positions: Tensor) -> Tensor:
        """Instances at flat positions [M] (int64, CPU): [M, ...] on the device."""
        if self._tensor is not None:
            return self._tensor.index_select(0, positions.to(self.device))
        return self._transform(torch.from_numpy(self._array[positions.numpy()]).to(self.device))

    @torch.no_grad()
    def _transformed(self, array: NDArray[Any]) -> Tensor:
        x = torch.from_numpy(array).to(self.device)
        if len(x) <= _ROWS_AT_A_TIME:
            return self._transform(x)
        lows = range(0, len(x), _ROWS_AT_A_TIME)
        return torch.cat([self._transform(x[low : low + _ROWS_AT_A_TIME]) for low in lows])

    @property
    def all(self) -> Tensor | None:
        """The resident tensor of all instances, if there is one."""
        return self._tensor


@dataclass(frozen=True)
class SampledBatch:
    """K bags, B drawn instances each.

    Attributes
    ----------
    x : Tensor [K * B, ...]
        Drawn instances, bag after bag.
    index : Tensor [K], int64
        Positions of the bags in the training set (rows of the tracked state).
    labels : Tensor [K]
        0 or 1.
    sizes : Tensor [K], int64
        True bag sizes n_i.
    mask : Tensor [K, B], bool, optional
        True for slots that hold an instance; None: all do.
    log_ratio : Tensor [K, B], optional
        Correction of weighted draws, see `midam.functional.logmean.importance_logits`.
    class_weights : ClassWeights, optional
        Of the labels, in the dtype of the scores; None: the objective works them out.
    """

    x: Tensor
    index: Tensor
    labels: Tensor
    sizes: Tensor
    mask: Tensor | None = None
    log_ratio: Tensor | None = None
    class_weights: ClassWeights | None = None


@dataclass(frozen=True)
class WholeBatch:
    """K whole bags, read chunk by chunk.

    Attributes
    ----------
    reader : InstanceReader
        Of the set that the bags stand in.
    index : Tensor [K], int64, CPU
        Positions of the bags in that set.
    labels : Tensor [K]
        0 or 1, on the reader's device.
    class_weights : ClassWeights, optional
        As of a `SampledBatch`.
    """

    reader: InstanceReader
    index: Tensor
    labels: Tensor
    class_weights: ClassWeights | None = None

    @property
    def starts(self) -> Tensor:
        """First flat position of each bag [K]."""
        return self.reader.starts[self.index]

    @property
    def sizes(self) -> Tensor:
        """Number of instances of each bag [K]."""
        return self.reader.sizes[self.index]

    def chunks(self, chunk_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Instances of all bags, one bag after the other, in chunks of at most `chunk_size`.

        Yields
        ------
        positions, segment : Tensor [m], Tensor [m], int64, CPU
            Flat positions to read and the bag (0 to K-1) of each.
        """
        starts, ends = self.starts, torch.cumsum(self.sizes, 0)
        total = int(ends[-1])
        for low in range(0, total, chunk_size):
            ordinal = torch.arange(low, min(low + chunk_size, total))
            segment = torch.searchsorted(ends, ordinal, right=True)
            first = ends[segment] - self.sizes[segment]
            yield starts[segment] + ordinal - first, segment


def _unchanged(x: Tensor) -> Tensor:
    return x


def sampled_batches(reader: InstanceReader, sampler: BagSampler, labels: Tensor) -> Iterator[SampledBatch]:
    """One epoch of sampled batches.

    Parameters
    ----------
    reader : InstanceReader
        Of the training set.
    sampler : BagSampler
        Made with `num_instances`.
    labels : Tensor [N]
        Of the training set, on the reader's device.

    Raises
    ------
    ConfigError
        If the sampler draws whole bags.
    """
    plan = sampler.epoch()
    if plan.slots is None or plan.mask is None:
        raise ConfigError("Expected a sampler of instances, got one of whole bags; make it with num_instances.")
    sizes = reader.sizes[plan.bags]
    positions = reader.starts[plan.bags].unsqueeze(-1) + plan.slots
    full = bool(plan.mask.all())
    index = plan.bags.to(reader.device)
    mask, sizes_device = plan.mask.to(reader.device), sizes.to(reader.device)
    step_labels = labels[index]
    # Every step has the same layout, positives first, hence the same weights.
    weights = class_weights(step_labels[0])
    masks = [None] * len(mask) if full else mask.unbind()
    steps = zip(positions.flatten(1).unbind(), index.unbind(), step_labels.unbind(), sizes_device.unbind(), masks)
    for rows, bags, of_bags, counts, drawn in steps:
        yield SampledBatch(reader.rows(rows), bags, of_bags, counts, drawn, class_weights=weights)


def whole_batches(reader: InstanceReader, sampler: BagSampler, labels: Tensor) -> Iterator[WholeBatch]:
    """One epoch of whole batches; parameters as in `sampled_batches`, the sampler made without `num_instances`."""
    for bags in sampler.epoch().bags:
        yield WholeBatch(reader, bags, labels[bags.to(reader.device)])
