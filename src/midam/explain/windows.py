"""Which intensities of a scan are drawn black and white: its window, in the words of the caption."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bag_files import BagFile, files_of
from midam.data.bags import Bags

Window = tuple[float, float]
PERCENTILES = (1.0, 99.0)
SOFT_TISSUE = (-160.0, 240.0)  # HU, for a CT that asks for no window


class ScanWindow(NamedTuple):
    """Intensities that are drawn black and white."""

    ends: tuple[float, float]  # as the instances hold them
    shown: str  # as the scan holds them, with their unit
    why: str  # where they are from


def scan_windows(bags: Bags, index: int, groups: Sequence[NDArray[np.int64]]) -> list[ScanWindow]:
    """Window of each scan of a bag, of which some instances are given: of all its scans, in their order.

    It is the window that the data were read with, which made them 0 to 1; else of a CT the one that its files ask for
    (WindowCenter and WindowWidth), or that of soft tissue; else the 1st to the 99th percentile.
    """
    files = files_of(bags, index)
    said = [_of_file(file) for file in files] if len(files) == len(groups) else [{}] * len(groups)
    return [_window(bags, index, instances, own) for instances, own in zip(groups, said, strict=True)]


def scan_window(bags: Bags, index: int, instance: int) -> ScanWindow:
    """Window of a scan that is one instance, as of `scan_windows`."""
    file = next((file for file in files_of(bags, index) if instance in file.rows), None)
    return _window(bags, index, np.array([instance]), {} if file is None else _of_file(file))


def window_text(windows: Sequence[ScanWindow]) -> str:
    """Windows of the scans of a bag in a line, those of one kind together."""
    kinds: dict[str, list[str]] = {}
    for one in windows:
        shown = kinds.setdefault(one.why, [])
        shown += [] if one.why != _PERCENTILES and one.shown in shown else [one.shown]
    parts = []
    for why, shown in kinds.items():
        of = f"{why} of the intensities" + (" of each scan" if len(windows) > 1 else "")
        parts.append(f"{of}, {'; '.join(shown)}" if why == _PERCENTILES else f"{' / '.join(shown)} ({why})")
    return "; ".join(parts)


def window_of(bags: Bags, index: int, instances: NDArray[np.int64], *, percentiles: bool) -> Window:
    """Intensities that are drawn black and white, for all instances alike: the least and the greatest of these.

    With `percentiles` the 1st and the 99th, where they differ: one bright vessel of a scan would darken all else.
    """
    pixels = pixels_of(bags, index, instances)
    low, high = (float(x) for x in np.percentile(pixels, PERCENTILES))
    return (low, high) if percentiles and low < high else (float(pixels.min()), float(pixels.max()))


def pixels_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> NDArray[Any]:
    """Instances of a bag that are pictures as [m, C, H, W], of 3-D ones the middle slice."""
    pixels = bags.gather(int(bags.starts[index]) + instances)
    if pixels.ndim == 3:  # [m, H, W]
        pixels = pixels[:, None]
    if pixels.ndim == 5:  # [m, C, D, H, W]
        pixels = pixels[:, :, pixels.shape[2] // 2]
    return pixels


def _of_file(file: BagFile) -> dict[str, Any]:
    return dict(file.said.get("file", {}))


_PERCENTILES = "{:g}st to {:g}th percentile".format(*PERCENTILES)


def _window(bags: Bags, index: int, instances: NDArray[np.int64], said: Mapping[str, Any]) -> ScanWindow:
    ct, read_with = said.get("modality") == "CT", (bags.cut or {}).get("window")
    unit = " HU" if ct else ""
    if read_with:
        shown = f"{read_with[0]:g} to {read_with[1]:g}{unit}"
        return ScanWindow((0.0, 1.0), shown, "the window that the data were read with")
    low, high = window_of(bags, index, instances, percentiles=True)
    if ct:
        asked = said.get("window")
        dark, bright = (float(end) for end in asked or SOFT_TISSUE)
        if dark < high and bright > low:  # else all of it would be black, or white
            why = "the window that its files ask for" if asked else "soft tissue: its files ask for no window"
            return ScanWindow((dark, bright), f"{dark:g} to {bright:g} HU", why)
    return ScanWindow((low, high), f"{low:.4g} to {high:.4g}{unit}", _PERCENTILES)
