"""Objectives as modules: parameters, dual variable and the loss of a batch of bags."""

import math

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import objectives as f
from midam.nn.scorer import BagOutput


class Objective(nn.Module):
    """Base of the objectives: called with a `BagOutput` and labels [K], returns the loss [].

    Batches of a fixed layout bring the averaging weights of their classes along; otherwise they come from the labels.
    `dual_step` runs after the optimizer has stepped; only the min-max objective has something to do then.
    """

    name: str
    squash = True

    def forward(self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None) -> Tensor:
        """Loss [] of K bags with labels [K]."""
        raise NotImplementedError

    def dual_step(self, loss: Tensor) -> None:
        """Advance the dual variable, unless the loss is not finite."""


class MinMaxAUC(Objective):
    """Min-max AUC objective (eq. MI_DAM); see `midam.functional.objectives.minmax_auc`.

    Parameters
    ----------
    margin : float
        c > 0.
    dual_lr : float
        eta' in (0, 1].
    weight : {"paper", "pairwise"}
        F3 as printed, or doubled so that the saddle value is the pairwise square loss.
    domain : {"nonnegative", "real"}
        Omega, the domain of the dual variable.
    center_start : float
        Where a and b start. 0 is the paper's; a network whose first scores are near 0.5 is then first pulled towards
        0, where the sigmoid of a deep one has lost its gradient.

    Attributes
    ----------
    positive_center, negative_center : Parameter []
        a and b. They take no weight decay: see `midam.train.step.parameter_groups`.
    dual : Tensor []
        alpha, a buffer that only `dual_step` writes.
    """

    name = "minmax-auc"
    dual: Tensor

    def __init__(
        self,
        *,
        margin: float = 1.0,
        dual_lr: float = 1.0,
        weight: f.Weight = "paper",
        domain: f.Domain = "nonnegative",
        center_start: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 < dual_lr <= 1:
            raise ConfigError(f"Expected dual_lr in (0, 1], got {dual_lr}; the paper's code uses 1.")
        self.margin = _checked_margin(margin)
        self.dual_lr = dual_lr
        self.weight = weight
        self.domain = domain
        self.positive_center = nn.Parameter(torch.tensor(float(center_start)))
        self.negative_center = nn.Parameter(torch.tensor(float(center_start)))
        self.register_buffer("dual", torch.zeros(()))
        self._proposed: tuple[Tensor, Tensor] | None = None

    def forward(self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None) -> Tensor:
        """Loss [] of K bags with labels [K]."""
        h = output.score
        weights = _matching(weights, labels, dtype=h.dtype)
        result = f.minmax_auc(
            h,
            weights,
            a=self.positive_center,
            b=self.negative_center,
            alpha=self.dual,
            margin=self.margin,
            weight=self.weight,
        )
        self._proposed = result.gap, weights.both
        return result.loss

    @torch.no_grad()
    def dual_step(self, loss: Tensor) -> None:
        """Advance alpha, unless the loss is not finite or a class was missing."""
        if self._proposed is None:
            return
        gap, both = self._proposed
        step = f.dual_step(self.dual, gap, dual_lr=self.dual_lr, domain=self.domain, both=both)
        # Not isfinite, which is four kernels: of a NaN or an infinity abs(.) < inf is false as well.
        torch.where(loss.abs() < math.inf, step, self.dual, out=self.dual)
        self._proposed = None


class PairwiseAUC(Objective):
    """Squared hinge over all pairs of a positive and a negative bag of the batch.

    Parameters
    ----------
    margin : float
        c > 0.
    """

    name = "pairwise"

    def __init__(self, *, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = _checked_margin(margin)

    def forward(self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None) -> Tensor:
        """Loss [] of K bags with labels [K]."""
        h = output.score
        weights = _matching(weights, labels, dtype=h.dtype)
        return f.pairwise_squared_hinge(h, weights, margin=self.margin)


class BCE(Objective):
    """Binary cross-entropy of the bag logits; mean, max and smoothed-max then pool raw scores."""

    name = "bce"
    squash = False

    def forward(self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None) -> Tensor:  # noqa: ARG002
        """Loss [] of K bags with labels [K]."""
        return f.bce(output.logit, labels)


OBJECTIVES: dict[str, type[Objective]] = {o.name: o for o in (MinMaxAUC, PairwiseAUC, BCE)}


def _matching(weights: f.ClassWeights | None, labels: Tensor, *, dtype: torch.dtype) -> f.ClassWeights:
    # A batch brings its weights in float32; a model in float64 needs them anew.
    if weights is None or weights.positive.dtype != dtype:
        return f.class_weights(labels, dtype=dtype)
    return weights


def _checked_margin(margin: float) -> float:
    if not margin > 0:
        raise ConfigError(f"Expected margin > 0, got {margin}; scores lie in [0, 1], so try 1.0.")
    return margin
