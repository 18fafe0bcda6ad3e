"""Instances that are pictures as tiles: their pixels, black and white of a scan, and which side is left."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from midam.data.bag_files import files_of
from midam.data.bags import Bags
from midam.explain.explanation import Explanation, slice_text
from midam.report.figures import BLUE, ORANGE
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
ACROSS = 8  # tiles in a row
SLICES, _ENDS = 12, 32  # most slices that are shown, and most instances of each end of the ranking
_SIDES: tuple[tuple[float, float, str, str], ...] = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
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

    @property
    def view(self) -> str:
        """Plane and convention in words."""
        return ", ".join(filter(None, [self.plane, _CONVENTIONS[self.edges[:1]]]))


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
    view = {"plane": str(facts.get("plane", "")), "edges": str(facts.get("edges", ""))}
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
    panels = list(part.subplots(math.ceil(len(instances) / ACROSS), ACROSS, squeeze=False).flat)
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
    number = f"slice {explanation.positions[instance]:g}" if sliced else f"#{instance}"
    rank = f", rank {ranks[instance]}" if instance in ranks else ""
    added = f"adds {signed(explanation.contribution[instance], '+.2g')}"
    weight = f"weight {explanation.multiple(instance)}" if explanation.weighted else ""
    score = f"score {explanation.instances.score[instance]:.3f}"
    return "\n".join(filter(None, [file, number + rank, slice_text(explanation.facts(instance)), added, weight, score]))
