"""Positions and sizes of the patches of a bag on its slides at level 0, and maps of patches."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from midam.data.bags import Bags
from midam.data.sources.file_rows import BagFile, files_of, source_paths

_SPACING_SAMPLE = 20_000
_FARTHEST = 2.0**31  # pixels from the corner: no slide is as wide, so farther coordinates are invalid
_WHOLE = 1e-3  # in pixels: tolerance for whole numbers that were stored as float32
_MICROMETERS = ("um", "\u00b5m", "\u03bcm", "micron", "microns", "micrometer", "micrometers")


@dataclass(frozen=True)
class SlideFacts:
    """Scale and bounds of a slide: micrometers per pixel of level 0, and the corner of the scanned area."""

    micrometers: float | None = None
    corner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Patches:
    """Patches of one slide in pixels of level 0, or in micrometers if the size of a pixel is unknown."""

    corners: NDArray[np.float64]  # [k, 2], x and y of the upper left corners
    width: float
    height: float
    estimated: bool  # the size is not stated: the usual distance of two patches is used
    instances: NDArray[np.int64]  # [k], positions in the bag
    file: BagFile | None = None  # file of the patches, if known
    number: int = 0  # of the file in the bag
    in_pixels: bool = True
    corner: tuple[int, int] = (0, 0)  # origin of coordinates in viewers, see `midam.explain.geojson`
    level0: tuple[float, float | None] | None = None  # width and height of level 0, if the file states them

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and bottom of each patch, [k, 4]."""
        return np.concatenate([self.corners, self.corners + np.array([self.width, self.height])], axis=1)

    @property
    def extent(self) -> tuple[float, float]:
        """Largest x and y that a patch covers, at least 1."""
        right, low = self.sides[:, 2:].max(axis=0)
        return max(1.0, float(right)), max(1.0, float(low))

    def scale_on(self, shape: tuple[int, ...], scale: float = 1.0) -> float | None:
        """Return the pixels of an image of the whole slide, [rows, columns], for a pixel of level 0; None if unknown.

        Without the width of level 0 it is `scale`, if the image then holds all patches, up to a pixel if it is reduced.
        """
        if self.level0 is not None:
            return shape[1] / self.level0[0]
        right, low = (side * scale - (scale < 1) for side in self.extent)
        return scale if right <= shape[1] and low <= shape[0] else None

    def ranked(
        self, order: NDArray[np.int64], *, top: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ranks from 1 and indices of the patches, given the bag's `order`; of its `top` instances only."""
        place = np.full(len(order), -1)
        place[self.instances] = np.arange(len(self.corners))
        places = place[order[:top]]
        return np.flatnonzero(places >= 0) + 1, places[places >= 0]


def is_picture(shape: tuple[int, ...]) -> bool:
    """Return whether an instance can be shown: [H, W], [C, H, W] or [C, D, H, W], without a side of 1.

    Examples
    --------
    >>> is_picture((3, 32, 32)), is_picture((64,)), is_picture((1, 1, 64))
    (True, False, False)
    """
    return len(shape) in (2, 3, 4) and min(shape[-2:]) > 1


def patches_of(
    bags: Bags, index: int, slide_of: Callable[[BagFile | None], SlideFacts] = lambda _: SlideFacts()
) -> list[Patches]:
    """Return the patches of a bag, one entry for each slide; empty for a bag without coordinates.

    The size is stated in the file as `patch_size_level0`, as `patch_size` with `downsample`, or as `tile_size_um`
    (STAMP), with the micrometers per pixel from `slide_of`; else it is the size of the instances, or an estimate.
    Warnings name patches without coordinates, with the reason.
    """
    files, places = files_of(bags, index), bags.places(index)
    if places is None or bags.coords is None or bags.coords.shape[1] < 2:
        sliced = "slice_size" in (bags.cut or {})
        if not is_picture(bags.instance_shape) and bags.sources is not None and not sliced:
            _warn("no map and no GeoJSON: the files hold no x and y")
        return []
    if not files and len(paths := source_paths(bags, index)) > 1:
        _warn(f"no map and no GeoJSON: the file of each instance is unknown ({len(paths)} files)")
        return []
    patches, unplaced = list[Patches](), 0
    shape = bags.instance_shape if is_picture(bags.instance_shape) else None
    parts: list[BagFile | None] = [*files] or [None]
    for number, file in enumerate(parts):
        rows, meta = (range(len(places)), bags.described(index)) if file is None else (file.rows, file.attributes)
        xy = np.asarray(places[rows.start : rows.stop, :2], dtype=np.float64)
        placed = (np.abs(xy) < _FARTHEST).all(axis=1)  # not if one is NaN
        unplaced += int((~placed).sum())
        if placed.any():
            made = _geometry(xy[placed], stated(meta), shape, slide_of(file))
            if isinstance(made, str):
                _warn(f"no map and no GeoJSON: {made} ({'the bag' if file is None else file.name})")
            else:
                patches.append(Patches(**made, instances=rows.start + np.flatnonzero(placed), file=file, number=number))
    if unplaced:
        text = "the map leaves out instances whose coordinates are NaN, infinite, or beyond any slide"
        _warn(f"{text} ({unplaced} of {len(places)})")
    return patches


def _geometry(
    xy: NDArray[np.float64], known: Mapping[str, Any], shape: tuple[int, ...] | None, slide: SlideFacts
) -> dict[str, Any] | str:
    """Return the facts about the patches of a file at x and y [k, 2], or why they cannot be drawn.

    The file has the attributes `known`. The unit is micrometers in files of STAMP.
    """
    size = pair(known.get("tile_size_um"))
    in_pixels = size is None and str(known.get("unit", "")).lower() not in _MICROMETERS
    scale = 1.0 if in_pixels or slide.micrometers is None else slide.micrometers  # micrometers for a unit of the map
    if not in_pixels:
        size = size or pair(known.get("tile_size"))
    elif (size := _stated_size(known)) is None:
        if (np.abs(xy - np.rint(xy)) > _WHOLE).any():
            return "coordinates are not whole numbers, and their unit is unknown"
        size = None if shape is None else (float(shape[-1]), float(shape[-2]))
    corners = xy / scale
    width, height = 2 * (_spacing(corners),) if size is None else (size[0] / scale, size[1] / scale)
    noted = int(known.get("corner_x", 0)), int(known.get("corner_y", 0))  # when it was read
    return {
        **{"corners": corners, "width": width, "height": height, "estimated": size is None},
        **{"in_pixels": in_pixels or slide.micrometers is not None, "level0": _level0(known)},
        "corner": slide.corner if any(slide.corner) else noted,
    }


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def rasterize(patches: Patches, values: NDArray[Any], *, shape: tuple[int, int], scale: float) -> NDArray[np.float64]:
    """Return the map of values [k] of patches: the mean over the patches that cover a pixel, NaN without a patch.

    The map has `shape` rows and columns, and `scale` of its pixels for a pixel of level 0.
    """
    rows, columns = shape
    left, top, right, low = np.rint(patches.sides * scale).astype(np.int64).T
    left, top = np.clip(left, 0, columns - 1), np.clip(top, 0, rows - 1)
    # A patch covers at least one pixel of the map, so that rounding does not lose it.
    right, low = np.clip(right, left + 1, columns), np.clip(low, top + 1, rows)
    # Add each patch at its four corners, then sum along both axes: no loop over patches or pixels.
    sums, counts = np.zeros((rows + 1, columns + 1)), np.zeros((rows + 1, columns + 1))
    for y, x, sign in ((top, left, 1.0), (top, right, -1.0), (low, left, -1.0), (low, right, 1.0)):
        np.add.at(sums, (y, x), sign * values.astype(np.float64))
        np.add.at(counts, (y, x), sign)
    total, count = (x.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] for x in (sums, counts))
    covered = np.rint(count)
    return np.where(covered > 0, total / np.maximum(covered, 1), np.nan)


def warn_of_unknown(patches: Patches) -> None:
    """Warn if the size of the patches or the micrometers per pixel are unknown."""
    unit = "pixels" if patches.in_pixels else "micrometers"
    if patches.estimated:
        estimate = f"the usual distance between two, {patches.width:g} {unit}"
        warnings.warn(f"the size of the patches is unknown, and is estimated ({estimate})", stacklevel=3)
    if not patches.in_pixels:
        text = "no GeoJSON: coordinates are in micrometers; name the folder of the slides with --images"
        warnings.warn(text + ("" if patches.file is None else f" ({patches.file.name})"), stacklevel=3)


def stated(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a bag's file, of its features and of its coordinates in one dictionary."""
    attributes = dict(described)
    for value in described.values():
        if isinstance(value, Mapping):
            attributes = {**stated(value), **attributes}
    return attributes


def _level0(attributes: Mapping[str, Any]) -> tuple[float, float | None] | None:
    """Return the size of level 0 in pixels from TRIDENT (`level0_width`) or CLAM (`level_dim`, `downsample`) files."""
    width, height = (pair(attributes.get(f"level0_{side}")) for side in ("width", "height"))
    return _at_level0(attributes, "level_dim") or (width and (width[0], height[0] if height else None))


def _stated_size(attributes: Mapping[str, Any]) -> tuple[float, float] | None:
    return pair(attributes.get("patch_size_level0")) or _at_level0(attributes, "patch_size")


def _at_level0(attributes: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return width and height in pixels of level 0, from a size at another level and its `downsample`."""
    size, factor = pair(attributes.get(name)), pair(attributes.get("downsample"))
    return None if size is None or factor is None else (size[0] * factor[0], size[1] * factor[1])


def pair(value: Any) -> tuple[float, float] | None:
    """Return width and height of one number or of two; None for any other value."""
    numbers = list(value) if isinstance(value, list | tuple) else [value, value]
    good = len(numbers) == 2 and all(isinstance(x, int | float) and x > 0 for x in numbers)
    return (float(numbers[0]), float(numbers[1])) if good else None


def _spacing(corners: NDArray[np.float64]) -> float:
    """Return the distance of most patches to their nearest one, else the smallest; 1 for a single patch.

    The grids of the contours of a slide, as CLAM cuts them, lie at any distance.
    """
    places = np.unique(corners[:_SPACING_SAMPLE], axis=0)
    if len(places) == 1:
        return 1.0
    nearest = cKDTree(places).query(places, k=2, p=np.inf)[0][:, 1].round(3)
    distances, counts = np.unique(nearest, return_counts=True)
    return float(distances[counts.argmax() if 2 * counts.max() >= len(places) else 0])
