"""How instances that are pictures are shown: their pixels, black and white of a scan, and which side is left."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bag_files import files_of
from midam.data.bags import Bags
from midam.explain.backdrop import as_rgb

Window = tuple[float, float]
PERCENTILES = (1.0, 99.0)
_PERCENTILES = "{:g}st to {:g}th percentile".format(*PERCENTILES)
SOFT_TISSUE = (-160.0, 240.0)  # HU, for a CT whose files name no window


class ScanWindow(NamedTuple):
    """Range of intensities that is plotted from black to white."""

    ends: tuple[float, float]  # in the values of the instances
    shown: str  # in the values of the scan, with unit
    why: str  # source of the range


def scan_window(bags: Bags, index: int, instances: NDArray[np.int64]) -> ScanWindow:
    """Return the window of a scan of a bag, given some of its instances.

    It is the window with which the data were read (scaled to 0 to 1); else, for CT, the window in its files
    (WindowCenter and WindowWidth) or the soft-tissue window; else the 1st to the 99th percentile.
    """
    file = next((file for file in files_of(bags, index) if int(instances[0]) in file.rows), None)
    attributes: dict[str, Any] = {} if file is None else dict(file.attributes.get("file", {}))
    ct, read_with = attributes.get("modality") == "CT", (bags.cut or {}).get("window")
    unit = " HU" if ct else ""
    if read_with:
        text = f"{read_with[0]:g} to {read_with[1]:g}{unit}"
        return ScanWindow((0.0, 1.0), text, "the window that the data were read with")
    low, high = window_of(bags, index, instances, percentiles=True)
    if ct:
        requested = attributes.get("window")
        dark, bright = (float(end) for end in requested or SOFT_TISSUE)
        if dark < high and bright > low:  # otherwise everything would be black or white
            why = "the window that its files state" if requested else "soft tissue: its files state no window"
            return ScanWindow((dark, bright), f"{dark:g} to {bright:g} HU", why)
    return ScanWindow((low, high), f"{low:.4g} to {high:.4g}{unit}", _PERCENTILES)


def window_text(windows: Sequence[ScanWindow]) -> str:
    """Return a line on the windows of the scans of a bag, grouped by source."""
    kinds: dict[str, list[str]] = {}
    for window in windows:
        ranges = kinds.setdefault(window.why, [])
        ranges += [] if window.why != _PERCENTILES and window.shown in ranges else [window.shown]
    parts = []
    for why, ranges in kinds.items():
        text = f"{why} of the intensities" + (" of each scan" if len(windows) > 1 else "")
        parts.append(f"{text}, {'; '.join(ranges)}" if why == _PERCENTILES else f"{' / '.join(ranges)} ({why})")
    return "; ".join(parts)


def window_of(bags: Bags, index: int, instances: NDArray[np.int64], *, percentiles: bool) -> Window:
    """Return the intensities of black and white for all instances: the minimum and the maximum.

    With `percentiles`, the 1st and 99th if they differ: one bright vessel would otherwise darken the whole scan.
    """
    pixels = pixels_of(bags, index, instances)
    low, high = (float(x) for x in np.percentile(pixels, PERCENTILES))
    return (low, high) if percentiles and low < high else (float(pixels.min()), float(pixels.max()))


def pixels_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> NDArray[Any]:
    """Return instances that are pictures as [m, C, H, W]; of a volume, the middle slice."""
    pixels = bags.gather(int(bags.starts[index]) + instances)
    if pixels.ndim == 3:  # [m, H, W]
        pixels = pixels[:, None]
    if pixels.ndim == 5:  # [m, C, D, H, W]
        pixels = pixels[:, :, pixels.shape[2] // 2]
    return pixels


def pictures_of(bags: Bags, index: int, instances: NDArray[np.int64], window: Window) -> list[NDArray[np.uint8]]:
    """Return instances of a bag as [H, W, 3], of a volume the middle slice; uint8 colors stay unchanged."""
    pixels = pixels_of(bags, index, instances)
    if pixels.dtype == np.uint8 and pixels.shape[1] == 3:
        return [as_rgb(image) for image in pixels]
    return [as_rgb(image, low=window[0], high=window[1]) for image in pixels]


_UNKNOWN = "the files do not say which side is left"


class View(NamedTuple):
    """Geometry of a slice from the file of its scan."""

    plane: str = ""  # such as "axial"; empty if unknown
    edges: str = ""  # letters of the sides at left, right, upper and lower edge, such as RLAP


def views_of(bags: Bags, index: int, count: int) -> list[View]:
    """Return the view of each of `count` scans of a bag in their order; an empty view if the files do not state it."""
    attributes: list[dict[str, Any]] = [facts.get("file", {}) for facts in bags.described(index).values()]
    views = [View(str(facts.get("plane", "")), str(facts.get("edges", ""))) for facts in attributes]
    if len(views) != count:  # files of the same name in several folders
        views = [views[0] if len(set(views)) == 1 else View()] * count
    return views


def view_text(view: View) -> str:
    """Return plane and convention in words.

    Examples
    --------
    >>> view_text(View("axial", "RLAP"))
    "axial, radiological convention: the patient's right (R) is at the left"
    >>> view_text(View("sagittal", "APSI"))
    'sagittal, front of the patient (A) at the left'
    >>> view_text(View())
    'the files do not say which side is left'
    """
    conventions = {
        "R": "radiological convention: the patient's right (R) is at the left",
        "L": "the patient's left (L) is at the left, against the radiological convention",
        "A": "front of the patient (A) at the left",
        "P": "back of the patient (P) at the left",
        "S": "head of the patient (S) at the left",
        "I": "feet of the patient (I) at the left",
    }
    parts = [view.plane, conventions[view.edges[0]] if view.edges else _UNKNOWN]
    return ", ".join(part for part in parts if part)
