"""Oracles: each equation as a plain float64 loop, in the raw space of the paper. Nothing of midam is used."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Row = Sequence[float]
Statistic = tuple[int, float, list[float]]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def statistic(z: Row, v: Sequence[Row]) -> Statistic:
    """(n, l, r) of one bag; the weights are relative to the largest, so that math.exp cannot overflow."""
    top = max(z)
    weights = [math.exp(x - top) for x in z]
    total = math.fsum(weights)
    width = len(v[0]) if v else 0
    r = [math.fsum(w * row[d] for w, row in zip(weights, v, strict=True)) / total for d in range(width)]
    return len(z), top + math.log(total / len(z)), r


def raw(l: float, r: Row) -> list[float]:  # noqa: E741
    """The paper's s = (exp(l) r, exp(l)): f1 of eq. sm (last entry) and of eq. ab."""
    return [math.exp(l) * x for x in r] + [math.exp(l)]


def from_raw(s: Row) -> tuple[float, list[float]]:
    return math.log(s[-1]), [x / s[-1] for x in s[:-1]]


def merge(first: Statistic, second: Statistic) -> Statistic:
    """Statistic of the union, through the raw sums."""
    n = first[0] + second[0]
    s = [(first[0] * a + second[0] * b) / n for a, b in zip(raw(*first[1:]), raw(*second[1:]), strict=True)]
    return (n, *from_raw(s))


def moving_average(s_old: Row, s_new: Row, gamma0: float) -> list[float]:
    """Eq. ui, sm and ab: s = (1 - gamma0) s_old + gamma0 s_new, entry by entry."""
    return [(1 - gamma0) * old + gamma0 * new for old, new in zip(s_old, s_new, strict=True)]


def mean(phi: Row) -> float:
    return math.fsum(phi) / len(phi)


def smoothed_max(phi: Row, tau: float) -> float:
    """Eq. softpool."""
    top = max(phi)
    return top + tau * math.log(math.fsum(math.exp((x - top) / tau) for x in phi) / len(phi))


def attention(g: Row, delta: Row) -> float:
    """Eq. attpool before its sigmoid: the attention-weighted mean of delta."""
    top = max(g)
    weights = [math.exp(x - top) for x in g]
    return math.fsum(w * d for w, d in zip(weights, delta, strict=True)) / math.fsum(weights)


def attention_embedding(g: Row, e: Sequence[Row]) -> list[float]:
    """Eq. attpoolf."""
    return [attention(g, [row[d] for row in e]) for d in range(len(e[0]))]


def generalized_mean(phi: Row, p: float) -> float:
    return (math.fsum(x**p for x in phi) / len(phi)) ** (1 / p)


def noisy_or(phi: Row) -> float:
    return 1 - math.prod(1 - x for x in phi)


def noisy_and(phi: Row, slope: float, threshold: float) -> float:
    low = sigmoid(-slope * threshold)
    return (sigmoid(slope * (mean(phi) - threshold)) - low) / (sigmoid(slope * (1 - threshold)) - low)


def logit(h: float) -> float:
    return math.log(h) - math.log1p(-h)


def split(h: Row, labels: Sequence[int]) -> tuple[list[float], list[float]]:
    pairs = list(zip(h, labels, strict=True))
    return [x for x, y in pairs if y == 1], [x for x, y in pairs if y == 0]


def gap(h: Row, labels: Sequence[int], margin: float) -> float:
    positive, negative = split(h, labels)
    return margin + mean(negative) - mean(positive)


def minmax(  # noqa: PLR0917
    h: Row, labels: Sequence[int], a: float, b: float, alpha: float, margin: float, doubled: bool
) -> float:
    """Eq. MI_DAM; `doubled` takes F3 twice."""
    positive, negative = split(h, labels)
    f1 = mean([(x - a) ** 2 for x in positive])
    f2 = mean([(x - b) ** 2 for x in negative])
    f3 = alpha * gap(h, labels, margin) - alpha**2 / 2
    return f1 + f2 + (2 * f3 if doubled else f3)


def dual_step(alpha: float, gradient: float, rate: float, nonnegative: bool) -> float:
    """Algorithm 1: alpha <- Proj[alpha + eta' (G_3 - alpha)]."""
    step = alpha + rate * (gradient - alpha)
    return max(step, 0.0) if nonnegative else step


def pairwise(h: Row, labels: Sequence[int], margin: float) -> float:
    positive, negative = split(h, labels)
    return mean([max(0.0, margin - (p - q)) ** 2 for p in positive for q in negative])


def pairwise_square(h: Row, labels: Sequence[int], margin: float) -> float:
    """Expected pairwise square loss, without the hinge."""
    positive, negative = split(h, labels)
    return mean([(margin - (p - q)) ** 2 for p in positive for q in negative])


def bce(logits: Row, labels: Sequence[int]) -> float:
    return mean([-log_sigmoid(x) if y == 1 else -log_sigmoid(-x) for x, y in zip(logits, labels, strict=True)])


def clustered_covariance(labels: Sequence[int], a: Row, b: Row, groups: Sequence[object]) -> float:
    """Obuchowski (1997): covariance of the AUROCs of two scores on the same bags, the groups being independent."""

    def win(positive: float, negative: float) -> float:
        return 1.0 if positive > negative else 0.5 if positive == negative else 0.0

    pos, neg = ([i for i, label in enumerate(labels) if label == value] for value in (1, 0))
    units = sorted({str(group) for group in groups})
    sums: list[tuple[list[float], list[float]]] = []
    for s in (a, b):
        area = math.fsum(win(s[i], s[j]) for i in pos for j in neg) / (len(pos) * len(neg))
        v10 = {i: math.fsum(win(s[i], s[j]) for j in neg) / len(neg) - area for i in pos}
        v01 = {j: math.fsum(win(s[i], s[j]) for i in pos) / len(pos) - area for j in neg}
        of_units = [[math.fsum(v[i] for i in v if str(groups[i]) == unit) for unit in units] for v in (v10, v01)]
        sums.append((of_units[0], of_units[1]))

    def product(x: Row, y: Row, holding: int) -> float:
        return holding / (holding - 1) * math.fsum(p * q for p, q in zip(x, y, strict=True))

    (x_a, y_a), (x_b, y_b) = sums
    holds = [len({str(groups[i]) for i in part}) for part in (pos, neg)]
    s10, s01 = product(x_a, x_b, holds[0]) / len(pos), product(y_a, y_b, holds[1]) / len(neg)
    s11 = product(x_a, y_b, len(units)) + product(x_b, y_a, len(units))
    return s10 / len(pos) + s01 / len(neg) + s11 / (len(pos) * len(neg))


def f2_smoothed_max(s: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """tau log s and its gradient, by hand."""
    return tau * torch.log(s[0]), tau / s


def f2_attention(s: Tensor) -> tuple[Tensor, Tensor]:
    """sigmoid(s1 / s2) and its gradient, by hand."""
    h = torch.sigmoid(s[0] / s[1])
    return h, h * (1 - h) * torch.stack([1 / s[1], -s[0] / s[1] ** 2])


def midam_gradients(
    f1: Sequence[Callable[[Tensor], Tensor]],
    w: Tensor,
    s: Sequence[Tensor],
    f2: Callable[[Tensor], tuple[Tensor, Tensor]],
    labels: Sequence[int],
    *,
    a: float,
    b: float,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """G1 + G2 + G3 for the flat parameters w, and G for a and for b, as the paper writes them.

    Parameters
    ----------
    f1
        Per bag, its sample's f1 as a function of w; differentiated by an explicit Jacobian.
    s
        Per bag, the tracked estimate, a constant.
    """
    num_positive = sum(labels)
    num_negative = len(labels) - num_positive
    g_w, g_a, g_b = torch.zeros_like(w), torch.zeros((), dtype=w.dtype), torch.zeros((), dtype=w.dtype)
    for inner, state, label in zip(f1, s, labels, strict=True):
        h, outer = f2(state)
        jacobian = torch.autograd.functional.jacobian(inner, w)
        pull = jacobian.T @ outer
        if label == 1:
            g_w += pull * 2 * (h - a) / num_positive - alpha * pull / num_positive
            g_a += -2 * (h - a) / num_positive
        else:
            g_w += pull * 2 * (h - b) / num_negative + alpha * pull / num_negative
            g_b += -2 * (h - b) / num_negative
    return g_w, g_a, g_b
