"""The mlp with noise on the instances in training, or with another first layer: for the study `defaults`."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from midam.nn.encoders import MLP
from midam.registry import ENCODERS


class NoisyMLP(MLP):
    """The mlp with normal noise, which is added to each number of an instance in training.

    Parameters
    ----------
    in_features, hidden
        As for `midam.nn.encoders.MLP`.
    noise : float
        Standard deviation of the noise, at least 0; standardized features have a deviation of about 1.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> encoder, x = NoisyMLP(3, noise=0.5), torch.zeros(2, 3)
    >>> bool((encoder(x) == encoder(x)).all()), bool((encoder.eval()(x) == encoder(x)).all())
    (False, True)
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = (), noise: float) -> None:
        super().__init__(in_features, hidden=hidden)
        self.noise = noise
        self.repeatable = noise == 0

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        return super().forward(x + self.noise * torch.randn_like(x) if self.training else x)


class ReluMLP(MLP):
    """The mlp with ReLU after its first layer, which does not saturate, instead of tanh.

    Parameters
    ----------
    in_features, hidden
        As for `midam.nn.encoders.MLP`.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> bool((ReluMLP(3)(128 * torch.eye(3)) > 1).any())
    True
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = ()) -> None:
        super().__init__(in_features, hidden=hidden)
        self.layers[1] = nn.ReLU()


class GeluMLP(MLP):
    """The mlp with GELU after each layer, which does not saturate.

    Parameters
    ----------
    in_features, hidden
        As for `midam.nn.encoders.MLP`.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> bool((GeluMLP(3)(128 * torch.eye(3)) > 1).any())
    True
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = ()) -> None:
        super().__init__(in_features, hidden=hidden, activation="gelu")


for _encoder in (GeluMLP, ReluMLP, NoisyMLP):
    ENCODERS.add(f"{__name__}.{_encoder.__name__}", _encoder)  # as published trials name them
