"""Metrics of subgroups of the bags, such as site, sex or age, with their difference to the largest subgroup."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import check_length, refuse_other_order
from midam.evaluate.proportions import Estimate, auroc_estimate, called_right, difference
from midam.lazy_imports import pandas as pd

_MOST_LEVELS = 12
_MOST_NUMBERS = 6  # up to so many different numbers, each is a level
_PARTS = 4
MISSING, _OTHER = "(missing)", "(other: "


Estimator = Callable[..., Estimate | None]


class Subgroup(NamedTuple):
    """Bags of one level of a column.

    Attributes
    ----------
    level : str
        The level.
    bags : int
        Number of bags.
    figures : dict of str to Estimate or None
        Metrics by name; None if these bags lack a metric.
    differences : dict of str to Estimate
        Figures minus those of the reference; empty for the reference itself.

    Examples
    --------
    >>> labels, scores, sites = [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 2, 1], ["a", "a", "a", "a", "b", "b"]
    >>> for part in find_subgroups(labels, scores, sites, figures=binary_figures()):
    ...     print(part.level, part.bags, part.figures["auroc"].value, list(part.differences))
    a 4 1.0 []
    b 2 0.0 ['auroc']
    """

    level: str
    bags: int
    figures: dict[str, Estimate | None]
    differences: dict[str, Estimate]


def find_subgroups(
    values: ArrayLike,
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    figures: Mapping[str, Estimator],
    groups: ArrayLike | None = None,
    folds: ArrayLike | None = None,
) -> list[Subgroup]:
    """Compute the metrics of the bags of each level, in the order of the level names; numbers ascend.

    They are compared with those of the largest level that has the first metric.

    Parameters
    ----------
    values, scores : array_like, shape [N] or [N, L], and [N] or [N, C]
        Labels and scores, in the form that the metrics take.
    levels : array_like of str, shape [N]
        Level of each bag, see `make_levels`.
    figures : mapping of str to callable
        Functions by name, each called with values, scores, ``groups=``, and ``folds=`` and ``fold_count=`` if given:
        `binary_figures`, or `midam.targets.Target.estimate`, which takes no folds.
    groups : array_like of str, shape [N], optional
        Patients, for the intervals.
    folds : array_like, shape [N], optional
        Folds of cross-validated scores, for the AUROC, as in `midam.evaluate.intervals.auroc_interval`.

    Raises
    ------
    BagDataError
        If the arrays do not match, or hold invalid values.

    Examples
    --------
    >>> labels, scores, levels = [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 2, 1], ["a", "a", "a", "a", "b", "b"]
    >>> parts = find_subgroups(labels, scores, levels, figures=binary_figures())
    >>> [(part.level, part.bags, part.figures["auroc"].value) for part in parts]
    [('a', 4, 1.0), ('b', 2, 0.0)]
    >>> parts[1].differences["auroc"].value
    -1.0
    """
    refuse_other_order(values, scores, levels, groups, folds)
    y, s, names = np.asarray(values), np.asarray(scores), np.asarray(levels, dtype=np.str_)
    check_length(names, len(y), "level", "memory")
    units = None if groups is None else np.asarray(groups, dtype=np.str_)
    numbers = None if folds is None else np.asarray(folds)
    parts = []
    for level in sorted_levels(np.unique(names).tolist()):
        inside = names == level
        within: dict[str, Any] = {"groups": None if units is None else units[inside]}
        if numbers is not None:
            within |= {"folds": numbers[inside], "fold_count": len(np.unique(numbers))}
        measured = {name: figure(y[inside], s[inside], **within) for name, figure in figures.items()}
        parts.append(Subgroup(level, int(inside.sum()), measured, {}))
    first = next(iter(figures))
    complete = [part for part in parts if part.figures[first] is not None]
    base = max(complete, key=lambda part: part.bags, default=None)
    return [part if base is None or part is base else _compared(part, base) for part in parts]


def binary_figures(threshold: float | None = None) -> dict[str, Estimator]:
    """Return metrics of two classes for `find_subgroups`: auroc, and sensitivity and specificity at a threshold."""

    def share(label: int, labels: Any, scores: Any, *, groups: Any = None, **_: Any) -> Estimate | None:
        return called_right(labels, scores, threshold=threshold, label=label, groups=groups)

    return {"auroc": auroc_estimate, "sensitivity": partial(share, 1), "specificity": partial(share, 0)}


def make_levels(values: Sequence[object]) -> NDArray[np.str_]:
    """Return the levels [N] of a column: each text is a level; many different numbers form four levels of equal size.

    With more than 12 texts, the rarest are merged into one level, whose name states their number. Missing values are a
    level too.

    Examples
    --------
    >>> make_levels([30, 41, 55, 62, 70, 77, 80, None]).tolist()
    ['30 to 41', '30 to 41', '55 to 62', '55 to 62', '70', '77 to 80', '77 to 80', '(missing)']
    >>> make_levels(["f", "m", "f", ""]).tolist()
    ['f', 'm', 'f', '(missing)']
    """
    column = pd.Series(list(values), dtype=object).map(lambda value: None if str(value).strip() == "" else value)
    known = column.notna().to_numpy()
    numbers = pd.to_numeric(column[known].astype(str), errors="coerce").to_numpy(dtype=np.float64)
    levels = np.full(len(column), MISSING, dtype=object)
    if known.any() and np.isfinite(numbers).all() and len(np.unique(numbers)) > _MOST_NUMBERS:
        edges = np.unique(np.quantile(numbers, np.linspace(0, 1, _PARTS + 1)[1:-1]))
        part = np.searchsorted(edges, numbers, side="left")
        brief = _brief(np.unique(numbers))
        ends = [(numbers[part == number].min(), numbers[part == number].max()) for number in np.unique(part)]
        names = [" to ".join(dict.fromkeys(map(brief, pair))) for pair in ends]
        levels[known] = np.array(names, dtype=object)[np.unique(part, return_inverse=True)[1]]
    else:
        exact = _brief([x for x in column[known] if isinstance(x, float)])
        texts = column[known].map(lambda x: exact(x) if isinstance(x, float) else str(x)).to_numpy()
        counts = pd.Series(texts).value_counts()
        rare = counts.index[_MOST_LEVELS - 1 :] if len(counts) > _MOST_LEVELS else ()
        levels[known] = [f"{_OTHER}{len(rare)} levels)" if text in rare else text for text in texts]
    return levels.astype(np.str_)


def _compared(part: Subgroup, reference: Subgroup) -> Subgroup:
    pairs = ((name, figure, reference.figures[name]) for name, figure in part.figures.items())
    return part._replace(differences={name: difference(a, b) for name, a, b in pairs if a and b})


def sorted_levels(levels: list[str]) -> list[str]:
    """Sort levels by the number that they begin with, then by name; missing values and merged levels come last."""

    def key(level: str) -> tuple[bool, float, str]:
        first = pd.to_numeric(level.split(" to ", maxsplit=1)[0], errors="coerce")
        return level == MISSING or level.startswith(_OTHER), float("inf") if np.isnan(first) else float(first), level

    return sorted(levels, key=key)


def _brief(numbers: Iterable[float]) -> Callable[[float], str]:
    """Return a format of numbers with six digits, or with twelve where six would give two of these one text."""
    different = set(numbers)
    return "{:g}".format if len({f"{x:g}" for x in different}) == len(different) else "{:.12g}".format
