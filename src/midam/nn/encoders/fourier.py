"""Random Fourier features of instances."""

import math

import torch
from torch import Tensor, nn


class FourierFeatures(nn.Module):
    """Random features whose inner product approximates a Gaussian kernel.

    They are ``sqrt(2 / F) cos(x W + b)``. With the entries of W from N(0, 2 gamma) and b uniform in [0, 2 pi), the
    product of the features of x and y has the mean exp(-gamma |x - y|^2) (Rahimi and Recht 2007, Random features for
    large-scale kernel machines, NIPS). The caller sets W and b; they are not trained.

    Parameters
    ----------
    in_features : int
        Numbers per instance; its axes are flattened.
    count : int
        Number of features, F.

    Attributes
    ----------
    directions, phases : Parameter [D, F] and [F], float64
        W and b.

    Examples
    --------
    >>> features = FourierFeatures(2, 3)
    >>> _ = features.directions.copy_(torch.ones(2, 3))
    >>> features(torch.tensor([[0.0, 0.0]])).round(decimals=2).tolist()
    [[0.82, 0.82, 0.82]]
    """

    def __init__(self, in_features: int, count: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.zeros(in_features, count, dtype=torch.float64), requires_grad=False)
        self.phases = nn.Parameter(torch.zeros(count, dtype=torch.float64), requires_grad=False)
        self.out_features, self.repeatable = count, True

    def forward(self, x: Tensor) -> Tensor:
        """Return the features [M, F] of instances x [M, ...], in the dtype of the directions."""
        angles = torch.addmm(self.phases, x.to(self.directions.dtype).flatten(1), self.directions)
        return angles.cos().mul(math.sqrt(2 / self.out_features))
