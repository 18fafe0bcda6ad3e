"""A method is pooling x estimator x objective: built here from the settings, and checked for sense."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.nn.ensemble import BagEnsemble
from midam.nn.pooling import NoisyOrPooling, make_pooling
from midam.nn.scaling import Standardizer
from midam.nn.scorer import BagScorer
from midam.train.config import FitConfig
from midam.train.encoding import build_encoder, warn_of_batch_statistics
from midam.train.estimators import Estimator, MiniBatch, VarianceReduced
from midam.train.exact import Exact, ExactPoint
from midam.train.objective import BCE, MinMaxAUC, Objective, PairwiseAUC
from midam.train.step import make_optimizer, parameter_groups


@dataclass(frozen=True)
class Method:
    """What a member of a run trains: the scorer, the estimator and the objective."""

    model: BagScorer
    estimator: Estimator
    objective: Objective


def build_method(config: FitConfig, *, instance_shape: tuple[int, ...], num_bags: int) -> Method:
    """Build a method with fresh weights from ``config.seed``; the global random state is left alone.

    One scorer, whatever ``config.members``: `midam.train.member.build_members` builds them all.

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
        objective = _build_objective(config)
        model = build_model(config, instance_shape=instance_shape)
    chunk_size = config.chunk_of(instance_shape)
    estimator = _build_estimator(config, num_bags=num_bags, value_size=model.pooling.value_size, chunk_size=chunk_size)
    estimator.check(model)
    warn_of_batch_statistics(model.encoder, config.estimator)
    return Method(model, estimator, objective)


def build_model(config: FitConfig, *, instance_shape: tuple[int, ...], pretrained: bool = True) -> BagScorer:
    """Build the scorer alone, with weights from torch's current random state; parameters as of `build_encoder`."""
    encoder = build_encoder(config, instance_shape=instance_shape, pretrained=pretrained)
    options = dict(config.pooling_args)
    if config.temperature is not None:
        options["temperature"] = config.temperature
    squash = config.objective != BCE.name
    try:
        pooling = make_pooling(config.pooling, cast(int, encoder.out_features), squash=squash, **options)
    except TypeError as error:
        raise ConfigError(
            f"Expected arguments of the pooling {config.pooling!r} in pooling_args, got {options}: {error}"
        ) from None
    clip, scaling = (config.clip_of(instance_shape), config.scaling) if config.standardize else (float("inf"), "linear")
    scaler = Standardizer(instance_shape, clip=clip, scaling=scaling)
    return BagScorer(encoder, pooling, scaler=scaler)


def build_ensemble(config: FitConfig, *, instance_shape: tuple[int, ...]) -> BagEnsemble:
    """Build the scorers of all members, to be filled with weights; the global random state is left alone."""
    count = config.for_instances(instance_shape).num_members()
    with torch.random.fork_rng(devices=[]):
        return BagEnsemble([build_model(config, instance_shape=instance_shape, pretrained=False) for _ in range(count)])


def build_optimizer(config: FitConfig, model: nn.Module, objective: nn.Module) -> torch.optim.Optimizer:
    """Build the primal optimizer of a model and the centres of its objective.

    Parameters
    ----------
    config : FitConfig
        Settings that went through `FitConfig.for_instances`.
    model : nn.Module
        What is trained, on its device.
    objective : nn.Module
        With the centres a and b, where it has them.
    """
    groups = parameter_groups(model, objective, weight_decay=config.weight_decay)
    name, lr = config.primal()
    return make_optimizer(name, groups, lr=lr, momentum=config.momentum)


def warn_of_sizes(model: BagScorer, bags: Bags) -> None:
    """Warn where the pooling suffers from bags of these sizes."""
    if isinstance(model.pooling, NoisyOrPooling):
        model.pooling.check_sizes(int(bags.sizes.max()))


def _build_estimator(config: FitConfig, *, num_bags: int, value_size: int, chunk_size: int) -> Estimator:
    if config.estimator == "vrsp":
        return VarianceReduced(
            num_bags, value_size, state_rate=config.state_rate, schedule=config.state_schedule, lag=config.lag
        )
    if config.estimator == "minibatch":
        return MiniBatch()
    if config.estimator == "exact":
        return Exact(chunk_size=chunk_size)
    return ExactPoint(num_instances=config.num_instances, chunk_size=chunk_size, seed=config.seed)


def _build_objective(config: FitConfig) -> Objective:
    if config.objective == "minmax-auc":
        return MinMaxAUC(
            margin=config.margin,
            dual_lr=config.dual_lr,
            weight=config.objective_weight,
            domain=config.dual_domain,
            center_start=config.first_center(),
        )
    return PairwiseAUC(margin=config.margin) if config.objective == "pairwise" else BCE()
