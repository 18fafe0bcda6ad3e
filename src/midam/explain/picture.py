"""The picture of a bag: maps of its patches, some of its instances as tiles, and a chart of what instances add."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from midam.data.bag_files import BagFile, files_of, source_paths
from midam.data.bags import Bags
from midam.explain.backdrop import ImageFolder, read_backdrop, slide_facts
from midam.explain.explanation import Explanation
from midam.explain.layers import LOWERS, RAISES, PatchMap, colors_of
from midam.explain.patches import Patches, SlideFacts, is_picture, patches_of
from midam.explain.scans import picture_of, scans_of
from midam.report.figures import BLUE, GRAY, ORANGE, new_figure, save_figure
from midam.report.words import shortened, signed

WIDTH = 10.0
SLICES, _ENDS = 12, 32  # most slices that are shown, and most instances of each end of the ranking
_MAPS = 6
_HEADING, _CHART, _TILE, _BELOW, _HIGHEST = 0.55, 3.4, 2.1, 1.0, 5.5  # inches
_ACROSS = 8  # tiles in a row
_MANY, _POINTS, _MOST = 60, 2000, 16  # instances with a bar each, points of a curve, named instances
_EDGE: dict[str, Any] = {"edgecolor": GRAY, "linewidth": 0.6}  # bars of small contributions are nearly white
_SIDES: tuple[tuple[float, float, str, str], ...] = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
)
# Facts about a slice from its file, in words.
_IN_FILE = {"instance_number": "no. {}", "frame_number": "frame {}", "slice_index": "index {}"}
_IN_FILE |= {"position_mm": "at {:.6g} mm"}


def draw_explanation(
    path: Path,
    explanation: Explanation,
    bags: Bags,
    *,
    drawn: Sequence[PatchMap] = (),
    top: int = 8,
    heading: str = "",
    form: str = ".3f",
) -> str:
    """Plot a bag to a PNG file, with `top` instances from each end of the ranking; returns the kind of the picture.

    `drawn` are the maps of its patches from `map_of`; at most six are shown, of the slides with the highest ranks.
    `form` is the format of the score in the title.

    The kinds are "overlay": patches on their image; "map": patches without an image; "strip": slices of a volume;
    "sheet": instances that are pictures; "bars": other instances.
    """
    shown: dict[str, Any] = {"explanation": explanation, "top": top}
    pictures = is_picture(bags.instance_shape)
    sliced = pictures and not drawn and _sliced(explanation)
    several = len(source_paths(bags, explanation.index)) > 1
    blocks: list[tuple[float, Callable[[SubFigure], None]]] = [
        (_height(view), partial(draw_map, view=view, top=top, named=several)) for view in _foremost(drawn)
    ]
    if pictures:
        rows = math.ceil(len(tiled(explanation, top, sliced=sliced)) / _ACROSS)
        blocks.append((_TILE * rows + 0.4, partial(draw_tiles, bags=bags, sliced=sliced, **shown)))
    if sliced or not pictures:
        begins = [file.rows.start for file in files_of(bags, explanation.index)]
        blocks.append((_CHART, partial(draw_chart, begins=begins if sliced else None, **shown)))
    heights = [_HEADING, *(height for height, _ in blocks)]
    figure = new_figure((WIDTH, sum(heights)))
    parts: list[SubFigure] = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).flat)
    line = f"Bag {shortened(explanation.bag, 70)}: score {explanation.score:{form}}"
    parts[0].text(0.012, 0.95, line, fontsize=13, fontweight="bold", va="top")
    size = min(9.5, 1330 / max(len(heading), 1))  # the width holds about 1330 points of text
    parts[0].text(0.012, 0.3, heading, fontsize=size, color="#404040", va="top")
    for (_, draw), part in zip(blocks, parts[1:], strict=True):
        draw(part)
    save_figure(figure, path)
    if drawn:
        return "map" if all(view.backdrop is None for view in drawn) else "overlay"
    return "strip" if sliced else "sheet" if pictures else "bars"


def placed_patches(explanation: Explanation, bags: Bags, images: ImageFolder | None = None) -> list[Patches]:
    """Return the patches of each slide of a bag, with scale and bounds of the slide if its file is available."""
    count = len(source_paths(bags, explanation.index))

    def slide_of(file: BagFile | None) -> SlideFacts:
        facts = SlideFacts() if file is None else slide_facts(file.path)
        if images is None or facts != SlideFacts():
            return facts
        path = images.find(explanation.bag, file, several=count > 1)
        return facts if path is None else slide_facts(path)

    return patches_of(bags, explanation.index, slide_of)


def map_of(explanation: Explanation, bags: Bags, slide: Patches, images: ImageFolder | None = None) -> PatchMap | None:
    """Return the map of the patches of a slide, on its image if available; None for pictures without an image.

    A warning states why an image cannot be drawn.
    """
    several = len(source_paths(bags, explanation.index)) > 1
    attributes = bags.described(explanation.index) if slide.file is None else slide.file.attributes
    backdrop = None if images is None else images.read(explanation.bag, slide, attributes, several=several)
    if backdrop is None and slide.file is not None:
        backdrop = read_backdrop(slide.file.path)
    return None if backdrop is None and is_picture(bags.instance_shape) else PatchMap(explanation, slide, backdrop)


def _foremost(maps: Sequence[PatchMap]) -> list[PatchMap]:
    """Return the shown maps in their order."""
    first = [int(patch_map.patches.ranked(patch_map.explanation.order)[0][0]) for patch_map in maps]
    positions = sorted(range(len(maps)), key=first.__getitem__)[:_MAPS]
    if len(maps) > _MAPS:
        text = f"the picture shows the maps of {_MAPS} slides; the GeoJSON files hold the patches of all"
        warnings.warn(f"{text} ({len(maps)} slides)", stacklevel=3)
    return [maps[at] for at in sorted(positions)]


def _grid(view: PatchMap) -> tuple[int, int]:
    """Return rows and columns of the panels of a map."""
    count = len(view.layers) + (view.backdrop is not None)
    return (2, 2) if count == 4 else (1, count)


def _height(view: PatchMap) -> float:
    """Return the height in inches at which the panels of a map have no gaps."""
    (rows, columns), (down, across) = view.shape, _grid(view)
    return down * (min(max(0.9 * WIDTH / across * rows / columns, 1.5), _HIGHEST) + _BELOW)


def draw_map(part: SubFigure, view: PatchMap, *, top: int, named: bool = False) -> None:
    """Plot the image with framed top patches, and maps of contribution, weight and score; title if `named`."""
    panels = list(part.subplots(*_grid(view), squeeze=False).flat)
    if named and view.patches.file is not None:
        part.suptitle(shortened(view.patches.file.name, 90), fontsize=11, fontweight="bold", x=0.012, ha="left")
    for axes in panels:
        axes.set_axis_off()
    if view.backdrop is not None:
        axes = panels.pop(0)
        axes.imshow(view.backdrop.pixels)
        ranks, places = view.patches.ranked(view.explanation.order, top=top)
        # The top rank is drawn last, so that no frame covers its frame; imshow centers pixels at whole numbers.
        for rank, (left, high, right, low) in reversed(list(zip(ranks.tolist(), view.sides[places] - 0.5))):
            for color, width in (("white", 2.6), ("black", 1.2)):
                frame: dict[str, Any] = {"fill": False, "edgecolor": color, "linewidth": width}
                axes.add_patch(Rectangle((left, high), right - left, low - high, **frame))
            name = axes.annotate(str(rank), (left, high), (2, -2), textcoords="offset points", va="top", fontsize=7.5)
            name.set(fontweight="bold", path_effects=[withStroke(linewidth=2.2, foreground="white")])
        axes.set_title(f"Image; the {len(ranks)} top patches, by rank", fontsize=10, loc="left")
    for axes, layer in zip(panels, view.layers, strict=True):
        if view.backdrop is not None:  # in gray: colors of the image would mix with colors of the map
            axes.imshow(view.backdrop.pixels.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
        axes.imshow(layer.on_image(view.raster, opaque=view.backdrop is None), interpolation="nearest")
        axes.set_title(layer.name, fontsize=10, loc="left")
        colors = ScalarMappable(layer.scale, layer.colors)
        bar = part.colorbar(colors, ax=axes, orientation="horizontal", extend=layer.extend, aspect=40, pad=0.02)
        bar.ax.xaxis.set_major_locator(MaxNLocator(4))
        bar.set_label(f"{layer.meaning}{layer.here}", fontsize=8.5, color=GRAY)


def _sliced(explanation: Explanation) -> bool:
    """Return whether the instances are slices with one coordinate."""
    return explanation.coords is not None and explanation.coords.shape[1] == 1 and len(explanation) > 1


def tiled(explanation: Explanation, top: int, *, sliced: bool = False) -> NDArray[np.int64]:
    """Return the instances that are shown as tiles: both ends of the ranking, none twice, at most 32 of each.

    Of slices, in their order: up to 6 of the 12 are top slices, the others are spread over the bag.
    """
    if not sliced:
        high = explanation.order[: min(top, _ENDS)]
        return np.concatenate([high, explanation.order[max(len(high), len(explanation) - min(top, _ENDS)) :]])
    ordered = (
        np.arange(len(explanation)) if explanation.several_files else np.argsort(_places(explanation), kind="stable")
    )
    instances = {int(i) for i in explanation.order[: min(top, SLICES // 2)]}
    for position in np.linspace(0, len(explanation) - 1, min(len(explanation), SLICES)).round().astype(int):
        if len(instances) < SLICES:
            instances.add(int(ordered[position]))
    return ordered[np.isin(ordered, list(instances))]


def draw_tiles(part: SubFigure, explanation: Explanation, bags: Bags, *, top: int, sliced: bool = False) -> None:
    """Plot some instances, the top ones framed; scans with their sides, and the range from black to white."""
    index, instances, volumes = explanation.index, tiled(explanation, top, sliced=sliced), len(bags.instance_shape) == 4
    ranks = {int(i): rank for rank, i in enumerate(explanation.order[:top], start=1)}
    scans = scans_of(bags, index, instances, sliced=sliced)
    if sliced:
        views, windows = (
            " / ".join(dict.fromkeys(texts)) for texts in zip(*((s.view, f"{s.why}, {s.shown}") for s in scans))
        )
        note = f"Slices: {views}.\nBlack to white: {windows}."
        part.suptitle(note, fontsize=8.5, color="#404040", x=0.012, ha="left")
    panels = list(part.subplots(math.ceil(len(instances) / _ACROSS), _ACROSS, squeeze=False).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes, i, scan in zip(panels, instances.tolist(), scans):
        axes.imshow(picture_of(bags, index, i, scan.ends))
        title = _caption(explanation, i, ranks, sliced=sliced) + (f"\n{scan.shown}" if volumes else "")
        axes.set_title(title, fontsize=8, fontweight="bold" if i in ranks else "normal", pad=3)
        for letter, (x, y, across, up) in zip(scan.edges, _SIDES):
            side = axes.text(x, y, letter, transform=axes.transAxes, color="white", fontsize=8, ha=across, va=up)
            side.set(fontweight="bold", path_effects=[withStroke(linewidth=1.8, foreground="black")])
        if i in ranks:
            color = BLUE if explanation.contribution[i] < 0 else ORANGE
            frame: dict[str, Any] = {"fill": False, "edgecolor": color, "linewidth": 3, "transform": axes.transAxes}
            axes.add_patch(Rectangle((0, 0), 1, 1, **frame))


def _caption(explanation: Explanation, instance: int, ranks: dict[int, int], *, sliced: bool) -> str:
    """Return number or file, rank, contribution, weight (if weights differ) and score of an instance."""
    file = shortened(explanation.columns["file"][instance], 22) if explanation.several_files else ""
    number = f"slice {_places(explanation)[instance]:g}" if sliced else f"#{instance}"
    rank = f", rank {ranks[instance]}" if instance in ranks else ""
    added = f"adds {signed(explanation.contribution[instance], '+.2g')}"
    weight = f"weight {multiple(explanation, instance)}" if explanation.weighted else ""
    score = f"score {explanation.instances.score[instance]:.3f}"
    return "\n".join(filter(None, [file, number + rank, slice_text(explanation, instance), added, weight, score]))


def slice_text(explanation: Explanation, instance: int) -> str:
    """Return number and position of a slice in its file; "" if the file does not state them."""
    facts = {name: column[instance] for name, column in explanation.columns.items() if column[instance] is not None}
    return " ".join(text.format(facts[name]) for name, text in _IN_FILE.items() if name in facts)


def draw_chart(part: SubFigure, explanation: Explanation, *, top: int, begins: Sequence[int] | None = None) -> None:
    """Plot what all instances add, by rank, and next to it the top instances with weights and scores.

    The instances of scans that begin at `begins` are plotted in the order of their slices instead. The colors are those
    of the map of contributions.
    """
    every, best = part.subplots(1, 2, width_ratios=[1.15, 1])
    count, colors = min(top, _MOST, len(explanation)), colors_of(explanation)
    order = explanation.order if begins is None else np.arange(len(explanation))
    added, x = explanation.contribution[order], np.arange(1.0, len(explanation) + 1)
    if begins is not None:
        x = np.arange(len(explanation)) if len(begins) > 1 else _places(explanation)
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
    every.legend([Patch(color=ORANGE), Patch(color=BLUE)], [RAISES, LOWERS], fontsize=8, loc="upper right")
    every.set_title("What each instance adds to the score of the bag", loc="left", fontsize=10)
    name = "Rank" if begins is None else f"Slice; triangles: the {count} top ones"
    every.set_xlabel(f"{name} (all {len(explanation)} instances)", fontsize=9)
    instances = explanation.order[:count].tolist()
    best.barh(np.arange(count), explanation.contribution[instances], color=colors[instances], height=0.72, **_EDGE)
    best.set_yticks(np.arange(count), [shortened(explanation.name(i), 34) for i in instances])
    best.invert_yaxis()
    best.axvline(0, color=GRAY, linewidth=1)
    best.set_xlabel("Added to the score", fontsize=9)
    best.xaxis.set_major_locator(MaxNLocator(4))
    columns = {"weight": [multiple(explanation, i) for i in instances]} if explanation.weighted else {}
    columns["score"] = [f"{explanation.instances.score[i]:.3f}" for i in instances]
    for x_text, (head, texts) in zip((1.12, 1.31), columns.items()):
        for row, text in enumerate([head, *texts], start=-1):
            style = {"fontsize": 8.5, "va": "center", "ha": "center", "color": GRAY if row < 0 else "black"}
            best.text(x_text, row, text, transform=best.get_yaxis_transform(), **style)
    best.set_title(f"Top {count}", loc="left", fontsize=10)


def multiple(explanation: Explanation, instance: int) -> str:
    """Return the weight of an instance as a multiple of the uniform weight."""
    return f"{explanation.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}"


def _places(explanation: Explanation) -> NDArray[np.float64]:
    coords = np.arange(len(explanation))[:, None] if explanation.coords is None else explanation.coords
    return np.asarray(coords[:, 0], dtype=np.float64)
