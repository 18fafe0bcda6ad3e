"""Pooling heads: from an instance's encoding to its (z, v), and from the bag's statistic to its score.

A head maps encodings ``e`` [M, D] to logits ``z`` [M] and values ``v`` [M, V], owns f2 (see
`midam.functional.pooling`), and says:

- `value_size`: V;
- `smooth`: False for max alone, whose statistic is (max, first index) and which no moving average can track;
- `weighted`: whether z varies, so that draws in proportion to exp(z) beat uniform ones.

Scores enter float32 before any nonlinearity, whatever precision the encoder ran in.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import pooling as f

_SATURATION_SIZE = 1000


class Pooling(nn.Module):
    """Base of the pooling heads.

    Parameters
    ----------
    in_features : int
        Width D of the encodings.
    """

    name: str
    smooth = True
    weighted = False
    value_size = 0

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag score in [0, 1], [K], from the statistic l [K], r [K, V] and the counts n [K]."""
        raise NotImplementedError

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logit of `score`, [K]."""
        return f.logit(self.score(l, r, n))


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


class AttentionPooling(Pooling):
    """Attention pooling (eq. attpool): h = sigmoid(w_c . E), E the softmax(g)-weighted mean encoding.

    The linear classifier is moved inside the mean (the second line of eq. attpool), so the value of an instance is the
    single number delta = w_c . e and the tracked state of a bag is two numbers.

    Parameters
    ----------
    in_features : int
        Width D of the encodings.
    hidden : int, optional
        Width m of the attention network g = w_a . tanh(V e); default D.
    gated : bool
        Multiply tanh(V e) by sigmoid(U e) (Ilse et al. 2018).
    """

    name = "attention"
    weighted = True
    value_size = 1

    def __init__(self, in_features: int, *, hidden: int | None = None, gated: bool = False) -> None:
        super().__init__(in_features)
        hidden = hidden or in_features
        self.hidden = nn.Linear(in_features, hidden)
        self.gate = nn.Linear(in_features, hidden) if gated else None
        self.attention = nn.Linear(hidden, 1)
        self._build_values()

    def _build_values(self) -> None:
        self.scorer = nn.Linear(self.in_features, 1)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.attention_logit(e), upcast(self.scorer(e))

    def attention_logit(self, e: Tensor) -> Tensor:
        """Attention logits g [M]."""
        hidden = torch.tanh(self.hidden(e))
        if self.gate is not None:
            hidden = hidden * torch.sigmoid(self.gate(e))
        return upcast(self.attention(hidden)).squeeze(-1)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores [K]."""
        return torch.sigmoid(self.logit(l, r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        return r.squeeze(-1)


class GatedAttentionPooling(AttentionPooling):
    """Attention pooling with the gated attention network of Ilse et al. (2018)."""

    name = "gated-attention"

    def __init__(self, in_features: int, *, hidden: int | None = None) -> None:
        super().__init__(in_features, hidden=hidden, gated=True)


class EmbeddingAttentionPooling(AttentionPooling):
    """Attention pooling of whole encodings, scored by a network that need not be linear (eq. attpoolf).

    Parameters
    ----------
    in_features : int
        Width D of the encodings; also V, the width of a bag's tracked value.
    hidden : int, optional
        Width of the attention network; default D.
    gated : bool
        Use the gated attention network.
    head_hidden : int, optional
        Width of the head's hidden layer (ReLU); default D. 0 makes the head linear.
    """

    name = "embedding-attention"

    def __init__(
        self, in_features: int, *, hidden: int | None = None, gated: bool = False, head_hidden: int | None = None
    ) -> None:
        self._head_hidden = in_features if head_hidden is None else head_hidden
        super().__init__(in_features, hidden=hidden, gated=gated)

    def _build_values(self) -> None:
        d, width = self.in_features, self._head_hidden
        self.value_size = d
        if width:
            self.head: nn.Module = nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, 1))
        else:
            self.head = nn.Linear(d, 1)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.attention_logit(e), upcast(e)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K]."""
        # f2 stays in full precision: autocast would round the bag's logit.
        with torch.autocast(r.device.type, enabled=False):
            out: Tensor = self.head(r)
        return out.squeeze(-1)


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


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; wider types stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _require_positive(what: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"Expected {what} > 0, got {value}; choose a positive number.")
