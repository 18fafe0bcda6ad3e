"""A member of an ensemble: one bag scorer and everything that trains it."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.nn.scorer import BagScorer
from midam.train.config import FitConfig, member_seed
from midam.train.estimators import Estimator
from midam.train.method import build_method, build_optimizer
from midam.train.objective import Objective
from midam.train.trained import channels_last, trained_scorer


@dataclass(frozen=True)
class Member:
    """One scorer and what trains it; members share nothing but the bags.

    Attributes
    ----------
    seed : int
        Of the initial weights, the draws and the noise.
    model, estimator, objective, optimizer, sampler
        The parts, on the device.
    trained : BagScorer
        What a step runs: `model`, or its encoder and pooling without its standardiser, where the reader gives
        standardised instances, or with augmentation and the like, see `midam.train.trained`.
    """

    seed: int
    model: BagScorer
    trained: BagScorer
    estimator: Estimator
    objective: Objective
    optimizer: torch.optim.Optimizer
    sampler: BagSampler

    def batches(self, reader: InstanceReader, labels: Tensor) -> Generator[SampledBatch | WholeBatch, None, None]:
        """One epoch of batches of the bags of `reader`, with their labels [N] on its device."""
        make: Callable[..., Generator[SampledBatch | WholeBatch, None, None]]
        make = whole_batches if self.estimator.whole else sampled_batches
        return make(reader, self.sampler, labels)

    def set_rates(self, config: FitConfig, *, falls: int) -> dict[str, float]:
        """Set lr and, where the method has them, state_rate and dual_lr after so many falls; returns them by name."""
        rates = {"lr": config.primal()[1] * 0.1**falls}
        for group in self.optimizer.param_groups:
            group["lr"] = rates["lr"]
        for part, name in ((self.estimator, "state_rate"), (self.objective, "dual_lr")):
            if hasattr(part, name):
                rates[name] = getattr(config, name) * 0.5**falls
                setattr(part, name, rates[name])
        return rates

    def state_dict(self) -> dict[str, Any]:
        """All that a resume needs but the weights, which the ensemble holds."""
        return {
            "estimator": self.estimator.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.estimator.load_state_dict(state["estimator"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.load_state_dict(state["sampler"])


def build_members(config: FitConfig, train: Bags, *, device: torch.device, scaled: bool = False) -> list[Member]:
    """Build the members, each from its `midam.train.config.member_seed`; standardisers are not fitted.

    Parameters
    ----------
    config : FitConfig
        Settings.
    train : Bags
        Labelled, both classes present.
    device : torch.device
        Where the parts go.
    scaled : bool
        The reader of the training bags will give standardised instances.
    """
    members: list[Member] = []
    config = config.for_instances(train.instance_shape)
    for number in range(config.num_members()):
        members.append(
            _build(replace(config, seed=member_seed(config.seed, number)), train, device=device, scaled=scaled)
        )
        # Classes with fewer bags than a batch asks for are warned of once, not once a member.
        sampler = members[0].sampler
        config = replace(config, num_positive=sampler.num_positive, num_negative=sampler.num_negative)
    return members


def _build(config: FitConfig, train: Bags, *, device: torch.device, scaled: bool) -> Member:
    method = build_method(config, instance_shape=train.instance_shape, num_bags=len(train))
    model, estimator = method.model.to(device), method.estimator.to(device)
    objective = method.objective.to(device)
    sampler = BagSampler(
        train.require_labels(),
        train.sizes,
        num_positive=config.num_positive,
        num_negative=config.num_negative,
        num_instances=None if estimator.whole else config.num_instances,
        seed=config.seed,
    )
    optimizer = build_optimizer(config, model, objective)
    channels_last(model, instance_shape=train.instance_shape)
    trained = trained_scorer(model, config, instance_shape=train.instance_shape, scaled=scaled)
    return Member(config.seed, model, trained, estimator, objective, optimizer, sampler)
