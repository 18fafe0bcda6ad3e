"""Mean and generalized mean of the instance scores; noisy-or; noisy-and, a threshold on their mean."""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from midam.errors import ConfigError, require_positive
from midam.functional import poolings as f
from midam.nn.pooling.base import ScorePooling, one_a_column

_SATURATION_SIZE = 1000


class MeanPooling(ScorePooling):
    """Mean of the instance scores; with C columns, V = C.

    Examples
    --------
    One instance of four is positive. Without layers, the instances come as logits:

    >>> from midam.nn import BagScorer
    >>> x = torch.tensor([[0.9], [0.1], [0.1], [0.1]]).logit()
    >>> model = BagScorer(nn.Identity(), MeanPooling(1).without_layers())
    >>> round(model(x, torch.tensor([4])).score.item(), 2)
    0.3
    """

    name = "mean"

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the pooled instance scores [K] or [K, C]."""
        return r.squeeze(-1)


class GeneralizedMeanPooling(ScorePooling):
    """Generalized mean (1/n sum phi^p)^(1/p) with a fixed or learnable exponent.

    Parameters
    ----------
    exponent : float
        p > 0; 1 is the mean, large values approach the maximum.
    learn_exponent : bool
        Make log p a parameter, one per column.
    columns : int
        C.

    Examples
    --------
    >>> from midam.nn import BagScorer
    >>> x = torch.tensor([[0.9], [0.1], [0.1], [0.1]]).logit()
    >>> for exponent in (1.0, 4.0, 16.0):
    ...     pooling = GeneralizedMeanPooling(1, exponent=exponent).without_layers()
    ...     print(round(BagScorer(nn.Identity(), pooling)(x, torch.tensor([4])).score.item(), 2))
    0.3
    0.64
    0.83
    """

    name = "generalized-mean"
    weighted = True
    anneals = True

    def __init__(
        self, in_features: int, *, exponent: float = 4.0, learn_exponent: bool = False, columns: int = 1
    ) -> None:
        super().__init__(in_features, columns=columns)
        require_positive("choose a positive number", exponent=exponent)
        self.exponent = exponent
        log_p = one_a_column(torch.tensor(exponent).log(), columns)
        self.log_p = nn.Parameter(log_p) if learn_exponent else None

    @property
    def p(self) -> Tensor | float:
        """Exponent p, times the power of the weights."""
        p = self.exponent if self.log_p is None else self.log_p.exp()
        return p if self.weight_power == 1 else p * self.weight_power

    def term(self, e: Tensor) -> Tensor:
        """Return the logits p log phi of instances, [M] or [M, C], from encodings e [M, D]."""
        return self.p * logsigmoid(self.raw_score(e))

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the bag scores [K] or [K, C]."""
        return torch.exp(l / self.p)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the logits of the bag scores [K] or [K, C]."""
        log_h = (l / self.p).clamp(max=-torch.finfo(l.dtype).eps)
        return log_h - f.log1mexp(log_h)


class NoisyOrPooling(ScorePooling):
    """Noisy-or, 1 - prod (1 - phi): the probability that at least one instance fires.

    It saturates on large bags, where even tiny instance scores add up; a warning says so. With C `columns`, V = C.

    Examples
    --------
    Each of ten instances scores 0.1, and yet the bag scores 0.65:

    >>> from midam.nn import BagScorer
    >>> model = BagScorer(nn.Identity(), NoisyOrPooling(1).without_layers())
    >>> x = torch.full((10, 1), 0.1).logit()
    >>> round(model(x, torch.tensor([10])).score.item(), 2)
    0.65
    """

    name = "noisy-or"
    counts = True

    def __init__(self, in_features: int, *, columns: int = 1) -> None:
        super().__init__(in_features, columns=columns)

    def term(self, e: Tensor) -> Tensor:
        """Return the values log(1 - phi) of instances, [M] or [M, C], from encodings e [M, D]."""
        return logsigmoid(-self.raw_score(e))

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the bag scores [K] or [K, C]."""
        return -torch.expm1(f.noisy_or_log_miss(r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the logits of the bag scores [K] or [K, C]."""
        miss = f.noisy_or_log_miss(r, n)
        return f.log1mexp(miss) - miss

    def check_sizes(self, largest: int) -> None:
        """Warn when bags of this size drive the score into saturation."""
        if largest > _SATURATION_SIZE:
            warnings.warn(
                "noisy-or multiplies over all instances of a bag and saturates at 1 on large bags "
                f"(largest here: {largest}); prefer smoothed-max or noisy-and",
                stacklevel=3,
            )


class NoisyAndPooling(MeanPooling):
    """Noisy-and (Kraus et al. 2016): a soft threshold at a learnable fraction of positive instances.

    Parameters
    ----------
    slope : float
        a > 0, fixed.
    threshold : float
        Initial b in (0, 1), learnable, one per column.
    columns : int
        C.

    Examples
    --------
    Bags with 1 and 4 of 5 positive instances, below and above the threshold of 0.3:

    >>> from midam.nn import BagScorer
    >>> x = torch.tensor([0.99, 0.01, 0.01, 0.01, 0.01, 0.99, 0.99, 0.99, 0.99, 0.01]).logit().unsqueeze(1)
    >>> model = BagScorer(nn.Identity(), NoisyAndPooling(1).without_layers())
    >>> [round(score, 2) for score in model(x, torch.tensor([5, 5])).score.tolist()]
    [0.25, 0.99]
    """

    name = "noisy-and"

    def __init__(self, in_features: int, *, slope: float = 10.0, threshold: float = 0.3, columns: int = 1) -> None:
        super().__init__(in_features, squash=True, columns=columns)
        require_positive("choose a positive number", slope=slope)
        if not 0 < threshold < 1:
            raise ConfigError(f"Expected threshold in (0, 1), got {threshold}; choose a share of positive instances.")
        self.register_buffer("a", torch.tensor(slope))
        self.b_logit = nn.Parameter(one_a_column(torch.logit(torch.tensor(threshold)), columns))

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the pooled instance scores [K] or [K, C]."""
        return f.noisy_and(r, a=self.get_buffer("a"), b=torch.sigmoid(self.b_logit))
