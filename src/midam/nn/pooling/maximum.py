"""Maximum of the instance scores, plain or smoothed with a temperature (eq. softpool)."""

import torch
from torch import Tensor, nn

from midam.errors import require_positive
from midam.nn.pooling.base import MAXIMUM, ScorePooling, one_a_column


class MaxPooling(ScorePooling):
    """Maximum of the instance scores; the gradient goes to the first instance that attains it.

    Examples
    --------
    >>> from midam.nn import BagScorer
    >>> x = torch.tensor([[0.9], [0.1], [0.1], [0.2]]).logit()
    >>> model = BagScorer(nn.Identity(), MaxPooling(1).without_layers())
    >>> [round(score, 2) for score in model(x, torch.tensor([3, 1])).score.tolist()]
    [0.9, 0.2]
    """

    name = "max"
    statistic = MAXIMUM
    weighted = True

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the pooled instance scores [K] or [K, C]."""
        return l


class SmoothedMaxPooling(ScorePooling):
    """Smoothed maximum, tau log mean exp(phi / tau) (eq. softpool).

    Parameters
    ----------
    temperature : float
        tau > 0, in units of the instance score. The paper's code uses 0.1.
    learn_temperature : bool
        Make log tau a parameter, one per column.
    squash, columns
        As in `ScorePooling`.

    Examples
    --------
    A low temperature approaches the maximum, 0.9; a high one approaches the mean, 0.3:

    >>> from midam.nn import BagScorer
    >>> x = torch.tensor([[0.9], [0.1], [0.1], [0.1]]).logit()
    >>> for temperature in (0.01, 0.1, 100.0):
    ...     pooling = SmoothedMaxPooling(1, temperature=temperature).without_layers()
    ...     print(round(BagScorer(nn.Identity(), pooling)(x, torch.tensor([4])).score.item(), 2))
    0.89
    0.76
    0.3
    """

    name = "smoothed-max"
    weighted = True
    anneals = True

    def __init__(
        self,
        in_features: int,
        *,
        temperature: float = 0.1,
        learn_temperature: bool = False,
        squash: bool = True,
        columns: int = 1,
    ) -> None:
        super().__init__(in_features, squash=squash, columns=columns)
        require_positive("choose a positive number", temperature=temperature)
        self.temperature = temperature
        log_tau = torch.tensor(temperature, dtype=torch.float64).log().to(torch.get_default_dtype())
        self.log_tau = nn.Parameter(one_a_column(log_tau, columns)) if learn_temperature else None

    @property
    def tau(self) -> Tensor | float:
        """Temperature tau, divided by the power of the weights."""
        tau = self.temperature if self.log_tau is None else self.log_tau.exp()
        return tau if self.weight_power == 1 else tau / self.weight_power

    def term(self, e: Tensor) -> Tensor:
        """Return the logits phi / tau of instances, [M] or [M, C], from encodings e [M, D]."""
        return self.instance_score(e) / self.tau

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the pooled instance scores [K] or [K, C]."""
        return self.tau * l
