"""From settings to parts: encoder, scorer, estimator, objective, draw rule and optimizer, each by its name."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from midam.data.draws import Draw
from midam.errors import ConfigError
from midam.nn.encoders import Encoder, batch_norms, load_weights, make_module
from midam.nn.ensemble import BagEnsemble
from midam.nn.pooling import Pooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.registry import DRAWS, ENCODERS, ESTIMATORS, OBJECTIVES, POOLINGS, Registry, build
from midam.train.config import FitConfig
from midam.train.gradients import Estimator
from midam.train.objectives import Objective
from midam.train.step import make_optimizer, parameter_groups

# Settings that belong to some encoders alone.
_OF_ENCODERS = ("hidden", "dropout", "norm")


@dataclass(frozen=True)
class MethodParts:
    """What is trained: the scorer, the estimator and the objective."""

    model: BagScorer
    estimator: Estimator
    objective: Objective


def build_method(config: FitConfig, *, instance_shape: tuple[int, ...], num_bags: int) -> MethodParts:
    """Build the parts of a method with fresh weights from ``config.seed``; the global random state is left alone.

    One scorer, whatever ``config.members``.

    Parameters
    ----------
    config : FitConfig
        Settings.
    instance_shape : tuple of int
        Shape of one instance.
    num_bags : int
        Bags of the training set.

    Raises
    ------
    ConfigError
        If the combination makes no sense, or the encoder does not fit the instances.
    """
    config = config.for_instances(instance_shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        objective = build_objective(config, num_bags=num_bags)
        model = build_model(config, instance_shape=instance_shape)
    chunk_size = config.chunk_of(instance_shape)
    estimator = build_estimator(config, num_bags=num_bags, value_size=model.pooling.value_size, chunk_size=chunk_size)
    estimator.check(model)
    _warn_of_batch_statistics(model.encoder, estimator)
    return MethodParts(model, estimator, objective)


def build_objective(config: FitConfig, *, num_bags: int) -> Objective:
    """Build the objective, for so many training bags."""
    offered = {"center_start": config.first_center(), "num_bags": num_bags}
    found: Objective = _build(OBJECTIVES, config.objective, config, offered, config.objective_args)
    return found


def build_estimator(config: FitConfig, *, num_bags: int, value_size: int, chunk_size: int) -> Estimator:
    """Build the estimator, for so many training bags of values of this width."""
    offered = {"num_bags": num_bags, "value_size": value_size, "chunk_size": chunk_size}
    found: Estimator = _build(ESTIMATORS, config.estimator, config, offered, config.estimator_args)
    if not found.tracks and (config.state_start != "first-visit" or config.state_refresh is not None):
        name = "state_refresh" if config.state_start == "first-visit" else "state_start"
        raise ConfigError(
            f"Expected no {name} with the estimator {config.estimator!r}, got {getattr(config, name)!r}; it tracks no "
            "state, as 'vrsp' does."
        )
    return found


def build_draw(config: FitConfig, *, num_bags: int) -> Draw:
    """Build the draw rule, for so many training bags."""
    found: Draw = _build(DRAWS, config.draw, config, {"num_bags": num_bags}, config.draw_args)
    return found


def build_pooling(config: FitConfig, *, in_features: int) -> Pooling:
    """Build the pooling of encodings of this width."""
    offered = {"in_features": in_features, "squash": OBJECTIVES.find(config.objective).squash}
    if config.temperature is not None and "temperature" not in _parameters(POOLINGS.find(config.pooling)):
        raise ConfigError(
            f"Expected no temperature with the pooling {config.pooling!r}, got {config.temperature}; it belongs to "
            "'smoothed-max'."
        )
    found: Pooling = _build(POOLINGS, config.pooling, config, offered, config.pooling_args)
    return found


def build_model(config: FitConfig, *, instance_shape: tuple[int, ...], pretrained: bool = True) -> BagScorer:
    """Build the scorer alone, with weights from torch's current random state; parameters as of `build_encoder`."""
    encoder = build_encoder(config, instance_shape=instance_shape, pretrained=pretrained)
    pooling = build_pooling(config, in_features=cast(int, encoder.out_features))
    clip, scaling = (config.clip_of(instance_shape), config.scaling) if config.standardize else (float("inf"), "linear")
    return BagScorer(encoder, pooling, standardizer=Standardizer(instance_shape, clip=clip, scaling=scaling))


def build_ensemble(config: FitConfig, *, instance_shape: tuple[int, ...]) -> BagEnsemble:
    """Build the scorers of all members, to be filled with weights; the global random state is left alone."""
    count = config.for_instances(instance_shape).num_members()
    with torch.random.fork_rng(devices=[]):
        return BagEnsemble([build_model(config, instance_shape=instance_shape, pretrained=False) for _ in range(count)])


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
    sizes = {"in_features": int(torch.Size(instance_shape).numel()), "instance_shape": instance_shape}
    module = make_module(config.encoder, _given(config) | sizes, config.encoder_args)
    wrapped = "." in config.encoder or not hasattr(module, "out_features")
    encoder = module
    if config.freeze or wrapped:
        encoder = Encoder(module, instance_shape=instance_shape, name=config.encoder, freeze=config.freeze)
    if pretrained and config.encoder_weights is not None:
        load_weights(module, config.encoder_weights)
    if pretrained and not wrapped and config.freeze and config.encoder_weights is None:
        warnings.warn(
            f"freeze={config.freeze} keeps the random weights of {config.encoder}: name their file in encoder_weights",
            UserWarning,
            stacklevel=2,
        )
    return encoder


def build_optimizer(config: FitConfig, model: nn.Module, objective: nn.Module) -> torch.optim.Optimizer:
    """Build the primal optimizer of a model and the parameters of its objective.

    Parameters
    ----------
    config : FitConfig
        Settings that went through `FitConfig.for_instances`.
    model : nn.Module
        What is trained, on its device.
    objective : nn.Module
        With the centers a and b, where it has them.
    """
    groups = parameter_groups(model, objective, weight_decay=config.weight_decay)
    name, lr = config.primal()
    return make_optimizer(name, groups, lr=lr, momentum=config.momentum)


def _build(
    registry: Registry, name: str, config: FitConfig, offered: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Any:
    # What an encoder calls "hidden" is nothing to an attention network of that parameter.
    settings = {key: value for key, value in _given(config).items() if key not in _OF_ENCODERS}
    what = f"the {registry.kind} {name!r} in {registry.kind}_args"
    return build(registry.find(name), what=what, offered=settings | dict(offered), arguments=arguments)


def _given(config: FitConfig) -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if value is not None}


def _parameters(make: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(make).parameters


def _warn_of_batch_statistics(encoder: nn.Module, estimator: Estimator) -> None:
    names = batch_norms(encoder)
    if names:
        warnings.warn(
            f"batch normalization (at {names[0]!r}, {len(names)} in all) lets the score of an instance depend on the "
            f"others of its batch: with the estimator {estimator.name!r} {estimator.batch_statistics}; group "
            "normalization does not",
            UserWarning,
            stacklevel=3,
        )


def _refuse_settings_of_others(config: FitConfig) -> None:
    defaults, by_path = FitConfig(), "." in config.encoder
    for name in _OF_ENCODERS:
        value = getattr(config, name)
        if value == getattr(defaults, name):
            continue
        if by_path or name not in _parameters(ENCODERS.find(config.encoder)):
            owners = [repr(known) for known in ENCODERS.names() if name in _parameters(ENCODERS.find(known))]
            raise ConfigError(
                f"Expected no {name} with the encoder {config.encoder!r}, got {value!r}; it belongs to "
                f"{' and '.join(owners)}."
            )
