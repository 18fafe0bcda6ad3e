"""Poolings that score plain summaries of a bag with a head: trees and linear models that are fitted elsewhere."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import summary as f
from midam.nn.encoders.images import PatchStatistics
from midam.nn.pooling.base import Pooling, Statistic

_ROWS_AT_A_TIME = 512
_ROUNDING = 2.0**-46
_COSINES = 1024
_CHANNELS = ("mean", "var")


class Widened(nn.Module):
    """Encoder that changes no number: it casts instances to float64 and flattens their axes from `start` on.

    Parameters
    ----------
    start : int
        1 for feature vectors [M, D]; 2 keeps the channels of images apart, [M, C, P].
    """

    def __init__(self, start: int = 1) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        """Return instances x [M, ...] in float64."""
        return x.double().flatten(self.start)


class Forest(nn.Module):
    """Mean of the leaves that rows reach in decision trees; as in scikit-learn, rows are rounded to float32.

    The nodes of all trees are in one array, a child after its parent; a leaf is its own child.

    Parameters
    ----------
    width : int
        Columns of a row, W.
    trees, nodes : int
        Number of trees, and of the nodes of all of them.

    Attributes
    ----------
    roots : Tensor [T], int64
        First node of each tree.
    branches : Tensor [N, 2], int64
        Next node if the feature is at most the threshold, and if it is above.
    feature : Tensor [N], int64
        Column of the row that a node tests, in [0, W).
    threshold, value : Tensor [N], float64
        Threshold and value of each node; the value, in [0, 1], counts only in leaves.
    offset : Tensor [W], float64, optional
        Subtracted from a row before it is rounded.
    """

    offset: Tensor | None

    roots: Tensor
    branches: Tensor
    feature: Tensor

    def __init__(self, width: int, *, trees: int, nodes: int, shifted: bool = False) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("roots", torch.zeros(trees, dtype=torch.int64))
        self.register_buffer("branches", torch.zeros(nodes, 2, dtype=torch.int64))
        self.register_buffer("feature", torch.zeros(nodes, dtype=torch.int64))
        self.register_buffer("offset", torch.zeros(width, dtype=torch.float64) if shifted else None)
        self.threshold = _frozen(nodes)
        self.value = _frozen(nodes)

    def check(self) -> None:
        """Refuse arrays that are not trees, in which a row might never reach a leaf, with a `ValueError`."""
        node = torch.arange(len(self.feature)).unsqueeze(1)
        leaf = (self.branches == node).all(dim=1)
        sound = bool(((self.branches > node).all(dim=1) | leaf).all()) and bool((self.branches < len(node)).all())
        sound = sound and bool(((self.roots >= 0) & (self.roots < len(node))).all())
        if not (sound and len(self.roots) and bool(((self.feature >= 0) & (self.feature < self.width)).all())):
            raise ValueError("nodes that make no decision trees")
        if not bool(((self.value >= 0) & (self.value <= 1)).all()):
            raise ValueError("leaves outside [0, 1]")

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean leaf [K] in [0, 1] of rows x [K, W]."""
        return torch.cat([self._mean_leaf(part) for part in torch.split(x, _ROWS_AT_A_TIME)])

    def _mean_leaf(self, x: Tensor) -> Tensor:
        """Return the mean leaf [K] of a chunk of rows; a path ends when it has reached its leaf."""
        x = x if self.offset is None else x - self.offset
        trees, numbers = len(self.roots), x.float().double().flatten()
        inner, following = self.branches[:, 0] != torch.arange(len(self.branches)), self.branches.flatten()
        leaf = self.roots.repeat(len(x))
        path = inner.index_select(0, leaf).nonzero().squeeze(1)
        node, row = leaf[path], path // trees * self.width
        while len(path):
            seen = numbers.index_select(0, row + self.feature.index_select(0, node))
            node = following.index_select(0, 2 * node + (seen > self.threshold.index_select(0, node)))
            on = inner.index_select(0, node)
            leaf[path[~on]] = node[~on]
            path, node, row = path[on], node[on], row[on]
        return self.value.index_select(0, leaf).view(-1, trees).mean(dim=1)


class Linear(nn.Module):
    """Logistic function of a linear function, in float64.

    Parameters
    ----------
    width : int
        Columns of a row, W.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = _frozen(width), _frozen(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [K] in [0, 1] of rows x [K, W]."""
        return torch.sigmoid(x @ self.weight + self.bias)


def _frozen(*size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*size, dtype=torch.float64), requires_grad=False)


def _of_columns(*kinds: str, is_mean: bool = False) -> Statistic:
    """Return a summary as the statistic of a pooling."""
    reduce, merge = partial(f.reduce_columns, kinds=kinds), partial(f.merge_columns, kinds=kinds)

    def sample(z: Tensor, v: Tensor, *, mask: Tensor | None = None) -> Any:
        shown = torch.ones_like(z, dtype=torch.bool) if mask is None else mask
        return reduce(z[shown], v[shown], shown.nonzero()[:, 0], num_bags=len(z))

    return Statistic(sample, reduce, merge, is_mean=is_mean)


class SummaryPooling(Pooling):
    """Base: a head scores a bag by its summary, given by `statistic`.

    Parameters
    ----------
    in_features : int
        Features of an instance, or channels of an image.
    make_head : callable
        Makes the head for W columns; the head turns the `rows` [K, W] of bags into scores in [0, 1].
    """

    name = "summary"
    blocks: ClassVar[int]  # V / in_features
    columns_of_row: ClassVar[int] = 0  # W if it is the same for any instances

    def __init_subclass__(cls) -> None:
        """Do not name the class: all have one name."""

    def __init__(self, in_features: int, make_head: Callable[[int], nn.Module]) -> None:
        super().__init__(in_features)
        self.value_size = self.blocks * in_features
        self.head = make_head(self.columns_of_row or self.value_size)

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Return the encoder of instances of a shape for this summary, and its `in_features`."""
        return Widened(), math.prod(instance_shape)

    def rows(self, r: Tensor) -> Tensor:
        """Return the rows [K, W] for the head, from summaries r [K, V]."""
        mean, *ends, variance = r.chunk(self.blocks, dim=1)
        deviation = variance.clamp(min=0).sqrt()
        if ends:  # as in `midam.data.statistics.alike`
            low, high = ends
            whole = (low == low.round()) & (high == high.round())
            alike = (low == high) | (~whole & (high - low <= _ROUNDING * torch.maximum(low.abs(), high.abs())))
            mean, deviation = mean.clamp(low, high), torch.where(alike, 0.0, deviation)
        else:
            deviation = torch.where(deviation <= _ROUNDING * mean.abs(), 0.0, deviation)
        return torch.cat([mean, *ends, deviation], dim=1)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the bag scores [K]."""
        return self.head(self.rows(r))


class FeatureSummary(SummaryPooling):
    """Mean, least, largest value and standard deviation of each feature: `midam.data.statistics.bag_statistics`."""

    statistic = _of_columns(*f.KINDS)
    blocks = len(f.KINDS)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M], all 0, and values v [M, 4 D] of instances e [M, D]."""
        return e.new_zeros(len(e)), torch.cat([e, e, e, torch.zeros_like(e)], dim=1)


class PatchSummary(FeatureSummary):
    """Mean, least, largest value and standard deviation of each of the `midam.nn.encoders.PatchStatistics`."""

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Return `PatchStatistics` and their number; raise a `ConfigError` for shapes other than images and volumes."""
        encoder = PatchStatistics(instance_shape)
        return encoder, encoder.out_features


class ChannelSummary(SummaryPooling):
    """Mean and standard deviation of each channel over all pixels of the images of a bag."""

    statistic = _of_columns(*_CHANNELS)
    blocks = len(_CHANNELS)

    @classmethod
    def reading(cls, instance_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Return an encoder that keeps the pixels of each channel, and their number; raise a `ConfigError` for rows."""
        if len(instance_shape) < 2:
            got = f"instances of shape {list(instance_shape)}"
            raise ConfigError(f"Expected images for statistics of pixels, got {got}; use statistics of features.")
        return Widened(2), instance_shape[0]

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M], all 0, and values v [M, 2 C] of images e [M, C, P]."""
        return e.new_zeros(len(e)), torch.cat([e.mean(dim=2), e.var(dim=2, correction=0)], dim=1)


class FourierSummary(SummaryPooling):
    """Mean map of a bag under a Gaussian kernel, by random Fourier features, scaled to length 1.

    It is the mean of ``cos(s x W + b)``, with 1024 columns, over the instances x (Rahimi and Recht 2007, Random
    features for large-scale kernel machines, NIPS). The product of the rows of two bags approximates their normalized
    set kernel (Gartner, Flach, Kowalczyk and Smola 2002, Multi-instance kernels, ICML). The caller sets W, b and s.

    Parameters
    ----------
    in_features, make_head
        As in `SummaryPooling`.
    scales : int
        Number of scales s, whose columns follow each other in a row; more than one while a scale is chosen.
    """

    statistic = _of_columns("mean", is_mean=True)
    blocks, columns_of_row = 1, _COSINES

    def __init__(self, in_features: int, make_head: Callable[[int], nn.Module], scales: int = 1) -> None:
        super().__init__(in_features, make_head)
        self.value_size = scales * _COSINES
        self.directions, self.phases, self.scales = _frozen(in_features, _COSINES), _frozen(_COSINES), _frozen(scales)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M], all 0, and values v [M, S 1024] of instances e [M, D]."""
        angles = e @ self.directions
        return e.new_zeros(len(e)), torch.cat([torch.cos(scale * angles + self.phases) for scale in self.scales], dim=1)

    def rows(self, r: Tensor) -> Tensor:
        """Return the rows [K, S 1024], with length 1 for each scale, from the means r [K, S 1024]."""
        return nn.functional.normalize(r.view(len(r), -1, _COSINES), dim=2).flatten(1)
