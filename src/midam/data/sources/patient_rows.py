"""Label tables with a row per patient, whose files begin with TCGA barcodes or whose bags have known groups."""

import re
import warnings
from collections.abc import Sequence

import numpy as np

from midam.data.sources.file_names import NameIndex
from midam.data.sources.request import Request
from midam.data.sources.table_columns import PATIENT_COLUMNS, find_column, is_group_like
from midam.errors import BagDataError, Note, given, listed
from midam.lazy_imports import pandas as pd

FILE = "file name"  # column of the names, if the table has none
_BARCODE = re.compile(r"TCGA-\w{2}-\w{4}(?:-[^.]*)?", re.IGNORECASE)
_VIAL = re.compile(r"(?<=^TCGA-\w\w-\w{4})(-\d\d)[A-Z]$")
_PATIENT, _SLIDE = 3, 6  # parts of the barcode of a patient and of a slide: TCGA-XX-YYYY and TCGA-XX-YYYY-01Z-00-DX1
_SHOWN = 5
_SAMPLE = 3  # position of the sample in the barcode: 01 is a tumor, 11 normal tissue


def barcodes(names: Sequence[str], *, parts: int = _PATIENT) -> list[str] | None:
    """Return the TCGA barcode of the patient, or a longer one, at the start of each name; None if none has one.

    A name without a barcode, such as that of a slide from elsewhere, stays as it is.

    Examples
    --------
    >>> barcodes(["TCGA-A1-A0SB-01Z-00-DX1.0f6c", "TCGA-A1-A0SC-01Z-00-DX1"])
    ['TCGA-A1-A0SB', 'TCGA-A1-A0SC']
    """
    matches = [_BARCODE.match(name.rpartition("/")[2]) for name in names]
    pairs = zip(names, matches)
    patients = ["-".join(match[0].split("-")[:parts]).upper() if match else name for name, match in pairs]
    return patients if any(matches) else None


def by_patient(
    frame: "pd.DataFrame",
    names: Sequence[str],
    groups: Sequence[str] | None,
    request: Request,
    *,
    named: str | None,
    columns: Sequence[str],
) -> "pd.DataFrame | None":
    """Return rows of the files `names` [N], in a column `FILE`, from a table of patients; None for another table.

    The patients are the `groups` [N], or the beginnings of TCGA barcodes. `named` is the column that names files, if
    there is one; the column of the patients is one of `columns`. By barcodes, patients with several files that are not
    one bag are refused, with a list.
    """
    if groups is None and named is not None and not is_group_like(named):
        return None
    ways = [groups] if groups is not None else [barcodes(names, parts=count) for count in range(_PATIENT, _SLIDE + 1)]
    ways = [way for way in ways if way is not None and len(set(way)) > 1]
    if groups is None and ways:  # tables of samples leave out the vial: TCGA-A1-A0SB-01 of 01A and 01Z
        ways.insert(1, [_VIAL.sub(r"\1", name) for name in barcodes(names, parts=_PATIENT + 1) or ()])
    matches = [(way, column, NameIndex(sorted(set(way)))) for way in ways for column in columns]
    if not matches:
        return None
    counts = [frame[column].dropna().map(index.certain).notna().sum() for _, column, index in matches]
    most = max(counts)
    way, column, index = matches[counts.index(most)]
    if not most or (named is not None and (named != column or not is_group_like(column))):
        return None
    if named is not None and NameIndex(names).count(frame[named].dropna()) >= most + (groups is not None):
        return None
    files: dict[str, list[str]] = {}
    for name, patient in zip(names, way):
        files.setdefault(patient, []).append(name)
    if groups is None:
        _refuse_several(files, several=request.bag_by == "patient", where=request.where)
    places = [index.find(value) if isinstance(value, str) else None for value in frame[column]]
    rows = [(row, file) for row, at in enumerate(places) for file in (files[index.names[at]] if at is not None else [])]
    lost = [row for row, place in enumerate(places) if place is None]
    spread = frame.iloc[[*(row for row, _ in rows), *lost]]
    spread = spread.assign(**{FILE: np.array([*(file for _, file in rows), *(None for _ in lost)], dtype=object)})
    if find_column(spread, PATIENT_COLUMNS) is None:
        spread = spread.assign(patient=spread[column])
    source = "the groups of the bags" if groups is not None else "the TCGA barcodes that the files begin with"
    text = f"a row of the table is a patient: its column {column} holds {len(set(places) - {None})} of {source}"
    warnings.warn(f"{text}, for {len({file for _, file in rows})} bags (in {request.where})", Note, stacklevel=5)
    return spread.reset_index(drop=True)


def _refuse_several(files: dict[str, list[str]], *, several: bool, where: str) -> None:
    """Refuse patients with several files, unless the files form one bag and are of one kind of sample."""

    def mixed(names: Sequence[str]) -> bool:
        parts = [(barcodes([file], parts=_SLIDE) or [file])[0].split("-") for file in names]
        return len({part[_SAMPLE][:2] for part in parts if len(part) > _SAMPLE}) > 1

    wrong = [patient for patient, names in files.items() if len(names) > 1 and (not several or mixed(names))]
    if wrong:
        patients = "; ".join(f"{patient}: {listed(files[patient])}" for patient in wrong[:_SHOWN])
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        expected = "one kind of sample" if several else "one file"
        advice = "" if several else f", or make a bag of all files of a patient with {given(bag_by='patient')}"
        raise BagDataError(
            f"Expected {expected} for each patient, got several for {len(wrong)}: {patients}{more} (in {where}); name "
            f"the files in the table, or in a table of slides with `slides`{advice}."
        )
