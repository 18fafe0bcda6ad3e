"""The base of the poolings: from an instance's encoding to its (z, v), and from the bag's statistic to its score."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import poolings as f
from midam.nn.pooling.statistic import LOG_MEAN, Statistic


class Pooling(nn.Module):
    """Base of the poolings: maps encodings [M, D] to logits z [M] and values v [M, V], and owns the outer function f2.

    `in_features` is D. Scores enter float32 (`upcast`) before any nonlinearity, whatever precision the encoder ran in.

    Attributes
    ----------
    name : str
        What messages call it; by default that of the class.
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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores in [0, 1], [K], from the statistic l [K], r [K, V] and the counts n [K]."""
        raise NotImplementedError

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logits of the bag scores, [K]."""
        return f.logit(self.score(l, r, n))

    def check_sizes(self, largest: int) -> None:
        """Warn where bags of so many instances harm this pooling."""


class ScorePooling(Pooling):
    """Base of the poolings of one score an instance.

    With `squash` phi = sigmoid(score) is pooled, as the AUC objectives need; without it the raw score, to the bag's
    logit, as cross-entropy wants it.
    """

    def __init__(self, in_features: int, *, squash: bool = True) -> None:
        super().__init__(in_features)
        self.squash = squash
        self.scorer = nn.Linear(in_features, 1)

    def instance_score(self, e: Tensor) -> Tensor:
        """What is pooled of encodings e [M, D], [M]."""
        raw = upcast(self.scorer(e)).squeeze(-1)
        return torch.sigmoid(raw) if self.squash else raw

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: E741
        """Pooled instance scores [K]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K]."""
        pooled = self.pooled(l, r)
        return pooled if self.squash else torch.sigmoid(pooled)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        pooled = self.pooled(l, r)
        return f.logit(pooled) if self.squash else pooled


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; wider types stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def require_positive(what: str, value: float) -> None:
    """Refuse a setting that is not above 0."""
    if not value > 0:
        raise ConfigError(f"Expected {what} > 0, got {value}; choose a positive number.")
