"""Encoders of feature vectors: layers, and similarities to fixed centers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require_choice

Activation = Literal["tanh", "gelu"]


class MLP(nn.Module):
    """Feed-forward encoder; the paper's network for tabular bags is one tanh layer as wide as the input.

    Parameters
    ----------
    in_features : int
        Numbers per instance; its axes are flattened.
    hidden : sequence of int, optional
        Width of each layer; the last is the width of the encoding. Default: one layer of `in_features`.
    dropout : float
        Rate after each layer, in [0, 1).
    activation : {"tanh", "gelu"}
        "tanh" after the first layer and ReLU after the others, as in the paper, or GELU after each. Tanh saturates on
        sparse features.

    Attributes
    ----------
    repeatable : bool
        Whether encoding an instance twice gives the same result, so that max pooling may first find the maximum and
        then back-propagate through it alone. An encoder without this attribute counts as not repeatable.

    Examples
    --------
    >>> import torch
    >>> MLP(3)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, in_features: int, *, hidden: Sequence[int] = (), dropout: float = 0.0, activation: Activation = "tanh"
    ) -> None:
        if not 0 <= dropout < 1:
            raise ConfigError(f"Expected `dropout` from 0 to below 1, got {dropout!r}; give another.")
        require_choice(get_args(Activation), activation=activation)
        super().__init__()
        widths = [in_features, *(hidden or [in_features])]
        layers: list[nn.Module] = []
        for i, (width_in, width_out) in enumerate(pairwise(widths)):
            first = nn.Tanh() if i == 0 else nn.ReLU()
            layers += [nn.Linear(width_in, width_out), nn.GELU() if activation == "gelu" else first]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers)
        self.out_features = widths[-1]
        self.repeatable = dropout == 0
        for layer in self.layers:
            if isinstance(layer, nn.Linear) and not layer.weight.is_meta:  # torch imports its compiler to draw there
                nn.init.xavier_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        return self.layers(x.flatten(1))


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
