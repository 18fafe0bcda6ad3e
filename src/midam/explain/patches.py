"""Where the patches of a bag lie: their size at level 0, maps of them, and the image that they were cut from."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.formats.images import ImageReader, read_pixels
from midam.data.sources.formats.openslide_pyramid import is_pyramid, open_pyramid
from midam.data.sources.formats.slides import SlideReader, TiffReader
from midam.errors import MidamError

_SPACING_SAMPLE = 20_000
MAX_SIDE = 1600


@dataclass(frozen=True)
class Patches:
    """Patches of one image, in pixels of level 0."""

    corners: NDArray[np.float64]  # [n, 2], x and y of the upper left ones
    width: float
    height: float
    estimated: bool  # nothing states the size: it is the smallest distance of two patches in a row

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and lower side of each, [n, 4]."""
        return np.concatenate([self.corners, self.corners + np.array([self.width, self.height])], axis=1)

    @property
    def extent(self) -> tuple[float, float]:
        """Largest x and y that a patch covers."""
        right, low = self.sides[:, 2:].max(axis=0)
        return float(right), float(low)


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether an instance can be looked at: [H, W], [C, H, W] or [C, D, H, W], and no side of 1.

    Examples
    --------
    >>> is_picture((3, 32, 32)), is_picture((64,)), is_picture((1, 1, 64))
    (True, False, False)
    """
    return len(shape) in (2, 3, 4) and min(shape[-2:]) > 1


def has_pixels(bags: Bags) -> bool:
    """Whether the coordinates are x and y in pixels: two or more whole numbers. A slice of a volume has one index."""
    return bags.coords is not None and bags.coords.shape[1] >= 2 and bags.coords.dtype.kind in "iu"


def files_of(bags: Bags, index: int) -> list[Path]:
    """Files that a bag was read from; none where that is unknown."""
    return [] if bags.sources is None else [Path(part) for part in str(bags.sources[index]).split("; ")]


def patches_of(bags: Bags, index: int) -> Patches | None:
    """Patches of a bag whose coordinates are pixels of one image; None for any other.

    The size is `patch_size_level0`, else `patch_size` times `downsample`, of what the file says of itself; else that of
    the instances; else an estimate. Coordinates that a table gives as fractions are not taken for pixels.
    """
    places = bags.places(index) if has_pixels(bags) and len(files_of(bags, index)) <= 1 else None
    if places is None:
        return None
    corners = places[:, :2].astype(np.float64)
    size = _stated_size(bags.described(index))
    if size is None and is_picture(bags.instance_shape):
        size = float(bags.instance_shape[-1]), float(bags.instance_shape[-2])
    width, height = size or 2 * (_spacing(corners),)
    return Patches(corners, width, height, estimated=size is None)


def rasterize(patches: Patches, values: NDArray[Any], *, shape: tuple[int, int], scale: float) -> NDArray[np.float64]:
    """Map of values [n], one a patch: the mean over the patches that cover a pixel, NaN where there is none.

    The map has `shape` rows and columns, and `scale` of its pixels for a pixel of level 0.
    """
    rows, columns = shape
    left, top, right, low = np.rint(patches.sides * scale).astype(np.int64).T
    left, top = np.clip(left, 0, columns - 1), np.clip(top, 0, rows - 1)
    # A patch is at least one pixel of the map: rounding must not lose it.
    right, low = np.clip(right, left + 1, columns), np.clip(low, top + 1, rows)
    # Each patch as its four corners, then summed up along both axes: no loop over patches or their pixels.
    sums, counts = np.zeros((rows + 1, columns + 1)), np.zeros((rows + 1, columns + 1))
    for y, x, sign in ((top, left, 1.0), (top, right, -1.0), (low, left, -1.0), (low, right, 1.0)):
        np.add.at(sums, (y, x), sign * values.astype(np.float64))
        np.add.at(counts, (y, x), sign)
    total, count = (x.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] for x in (sums, counts))
    covered = np.rint(count)
    return np.where(covered > 0, total / np.maximum(covered, 1), np.nan)


def warn_of_estimate(patches: Patches, bag: str) -> None:
    """Say that nothing states the size of the patches."""
    if patches.estimated:
        taken = f"{patches.width:g} pixels, the smallest distance between two, is taken"
        warnings.warn(f"nothing states the size of the patches (bag {bag}): {taken}", UserWarning, stacklevel=3)


def _stated_size(described: Mapping[str, Any]) -> tuple[float, float] | None:
    found: dict[str, Any] = {}
    for values in _levels(described):
        found = {**values, **found}
    if "patch_size_level0" in found:
        return _pair(found["patch_size_level0"])
    if "patch_size" in found and "downsample" in found:
        size, factor = _pair(found["patch_size"]), _pair(found["downsample"])
        return None if size is None or factor is None else (size[0] * factor[0], size[1] * factor[1])
    return None


def _levels(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for value in node.values():
        if isinstance(value, Mapping):
            yield from _levels(value)


def _pair(value: Any) -> tuple[float, float] | None:
    """One number for both sides, or two: width, height."""
    numbers = list(value) if isinstance(value, list | tuple) else [value, value]
    good = len(numbers) == 2 and all(isinstance(x, int | float) and x > 0 for x in numbers)
    return (float(numbers[0]), float(numbers[1])) if good else None


def _spacing(corners: NDArray[np.float64]) -> float:
    """Smallest distance of different x, or of different y; 1 for a single patch."""
    gaps = [np.diff(np.unique(corners[:_SPACING_SAMPLE, axis])) for axis in (0, 1)]
    found = [gap.min() for gap in gaps if len(gap)]
    return float(max(found)) if found else 1.0


@dataclass(frozen=True)
class Backdrop:
    """A small copy of an image."""

    pixels: NDArray[np.uint8]  # [rows, columns, 3]
    scale: float  # its pixels for a pixel of level 0


def read_backdrop(path: Path) -> Backdrop | None:
    """Small copy of an image or a slide, at most 1600 pixels a side; None where the file is none, or cannot be read.

    What should be there and cannot be drawn is warned of, by name.
    """
    suffix = path.suffix.lower()
    if suffix not in (*ImageReader.suffixes, *TiffReader.suffixes, *SlideReader.suffixes):
        return None
    reason = "it is not there any more"
    if path.exists():
        try:
            slide = suffix in SlideReader.suffixes or (suffix in TiffReader.suffixes and is_pyramid(path))
            return _thumbnail(path) if slide else _shrunk(as_rgb(read_pixels(path)))
        except MidamError as error:
            reason = str(error)
    warnings.warn(f"the image {path} is left out of the picture: {reason}", UserWarning, stacklevel=3)
    return None


def as_rgb(pixels: NDArray[Any], *, low: float | None = None, high: float | None = None) -> NDArray[np.uint8]:
    """Pixels [C, H, W] as [H, W, 3] of uint8; of other than three channels the first, in gray.

    Values are stretched from `low` to `high`, by default the least and the greatest; uint8 only where both are given.

    Examples
    --------
    >>> as_rgb(np.array([[[0.0, 0.5, 1.0]]]))[0, :, 0].tolist()
    [0, 127, 255]
    """
    chosen = pixels if len(pixels) == 3 else pixels[:1]
    if chosen.dtype != np.uint8 or (low is not None and high is not None):
        values = chosen.astype(np.float64)
        low = float(values.min()) if low is None else low
        high = float(values.max()) if high is None else high
        chosen = (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(chosen, (3, *chosen.shape[1:])).transpose(1, 2, 0))


def _shrunk(pixels: NDArray[np.uint8]) -> Backdrop:
    from PIL import Image  # noqa: PLC0415

    full = max(pixels.shape[:2])
    if full <= MAX_SIDE:
        return Backdrop(pixels, 1.0)
    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return Backdrop(np.asarray(image), max(image.size) / full)


def _thumbnail(path: Path) -> Backdrop:
    slide = open_pyramid(path)
    pixels = slide.thumbnail(MAX_SIDE)
    return Backdrop(pixels, max(pixels.shape[:2]) / max(slide.sizes[0]))
