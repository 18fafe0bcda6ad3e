"""Labels of instances from masks and annotations of their images, slides or scans.

A mask is a PNG, JPEG or TIFF of the whole image, in which every pixel above 0 is marked; on a slide it may be smaller,
if the file states the width of level 0. An annotation is a GeoJSON of polygons in pixels of level 0, as QuPath and
`midam explain` write them. Both are named like the file of the patches, or like the bag. For slices and tables see
`midam.explain.slice_marks`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_name
from midam.errors import BagDataError, DataNotFoundError, path_of
from midam.explain.patches import Patches, patches_of
from midam.explain.slice_marks import IMAGES, label_by_table, slice_labels
from midam.imaging.images import read_pixels
from midam.reading import parse_json, read_text

_ANNOTATIONS = (".geojson", ".json")
_MASKS = (*IMAGES, *_ANNOTATIONS)
_SHARE = 0.1
_FINE = 16  # cells of a raster across a patch
_ALIKE = 0.02  # relative difference of two scales


def label_by_masks(bags: Bags, folder: str | Path, *, share: float = _SHARE) -> Bags:
    """Return bags with labels of instances: 1 for a patch of which at least a share of the area is marked, else 0.

    A slice of a scan is 1 if any of it is marked, see `midam.explain.slice_marks`. Instances of a file without a mask
    are unknown, but 0 if the label of their bag is 0. Labels of instances evaluate
    explanations, and are never used in training.

    Parameters
    ----------
    bags : Bags
        Patches with coordinates, such as those of images, slides or feature files; or slices of scans.
    folder : str or Path
        Folder of the masks and annotations, see `midam.explain.annotations`; or a table of marked instances.
    share : float
        Share of the area of a patch, in (0, 1].

    Raises
    ------
    DataNotFoundError, BagDataError
        If there is no such folder, or no mask for any bag; if a mask cannot be read, or does not fit its image.
    """
    folder = path_of(folder, "a folder of masks")
    if folder.is_file():
        return label_by_table(bags, folder)
    if not folder.is_dir():
        raise DataNotFoundError(f"Expected a folder of masks, got none (in {folder}); name the right one.")
    files = {file_name(path): path for path in sorted(folder.iterdir()) if path.suffix.lower() in _MASKS}
    labels, masks = np.full(len(bags.instances), np.nan, np.float32), 0
    for index in range(len(bags)):
        start, size = int(bags.starts[index]), int(bags.sizes[index])
        if bags.labels is not None and bags.labels[index] == 0:
            labels[start : start + size] = 0
        slices = slice_labels(bags, index, folder)
        if slices is not None:
            masks += 1
            labels[start : start + size] = np.where(np.isnan(slices), labels[start : start + size], slices)
            continue
        for patches in patches_of(bags, index):
            path = files.get(patches.file.stem if patches.file is not None else "", files.get(str(bags.ids[index])))
            if path is not None:
                masks += 1
                instances = np.arange(size) if patches.instances is None else patches.instances
                labels[start + instances] = _marked(patches, path) >= share
    if not masks:
        raise BagDataError(
            f"Expected masks of patches or slices, named like the files or bags, such as {bags.ids[0]}.png, "
            f"{bags.ids[0]}.geojson or {bags.ids[0]}.nii.gz, got none (in {folder}); name them so."
        )
    return bags.replace(instance_labels=labels)


def _marked(patches: Patches, path: Path) -> NDArray[np.float64]:
    """Return the share of the area of each patch that is marked, [k]."""
    if path.suffix.lower() in _ANNOTATIONS:
        scale = max(1.0, min(patches.width, patches.height) / _FINE)
        mask = _raster(path, patches.extent, scale)
    else:
        mask = np.asarray((read_pixels(path) > 0).any(axis=0))
        scale = _scale_of(patches, mask.shape, path)
    sides = np.rint(patches.sides / scale).astype(np.int64)
    left, top, right, low = (sides[:, at].clip(0, mask.shape[1 - at % 2]) for at in range(4))
    sums = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), np.int64)
    sums[1:, 1:] = mask.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    counts = sums[low, right] - sums[top, right] - sums[low, left] + sums[top, left]
    return np.asarray(counts / np.maximum((low - top) * (right - left), 1))


def _scale_of(patches: Patches, shape: tuple[int, ...], path: Path) -> float:
    """Return how many pixels of level 0 a pixel of a mask has across."""
    known: Mapping[str, Any] = {} if patches.file is None else patches.file.attributes.get("coords", {})
    width, height = (known.get(f"level0_{side}") for side in ("width", "height"))
    right, low = patches.extent
    if width is not None and height is not None:
        scales = float(width) / shape[1], float(height) / shape[0]
        if abs(scales[0] - scales[1]) <= _ALIKE * scales[0]:
            return scales[0]
    elif right <= shape[1] and low <= shape[0]:
        return 1.0
    size = f"{width} x {height}" if width is not None else f"at least {right:.0f} x {low:.0f}"
    raise BagDataError(
        f"Expected a mask of the whole image, {size} pixels or smaller in proportion, got {shape[1]} x {shape[0]} (in "
        f"{path}); write it in the proportions of the image."
    )


def _raster(path: Path, extent: tuple[float, float], scale: float) -> NDArray[np.bool_]:
    """Draw the polygons of a GeoJSON, with one cell for `scale` pixels of level 0."""
    from PIL import Image, ImageDraw

    width, height = (int(np.ceil(side / scale)) for side in extent)
    image = Image.new("1", (width, height))
    draw = ImageDraw.Draw(image)
    for rings in _polygons(path):
        for number, ring in enumerate(rings):  # the first is the outline, the others are holes
            points = [(float(x) / scale, float(y) / scale) for x, y in ring]
            draw.polygon(points, fill=int(number == 0), outline=int(number == 0))
    return np.asarray(image, dtype=np.bool_)


def _polygons(path: Path) -> Iterator[list[NDArray[np.float64]]]:
    """Yield the rings of each polygon of a GeoJSON, [n, 2] each."""
    try:
        content = parse_json(read_text(path, error=BagDataError))
        features = content if isinstance(content, list) else content.get("features", [content])
        for feature in features:
            shape = feature.get("geometry", feature)
            parts = {"Polygon": [shape["coordinates"]], "MultiPolygon": shape["coordinates"]}.get(shape["type"], [])
            for rings in parts:
                arrays = [np.array(ring, dtype=np.float64)[:, :2] for ring in rings]
                if any(len(ring) < 3 or not np.isfinite(ring).all() for ring in arrays):
                    raise ValueError("a ring of fewer than three points")
                yield arrays
    except BagDataError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise BagDataError(
            f"Expected a GeoJSON of polygons in pixels of level 0, got something else (in {path}); export it again."
        ) from None
