"""The encoder that the settings ask for, and what its normalisation means for the method."""

import warnings

import torch
from torch import nn

from midam.errors import ConfigError
from midam.nn.custom import Encoder, batch_norms, load_weights, make_module
from midam.nn.encoders import MLP
from midam.nn.resnet import ResNet20
from midam.train.config import ENCODERS, FitConfig

_OWNERS = {"hidden": ("mlp",), "dropout": ("mlp",), "norm": ("resnet20", "resnet20-3d")}


def build_encoder(config: FitConfig, *, instance_shape: tuple[int, ...], pretrained: bool = True) -> nn.Module:
    """Build the encoder, with weights from torch's current random state or, where one is named, from a file.

    Its attribute `out_features` is the width of the encodings.

    Parameters
    ----------
    config : FitConfig
        Settings.
    instance_shape : tuple of int
        Shape of one instance.
    pretrained : bool
        Read ``config.encoder_weights``; False where other weights will take the place of all.

    Raises
    ------
    ConfigError
        If the encoder cannot be made, does not fit the instances, or has settings of another one.
    """
    config = config.for_instances(instance_shape)
    _refuse_settings_of_others(config)
    own = config.encoder in ENCODERS
    module = _built_in(config, instance_shape) if own else make_module(config.encoder, config.encoder_args)
    encoder = module
    if config.freeze or not own:
        encoder = Encoder(module, instance_shape=instance_shape, name=config.encoder, freeze=config.freeze)
    if pretrained and config.encoder_weights is not None:
        load_weights(module, config.encoder_weights)
    if pretrained and own and config.freeze and config.encoder_weights is None:
        warnings.warn(
            f"freeze={config.freeze} keeps the random weights of {config.encoder}: name their file in encoder_weights",
            UserWarning,
            stacklevel=2,
        )
    return encoder


def warn_of_batch_statistics(encoder: nn.Module, estimator: str) -> None:
    """Warn where an encoder in training mode normalises by the statistics of the batch."""
    names = batch_norms(encoder)
    if not names:
        return
    what = {
        "vrsp": "the tracked scores of one bag are those of differently normalised batches",
        "minibatch": "training and evaluation differ, most where a batch holds few bags",
    }.get(estimator, "whole bags that do not fit one chunk are refused")
    warnings.warn(
        f"batch normalisation (at {names[0]!r}, {len(names)} in all) lets the score of an instance depend on the "
        f"others of its batch: with the estimator {estimator!r} {what}; group normalisation does not",
        UserWarning,
        stacklevel=3,
    )


def refuse_half_volumes(encoder: nn.Module, precision: str, device: torch.device) -> None:
    """Refuse 3-D convolutions in bfloat16 on the CPU: over two slices, their gradients are not finite.

    Raises
    ------
    ConfigError
        For an encoder with such convolutions.
    """
    if precision != "32-true" and device.type == "cpu" and any(isinstance(m, nn.Conv3d) for m in encoder.modules()):
        raise ConfigError(
            f"Expected the precision 32-true for 3-D convolutions on the CPU, got {precision!r}; torch's gradients are "
            "wrong there. Train on a GPU, or leave the precision out."
        )


def _built_in(config: FitConfig, instance_shape: tuple[int, ...]) -> nn.Module:
    if config.encoder == "mlp":
        return MLP(int(torch.Size(instance_shape).numel()), hidden=config.hidden, dropout=config.dropout)
    volumes = config.encoder == "resnet20-3d"
    if len(instance_shape) != (4 if volumes else 3):
        axes = "[channels, depth, height, width]" if volumes else "[channels, height, width]"
        raise ConfigError(
            f"Expected instances of shape {axes} for the encoder {config.encoder!r}, got {list(instance_shape)}; use "
            "'mlp' for feature vectors, 'resnet20' for patches and slices, 'resnet20-3d' for volumes, which --volume "
            "makes of scans."
        )
    return ResNet20(instance_shape[0], norm=config.norm, spatial=3 if volumes else 2)


def _refuse_settings_of_others(config: FitConfig) -> None:
    defaults = FitConfig()
    for name, owners in _OWNERS.items():
        value = getattr(config, name)
        if config.encoder not in owners and value != getattr(defaults, name):
            raise ConfigError(
                f"Expected no {name} with the encoder {config.encoder!r}, got {value!r}; it belongs to "
                f"{' and '.join(repr(owner) for owner in owners)}."
            )
    if config.encoder in ENCODERS and config.encoder_args:
        raise ConfigError(
            f"Expected no encoder_args with the encoder {config.encoder!r}, got {config.encoder_args}; they belong "
            "to a class path."
        )
