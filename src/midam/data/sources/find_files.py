"""Which files of a folder are read, and warnings about the others."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from midam.data.sources.file_names import FEATURE_FOLDERS, first_names
from midam.data.sources.formats.dicom_series import is_dicom_folder
from midam.data.sources.reader import FileReader, file_readers, known_suffixes
from midam.errors import BagDataError

# Tables, notes and settings, which nobody takes for data of a bag.
_PAPERS = (".tsv", ".txt", ".md", ".json", ".xml", ".yaml", ".yml", ".xlsx", ".pdf", ".log")
_NAMED = 3
_SEARCHED = 1000  # folders that are looked into for files that lie too deep


def find_files(folder: str | Path, *, leave: Sequence[str | Path] = (), reader: str | None = None) -> list[Path]:
    """Files of one format in a folder, by name, without the tables in `leave`; of DICOM its folders, such as patients.

    They are looked for in the folder itself, then in `FEATURE_FOLDERS`, then in all its folders (one a class, as DSMIL
    has them); a folder that holds the slices of a series is itself one. Of several formats the first of
    `midam.registry.READERS` is read, with a warning, or `reader` alone.
    """
    folder = Path(folder)
    tables = {Path(path).resolve() for path in leave}
    readers = file_readers(reader)
    here = _by_family([folder], tables, readers)
    if all(found.maybe_table for found, _ in here) and is_dicom_folder(folder):
        return [Path(os.path.abspath(folder))]  # which has a name, as "." has not
    if not here:
        usual = [path for pattern in FEATURE_FOLDERS for path in sorted(folder.glob(pattern))]
        known = [path for path in usual if _by_family([path], tables, readers)]
        features = [path for path in known if path.name.startswith("features_")]
        if len(features) > 1:
            raise BagDataError(
                f"Expected one folder of features, got {first_names([path.name for path in features])} (in {folder}); "
                "name one of them."
            )
        below = known or sorted(path for path in folder.iterdir() if path.is_dir())
        here = _by_family(below, tables, readers)
    if not here:
        raise _nothing(folder)
    first = here[0][0]
    # A CSV beside features of another format is a table of labels or splits.
    others = [reader.title for reader, _ in here[1:] if not reader.maybe_table]
    if others:
        text = f"{folder} holds {' and '.join([first.title, *others])} files: the {first.title} files are read"
        warnings.warn(text, stacklevel=4)
    return here[0][1]


def warn_of_left_alone(folder: Path, taken: Sequence[Path]) -> None:
    """Warn of files and folders of no known format; one of the name of a file that is read belongs to it (MRXS)."""
    known = file_readers()
    own, homes, named = set(taken), {path.parent for path in taken}, {path.with_suffix("") for path in taken}
    if not any(home.match(form) for home in homes for form in FEATURE_FOLDERS):
        homes.add(folder)
    beside = sorted(path for home in homes for path in home.iterdir() if path not in own | homes)
    beside = [path for path in beside if not path.name.startswith(".") and path.suffix.lower() not in _PAPERS]
    alone = [path for path in beside if path.with_suffix("") not in named and not _is_known(path, known)]
    if alone:
        names = [f"{path.relative_to(folder)}{os.sep if path.is_dir() else ''}" for path in alone]
        warnings.warn(
            f"{len(own)} of {len(own) + len(alone)} files and folders are read, those of no known format are left "
            f"alone: {first_names(names, limit=_NAMED)} (in {folder})",
            stacklevel=4,
        )


def _nothing(folder: Path) -> BagDataError:
    """Error of a folder where no file is found, with the way out."""
    inside, deep = first_names([path.name for path in sorted(folder.iterdir())]), _deep_file(folder)
    advice = "name the folder that holds them"
    if deep is not None:
        advice = f"those that lie deeper, such as {deep.relative_to(folder)}, are read from a manifest: a CSV with the "
        advice += "columns bag, path, label, where path is a file or the folder of a series"
    return BagDataError(
        f"Expected feature files, images, slides or volumes ({', '.join(known_suffixes())}), got "
        f"{inside or 'an empty folder'} (in {folder}); {advice}."
    )


def _deep_file(folder: Path) -> Path | None:
    """Find a file, or the folder of a series, at any depth; None if there is none in the first 1000 folders."""
    known = file_readers()
    for number, (here, folders, files) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = [Path(here, name) for name in [*folders, *sorted(files)]]
        found = next((path for path in inside if _is_known(path, known)), None)
        if found is not None or number == _SEARCHED:
            return found
    return None


def _by_family(
    folders: Sequence[Path], leave: set[Path], readers: Sequence[FileReader]
) -> list[tuple[FileReader, list[Path]]]:
    """Files of each format, or family of formats, in these folders, the preferred one first."""
    inside = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    inside = [path for path in inside if not path.name.startswith(".") and Path(os.path.realpath(path)) not in leave]
    families: dict[str, tuple[FileReader, list[Path]]] = {}
    for reader in readers:
        families.setdefault(reader.family or type(reader).__name__, (reader, []))
    for path in inside:
        taking = next((reader for reader in reversed(readers) if reader.takes(path)), None)
        if taking is not None:
            families[taking.family or type(taking).__name__][1].append(path)
    return [(reader, paths) for reader, paths in families.values() if paths]


def _is_known(path: Path, readers: Sequence[FileReader]) -> bool:
    return any(reader.takes(path) for reader in readers)
