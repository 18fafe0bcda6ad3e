"""Labels of the slices of a scan from label volumes and masks of slices, and of any instances from a table.

A label volume is a NIfTI file with the slices of the scan, named like its file or the bag: a slice is positive if it
holds a voxel above 0. Masks of slices are images in a folder that is named like the bag or its file, each with the name
of its slice's file; a slice without a mask is 0.

A table (CSV) has a row for each marked instance, with the column ``bag`` and columns that name the instance as the CSV
of `midam explain` does: ``instance`` (its number), ``instance_number``, ``slice_index``, ``slice_file`` and more. With
``first`` and ``last``, a row marks all instances with these numbers and between. Other columns, such as the sides of a
box, are ignored.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bag_files import SLICE_COLUMNS, SLICES, BagFile, files_of, instance_columns
from midam.data.bags import Bags
from midam.data.sources.file_names import file_name
from midam.errors import BagDataError, Note, first_line, listed, plural
from midam.imaging.images import read_pixels
from midam.imaging.volumes import PLANES, read_volume
from midam.lazy_imports import pandas as pd

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_VOLUMES = (".nii", ".nii.gz")
_SPAN = ("first", "last")


def slice_labels(bags: Bags, index: int, folder: Path) -> NDArray[np.float32] | None:
    """Return labels [n] of the slices of a bag, NaN for those of a file without masks; None without any mask."""
    labels, columns = np.full(int(bags.sizes[index]), np.nan, np.float32), instance_columns(bags, index)
    for file in files_of(bags, index):
        if not file.attributes.get("file", {}).get(SLICES):
            continue
        names = (file.stem, str(bags.ids[index]))
        volumes = [path for name in names for suffix in _VOLUMES if (path := folder / f"{name}{suffix}").is_file()]
        folders = [path for name in names if (path := folder / name).is_dir()]
        rows = slice(file.rows.start, file.rows.stop)
        if volumes:
            labels[rows] = _of_volume(volumes[0], file, np.asarray(bags.places(index))[rows, 0].astype(np.int64))
        elif folders and "slice_file" in columns:
            masks = {file_name(path): path for path in folders[0].iterdir() if path.suffix.lower() in IMAGES}
            of_slices = [masks.get(file_name(Path(name))) for name in columns["slice_file"][rows]]
            labels[rows] = [path is not None and bool((read_pixels(path) > 0).any()) for path in of_slices]
    return None if np.isnan(labels).all() else labels


def _of_volume(path: Path, file: BagFile, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the slices with these numbers hold a voxel above 0 in a label volume."""
    facts = file.attributes["file"]
    axis = PLANES.index(facts["plane"]) if "plane" in facts else int(facts.get("axis", 2))
    marked = np.array([bool((part > 0).any()) for part in read_volume(path, axis).data])
    count = len(next(iter(facts[SLICES].values())))
    if len(marked) != count:
        raise BagDataError(
            f"Expected a label volume with the {count} slices of {file.name}, got {len(marked)} (in {path}); resample "
            "it to the scan."
        )
    return marked[numbers]


def label_by_table(bags: Bags, path: Path) -> Bags:
    """Return bags with labels of instances from a table, see `midam.explain.slice_marks`.

    In a bag with a row, all other instances are 0. Bags without one are unknown, but 0 if their label is 0.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError as error:
        raise BagDataError(
            f"Expected a table of commas as text (UTF-8), got {first_line(error)} (in {path}); save it as CSV."
        ) from None
    names = [name for name in frame.columns if name in ("instance", "file", *SLICE_COLUMNS)]
    spans = [*_SPAN] if {*_SPAN} <= {*frame.columns} else []
    if "bag" not in frame.columns or not names + spans:
        raise BagDataError(
            f"Expected the column bag, and instance, instance_number, slice_index, slice_file, or first and last, got "
            f"{listed([*frame.columns])} (in {path}); name the columns so."
        )
    labels, rows = np.full(len(bags.instances), np.nan, np.float32), dict(list(frame.groupby("bag")))
    others = sorted({*map(str, rows)} - {*bags.ids.tolist()})
    if len(others) == len(rows):
        raise BagDataError(f"Expected bags such as {bags.ids[0]}, got {next(iter(rows), 'none')!r} (in {path}).")
    if others:
        text = f"{plural(len(others), 'bag')} of the table not in the data, the first {others[0]} (in {path})"
        warnings.warn(text, Note, stacklevel=4)
    for index, bag in enumerate(bags.ids.tolist()):
        inside = slice(int(bags.starts[index]), int(bags.starts[index] + bags.sizes[index]))
        if bag in rows:
            labels[inside] = _of_rows(bags, index, rows[bag][names + spans], path)
        elif bags.labels is not None and bags.labels[index] == 0:
            labels[inside] = 0
    return bags.replace(instance_labels=labels)


def _of_rows(bags: Bags, index: int, rows: "pd.DataFrame", path: Path) -> NDArray[np.bool_]:
    """Return the instances [n] of a bag that its rows mark."""
    size = int(bags.sizes[index])
    known: dict[str, Any] = {**instance_columns(bags, index), "instance": list(range(size))}
    texts = {name: np.array([str(value) for value in known[name]]) for name in rows.columns if name in known}
    marked, numbers = np.zeros(size, bool), np.arange(size)
    for line, row in rows.iterrows():
        one = np.ones(size, bool)
        for name, value in row.items():
            if name in _SPAN:
                number = int(value) if value.strip().isdecimal() else -1
                one &= (numbers >= number if name == _SPAN[0] else numbers <= number) & (number >= 0)
            else:
                one &= texts.get(str(name), np.full(size, "")) == value.strip()
        if not one.any():
            raise BagDataError(
                f"Expected an instance of bag {bags.ids[index]} ({size} instances), got {dict(row)} (in {path}, line "
                f"{int(str(line)) + 2}); correct it, or remove the line."
            )
        marked |= one
    return marked
