"""Instances that are pictures as tiles: their pixels, black and white of a scan, and which side is left."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_rows import files_of
from midam.explain.explanation import LARGE, Explanation
from midam.explain.layers import DIVERGING, LOWERS, RAISES
from midam.explain.words import slice_text
from midam.report.figures import BLUE, GRAY, ORANGE, add_frame
from midam.report.words import shortened, signed

Window = tuple[float, float]
PERCENTILES = (1.0, 99.0)
SOFT_TISSUE = (-160.0, 240.0)  # HU, for a CT whose files name no window
_CONVENTIONS = {
    "": "the files do not say which side is left",
    "R": "radiological convention: the patient's right (R) is at the left",
    "L": "the patient's left (L) is at the left, against the radiological convention",
    "A": "front of the patient (A) at the left",
    "P": "back of the patient (P) at the left",
    "S": "head of the patient (S) at the left",
    "I": "feet of the patient (I) at the left",
}
ACROSS = {False: 8, True: 6}  # tiles in a row; slices, with longer captions, are larger
SLICES, _ENDS = 12, 32  # most slices that are shown, and most instances of each end of the ranking
_SIDES: tuple[tuple[float, float, str, str], ...] = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
)
_PARTS = (
    "The top instances, and what their parts add: the score of the bag minus its score with the part covered.\n"
    "A stronger color means more; + marks what adds most."
)


class Scan(NamedTuple):
    """How the instances of a scan are shown.

    Examples
    --------
    >>> Scan((0, 1), plane="axial", edges="RLAP").view
    "axial, radiological convention: the patient's right (R) is at the left"
    >>> Scan((0, 1)).view
    'the files do not say which side is left'
    """

    ends: Window  # of black and white, in the values of the instances
    shown: str = ""  # the same in the values of the scan, with unit
    why: str = ""  # source of this range
    plane: str = ""  # such as "axial"; empty if unknown
    edges: str = ""  # letters of the sides at left, right, upper and lower edge, such as RLAP
    flat: bool = False  # an image without a position, such as an X-ray

    @property
    def view(self) -> str:
        """Plane and convention in words."""
        return "" if self.flat else ", ".join(filter(None, [self.plane, _CONVENTIONS[self.edges[:1]]]))


class Pictures(NamedTuple):
    """Pictures of the instances of a bag: they are its instances, or the raw files of these."""

    bags: Bags
    bag: int
    boxes: NDArray[np.int64] | None = None  # [n, 4], left, top, width and height of the instance in its picture


def scans_of(bags: Bags, index: int, instances: NDArray[np.int64], *, sliced: bool) -> list[Scan]:
    """Return the scan of each instance: that of its file or volume; other pictures share one without a view."""
    volumes = len(bags.instance_shape) == 4
    if not (sliced or volumes):
        pixels = pixels_of(bags, index, instances)
        return [Scan((float(pixels.min()), float(pixels.max())))] * len(instances)
    files, groups = files_of(bags, index), dict[Any, list[int]]()
    for i in instances.tolist():
        at = next((at for at, file in enumerate(files) if i in file.rows), None)
        groups.setdefault((at, i if volumes else None), []).append(i)
    scans = dict[int, Scan]()
    for (at, _), members in groups.items():
        facts = {} if at is None else files[at].attributes.get("file", {})
        scans |= dict.fromkeys(members, _scan(bags, index, np.array(members), facts))
    return [scans[i] for i in instances.tolist()]


def _scan(bags: Bags, index: int, instances: NDArray[np.int64], facts: Mapping[str, Any]) -> Scan:
    """Return how a scan is shown, by some of its instances and the facts of its file.

    The window is that with which the data were read (scaled to 0 to 1); else, for CT, that of its file (WindowCenter
    and WindowWidth) or of soft tissue; else percentiles: one bright vessel would darken the whole scan.
    """
    view: dict[str, Any] = {"plane": str(facts.get("plane", "")), "edges": str(facts.get("edges", ""))}
    view["flat"] = bool(facts.get("flat"))
    ct, read_with = facts.get("modality") == "CT", (bags.cut or {}).get("window")
    unit = " HU" if ct else ""
    if read_with:
        text = f"{read_with[0]:g} to {read_with[1]:g}{unit}"
        return Scan((0.0, 1.0), text, "the window that the data were read with", **view)
    pixels = pixels_of(bags, index, instances)
    low, high = (float(end) for end in np.percentile(pixels, PERCENTILES))
    low, high = (low, high) if low < high else (float(pixels.min()), float(pixels.max()))
    dark, bright = (float(end) for end in facts.get("window") or SOFT_TISSUE)
    if ct and dark < high and bright > low:  # otherwise everything would be black or white
        why = "the window of its file" if facts.get("window") else "soft tissue: its file has no window"
        return Scan((dark, bright), f"{dark:g} to {bright:g} HU", why, **view)
    return Scan((low, high), f"{low:.4g} to {high:.4g}{unit}", "1st to 99th percentile of the intensities", **view)


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
    if not sliced:
        high = explanation.order[: min(top, _ENDS)]
        return np.concatenate([high, explanation.order[max(len(high), len(explanation) - min(top, _ENDS)) :]])
    ordered = (
        np.arange(len(explanation)) if explanation.several_files else np.argsort(explanation.positions, kind="stable")
    )
    instances = {int(i) for i in explanation.order[: min(top, SLICES // 2)]}
    for position in np.linspace(0, len(explanation) - 1, min(len(explanation), SLICES)).round().astype(int):
        if len(instances) < SLICES:
            instances.add(int(ordered[position]))
    return ordered[np.isin(ordered, list(instances))]


def draw_tiles(
    part: SubFigure, explanation: Explanation, pictures: Pictures, *, top: int, sliced: bool = False
) -> None:
    """Plot some instances, the top ones framed; scans with their sides, and the range from black to white."""
    bags, index, boxes = pictures
    instances, volumes = tiled(explanation, top, sliced=sliced), len(bags.instance_shape) == 4
    ranks = {int(i): rank for rank, i in enumerate(explanation.order[:top], start=1)}
    scans = scans_of(bags, index, instances, sliced=sliced)
    if sliced:
        part.suptitle(_note(scans), fontsize=8.5, color="#404040", x=0.012, ha="left")
    across = ACROSS[sliced]
    panels = list(part.subplots(math.ceil(len(instances) / across), across, squeeze=False).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes, i, scan in zip(panels, instances.tolist(), scans):
        title = _caption(explanation, i, ranks, sliced=sliced) + (f"\n{scan.shown}" if volumes else "")
        _draw_picture(axes, pictures, i, scan, title, bold=i in ranks)
        if boxes is not None:
            add_frame(axes, *(boxes[i] - [0.5, 0.5, 0, 0]).tolist())
        if i in ranks:
            color = BLUE if explanation.contribution[i] < 0 else ORANGE
            axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=color, lw=3, transform=axes.transAxes))


def _note(scans: Sequence[Scan]) -> str:
    """Return planes, sides and windows of scans, each once."""
    views, windows = (
        " / ".join(dict.fromkeys(texts)) for texts in zip(*((s.view, f"{s.why}, {s.shown}") for s in scans))
    )
    return f"{'Slices: ' if views else ''}{views}{'.' * bool(views)}\nBlack to white: {windows}.".strip()


def draw_top(part: SubFigure, explanation: Explanation, pictures: Pictures, *, sliced: bool) -> None:
    """Plot the top instances larger, and below each the map of what its parts add."""
    instances = explanation.order[:LARGE]
    scans = scans_of(pictures.bags, pictures.bag, instances, sliced=sliced)
    panels = part.subplots(2, LARGE, squeeze=False)
    note = f"{_note(scans)}\n{_PARTS}" if sliced and len(explanation) <= LARGE else _PARTS
    part.suptitle(note, fontsize=8.5, color="#404040", x=0.012, ha="left")
    most = max(float(np.abs(part_map.added).max()) for part_map in explanation.parts.values())
    scale = Normalize(-most or -1.0, most or 1.0)
    for axes in panels.flat:
        axes.set_axis_off()
    for rank, (i, scan, above, below) in enumerate(zip(instances.tolist(), scans, *panels), start=1):
        _draw_picture(above, pictures, i, scan, _caption(explanation, i, {i: rank}, sliced=sliced), bold=True)
        if i in explanation.parts:
            pixels = picture_of(pictures.bags, pictures.bag, i, scan.ends)
            below.imshow(pixels.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
            added, (rows, columns) = explanation.parts[i].added, pixels.shape[:2]
            shades = DIVERGING(np.asarray(scale(added)))
            shades[..., 3] = 0.75 * np.clip(np.abs(added) / (most or 1.0), 0, 1) ** 0.5
            below.imshow(shades, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), interpolation="bilinear")
            x, y = (at * side - 0.5 for at, side in zip(explanation.parts[i].peak, (columns, rows)))
            for color, width in (("white", 3.0), ("black", 1.4)):
                below.plot(x, y, "+", color=color, markersize=11, markeredgewidth=width)
    shown = panels[1][: len(instances)].tolist()
    bar = part.colorbar(ScalarMappable(scale, DIVERGING), ax=shown, orientation="horizontal", aspect=60, pad=0.02)
    bar.ax.xaxis.set_major_locator(MaxNLocator(4))
    bar.set_label(f"Added to the score of the bag: blue {LOWERS}, orange {RAISES}", fontsize=8.5, color=GRAY)


def _draw_picture(axes: Any, pictures: Pictures, instance: int, scan: Scan, title: str, *, bold: bool) -> None:
    """Plot a picture with its title and, of a scan, its sides."""
    axes.imshow(picture_of(pictures.bags, pictures.bag, instance, scan.ends))
    axes.set_title(title, fontsize=8, fontweight="bold" if bold else "normal", pad=3)
    for letter, (x, y, across, up) in zip(scan.edges, _SIDES):
        side = axes.text(x, y, letter, transform=axes.transAxes, color="white", fontsize=8, ha=across, va=up)
        side.set(fontweight="bold", path_effects=[withStroke(linewidth=1.8, foreground="black")])


def _caption(explanation: Explanation, instance: int, ranks: dict[int, int], *, sliced: bool) -> str:
    """Return number or file, rank, contribution, weight (if weights differ) and score of an instance."""
    file = shortened(explanation.columns["file"][instance], 22) if explanation.several_files else ""
    facts = explanation.facts(instance)
    flat = "slice_file" in facts and "position_mm" not in facts
    number = f"slice {explanation.positions[instance]:g}" if sliced and not flat else f"#{instance}"
    rank = f", rank {ranks[instance]}" if instance in ranks else ""
    added = f"adds {signed(explanation.contribution[instance], '+.2g')}"
    weight = f"weight {explanation.multiple(instance)}" if explanation.weighted else ""
    score = f"score {explanation.instances.score[instance]:.3f}"
    return "\n".join(filter(None, [file, number + rank, slice_text(facts), added, weight, score]))
