"""The objectives of M trainings in lockstep: one loss a training, parameters and dual variable with a leading axis."""

import math

import torch
from torch import Tensor, nn

from midam.functional import objectives as f
from midam.train.config import FitConfig


class StackedObjective(nn.Module):
    """Base: called with scores (logits where `squash` is false) and labels [M * K], returns the losses [M].

    Parameters
    ----------
    num_trainings : int
        M.
    """

    squash = True

    def __init__(self, num_trainings: int) -> None:
        super().__init__()
        self.num_trainings = num_trainings

    def forward(self, h: Tensor, labels: Tensor, *, weights: f.ClassWeights) -> Tensor:
        """Losses [M]."""
        raise NotImplementedError

    def dual_step(self, loss: Tensor) -> None:
        """Advance the dual variables of the trainings whose loss is finite."""


class StackedMinMaxAUC(StackedObjective):
    """See `midam.train.objective.MinMaxAUC`."""

    dual: Tensor

    def __init__(self, num_trainings: int, *, config: FitConfig) -> None:
        super().__init__(num_trainings)
        self.margin, self.dual_lr = config.margin, config.dual_lr
        self.weight, self.domain = config.objective_weight, config.dual_domain
        self.positive_center = nn.Parameter(torch.full((num_trainings,), config.first_center()))
        self.negative_center = nn.Parameter(torch.full((num_trainings,), config.first_center()))
        self.register_buffer("dual", torch.zeros(num_trainings))
        self._gap: Tensor | None = None

    def forward(self, h: Tensor, labels: Tensor, *, weights: f.ClassWeights) -> Tensor:  # noqa: ARG002
        """Losses [M]."""

        def one(h_K: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
            out = f.minmax_auc(h_K, weights, a=a, b=b, alpha=alpha, margin=self.margin, weight=self.weight)
            return out.loss, out.gap

        rows = h.view(self.num_trainings, -1)
        loss: Tensor
        loss, self._gap = torch.vmap(one)(rows, self.positive_center, self.negative_center, self.dual)
        return loss

    @torch.no_grad()
    def dual_step(self, loss: Tensor) -> None:
        """Advance the dual variables of the trainings whose loss is finite."""
        if self._gap is None:
            return
        step = f.dual_step(self.dual, self._gap, dual_lr=self.dual_lr, domain=self.domain)
        torch.where(loss.abs() < math.inf, step, self.dual, out=self.dual)
        self._gap = None


class StackedPairwiseAUC(StackedObjective):
    """See `midam.train.objective.PairwiseAUC`."""

    def __init__(self, num_trainings: int, *, margin: float) -> None:
        super().__init__(num_trainings)
        self.margin = margin

    def forward(self, h: Tensor, labels: Tensor, *, weights: f.ClassWeights) -> Tensor:  # noqa: ARG002
        """Losses [M]."""

        def one(h_K: Tensor) -> Tensor:
            return f.pairwise_squared_hinge(h_K, weights, margin=self.margin)

        loss: Tensor = torch.vmap(one)(h.view(self.num_trainings, -1))
        return loss


class StackedBCE(StackedObjective):
    """See `midam.train.objective.BCE`."""

    squash = False

    def forward(self, h: Tensor, labels: Tensor, *, weights: f.ClassWeights) -> Tensor:  # noqa: ARG002
        """Losses [M]."""
        loss: Tensor = torch.vmap(f.bce)(h.view(self.num_trainings, -1), labels.view(self.num_trainings, -1))
        return loss


def make_stacked_objective(config: FitConfig, num_trainings: int) -> StackedObjective:
    """Objective of M trainings with the settings of `config`."""
    if config.objective == "minmax-auc":
        return StackedMinMaxAUC(num_trainings, config=config)
    if config.objective == "pairwise":
        return StackedPairwiseAUC(num_trainings, margin=config.margin)
    return StackedBCE(num_trainings)
