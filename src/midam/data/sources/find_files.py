"""Which files of a folder are read, and a word about what is not."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from midam.data.sources.dicom import is_dicom_folder
from midam.data.sources.file_names import FEATURE_FOLDERS, file_suffix, first_names
from midam.data.sources.images import IMAGE_SUFFIXES
from midam.data.sources.nifti import NIFTI_SUFFIXES
from midam.data.sources.probe import OPENERS, SUFFIXES
from midam.data.sources.slides import SLIDE_SUFFIXES
from midam.errors import BagDataError

_SERIES = ("DICOM series",)
_KINDS = (
    *((".h5", ".hdf5"), (".pt",), (".zarr",), (".npy",), (".npz",), SLIDE_SUFFIXES, IMAGE_SUFFIXES, NIFTI_SUFFIXES),
    *(_SERIES, (".csv",)),
)
# Tables, notes and settings, which nobody takes for data of a bag.
_PAPERS = (".tsv", ".txt", ".md", ".json", ".xml", ".yaml", ".yml", ".xlsx", ".pdf", ".log")
_NAMED = 3
_SEARCHED = 1000  # folders that are looked into for files that lie too deep


def find_files(folder: str | Path, *, leave: Sequence[str | Path] = ()) -> list[Path]:
    """Files of one format in a folder, by name; a DICOM series is a folder itself.

    They are looked for in the folder itself, then in `h5_files`, `pt_files` and `features_*`, then in all its folders
    (one a class, as DSMIL has them). Where there are several formats, HDF5 comes first.

    Parameters
    ----------
    folder : str or Path
        The folder.
    leave : sequence of path
        Tables that are no features.

    Raises
    ------
    BagDataError
        If there are none, or several folders of features.

    Warns
    -----
    UserWarning
        If files of another format are left alone.
    """
    folder = Path(folder)
    tables = {Path(path).resolve() for path in leave}
    here = _by_kind([folder], tables)
    if not here:
        known = [
            path for pattern in FEATURE_FOLDERS for path in sorted(folder.glob(pattern)) if _by_kind([path], tables)
        ]
        features = [path for path in known if path.name.startswith("features_")]
        if len(features) > 1:
            raise BagDataError(
                f"Expected one folder of features, got {first_names([path.name for path in features])} (in {folder}); "
                "name one of them."
            )
        below = known or sorted(path for path in folder.iterdir() if path.is_dir() and path.suffix not in OPENERS)
        here = _by_kind(below, tables)
    if not here:
        raise _nothing(folder)
    # A CSV beside features of another format is a table of labels or splits.
    taken, *others = [suffixes[0] for suffixes in here if suffixes == next(iter(here)) or suffixes != (".csv",)]
    if others:
        warnings.warn(
            f"{folder} holds {' and '.join([taken, *others])} files: the {taken} files are read",
            UserWarning,
            stacklevel=4,
        )
    return next(iter(here.values()))


def warn_of_left_alone(folder: Path, taken: Sequence[Path]) -> None:
    """Say which files and folders beside those that are read are of no known format.

    `find_files` speaks of other formats. What bears the name of a file that is read belongs to it, as with MRXS.

    Parameters
    ----------
    folder : Path
        The data.
    taken : sequence of Path
        Files, or folders of series, that are read.

    Warns
    -----
    UserWarning
        Once, with their number and the first names.
    """
    own, homes, named = set(taken), {path.parent for path in taken}, {path.with_suffix("") for path in taken}
    if not any(home.match(form) for home in homes for form in FEATURE_FOLDERS):
        homes.add(folder)
    beside = sorted(path for home in homes for path in home.iterdir() if path not in own | homes)
    beside = [path for path in beside if not path.name.startswith(".") and path.suffix.lower() not in _PAPERS]
    alone = [path for path in beside if path.with_suffix("") not in named and not _is_known(path)]
    if alone:
        names = [f"{path.relative_to(folder)}{os.sep if path.is_dir() else ''}" for path in alone]
        warnings.warn(
            f"{len(own)} of {len(own) + len(alone)} files and folders are read, those of no known format are left "
            f"alone: {first_names(names, limit=_NAMED)} (in {folder})",
            UserWarning,
            stacklevel=4,
        )


def _nothing(folder: Path) -> BagDataError:
    """Error of a folder where no file is found, with the way out."""
    if is_dicom_folder(folder):
        return BagDataError(
            f"Expected a folder of series, each in a folder of its own, got the slices of one (in {folder}); name "
            "the folder above it."
        )
    inside, deep = [path.name for path in sorted(folder.iterdir())], _deep_file(folder)
    advice = "name the folder that holds them"
    if deep is not None:
        advice = (
            f"those that lie deeper, such as {deep.relative_to(folder)}, are read from a manifest: a CSV with the "
            "columns bag, path, label, where path is a file or the folder of a series"
        )
    return BagDataError(
        f"Expected feature files, images, slides or volumes ({', '.join(SUFFIXES)}), got "
        f"{first_names(inside) or 'an empty folder'} (in {folder}); {advice}."
    )


def _deep_file(folder: Path) -> Path | None:
    """Find a file, or the folder of a series, at any depth; None if there is none in the first 1000 folders."""
    for number, (here, folders, files) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = [Path(here, name) for name in [*folders, *sorted(files)]]
        found = next((path for path in inside if _is_known(path)), None)
        if found is not None or number == _SEARCHED:
            return found
    return None


def _by_kind(folders: Sequence[Path], leave: set[Path]) -> dict[tuple[str, ...], list[Path]]:
    """Files of each format in these folders, the preferred format first."""
    inside = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    inside = [path for path in inside if not path.name.startswith(".") and path.resolve() not in leave]
    found = {kind: [path for path in inside if _is_kind(path, kind)] for kind in _KINDS}
    return {kind: paths for kind, paths in found.items() if paths}


def _is_known(path: Path) -> bool:
    return any(_is_kind(path, kind) for kind in _KINDS)


def _is_kind(path: Path, kind: tuple[str, ...]) -> bool:
    if kind is _SERIES:
        return file_suffix(path) not in SUFFIXES and is_dicom_folder(path)
    return file_suffix(path) in kind and (not path.is_dir() or kind == (".zarr",))
