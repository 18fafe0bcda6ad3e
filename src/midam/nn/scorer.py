"""The bag scorer: encoder and pooling head in one module."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from midam.functional.logmean import reduce_segments
from midam.nn.heads import Pooling


@dataclass(frozen=True)
class BagOutput:
    """What the pooling knows of K bags: the statistic (l, r; n) and, from it, the score and its logit.

    Attributes
    ----------
    l, r, n : Tensor [K], Tensor [K, V], Tensor [K]
        Log-mean weight, weighted mean value, count that enters f2. For max pooling l is the maximum.
    pooling : Pooling
        Owner of f2.
    """

    l: Tensor  # noqa: E741
    r: Tensor
    n: Tensor
    pooling: Pooling

    @property
    def score(self) -> Tensor:
        """Bag scores h in [0, 1], [K]."""
        return self.pooling.score(self.l, self.r, self.n)

    @property
    def logit(self) -> Tensor:
        """Logits of the scores, [K]."""
        return self.pooling.logit(self.l, self.r, self.n)


class BagScorer(nn.Module):
    """Scores bags: standardise, encode, pool.

    Parameters
    ----------
    encoder : nn.Module
        Maps instances [M, ...] to encodings [M, D].
    pooling : Pooling
        Head for encodings of width D.
    scaler : nn.Module, optional
        Applied to the raw instances first; part of the model, so it travels with the weights.

    Examples
    --------
    >>> from midam.nn.encoders import MLP
    >>> from midam.nn.attention import AttentionPooling
    >>> model = BagScorer(MLP(4), AttentionPooling(4))
    >>> model(torch.randn(5, 4), torch.tensor([2, 3])).score.shape
    torch.Size([2])
    """

    def __init__(self, encoder: nn.Module, pooling: Pooling, *, scaler: nn.Module | None = None) -> None:
        super().__init__()
        self.scaler = scaler
        self.encoder = encoder
        self.pooling = pooling

    def instances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of instances x [M, ...]."""
        if self.scaler is not None:
            x = self.scaler(x)
        z, v = self.pooling(self.encoder(x))
        return z, v

    def forward(self, x: Tensor, sizes: Tensor) -> BagOutput:
        """Score whole bags under plain autograd.

        Parameters
        ----------
        x : Tensor [M, ...]
            Instances of all bags, one bag after the other.
        sizes : Tensor [K], int64
            Number of instances of each bag, >= 1; sums to M.
        """
        z, v = self.instances(x)
        num_bags = sizes.shape[0]
        segment = torch.repeat_interleave(torch.arange(num_bags, device=z.device), sizes, output_size=z.shape[0])
        n = sizes.to(z.dtype)
        if not self.pooling.smooth:
            top = first_maximum(z, segment, num_bags=num_bags)
            return BagOutput(z[top], v[top], n, self.pooling)
        stat = reduce_segments(z, v, segment, num_bags=num_bags)
        return BagOutput(stat.l, stat.r, n, self.pooling)


def first_maximum(z: Tensor, segment: Tensor, *, num_bags: int) -> Tensor:
    """Row of the first maximum of each bag, [K] int64; bags without a row get z.shape[0]."""
    top = z.new_full((num_bags,), torch.finfo(z.dtype).min).scatter_reduce(0, segment, z.detach(), "amax")
    rows = torch.arange(z.shape[0], device=z.device)
    candidates = torch.where(z.detach() == top[segment], rows, z.shape[0])
    return torch.full((num_bags,), z.shape[0], device=z.device).scatter_reduce(0, segment, candidates, "amin")
