"""Files of instances, one or several a bag: which formats there are, and what a file holds."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.sources.dicom import open_dicom
from midam.data.sources.file_names import file_suffix, first_names
from midam.data.sources.hdf5 import open_hdf5, open_zarr
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, Kind, Places
from midam.data.sources.images import open_image
from midam.data.sources.nifti import open_nifti
from midam.data.sources.open_file import OpenFile
from midam.data.sources.plain_files import open_csv, open_npy, open_npz, open_tensor
from midam.data.sources.slides import SLIDE_SUFFIXES, open_slide, open_tiff
from midam.errors import BagDataError, DataNotFoundError

OnFile = Callable[[int, int], None]

OPENERS: dict[str, Callable[[Path], OpenFile]] = {
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".pt": open_tensor,
    ".zarr": open_zarr,
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_csv,
}
# Those of files that are cut into instances.
IMAGE_OPENERS: dict[str, Callable[[Path, ImageOptions, Places | None], OpenFile]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys((".png", ".jpg", ".jpeg"), open_image),
    **dict.fromkeys((".tif", ".tiff"), open_tiff),
    **dict.fromkeys(SLIDE_SUFFIXES, open_slide),
    **dict.fromkeys((".nii", ".nii.gz"), open_nifti),
}
SUFFIXES = tuple(dict.fromkeys((*OPENERS, *IMAGE_OPENERS)))
_LISTED = 10  # files at fault that a message names
_PROBES = 8  # files opened at a time: a network share answers several requests as fast as one


@dataclass(frozen=True)
class FileFacts:
    """What a file of instances holds.

    Attributes
    ----------
    rows : int
        Number of instances, at least 1.
    instance_shape : tuple of int
        Shape of one.
    dtype : numpy.dtype
        Of the instances.
    coords_width : int or None
        Numbers that give the place of an instance; None where there are none.
    coords_dtype : numpy.dtype or None
        Of the places.
    attributes : dict
        See `midam.data.sources.open_file.OpenFile`.
    places : array of int64 [rows, C] or None
        Of the patches or slices of an image, slide or volume.
    """

    rows: int
    instance_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    coords_width: int | None
    coords_dtype: np.dtype[Any] | None
    attributes: Mapping[str, Mapping[str, Any]]
    places: Places | None = None


def open_file(path: Path, options: ImageOptions = DEFAULTS, places: Places | None = None) -> OpenFile:
    """Open a file of instances, or the folder of a DICOM series; its suffix tells the format.

    Parameters
    ----------
    path : Path
        The file.
    options : ImageOptions
        How images, slides and volumes are cut.
    places : array of int64 [n, C], optional
        The places that an earlier opening found, so that tissue and empty slices are not looked for again.

    Raises
    ------
    DataNotFoundError
        If there is no such file.
    BagDataError
        If the suffix is unknown or the file cannot be used.
    """
    suffix = file_suffix(path)
    if suffix not in SUFFIXES and not path.is_dir():
        raise BagDataError(
            f"Expected a file of instances ({', '.join(SUFFIXES)}), got another suffix (in {path}); convert the file."
        )
    if not path.exists():
        raise DataNotFoundError(f"Expected a file, got none (in {path}); check the path.")
    if suffix in IMAGE_OPENERS:
        return IMAGE_OPENERS[suffix](path, options, places)
    return OPENERS[suffix](path) if suffix in OPENERS else open_dicom(path, options, places)


def kinds_of(path: Path) -> tuple[Kind, ...]:
    """What a file may hold, by its suffix; a TIFF is an image or a slide.

    Examples
    --------
    >>> kinds_of(Path("scan.nii.gz")), kinds_of(Path("a.tif"))
    (('volumes',), ('images', 'slides'))
    """
    suffix = file_suffix(path)
    if suffix in (".npy", ".npz"):
        return ("arrays",)
    if suffix in OPENERS:
        return ("features",)
    if suffix in SLIDE_SUFFIXES:
        return ("slides",)
    if suffix in (".tif", ".tiff"):
        return ("images", "slides")
    return ("images",) if suffix in (".png", ".jpg", ".jpeg") else ("volumes",)


def probe(path: Path, options: ImageOptions = DEFAULTS) -> FileFacts:
    """Open a file and say what it holds; the features are read only where the format knows no other way.

    Images and volumes are read as a whole, so that a damaged one is found now.

    Raises
    ------
    BagDataError
        If the file cannot be used: damaged, without features, empty, or with coordinates of another length.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "slide.npy"
    >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
    >>> probe(path).rows, probe(path).instance_shape
    (5, (3,))
    """
    opened = open_file(path, options)
    try:
        features, coords = opened.features, opened.coords
        if len(features.shape) < 2 or features.dtype.kind not in "biuf":
            raise BagDataError(
                f"Expected features [n, D] of real numbers, got {features.dtype} {list(features.shape)} (in {path}); "
                "write one row for each instance."
            )
        if 0 in features.shape:
            raise BagDataError(
                f"Expected at least one instance and one feature, got shape {list(features.shape)} (in {path}); "
                "remove the file or fill it."
            )
        if coords is not None and (
            len(coords.shape) != 2 or coords.shape[0] != features.shape[0] or coords.dtype.kind not in "iuf"
        ):
            raise BagDataError(
                f"Expected coordinates [{features.shape[0]}, 2], one row for each instance, got {coords.dtype} "
                f"{list(coords.shape)} (in {path}); extract the slide anew."
            )
        if "slides" in kinds_of(path):
            features.read(features.shape[0] - 1, features.shape[0])  # a copy that broke off lacks its end
        return FileFacts(
            rows=features.shape[0],
            instance_shape=features.shape[1:],
            dtype=features.dtype,
            coords_width=None if coords is None else coords.shape[1],
            coords_dtype=None if coords is None else coords.dtype,
            attributes=opened.attributes,
            places=None if coords is None or kinds_of(path) == ("features",) else coords.read(0, coords.shape[0]),
        )
    finally:
        opened.close()


def probe_files(
    paths: Sequence[Path], options: ImageOptions = DEFAULTS, *, on_file: OnFile | None = None
) -> list[FileFacts]:
    """Probe files, several at a time, and check that they hold the same kind of instances.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    options : ImageOptions
        How images, slides and volumes are cut.
    on_file : callable, optional
        Called with the number of files that are done and the number of all, after each.

    Raises
    ------
    BagDataError
        As `probe`, of each file that cannot be used, the first ten by name; or if shapes or dtypes differ, or only some
        files have coordinates: naming the files.
    """
    facts: list[FileFacts] = []
    wrong: list[BagDataError] = []
    with ThreadPoolExecutor(max_workers=_PROBES) as pool:
        futures = [pool.submit(probe, path, options) for path in paths]
        try:
            for number, future in enumerate(futures, start=1):
                try:
                    facts.append(future.result())
                except BagDataError as error:
                    wrong.append(error)
                if on_file is not None:
                    on_file(number, len(paths))
        finally:
            for future in futures:
                future.cancel()
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        more = "" if len(wrong) <= _LISTED else f"\n- and {len(wrong) - _LISTED} more"
        listed = "".join(f"\n- {error}" for error in wrong[:_LISTED])
        raise BagDataError(
            f"Expected files that can be used, got {len(wrong)} of {len(paths)} that cannot:{listed}{more}"
        )
    _check_same(paths, facts)
    return facts


def _check_same(paths: Sequence[Path], facts: Sequence[FileFacts]) -> None:
    _refuse_mixed(paths, facts)
    kinds: tuple[tuple[str, list[Any], str], ...] = (
        ("instances of shape", [fact.instance_shape for fact in facts], _same_shape(paths[0])),
        ("features of type", [fact.dtype for fact in facts], "convert the files to one type"),
        ("coordinates of width", [fact.coords_width for fact in facts], "write them to all files or to none"),
    )
    for what, values, advice in kinds:
        # What most files have is right; in a tie, what comes first.
        first = values.index(Counter(values).most_common(1)[0][0])
        other = [place for place, value in enumerate(values) if value != values[first]]
        if other:
            named = first_names([str(paths[place]) for place in other], limit=_LISTED)
            raise BagDataError(
                f"Expected {what} {values[first]} as in {paths[first]}, got {values[other[0]]} (in {named}); {advice}."
            )
    scales = {fact.attributes.get("coords", {}).get("level0_magnification") for fact in facts}
    if len(scales) > 1 and "slides" in kinds_of(paths[0]):
        _warn_of_scales(facts)


def _refuse_mixed(paths: Sequence[Path], facts: Sequence[FileFacts]) -> None:
    """Patches of slides have a magnification and are of tissue alone, those of images neither."""
    patches = [
        place for place, fact in enumerate(facts) if fact.attributes.get("features", {}).get("kind") == "patches"
    ]
    slides = [place for place in patches if "level0_magnification" in facts[place].attributes["coords"]]
    images = [place for place in patches if place not in set(slides)]
    if slides and images:
        raise BagDataError(
            f"Expected slides alone or images alone, got both: {len(slides)} of {len(paths)} files are slides (first "
            f"in {paths[slides[0]]}), {len(images)} are images (first in {paths[images[0]]}); leave one kind out."
        )


def _warn_of_scales(facts: Sequence[FileFacts]) -> None:
    """Patches of slides that were read at level 0 show areas of several sizes."""
    said = [fact.attributes.get("coords", {}) for fact in facts]
    if any(one.get("target_magnification") != one.get("level0_magnification") for one in said):
        return
    scales = sorted({str(one.get("level0_magnification", "unknown")) for one in said})
    warnings.warn(
        f"slides of several magnifications ({first_names(scales)}) are read at level 0: give --magnification to read "
        "them at one",
        UserWarning,
        stacklevel=6,
    )


def _same_shape(path: Path) -> str:
    if kinds_of(path)[0] in ("volumes", "arrays"):
        return "resize them, such as with --slice-size 64, or --volume-size with --volume"
    return (
        "use features of one encoder" if kinds_of(path) == ("features",) else "convert the images to colour, or to grey"
    )
