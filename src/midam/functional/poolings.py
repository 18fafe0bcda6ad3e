r"""The outer function f2 of every pooling: from the bag's statistic (l, r; n) to its score.

| pooling                 | z_j            | v_j                | f2(l, r; n)                              |
|-------------------------|----------------|--------------------|------------------------------------------|
| mean                    | 0              | phi_j              | r                                        |
| max                     | phi_j          | -                  | max_j phi_j                              |
| smoothed-max (softpool) | phi_j / tau    | -                  | tau l                                    |
| attention (attpool)     | g(x_j)         | w_c . e_j          | sigmoid(r)                               |
| embedding, gated att.   | g(x_j)         | e_j                | sigmoid(head(r))                         |
| generalized mean        | p log phi_j    | -                  | exp(l / p)                               |
| noisy-or                | 0              | log(1 - phi_j)     | 1 - exp(n r)                             |
| noisy-and               | 0              | phi_j              | [s(a(r-b)) - s(-ab)] / [s(a(1-b)) - s(-ab)] |

s is the logistic function; l [K], r [K, V] and n [K] are the statistic of K bags. Scores lie in [0, 1]. If a score has
a logit, its pooling offers the logit too, computed without the score where the score would lose digits. With C score
columns, l is [K, C]; for a mean, r is [K, C] (V = C). The functions here are those that need care; log phi and
log(1 - phi) are `logsigmoid` of the raw score and of its negative, never the log of a probability.
"""

import math

import torch
from torch import Tensor

_LOG_HALF = -math.log(2.0)
_SHRINK = 1e-6
# Half the spacing of float32 numbers just below 1: a score that is rounded to 1 is at most this far from 1.
SCORE_RESOLUTION = 2.0**-24


def noisy_or_log_miss(r: Tensor, n: Tensor) -> Tensor:
    """Return the log probability ``n r`` that no instance fires, from ``v = log(1 - phi)``; strictly negative."""
    # If every phi underflows, a miss is certain; -tiny keeps log(1 - exp(.)) and its gradient finite.
    return (n.unsqueeze(-1) * r).squeeze(-1).clamp(max=-1e-30)


def noisy_and(r: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
    """Return the noisy-and of the mean instance score r (Kraus et al. 2016): a soft threshold at the learned b.

    The fraction b is in (0, 1), the slope a > 0. The score is 0 for r = 0 and 1 for r = 1.
    """
    low = torch.sigmoid(-a * b)
    return (torch.sigmoid(a * (r.squeeze(-1) - b)) - low) / (torch.sigmoid(a * (1 - b)) - low)


def log1mexp(x: Tensor) -> Tensor:
    """Return ``log(1 - exp(x))`` for x < 0, to full precision on both sides of log 1/2 (value and gradient).

    Examples
    --------
    >>> round(log1mexp(torch.tensor(-1e-6)).exp().item(), 12)
    1e-06
    """
    near = x > _LOG_HALF
    # Each branch gets a harmless number where the other branch applies, so that no NaN enters the gradient.
    small = torch.where(near, x, torch.full_like(x, _LOG_HALF))
    large = torch.where(near, torch.full_like(x, _LOG_HALF), x)
    return torch.where(near, torch.log(-torch.expm1(small)), torch.log1p(-torch.exp(large)))


def logit(score: Tensor) -> Tensor:
    """Return the logit of a score in [0, 1], bounded by the dtype's resolution."""
    return torch.logit(score, eps=torch.finfo(score.dtype).eps)


def bounded_logit(score: Tensor, *, eps: float = _SHRINK) -> Tensor:
    """Return the logit of ``eps + (1 - 2 eps) score`` for a score in [0, 1]: in [-13.8, 13.8] for eps = 1e-6.

    The shrinkage makes the logits of exactly 0 and 1, which trees return, finite. It keeps the order of scores down to
    differences of 1e-15; clipping would make all scores beyond the bound equal. For float64.

    Examples
    --------
    >>> [round(x, 4) for x in bounded_logit(torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)).tolist()]
    [-13.8155, -1.0986, 13.8155]
    """
    return torch.logit(eps + (1 - 2 * eps) * score)
