"""A pooling whose logits are shifted: the one that scores bags of some covariates."""

import torch
from torch import Tensor

from midam.nn.pooling.base import Pooling
from midam.nn.pooling.statistic import Statistic


class ShiftedPooling(Pooling):
    """Another pooling whose logits are larger by `shift`, [] or [C], on its own statistic, z and v.

    Examples
    --------
    >>> from midam.nn.pooling import MeanPooling
    >>> pooling = ShiftedPooling(MeanPooling(4), torch.tensor(-1.0))
    >>> half = torch.full((1, 1), 0.5)
    >>> round(pooling.score(half[0], half, torch.ones(1)).item(), 4)  # sigmoid(-1)
    0.2689
    """

    shift: Tensor

    def __init__(self, inner: Pooling, shift: Tensor) -> None:
        super().__init__(inner.in_features)
        self.inner, self.columns, self.branches = inner, inner.columns, inner.branches
        self.weighted, self.value_size = inner.weighted, inner.value_size
        self.register_buffer("shift", shift.detach())

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the pooling inside."""
        return self.inner.name

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """That of the pooling inside."""
        return self.inner.statistic

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z and values v of encodings e [M, D], those of the pooling inside."""
        z, v = self.inner(e)
        return z, v

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores [K] or [K, C]."""
        return torch.sigmoid(self.logit(l, r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logits of the bag scores [K] or [K, C]."""
        return self.inner.logit(l, r, n) + self.shift

    def check_sizes(self, largest: int) -> None:
        """Warn where bags of so many instances harm the pooling inside."""
        self.inner.check_sizes(largest)
