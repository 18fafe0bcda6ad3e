"""Oracles of the objectives over columns, comparable pairs and survival: value and gradient as plain float64 loops.

Scores h and labels y are rows of numbers, one a column where there are several; an unknown label is NaN. A gradient has
a row a bag and a number a column. Nothing of midam is used.
"""

import math
from collections.abc import Callable, Sequence

Row = Sequence[float]
Rows = Sequence[Row]
Above = Callable[[Row, Row], bool]


def column(rows: Rows, c: int) -> list[float]:
    return [row[c] for row in rows]


def minmax(  # noqa: PLR0917
    h: Rows, y: Rows, a: Row, b: Row, alpha: Row, margin: float, doubled: bool
) -> tuple[float, list[list[float]], list[list[float]], list[float | None]]:
    """Value, gradient in h, gradients (of a, of b) and the gap of each column; None for one that lacks a class."""
    factor = 2 if doubled else 1
    width = len(h[0])
    value, by_h = 0.0, [[0.0] * width for _ in h]
    centers: list[list[float]] = [[0.0] * width, [0.0] * width]
    gaps: list[float | None] = []
    for c in range(width):
        own = column(y, c)
        pos, neg = ([k for k, label in enumerate(own) if label == wanted] for wanted in (1, 0))
        if not pos or not neg:
            gaps.append(None)
            continue
        gap = margin + sum(h[k][c] for k in neg) / len(neg) - sum(h[k][c] for k in pos) / len(pos)
        gaps.append(gap)
        value += factor * (alpha[c] * gap - alpha[c] ** 2 / 2)
        for bags, center, sign, which in ((pos, a[c], -1, 0), (neg, b[c], 1, 1)):
            for k in bags:
                off = h[k][c] - center
                value += off**2 / len(bags)
                by_h[k][c] = (2 * off + sign * factor * alpha[c]) / len(bags)
                centers[which][c] -= 2 * off / len(bags)
    return value, by_h, centers, gaps


def is_positive_over_negative(one: float, other: float) -> bool:
    return one == 1 and other == 0


def is_earlier(one: Row, other: Row) -> bool:
    (time, event), (other_time, other_event) = one, other
    return event == 1 and (time < other_time or (time == other_time and other_event == 0))


def pairwise(h: Rows, above: Sequence[Sequence[Sequence[bool]]], margin: float) -> tuple[float, list[list[float]]]:
    """Value and gradient of the squared hinge; `above[c][i][j]` says whether bag i belongs above bag j in column c."""
    width = len(h[0])
    value, by_h = 0.0, [[0.0] * width for _ in h]
    for c in range(width):
        pairs = [(i, j) for i in range(len(h)) for j in range(len(h)) if above[c][i][j]]
        for i, j in pairs:
            miss = max(0.0, margin - (h[i][c] - h[j][c]))
            value += miss**2 / len(pairs)
            by_h[i][c] -= 2 * miss / len(pairs)
            by_h[j][c] += 2 * miss / len(pairs)
    return value, by_h


def bce(logits: Rows, y: Rows) -> float:
    total = 0.0
    for c in range(len(y[0])):
        known = [(z, label) for z, label in zip(column(logits, c), column(y, c), strict=True) if not math.isnan(label)]
        losses = [math.log1p(math.exp(-z if label == 1 else z)) for z, label in known]
        total += sum(losses) / len(losses) if losses else 0.0
    return total


def cross_entropy(logits: Rows, codes: Sequence[int]) -> float:
    total = 0.0
    for row, code in zip(logits, codes, strict=True):
        total -= row[code] - math.log(sum(math.exp(z) for z in row))
    return total / len(codes)


def cox(risk: Row, time: Row, event: Row) -> tuple[float, list[float]]:
    """Value and gradient of the negative log partial likelihood a bag with an event, ties as of Breslow."""
    had = [i for i in range(len(risk)) if event[i] == 1]
    value, gradient = 0.0, [0.0] * len(risk)
    for i in had:
        at_risk = [j for j in range(len(risk)) if time[j] >= time[i]]
        total = sum(math.exp(risk[j]) for j in at_risk)
        value += (math.log(total) - risk[i]) / len(had)
        gradient[i] -= 1 / len(had)
        for j in at_risk:
            gradient[j] += math.exp(risk[j]) / total / len(had)
    return value, gradient
