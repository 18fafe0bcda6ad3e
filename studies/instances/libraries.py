"""The part of the page that compares midam's instance scores with those of other libraries, on the same bags."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.differences import holm
from studies.page import section, table
from studies.split_statistics import Estimate, mean_interval, paired_interval

Figures = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""Figures by set and name, [repeats, AUROC in a bag, average precision in a bag, hit rate, pooled AUROC]."""

# Methods of `studies.peers` with a number for each instance: attention, as their documentation returns it.
LIBRARIES = ("torchmil-abmil", "mikit-attention")
AUTO, ATTENTION, WEIGHT = "auto", "attention", "attention, its weight"
_AUROC, _PRECISION, _POOLED = 0, 1, 3
_LEVEL, _GOAL = 0.05, 2 / 3


class Cell(NamedTuple):
    """A library on a set: what midam's attention is ahead by in each figure, and p of the AUROC in a bag."""

    of_set: str
    library: str
    auroc: Estimate
    precision: Estimate
    pooled: Estimate
    p: float

    @property
    def decided(self) -> int:
        """Return 1 if midam is ahead, -1 if it is behind, and 0 if that is open."""
        return int(np.sign(self.auroc.mean)) if self.p < _LEVEL else 0


def cells(figures: Figures, libraries: Sequence[str]) -> list[Cell]:
    """Return all sets with all libraries, with p adjusted by Holm's rule for their number.

    Examples
    --------
    >>> ours, theirs = np.array([[0.9] * 4, [0.91] * 4]), np.array([[0.8] * 4, [0.8101] * 4])
    >>> (cell,) = cells({"digits": {"attention": ours, "other": theirs}}, ["other"])
    >>> print(cell.auroc, round(cell.p, 4), cell.decided)
    0.100 [0.099, 0.101] 0.0003 1
    """
    pairs = [(of_set, library) for of_set in figures for library in libraries]
    gaps = [
        [
            paired_interval(figures[of_set][ATTENTION][:, at], figures[of_set][library][:, at])
            for of_set, library in pairs
        ]
        for at in (_AUROC, _PRECISION, _POOLED)
    ]
    repeats = min(len(figures[of_set][library]) for of_set, library in pairs)
    p = holm([(gap.mean, gap.low, gap.high) for gap in gaps[0]], freedom=repeats - 1)
    return [Cell(*pair, *of_pair) for pair, of_pair in zip(pairs, zip(*gaps, p, strict=True), strict=True)]


def compared(figures: Figures) -> Iterator[str]:
    """Lines of the page: the outcome of the rule, the differences, and the figures; none without a library."""
    names = [name for name in (AUTO, ATTENTION, WEIGHT, *LIBRARIES) if all(name in own for own in figures.values())]
    libraries = [name for name in names if name in LIBRARIES]
    if not libraries:
        return
    known = cells(figures, libraries)
    ours = [name for name in names if name not in LIBRARIES]
    lines = [
        [
            *cell[:2],
            f"{_gap(figures, AUTO, cell.of_set, cell.library):+.3f}" if AUTO in ours else "-",
            f"{cell.auroc:+}",
            f"{cell.p:.3f}",
            f"{cell.precision:+}",
            f"{cell.pooled:+}",
        ]
        for cell in known
    ]
    means = [[of_set, *(f"{own[name][:, _AUROC].mean():.3f}" for name in names)] for of_set, own in figures.items()]
    repeats = len(figures[known[0].of_set][ATTENTION])
    yield from section(
        "Next to other libraries",
        "The same bags, and for each instance the number that a library's documentation names: the attention of "
        "torchmil's ABMIL before normalization, the attention weights of mikit-learn's network. mikit-learn's network "
        "with the mean has no number for an instance. midam's number is the contribution.",
        _decided(known),
        "The mean over the sets, with t intervals over sets:",
        [f"- {_over_sets(figures, name, libraries)}" for name in ours],
        f"Differences in AUROC in a bag, of `auto` (one repeat) and of attention with vrsp ({repeats} repeats, 95% t "
        "interval, p after Holm's correction); and those of attention in average precision in a bag and in the AUROC "
        "of all instances of all bags:",
        table(["set", "library", "auto", "attention", "p", "average precision", "pooled AUROC"], lines),
        "AUROC in a bag, the mean over these repeats:",
        table(["set", *names], means),
    )


def _gap(figures: Figures, name: str, of_set: str, library: str) -> float:
    """Return the mean difference to a library on a set, over the repeats that a method has."""
    ours, theirs = figures[of_set][name][:, _AUROC], figures[of_set][library][:, _AUROC]
    return float((ours - theirs[: len(ours)]).mean())


def _decided(known: Sequence[Cell]) -> str:
    """Return the outcome of the rule in words."""
    sets = list(dict.fromkeys(cell.of_set for cell in known))
    won = [name for name in sets if all(cell.decided > 0 for cell in known if cell.of_set == name)]
    lost = [f"{cell.library} on {cell.of_set}" for cell in known if cell.decided < 0]
    open_ = [f"{cell.library} on {cell.of_set}" for cell in known if not cell.decided]
    goal = "reached" if len(won) >= _GOAL * len(sets) else "not reached"
    return (
        f"**After Holm's correction over {len(known)} differences, the contributions of midam's attention are ahead of "
        f"each library on {len(won)} of {len(sets)} sets{_listed(won)}; the goal of two thirds is "
        f"{goal}.** Behind: {', '.join(lost) or 'nowhere'}. Open: {', '.join(open_) or 'nowhere'}."
    )


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _over_sets(figures: Figures, name: str, libraries: Sequence[str]) -> str:
    """Return the mean differences to the libraries over the sets."""
    number = "its weight" if name == WEIGHT else "its contribution"
    method = name if name == AUTO else ATTENTION
    gaps = {library: [_gap(figures, name, of_set, library) for of_set in figures] for library in libraries}
    texts = [f"{mean_interval(gap, bounds=(-1.0, 1.0)):+} to {library}" for library, gap in gaps.items()]
    return f"{method}, {number}: {', '.join(texts)}."
