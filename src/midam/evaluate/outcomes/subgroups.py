"""How a model ranks parts of the bags by any label: by site, by sex, each with its difference to the largest part."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from midam.errors import BagDataError
from midam.evaluate.proportions import Estimate, difference
from midam.evaluate.subgroups import sorted_levels

Estimator = Callable[..., Estimate | None]


class OutcomeSubgroup(NamedTuple):
    """Bags of one level of a column.

    Attributes
    ----------
    level : str
        The level.
    bags : int
        Their number.
    found : Estimate or None
        The figure of merit of the target; None where it does not exist.
    gap : Estimate or None
        Its difference to that of the reference; None of the reference itself.
    """

    level: str
    bags: int
    found: Estimate | None
    gap: Estimate | None = None


def outcome_subgroups(
    estimate: Estimator,
    values: ArrayLike,
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    reference: str | None = None,
) -> list[OutcomeSubgroup]:
    """Figure of the bags of each level, in the order of the levels' names; numbers ascend.

    Parameters
    ----------
    estimate : callable
        `midam.targets.Target.estimate`.
    values, scores : array_like, shape [N, L] and [N] or [N, C]
        Its labels and scores.
    levels : array_like of str, shape [N]
        Level of each bag, see `midam.evaluate.subgroups.make_levels`.
    groups : array_like of str, shape [N], optional
        Patients, for the intervals.
    reference : str, optional
        Level that the others are compared with; default: the largest that has the figure.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.

    Examples
    --------
    >>> from midam.targets import target_named
    >>> estimate = target_named({"target": "ordinal", "names": ["0", "1", "2"]}).estimate
    >>> found = outcome_subgroups(estimate, [[0], [1], [2], [0], [2]], [0, 1, 2, 1, 0], ["a", "a", "a", "b", "b"])
    >>> [(part.level, part.found.value) for part in found], found[1].gap.value
    ([('a', 1.0), ('b', 0.0)], -1.0)
    """
    y, s, names = np.asarray(values, dtype=np.float64), np.asarray(scores), np.asarray(levels, dtype=np.str_)
    if names.shape != (len(y),):
        raise BagDataError(f"Expected one level a bag, got {names.shape} for {len(y)} bags; pass an array of length N.")
    units, found = None if groups is None else np.asarray(groups, dtype=np.str_), []
    for level in sorted_levels(np.unique(names).tolist()):
        own = names == level
        figure = estimate(y[own], s[own], groups=None if units is None else units[own])
        found.append(OutcomeSubgroup(level, int(own.sum()), figure))
    complete = [part for part in found if part.found is not None and reference in (None, part.level)]
    if not complete:
        return found
    base = max(complete, key=lambda part: part.bags)
    return [_compared(part, base) for part in found]


def _compared(part: OutcomeSubgroup, base: OutcomeSubgroup) -> OutcomeSubgroup:
    if part is base or part.found is None or base.found is None:
        return part
    return part._replace(gap=difference(part.found, base.found))
