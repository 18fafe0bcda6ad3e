"""Mean, minimum, maximum and variance of a bag, as statistics that merge like those of `midam.functional.logmean`.

A statistic is a triple (n, l, r) here too, and r is the summary of the bag. The value v of an instance is the summary
of a bag with this instance alone. However a bag is split, its parts merge to the same summary. All instances have the
same weight, so z is 0. l is 0, or -inf for an empty bag: the identity is ``(0, -inf, 0)``, as for the log-weighted
mean.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from midam.functional.logmean import BagStatistic

KINDS = ("mean", "min", "max", "var")


def reduce_columns(z: Tensor, v: Tensor, segment: Tensor, *, num_bags: int, kinds: Sequence[str]) -> BagStatistic:
    """Return the summary of bags given as one flat array of instances z [M] (zeros) and v [M, V].

    Parameters
    ----------
    z, v : Tensor [M], Tensor [M, V]
        V / len(kinds) columns of each kind, kind after kind: the summary of each instance alone.
    segment : Tensor [M], int64
        Bag of each instance, in [0, num_bags).
    num_bags : int
        K.
    kinds : sequence of str
        Subset of `KINDS`; "var", the population variance, needs "mean".

    Examples
    --------
    >>> x = torch.tensor([[1.0], [3.0]])
    >>> v = torch.cat([x, x, x, 0 * x], dim=1)
    >>> stat = reduce_columns(torch.zeros(2), v, torch.tensor([0, 0]), num_bags=1, kinds=KINDS)
    >>> stat.r.tolist()
    [[2.0, 1.0, 3.0, 1.0]]
    """
    n, level = _counts(z, segment, num_bags=num_bags)
    columns, present = _by_kind(v, kinds), (n > 0).unsqueeze(1)
    mean = torch.zeros(0)
    parts = []
    for kind, x in columns.items():
        index = segment.unsqueeze(1).expand_as(x)
        if kind in ("min", "max"):
            start = x.new_full((num_bags, x.shape[1]), math.inf if kind == "min" else -math.inf)
            reduced = start.scatter_reduce(0, index, x, f"a{kind}")
        elif kind == "mean":
            reduced = mean = _mean(x, segment, n)
        else:
            reduced = _mean(x + (columns["mean"] - mean[segment]) ** 2, segment, n)
        parts.append(torch.where(present, reduced, torch.zeros_like(reduced)))
    return BagStatistic(n, level, torch.cat(parts, dim=1))


def merge_columns(first: BagStatistic, second: BagStatistic, *, kinds: Sequence[str]) -> BagStatistic:
    """Return the summary of the same `kinds` of the union of two disjoint parts of each bag; either may be empty."""
    n = first.n + second.n
    share = (second.n / n.clamp(min=1.0)).unsqueeze(1)
    a, b = _by_kind(first.r, kinds), _by_kind(second.r, kinds)
    gap = b["mean"] - a["mean"] if "mean" in kinds else torch.zeros(0)
    merged = {
        "mean": lambda: a["mean"] + share * gap,
        "min": lambda: torch.minimum(a["min"], b["min"]),
        "max": lambda: torch.maximum(a["max"], b["max"]),
        "var": lambda: a["var"] + share * (b["var"] - a["var"]) + share * (1 - share) * gap**2,
    }
    return _merged(first, second, torch.cat([merged[kind]() for kind in kinds], dim=1))


def _counts(z: Tensor, segment: Tensor, *, num_bags: int) -> tuple[Tensor, Tensor]:
    """Return the number of instances of each bag and its level l, [num_bags]."""
    n = z.new_zeros(num_bags).index_add(0, segment, torch.ones_like(z))
    return n, torch.where(n > 0, torch.zeros_like(n), torch.full_like(n, -math.inf))


def _mean(x: Tensor, segment: Tensor, n: Tensor) -> Tensor:
    """Return the mean of rows x [M, D] over each bag, [K, D]; 0 for an empty bag."""
    return x.new_zeros(len(n), x.shape[1]).index_add(0, segment, x) / n.clamp(min=1.0).unsqueeze(1)


def _by_kind(x: Tensor, kinds: Sequence[str]) -> dict[str, Tensor]:
    """Return the columns of x [M, V] by kind."""
    return dict(zip(kinds, x.chunk(len(kinds), dim=1)))


def _merged(first: BagStatistic, second: BagStatistic, r: Tensor) -> BagStatistic:
    """Return the merged statistic with value r; where one part is empty, r is that of the other part."""
    r = torch.where((second.n == 0).unsqueeze(1), first.r, torch.where((first.n == 0).unsqueeze(1), second.r, r))
    return BagStatistic(first.n + second.n, torch.maximum(first.l, second.l), r)
