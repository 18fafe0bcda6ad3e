r"""Objectives of the top of a ranking: partial AUC and average precision, with a remembered state per positive bag.

L_ij = max(0, c - (h_i - h_j))^2 is the loss of a pair in which bag i belongs above bag j (`pair_losses`). E_i is the
mean over the positive bags i, E_j the mean over the negative bags j.

| objective                                     | remembered                | weight of L_ij in the gradient         |
|-----------------------------------------------|---------------------------|----------------------------------------|
| E_i lam log E_j exp(L_ij / lam)               | u_i = E_j exp(L_ij / lam) | exp(L_ij / lam) / u_i                  |
| lam' log E_i (E_j exp(L_ij / lam))^(lam/lam') | u_i, v = E_i u_i^(lam/lam') | exp(L_ij / lam) u_i^(lam/lam' - 1) / v |
| E_i min_s s + E_j max(0, L_ij - s) / beta     | the minimizer s_i         | [L_ij > s_i] / beta                    |
| E_i N_i / (P_i + N_i)                         | P_i, N_i                  | (1 - pi) P_i / (P_i + N_i)^2           |

The first three are SOPA-s, SOTA-s and SOPA of Zhu et al. (2022): the partial AUC at low false positive rates, the
two-way partial AUC, which also gives more weight to the hardest positive bags, and the partial AUC up to the false
positive rate beta. The last is SOAP of Qi et al. (2021), 1 - average precision. There pi is the share of positive bags,
N_i = (1 - pi) E_j L_ij, and P_i is pi times the mean of the same loss over all positive bags, including i; these losses
have the weight -pi N_i / (P_i + N_i)^2 in the gradient.

The remembered state of a bag is a moving average over the batches that held the bag, and starts with the value of the
first one; only s_i starts at 0 and takes gradient steps. u and v, which are at least 1, are stored as logarithms.

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
    """Loss [], and the next state to remember: log u [K] and log v []."""

    loss: Tensor
    log_u: Tensor
    log_v: Tensor


class Remembered(NamedTuple):
    """Loss [], and the next state to remember of each bag."""

    loss: Tensor
    rows: Tensor


def pair_losses(h: Tensor, *, margin: float = 1.0) -> Tensor:
    """Return the squared hinge ``max(0, c - (h_i - h_j))^2`` of each bag i above each bag j, [K, K]; c > 0.

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
    """Return the soft partial AUC loss of `pair_losses` [K, K]: SOPA-s, or with `tpr_temperature` the two-way SOTA-s.

    `log_u` [K] and `log_v` [] are the remembered state, -1 where there is none yet; `rate` in (0, 1] is the weight of
    the batch in the next state. `fpr_temperature` lam > 0 is in units of the losses: near 0 only the highest negative
    bag counts; the larger it is, the closer the loss is to the mean over all pairs. `tpr_temperature` lam' > 0 does the
    same for the positive bags, of which the lowest count most. The state of negative bags does not change.

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
        new_u = _log_average(log_u, _or_zero(exponent.logsumexp(dim=1), weights), rate=rate)
        new_v = torch.zeros_like(log_v)
        if tpr_temperature is not None:
            new_v = _log_average(log_v, _or_zero((power * new_u + to_positive).logsumexp(dim=0), weights), rate=rate)
        # The class weights are in the exponent, so that a large loss of a pair that does not count cannot overflow.
        pull = torch.exp(exponent + ((power - 1) * new_u + to_positive).unsqueeze(1) - new_v)
        value = fpr_temperature * _average(new_u, weights.positive) if tpr_temperature is None else outer * new_v
    loss = _with_value((pull * losses).sum(), value)
    kept_v = log_v if tpr_temperature is None else new_v
    return SoftTail(*_if_both(loss, weights, (_if_positive(new_u, log_u, weights), log_u), (kept_v, log_v)))


def partial_auc(losses: Tensor, weights: ClassWeights, *, s: Tensor, rate: float, max_fpr: float) -> Remembered:
    """Return the partial AUC loss (SOPA) of `pair_losses` [K, K] at false positive rates up to beta, `max_fpr`.

    `max_fpr` is in (0, 1]. `s` [K] are the remembered thresholds, 0 for new bags. The next threshold of a positive bag
    is one gradient step of size `rate` on the loss of this bag; those of negative bags do not change.

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
    return Remembered(*_if_both(loss, weights, (_if_positive(s - rate * slope, s, weights), s)))


def average_precision(
    losses: Tensor, weights: ClassWeights, *, u: Tensor, rate: float, prevalence: Tensor
) -> Remembered:
    """Return one minus the average precision (SOAP) of `pair_losses` [K, K], in [0, 1].

    `u` [K, 2] are the remembered mean losses of a positive bag against the positive bags (including itself) and against
    the negative bags; 0 for new bags. `rate` in (0, 1] is the weight of the batch in the next values. `prevalence` []
    is the share pi of positive bags at which the precision is computed; batches may have another share.

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
        new = torch.where(seen, torch.lerp(u.to(now.dtype), now, rate), now)
        positive, negative = prevalence * new[:, 0], (1 - prevalence) * new[:, 1]
        total = torch.where(weights.positive > 0, positive + negative, torch.ones_like(positive))
        pulls = torch.stack([-prevalence * negative, (1 - prevalence) * positive], dim=1) / total.unsqueeze(1) ** 2
        value = _average(negative / total, weights.positive)
    loss = _with_value(_average((pulls * now).sum(dim=1), weights.positive), value)
    kept = torch.where((weights.positive > 0).unsqueeze(1), new, u)
    return Remembered(*_if_both(loss, weights, (kept, u)))


def _log_average(old: Tensor, now: Tensor, *, rate: float) -> Tensor:
    """Return the logarithm of the moving average of exp(old) and exp(now); `now` where there is no old value (-1)."""
    if rate == 1:
        return now
    return torch.where(old == -1, now, torch.logaddexp(old + math.log1p(-rate), now + math.log(rate)))


def _average(x: Tensor, w: Tensor) -> Tensor:
    # Not dot: autocast would compute the sum in half precision. Where the weight is 0, x may be any finite number.
    return (x * w).sum()


def _with_value(carrier: Tensor, value: Tensor) -> Tensor:
    """Return a loss with this value and the gradient of the carrier."""
    return carrier + (value - carrier).detach()


def _if_positive(new: Tensor, old: Tensor, weights: ClassWeights) -> Tensor:
    return torch.where(weights.positive > 0, new, old)


def _or_zero(log_mean: Tensor, weights: ClassWeights) -> Tensor:
    """Return the log mean, or 0 for a batch that lacks a class: its log mean is -inf, and later values stay finite."""
    return log_mean if weights.both is None else torch.where(weights.both > 0, log_mean, torch.zeros_like(log_mean))


def _if_both(loss: Tensor, weights: ClassWeights, *states: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return the loss and the new states; for a batch that lacks a class, 0 and the old states."""
    if weights.both is None:
        return [loss, *(new for new, _ in states)]
    return [weights.both * loss, *(torch.where(weights.both > 0, new, old) for new, old in states)]
