"""Which folders of a tree of DICOM are bags: patients, studies or series, as the label table names them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from midam.data.sources.file_names import NameIndex, bag_names
from midam.data.sources.formats.dicom_series import dicom_folders, holds_dicom, is_dicom_folder, is_one_scan
from midam.data.sources.reader import Request
from midam.data.sources.table_files import read_names
from midam.names import name_of


def scan_folders(paths: Sequence[Path], folder: Path, request: Request) -> tuple[list[Path], list[str]]:
    """Files or folders that are bags, and their names: the given ones, unless series lie in folders of these.

    Of patient/study/series, the level whose names a table has most of is that of the bags; each is one series, or the
    one that `request.images.series` chooses. Without a table a patient of one series is a bag under the patient's name,
    and of several each series is, named patient/series.
    """
    if all(not path.is_dir() or is_dicom_folder(path) or not holds_dicom(path) for path in paths):
        return list(paths), bag_names(paths, folder)
    leaves = {path: list(dicom_folders(path)) for path in paths}
    known = names_in_tables(request)
    if known:
        ways = [(level, names) for level in _levels(leaves, folder) for names in _names(level, folder)]
        exact = [len(known & set(names)) for _, names in ways]
        count = [sum(files.certain(name) is not None for name in known) for files in map(_index, ways)]
        level, names = ways[max(range(len(ways)), key=lambda way: (count[way], exact[way]))]
        return level, names
    level = [
        home
        for path, homes in leaves.items()
        for home in ([path] if request.images.series is not None or is_one_scan(homes) else homes)
    ]
    return level, next(iter(_names(level, folder)))


def _index(way: tuple[list[Path], list[str]]) -> NameIndex:
    return NameIndex(way[1])


def names_in_tables(request: Request) -> set[str]:
    """All that the tables say, which may name a bag."""
    tables = [path for path in (request.labels, request.slides) if path is not None]
    frames = [read_names(path, request) for path in tables]
    return {name_of(value) for frame in frames for name in frame.columns for value in frame[name].dropna()}


def _levels(leaves: dict[Path, list[Path]], folder: Path) -> Iterator[list[Path]]:
    """Folders at each depth, from patients to series; one that is shallower stands for itself."""
    homes = [home for of_patient in leaves.values() for home in of_patient]
    depth = max(len(home.relative_to(folder).parts) for home in homes)
    for level in range(1, depth + 1):
        yield list(dict.fromkeys(folder.joinpath(*home.relative_to(folder).parts[:level]) for home in homes))


def _names(level: Sequence[Path], folder: Path) -> Iterator[list[str]]:
    """Names that bags may have, the best first: patient/series (or the patient), the path, the last folder alone."""
    parts = [tuple(map(name_of, path.relative_to(folder).parts)) for path in level]
    ways = (
        [f"{part[0]}/{part[-1]}" if len(part) > 1 else part[0] for part in parts],
        ["/".join(part) for part in parts],
    )
    for names in (*ways, [part[-1] for part in parts]):
        if len(set(names)) == len(names):
            yield names
