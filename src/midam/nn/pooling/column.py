"""One score column of a pooling of several, as a pooling of one."""

from torch import Tensor

from midam.nn.pooling.base import Pooling
from midam.nn.pooling.statistic import Statistic


class ColumnPooling(Pooling):
    """Column `column`, from 0, of another pooling, with the weights and the statistic that it has there.

    Examples
    --------
    >>> import torch
    >>> from midam.nn.pooling import AttentionPooling
    >>> several = AttentionPooling(4, columns=3, attention="per-class")
    >>> z, v = ColumnPooling(several, 2)(torch.ones(5, 4))
    >>> z.shape, v.shape
    (torch.Size([5]), torch.Size([5, 1]))
    """

    def __init__(self, inner: Pooling, column: int) -> None:
        super().__init__(inner.in_features)
        self.inner, self.column = inner, column
        self.weighted, self.value_size = inner.weighted, inner.value_size

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the pooling of all columns."""
        return self.inner.name

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """That of the pooling of all columns."""
        return self.inner.statistic

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.own(*self.inner(e))

    def own(self, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [M] and values [M, V] of this column, among those that the pooling of all columns gives."""
        return (z, v) if self.inner.branches == 1 else (z[:, self.column], v[:, self.column])

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores [K]."""
        return self.inner.score(*self._given(l, r, n))[:, self.column]

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logits of the bag scores [K]."""
        return self.inner.logit(*self._given(l, r, n))[:, self.column]

    def check_sizes(self, largest: int) -> None:
        """Warn where bags of so many instances harm the pooling of all columns."""
        self.inner.check_sizes(largest)

    def _given(self, *statistic: Tensor) -> tuple[Tensor, ...]:
        # Other branches get the statistic of this one: what comes of it is not looked at.
        branches = self.inner.branches
        if branches == 1:
            return statistic
        return tuple(x.unsqueeze(1).expand(-1, branches, *x.shape[1:]) for x in statistic)
