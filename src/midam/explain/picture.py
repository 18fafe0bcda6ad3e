"""The picture of a bag: maps of its patches, some of its instances as tiles, and a chart of what instances add."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import LARGE, Explanation
from midam.explain.maps import DIVERGING, MEANING, WIDTH, PatchMap, as_rgb, draw_map, height_of
from midam.explain.patches import is_picture
from midam.explain.words import instance_name, slice_text
from midam.report.figures import BLUE, GRAY, ORANGE, add_frame, new_figure, save_figure
from midam.report.words import shortened, signed

_HEADING, _CHART, _TILE, _CAPTION, _PARTS = 0.4, 2.8, 1.2, 0.9, 7.0  # inches
_NAMED, _MAPS = 16, 6  # instances with names, and maps
Window = tuple[float, float]
PERCENTILES = (1.0, 99.0)
SOFT_TISSUE = (-160.0, 240.0)  # HU, for a CT whose files name no window
ACROSS = {False: 8, True: 6}  # tiles in a row; slices, with longer captions, are larger
SLICES, _ENDS = 12, 32  # most slices that are shown, and most instances of each end of the ranking
_SIDES: tuple[tuple[float, float, str, str], ...] = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
)
_OF_PARTS = (
    "The top instances, and what their parts add: the score of the bag minus its score with the part covered.\n"
    f"{MEANING}; a stronger color means more; + marks what adds most."
)


class Scan(NamedTuple):
    """How the instances of a scan are shown."""

    ends: Window  # of black and white, in the values of the instances
    shown: str  # the same in the values of the scan, with unit, and its source
    plane: str = ""  # such as "axial"; empty if unknown
    edges: str = ""  # letters of the sides at left, right, upper and lower edge, such as RLAP


class Pictures(NamedTuple):
    """Pictures of the instances of a bag."""

    bag: Bags  # alone; its instances, or those of the raw files of vectors
    boxes: NDArray[np.int64] | None = None  # [n, 4], left, top, width and height of the instance in its picture

    def pixels(self, instances: NDArray[np.int64]) -> NDArray[Any]:
        """Return pictures as [m, C, H, W]; of a volume, the middle slice."""
        pixels = self.bag.gather(self.bag.starts + instances)
        if pixels.ndim == 3:  # [m, H, W]
            pixels = pixels[:, None]
        return pixels[:, :, pixels.shape[2] // 2] if pixels.ndim == 5 else pixels  # [m, C, D, H, W]

    def picture(self, instance: int, window: Window) -> NDArray[np.uint8]:
        """Return a picture as [H, W, 3]; uint8 colors stay unchanged."""
        (pixels,) = self.pixels(np.array([instance]))
        colors = pixels.dtype == np.uint8 and len(pixels) == 3
        return as_rgb(pixels, None if colors else window)

    def scans(self, instances: NDArray[np.int64]) -> list[Scan]:
        """Return how each instance is shown: as the others of its file, or, if it is a volume, alone."""
        files, scans = files_of(self.bag, 0), dict[int, Scan]()
        file_of = np.searchsorted([file.rows.stop for file in files], instances, side="right")
        keys = instances if len(self.bag.instance_shape) == 4 else file_of
        for key, first in zip(*(x.tolist() for x in np.unique(keys, return_index=True))):
            facts = files[file_of[first]].attributes.get("file", {}) if files else {}
            scans[key] = self._scan(instances[keys == key], facts)
        return [scans[key] for key in keys.tolist()]

    def _scan(self, instances: NDArray[np.int64], facts: Mapping[str, Any]) -> Scan:
        """Return how a scan is shown, by some of its instances and the facts of its file.

        The window is that with which the data were read (scaled to 0 to 1); else, for CT, that of its file
        (WindowCenter and WindowWidth) or of soft tissue; else percentiles: one bright vessel would darken the whole
        scan.
        """
        view = str(facts.get("plane", "")), str(facts.get("edges", ""))
        ct, read_with = facts.get("modality") == "CT", (self.bag.cut or {}).get("window")
        unit = " HU" if ct else ""
        if read_with:
            text = f"the window that the data were read with, {read_with[0]:g} to {read_with[1]:g}{unit}"
            return Scan((0.0, 1.0), text, *view)
        pixels = self.pixels(instances)
        low, high = (float(end) for end in np.percentile(pixels, PERCENTILES))
        low, high = (low, high) if low < high else (float(pixels.min()), float(pixels.max()))
        dark, bright = (float(end) for end in facts.get("window") or SOFT_TISSUE)
        if ct and dark < high and bright > low:  # otherwise everything would be black or white
            why = "the window of its file" if facts.get("window") else "soft tissue: its file has no window"
            return Scan((dark, bright), f"{why}, {dark:g} to {bright:g} HU", *view)
        return Scan((low, high), f"1st to 99th percentile of the intensities, {low:.4g} to {high:.4g}{unit}", *view)


def draw_explanation(
    path: Path,
    explanation: Explanation,
    bags: Bags,
    *,
    maps: Sequence[PatchMap] = (),
    pictures: Pictures | None = None,
    top: int = 8,
) -> str:
    """Plot a bag to a PNG file, with `top` instances from each end of the ranking; returns the kind of the picture.

    `maps` are those of its patches from `maps_of`; six are shown, of the slides with the highest ranks, and of patches
    that are pictures only those on an image. `pictures` are those of its instances, if they are vectors.

    The kinds are "overlay": patches on their image; "map": patches without an image; "strip": slices of a volume;
    "sheet": instances that are pictures; "bars": other instances.
    """
    given = is_picture(bags.instance_shape)
    pictures = Pictures(bags.subset([explanation.index])) if given else pictures
    drawn = [view for view in maps if view.backdrop is not None or not given]
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
        if not explanation.parts or len(instances) > LARGE:
            blocks.append((height, partial(tiles, instances=instances)))
        if explanation.parts:
            blocks.append((_PARTS, partial(tiles, instances=explanation.order[:LARGE], parts=True)))
    if (sliced or not given) and len(explanation) > 1:
        many = sliced and len(explanation) > top  # a few have their names
        begins = [file.rows.start for file in files_of(bags, explanation.index)] if many else None
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
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        title = f"What each instance adds to the score of the bag, in their order: {MEANING}"
    axes.set_title(title, loc="left", fontsize=10)


def tiled(explanation: Explanation, top: int, *, sliced: bool = False) -> NDArray[np.int64]:
    """Return the instances that are shown as tiles: both ends of the ranking, none twice, at most 32 of each.

    Of slices, in their order: up to 6 of the 12 are top slices, the others are spread over the bag.
    """
    order, size = explanation.order, len(explanation)
    if not sliced:
        high = order[: min(top, _ENDS)]
        return np.concatenate([high, order[max(len(high), size - len(high)) :]])
    ordered = np.arange(size) if explanation.several_files else np.argsort(explanation.positions, kind="stable")
    spread = ordered[np.linspace(0, size - 1, min(size, SLICES)).round().astype(int)]
    chosen = dict.fromkeys([*order[: min(top, SLICES // 2)].tolist(), *spread.tolist()])
    return ordered[np.isin(ordered, [*chosen][:SLICES])]


def draw_tiles(
    part: SubFigure,
    explanation: Explanation,
    pictures: Pictures,
    instances: NDArray[np.int64],
    *,
    top: int,
    sliced: bool = False,
    parts: bool = False,
) -> None:
    """Plot some instances, the `top` ones framed; scans with their sides, and the range from black to white.

    With `parts`, these are at most `LARGE` instances, and below each is the map of what its parts add.
    """
    ranks = {int(i): rank for rank, i in enumerate(explanation.order[:top], start=1)}
    scans, across = pictures.scans(instances), LARGE if parts else ACROSS[sliced]
    panels = part.subplots(2 if parts else math.ceil(len(instances) / across), across, squeeze=False)
    notes = [_note(scans)] * sliced + [_OF_PARTS] * parts
    part.suptitle("\n".join(notes), fontsize=8.5, color="#404040", x=0.012, ha="left")
    for axes in panels.flat:
        axes.set_axis_off()
    for at, (axes, i, scan) in enumerate(zip(panels.flat, instances.tolist(), scans)):
        pixels = pictures.picture(i, scan.ends)
        axes.imshow(pixels)
        title = _caption(explanation, i, ranks, sliced=sliced)
        axes.set_title(title, fontsize=8, fontweight="bold" if i in ranks else "normal", pad=3)
        for letter, (x, y, ha, va) in zip(scan.edges, _SIDES):
            side = axes.text(x, y, letter, transform=axes.transAxes, color="white", fontsize=8, ha=ha, va=va)
            side.set(fontweight="bold", path_effects=[withStroke(linewidth=1.8, foreground="black")])
        if pictures.boxes is not None:
            add_frame(axes, *(pictures.boxes[i] - [0.5, 0.5, 0, 0]).tolist())
        if i in ranks:
            color = BLUE if explanation.contribution[i] < 0 else ORANGE
            axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=color, lw=3, transform=axes.transAxes))
        if parts and i in explanation.parts:
            _draw_parts(panels[1, at], explanation, i, pixels)


def _draw_parts(axes: Any, explanation: Explanation, instance: int, pixels: NDArray[np.uint8]) -> None:
    """Plot what the parts of an instance add on its picture in gray; all its maps have one scale."""
    most = max(float(np.abs(part_map.added).max()) for part_map in explanation.parts.values()) or 1.0
    (added, peak), (rows, columns) = explanation.parts[instance], pixels.shape[:2]
    shades = DIVERGING(0.5 + added / (2 * most))
    shades[..., 3] = 0.75 * (np.abs(added) / most) ** 0.5
    axes.imshow(pixels.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    axes.imshow(shades, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), interpolation="bilinear")
    for color, width in (("white", 3.0), ("black", 1.4)):
        x, y = peak[0] * columns - 0.5, peak[1] * rows - 0.5
        axes.plot(x, y, "+", color=color, markersize=11, markeredgewidth=width)
    axes.set_title(f"parts add {signed(added.min(), '+.2g')} to {signed(added.max(), '+.2g')}", fontsize=8, pad=3)


def _note(scans: Sequence[Scan]) -> str:
    """Return planes and windows of scans, each once."""
    planes = " / ".join(dict.fromkeys(scan.plane for scan in scans))
    return f"{planes}{': ' * bool(planes)}black to white: {' / '.join(dict.fromkeys(scan.shown for scan in scans))}"


def _caption(explanation: Explanation, i: int, ranks: dict[int, int], *, sliced: bool) -> str:
    """Return number or file, rank, contribution, weight (if weights differ) and score of an instance."""
    one = explanation.instance(i)
    lines = [shortened(one["columns"]["file"], 22) if explanation.several_files else ""]
    lines.append(instance_name(i, one["place"] if sliced else ()) + (f", rank {ranks[i]}" if i in ranks else ""))
    lines += [*slice_text(one["columns"]).split(", "), f"adds {signed(one['contribution'], '+.2g')}"]
    lines += [f"weight {one['relative_weight']:.3g}\N{MULTIPLICATION SIGN}"] if explanation.weighted else []
    return "\n".join(filter(None, [*lines, f"score {one['score']:.3f}"]))
