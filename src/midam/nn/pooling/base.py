"""Base of the poolings: from an encoding to its (z, v), from the statistic of a bag to its score; and one column."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require_counts
from midam.functional import poolings as f
from midam.nn.pooling.statistic import LOG_MEAN, Statistic


class Pooling(nn.Module):
    """Base of the poolings: maps encodings [M, D] to logits z [M] and values v [M, V], and owns the outer function f2.

    `in_features` is D. Scores enter float32 (`upcast`) before any nonlinearity, whatever precision the encoder ran in.

    Of several score `columns` C, which share the encodings, a pooling has 1 or C `branches` G. With one, the values of
    an instance serve all columns: z [M], v [M, V]. With C, each column has logits and values of its own: z [M, G],
    v [M, G, V], and the statistic goes by rows of bags and branches (`midam.nn.scorer`). Either way `score` gives
    [K, C] in place of [K].

    Attributes
    ----------
    name : str
        What messages call it; by default that of the class.
    columns : int
        C, at least 1; more than 1 only where the constructor takes `columns`, and hands it on to this one.
    branches : int
        G: C where z varies, else 1, unless a pooling says otherwise.
    statistic : Statistic
        What a bag is reduced to: `LOG_MEAN` or `MAXIMUM` of `midam.nn.pooling.statistic`.
    weighted : bool
        Whether z varies, so that it ranks the instances of a bag, and draws in proportion to exp(z) beat uniform ones.
    value_size : int
        V.
    anneals : bool
        Whether it heeds `weight_power`.
    weight_power : float
        Power of the instances' weights, 1 but while a training anneals it: below, the pooling is nearer to the mean.
        Not part of the weights.
    """

    name: ClassVar[str]
    statistic: ClassVar[Statistic] = LOG_MEAN
    weighted = False
    value_size = 0
    anneals: ClassVar[bool] = False
    weight_power: float = 1.0
    columns: int = 1
    branches: int = 1

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)

    def __init__(self, in_features: int, *, columns: int = 1) -> None:
        require_counts(in_features=in_features, columns=columns)
        super().__init__()
        self.in_features, self.columns = in_features, columns
        self.branches = columns if self.weighted else 1

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]; of several branches [M, G] and [M, G, V]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores in [0, 1], [K], from the statistic l [K], r [K, V] and the counts n [K].

        Of several columns [K, C]; of several branches from l [K, G], r [K, G, V] and n [K, G].
        """
        raise NotImplementedError

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logits of the bag scores, [K] or [K, C]."""
        return f.logit(self.score(l, r, n))

    def check_sizes(self, largest: int) -> None:
        """Warn where bags of so many instances harm this pooling."""


class ScorePooling(Pooling):
    """Base of the poolings of one score an instance.

    With `squash` phi = sigmoid(score) is pooled, as the AUC objectives need; without it the raw score, to the bag's
    logit, as cross-entropy wants it.
    """

    def __init__(self, in_features: int, *, squash: bool = True, columns: int = 1) -> None:
        super().__init__(in_features, columns=columns)
        self.squash = squash
        self.scorer = nn.Linear(in_features, columns)

    def instance_score(self, e: Tensor) -> Tensor:
        """Logits or scores that are pooled, from encodings e [M, D]: [M] or [M, C]."""
        raw = upcast(self.scorer(e)).squeeze(-1)
        return torch.sigmoid(raw) if self.squash else raw

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: E741
        """Pooled instance scores [K] or [K, C]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K] or [K, C]."""
        pooled = self.pooled(l, r)
        return pooled if self.squash else torch.sigmoid(pooled)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K] or [K, C]."""
        pooled = self.pooled(l, r)
        return f.logit(pooled) if self.squash else pooled


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; wider types stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def one_a_column(start: Tensor, columns: int) -> Tensor:
    """Where a learnable number [] of a pooling starts: of several columns each has its own, [C]."""
    return start if columns == 1 else start.repeat(columns)


def require_positive(what: str, value: float) -> None:
    """Refuse a setting that is not above 0."""
    if not value > 0:
        raise ConfigError(f"Expected {what} > 0, got {value}; choose a positive number.")


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
