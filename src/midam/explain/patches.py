"""Where the patches of a bag lie: their size at level 0, and maps of them."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags

_SPACING_SAMPLE = 20_000


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


def stated(described: Mapping[str, Any]) -> dict[str, Any]:
    """All that the file of a bag says of itself, of its features and coordinates, in one dictionary."""
    found: dict[str, Any] = {}
    for values in _levels(described):
        found = {**values, **found}
    return found


def level0_width(described: Mapping[str, Any]) -> float | None:
    """Width of level 0 in pixels, as TRIDENT (`level0_width`) or CLAM (`level_dim`, `downsample`) state it."""
    found = stated(described)
    if "level_dim" in found and "downsample" in found:
        size, factor = pair(found["level_dim"]), pair(found["downsample"])
        return None if size is None or factor is None else size[0] * factor[0]
    width = pair(found.get("level0_width"))
    return None if width is None else width[0]


def _stated_size(described: Mapping[str, Any]) -> tuple[float, float] | None:
    found = stated(described)
    if "patch_size_level0" in found:
        return pair(found["patch_size_level0"])
    if "patch_size" in found and "downsample" in found:
        size, factor = pair(found["patch_size"]), pair(found["downsample"])
        return None if size is None or factor is None else (size[0] * factor[0], size[1] * factor[1])
    return None


def _levels(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for value in node.values():
        if isinstance(value, Mapping):
            yield from _levels(value)


def pair(value: Any) -> tuple[float, float] | None:
    """One number for both sides, or two: width, height; None for what is neither."""
    numbers = list(value) if isinstance(value, list | tuple) else [value, value]
    good = len(numbers) == 2 and all(isinstance(x, int | float) and x > 0 for x in numbers)
    return (float(numbers[0]), float(numbers[1])) if good else None


def _spacing(corners: NDArray[np.float64]) -> float:
    """Smallest distance of different x, or of different y; 1 for a single patch."""
    gaps = [np.diff(np.unique(corners[:_SPACING_SAMPLE, axis])) for axis in (0, 1)]
    found = [gap.min() for gap in gaps if len(gap)]
    return float(max(found)) if found else 1.0
