"""From settings to parts: encoder, scorer, estimator and objective, each by its name."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from midam.data.column_codes import CovariateCoder
from midam.errors import ConfigError
from midam.nn.encoders import Encoder, batch_norms, load_weights, make_module
from midam.nn.ensemble import BagEnsemble
from midam.nn.objectives import Objective
from midam.nn.pooling import Pooling, check_columns
from midam.nn.scorer import BagScorer, CovariateTerm
from midam.nn.standardizer import Intensities, Standardizer
from midam.registry import ENCODERS, ESTIMATORS, OBJECTIVES, POOLINGS, Registry, build
from midam.settings import ResolvedSettings, Settings
from midam.train.estimators import Estimator

# Settings of encoders only.
_OF_ENCODERS = ("hidden", "dropout", "norm")
_WITHOUT_MEMORY = ("mlp", "resnet20", "resnet20-3d")  # encoders that torch builds on its device "meta"


@dataclass(frozen=True)
class MethodParts:
    """Trained parts: the scorer, the estimator and the objective."""

    model: BagScorer
    estimator: Estimator
    objective: Objective


def build_method(
    config: Settings,
    *,
    instance_shape: tuple[int, ...],
    num_bags: int,
    columns: int = 1,
    pairs: str = "binary",
    coder: CovariateCoder | None = None,
) -> MethodParts:
    """Build the parts of a method for one scorer (``members`` is ignored) and a training set of `num_bags` bags.

    The scorer gives a bag `columns` scores; `pairs` is the kind of pairs that labels order, see
    `midam.functional.pairs`, and `coder` encodes the covariates, if the scorer takes them. Initial weights come from
    ``config.run.seed``; the global random state does not change. A `ConfigError` refuses incompatible parts, and an
    encoder that does not fit the instances.
    """
    config = config.resolve(instance_shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.run.seed)
        objective: Objective = build_part(
            OBJECTIVES, config, center_start=config.method.center_start, num_bags=num_bags, columns=columns, pairs=pairs
        )
        model = build_model(config, instance_shape=instance_shape, columns=columns, coder=coder)
    width, branches, chunk_size = model.pooling.value_size, model.pooling.branches, config.run.chunk_size
    estimator: Estimator = build_part(
        ESTIMATORS, config, num_bags=num_bags, value_size=width, branches=branches, chunk_size=chunk_size
    )
    estimator.check(model)
    _warn_of_batch_statistics(model.encoder, estimator)
    return MethodParts(model, estimator, objective)


def build_model(
    config: Settings,
    *,
    instance_shape: tuple[int, ...],
    pretrained: bool = True,
    columns: int = 1,
    coder: CovariateCoder | None = None,
) -> BagScorer:
    """Build only the scorer, with `columns` score columns and weights from torch's current random state.

    It takes the covariates of the `coder`, if given. The other parameters are those of `build_encoder`.
    """
    config = config.resolve(instance_shape)
    encoder = build_encoder(config, instance_shape=instance_shape, pretrained=pretrained)
    squash = OBJECTIVES.find(config.method.objective).squash
    pooling: Pooling = build_part(POOLINGS, config, in_features=encoder.out_features, squash=squash, columns=columns)
    check_columns(pooling, columns)
    standardizer = _build_standardizer(config, encoder, instance_shape)
    term = None if coder is None else CovariateTerm(coder, columns=columns)
    return BagScorer(encoder, pooling, standardizer=standardizer, covariates=term)


def _build_standardizer(config: ResolvedSettings, encoder: nn.Module, instance_shape: tuple[int, ...]) -> Standardizer:
    model = config.model
    if getattr(getattr(encoder, "module", encoder), "takes_intensities", False):
        if not model.standardize:
            raise ConfigError(
                f"Expected `standardize` with the encoder {model.encoder!r}, which takes intensities from 0 to 1, got "
                "False; leave it out."
            )
        return Intensities(instance_shape)
    if not model.standardize:
        return Standardizer(instance_shape, clip=float("inf"), scaling="linear")
    return Standardizer(instance_shape, clip=model.clip, scaling=model.scaling)


def fill_ensemble(config: ResolvedSettings, weights: Sequence[Mapping[str, Tensor]], **sizes: Any) -> BagEnsemble:
    """Act as `build_ensemble` for the weights of members; an `Exception` refuses settings that do not fit them.

    With parts of midam, nothing takes memory before the settings fit.
    """
    if config.training.members != len(weights):
        raise ValueError(f"the settings have {config.training.members} members, the weights {len(weights)}")
    if config.model.encoder in _WITHOUT_MEMORY and "." not in config.method.pooling:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            scorer = build_model(config, pretrained=False, **sizes)
        scorer.load_state_dict(weights[0], assign=True)
    return build_ensemble(config, **sizes)


def build_ensemble(config: Settings, *, instance_shape: tuple[int, ...], **sizes: Any) -> BagEnsemble:
    """Build the scorers of all members, to load weights into; the global random state does not change.

    `sizes` are further arguments of `build_model`.
    """
    count = config.resolve(instance_shape).training.members
    with torch.random.fork_rng(devices=[]):
        members = [build_model(config, instance_shape=instance_shape, pretrained=False, **sizes) for _ in range(count)]
    return BagEnsemble(members)


def build_encoder(config: Settings, *, instance_shape: tuple[int, ...], pretrained: bool = True) -> nn.Module:
    """Build the encoder; its attribute `out_features` is the width of the encodings.

    Weights come from torch's current random state or from the file ``encoder_weights``. With ``pretrained=False`` the
    file is not read, because other weights will replace all of them. A `ConfigError` refuses an encoder that cannot be
    made, that does not fit the instances, or whose settings belong to another encoder.
    """
    config = config.resolve(instance_shape)
    sizes = {"in_features": int(torch.Size(instance_shape).numel()), "instance_shape": instance_shape}
    name, freeze = config.model.encoder, config.model.freeze
    module = make_module(name, _given(config) | sizes, config.model.encoder_args)
    wrapped = name not in ENCODERS.own or not hasattr(module, "out_features")
    encoder = Encoder(module, instance_shape=instance_shape, name=name, freeze=freeze) if freeze or wrapped else module
    if pretrained and config.model.encoder_weights is not None:
        load_weights(module, config.model.encoder_weights)
    elif pretrained and not wrapped and freeze and not getattr(module, "pretrained", False):
        advice = "name their file in encoder_weights"
        warnings.warn(f"freeze={list(freeze)} keeps the random weights of {name}: {advice}", stacklevel=2)
    return encoder


def build_part(registry: Registry, config: ResolvedSettings, **offered: Any) -> Any:
    """Build a part by its name in the settings; it gets the settings and sizes that are its parameters."""
    name, arguments = (getattr(config.method, setting) for setting in (registry.kind, f"{registry.kind}_args"))
    # "hidden" of an encoder must not reach an attention network with a parameter of that name.
    settings = {key: value for key, value in _given(config).items() if key not in _OF_ENCODERS}
    part = f"the {registry.kind} {name!r} in {registry.kind}_args"
    return build(registry.find(name), part=part, offered=settings | offered, arguments=arguments)


def _given(config: Settings) -> dict[str, Any]:
    # The rule for the threshold must not reach a pooling with a parameter of that name, such as noisy-and.
    return {name: value for name, value in config.flat().items() if value is not None and name != "threshold"}


def _warn_of_batch_statistics(encoder: nn.Module, estimator: Estimator) -> None:
    names = batch_norms(encoder)
    if names:
        warnings.warn(
            f"batch normalization (at {names[0]!r}, {len(names)} in all) makes the score of an instance depend on its "
            f"batch: with the estimator {estimator.name!r}, {estimator.batch_statistics}; use group normalization",
            stacklevel=3,
        )
