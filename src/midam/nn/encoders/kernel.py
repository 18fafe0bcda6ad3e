"""Similarities of instances to fixed centers."""

import torch
from torch import Tensor, nn


class GaussianKernel(nn.Module):
    """Similarities exp(-gamma |x - c|^2) of an instance x to S centers c, such as the support vectors of a machine.

    The caller sets the centers and gamma; they are not trained.

    Parameters
    ----------
    in_features : int
        Numbers per instance, D; its axes are flattened.
    count : int
        Number of centers, S.

    Attributes
    ----------
    centers, gamma : Parameter [S, D] and [], float64
        The centers, and gamma > 0 in units of 1 / squared distance.

    Examples
    --------
    >>> kernel = GaussianKernel(1, 2)
    >>> _ = kernel.centers.copy_(torch.tensor([[0.0], [1.0]])), kernel.gamma.fill_(1.0)
    >>> kernel(torch.tensor([[0.0]])).round(decimals=2).tolist()
    [[1.0, 0.37]]
    """

    def __init__(self, in_features: int, count: int) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(count, in_features, dtype=torch.float64), requires_grad=False)
        self.gamma = nn.Parameter(torch.ones((), dtype=torch.float64), requires_grad=False)
        self.out_features, self.repeatable = count, True

    def forward(self, x: Tensor) -> Tensor:
        """Return the similarities [M, S] of instances x [M, ...], in the dtype of the centers."""
        x = x.to(self.centers.dtype).flatten(1)
        squares = torch.addmm(self.centers.square().sum(dim=1), x, self.centers.T, alpha=-2)
        distances = (squares + x.square().sum(dim=1, keepdim=True)).clamp(min=0)
        return torch.exp(-self.gamma * distances)
