"""The picture of a bag: maps of its patches, some of its instances as tiles, and a chart of what instances add."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of, source_paths
from midam.explain.explanation import LARGE, Explanation
from midam.explain.layers import DIVERGING, LOWERS, RAISES, added_range
from midam.explain.maps import WIDTH, PatchMap, draw_map, foremost, height_of
from midam.explain.patches import is_picture
from midam.explain.tiles import ACROSS, Pictures, draw_tiles, draw_top, tiled
from midam.report.figures import BLUE, GRAY, ORANGE, new_figure, save_figure
from midam.report.words import shortened

_HEADING, _CHART, _TILE, _CAPTION, _TOP = 0.55, 3.4, 1.2, 0.9, 7.0  # inches
_MANY, _POINTS, _MOST = 60, 2000, 16  # instances with a bar each, points of a curve, named instances
_EDGE: dict[str, Any] = {"edgecolor": GRAY, "linewidth": 0.6}  # bars of small contributions are nearly white


def draw_explanation(
    path: Path,
    explanation: Explanation,
    bags: Bags,
    *,
    drawn: Sequence[PatchMap] = (),
    pictures: Pictures | None = None,
    top: int = 8,
    heading: str = "",
) -> str:
    """Plot a bag to a PNG file, with `top` instances from each end of the ranking; returns the kind of the picture.

    `drawn` are the maps of its patches from `map_of`; at most six are shown, of the slides with the highest ranks.
    `pictures` are those of its instances, if they are vectors.

    The kinds are "overlay": patches on their image; "map": patches without an image; "strip": slices of a volume;
    "sheet": instances that are pictures; "bars": other instances.
    """
    shown: dict[str, Any] = {"explanation": explanation, "top": top}
    given = is_picture(bags.instance_shape)
    pictures = Pictures(bags, explanation.index) if given else pictures
    lined = explanation.coords is not None and explanation.coords.shape[1] == 1 and len(explanation) > 1
    sliced = pictures is not None and not drawn and lined  # slices with one coordinate
    several = len(source_paths(bags, explanation.index)) > 1
    blocks: list[tuple[float, Callable[[SubFigure], None]]] = [
        (height_of(view), partial(draw_map, view=view, top=top, named=several)) for view in foremost(drawn)
    ]
    if pictures is not None and not (explanation.parts and len(explanation) <= LARGE):
        across = ACROSS[sliced]
        rows = math.ceil(len(tiled(explanation, top, sliced=sliced)) / across)
        height = (_CAPTION + 8 / across * _TILE) * rows + 0.4
        blocks.append((height, partial(draw_tiles, pictures=pictures, sliced=sliced, **shown)))
    if pictures is not None and explanation.parts:
        blocks.append((_TOP, partial(draw_top, explanation=explanation, pictures=pictures, sliced=sliced)))
    if (sliced or not given) and len(explanation) > 1:
        begins = [file.rows.start for file in files_of(bags, explanation.index)]
        blocks.append((_CHART, partial(draw_chart, begins=begins if sliced else None, **shown)))
    heights = [_HEADING, *(height for height, _ in blocks)]
    figure = new_figure((WIDTH, sum(heights)))
    parts: list[SubFigure] = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).flat)
    heading, line = heading or f"score {explanation.score:.3f}", f"Bag {shortened(explanation.bag, 70)}"
    parts[0].text(0.012, 0.95, line, fontsize=13, fontweight="bold", va="top")
    size = min(9.5, 1330 / max(len(heading), 1))  # the width holds about 1330 points of text
    parts[0].text(0.012, 0.3, heading, fontsize=size, color="#404040", va="top")
    for (_, draw), part in zip(blocks, parts[1:], strict=True):
        draw(part)
    save_figure(figure, path)
    if drawn:
        return "map" if all(view.backdrop is None for view in drawn) else "overlay"
    return "strip" if sliced else "sheet" if pictures is not None else "bars"


def draw_chart(part: SubFigure, explanation: Explanation, *, top: int, begins: Sequence[int] | None = None) -> None:
    """Plot what all instances add, by rank, and next to it the top instances with weights and scores.

    The instances of scans that begin at `begins` are plotted in the order of their slices instead. The colors are those
    of the map of contributions.
    """
    every, best = part.subplots(1, 2, width_ratios=[1.15, 1])
    count, scale = min(top, _MOST, len(explanation)), added_range(explanation.contribution)
    order = explanation.order if begins is None else np.arange(len(explanation))
    added, x = explanation.contribution[order], np.arange(1.0, len(explanation) + 1)
    if begins is not None:
        x = np.arange(len(explanation)) if len(begins) > 1 else explanation.positions
        marked = explanation.order[:count]
        every.plot(x[marked], np.maximum(explanation.contribution[marked], 0), "v", color="black", markersize=4)
        for begin in begins[1:]:
            every.axvline(begin - 0.5, color=GRAY, linewidth=1.2)
    # Steps need at most one for each pixel of the picture; ranks of many instances are on a logarithmic scale.
    many = begins is None and len(explanation) > _MANY
    shown = np.unique(np.geomspace(1, len(explanation), _POINTS).astype(np.int64)) - 1 if many else np.argsort(x)
    gap = np.diff(np.unique(x)).min() if len(explanation) > 1 else 1
    edges = np.append(x[shown] - gap / 2, x[shown[-1]] + gap / 2)
    for color, side in ((ORANGE, np.maximum), (BLUE, np.minimum)):
        every.stairs(side(added[shown], 0), edges, fill=True, color=color, alpha=0.75)
    every.set_xlim(edges[0], edges[-1])
    if many:
        every.set_xscale("log")
        every.xaxis.set_major_formatter(FuncFormatter(lambda rank, _: f"{rank:,.0f}"))
        every.xaxis.set_minor_formatter(NullFormatter())
    else:
        every.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    every.axhline(0, color=GRAY, linewidth=1)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2, "frameon": False}
    every.legend([Patch(color=ORANGE), Patch(color=BLUE)], [RAISES, LOWERS], fontsize=8, **place)  # never over bars
    every.set_title("What each instance adds to the score of the bag", loc="left", fontsize=10)
    kind = "Image" if {"slice_file", "position_mm"} & {*explanation.columns} == {"slice_file"} else "Slice"
    name = "Rank" if begins is None else f"{kind}; triangles: the {count} top ones"
    every.set_xlabel(f"{name} (all {len(explanation)} instances)", fontsize=9)
    instances = explanation.order[:count].tolist()
    colors = DIVERGING(np.asarray(scale(explanation.contribution[instances])))
    best.barh(np.arange(count), explanation.contribution[instances], color=colors, height=0.72, **_EDGE)
    best.set_yticks(np.arange(count), [shortened(explanation.name(i), 34) for i in instances])
    best.invert_yaxis()
    best.axvline(0, color=GRAY, linewidth=1)
    best.set_xlabel("Added to the score", fontsize=9)
    best.xaxis.set_major_locator(MaxNLocator(4))
    columns = {"weight": [explanation.multiple(i) for i in instances]} if explanation.weighted else {}
    columns["score"] = [f"{explanation.instances.score[i]:.3f}" for i in instances]
    for x_text, (head, texts) in zip((1.12, 1.31), columns.items()):
        style = {"fontsize": 8.5, "va": "center", "ha": "center"}
        best.text(x_text, 1.03, head, transform=best.transAxes, color=GRAY, **style)
        for row, text in enumerate(texts):
            best.text(x_text, row, text, transform=best.get_yaxis_transform(), **style)
    best.set_title(f"Top {count}", loc="left", fontsize=10)
