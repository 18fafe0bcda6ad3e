"""A pooling in one file: linear softmax."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from midam.nn import Pooling, upcast


class LinearSoftmaxPooling(Pooling):
    """Mean of the instance scores, with the scores as weights: sum phi^2 / sum phi (Wang et al., ICASSP 2019).

    As a log-weighted mean: z = log phi, v = phi, h = r. Thus it can be streamed, tracked and sampled like every other
    pooling.
    """

    name = "linear-softmax"
    weighted = True  # z varies: draws in proportion to exp(z) are better than uniform draws
    value_size = 1

    def __init__(self, in_features: int, *, floor: float = 1e-4) -> None:
        super().__init__(in_features)
        self.scorer = torch.nn.Linear(in_features, 1)
        self.floor = floor

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, 1] of encodings e [M, D]."""
        raw = upcast(self.scorer(e))
        return logsigmoid(raw.squeeze(-1)), torch.sigmoid(raw)

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return bag scores [K]."""
        return r.squeeze(-1).clamp(self.floor, 1 - self.floor)
