"""The picture of a bag: maps of its patches, some of its instances as tiles, and a chart of what instances add."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import SubFigure

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import LARGE, Explanation
from midam.explain.maps import WIDTH, PatchMap, draw_map, height_of
from midam.explain.patches import is_picture
from midam.explain.tiles import ACROSS, MEANING, Pictures, draw_tiles, tiled
from midam.report.figures import BLUE, GRAY, ORANGE, new_figure, save_figure
from midam.report.words import shortened

_HEADING, _CHART, _TILE, _CAPTION, _PARTS = 0.4, 2.8, 1.2, 0.9, 7.0  # inches
_NAMED, _MAPS = 16, 6  # instances with names, and maps


def draw_explanation(
    path: Path,
    explanation: Explanation,
    bags: Bags,
    *,
    drawn: Sequence[PatchMap] = (),
    pictures: Pictures | None = None,
    top: int = 8,
) -> str:
    """Plot a bag to a PNG file, with `top` instances from each end of the ranking; returns the kind of the picture.

    `drawn` are the maps of its patches from `map_of`; six are shown, of the slides with the highest ranks. `pictures`
    are those of its instances, if they are vectors.

    The kinds are "overlay": patches on their image; "map": patches without an image; "strip": slices of a volume;
    "sheet": instances that are pictures; "bars": other instances.
    """
    given = is_picture(bags.instance_shape)
    pictures = Pictures(bags, explanation.index) if given else pictures
    lined = explanation.coords is not None and explanation.coords.shape[1] == 1 and len(explanation) > 1
    sliced = pictures is not None and not drawn and lined  # slices with one coordinate
    first = sorted(drawn, key=lambda view: int(view.patches.ranked(explanation.order)[0][0]))[:_MAPS]
    blocks: list[tuple[float, Callable[[SubFigure], None]]] = [
        (height_of(view), partial(draw_map, view=view, top=top)) for view in first
    ]
    if pictures is not None:
        instances, across = tiled(explanation, top, sliced=sliced), ACROSS[sliced]
        tiles = partial(draw_tiles, explanation=explanation, pictures=pictures, top=top, sliced=sliced)
        height = (_CAPTION + 8 / across * _TILE) * math.ceil(len(instances) / across) + 0.4
        blocks.append((height, partial(tiles, instances=instances)))
        if explanation.parts:
            blocks.append((_PARTS, partial(tiles, instances=explanation.order[:LARGE], parts=True)))
    if (sliced or not given) and len(explanation) > 1:
        begins = [file.rows.start for file in files_of(bags, explanation.index)] if sliced else None
        blocks.append((_CHART, partial(draw_chart, explanation=explanation, top=top, begins=begins)))
    heights = [_HEADING, *(height for height, _ in blocks)]
    figure = new_figure((WIDTH, sum(heights)))
    heading, *rest = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).flat
    text = f"Bag {shortened(explanation.bag, 70)}, score {explanation.score:.3f}"
    heading.text(0.012, 0.9, text, fontsize=13, fontweight="bold", va="top")
    for (_, draw), part in zip(blocks, rest, strict=True):
        draw(part)
    save_figure(figure, path)
    if drawn:
        return "map" if all(view.backdrop is None for view in drawn) else "overlay"
    return "strip" if sliced else "sheet" if pictures is not None else "bars"


def draw_chart(part: SubFigure, explanation: Explanation, *, top: int, begins: Sequence[int] | None = None) -> None:
    """Plot what the top instances add, by name; of scans that begin at `begins` what all add, in their order."""
    axes, added = part.subplots(), explanation.contribution
    colors = np.where(added < 0, BLUE, ORANGE)
    if begins is None:
        shown = explanation.order[: min(top, _NAMED)]
        axes.barh(np.arange(len(shown)), added[shown], color=colors[shown], height=0.72)
        axes.set_yticks(np.arange(len(shown)), [shortened(explanation.name(i), 60) for i in shown.tolist()])
        axes.invert_yaxis()
        axes.axvline(0, color=GRAY, linewidth=1)
        axes.set_xlabel(f"Added to the score of the bag: {MEANING}", fontsize=9)
        title = f"Top {len(shown)} of {len(explanation)} instances"
    else:
        x = np.arange(len(explanation)) if len(begins) > 1 else explanation.positions
        axes.bar(x, added, width=np.diff(np.unique(x)).min(), color=colors)
        for begin in begins[1:]:
            axes.axvline(begin - 0.5, color=GRAY, linewidth=1.2)
        axes.axhline(0, color=GRAY, linewidth=1)
        title = f"What each instance adds to the score of the bag, in their order: {MEANING}"
    axes.set_title(title, loc="left", fontsize=10)
