r"""Objectives of the top of a ranking: partial AUC and average precision, with what is remembered of each positive bag.

L_ij = max(0, c - (h_i - h_j))^2 is the loss of bag i not being above bag j (`pair_losses`). E_i is the mean over the
positive bags i, E_j that over the negative bags j.

| objective                                     | remembered                | weight of L_ij in the gradient         |
|-----------------------------------------------|---------------------------|----------------------------------------|
| E_i lam log E_j exp(L_ij / lam)               | u_i = E_j exp(L_ij / lam) | exp(L_ij / lam) / u_i                  |
| lam' log E_i (E_j exp(L_ij / lam))^(lam/lam') | u_i, v = E_i u_i^(lam/lam') | exp(L_ij / lam) u_i^(lam/lam' - 1) / v |
| E_i min_s s + E_j max(0, L_ij - s) / beta     | the minimizer s_i         | [L_ij > s_i] / beta                    |
| E_i N_i / (P_i + N_i)                         | P_i, N_i                  | (1 - pi) P_i / (P_i + N_i)^2           |

The first three are SOPA-s, SOTA-s and SOPA of Zhu et al. (2022): the partial AUC at low false positive rates, the
two-way one, which looks at the hardest positive bags more than at others, and the partial AUC up to the false positive
rate beta. The last is SOAP of Qi et al. (2021), 1 - average precision, where N_i = (1 - pi) E_j L_ij, P_i is pi times
the mean of the same loss over all positive bags, i among them, of the weight -pi N_i / (P_i + N_i)^2 each, and pi is
the share of positive bags.

What is remembered is a moving average over the batches in which a bag stood; a bag that is new takes the batch's own.
Of u and v, which are at least 1, the logarithms are kept.

Zhu, Li, Wang, Wu, Yang. When AUC meets DRO: optimizing partial AUC for deep learning with non-convex convergence
guarantee. ICML 2022, Algorithms 1 (SOPA) and 2 (SOPA-s). Qi, Luo, Xu, Ji, Yang. Stochastic optimization of areas under
precision-recall curves with provable convergence. NeurIPS 2021.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from midam.functional.objectives import ClassWeights


class SoftTail(NamedTuple):
    """A loss [], and what is remembered next: log u [K] and log v []."""

    loss: Tensor
    log_u: Tensor
    log_v: Tensor


class Remembered(NamedTuple):
    """A loss [], and what is remembered next of each bag."""

    loss: Tensor
    rows: Tensor


def pair_losses(h: Tensor, *, margin: float = 1.0) -> Tensor:
    """Squared hinge ``max(0, c - (h_i - h_j))^2`` of each bag i above each bag j, [K, K], c > 0.

    Examples
    --------
    >>> pair_losses(torch.tensor([1.0, 0.5])).tolist()
    [[1.0, 0.25], [2.25, 1.0]]
    """
    violation = torch.relu(margin - (h.unsqueeze(1) - h.unsqueeze(0)))
    return violation * violation


def soft_partial_auc(
    losses: Tensor,
    weights: ClassWeights,
    *,
    log_u: Tensor,
    log_v: Tensor,
    rate: float,
    fpr_temperature: float,
    tpr_temperature: float | None = None,
) -> SoftTail:
    """Soft partial AUC loss, one-way (SOPA-s) or with a `tpr_temperature` two-way (SOTA-s), of `pair_losses` [K, K].

    `log_u` [K] and `log_v` [] are what is remembered, -1 of what is new; `rate` in (0, 1] is the weight of the batch
    in it. `fpr_temperature` lam > 0 is in units of the losses: towards 0 the highest negative bag alone counts, and
    the larger it is the nearer the loss is to the mean of all pairs. `tpr_temperature` lam' > 0 does the same to the
    positive bags, of which the lowest count most. Rows of negative bags stay as they are.

    Examples
    --------
    >>> from midam.functional.objectives import class_weights
    >>> losses = pair_losses(torch.tensor([1.0, 0.5, 0.0]))
    >>> new = torch.full((3,), -1.0)
    >>> found = soft_partial_auc(losses, class_weights(torch.tensor([1, 0, 0])), log_u=new, log_v=new[0], rate=0.1,
    ...                          fpr_temperature=0.01)
    >>> round(found.loss.item(), 3)  # 0.25 - 0.01 log 2
    0.243
    """
    outer = math.inf if tpr_temperature is None else tpr_temperature
    power = fpr_temperature / outer
    with torch.no_grad():
        to_positive, to_negative = weights.positive.log(), weights.negative.log()
        exponent = losses / fpr_temperature + to_negative
        new_u = _moved(log_u, _where_both(exponent.logsumexp(dim=1), weights), rate=rate)
        new_v = torch.zeros_like(log_v)
        if tpr_temperature is not None:
            new_v = _moved(log_v, _where_both((power * new_u + to_positive).logsumexp(dim=0), weights), rate=rate)
        # The weights of the classes are in the exponent: what is far off in the other class must not overflow.
        pull = torch.exp(exponent + ((power - 1) * new_u + to_positive).unsqueeze(1) - new_v)
        value = fpr_temperature * _average(new_u, weights.positive) if tpr_temperature is None else outer * new_v
    loss = _of_value((pull * losses).sum(), value)
    kept_v = log_v if tpr_temperature is None else new_v
    return SoftTail(*_if_both(loss, weights, (_of_positive(new_u, log_u, weights), log_u), (kept_v, log_v)))


def partial_auc(losses: Tensor, weights: ClassWeights, *, s: Tensor, rate: float, max_fpr: float) -> Remembered:
    """Partial AUC loss at false positive rates up to `max_fpr`, beta in (0, 1] (SOPA), of `pair_losses` [K, K].

    `s` [K] are the thresholds that are remembered, 0 of what is new; the next ones are a step of size `rate` down the
    gradient of the loss of the bag itself. Those of negative bags stay as they are.

    Examples
    --------
    >>> from midam.functional.objectives import class_weights
    >>> losses = pair_losses(torch.tensor([1.0, 0.5, 0.0]))
    >>> weights = class_weights(torch.tensor([1, 0, 0]))
    >>> partial_auc(losses, weights, s=torch.zeros(3), rate=0.1, max_fpr=0.5).loss.item()
    0.25
    """
    excess = losses - s.unsqueeze(1)
    each = s + (torch.relu(excess) * weights.negative).sum(dim=1) / max_fpr
    slope = 1 - ((excess.detach() > 0) * weights.negative).sum(dim=1) / max_fpr
    loss = _average(each, weights.positive)
    return Remembered(*_if_both(loss, weights, (_of_positive(s - rate * slope, s, weights), s)))


def average_precision(
    losses: Tensor, weights: ClassWeights, *, u: Tensor, rate: float, prevalence: Tensor
) -> Remembered:
    """One minus the average precision (SOAP), of `pair_losses` [K, K], in [0, 1].

    `u` [K, 2] are what is remembered, the mean losses of a positive bag not being above the positive bags (itself
    among them) and above the negative ones; 0 of what is new. `rate` in (0, 1] is the weight of the batch in them.
    `prevalence` [] is the share pi of positive bags where the precision is meant: batches may hold another.

    Examples
    --------
    >>> from midam.functional.objectives import class_weights
    >>> losses = (torch.tensor([[3.0, 1.0, 2.0]]) >= torch.tensor([[3.0], [1.0], [2.0]])).float()
    >>> weights = class_weights(torch.tensor([1, 1, 0]))
    >>> found = average_precision(losses, weights, u=torch.zeros(3, 2), rate=1.0, prevalence=torch.tensor(2 / 3))
    >>> round(1 - found.loss.item(), 4)  # the mean of 1 / 1 and 2 / 3
    0.8333
    """
    now = torch.stack([(losses * w).sum(dim=1) for w in (weights.positive, weights.negative)], dim=1)
    with torch.no_grad():
        seen = u[:, :1] > 0
        new = torch.where(seen, torch.lerp(u, now, rate), now)
        positive, negative = prevalence * new[:, 0], (1 - prevalence) * new[:, 1]
        total = torch.where(weights.positive > 0, positive + negative, torch.ones_like(positive))
        pulls = torch.stack([-prevalence * negative, (1 - prevalence) * positive], dim=1) / total.unsqueeze(1) ** 2
        value = _average(negative / total, weights.positive)
    loss = _of_value(_average((pulls * now).sum(dim=1), weights.positive), value)
    kept = torch.where((weights.positive > 0).unsqueeze(1), new, u)
    return Remembered(*_if_both(loss, weights, (kept, u)))


def _moved(old: Tensor, now: Tensor, *, rate: float) -> Tensor:
    """Logarithm of the moving average of exp(old) and exp(now); `now` where there is no old one."""
    if rate == 1:
        return now
    return torch.where(old == -1, now, torch.logaddexp(old + math.log1p(-rate), now + math.log(rate)))


def _average(x: Tensor, w: Tensor) -> Tensor:
    # Not dot: autocast would take the sum in half precision. Where the weight is 0, x may be anything that is finite.
    return (x * w).sum()


def _of_value(carrier: Tensor, value: Tensor) -> Tensor:
    """Loss of this value with the gradient of the carrier."""
    return carrier + (value - carrier).detach()


def _of_positive(new: Tensor, old: Tensor, weights: ClassWeights) -> Tensor:
    return torch.where(weights.positive > 0, new, old)


def _where_both(log_mean: Tensor, weights: ClassWeights) -> Tensor:
    """Of a batch that lacks a class a mean is that of nothing, -inf; 0 keeps what follows finite."""
    return log_mean if weights.both is None else torch.where(weights.both > 0, log_mean, torch.zeros_like(log_mean))


def _if_both(loss: Tensor, weights: ClassWeights, *states: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Loss and new states; of a batch that lacks a class 0, and the old ones."""
    if weights.both is None:
        return [loss, *(new for new, _ in states)]
    return [weights.both * loss, *(torch.where(weights.both > 0, new, old) for new, old in states)]
