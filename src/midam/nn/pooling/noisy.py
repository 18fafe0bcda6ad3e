"""Noisy-or and noisy-and: the instances as independent causes, and a threshold on their mean."""

import warnings

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import poolings as f
from midam.nn.pooling.base import Pooling, one_a_column, require_positive, upcast
from midam.nn.pooling.mean import MeanPooling

_SATURATION_SIZE = 1000


class NoisyOrPooling(Pooling):
    """Noisy-or, 1 - prod (1 - phi): the probability that at least one instance fires.

    It saturates on large bags, where even tiny instance scores add up; a warning says so once. Of C `columns`, V = C.
    """

    name = "noisy-or"

    def __init__(self, in_features: int, *, columns: int = 1) -> None:
        super().__init__(in_features, columns=columns)
        self.value_size = columns
        self.scorer = nn.Linear(in_features, columns)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [M] and values v [M, V] of encodings e [M, D]."""
        v = f.log_miss(upcast(self.scorer(e)))
        return v.new_zeros(v.shape[0]), v

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Bag scores [K] or [K, C]."""
        return -torch.expm1(f.noisy_or_log_miss(r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Logits of the bag scores [K] or [K, C]."""
        miss = f.noisy_or_log_miss(r, n)
        return f.log1mexp(miss) - miss

    def check_sizes(self, largest: int) -> None:
        """Warn when bags of this size drive the score into saturation."""
        if largest > _SATURATION_SIZE:
            warnings.warn(
                "noisy-or multiplies over all instances of a bag and saturates at 1 on large bags "
                f"(largest here: {largest}); prefer smoothed-max or noisy-and",
                UserWarning,
                stacklevel=3,
            )


class NoisyAndPooling(MeanPooling):
    """Noisy-and (Kraus et al. 2016): a soft threshold at a learnable fraction of positive instances.

    Parameters
    ----------
    slope : float
        a > 0, fixed.
    threshold : float
        Initial b in (0, 1), learnable, one a column.
    columns : int
        C.
    """

    name = "noisy-and"

    def __init__(self, in_features: int, *, slope: float = 10.0, threshold: float = 0.3, columns: int = 1) -> None:
        super().__init__(in_features, squash=True, columns=columns)
        require_positive("slope", slope)
        if not 0 < threshold < 1:
            raise ConfigError(
                f"Expected threshold in (0, 1), got {threshold}; choose the fraction of positive instances."
            )
        self.register_buffer("a", torch.tensor(slope))
        self.b_logit = nn.Parameter(one_a_column(torch.logit(torch.tensor(threshold)), columns))

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Pooled instance scores [K] or [K, C]."""
        return f.noisy_and(r, a=self.get_buffer("a"), b=torch.sigmoid(self.b_logit))
