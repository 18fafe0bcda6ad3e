"""Instances that are pictures as tiles, with the sides of scans and what parts add; colors of what instances add."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import LARGE, Explanation
from midam.explain.words import instance_name, slice_text
from midam.report.figures import BLUE, ORANGE, add_frame
from midam.report.words import shortened, signed

MEANING = "orange raises the score, blue lowers it"
DIVERGING = LinearSegmentedColormap.from_list("midam", [BLUE, "#F7F7F7", ORANGE])
_LEAST_ADDED = 0.1  # times 1/n: what a uniform instance adds whose score differs by 0.1; small changes must look small
Window = tuple[float, float]
PERCENTILES = (1.0, 99.0)
SOFT_TISSUE = (-160.0, 240.0)  # HU, for a CT whose files name no window
ACROSS = {False: 8, True: 6}  # tiles in a row; slices, with longer captions, are larger
SLICES, _ENDS = 12, 32  # most slices that are shown, and most instances of each end of the ranking
_SIDES: tuple[tuple[float, float, str, str], ...] = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
)
_PARTS = (
    "The top instances, and what their parts add: the score of the bag minus its score with the part covered.\n"
    f"{MEANING}; a stronger color means more; + marks what adds most."
)


def added_range(added: NDArray[np.floating[Any]]) -> Normalize:
    """Return the scale of contributions: symmetric about 0, to the 99th percentile of their sizes, at least 0.1 / n.

    Examples
    --------
    >>> added_range(np.array([0.0, 0.2, -0.4])).vmax, added_range(np.full(100, 1e-9)).vmax
    (0.396, 0.001)
    """
    sizes = np.abs(added)
    # If one instance contributes nearly everything, the percentile is too small: use at least a quarter of it.
    high = max(float(np.percentile(sizes, 99)), float(sizes.max()) / 4, _LEAST_ADDED / len(added))
    return Normalize(-high, high)


class Scan(NamedTuple):
    """How the instances of a scan are shown."""

    ends: Window  # of black and white, in the values of the instances
    shown: str  # the same in the values of the scan, with unit, and its source
    plane: str = ""  # such as "axial"; empty if unknown
    edges: str = ""  # letters of the sides at left, right, upper and lower edge, such as RLAP


class Pictures(NamedTuple):
    """Pictures of the instances of a bag: they are its instances, or the raw files of these."""

    bags: Bags
    bag: int
    boxes: NDArray[np.int64] | None = None  # [n, 4], left, top, width and height of the instance in its picture


def scans_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> list[Scan]:
    """Return how each instance is shown: as the others of its file, or, if it is a volume, alone."""
    files, keys = files_of(bags, index), list[tuple[int | None, int | None]]()
    for i in instances.tolist():
        at = next((at for at, file in enumerate(files) if i in file.rows), None)
        keys.append((at, i if len(bags.instance_shape) == 4 else None))
    scans = dict[Any, Scan]()
    for key in dict.fromkeys(keys):
        facts = {} if key[0] is None else files[key[0]].attributes.get("file", {})
        scans[key] = _scan(bags, index, instances[[other == key for other in keys]], facts)
    return [scans[key] for key in keys]


def _scan(bags: Bags, index: int, instances: NDArray[np.int64], facts: Mapping[str, Any]) -> Scan:
    """Return how a scan is shown, by some of its instances and the facts of its file.

    The window is that with which the data were read (scaled to 0 to 1); else, for CT, that of its file (WindowCenter
    and WindowWidth) or of soft tissue; else percentiles: one bright vessel would darken the whole scan.
    """
    view = str(facts.get("plane", "")), str(facts.get("edges", ""))
    ct, read_with = facts.get("modality") == "CT", (bags.cut or {}).get("window")
    unit = " HU" if ct else ""
    if read_with:
        text = f"the window that the data were read with, {read_with[0]:g} to {read_with[1]:g}{unit}"
        return Scan((0.0, 1.0), text, *view)
    pixels = pixels_of(bags, index, instances)
    low, high = (float(end) for end in np.percentile(pixels, PERCENTILES))
    low, high = (low, high) if low < high else (float(pixels.min()), float(pixels.max()))
    dark, bright = (float(end) for end in facts.get("window") or SOFT_TISSUE)
    if ct and dark < high and bright > low:  # otherwise everything would be black or white
        why = "the window of its file" if facts.get("window") else "soft tissue: its file has no window"
        return Scan((dark, bright), f"{why}, {dark:g} to {bright:g} HU", *view)
    return Scan((low, high), f"1st to 99th percentile of the intensities, {low:.4g} to {high:.4g}{unit}", *view)


def pixels_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> NDArray[Any]:
    """Return instances that are pictures as [m, C, H, W]; of a volume, the middle slice."""
    pixels = bags.gather(int(bags.starts[index]) + instances)
    if pixels.ndim == 3:  # [m, H, W]
        pixels = pixels[:, None]
    if pixels.ndim == 5:  # [m, C, D, H, W]
        pixels = pixels[:, :, pixels.shape[2] // 2]
    return pixels


def picture_of(bags: Bags, index: int, instance: int, window: Window) -> NDArray[np.uint8]:
    """Return an instance of a bag as [H, W, 3], of a volume the middle slice; uint8 colors stay unchanged."""
    (pixels,) = pixels_of(bags, index, np.array([instance]))
    colors = pixels.dtype == np.uint8 and len(pixels) == 3
    return as_rgb(pixels, None if colors else window)


def as_rgb(pixels: NDArray[Any], window: Window | None = None) -> NDArray[np.uint8]:
    """Convert pixels [C, H, W] to uint8 [H, W, 3]; unless there are three channels, the first is shown in gray.

    Values are stretched from black to white of a window; without one, from minimum to maximum, or kept if uint8.

    Examples
    --------
    >>> as_rgb(np.array([[[0.0, 0.5, 1.0]]]))[0, :, 0].tolist()
    [0, 127, 255]
    """
    channels = pixels if len(pixels) == 3 else pixels[:1]
    if channels.dtype != np.uint8 or window is not None:
        values = channels.astype(np.float64)
        low, high = (values.min(), values.max()) if window is None else window
        channels = (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(channels, (3, *channels.shape[1:])).transpose(1, 2, 0))


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
    scans, across = scans_of(pictures.bags, pictures.bag, instances), LARGE if parts else ACROSS[sliced]
    panels = part.subplots(2 if parts else math.ceil(len(instances) / across), across, squeeze=False)
    note = _PARTS if parts else _note(scans) if sliced else ""
    part.suptitle(note, fontsize=8.5, color="#404040", x=0.012, ha="left")
    for axes in panels.flat:
        axes.set_axis_off()
    for at, (axes, i, scan) in enumerate(zip(panels.flat, instances.tolist(), scans)):
        pixels = picture_of(pictures.bags, pictures.bag, i, scan.ends)
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


def _caption(explanation: Explanation, instance: int, ranks: dict[int, int], *, sliced: bool) -> str:
    """Return number or file, rank, contribution, weight (if weights differ) and score of an instance."""
    file = shortened(explanation.columns["file"][instance], 22) if explanation.several_files else ""
    facts = explanation.facts(instance)
    number = instance_name(instance, explanation.coords[instance] if sliced and explanation.coords is not None else ())
    rank = f", rank {ranks[instance]}" if instance in ranks else ""
    added = f"adds {signed(explanation.contribution[instance], '+.2g')}"
    weight = (
        f"weight {explanation.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}" if explanation.weighted else ""
    )
    score = f"score {explanation.instances.score[instance]:.3f}"
    return "\n".join(filter(None, [file, number + rank, slice_text(facts), added, weight, score]))
