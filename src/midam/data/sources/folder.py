"""A folder with one file for each slide, image or volume, of its features or its pixels; and a label table."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from midam.data.bags import Bags
from midam.data.sources import BagReader
from midam.data.sources.assemble import assemble
from midam.data.sources.file_names import NameIndex, bag_names, check_options, file_name, file_reader, parts_reader
from midam.data.sources.find_files import find_files, warn_of_left_alone
from midam.data.sources.label_table import labels_of_files, read_labels
from midam.data.sources.labels import code_labels, label_columns, labels_or_none, plain_pair
from midam.data.sources.probe import open_file
from midam.data.sources.request import COLUMNS, COVARIATES, LABELS, SPLITS, Request, file_suffix
from midam.data.sources.table_columns import require_columns
from midam.data.sources.table_files import read_names
from midam.data.target_labels import CODED, TargetLabels
from midam.data.validate import SPLIT_NAMES
from midam.errors import BagDataError, ConfigError
from midam.names import name_of


class NoLabelsError(ConfigError):
    """A folder has no label table, and neither the names of its folders nor its files state labels."""


class FolderReader(BagReader):
    """Reader of a folder of files of one format, which are bags or, with `bag_by`, parts of a patient.

    Files that the label table does not name are left out, with a warning. Without a table, all files are read. Their
    folders are their classes if the names are a plain pair, such as normal and tumor, or if `positive` is one of the
    names; HDF5 and Zarr files may state the label, or other columns of a table, in attributes. A folder that is one
    DICOM series is one bag, if no labels are required.
    """

    what = "a folder of features"
    parameters = (*COLUMNS, *COVARIATES, *LABELS, "bag_by", *SPLITS, "images")

    def takes(self, request: Request) -> bool:
        """Return whether the data is a folder."""
        return request.path.is_dir()

    def read(self, request: Request) -> Bags:
        """Read the table, and inspect each file."""
        folder = request.path
        if request.labels is None and request.bag_by == "patient":
            raise _no_table(request, "table of patients")
        tables = [path for path in (request.labels, request.slides) if path is not None]
        paths = find_files(folder, leave=tables, reader=request.reader)
        alone, named = paths == [Path(os.path.abspath(folder))], names_in_tables(request)
        if images := _files_of_their_own(paths, named):
            paths, alone = images, False
        if alone and request.require_labels:
            got = f"the slices of one series (in {folder}); name the folder above it, or files with `labels`"
            raise BagDataError(f"Expected folders of series, got {got}.")
        paths, names = scan_folders(paths + _named_below(paths, folder, named), request, named)
        if not alone:
            warn_of_left_alone(folder, paths, named_by_table=request.labels is not None)
        if request.labels is None:
            return _without_table(request, paths, names)
        check_options(request, paths)
        files = NameIndex(names, {file_suffix(path) for path in paths}, source=request.path_or_name)
        labels = read_labels(request, files)
        return assemble([paths[i] for i in labels.files], labels.bags, request, table=labels.table, by_name=True)


def _files_of_their_own(paths: Sequence[Path], named: set[str]) -> list[Path]:
    """Return the DICOM files of folders in which each file is a bag; none if tables name as many of the folders."""
    reader = parts_reader()

    def files(*, apart: bool) -> list[Path]:
        alone = (reader.files_alone(path, apart=apart) if reader.has_parts(path) else [] for path in paths)
        parts = [*takewhile(bool, alone)]  # after a folder of slices, no other is looked into
        return [*chain(*parts)] if len(parts) == len(paths) else []

    def count(paths: Sequence[Path]) -> int:
        names = [(name_of(path.name), name_of(file_name(path))) for path in paths]
        below = sum(any(f"{path.parent.name}/{name}" in named for name in both) for path, both in zip(paths, names))
        return max(below, len(named & {*chain(*names)}))

    every = files(apart=True) if named else []
    if count(every) > count(paths):
        return every
    return [] if count(paths) else files(apart=False)


def _named_below(paths: Sequence[Path], folder: Path, names: set[str]) -> list[Path]:
    """Return the files in subfolders that tables name by their path, with or without the suffix of loose files."""
    suffixes = {file_suffix(path) for path in paths if path.parent == folder}
    named = [folder / name.replace("\\", "/") for name in names] if suffixes else []
    inside = [path for path in named if folder in path.parent.parents]
    below = {path.with_name(path.name + end) for path in inside for end in ("", *suffixes)}
    return sorted(path for path in below - set(paths) if file_suffix(path) in suffixes and os.path.isfile(path))


def _without_table(request: Request, paths: Sequence[Path], names: Sequence[str]) -> Bags:
    """Return bags of all files, labeled by their folders or their attributes."""
    coded = _classes_of_folders(request, paths)
    with_attributes = coded is None and file_reader(paths[0], request.reader).tells_labels
    if request.require_labels and coded is None and not (with_attributes and _says_label(request, paths[0])):
        raise _no_table(request, "label table", NoLabelsError)
    if request.covariate_columns and not with_attributes:
        raise _no_table(request, "table of covariates")
    check_options(request, paths)
    bags = assemble(paths, names, request, table={"outcome": coded})
    if bags.attributes is None and request.covariate_columns:
        raise _no_table(request, "table of covariates")
    if not with_attributes or bags.attributes is None:
        return bags
    attributes = [_single(next(iter(bags.described(number).values()))) for number in range(len(bags))]
    return labels_of_files(request, bags.ids.tolist(), attributes).of(bags)


def _no_table(request: Request, table: str, kind: type[ConfigError] = ConfigError) -> ConfigError:
    """Return the error about a folder whose bags have no labels, patients or covariates."""
    return kind(
        f"Expected `labels` with a folder of files, got none (in {request.path}); name a {table}. Labels may also be "
        "folders, one of which is `positive`, or an attribute of HDF5 and Zarr files; `midam data import` and `embed` "
        "take --unlabeled."
    )


def _says_label(request: Request, path: Path) -> bool:
    """Return whether the first file has a label; refuse a named label column that it lacks."""
    with closing(open_file(path, request.images, reader=request.reader)) as opened:
        attributes = _single(opened.attributes)
    columns = label_columns(attributes, request)
    if attributes and request.label_column != "label":
        require_columns(attributes, [("label_column", name) for name in columns], str(path))
    return set(columns) <= set(attributes)


def _single(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attributes of a file and of its features that are texts or numbers."""
    values = {**attributes.get("features", {}), **attributes.get("file", {})}
    single = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in values.items()}
    return {name_of(key): value for key, value in single.items() if isinstance(value, str | int | float)}


def _classes_of_folders(request: Request, paths: Sequence[Path]) -> TargetLabels | None:
    """Return labels from the folders of the files, directly below the data; None if they are not classes."""
    folders = [name_of(path.parent.name) for path in paths]
    lowered = {name.casefold() for name in folders}
    if any(path.parent.parent != request.path for path in paths) or lowered & SPLIT_NAMES.keys():
        return None
    by_positive = request.positive is not None and request.positive.casefold() in lowered
    by_classes = request.classes is not None and lowered <= {str(name).casefold() for name in request.classes}
    by_target = request.target in CODED and len(lowered) > 1
    plain = request.require_labels and len(lowered) == 2 and plain_pair(lowered)
    if not (by_target or by_positive or by_classes or plain):
        return None
    asked = request if by_target else request.changed(target="binary")
    return labels_or_none(request, lambda: code_labels({"folder": folders}, asked, origin="the folders of the files"))


def scan_folders(paths: Sequence[Path], request: Request, named: set[str]) -> tuple[list[Path], list[str]]:
    """Return the files or folders that are bags, and their names: `paths`, unless series are in folders below.

    In patient/study/series, the bags are at the level with the most names in the tables; each is one series, or the
    series that `request.images.series` selects. Without a table, a patient with one series is a bag with the patient's
    name; with several studies, each is a bag named patient/series. Several series of one study are refused.
    """
    folder, reader = request.path, parts_reader()
    above = (path for path in paths if path.is_dir() and not reader.has_parts(path))
    if not any(map(reader.takes, above)):
        return list(paths), bag_names(paths, folder)
    leaves = {path: list(reader.folders(path)) for path in paths}
    if named:
        ways = [(level, names) for level in _levels(leaves, folder) for names in _scan_names(level, folder)]
        exact = [len(named & set(names)) for _, names in ways]
        indexes = [NameIndex(names) for _, names in ways]
        count = [sum(index.certain(name) is not None for name in named) for index in indexes]
        return ways[max(range(len(ways)), key=lambda way: (count[way], exact[way]))]
    whole = request.images.series is not None
    level = [*chain(*([path] if whole or reader.is_one_bag(homes) else homes for path, homes in leaves.items()))]
    return level, next(iter(_scan_names(level, folder)))


def names_in_tables(request: Request) -> set[str]:
    """Return all values of the tables, each of which may name a bag, or those of the column that names bags."""
    tables = [path for path in (request.labels, request.slides) if path is not None]
    frames, chosen = [read_names(path, request) for path in tables], request.bag_column
    if chosen != "bag" and any(chosen in frame for frame in frames):
        frames = [frame[[chosen]] for frame in frames if chosen in frame]
    return {name_of(value) for frame in frames for name in frame.columns for value in frame[name].dropna()}


def _levels(leaves: dict[Path, list[Path]], folder: Path) -> Iterator[list[Path]]:
    """Yield the folders at each depth, from patients to series; a shallower folder stays itself."""
    homes = [home for of_patient in leaves.values() for home in of_patient]
    depth = max(len(home.relative_to(folder).parts) for home in homes)
    for level in range(1, depth + 1):
        yield list(dict.fromkeys(folder.joinpath(*home.relative_to(folder).parts[:level]) for home in homes))


def _scan_names(level: Sequence[Path], folder: Path) -> Iterator[list[str]]:
    """Yield possible names of bags, the best first: patient/series (or the patient), the path, the last folder."""
    parts = [tuple(map(name_of, path.relative_to(folder).parts)) for path in level]
    of_patients = [f"{part[0]}/{part[-1]}" if len(part) > 1 else part[0] for part in parts]
    for names in (of_patients, ["/".join(part) for part in parts], [part[-1] for part in parts]):
        if len(set(names)) == len(names):
            yield names
