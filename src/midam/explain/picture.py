"""The picture of a bag: maps, slices in order, and top and bottom instances or bars by kind."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from midam.data.bag_files import BagFile, files_of, source_paths
from midam.data.bags import Bags
from midam.explain import panels
from midam.explain.backdrop import ImageFolder, read_backdrop, slide_facts
from midam.explain.charts import LOWERS, RAISES, colors_of, draw_bars, mark_uniform, multiple
from midam.explain.explanation import Explanation
from midam.explain.overlay import PatchMap, draw_map
from midam.explain.patches import Patches, SlideFacts, is_picture, patches_of
from midam.report.figures import BLUE, GRAY, ORANGE, new_figure, save_figure
from midam.report.words import shortened

WIDTH = 10.0
_MAPS = 6
_HEADING, _BARS = 0.55, 3.4

Block = tuple[float, Callable[[SubFigure], None]]  # height in inches, and function that draws it
SLICES = 12
_ACROSS = 6  # slices in a row
_TITLE = 24  # most characters above a slice
_LINE = 110  # characters in a line over the weights
_PALE = "#BDBDBD"
# Facts about a slice from its file, in words.
_IN_FILE = {"instance_number": "no. {}", "frame_number": "frame {}", "slice_index": "index {}"}
_IN_FILE |= {"position_mm": "at {:.6g} mm"}
_SIDE, _CAPTION, _LINE_HEIGHT, _NOTE, _CHART = 1.5, 0.55, 0.14, 0.35, 1.5  # inches


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
    kind, blocks = _blocks(explanation, bags, top, drawn)
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
    return kind


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


def _blocks(explanation: Explanation, bags: Bags, top: int, drawn: Sequence[PatchMap]) -> tuple[str, list[Block]]:
    """Return the kind of the picture, and its parts below the heading."""
    pictures = is_picture(bags.instance_shape)
    shown: dict[str, Any] = {"explanation": explanation, "top": top}
    bars: Block = (_BARS, partial(draw_bars, **shown))
    sheet: Block = (panels.sheet_height(explanation, top), partial(panels.draw_sheet, bags=bags, **shown))
    if drawn:
        several = len(source_paths(bags, explanation.index)) > 1
        maps = [
            (view.height(WIDTH), partial(draw_map, drawn=view, top=top, named=several)) for view in _foremost(drawn)
        ]
        kind = "map" if all(view.backdrop is None for view in drawn) else "overlay"
        return kind, [*maps, sheet if pictures else bars]
    if not pictures:
        return "bars", [bars]
    if explanation.coords is not None and explanation.coords.shape[1] == 1 and len(explanation) > 1:
        height = _NOTE + _slices_height(explanation, bags.instance_shape) + _CHART * _charts(explanation)
        return "strip", [(height, partial(draw_strip, bags=bags, **shown))]
    return "sheet", [sheet]


def _foremost(maps: Sequence[PatchMap]) -> list[PatchMap]:
    """Return the shown maps in their order."""
    first = [int(patch_map.patches.ranked(patch_map.explanation.order)[0][0]) for patch_map in maps]
    positions = sorted(range(len(maps)), key=first.__getitem__)[:_MAPS]
    if len(maps) > _MAPS:
        text = f"the picture shows the maps of {_MAPS} slides; the maps of the others are separate files"
        warnings.warn(f"{text} ({len(maps)} slides)", stacklevel=3)
    return [maps[at] for at in sorted(positions)]


class Scans(NamedTuple):
    """The scans of a bag, one after the other."""

    begins: list[int]  # position of the first slice of each
    names: list[str]  # names of their files; empty for a single scan

    def numbers(self, instances: ArrayLike) -> list[int]:
        """Return the number of the scan of each slice."""
        return (np.searchsorted(self.begins, instances, side="right") - 1).tolist()


def scans_of(explanation: Explanation, bags: Bags) -> Scans:
    """Return the scans of a bag, one for each of its files."""
    files = files_of(bags, explanation.index)
    starts = [file.rows.start for file in files]
    return Scans(starts, [file.stem for file in files]) if len(files) > 1 else Scans([0], [])


def strip_instances(explanation: Explanation, top: int, *, several: bool = False) -> NDArray[np.int64]:
    """Return the shown slices in order: up to 6 of the 12 are top slices, the others are spread over the bag.

    The order is the order of their numbers or, with several scans, of the bag.
    """
    ordered = np.arange(len(explanation)) if several else np.argsort(_places(explanation), kind="stable")
    instances = {int(i) for i in explanation.order[: min(top, SLICES // 2)]}
    for position in np.linspace(0, len(explanation) - 1, min(len(explanation), SLICES)).round().astype(int):
        if len(instances) < SLICES:
            instances.add(int(ordered[position]))
    return ordered[np.isin(ordered, list(instances))]


def _slices_height(explanation: Explanation, shape: tuple[int, ...]) -> float:
    """Return the height in inches of the strip for slices of a shape [..., H, W]."""
    rows, lines = math.ceil(min(len(explanation), SLICES) / _ACROSS), _LINE_HEIGHT * bool(slice_text(explanation, 0))
    return rows * (min(_SIDE * shape[-2] / shape[-1], 2 * _SIDE) + _CAPTION + lines)


def _charts(explanation: Explanation) -> int:
    return 1 + explanation.weighted


def draw_strip(part: SubFigure, explanation: Explanation, bags: Bags, *, top: int) -> None:
    """Plot the strip and, below it, contribution and weight of each slice; the top slices are marked in all parts."""
    scans, ranks = scans_of(explanation, bags), {int(i): r for r, i in enumerate(explanation.order[:top], start=1)}
    instances, places = strip_instances(explanation, top, several=bool(scans.names)), _places(explanation)
    sides = np.where(explanation.contribution < 0, BLUE, ORANGE)
    views = panels.views_of(bags, explanation.index, len(scans.begins))
    ends = [*scans.begins[1:], len(explanation)]
    groups = [_spread(begin, end, instances) for begin, end in zip(scans.begins, ends)]
    windows = [panels.scan_window(bags, explanation.index, group) for group in groups]
    heights = [_NOTE, _slices_height(explanation, bags.instance_shape), _CHART * _charts(explanation)]
    note, above, below = part.subfigures(3, 1, squeeze=False, height_ratios=heights).flat
    view_words = " / ".join(dict.fromkeys(map(panels.view_text, views)))
    text = f"Slices: {view_words}{_numbers_text(explanation)}.\nBlack to white: {panels.window_text(windows)}."
    note.text(0.012, 0.9, text, fontsize=8.5, color="#404040", va="top")
    cells: NDArray[Any] = above.subplots(math.ceil(len(instances) / _ACROSS), _ACROSS, squeeze=False)
    for axes in cells.flat:
        axes.set_axis_off()
    for axes, i, scan in zip(cells.flat, instances.tolist(), scans.numbers(instances)):
        axes.imshow(panels.pictures_of(bags, explanation.index, np.array([i]), windows[scan].ends)[0])
        marked = i in ranks
        name = f"{shortened(scans.names[scan], _TITLE)}:\n" if scans.names else ""
        name += f"slice {places[i]:g}" + (f", rank {ranks[i]}" if marked else "")
        name += f"\n{in_file}" if (in_file := slice_text(explanation, i)) else ""
        name += f"\n{multiple(explanation, i)}, " if explanation.weighted else "\n"
        name += f"score {explanation.instances.score[i]:.3f}"
        axes.set_title(name, fontsize=8, fontweight="bold" if marked else "normal", color="#303030", pad=3)
        panels.draw_view(axes, views[scan])
        if marked:
            frame = Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, edgecolor=sides[i], linewidth=3)
            axes.add_patch(frame)
    _draw_values(below, explanation, scans, list(ranks))


def slice_text(explanation: Explanation, instance: int) -> str:
    """Return number and position of a slice in its file; "" if the file does not state them."""
    facts = {name: column[instance] for name, column in explanation.columns.items() if column[instance] is not None}
    return " ".join(text.format(facts[name]) for name, text in _IN_FILE.items() if name in facts)


def _numbers_text(explanation: Explanation) -> str:
    """Return a text on the meaning of slice numbers in the files."""
    names = {"instance_number": "no.: InstanceNumber", "slice_index": "index: of the slice in its file"}
    words = [text for name, text in names.items() if name in explanation.columns]
    return f"; {', '.join(words)}" if words else ""


def _spread(begin: int, end: int, shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the slices of a scan that set black and white: the shown ones, and 32 spread over the scan."""
    spread = np.linspace(begin, end - 1, min(end - begin, 32)).round().astype(np.int64)
    return np.union1d(shown[(shown >= begin) & (shown < end)], spread)


def _draw_values(part: SubFigure, explanation: Explanation, scans: Scans, top: list[int]) -> None:
    """Plot the contribution of each slice in the colors of the map, and its weight if weights differ."""
    charts: list[Axes] = list(part.subplots(_charts(explanation), 1, squeeze=False, sharex=True).flat)
    places = _places(explanation)
    across = np.arange(len(explanation)) if scans.names else places
    gaps = np.diff(np.unique(across))
    width = 0.85 * (gaps.min() if len(gaps) else 1)
    names = ("Adds to the score", "Weight, multiples of 1/n")
    kinds = zip((explanation.contribution, explanation.relative_weight), (colors_of(explanation), _PALE), names)
    for axes, (values, colors, name) in zip(charts, kinds):
        axes.bar(across, values, width=width, color=colors, edgecolor=GRAY, linewidth=min(0.6, 40 / len(explanation)))
        axes.margins(x=0.01)
        axes.ticklabel_format(axis="y", style="plain")  # a factor above the axis would cover a scan's name
        axes.set_title(name, fontsize=9, loc="right" if scans.names else "left")
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
        for begin in scans.begins[1:]:
            axes.axvline(begin - 0.5, color=GRAY, linewidth=1.2)
    charts[0].axhline(0, color=GRAY, linewidth=1)
    high = np.maximum(explanation.contribution[top], 0)
    charts[0].plot(across[top], high, "v", color="black", markersize=4)
    charts[0].margins(y=0.12)
    if explanation.weighted:
        mark_uniform(charts[1])
    if scans.names:
        _name_scans(charts, places, scans)
    scans_text = f" of {len(scans.begins)} scans" if scans.names else ""
    legend = f"orange {RAISES}, blue {LOWERS}; triangles: the {len(top)} top ones"
    charts[-1].set_xlabel(f"Slice (all {len(explanation)}{scans_text}; {legend})", fontsize=9)


def _name_scans(charts: list[Axes], places: NDArray[np.float64], scans: Scans) -> None:
    """Name the scans above their slices, and number the slices within their scan."""
    ends = [*scans.begins[1:], len(places)]
    for begin, end, name in zip(scans.begins, ends, scans.names):
        short = shortened(name, int(_LINE * (end - begin) / len(places)))
        charts[0].annotate(short, (begin - 0.4, 1.02), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    charts[-1].xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{places[int(x)]:g}" if 0 <= x < len(places) else "")
    )


def _places(explanation: Explanation) -> NDArray[np.float64]:
    coords = np.arange(len(explanation))[:, None] if explanation.coords is None else explanation.coords
    return np.asarray(coords[:, 0], dtype=np.float64)
