"""The two statistics that a pooling can rest on, log-weighted mean and maximum, behind one face."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from midam.functional import logmean, maximum
from midam.functional.logmean import BagStatistic

_EMPTY = "Expected at least one instance, got an empty batch; pass bags that hold instances."


class Total:
    """The statistic of K bags, merged from chunks of instances without a graph, in O(K V) memory."""

    where: Tensor  # int64 [K], CPU: flat position of each bag's carrier, where `Statistic.carrier` is not None

    def __init__(self, num_bags: int) -> None:
        self.num_bags = num_bags
        self._merged: BagStatistic | None = None

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> BagStatistic:
        """Merge instances at `positions` (flat, int64 [m], CPU) of the bags `segment` (int64 [m]); returns theirs."""
        raise NotImplementedError

    @property
    def merged(self) -> BagStatistic:
        """The merged statistic, in the form in which parts are merged."""
        if self._merged is None:
            raise ValueError(_EMPTY)
        return self._merged

    def value(self) -> BagStatistic:
        """The merged statistic in the dtype of the logits."""
        return self.merged

    def weights(self, z: Tensor, positions: Tensor) -> Tensor:
        """Weights [m] of instances of the one bag that was merged, from their logits z [m] and positions [m]."""
        raise NotImplementedError

    @property
    def log_sum(self) -> float | None:
        """Log sum_j exp(z_j) of the one bag that was merged; None where the weights are no softmax."""
        return None


class MeanTotal(Total):
    """The log-weighted mean, merged in float64: in float32 that of a million instances would depend on the chunks."""

    _dtype = torch.float32

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> BagStatistic:  # noqa: ARG002
        """Merge a chunk of instances."""
        part = logmean.reduce_segments(z.double(), v.double(), segment, num_bags=self.num_bags)
        self._dtype = z.dtype
        self._merged = part if self._merged is None else logmean.merge(self._merged, part)
        return part

    def value(self) -> BagStatistic:
        """The merged statistic in the dtype of the logits."""
        return BagStatistic(*(x.to(self._dtype) for x in self.merged))

    def weights(self, z: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """Softmax of the logits over the whole bag."""
        return torch.exp(z - self.log_sum)

    @property
    def log_sum(self) -> float:
        """Log sum_j exp(z_j) of the one bag that was merged."""
        return float(self.merged.l + torch.log(self.merged.n))


class MaximumTotal(Total):
    """The maximum, carried by the first instance that attains it."""

    def __init__(self, num_bags: int) -> None:
        super().__init__(num_bags)
        self.where = torch.zeros(num_bags, dtype=torch.int64)

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> BagStatistic:
        """Merge a chunk of instances."""
        part = maximum.reduce_segments(z, v, segment, num_bags=self.num_bags)
        row = maximum.first_maximum(z, segment, num_bags=self.num_bags).clamp(max=len(z) - 1)
        better = part.l > (self._merged.l if self._merged is not None else -torch.inf)
        self.where = torch.where(better.cpu(), positions[row.cpu()], self.where)
        self._merged = part if self._merged is None else maximum.merge(self._merged, part)
        return part

    def weights(self, z: Tensor, positions: Tensor) -> Tensor:
        """1 for the first maximum, 0 for the others."""
        return (positions == self.where).to(z.dtype)


def _linearized_sample(z: Tensor, v: Tensor, *, mask: Tensor | None) -> BagStatistic:
    n, l, r = logmean.reduce(z.detach(), v.detach(), mask=mask)  # noqa: E741
    w = logmean.point_weights(z, l, n, mask=mask)
    return BagStatistic(n, *logmean.linearize(z, v, l, r, w))


@dataclass(frozen=True)
class Statistic:
    """Statistic (n, l, r) of the instances of a bag: a `midam.functional.logmean.BagStatistic`.

    Attributes
    ----------
    sample : callable
        ``sample(z, v, mask=)`` of samples z [K, B], v [K, B, V], with their gradient; masked slots hold finite logits.
    reduce_segments, merge : callable
        As those of `midam.functional.logmean`.
    total : callable
        Makes the `Total` of K bags.
    carrier : callable, optional
        ``carrier(z, segment, num_bags=)`` gives the row [K] of the one instance that carries all of a bag's gradient;
        None where each instance carries a part.
    """

    sample: Callable[..., BagStatistic]
    reduce_segments: Callable[..., BagStatistic]
    merge: Callable[[BagStatistic, BagStatistic], BagStatistic]
    total: Callable[[int], Total]
    carrier: Callable[..., Tensor] | None = None

    @property
    def trackable(self) -> bool:
        """It can be linearized at any point: a moving average can track it, and any sample carries its gradient."""
        return self.carrier is None


LOG_MEAN = Statistic(_linearized_sample, logmean.reduce_segments, logmean.merge, MeanTotal)
MAXIMUM = Statistic(maximum.reduce, maximum.reduce_segments, maximum.merge, MaximumTotal, carrier=maximum.first_maximum)
