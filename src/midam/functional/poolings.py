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

s is the logistic function; l [K], r [K, V] and n [K] are the statistic of K bags. Scores lie in [0, 1]; each pooling
that has one also offers the logit of its score, without the detour over the score where that would lose digits. Of C
score columns, l, or of a mean r and V = C, are [K, C].
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

_LOG_HALF = -math.log(2.0)
_SHRINK = 1e-6
# Half the distance of float32 numbers below 1: scores that are rounded to 1 are at most this far from it.
SCORE_RESOLUTION = 2.0**-24


def smoothed_max(l: Tensor, *, tau: Tensor | float) -> Tensor:  # noqa: E741
    """Smoothed maximum ``tau l`` (eq. softpool), in [max phi - tau log n, max phi].

    The temperature tau > 0 is in units of the instance score; valid down to 1e-3 for scores in [0, 1].
    """
    return tau * l


def generalized_mean_log(l: Tensor, *, p: Tensor | float) -> Tensor:  # noqa: E741
    """Logarithm ``l / p`` of the generalized mean ``(1/n sum phi^p)^(1/p)``, from ``z = p log phi``."""
    return l / p


def noisy_or_log_miss(r: Tensor, n: Tensor) -> Tensor:
    """Logarithm ``n r`` of the probability that no instance fires, from ``v = log(1 - phi)``; strictly negative."""
    # Where every phi underflows the miss is certain; -tiny keeps log(1 - exp(.)) and its gradient finite.
    return (n.unsqueeze(-1) * r).squeeze(-1).clamp(max=-1e-30)


def noisy_and(r: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
    """Noisy-and of the mean instance score (Kraus et al. 2016): a soft threshold at the learnable fraction b in (0, 1).

    Of slope a > 0; 0 where the mean r is 0, and 1 where it is 1.
    """
    low = torch.sigmoid(-a * b)
    return (torch.sigmoid(a * (r.squeeze(-1) - b)) - low) / (torch.sigmoid(a * (1 - b)) - low)


def log1mexp(x: Tensor) -> Tensor:
    """``log(1 - exp(x))`` for x < 0, to full precision on both sides of log 1/2 (value and gradient).

    Examples
    --------
    >>> round(log1mexp(torch.tensor(-1e-6)).exp().item(), 12)
    1e-06
    """
    near = x > _LOG_HALF
    # Each branch is fed a harmless number where the other one holds, so that no NaN enters the gradient.
    small = torch.where(near, x, torch.full_like(x, _LOG_HALF))
    large = torch.where(near, torch.full_like(x, _LOG_HALF), x)
    return torch.where(near, torch.log(-torch.expm1(small)), torch.log1p(-torch.exp(large)))


def logit(score: Tensor) -> Tensor:
    """Logit of a score in [0, 1], bounded by the dtype's resolution."""
    return torch.logit(score, eps=torch.finfo(score.dtype).eps)


def bounded_logit(score: Tensor, *, eps: float = _SHRINK) -> Tensor:
    """Logit of a score in [0, 1], shrunk to ``eps + (1 - 2 eps) score`` first: in [-13.8, 13.8] for eps = 1e-6.

    That of exactly 0 and 1, which trees give, is finite, and scores keep their order down to differences of 1e-15: a
    cut would make those beyond it equal. For float64.

    Examples
    --------
    >>> [round(x, 4) for x in bounded_logit(torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)).tolist()]
    [-13.8155, -1.0986, 13.8155]
    """
    return torch.logit(eps + (1 - 2 * eps) * score)


def log_phi(score: Tensor) -> Tensor:
    """``log phi = logsigmoid(score)`` of a raw instance score: never the log of a probability."""
    return logsigmoid(score)


def log_miss(score: Tensor) -> Tensor:
    """``log(1 - phi) = logsigmoid(-score)`` of a raw instance score."""
    return logsigmoid(-score)
