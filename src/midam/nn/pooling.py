"""Heads that pool one score an instance, and the registry of all heads."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import pooling as f
from midam.nn.attention import AttentionPooling, EmbeddingAttentionPooling, GatedAttentionPooling
from midam.nn.heads import Pooling, upcast

_SATURATION_SIZE = 1000


class _ScorePooling(Pooling):
    """A pooling of one score an instance.

    `squash` pools phi = sigmoid(score), as the AUC objectives need; without it the raw score is pooled and the result
    is the bag's logit, as cross-entropy wants it.
    """

    def __init__(self, in_features: int, *, squash: bool = True) -> None:
        super().__init__(in_features)
        self.squash = squash
        self.scorer = nn.Linear(in_features, 1)

    def instance_score(self, e: Tensor) -> Tensor:
        raw = upcast(self.scorer(e)).squeeze(-1)
        return torch.sigmoid(raw) if self.squash else raw

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: E741
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        pooled = self.pooled(l, r)
        return pooled if self.squash else torch.sigmoid(pooled)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        pooled = self.pooled(l, r)
        return f.logit(pooled) if self.squash else pooled


class MeanPooling(_ScorePooling):
    """Mean of the instance scores."""

    name = "mean"
    value_size = 1

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        phi = self.instance_score(e)
        return phi.new_zeros(phi.shape), phi.unsqueeze(-1)

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K]."""
        return r.squeeze(-1)


class MaxPooling(_ScorePooling):
    """Maximum of the instance scores; the gradient goes to the first instance that attains it."""

    name = "max"
    smooth = False

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        phi = self.instance_score(e)
        return phi, phi.new_empty(phi.shape[0], 0)

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K]."""
        return l


class SmoothedMaxPooling(_ScorePooling):
    """Smoothed maximum, tau log mean exp(phi / tau) (eq. softpool).

    Parameters
    ----------
    in_features : int
        Width of the encodings.
    temperature : float
        tau > 0, in units of the instance score. The paper's code uses 0.1.
    learn_temperature : bool
        Make log tau a parameter.
    squash : bool
        See `MeanPooling`'s base: pool probabilities (True) or raw scores.
    """

    name = "smoothed-max"
    weighted = True

    def __init__(
        self, in_features: int, *, temperature: float = 0.1, learn_temperature: bool = False, squash: bool = True
    ) -> None:
        super().__init__(in_features, squash=squash)
        _require_positive("temperature", temperature)
        self.temperature = temperature
        log_tau = torch.tensor(temperature, dtype=torch.float64).log().to(torch.get_default_dtype())
        self.log_tau = nn.Parameter(log_tau) if learn_temperature else None

    @property
    def tau(self) -> Tensor | float:
        """Temperature tau."""
        return self.temperature if self.log_tau is None else self.log_tau.exp()

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        z = self.instance_score(e) / self.tau
        return z, z.new_empty(z.shape[0], 0)

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K]."""
        return f.smoothed_max(l, tau=self.tau)


class GeneralisedMeanPooling(Pooling):
    """Generalised mean (1/n sum phi^p)^(1/p) with a fixed or learnable exponent.

    Parameters
    ----------
    in_features : int
        Width of the encodings.
    exponent : float
        p > 0; 1 is the mean, large values approach the maximum.
    learn_exponent : bool
        Make log p a parameter.
    """

    name = "generalised-mean"
    weighted = True

    def __init__(self, in_features: int, *, exponent: float = 4.0, learn_exponent: bool = False) -> None:
        super().__init__(in_features)
        _require_positive("exponent", exponent)
        self.scorer = nn.Linear(in_features, 1)
        self.exponent = exponent
        self.log_p = nn.Parameter(torch.tensor(exponent).log()) if learn_exponent else None

    @property
    def p(self) -> Tensor | float:
        """Exponent p."""
        return self.exponent if self.log_p is None else self.log_p.exp()

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        z = self.p * f.log_phi(upcast(self.scorer(e)).squeeze(-1))
        return z, z.new_empty(z.shape[0], 0)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K]."""
        return torch.exp(f.generalised_mean_log(l, p=self.p))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        log_h = f.generalised_mean_log(l, p=self.p).clamp(max=-torch.finfo(l.dtype).eps)
        return log_h - f.log1mexp(log_h)


class NoisyOrPooling(Pooling):
    """Noisy-or, 1 - prod (1 - phi): the probability that at least one instance fires.

    It saturates on large bags, where even tiny instance scores add up; a warning says so once.
    """

    name = "noisy-or"
    value_size = 1

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        self.scorer = nn.Linear(in_features, 1)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        v = f.log_miss(upcast(self.scorer(e)))
        return v.new_zeros(v.shape[0]), v

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K]."""
        return -torch.expm1(f.noisy_or_log_miss(r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        miss = f.noisy_or_log_miss(r, n)
        return f.log1mexp(miss) - miss

    @staticmethod
    def check_sizes(largest: int) -> None:
        """Warn when bags of this size drive the score into saturation."""
        if largest > _SATURATION_SIZE:
            warnings.warn(
                "noisy-or multiplies over all instances of a bag and saturates at 1 on large bags "
                f"(largest here: {largest}); prefer smoothed-max or noisy-and",
                UserWarning,
                stacklevel=3,
            )


class NoisyAndPooling(_ScorePooling):
    """Noisy-and (Kraus et al. 2016): a soft threshold at a learnable fraction of positive instances.

    Parameters
    ----------
    in_features : int
        Width of the encodings.
    slope : float
        a > 0, fixed.
    threshold : float
        Initial b in (0, 1), learnable.
    """

    name = "noisy-and"
    value_size = 1

    def __init__(self, in_features: int, *, slope: float = 10.0, threshold: float = 0.3) -> None:
        super().__init__(in_features, squash=True)
        _require_positive("slope", slope)
        if not 0 < threshold < 1:
            raise ConfigError(
                f"Expected threshold in (0, 1), got {threshold}; choose the fraction of positive instances."
            )
        self.register_buffer("a", torch.tensor(slope))
        self.b_logit = nn.Parameter(torch.logit(torch.tensor(threshold)))

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        phi = self.instance_score(e)
        return phi.new_zeros(phi.shape), phi.unsqueeze(-1)

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K]."""
        return f.noisy_and(r, a=self.get_buffer("a"), b=torch.sigmoid(self.b_logit))


POOLINGS: dict[str, type[Pooling]] = {
    head.name: head
    for head in (
        MeanPooling,
        MaxPooling,
        SmoothedMaxPooling,
        AttentionPooling,
        GatedAttentionPooling,
        EmbeddingAttentionPooling,
        GeneralisedMeanPooling,
        NoisyOrPooling,
        NoisyAndPooling,
    )
}

_SQUASHABLE = (MeanPooling, MaxPooling, SmoothedMaxPooling)


def make_pooling(name: str, in_features: int, *, squash: bool = True, **options: Any) -> Pooling:
    """Build a pooling head by name.

    Parameters
    ----------
    name : str
        A key of `POOLINGS`.
    in_features : int
        Width of the encodings.
    squash : bool
        For mean, max and smoothed-max: pool probabilities (AUC objectives) or raw scores (cross-entropy). The other
        heads define their own scale and ignore it.
    **options
        Keyword arguments of the head.

    Raises
    ------
    ConfigError
        For an unknown name.

    Examples
    --------
    >>> make_pooling("attention", 8).value_size
    1
    """
    if name not in POOLINGS:
        raise ConfigError(f"Expected a pooling among {', '.join(POOLINGS)}, got {name!r}; choose one of them.")
    head: Callable[..., Pooling] = POOLINGS[name]
    if issubclass(POOLINGS[name], _SQUASHABLE):
        options["squash"] = squash
    return head(in_features, **options)


def _require_positive(what: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"Expected {what} > 0, got {value}; choose a positive number.")
