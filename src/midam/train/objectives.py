"""Objectives as modules: parameters, state and the loss of a batch of bags."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import objectives as f
from midam.nn.scorer import BagOutput
from midam.nn.stack import Stack

# A loss [], and new values of buffers by name.
Proposal = tuple[Tensor, Mapping[str, Tensor]]


class Objective(nn.Module):
    """Base of the objectives: called with a `BagOutput` and labels [K], returns the loss [].

    A subclass writes `loss`, for one scorer. What it learns is parameters, without weight decay; what it remembers is
    buffers (a dual variable, a row for each training bag): `loss` proposes new values, `commit` writes them after the
    optimizer has stepped.

    It is made with the settings and sizes that its constructor asks for by name: ``num_bags`` and any setting.

    Attributes
    ----------
    name : str
        What messages call it; by default that of the class.
    squash : bool
        True where `loss` takes scores in [0, 1], False where it takes their logits.
    rates : tuple of str
        Settings in (0, 1] that are attributes of it and fall with the learning rate.
    """

    name: ClassVar[str]
    squash: ClassVar[bool] = True
    rates: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)

    def __init__(self) -> None:
        super().__init__()
        self._proposed: dict[str, Tensor] = {}

    def loss(self, h: Tensor, labels: Tensor, /, *, weights: f.ClassWeights, index: Tensor | None) -> Proposal:
        """Loss [] of a batch, and new values of buffers by name, without graph.

        `h` [K] are scores, or logits where `squash` is False, and `labels` [K] 0 or 1. `weights` average over the bags
        of each class; `index` (int64 [K]) are the bags' positions in the training set, where they are known.
        """
        raise NotImplementedError

    def forward(
        self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Loss [] of K bags with labels [K]; of a batch without averaging weights they come from the labels."""
        h = self.seen(output)
        if not _usable(weights, h):
            weights = f.class_weights(labels, dtype=h.dtype)
        loss, proposed = self.loss(h, labels, weights=weights, index=index)
        self._propose(proposed)
        return loss

    def _propose(self, values: Mapping[str, Tensor]) -> None:
        # Not an assignment: to set an attribute of a module takes longer than most kernels here.
        self._proposed.clear()
        self._proposed.update(values)

    def seen(self, output: BagOutput) -> Tensor:
        """What the loss sees of the bags, [K]: scores or logits."""
        return output.score if self.squash else output.logit

    def commit(self, loss: Tensor) -> None:
        """Write what the last batch proposed, unless its loss is not finite."""
        if not self._proposed:
            return
        # Not isfinite, which is four kernels: of a NaN or an infinity abs(.) < inf is false as well.
        finite = None if known_finite(loss) else loss.abs() < math.inf
        for name, new in self._proposed.items():
            old = self.remembered(name)
            if finite is None:
                old.copy_(new)
                continue
            kept = finite.view(-1, *[1] * (old.ndim - 1)) if finite.ndim else finite
            torch.where(kept, new, old, out=old)
        self._proposed.clear()

    def remembered(self, name: str) -> Tensor:
        """Buffer of this name."""
        found = self._buffers[name]
        if found is None:
            raise KeyError(name)
        return found

    def set_rate(self, name: str, value: float) -> None:
        """Set one of `rates`."""
        setattr(self, name, value)


class StackedObjective(Objective):
    """M objectives of one class, weights copied, for M stacked scorers of `num_bags` bags; scorer after scorer."""

    def __init__(self, objectives: Sequence[Objective], *, num_bags: int) -> None:
        super().__init__()
        self._stack = Stack(objectives)
        self._num_bags = num_bags
        self.rates = objectives[0].rates

    def forward(
        self, output: BagOutput, labels: Tensor, *, weights: f.ClassWeights | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Losses [M] of M * K bags with labels [M * K], all batches in the layout of the averaging weights [K]."""
        count = self._stack.count
        rows = [self.seen(output).view(count, -1), labels.view(count, -1)]
        given = weights if _usable(weights, rows[0]) else None
        if index is not None:
            rows.append((index % self._num_bags).view(count, -1))

        def loss(one: Objective, h: Tensor, y: Tensor, i: Tensor | None = None) -> Proposal:
            return one.loss(h, y, weights=given or f.class_weights(y, dtype=h.dtype), index=i)

        total: Tensor
        total, proposed = self._stack.over(loss, *rows)
        self._propose(proposed)
        return total

    def seen(self, output: BagOutput) -> Tensor:
        """What the losses see of the bags, [M * K]."""
        one: Objective = self._stack.template  # type: ignore[assignment]
        return one.seen(output)

    def remembered(self, name: str) -> Tensor:
        """Buffers of this name, [M, ...]."""
        return self._stack.buffer(name)

    def set_rate(self, name: str, value: float) -> None:
        """Set one of the objectives' `rates`."""
        setattr(self._stack.template, name, value)


class MinMaxAUC(Objective):
    """Min-max AUC objective (eq. MI_DAM); see `midam.functional.objectives.minmax_auc`.

    Parameters
    ----------
    margin : float
        c > 0.
    dual_lr : float
        eta' in (0, 1].
    objective_weight : {"paper", "pairwise"}
        F3 as printed, or doubled so that the saddle value is the pairwise square loss.
    dual_domain : {"nonnegative", "real"}
        Omega, the domain of the dual variable.
    center_start : float
        Where a and b start. 0 is the paper's; a network whose first scores are near 0.5 is then first pulled towards
        0, where the sigmoid of a deep one has lost its gradient.

    Attributes
    ----------
    positive_center, negative_center : Parameter []
        a and b. They take no weight decay: see `midam.train.step.parameter_groups`.
    dual : Tensor []
        alpha, a buffer that only `commit` writes.
    """

    name = "minmax-auc"
    rates = ("dual_lr",)
    dual: Tensor

    def __init__(
        self,
        *,
        margin: float = 1.0,
        dual_lr: float = 1.0,
        objective_weight: f.Weight = "paper",
        dual_domain: f.Domain = "nonnegative",
        center_start: float,
    ) -> None:
        super().__init__()
        if not 0 < dual_lr <= 1:
            raise ConfigError(f"Expected dual_lr in (0, 1], got {dual_lr}; the paper's code uses 1.")
        self.margin = _checked_margin(margin)
        self.dual_lr = dual_lr
        self.objective_weight: f.Weight = objective_weight
        self.dual_domain: f.Domain = dual_domain
        self.positive_center = nn.Parameter(torch.tensor(float(center_start)))
        self.negative_center = nn.Parameter(torch.tensor(float(center_start)))
        self.register_buffer("dual", torch.zeros(()))

    def loss(self, h: Tensor, _: Tensor, /, *, weights: f.ClassWeights, **__: Any) -> Proposal:
        """Loss [] of scores h [K], and the next alpha; it stays where a class is missing."""
        a, b, kind = self.positive_center, self.negative_center, self.objective_weight
        loss, gap = f.minmax_auc(h, weights, a=a, b=b, alpha=self.dual, margin=self.margin, weight=kind)
        dual = f.dual_step(self.dual, gap, dual_lr=self.dual_lr, domain=self.dual_domain, both=weights.both)
        return loss, {"dual": dual}


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

    def loss(self, h: Tensor, _: Tensor, /, *, weights: f.ClassWeights, **__: Any) -> Proposal:
        """Loss [] of scores h [K]; nothing is proposed."""
        return f.pairwise_squared_hinge(h, weights, margin=self.margin), {}


class BCE(Objective):
    """Binary cross-entropy of the bag logits; mean, max and smoothed-max then pool raw scores."""

    name = "bce"
    squash = False

    def loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Loss [] of logits h [K]; nothing is proposed."""
        return f.bce(h, labels), {}


def known_finite(loss: Tensor) -> bool:
    """Whether a loss is known to be finite without waiting for a device: one number on the CPU."""
    return loss.ndim == 0 and loss.device.type == "cpu" and math.isfinite(loss.item())


def _usable(weights: f.ClassWeights | None, h: Tensor) -> TypeGuard[f.ClassWeights]:
    """Whether a batch brings weights for scores h; it does so in float32, and a model in float64 needs them anew."""
    return weights is not None and weights.positive.dtype == h.dtype


def _checked_margin(margin: float) -> float:
    if not margin > 0:
        raise ConfigError(f"Expected margin > 0, got {margin}; scores lie in [0, 1], so try 1.0.")
    return margin
