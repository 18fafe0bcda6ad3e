"""Means: of the instance scores, and generalized with an exponent."""

import torch
from torch import Tensor, nn

from midam.functional import poolings as f
from midam.nn.pooling.base import Pooling, ScorePooling, one_a_column, require_positive, upcast


class MeanPooling(ScorePooling):
    """Mean of the instance scores; of C columns, one with V = C."""

    name = "mean"

    def __init__(self, in_features: int, *, squash: bool = True, columns: int = 1) -> None:
        super().__init__(in_features, squash=squash, columns=columns)
        self.value_size = columns

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        phi = self.instance_score(e)
        return phi.new_zeros(phi.shape[0]), phi.unsqueeze(-1) if self.columns == 1 else phi

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K] or [K, C]."""
        return r.squeeze(-1)


class GeneralizedMeanPooling(Pooling):
    """Generalized mean (1/n sum phi^p)^(1/p) with a fixed or learnable exponent.

    Parameters
    ----------
    exponent : float
        p > 0; 1 is the mean, large values approach the maximum.
    learn_exponent : bool
        Make log p a parameter, one a column.
    columns : int
        C.
    """

    name = "generalized-mean"
    weighted = True
    anneals = True

    def __init__(
        self, in_features: int, *, exponent: float = 4.0, learn_exponent: bool = False, columns: int = 1
    ) -> None:
        super().__init__(in_features, columns=columns)
        require_positive("exponent", exponent)
        self.scorer = nn.Linear(in_features, columns)
        self.exponent = exponent
        log_p = one_a_column(torch.tensor(exponent).log(), columns)
        self.log_p = nn.Parameter(log_p) if learn_exponent else None

    @property
    def p(self) -> Tensor | float:
        """Exponent p, times the power of the weights."""
        p = self.exponent if self.log_p is None else self.log_p.exp()
        return p if self.weight_power == 1 else p * self.weight_power

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] or [M, C] of encodings e [M, D]; there are no values, V = 0."""
        z = self.p * f.log_phi(upcast(self.scorer(e)).squeeze(-1))
        return z, z.new_empty(*z.shape, 0)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K] or [K, C]."""
        return torch.exp(f.generalized_mean_log(l, p=self.p))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K] or [K, C]."""
        log_h = f.generalized_mean_log(l, p=self.p).clamp(max=-torch.finfo(l.dtype).eps)
        return log_h - f.log1mexp(log_h)
