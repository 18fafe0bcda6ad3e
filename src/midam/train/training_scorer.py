"""Scorer of a training step: augmented, compiled, checkpointed; the scorer itself stays as it is."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from midam.errors import ConfigError
from midam.nn.encoders import batch_norms
from midam.nn.scorer import BagScorer
from midam.settings import Settings
from midam.train.augment import Augment

CHECKPOINTED_PARTS = 8


class Checkpointed(nn.Module):
    """Encodes a batch in 8 parts, whose activations the backward pass makes anew: a third more work, 1/8 of the memory.

    Result and dropout are those of the encoder, which must treat each instance on its own.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        if batch_norms(encoder):
            raise ConfigError(
                f"Expected an encoder without batch statistics for checkpointing, got batch normalization at "
                f"{batch_norms(encoder)[0]!r}; use group normalization, or freeze the layer."
            )
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        parts = [checkpoint(self.encoder, part, use_reentrant=False) for part in x.chunk(CHECKPOINTED_PARTS)]
        return torch.cat(cast(list[Tensor], parts))


def training_scorer(
    model: BagScorer, config: Settings, *, instance_shape: tuple[int, ...], standardized: bool = False
) -> BagScorer:
    """Scorer that a step runs instead of `model`, with the same parameters, for augment, checkpointing and compile.

    With `standardized` instances, the scorer's own standardizer is left out. Where nothing is asked for, this is
    `model` itself. A `ConfigError` refuses what cannot be augmented or checkpointed.
    """
    encoder, standardizer = model.encoder, None if standardized else model.standardizer
    if config.run.compile:
        encoder = cast(nn.Module, torch.compile(encoder))
    if config.run.checkpointing:
        encoder = Checkpointed(encoder)
    if config.training.augment:
        augment = Augment(config.training.augment, instance_shape=instance_shape)
        standardizer = augment if standardizer is None else nn.Sequential(standardizer, augment)
    if encoder is model.encoder and standardizer is model.standardizer:
        return model
    return BagScorer(encoder, model.pooling, standardizer=standardizer, covariates=model.covariates)


def channels_last(model: BagScorer, *, instance_shape: tuple[int, ...]) -> None:
    """Lay the weights of a 2-D encoder out as its device convolves fastest: on CUDA with the channels last."""
    if len(instance_shape) == 3 and next(model.parameters()).is_cuda:
        for parameter in model.encoder.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def refuse_half_volumes(encoder: nn.Module, precision: str, device: torch.device) -> None:
    """Refuse 3-D convolutions in bfloat16 on the CPU: over two slices, their gradients are not finite."""
    if precision != "32-true" and device.type == "cpu" and any(isinstance(m, nn.Conv3d) for m in encoder.modules()):
        raise ConfigError(
            f"Expected the precision 32-true for 3-D convolutions on the CPU, got {precision!r}; torch's gradients are "
            "wrong there. Train on a GPU, or leave the precision out."
        )
