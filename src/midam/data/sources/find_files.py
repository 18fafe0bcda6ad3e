"""Selection of the files of a folder that are read, and warnings about the others."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from midam.data.sources import file_names
from midam.data.sources.file_names import FileReader, is_feature_folder, parts_reader
from midam.errors import BagDataError, listed

# Tables, notes and settings, which are not data of a bag.
_PAPERS = (".tsv", ".txt", ".md", ".json", ".xml", ".yaml", ".yml", ".xlsx", ".pdf", ".log")
_NAMED, _SEARCHED, _DEPTH = 3, 1000, 4  # names in a message; folders that are searched for files, and their depth


def find_files(folder: str | Path, *, leave: Sequence[str | Path] = (), reader: str | None = None) -> list[Path]:
    """Find files of one format in a folder, by name, but not the tables in `leave`; for DICOM, folders of patients.

    The search covers the folder itself, then the feature folders of CLAM and TRIDENT, then all its subfolders (such as
    one per class or site), and for features also deeper ones. A folder that holds the slices of a series counts as a
    file. Among several formats, the first of `midam.registry.READERS` is read, with a warning, or only that of
    `reader`.
    """
    folder = Path(folder)
    tables = {Path(path).resolve() for path in leave}
    readers = file_names.file_readers(reader)
    families = _by_family([folder], tables, readers)
    if all(candidate.maybe_table for candidate, _ in families) and parts_reader().has_parts(folder):
        # An absolute path has a name, "." has none.
        return parts_reader().files_alone(folder) or [Path(os.path.abspath(folder))]
    if not families:
        below = _folders_below(folder)
        feature_folders = [path for path in below if is_feature_folder(path) and _by_family([path], tables, readers)]
        near = _one_kind(feature_folders, folder) or [path for path in below if path.parent == folder]
        families = _by_family(near, tables, readers)
        if not feature_folders and (not families or _of_features(families[0][0])):
            families = _by_family(below, tables, [candidate for candidate in readers if _of_features(candidate)])
        empty = [path for path in below if is_feature_folder(path) or file_names.scale_folder(path / "features")]
        # A job of TRIDENT without features leaves only thumbnails and contours.
        if reader is None and empty and not feature_folders and families and not _of_features(families[0][0]):
            got = f"none, and {families[0][0].title} files elsewhere (in {folder}); name the folder of those"
            raise BagDataError(f"Expected files of features in {empty[-1].relative_to(folder)}, got {got}.")
    if not families:
        raise _nothing(folder)
    first = families[0][0]
    # A CSV next to features of another format is a table of labels or splits.
    others = [reader.title for reader, _ in families[1:] if not reader.maybe_table]
    if others:
        text = f"{folder} holds {' and '.join([first.title, *others])} files: the {first.title} files are read"
        warnings.warn(text, stacklevel=4)
    return families[0][1]


def _folders_below(folder: Path) -> list[Path]:
    """Return the folders in a folder, level by level, by name; the first 1000, down to a depth of 4."""
    folders, visited = [folder], {os.path.realpath(folder)}
    for home in folders:  # grows meanwhile
        if len(home.parts) == len(folder.parts) + _DEPTH or len(folders) > _SEARCHED:
            break
        for path in filter(_is_folder, sorted(home.iterdir())):
            if (real := os.path.realpath(path)) not in visited:  # else it is a link that leads back
                visited.add(real)
                folders.append(path)
    return folders[1 : _SEARCHED + 1]


def _is_folder(path: Path) -> bool:
    return path.name[0] != "." and path.suffix != ".zarr" and path.is_dir() and os.access(path, os.R_OK | os.X_OK)


def _one_kind(usual: Sequence[Path], folder: Path) -> Sequence[Path]:
    """Return the feature folders in a folder, or else below it; refuse several extractors or scales."""
    near = [path for path in usual if path.parent == folder] or list(usual)
    near.sort(key=lambda path: path.name.startswith("features_"))
    prefixed = [path for path in near if path.name.startswith("features_")] or near
    kinds = {(path.name.partition("features_")[2], file_names.scale_folder(path)): path for path in prefixed}
    if len(kinds) > 1:
        names = [path.relative_to(folder).as_posix() for path in kinds.values()]
        raise BagDataError(f"Expected one folder of features, got {listed(names)} (in {folder}); name one of them.")
    return near


def _of_features(reader: FileReader) -> bool:
    return reader.what in ("features", "arrays") and not reader.maybe_table


def warn_of_left_alone(folder: Path, taken: Sequence[Path], *, named_by_table: bool) -> None:
    """Warn about folders and unknown files next to the files that are read, except of the same name (MRXS).

    If a table names the bags, warn only about folders that hold files of the same suffixes.
    """
    readers = file_names.file_readers()
    used, homes, stems = set(taken), {path.parent for path in taken}, {path.with_suffix("") for path in taken}
    if not any(map(is_feature_folder, homes)):
        homes.add(folder)
    above = {above for path in taken for above in path.parents}
    others = sorted(path for home in homes for path in home.iterdir() if path not in used | above)
    others = [path for path in others if not path.name.startswith(".") and path.suffix.lower() not in _PAPERS]
    alone = [path for path in others if path.with_suffix("") not in stems]
    alone = [path for path in alone if not any(reader.takes(path) for reader in readers)]
    if named_by_table:
        suffixes = {path.suffix for path in taken if path.is_file()}
        alone = [path for path in alone if _is_folder(path) and any(file.suffix in suffixes for file in path.iterdir())]
    if alone:
        names = [f"{path.relative_to(folder)}{os.sep if path.is_dir() else ''}" for path in alone]
        text = f"{len(used)} of {len(used) + len(alone)} files and folders are read, without folders next to them and"
        warnings.warn(f"{text} unknown formats: {listed(names, most=_NAMED)} (in {folder})", stacklevel=4)


def _nothing(folder: Path) -> BagDataError:
    """Return the error about a folder without files."""
    got = f"{listed([path.name for path in sorted(folder.iterdir())]) or 'an empty folder'} (in {folder})"
    text = f"Expected feature files, images, slides or volumes ({', '.join(file_names.known_suffixes())}), got {got}"
    return BagDataError(f"{text}; name the folder that holds them, or a manifest with the columns bag, path, label.")


def _by_family(
    folders: Sequence[Path], leave: set[Path], readers: Sequence[FileReader]
) -> list[tuple[FileReader, list[Path]]]:
    """Return the files of each format, or family of formats, in these folders, the preferred one first."""
    inside = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    inside = [path for path in inside if not path.name.startswith(".") and Path(os.path.realpath(path)) not in leave]
    families: dict[str, tuple[FileReader, list[Path]]] = {}
    for reader in readers:
        families.setdefault(reader.family or type(reader).__name__, (reader, []))
    for path in inside:
        taking = next((reader for reader in reversed(readers) if reader.takes(path)), None)
        if taking is not None and (path.is_dir() or not isinstance(taking, type(parts_reader()))):
            families[taking.family or type(taking).__name__][1].append(path)
    return [(reader, paths) for reader, paths in families.values() if paths]
