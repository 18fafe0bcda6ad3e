"""What a training step runs of a scorer: augmented, compiled, checkpointed; the scorer itself stays as it is."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from midam.errors import ConfigError
from midam.nn.custom import batch_norms
from midam.nn.scorer import BagScorer
from midam.train.augment import Augment
from midam.train.config import FitConfig

_PARTS = 8


class Checkpointed(nn.Module):
    """Encodes a batch in 8 parts and keeps no activations of them; the backward pass makes those of a part anew.

    The result is that of the encoder, part by part, with the same dropout in both passes. About a third more work, and
    an eighth of the memory that the activations take.

    Parameters
    ----------
    encoder : nn.Module
        Of instances [M, ...]; it must treat each on its own.

    Raises
    ------
    ConfigError
        For batch normalisation in batch statistics, which would be those of a part.

    Examples
    --------
    >>> encoder = nn.Linear(3, 2)
    >>> x = torch.randn(20, 3)
    >>> torch.allclose(Checkpointed(encoder)(x), encoder(x), atol=1e-6)
    True
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        if batch_norms(encoder):
            raise ConfigError(
                f"Expected an encoder without batch statistics for checkpointing, got batch normalisation at "
                f"{batch_norms(encoder)[0]!r}; use group normalisation, or freeze the layer."
            )
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        parts = [checkpoint(self.encoder, part, use_reentrant=False) for part in x.chunk(_PARTS)]
        return torch.cat(cast(list[Tensor], parts))


def trained_scorer(
    model: BagScorer, config: FitConfig, *, instance_shape: tuple[int, ...], scaled: bool = False
) -> BagScorer:
    """What a step runs in place of `model`, with the very parameters of it; `model` itself where nothing is asked for.

    Parameters
    ----------
    model : BagScorer
        On its device, in training mode.
    config : FitConfig
        Settings: augment, checkpointing, compile.
    instance_shape : tuple of int
        Shape of one instance.
    scaled : bool
        Instances come standardised: the scorer's own standardiser is left out.

    Raises
    ------
    ConfigError
        If the instances cannot be augmented so, or the encoder not be checkpointed.
    """
    encoder, scaler = model.encoder, None if scaled else model.scaler
    if config.compile:
        encoder = cast(nn.Module, torch.compile(encoder))
    if config.checkpointing:
        encoder = Checkpointed(encoder)
    if config.augment:
        augment = Augment(config.augment, instance_shape=instance_shape)
        scaler = augment if scaler is None else nn.Sequential(scaler, augment)
    if encoder is model.encoder and scaler is model.scaler:
        return model
    return BagScorer(encoder, model.pooling, scaler=scaler)


def channels_last(model: BagScorer, *, instance_shape: tuple[int, ...]) -> None:
    """Lay the weights of a 2-D encoder out as its device convolves fastest: on CUDA with the channels last."""
    if len(instance_shape) == 3 and next(model.parameters()).is_cuda:
        for parameter in model.encoder.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
