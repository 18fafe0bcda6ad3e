"""Plain summaries of a bag with a head on them: trees and linear models on bag statistics, as poolings."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from midam.functional import summary as f
from midam.functional.logmean import BagStatistic
from midam.nn.encoders.patch_statistics import PatchStatistics
from midam.nn.fitted import Widened
from midam.nn.pooling.base import MeanTotal, Pooling, Statistic

_ROUNDING = 2.0**-46
_FEATURES, _CHANNELS = ("mean", "min", "max", "var"), ("mean", "var")


class SummaryTotal(MeanTotal):
    """The summary of K bags in the dtype of their values; a chunk costs memory of the bags that it holds alone."""

    def __init__(self, num_bags: int, *, reduce: Callable[..., Any], merge: Callable[..., Any]) -> None:
        super().__init__(num_bags)
        self._reduce, self._merge = reduce, merge

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> BagStatistic:  # noqa: ARG002
        """Merge a chunk of instances; returns the statistic of the bags from the first to the last that it holds."""
        self._dtype = z.dtype
        if self._merged is None:
            none = z.new_zeros(self.num_bags)
            self._merged = BagStatistic(none, torch.full_like(none, -torch.inf), v.new_zeros(len(none), v.shape[1]))
        held = slice(int(segment.min()), int(segment.max()) + 1)
        part: BagStatistic = self._reduce(z, v, segment - held.start, num_bags=held.stop - held.start)
        for whole, own in zip(self._merged, self._merge(BagStatistic(*(x[held] for x in self._merged)), part)):
            whole[held] = own
        return part


def _statistic(reduce: Callable[..., Any], merge: Callable[..., Any]) -> Statistic:
    """A summary as the statistic of a pooling."""

    def sample(z: Tensor, v: Tensor, *, mask: Tensor | None = None) -> Any:
        shown = torch.ones_like(z, dtype=torch.bool) if mask is None else mask
        return reduce(z[shown], v[shown], shown.nonzero()[:, 0], num_bags=len(z))

    return Statistic(sample, reduce, merge, partial(SummaryTotal, reduce=reduce, merge=merge))


class SummaryPooling(Pooling):
    """Base: scores a bag by a head on its summary, which is that of `statistic`.

    Parameters
    ----------
    in_features : int
        Features of an instance, or channels of an image.
    make_head : callable
        Makes the head, which turns the `rows` [K, W] of bags into scores in [0, 1], of W.
    """

    name = "summary"
    blocks: ClassVar[int]  # of r and of the row of a bag: V is so many times in_features

    def __init__(self, in_features: int, make_head: Callable[[int], nn.Module]) -> None:
        super().__init__(in_features)
        self.value_size = self.blocks * in_features
        self.head = make_head(self.width(in_features))

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Encoder of instances of a shape for this summary, and the `in_features` that come of it."""
        return Widened(), math.prod(instance_shape)

    @classmethod
    def width(cls, in_features: int) -> int:
        """Columns W of the row of a bag."""
        return cls.blocks * in_features

    def rows(self, r: Tensor) -> Tensor:
        """Rows [K, W] that the head reads, of summaries r [K, V]."""
        mean, *ends, variance = r.chunk(self.blocks, dim=1)
        deviation = variance.clamp(min=0).sqrt()
        if ends:  # as `midam.data.statistics.alike` says
            low, high = ends
            whole = (low == low.round()) & (high == high.round())
            alike = (low == high) | (~whole & (high - low <= _ROUNDING * torch.maximum(low.abs(), high.abs())))
            mean, deviation = mean.clamp(low, high), torch.where(alike, 0.0, deviation)
        return torch.cat([mean, *ends, deviation], dim=1)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K]."""
        return self.head(self.rows(r))


class FeatureSummary(SummaryPooling):
    """Mean, least, largest value and standard deviation of each feature: `midam.data.statistics.bag_statistics`."""

    name = "summary"
    statistic = _statistic(partial(f.reduce_columns, kinds=_FEATURES), partial(f.merge_columns, kinds=_FEATURES))
    blocks = len(_FEATURES)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M], all 0, and values v [M, 4 D] of instances e [M, D]."""
        return e.new_zeros(len(e)), torch.cat([e, e, e, torch.zeros_like(e)], dim=1)


class PatchSummary(FeatureSummary):
    """Mean, least, largest value and standard deviation of each of the `midam.nn.encoders.PatchStatistics`."""

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Statistics of images and volumes; a `ConfigError` for others."""
        encoder = PatchStatistics(instance_shape)
        return encoder, encoder.out_features


class ChannelSummary(SummaryPooling):
    """Mean and standard deviation of each channel over all pixels: `midam.data.statistics.color_statistics`."""

    name = "summary"
    statistic = _statistic(partial(f.reduce_columns, kinds=_CHANNELS), partial(f.merge_columns, kinds=_CHANNELS))
    blocks = len(_CHANNELS)

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """The pixels of each channel."""
        return Widened(2), instance_shape[0]

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M], all 0, and values v [M, 2 C] of images e [M, C, P]."""
        return e.new_zeros(len(e)), torch.cat([e.mean(dim=2), e.var(dim=2, correction=0)], dim=1)


class VoxelSummary(SummaryPooling):
    """Number of voxels above the least intensity: `midam.data.statistics.voxel_counts`."""

    name = "summary"
    statistic = _statistic(f.reduce_ground, f.merge_ground)
    blocks = 3

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:  # noqa: ARG003
        """All voxels, as one number each."""
        return Widened(), 1

    @classmethod
    def width(cls, in_features: int) -> int:  # noqa: ARG003
        """One column, whatever the instances."""
        return 1

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M], all 0, and values v [M, 3] of volumes e [M, P]."""
        least = e.amin(dim=1)
        ground = (e == least.unsqueeze(1)).sum(dim=1).to(e.dtype)
        return torch.zeros_like(least), torch.stack([least, ground, torch.full_like(least, e.shape[1])], dim=1)

    def rows(self, r: Tensor) -> Tensor:
        """Rows [K, 1] that the head reads, of summaries r [K, 3]."""
        return r[:, 2:] - r[:, 1:2]
