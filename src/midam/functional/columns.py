"""Objectives over C score columns: one per class against the rest, or one per label, where labels may be missing.

Labels y [K, C] are 1, 0 or NaN. NaN is an unknown label: its bag is left out of the objective of that column. Each
column has an objective of `midam.functional.objectives` on the bags with a known label. The loss is the sum over all C
columns, so that each column takes the steps that it would take alone. If all known labels of a column in a batch are of
one class, the column contributes no loss, gap or dual step to the objectives on pairs.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

from midam.functional.objectives import ClassWeights, MinMax, Weight


def column_labels(codes: Tensor, *, columns: int) -> Tensor:
    """Return labels y [K, C] of each class against the rest, for bags of classes 0 to C - 1, given as [K, 1].

    Examples
    --------
    >>> column_labels(torch.tensor([[2.0], [0.0]]), columns=3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    y = (codes == torch.arange(columns, device=codes.device)).to(codes.dtype)
    return y.masked_fill(codes.isnan(), torch.nan)


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
    """Return the min-max AUC objective (eq. MI_DAM) of scores h [K, C], with a, b and alpha [C].

    The loss is [], the gap [C], 0 for a column that lacks a class. The parameters are those of
    `midam.functional.objectives.minmax_auc`.

    Examples
    --------
    >>> from midam.functional.objectives import class_weights
    >>> h, ones = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.ones(2)
    >>> found = minmax_auc(h, class_weights(torch.tensor([[1, 0], [0, 0]])), a=ones, b=0 * ones, alpha=ones)
    >>> found.loss.item(), found.gap.tolist()
    (-0.5, [0.0, 0.0])
    """
    both = torch.ones_like(alpha) if weights.both is None else weights.both
    scatter = (weights.positive * (h - a) ** 2 + weights.negative * (h - b) ** 2).sum(dim=0)
    gap = (weights.contrast * h).sum(dim=0) + margin
    dual = alpha * torch.sub(gap, alpha, alpha=0.5)
    each = torch.add(scatter, dual, alpha=1.0 if weight == "paper" else 2.0)
    return MinMax((both * each).sum(), (both * gap).detach())


def bce(logit: Tensor, y: Tensor) -> Tensor:
    """Return the binary cross-entropy of logits [K, C]: the mean over the known labels, summed over the columns.

    Examples
    --------
    >>> logit = torch.tensor([[0.0, 0.0], [9.0, -40.0]])
    >>> round(bce(logit, torch.tensor([[1, 0], [torch.nan, 0]])).item(), 4)
    1.0397
    """
    known = ~y.isnan()
    each = binary_cross_entropy_with_logits(logit, y.nan_to_num().to(logit.dtype), reduction="none")
    return ((known * each).sum(dim=0) / known.sum(dim=0).clamp(min=1)).sum()


def cross_entropy(logit: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of the softmax of logits [K, C], averaged over the bags whose class is known.

    `y` are `column_labels`.

    Examples
    --------
    >>> round(cross_entropy(torch.zeros(1, 4), torch.tensor([[0, 0, 1, 0]])).exp().item(), 4)
    4.0
    """
    known = ~y.isnan().any(dim=1)
    each = -(y.nan_to_num().to(logit.dtype) * log_softmax(logit, dim=1)).sum(dim=1)
    return each.sum() / known.sum().clamp(min=1)
