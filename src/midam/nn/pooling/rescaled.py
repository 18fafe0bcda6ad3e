"""Poolings around another pooling: rescaled scores, to average models of several kinds, shifted logits, one column."""

import torch
from torch import Tensor

from midam.errors import ConfigError, require_positive
from midam.functional import poolings as f
from midam.nn.pooling.base import Pooling, Statistic


class WrappedPooling(Pooling):
    """Another pooling, with the same name, statistic, z and v; a subclass changes its scores."""

    def __init_subclass__(cls) -> None:
        """Do not name the class: the name is that of the inner pooling."""

    def __init__(self, inner: Pooling) -> None:
        super().__init__(inner.in_features)
        self.inner, self.weighted, self.value_size = inner, inner.weighted, inner.value_size

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the inner pooling."""
        return self.inner.name

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """Statistic of the inner pooling."""
        return self.inner.statistic

    @property
    def counts(self) -> bool:  # type: ignore[override]
        """Whether the inner pooling counts."""
        return self.inner.counts

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z and values v of the inner pooling, from encodings e [M, D]."""
        z, v = self.inner(e)
        return z, v

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the bag scores [K] or [K, C]."""
        return torch.sigmoid(self.logit(l, r, n))

    def check_sizes(self, largest: int) -> None:
        """Warn if bags of this many instances harm the inner pooling."""
        self.inner.check_sizes(largest)


class RescaledPooling(WrappedPooling):
    """Another pooling, with the same statistic, z and v, whose scores h become ``sigmoid(scale * logit(h) + offset)``.

    The logit is `midam.functional.poolings.bounded_logit`, in float64: it is finite for scores of exactly 0 or 1, and
    bags keep their order.

    Parameters
    ----------
    inner : Pooling
        Trained or fitted pooling of one score column; `RescaledPooling` is not for training.
    scale, offset : float
        scale > 0; both are saved, in float64.

    Examples
    --------
    >>> from midam.nn.pooling import MeanPooling
    >>> pooling = RescaledPooling(MeanPooling(4), scale=2.0, offset=-1.0)
    >>> half = torch.full((1, 1), 0.5)
    >>> round(pooling.score(half[0], half, torch.ones(1)).item(), 4)  # sigmoid(-1)
    0.2689
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, inner: Pooling, scale: float = 1.0, offset: float = 0.0) -> None:
        super().__init__(inner)
        require_positive("choose a positive number", scale=scale)
        if inner.columns > 1:
            raise ConfigError(
                f"Expected a pooling of one score column, got {inner.name!r} with {inner.columns}; rescale one column."
            )
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))
        self.register_buffer("offset", torch.tensor(offset, dtype=torch.float64))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores [K], float64."""
        inner = f.bounded_logit(torch.sigmoid(self.inner.logit(l, r, n).double()))
        return self.scale * inner + self.offset


class ShiftedPooling(WrappedPooling):
    """Another pooling, with the same statistic, z and v, whose logits are larger by `shift`, [] or [C].

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
        super().__init__(inner)
        self.columns, self.branches = inner.columns, inner.branches
        self.register_buffer("shift", shift.detach())

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores [K] or [K, C]."""
        return self.inner.logit(l, r, n) + self.shift


class ColumnPooling(WrappedPooling):
    """Column `column`, from 0, of another pooling, with its weights and statistic.

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
        super().__init__(inner)
        self.column = column

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.own(*self.inner(e))

    def own(self, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [M] and values [M, V] of this column, from those of all columns."""
        return (z, v) if self.inner.branches == 1 else (z[:, self.column], v[:, self.column])

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the bag scores [K]."""
        return self.inner.score(*self._given(l, r, n))[:, self.column]

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores [K]."""
        return self.inner.logit(*self._given(l, r, n))[:, self.column]

    def _given(self, *statistic: Tensor) -> tuple[Tensor, ...]:
        # All branches get the statistic of this column; only the score of this column is used.
        branches = self.inner.branches
        if branches == 1:
            return statistic
        return tuple(x.unsqueeze(1).expand(-1, branches, *x.shape[1:]) for x in statistic)
