"""Several bag scorers whose scores are averaged."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from midam.nn.scorer import BagScorer

_SUM_ERROR = 1e-9


class BagEnsemble(nn.Module):
    """The mean of the scores of several bag scorers, at least one, for the same instances.

    Parameters
    ----------
    members : sequence of BagScorer
        M scorers.
    weights : sequence of float, or Tensor [M], optional
        Of the members in the mean, >= 0 and 1 in sum; saved with the members. Default: all weigh the same.

    Raises
    ------
    ValueError
        If there are no members, or the weights are no such numbers.

    Examples
    --------
    >>> from midam.nn.pooling import AttentionPooling
    >>> from midam.nn.encoders import MLP
    >>> model = BagEnsemble([BagScorer(MLP(4), AttentionPooling(4)) for _ in range(3)])
    >>> model(torch.randn(5, 4), torch.tensor([2, 3])).shape
    torch.Size([2])
    """

    weights: Tensor | None

    def __init__(self, members: Sequence[BagScorer], weights: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        if not members:
            raise ValueError("Expected at least one bag scorer, got none; pass the members.")
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", None if weights is None else _checked(weights, len(members)))

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        """Scores of whole bags [K] in [0, 1], by plain autograd; arguments as of `BagScorer`."""
        return member_mean(self, torch.stack([member(x, sizes).score for member in self.members]), dim=0)


def scorers_of(model: BagScorer | BagEnsemble) -> list[BagScorer]:
    """The members of an ensemble; a scorer is its own only member."""
    return cast(list[BagScorer], list(model.members)) if isinstance(model, BagEnsemble) else [model]


def weights_of(model: BagScorer | BagEnsemble) -> Tensor | None:
    """Weights [M] of the members in their mean, float64 on the CPU; None where all weigh the same."""
    return model.weights.cpu() if isinstance(model, BagEnsemble) and model.weights is not None else None


def member_mean(model: BagScorer | BagEnsemble, x: Tensor, *, dim: int) -> Tensor:
    """Mean of x over its axis `dim` of M members, by their weights; in float64 where they have some."""
    weights = weights_of(model)
    return x.mean(dim=dim) if weights is None else (x.double().movedim(dim, -1) * weights.to(x.device)).sum(dim=-1)


def without_standardizer(model: BagEnsemble) -> BagEnsemble:
    """The same members, by reference, for instances that come standardized."""
    return BagEnsemble([BagScorer(member.encoder, member.pooling) for member in scorers_of(model)], model.weights)


def _checked(weights: Sequence[float] | Tensor, count: int) -> Tensor:
    found = torch.as_tensor(weights, dtype=torch.float64).clone()
    if found.shape != (count,) or not bool((found >= 0).all()) or not abs(float(found.sum()) - 1) <= _SUM_ERROR:
        raise ValueError(
            f"Expected {count} weights of at least 0 with the sum 1, got {found.tolist()}; divide them by their sum."
        )
    return found
