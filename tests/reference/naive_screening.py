"""Oracles of the screening objectives: SOPA-s, SOTA-s, SOPA and SOAP as plain float64 loops. Nothing of midam is used.

Each is a class that remembers what its paper says and whose `step` takes one batch, scores h, labels and the numbers of
the bags, and returns the value and the gradient in h.
"""

import math
from collections.abc import Sequence

Row = Sequence[float]


def pair_loss(one: float, other: float, margin: float) -> tuple[float, float]:
    """Squared hinge of one being above the other, and its derivative in the first."""
    miss = max(0.0, margin - (one - other))
    return miss**2, -2 * miss


def split(labels: Sequence[int]) -> tuple[list[int], list[int]]:
    return [k for k, y in enumerate(labels) if y == 1], [k for k, y in enumerate(labels) if y == 0]


class Gradient:
    """Of a sum of weighted pair losses."""

    def __init__(self, h: Row, margin: float) -> None:
        self.h, self.margin = h, margin
        self.sum = [0.0] * len(h)

    def add(self, i: int, j: int, weight: float) -> None:
        slope = pair_loss(self.h[i], self.h[j], self.margin)[1]
        self.sum[i] += weight * slope
        self.sum[j] -= weight * slope


class SoftPartialAUC:
    """SOPA-s; with an `outer` temperature SOTA-s."""

    def __init__(self, margin: float, temperature: float, rate: float, outer: float | None = None) -> None:
        self.margin, self.temperature, self.rate, self.outer = margin, temperature, rate, outer
        self.u: dict[int, float] = {}
        self.v: float | None = None

    def step(self, h: Row, labels: Sequence[int], index: Sequence[int]) -> tuple[float, list[float]]:
        pos, neg = split(labels)
        exp = {(i, j): math.exp(pair_loss(h[i], h[j], self.margin)[0] / self.temperature) for i in pos for j in neg}
        for i in pos:
            now = sum(exp[i, j] for j in neg) / len(neg)
            old = self.u.get(index[i])
            self.u[index[i]] = now if old is None else (1 - self.rate) * old + self.rate * now
        u, found = {i: self.u[index[i]] for i in pos}, Gradient(h, self.margin)
        if self.outer is None:
            value = sum(self.temperature * math.log(u[i]) for i in pos) / len(pos)
            power, v = 0.0, 1.0
        else:
            power = self.temperature / self.outer
            now = sum(u[i] ** power for i in pos) / len(pos)
            self.v = now if self.v is None else (1 - self.rate) * self.v + self.rate * now
            value, v = self.outer * math.log(self.v), self.v
        for i in pos:
            for j in neg:
                found.add(i, j, exp[i, j] * u[i] ** (power - 1) / v / len(pos) / len(neg))
        return value, found.sum


class PartialAUC:
    """SOPA."""

    def __init__(self, margin: float, max_fpr: float, rate: float) -> None:
        self.margin, self.max_fpr, self.rate = margin, max_fpr, rate
        self.s: dict[int, float] = {}

    def step(self, h: Row, labels: Sequence[int], index: Sequence[int]) -> tuple[float, list[float]]:
        pos, neg = split(labels)
        value, found = 0.0, Gradient(h, self.margin)
        for i in pos:
            s = self.s.get(index[i], 0.0)
            losses = {j: pair_loss(h[i], h[j], self.margin)[0] for j in neg}
            over = [j for j in neg if losses[j] > s]
            value += (s + sum(losses[j] - s for j in over) / len(neg) / self.max_fpr) / len(pos)
            for j in over:
                found.add(i, j, 1 / self.max_fpr / len(neg) / len(pos))
            self.s[index[i]] = s - self.rate * (1 - len(over) / len(neg) / self.max_fpr)
        return value, found.sum


class AveragePrecision:
    """SOAP, of numbers u_i = (positives at or above i, all at or above i) as shares of `num_bags` bags."""

    def __init__(self, margin: float, rate: float, num_bags: int) -> None:
        self.margin, self.rate, self.num_bags = margin, rate, num_bags
        self.u: dict[int, tuple[float, float]] = {}  # mean loss over positive and over negative bags

    def step(self, h: Row, labels: Sequence[int], index: Sequence[int]) -> tuple[float, list[float]]:
        pos, neg = split(labels)
        for i in pos:
            now = [sum(pair_loss(h[i], h[j], self.margin)[0] for j in other) / len(other) for other in (pos, neg)]
            old = self.u.get(index[i], now)
            mixed = [(1 - self.rate) * a + self.rate * b for a, b in zip(old, now, strict=True)]
            self.u[index[i]] = mixed[0], mixed[1]
        share = len(self.u) / self.num_bags
        value, found = 0.0, Gradient(h, self.margin)
        for i in pos:
            first = share * self.u[index[i]][0]
            both = first + (1 - share) * self.u[index[i]][1]
            value += (1 - first / both) / len(pos)
            # f = 1 - u1 / u2, of the gradients -1 / u2 and u1 / u2^2.
            for j in pos:
                found.add(i, j, (first / both**2 - 1 / both) * share / len(pos) / len(pos))
            for j in neg:
                found.add(i, j, first / both**2 * (1 - share) / len(neg) / len(pos))
        return value, found.sum
