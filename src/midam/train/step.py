"""One training step, its parameter groups and optimizers, and the mean of the weights over epochs."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from midam.data.batch import SampledBatch, WholeBatch
from midam.errors import ConfigError, require, require_choice
from midam.nn.encoders import batch_norms
from midam.nn.objectives import Objective
from midam.nn.scorer import BagOutput, BagScorer, SeenBags
from midam.process_group import Ranks
from midam.settings import Settings
from midam.train.estimators import Estimator

OptimizerName = Literal["sgd", "adam"]
Model = TypeVar("Model", bound=torch.nn.Module)


def parameter_groups(model: nn.Module, objective: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters of the model with weight decay, and those of the objective (a, b) without."""
    for name, module in (("model", model), ("objective", objective)):
        require(module, nn.Module, name, "give a module of torch")
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
    if name == "sgd":
        alike = all(len({(p.device, p.dtype) for p in group["params"]}) == 1 for group in groups)
        sgd = _FusedSGD if alike and hasattr(torch, "_fused_sgd_") else torch.optim.SGD
        return sgd(groups, lr=lr, momentum=momentum, dampening=momentum, fused=True)
    return torch.optim.Adam(groups, lr=lr, fused=True)


class _FusedSGD(torch.optim.SGD):
    """torch's fused SGD without its hooks and checks, which cost more than a small network's forward pass.

    The parameters of a group must have one dtype and be on one device.
    """

    # torch's wrappers of these methods would import torch._dynamo, which takes seconds.
    add_param_group, state_dict, load_state_dict = (
        getattr(torch.optim.SGD, name).__wrapped__ for name in ("add_param_group", "state_dict", "load_state_dict")
    )

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
            torch._fused_sgd_(
                params,
                [p.grad for p in params],  # type: ignore[misc]
                buffers,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=group["dampening"],
                nesterov=False,
                maximize=False,
                is_first_step=first,
            )


def train_step(
    model: BagScorer,
    estimator: Estimator,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batch: SampledBatch | WholeBatch,
    *,
    fabric: Any = None,
    ranks: Ranks | None = None,
) -> tuple[Tensor, BagOutput | SeenBags]:
    """Take one primal step, then commit the objective and the estimator.

    Sampled batches need no device synchronization.

    A `fabric` runs the backward pass (precision, scaling); default: ``loss.backward()``. With several processes,
    `ranks`, each encodes its bags of the step. All get the scores of all bags, so that each computes the whole loss.

    Returns
    -------
    loss : Tensor []
        Detached.
    output : BagOutput or SeenBags
        At the point of the estimator; ``objective.seen(output)`` returns the input of the loss.
    """
    require(estimator, Estimator, "estimator", "make one, such as `midam.VarianceReduced`")
    require(objective, Objective, "objective", "make one, such as `midam.nn.MinMaxAUCLoss`")
    require(optimizer, torch.optim.Optimizer, "optimizer", "make one with `midam.make_optimizer`")
    output: BagOutput | SeenBags = estimator(model, batch)
    index, labels, step = batch.index.to(batch.labels.device), batch.labels, batch.step
    if ranks is not None and step is not None:
        output = SeenBags.of(ranks.gather(objective.seen(output), len(step.index)))
        index, labels = step.index, step.labels
    loss: Tensor = objective(output, labels, weights=batch.class_weights, index=index)
    # Not optimizer.zero_grad, whose profiler hook costs more than a small network's forward pass.
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
    (torch.autograd if fabric is None else fabric).backward(loss)
    if ranks is not None:
        # The parameters of the objective depend on the scores of all bags; every process has their whole gradient.
        ranks.sum_gradients(model.parameters())
    optimizer.step()
    loss = loss.detach()
    objective.commit(loss)
    estimator.commit(loss)
    if ranks is not None and step is not None:
        estimator.share(ranks, batch.index.to(index.device), step.index)
    return loss, output


class WeightAverage(Generic[Model]):
    """Mean of a model's weights over the epochs in the settings, if any; refuses batch statistics."""

    def __init__(self, config: Settings, model: Model) -> None:
        self._config, self._model = config, model
        self._mean: AveragedModel | None = None
        if config.training.average_from is None:
            return
        if batch_norms(model):
            raise ConfigError(
                f"Expected no `average_from` with batch normalization, got {config.training.average_from:g}: the "
                "statistics do not belong to the averaged weights; use group normalization, or leave it out."
            )
        self._mean = AveragedModel(model)

    def update(self, epoch: int) -> None:
        """Add the weights after epoch `epoch` (from 0) to the mean, if the settings include it."""
        if self._mean is not None and self._config.training.averages(epoch):
            self._mean.update_parameters(self._model)

    @property
    def reported(self) -> Model:
        """The mean once it has weights, before that the model."""
        if self._mean is None or not int(self._mean.n_averaged):
            return self._model
        return cast("Model", self._mean.module)

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state that a resume needs."""
        return None if self._mean is None else self._mean.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from `state_dict`."""
        if self._mean is not None and state is not None:
            self._mean.load_state_dict(state)


def reported_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a trainer in this state (`Trainer.state_dict`) reports."""
    average: Mapping[str, Tensor] | None = state.get("average")
    if average is None or not int(average["n_averaged"]):
        return dict(state["model"])
    prefix = "module."
    return {name.removeprefix(prefix): tensor for name, tensor in average.items() if name.startswith(prefix)}
