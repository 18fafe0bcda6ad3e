"""The base of the pooling heads: from an instance's encoding to its (z, v), and from the bag's statistic to its score.

A head maps encodings ``e`` [M, D] to logits ``z`` [M] and values ``v`` [M, V], owns f2 (see
`midam.functional.pooling`), and says:

- `value_size`: V;
- `smooth`: False for max alone, whose statistic is (max, first index) and which no moving average can track;
- `weighted`: whether z varies, so that draws in proportion to exp(z) beat uniform ones.

Scores enter float32 before any nonlinearity, whatever precision the encoder ran in.
"""

import torch
from torch import Tensor, nn

from midam.functional import pooling as f


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


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; wider types stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
