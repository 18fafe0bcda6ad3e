"""Several bag scorers whose scores are averaged."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from midam.nn.scorer import BagScorer


class BagEnsemble(nn.Module):
    """The mean of the scores of several bag scorers, at least one, for the same instances.

    Examples
    --------
    >>> from midam.nn.pooling import AttentionPooling
    >>> from midam.nn.encoders import MLP
    >>> model = BagEnsemble([BagScorer(MLP(4), AttentionPooling(4)) for _ in range(3)])
    >>> model(torch.randn(5, 4), torch.tensor([2, 3])).shape
    torch.Size([2])
    """

    def __init__(self, members: Sequence[BagScorer]) -> None:
        super().__init__()
        if not members:
            raise ValueError("Expected at least one bag scorer, got none; pass the members.")
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        """Scores of whole bags [K] in [0, 1], by plain autograd; arguments as of `BagScorer`."""
        return torch.stack([member(x, sizes).score for member in self.members]).mean(dim=0)


def scorers_of(model: BagScorer | BagEnsemble) -> list[BagScorer]:
    """The members of an ensemble; a scorer is its own only member."""
    return cast(list[BagScorer], list(model.members)) if isinstance(model, BagEnsemble) else [model]


def without_standardizer(model: BagEnsemble) -> BagEnsemble:
    """The same members, by reference, for instances that come standardized."""
    return BagEnsemble([BagScorer(member.encoder, member.pooling) for member in scorers_of(model)])
