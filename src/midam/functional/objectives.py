"""Objectives on bag scores, and the dual step of the min-max objective.

`minmax_auc` is eq. MI_DAM. With the weight "paper", F3 = alpha gap - alpha^2 / 2, as the paper prints it; its maximum
over alpha is half the squared gap. With "pairwise", F3 is doubled: then the saddle value is the expected pairwise
square loss E[(c + h' - h)^2] over (positive h, negative h').

Labels enter as class weights: `class_weights` gives each positive bag 1/P and each negative bag 1/N. A class that is
missing in a batch contributes no loss, and the batch has no gap and no dual step: loss and gradient stay finite.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import binary_cross_entropy_with_logits

Weight = Literal["paper", "pairwise"]
Domain = Literal["nonnegative", "real"]


class ClassWeights(NamedTuple):
    """Averaging weights of the two classes."""

    positive: Tensor  # [K], or [K, C] of several columns
    negative: Tensor  # as `positive`
    contrast: Tensor  # negative - positive
    both: Tensor | None  # [], or [C]: 1 if both classes are present, else 0; None if they are known to be
    bags: Tensor | None = None  # [K]: weight of each bag over the mean weight of its class; None: all are 1

    def weighted(self, bags: Tensor) -> "ClassWeights":
        """Return these weights times the relative weights of the bags [K]: the sum of a class is 1 in expectation."""
        positive, negative = self.positive * bags, self.negative * bags
        return ClassWeights(positive, negative, negative - positive, self.both, bags)


class MinMax(NamedTuple):
    """Value of the min-max objective and ``c + mean- h - mean+ h`` (detached), the input of the dual step."""

    loss: Tensor
    gap: Tensor


def class_weights(labels: Tensor, *, dtype: torch.dtype = torch.float32) -> ClassWeights:
    """Return weights that average over the positive and over the negative bags, from labels 1 and 0, [K] or [K, C].

    Of several columns each has weights of its own, and `both` is [C]; NaN is an unknown label, of weight 0.

    Examples
    --------
    >>> class_weights(torch.tensor([1, 0, 0])).negative.tolist()
    [0.0, 0.5, 0.5]
    >>> class_weights(torch.tensor([[1.0], [0.0], [torch.nan], [0.0]])).negative.flatten().tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    positive, negative = (labels > 0).to(dtype), (labels <= 0).to(dtype)
    n_positive, n_negative = positive.sum(dim=0), negative.sum(dim=0)
    both = ((n_positive > 0) & (n_negative > 0)).to(dtype)
    positive, negative = positive / n_positive.clamp(min=1), negative / n_negative.clamp(min=1)
    return ClassWeights(positive, negative, negative - positive, both)


def minmax_auc(
    h: Tensor,
    weights: ClassWeights,
    *,
    a: Tensor,
    b: Tensor,
    alpha: Tensor,
    margin: float = 1.0,
    weight: Weight = "paper",
) -> MinMax:
    """Return the min-max AUC objective (eq. MI_DAM) of bag scores h [K] in [0, 1].

    `a` and `b` [] are the centers of the positive and of the negative scores, `alpha` [] is the dual variable (without
    graph), `margin` is c > 0 in units of the score, and `weight` "pairwise" doubles F3.

    Examples
    --------
    >>> h = torch.tensor([1.0, 0.0])
    >>> one, zero = torch.ones(()), torch.zeros(())
    >>> minmax_auc(h, class_weights(torch.tensor([1, 0])), a=one, b=zero, alpha=zero).loss.item()
    0.0
    """
    loss, gap = _MinMax.apply(h, a, b, alpha, weights, margin, 1.0 if weight == "paper" else 2.0)  # type: ignore[no-untyped-call]
    return MinMax(loss, gap)


class _MinMax(torch.autograd.Function):
    """One node for about twenty, whose passage took a tenth of the step of a small network."""

    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any, h: Tensor, a: Tensor, b: Tensor, alpha: Tensor, weights: ClassWeights, margin: float, times: float
    ) -> tuple[Tensor, Tensor]:
        to_a, to_b = h - a, h - b
        pull_a, pull_b = weights.positive * to_a, weights.negative * to_b
        gap = torch.dot(weights.contrast, h) + margin
        slope = alpha
        if weights.both is not None:
            gap, slope = weights.both * gap, weights.both * alpha
        dual = alpha * torch.sub(gap, alpha, alpha=0.5)
        ctx.save_for_backward(pull_a, pull_b, weights.contrast, slope)
        ctx.times = times
        ctx.mark_non_differentiable(gap)
        ctx.set_materialize_grads(False)
        return torch.add(torch.dot(pull_a, to_a) + torch.dot(pull_b, to_b), dual, alpha=times), gap

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        pull_a, pull_b, contrast, slope = ctx.saved_tensors
        twice = 2 * grad
        to_h = (pull_a + pull_b) * twice
        to_h = torch.addcmul(to_h, contrast, slope * grad, value=ctx.times)
        return to_h, -pull_a.sum() * twice, -pull_b.sum() * twice, None, None, None, None


def dual_step(
    alpha: Tensor, gap: Tensor, *, dual_lr: float, domain: Domain = "nonnegative", both: Tensor | None = None
) -> Tensor:
    """Return the next dual variable: ``Proj[alpha + eta' (gap - alpha)]`` (Algorithm 1).

    `gap` is ``c + mean- h - mean+ h`` of the batch, `dual_lr` is eta' in (0, 1], and `domain` is Omega; "nonnegative"
    gives the min-max margin objective. Where `both` is 0, alpha does not change. Both weights of the objective use the
    same step, because the literal gradient of the doubled F3 would cycle at eta' = 1.

    Examples
    --------
    >>> dual_step(torch.tensor(0.0), torch.tensor(-0.5), dual_lr=1.0).item()
    0.0
    """
    if both is not None:
        step = torch.lerp(alpha, gap.to(alpha.dtype), dual_lr * both.to(alpha.dtype))
    else:
        step = gap if dual_lr == 1.0 else torch.lerp(alpha, gap.to(alpha.dtype), dual_lr)
    return step.clamp(min=0.0) if domain == "nonnegative" else step


def pairwise_squared_hinge(h: Tensor, weights: ClassWeights, *, margin: float = 1.0) -> Tensor:
    """Return the mean of ``max(0, c - (h - h'))^2`` over all pairs of a positive h and a negative h', c > 0.

    It is 0 if a class is missing.

    Examples
    --------
    >>> pairwise_squared_hinge(torch.tensor([1.0, 0.5]), class_weights(torch.tensor([1, 0]))).item()
    0.25
    """
    violation = torch.relu(margin - (h.unsqueeze(1) - h.unsqueeze(0)))
    # Not matmul: autocast would compute the sums in half precision.
    pairs = weights.positive.unsqueeze(1) * weights.negative.unsqueeze(0)
    return (pairs * violation * violation).sum()


def bce(logit: Tensor, labels: Tensor, *, bags: Tensor | None = None) -> Tensor:
    """Return the binary cross-entropy of bag logits, averaged over the batch; labels [K] are 1 and 0.

    `bags` [K], if given, are relative weights of the bags.
    """
    return binary_cross_entropy_with_logits(logit, labels.to(logit.dtype), weight=bags)


def cox(log_risk: Tensor, time: Tensor, event: Tensor) -> Tensor:
    """Return the negative log partial likelihood of log risks [K], averaged over the bags with an event.

    A bag i with an event contributes ``log sum_{j: t_j >= t_i} exp(f_j) - f_i``; bags with events at the same time are
    all at risk then (Breslow). `time` [K] is the time of the event where `event` [K] is 1, and of censoring where it is
    0. Only bags of the batch are at risk: for a batch without an event, or of one bag, the value and its gradient are
    0.

    Examples
    --------
    >>> round(cox(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 0])).exp().item(), 4)
    3.0
    """
    at_risk = time.unsqueeze(0) >= time.unsqueeze(1)
    # Each bag is at risk at its own time, so no row is empty.
    total = torch.where(at_risk, log_risk.unsqueeze(0), -torch.inf).logsumexp(dim=1)
    had = (event > 0).to(log_risk.dtype)
    return (had * (total - log_risk)).sum() / had.sum().clamp(min=1)
