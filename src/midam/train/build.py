"""From settings to parts: encoder, scorer, estimator, objective and optimizer, each by its name."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.column_codes import CovariateCoder
from midam.errors import ConfigError
from midam.nn.encoders import Encoder, batch_norms, load_weights, make_module
from midam.nn.objectives import Objective
from midam.nn.pooling.base import Pooling, check_columns
from midam.nn.scorer import BagEnsemble, BagScorer, CovariateTerm
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
    sizes: NDArray[np.int64] | None = None,
) -> MethodParts:
    """Build the parts of a method for one scorer (``members`` is ignored) and a training set of `num_bags` bags.

    The scorer gives a bag `columns` scores; `pairs` is the kind of pairs that labels order, see
    `midam.functional.pairs`, and `coder` encodes the covariates, if the scorer takes them. A tracked state
    remembers less of small bags, if their `sizes` [N] are given. Initial weights come from ``config.run.seed``; the
    global random state does not change. A `ConfigError` refuses incompatible parts, and an encoder that does not fit
    the instances.
    """
    config = config.resolve(instance_shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.run.seed)
        objective: Objective = build_part(
            OBJECTIVES, config, center_start=config.method.center_start, num_bags=num_bags, columns=columns, pairs=pairs
        )
        model = build_model(config, instance_shape=instance_shape, columns=columns, coder=coder)
    width, branches, chunk_size = model.pooling.value_size, model.pooling.branches, config.run.chunk_size
    offered = {"num_bags": num_bags, "sizes": sizes, "value_size": width, "branches": branches}
    estimator: Estimator = build_part(ESTIMATORS, config, chunk_size=chunk_size, **offered)
    estimator.check(model)
    if names := batch_norms(model.encoder):
        warnings.warn(
            f"batch normalization (at {names[0]!r}, {len(names)} in all) makes the score of an instance depend on its "
            f"batch, in training with {estimator.name!r} unlike in evaluation; use group normalization",
            stacklevel=2,
        )
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


OptimizerName = Literal["sgd", "adam"]
_METHODS = "add_param_group", "state_dict", "load_state_dict"
_OF_SGD = "lr", "weight_decay", "momentum", "dampening", "nesterov", "maximize"
# torch's wrappers of these methods would import torch._dynamo, which takes seconds.
_UNWRAPPED = tuple(getattr(torch.optim.Optimizer, name).__wrapped__ for name in _METHODS)


def parameter_groups(model: nn.Module, objective: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters of the model with weight decay, and those of the objective (a, b) without."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.requires_grad], "weight_decay": weight_decay},
        {"params": list(objective.parameters()), "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    name: OptimizerName, groups: list[dict[str, Any]], *, lr: float, momentum: float
) -> torch.optim.Optimizer:
    """Make the primal optimizer of Algorithm 1.

    "sgd" is the momentum style, v = beta1 v + (1 - beta1) G, which in torch is dampening = momentum (v starts at the
    first gradient); "adam" is the Adam style. Both are fused: one kernel per group of parameters.
    """
    alike = all(len({(p.device, p.dtype) for p in group["params"]}) == 1 for group in groups)
    if name == "sgd":
        sgd = _FusedSGD if alike and hasattr(torch, "_fused_sgd_") else torch.optim.SGD
        return sgd(groups, lr=lr, momentum=momentum, dampening=momentum, fused=True)
    adam = _FusedAdam if alike and hasattr(torch, "_fused_adam_") else torch.optim.Adam
    return adam(groups, lr=lr, fused=True)


def build_optimizer(config: ResolvedSettings, model: nn.Module, objective: nn.Module) -> torch.optim.Optimizer:
    """Make the primal optimizer of the settings for the parameters of a model, on its device, and of its objective."""
    chosen = config.training
    groups = parameter_groups(model, objective, weight_decay=chosen.decay)
    return make_optimizer(chosen.optimizer, groups, lr=chosen.lr, momentum=chosen.momentum)


class _FusedSGD(torch.optim.SGD):
    """torch's fused SGD without its hooks and checks, which cost more than a small network's forward pass.

    The parameters of a group must have one dtype and be on one device.
    """

    add_param_group, state_dict, load_state_dict = _UNWRAPPED

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not group["momentum"]:
                self._run(group, params, [], first=False)
                continue
            # A parameter may get its first gradient later than the others.
            new = [p for p in params if "momentum_buffer" not in self.state[p]]
            if new:
                params = [p for p in params if "momentum_buffer" in self.state[p]]
                for p in new:
                    self.state[p]["momentum_buffer"] = torch.empty_like(p.grad)
                self._run(group, new, [self.state[p]["momentum_buffer"] for p in new], first=True)
            self._run(group, params, [self.state[p]["momentum_buffer"] for p in params], first=False)

    step.hooked = True  # type: ignore[attr-defined]

    @staticmethod
    def _run(group: dict[str, Any], params: list[Tensor], buffers: list[Tensor], *, first: bool) -> None:
        if params:
            values = {name: group[name] for name in _OF_SGD}
            torch._fused_sgd_(params, [p.grad for p in params], buffers, is_first_step=first, **values)  # type: ignore[misc]


class _FusedAdam(torch.optim.Adam):
    """torch's fused Adam in the same way."""

    add_param_group, state_dict, load_state_dict = _UNWRAPPED

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            # Parameters, gradients, their averages, those of their squares, the largest of these (none), and steps
            tensors: tuple[list[Tensor], ...] = [], [], [], [], [], []
            self._init_group(group, *tensors)  # type: ignore[no-untyped-call]
            if tensors[0]:
                torch._foreach_add_(tensors[-1], 1)
                values = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
                torch._fused_adam_(*tensors, beta1=group["betas"][0], beta2=group["betas"][1], **values)

    step.hooked = True  # type: ignore[attr-defined]
