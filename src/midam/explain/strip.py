"""Slices of a volume in their order, and the weight of every slice under them."""

from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.explain.bars import mark_uniform
from midam.explain.scores import Explanation
from midam.explain.sheet import pictures_of
from midam.report.figures import BLUE, ORANGE

SLICES = 12


def strip_instances(found: Explanation, top: int) -> NDArray[np.int64]:
    """Slices that are shown, by place: up to half of the 12 the top ones, the rest spread over the volume."""
    by_place = _by_place(found)
    chosen = {int(i) for i in found.order[: min(top, SLICES // 2)]}
    for position in np.linspace(0, len(found) - 1, min(len(found), SLICES)).round().astype(int):
        if len(chosen) < SLICES:
            chosen.add(int(by_place[position]))
    return by_place[np.isin(by_place, list(chosen))]


def draw_strip(part: SubFigure, found: Explanation, bags: Bags, *, top: int) -> None:
    """Draw the strip and the weights (or scores) of all slices; the top ones are marked in both."""
    instances, ranks = strip_instances(found, top), {int(i): r for r, i in enumerate(found.order[:top], start=1)}
    places = _places(found)
    above, below = part.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.25]).flat
    panels: NDArray[Any] = above.subplots(1, SLICES, squeeze=False)[0]
    for axes in panels:
        axes.set_axis_off()
    for axes, i, picture in zip(panels, instances, pictures_of(bags, found.index, instances)):
        axes.imshow(picture)
        marked = int(i) in ranks
        name = f"slice {places[i]:g}" + (f"\nrank {ranks[int(i)]}" if marked else "\n")
        axes.set_title(name, fontsize=8, color=ORANGE if marked else "#303030", pad=3)
        if marked:
            frame = Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, edgecolor=ORANGE, linewidth=3)
            axes.add_patch(frame)
    _draw_weights(below, found, places, list(ranks))


def _draw_weights(part: SubFigure, found: Explanation, places: NDArray[np.float64], top: list[int]) -> None:
    by_weight = found.ranked_by == "weight"
    values = found.relative_weight if by_weight else found.instances.score
    axes = part.subplots()
    colours = np.where(np.isin(np.arange(len(found)), top), ORANGE, BLUE)
    axes.bar(places, values, width=0.85 * _gap(places), color=colours)
    if by_weight:
        mark_uniform(axes)
    axes.set_ylabel("Weight \N{MULTIPLICATION SIGN} n" if by_weight else "Score", fontsize=9)
    axes.set_xlabel(f"Slice (all {len(found)}; orange: the {len(top)} top ones)", fontsize=9)
    axes.margins(x=0.01)


def _places(found: Explanation) -> NDArray[np.float64]:
    coords = np.arange(len(found))[:, None] if found.coords is None else found.coords
    return np.asarray(coords[:, 0], dtype=np.float64)


def _by_place(found: Explanation) -> NDArray[np.int64]:
    return np.argsort(_places(found), kind="stable")


def _gap(places: NDArray[np.float64]) -> float:
    gaps = np.diff(np.unique(places))
    return float(gaps.min()) if len(gaps) else 1.0
