"""Labels of instances from masks and annotations of their images, slides or scans, or from a table.

A mask is a PNG, JPEG or TIFF of the whole image, in which every pixel above 0 is marked; on a slide it may be smaller,
if the file states the width of level 0. An annotation is a GeoJSON of polygons in pixels of level 0, as QuPath and
`midam explain` write them. Both are named like the file of the patches, or like the bag.

A label volume is a NIfTI file with the slices of a scan, named like its file or the bag: a slice is positive if it
holds a voxel above 0. A mask may also be named BAG/FILE; it belongs to one bag.

A table (CSV, TSV or Excel) has a row for each marked instance, with the column ``bag`` and columns that name the
instance as the CSV of `midam explain` does: ``instance`` (its number), ``instance_number``, ``slice_index``,
``slice_file`` and more. With ``first`` and ``last``, a row marks all instances with these numbers and between. A column
of labels that holds 0 is refused; others, such as the sides of a box, are ignored.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_name
from midam.data.sources.file_rows import SLICE_COLUMNS, SLICES, BagFile, files_of, instance_columns
from midam.data.sources.table_columns import is_label_like
from midam.data.sources.table_files import read_names
from midam.errors import BagDataError, Note, listed, path_of, plural
from midam.explain.patches import Patches, patches_of
from midam.imaging.images import covered, read_pixels
from midam.imaging.volumes import PLANES, read_volume
from midam.lazy_imports import pandas as pd
from midam.reading import parse_json, read_text

_ANNOTATIONS = (".geojson", ".json")
_MASKS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *_ANNOTATIONS)
_VOLUMES, _SPAN = (".nii", ".nii.gz"), ("first", "last")
_FINE, _ALIKE = 16, 0.02  # cells of a raster across a patch; relative difference of two scales
_TINY = 1e-6  # of a pixel, for rounding


def label_by_masks(bags: Bags, folder: str | Path, *, share: float = 0.1) -> Bags:
    """Return bags with labels of instances: 1 for a patch of which at least a share of the area is marked, else 0.

    A slice of a scan is 1 if any of it is marked. Instances of a file without a mask are unknown, but 0 if the label of
    their bag is 0. Labels of instances evaluate explanations, and are never used in training.

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
    BagDataError
        If there is no such folder, or no mask for any bag; if a mask cannot be read, or does not fit its image.
    """
    folder = path_of(folder, "a folder of masks")
    labels = np.full(len(bags.instances), np.nan, np.float32)
    if bags.labels is not None:
        labels[bags.rows()] = np.repeat(np.where(bags.labels == 0, 0, np.nan), bags.sizes)
    if folder.is_file():
        _mark_by_table(bags, folder, labels)
        return bags.replace(instance_labels=labels)
    paths = [path for path in sorted(folder.rglob("*")) if path.name.lower().endswith((*_MASKS, *_VOLUMES))]
    flat = (path for path in paths if path.suffix.lower() in _MASKS)
    files = {path.relative_to(folder).with_name(file_name(path)).as_posix(): path for path in flat}
    image_of = dict[Path, str]()
    for index, bag in enumerate(bags.ids.tolist()):
        inside = labels[int(bags.starts[index]) :][: int(bags.sizes[index])]
        if (slices := _slice_labels(bags, index, folder, image_of)) is not None:
            inside[:] = np.where(np.isnan(slices), inside, slices)
            continue
        for patches in (placed := patches_of(bags, index)):
            stem = bag if patches.file is None else patches.file.stem
            names = (f"{bag}/{stem}", *((stem, bag) if placed[1:] else (bag, stem)))  # of several slides, each has one
            if (path := next((files[name] for name in names if name in files), None)) is not None:
                _claim(image_of, path, names[0] if placed[1:] else bag)
                inside[patches.instances] = _marked(patches, path) >= share  # None: all
    if not image_of:
        named = f"named like the files or bags, such as {bags.ids[0]}.png"
        raise BagDataError(f"Expected masks of patches or slices, {named}, got none (in {folder}); name them so.")
    if spare := [path for path in paths if image_of.keys().isdisjoint((path, *path.parents))]:
        text = f"{plural(len(spare), 'mask')} of no bag in the data, the first {spare[0].relative_to(folder)}"
        warnings.warn(f"{text} (in {folder})", Note, stacklevel=3)
    return bags.replace(instance_labels=labels)


def _claim(image_of: dict[Path, str], path: Path, image: str) -> None:
    """Note the image or bag that a mask belongs to; refuse it if it is also named like another one."""
    if (other := image_of.setdefault(path, image)) != image:
        raise BagDataError(f"Expected a mask for each image, got one of {other} and {image} (in {path}); use BAG/FILE.")


def _marked(patches: Patches, path: Path) -> NDArray[np.float64]:
    """Return the share of the area of each patch that is marked, [k]."""
    sides = np.array([patches.width, patches.height])
    if path.suffix.lower() in _ANNOTATIONS:
        scale = min(1.0, _FINE / sides.min())
        mask = _raster(path, patches, scale)
    else:
        mask = np.asarray((read_pixels(path, mask=True) > 0).any(axis=0))
        scale = _scale_of(patches, mask.shape, path)
    return covered(mask, patches.corners * scale + _TINY, sides * scale)


def _scale_of(patches: Patches, shape: tuple[int, ...], path: Path) -> float:
    """Return the pixels of a mask of the whole image for a pixel of level 0."""
    scale, (width, height) = patches.scale_on(shape), patches.level0 or (None, None)
    if scale is None or (height is not None and abs(shape[0] / height - scale) > _ALIKE * scale):
        right, low = patches.extent
        size = f"at least {right:.0f} x {low:.0f}" if width is None else f"{width:.0f} x {height or low:.0f}"
        wanted = f"Expected a mask of the whole image, {size} pixels or smaller in proportion"
        raise BagDataError(f"{wanted}, got {shape[1]} x {shape[0]} (in {path}); write it so.")
    return scale


def _raster(path: Path, patches: Patches, scale: float) -> NDArray[np.bool_]:
    """Draw the polygons of a GeoJSON, which count from the corner as in viewers, `scale` pixels for one of level 0.

    A hole belongs to its polygon alone: it leaves what others mark.
    """
    from PIL import Image, ImageDraw

    size = np.ceil(np.array(patches.extent) * scale).astype(int)
    whole = Image.new("1", tuple(size.tolist()))
    for rings in _polygons(path):
        points = [(ring + patches.corner) * scale for ring in rings]
        low, high = np.rint([points[0].min(axis=0) - 1, points[0].max(axis=0) + 2]).clip(0, size).astype(int)
        part = Image.new("1", tuple((high - low).tolist()))
        for number, ring in enumerate(points):  # the first is the outline, the others are holes
            ImageDraw.Draw(part).polygon((ring - low).ravel().tolist(), fill=number == 0, outline=number == 0)
        whole.paste(1, tuple(low.tolist()), part)
    return np.asarray(whole, dtype=np.bool_)


def _polygons(path: Path) -> Iterator[list[NDArray[np.float64]]]:
    """Yield the rings of each polygon of a GeoJSON, [n, 2] each."""
    text = read_text(path, error=BagDataError)
    try:
        content = parse_json(text)
        features = content if isinstance(content, list) else content.get("features", [content])
        kinds = [(feature.get("properties") or {}).get("classification") for feature in features]
        if len(classes := {str(kind.get("name") if isinstance(kind, dict) else kind) for kind in kinds}) > 1:
            message = f"polygons of {len(classes)} classes ({listed(sorted(classes))}) all count as marked"
            warnings.warn(f"{message}; export those of one class alone (in {path})", stacklevel=6)
        for feature in features:
            shape = feature.get("geometry", feature)
            parts = {"Polygon": [shape["coordinates"]], "MultiPolygon": shape["coordinates"]}.get(shape["type"], [])
            for rings in parts:
                arrays = [np.array(ring, dtype=np.float64)[:, :2] for ring in rings]
                if any(len(ring) < 3 or not np.isfinite(ring).all() for ring in arrays):
                    raise ValueError("a ring of fewer than three points")
                if arrays:
                    yield arrays
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        wanted = "a GeoJSON of polygons in pixels of level 0"
        raise BagDataError(f"Expected {wanted}, got something else (in {path}); export it again.") from None


def _slice_labels(bags: Bags, index: int, folder: Path, image_of: dict[Path, str]) -> NDArray[np.float32] | None:
    """Return labels [n] of the slices of a bag, NaN for those of a file without a volume; None without any volume."""
    bag, labels = str(bags.ids[index]), np.full(int(bags.sizes[index]), np.nan, np.float32)
    for file in (file for file in files_of(bags, index) if file.attributes.get("file", {}).get(SLICES)):
        paths = [folder / f"{name}{suffix}" for name in (f"{bag}/{file.stem}", file.stem, bag) for suffix in _VOLUMES]
        if (path := next((path for path in paths if path.is_file()), None)) is not None:
            _claim(image_of, path, bag)  # a label volume may belong to several scans of a bag
            rows = slice(file.rows.start, file.rows.stop)
            labels[rows] = _of_volume(path, file, np.asarray(bags.places(index))[rows, 0].astype(np.int64))
    return None if np.isnan(labels).all() else labels


def _of_volume(path: Path, file: BagFile, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the slices with these numbers hold a voxel above 0 in a label volume."""
    facts = file.attributes["file"]
    axis = PLANES.index(facts["plane"].split()[0]) if "plane" in facts else int(facts.get("axis", 2))
    volume, known = read_volume(path, axis), facts[SLICES]
    marked, count = np.array([bool((part > 0).any()) for part in volume.data]), len(next(iter(known.values())))
    got = "" if len(marked) == count else f"{len(marked)}"
    if not got and known.get("slice_index", volume.slices["slice_index"]) != volume.slices["slice_index"]:
        # The file counts its slices the other way: by its affine they must lie where those of the scan lie.
        got = "" if np.allclose(known["position_mm"], volume.slices["position_mm"], atol=1) else "others by its affine"
    if got:
        wanted = f"Expected a label volume with the {count} slices of {file.name}"
        raise BagDataError(f"{wanted}, got {got} (in {path}); resample it to the scan, with its affine.")
    return marked[numbers]


def _mark_by_table(bags: Bags, path: Path, labels: NDArray[np.float32]) -> None:
    """Write the labels of the instances of bags that have a row in a table: those of no row are 0."""
    frame = read_names(path).fillna("")
    names = [name for name in frame.columns if name in ("instance", "file", *SLICE_COLUMNS)]
    spans = {*_SPAN} <= {*frame.columns}
    if "bag" not in frame.columns or not (names or spans):
        wanted = "instance, instance_number, slice_index, slice_file, or first and last"
        raise BagDataError(f"Expected the column bag, and {wanted}, got {listed([*frame.columns])} (in {path}).")
    for name in (name for name in frame.columns if name == "instance_label" or is_label_like(name)):
        words = {*frame[name].str.casefold().str.removesuffix(".0")}
        if words & {"0", "false"} and words <= {"", "0", "1", "false", "true"}:
            raise BagDataError(f"Expected marked instances, got {name} 0 (in {path}); drop such rows, or the column.")
    rows = dict(list(frame.groupby("bag")))
    others = sorted({*map(str, rows)} - {*bags.ids.tolist()})
    if len(others) == len(rows):
        raise BagDataError(f"Expected bags such as {bags.ids[0]}, got {next(iter(rows), 'none')!r} (in {path}).")
    if others:
        text = f"{plural(len(others), 'bag')} of the table not in the data, the first {others[0]} (in {path})"
        warnings.warn(text, Note, stacklevel=4)
    for index, bag in enumerate(bags.ids.tolist()):
        if bag in rows:
            inside = slice(int(bags.starts[index]), int(bags.starts[index] + bags.sizes[index]))
            labels[inside] = _of_rows(bags, index, rows[bag][[*names, *(_SPAN if spans else ())]], path)


def _of_rows(bags: Bags, index: int, rows: "pd.DataFrame", path: Path) -> NDArray[np.bool_]:
    """Return the instances [n] of a bag that its rows mark."""
    size = int(bags.sizes[index])
    numbers, marked = np.arange(size), np.zeros(size, bool)
    known: dict[str, Any] = {**instance_columns(bags, index), "instance": numbers.tolist()}
    texts = {name: np.array([*map(str, known.get(name, [""] * size))]) for name in rows.columns if name not in _SPAN}
    for line, row in rows.iterrows():
        one = np.all([column == row[name].strip() for name, column in texts.items()], axis=0)
        if _SPAN[0] in row:
            first, last = (int(text) if text.strip().isdecimal() else -1 for text in row[[*_SPAN]])
            one = one & (first >= 0) & (numbers >= first) & (numbers <= last)
        if not one.any():
            wanted, where = f"an instance of bag {bags.ids[index]} ({size} instances)", f"line {int(str(line)) + 2}"
            raise BagDataError(f"Expected {wanted}, got {dict(row)} (in {path}, {where}); correct the line.")
        marked |= one
    return marked
