"""Parameter groups and optimizers, and the mean of the weights over epochs."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from midam.errors import ConfigError, require_choice
from midam.nn.encoders import batch_norms
from midam.settings import ResolvedSettings, Settings

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
    require_choice(get_args(OptimizerName), name=name)
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


def weight_average(config: Settings, model: nn.Module) -> AveragedModel | None:
    """Return the mean of a model's weights over epochs, if the settings have one; refuse batch statistics."""
    if config.training.average_from is None:
        return None
    if batch_norms(model):
        raise ConfigError(
            f"Expected no `average_from` with batch normalization, got {config.training.average_from:g}: the "
            "statistics do not belong to the averaged weights; use group normalization, or leave it out."
        )
    return AveragedModel(model)


def reported_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a trainer in this state (`Trainer.state_dict`) reports."""
    average: Mapping[str, Tensor] | None = state.get("average")
    if average is None or not int(average["n_averaged"]):
        return dict(state["model"])
    prefix = "module."
    return {name.removeprefix(prefix): tensor for name, tensor in average.items() if name.startswith(prefix)}
