"""Readers of the paper's image sets as they lie on disk: names, labels and groups from their folders and tables."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.assemble import assemble
from midam.data.sources.file_rows import FileRows, Parts
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.inputs import ManifestReader
from midam.data.sources.probe import FileFacts, facts_of
from midam.data.sources.request import ImageOptions, Places, Request
from midam.data.sources.table_columns import require_columns
from midam.data.sources.table_files import read_names
from midam.data.validate import SPLITS
from midam.errors import BagDataError, ConfigError, listed
from midam.registry import READERS

Layout = Callable[[Path, str | None, ImageOptions], Bags]

_GRADE = "WHO CNS Grade"
_GRADES = {"2": 0, "4": 1}


def read_breast(path: Path, part: str | None, options: ImageOptions) -> Bags:  # noqa: ARG001
    """Read UCSB: ``ytma10_010704_benign1_ccd.tif``; the file name holds the microarray and the label."""
    pattern = re.compile(r"(ytma\d+_\d+)_(benign|malignant)\d+_ccd\.tiff?", re.IGNORECASE)
    matches = [(file, match) for file in sorted(path.iterdir()) if (match := pattern.fullmatch(file.name))]
    if not matches:
        raise BagDataError(f"Expected images such as ytma10_010704_benign1_ccd.tif, got none (in {path}); add them.")
    return assemble(
        [file for file, _ in matches],
        [file.stem for file, _ in matches],
        Request(path, images=options),
        table={
            "labels": np.array([match[2].lower() == "malignant" for _, match in matches]),
            "groups": np.array([match[1] for _, match in matches]),
        },
    )


def read_colon(path: Path, part: str | None, options: ImageOptions) -> Bags:  # noqa: ARG001
    """Read LC25000, with a ``labels.csv`` that says which images come from one tile."""
    table = path / "labels.csv"
    if not table.is_file():
        raise BagDataError(
            f"Expected labels.csv with the columns bag_id, path, label, group, got none (in {path}); write it, with a "
            "group for all versions of a tile: the images alone do not say which tile they show."
        )
    request = Request(table, bag_column="bag_id", groups="group", images=options)
    return ManifestReader().read(request)


def read_adrenal(path: Path, part: str | None, options: ImageOptions) -> Bags:  # noqa: ARG001
    """Read MedMNIST: images and labels of each split in one npz."""
    with np.load(path, allow_pickle=False) as archive:
        volumes = [archive[f"{split}_images"] for split in SPLITS]
        labels = [archive[f"{split}_labels"].reshape(-1) for split in SPLITS]
    return _bags_of_volumes(
        np.concatenate(volumes),
        ids=np.array([f"adrenal-{split}-{n:04d}" for split, part in zip(SPLITS, labels) for n in range(len(part))]),
        labels=np.concatenate(labels).astype(np.int64),
        splits=np.repeat(SPLITS, [len(part) for part in volumes]),
        options=options,
        source=str(path),
    )


def read_pdgm(path: Path, part: str | None, options: ImageOptions) -> Bags:
    """Read UCSF-PDGM: ``UCSF-PDGM-0004_nifti/UCSF-PDGM-0004_FLAIR.nii.gz``, grades in ``UCSF-PDGM-metadata*.csv``.

    Grades other than 2 and 4 are left out. Follow-ups (``..._FU...``) share the group of their patient. Patient numbers
    have three digits in the table, four in folder names.
    """
    tables = sorted(path.glob("UCSF-PDGM-metadata*.csv"))
    if not tables:
        raise BagDataError(f"Expected a table UCSF-PDGM-metadata_v2.csv, got none (in {path}); put it there.")
    frame, where = read_names(tables[-1]), str(tables[-1])
    require_columns(frame.columns, [("", "ID"), ("", _GRADE)], where)
    known = zip(map(str, frame["ID"]), map(str, frame[_GRADE]))
    grades = {_patient(name): _GRADES[grade] for name, grade in known if grade in _GRADES}
    folders = {_patient(folder.name): folder for folder in sorted(path.glob("UCSF-PDGM-*_nifti"))}
    keys = [key for key in folders if key in grades]
    files = {key: folders[key] / f"{folders[key].name.removesuffix('_nifti')}_{part}.nii.gz" for key in keys}
    present = [key for key in keys if files[key].is_file()]
    if not present:
        raise BagDataError(_no_sequence(path, part, [folders[key] for key in keys]))
    absent = [files[key].name for key in keys if key not in present]
    if absent:
        warnings.warn(f"left out, because they have no file: {listed(absent)} (in {path})", stacklevel=6)
    return assemble(
        [files[key] for key in present],
        [folders[key].name.removesuffix("_nifti") for key in present],
        Request(path, images=options),
        table={
            "labels": np.array([grades[key] for key in present]),
            "groups": np.array([f"UCSF-PDGM-{key[0]:04d}" for key in present]),
        },
    )


def read_oct(path: Path, part: str | None, options: ImageOptions) -> Bags:  # noqa: ARG001
    """Read volumes and labels as arrays: ``volumes.npy`` and ``labels.npy`` in a folder, or both in an npz."""
    arrays: dict[str, Any] = {}
    if path.is_file():
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    else:
        for file in sorted(path.glob("*.npy")):
            arrays[file.stem] = np.load(file, mmap_mode="r" if file.stem == "volumes" else None, allow_pickle=False)
    if not {"volumes", "labels"} <= arrays.keys():
        got = ", ".join(arrays) or "none"
        raise BagDataError(f"Expected arrays volumes and labels, got {got} (in {path}); save both.")
    volumes: NDArray[Any] = arrays["volumes"]
    if volumes.ndim != 4 or len(volumes) != len(arrays["labels"]):
        raise BagDataError(
            f"Expected volumes [N, slices, rows, columns] and labels [N], got {list(volumes.shape)} and "
            f"{list(arrays['labels'].shape)} (in {path}); write them again."
        )
    return _bags_of_volumes(
        volumes,
        ids=np.array([f"oct-{number:04d}" for number in range(len(volumes))]),
        labels=arrays["labels"].reshape(-1),
        groups=arrays.get("groups"),
        splits=arrays.get("splits"),
        options=options,
        source=str(path),
    )


LAYOUTS: dict[str, Layout] = {
    **{"breast": read_breast, "colon": read_colon, "adrenal": read_adrenal},
    **{"pdgm": read_pdgm, "oct": read_oct},
}


def _patient(name: str) -> tuple[int, str]:
    """Return the number of a patient, and the follow-up."""
    match = re.match(r"UCSF-PDGM-(\d+)(?:_(FU\w*?))?(?:_nifti)?$", name.strip())
    return (int(match[1]), match[2] or "") if match else (-1, name)


def _no_sequence(path: Path, part: str | None, folders: list[Path]) -> str:
    if not folders:
        return f"Expected folders such as UCSF-PDGM-0004_nifti of patients of grade 2 and 4, got none (in {path})."
    stem = folders[0].name.removesuffix("_nifti")
    names = sorted(file.name[len(stem) + 1 :].removesuffix(".nii.gz") for file in folders[0].glob(f"{stem}_*.nii.gz"))
    got = listed(names, most=20) or "none"
    return f"Expected the sequence {part!r}, got {got} (in {path}); name one of them, as in pdgm:FLAIR."


class VolumeSet(Parts):
    """The volumes of an array [N, D, H, W], cut when they are read; pickling carries the path of a memory map."""

    def __init__(
        self, volumes: NDArray[Any], names: list[str], options: ImageOptions, facts: list[FileFacts] | None = None
    ) -> None:
        self._volumes, self._options = volumes, options
        self._names, self.plan = names, repr(options)
        super().__init__(names, facts or [facts_of(self._cut(n), where=name) for n, name in enumerate(names)])

    def open(self, number: int) -> OpenFile:
        """Cut one volume at its known places."""
        return self._cut(number, self.facts[number].places)

    def __reduce__(self) -> tuple[Any, ...]:
        path = getattr(self._volumes, "filename", None)
        return _volume_set, (self._volumes if path is None else str(path), self._names, self._options, self.facts)

    def _cut(self, number: int, places: Places | None = None) -> OpenFile:
        volume = self._volumes[number]
        where = Path(self._names[number])
        opened: OpenFile = READERS.find("npy").cut(volume, where, self._options, held=volume.nbytes, places=places)
        return opened


def _bags_of_volumes(volumes: NDArray[Any], *, options: ImageOptions, source: str, **known: Any) -> Bags:
    """Return bags of an array of volumes [N, D, H, W], on disk for a memory map, with other `known` parameters."""
    if options.spacing is not None:
        raise ConfigError(f"Expected no `spacing` with arrays of unknown spacing, got one (in {source}); leave it out.")
    volumes_of = VolumeSet(volumes, [f"{source}, bag {bag}" for bag in known["ids"]], options)
    rows = FileRows(volumes_of)
    return Bags(
        rows if isinstance(volumes, np.memmap) else rows[:],
        sizes=np.diff(volumes_of.offsets),
        coords=None if options.volume else FileRows(volumes_of, "coords")[:],
        cut=options.cut("volume" if options.volume else "slices"),
        source=source,
        **known,
    )


def _volume_set(volumes: Any, *parameters: Any) -> VolumeSet:
    return VolumeSet(np.load(volumes, mmap_mode="r") if isinstance(volumes, str) else volumes, *parameters)
