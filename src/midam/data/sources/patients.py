"""Patients as groups of bags, by DICOM headers and names of TCGA and BIDS; label tables with a row for each patient."""

import re
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.file_names import NameIndex
from midam.data.sources.file_rows import source_paths
from midam.data.sources.request import HEADER, Request
from midam.data.sources.table_columns import PATIENT_COLUMNS, find_column, is_group_like
from midam.data.validate import SPLIT_NAMES
from midam.errors import BagDataError, Note, given, listed, plural
from midam.lazy_imports import pandas as pd

_STUDY = "StudyInstanceUID"
# In the name of a bag: a side, such as the left breast or the right eye; what follows a first part with a digit.
_SIDE = re.compile(r"(?<![^\W_])(l|r|left|right|o[ds]|[lr](cc|mlo))(?![^\W_])", re.IGNORECASE)
_END = re.compile(r"(?<=\d)(_|[^\w/])[^/]*$")
# Attributes of files of scans, and of feature files by TRIDENT and STAMP: the part that states them, and their plural.
_KINDS = {
    **{"modality": ("file", "modalities"), "plane": ("file", "planes"), "units": ("file", "units")},
    "intent": ("file", "presentation intents"),
    **{"encoder": ("features", "networks"), "extractor": ("file", "networks"), "tile_size_um": ("file", "tile sizes")},
    "target_magnification": ("coords", "magnifications"),
}
# Of a PatientID that names nobody, in lower case without signs: words of tools that remove names, or only zeros.
_NOBODY = re.compile("|anon(ym(ous|i[sz]ed)?)?|deidentified|unknown|none|null|na|patient|test|removed|redacted|0+|x+")


def file_kinds(bags: Bags) -> dict[str, Counter[str]]:
    """Count the bags of each modality, plane and unit, or network and magnification, as far as their files state them.

    The magnification of pixels is in `Bags.cut`.
    """
    parts = {name: part for name, (part, _) in _KINDS.items() if part == "file" or bags.cut is None}
    values = {name: header_values(bags, name, part=part) for name, part in parts.items()}
    return {name: Counter(value.split(" (")[0] for value in of_bags if value) for name, of_bags in values.items()}


def pixel_sizes(bags: Bags) -> list[float]:
    """Return the smallest and the largest mean side of a pixel of scans, in mm; empty if their files state none."""
    sizes = [float(size) for sizes in header_values(bags, "pixel_mm") for size in sizes.split(" + ") if size]
    return [min(sizes), max(sizes)] if sizes else []


def patients_together(bags: Bags, request: Request) -> Bags:
    """Group bags by the attributes of DICOM headers that a request names as groups.

    Bags without groups are grouped by the patients of their DICOM headers or, if some patients have several bags, of
    their names, as TCGA and BIDS form them. Groups of other origin that separate the bags of a patient cause a warning,
    and so do scans of several modalities, planes or units, and features of several networks or magnifications.
    """
    for name, kinds in file_kinds(bags).items():
        if len(kinds) > 1:
            counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
            text = f"files of several {_KINDS[name][1]} ({counts}): a model may learn these"
            warnings.warn(f"{text}; keep one, or make all alike (in {bags.source})", stacklevel=4)
    patients, unknown = header_patients(bags)
    asked = request.header_groups() if bags.groups is None or bags.groups.tolist() == patients else ()
    if asked and (request.require_labels or all("" not in header_values(bags, name) for name in asked)):
        return bags.replace(groups=_by_header(bags, asked))
    if asked and patients is not None:
        text = f"the DICOM headers of some bags state no {request.groups}: their patients are the groups"
        warnings.warn(f"{text} (in {bags.source})", stacklevel=4)
    origin = "by the PatientID of their DICOM headers"
    if patients is None and request.require_labels:
        origin, patients = "by the TCGA or BIDS names that theirs begin with", barcodes(bags.ids.tolist())
        patients = patients if len(set(patients or ())) < len(bags) else None
    if bags.groups is not None:
        _warn_of_separated(bags, patients, origin)
        return bags
    if unknown and request.require_labels and len(bags) > 1:
        text = f"the DICOM headers of {unknown} of {len(bags)} bags name no patient, or all the same one: scans of one"
        text += f" patient may be in several splits; name a column of patients with {given(groups='patient')}"
        warnings.warn(f"{text} (in {bags.source})", stacklevel=4)
    several = sum(count > 1 for count in Counter(patients).values())
    if several and request.require_labels:
        text = f"{plural(several, 'patient')} with several bags, {origin}: the patients are the groups"
        warnings.warn(f"{text} (in {bags.source})", Note, stacklevel=4)
    return bags if patients is None else bags.replace(groups=patients)


def warn_of_names(bags: Bags, request: Request) -> None:
    """Warn about names of bags that seem to be of one patient, and about folders that seem to be splits or patients.

    The folders of bags without a table of labels may be the classes.
    """
    if not request.require_labels:
        return
    labels = bags.labels if bags.outcome is None else bags.outcome.values[:, 0]
    if bags.groups is None and (alike := _relatives(bags.ids.tolist(), [] if labels is None else labels.tolist())):
        text = f"{len(alike)} sets of bags have names that differ in the side or end alone, such as {listed(alike[0])}"
        warnings.warn(f"{text}: if these are of one patient, name a column of patients", stacklevel=4)
    of_table = request.labels is not None or request.path.is_file()
    if bags.sources is None or not of_table:
        return
    homes = [source_paths(bags, number)[0].parent.name for number in range(len(bags))]
    names, pairs = sorted({*homes}), {*zip(homes, [] if labels is None else labels.tolist())}
    if bags.splits is None and names[1:] and {*map(str.casefold, names)} <= SPLIT_NAMES.keys():
        text = f"the folders {listed(names)} are not used as splits: give the table a column named split"
        warnings.warn(f"{text} (in {bags.source})", stacklevel=4)
    elif bags.groups is None and 2 < len(names) < len(bags) and len(pairs) == len(names):
        text = f"if the {len(names)} folders of the files, such as {names[0]}, are patients, name them in a column"
        warnings.warn(f"{text} `patient`, so that no patient is in two splits (in {bags.source})", stacklevel=4)


def _relatives(names: Sequence[str], labels: Sequence[object]) -> list[list[str]]:
    """Return sets of names that seem to be of one patient: of two sides, or of one label, where they begin alike.

    Examples
    --------
    >>> _relatives(["7_L_CC", "7_R_CC", "8_left", "8_right"], [0, 1, 0, 0])
    [['7_L_CC', '7_R_CC'], ['8_left', '8_right']]
    >>> _relatives(["P1-a", "P1-b", "P2-a", "P2-b", "P3-a", "P3-b"], [0, 0, 1, 1, 0, 0])[0]
    ['P1-a', 'P1-b']
    """
    for ignored, least in ((_SIDE, 2), (_END, len({*labels}) + 1)):
        stems = dict[str, dict[str, object]]()
        for name, label in zip(names, labels):
            stems.setdefault(ignored.sub("", name), {})[name] = label
        alike = [of_stem for of_stem in stems.values() if len(of_stem) > 1]
        if len(alike) >= least and (ignored is _SIDE or all(len({*of_stem.values()}) == 1 for of_stem in alike)):
            return [[*of_stem] for of_stem in alike]
    return []


def header_values(bags: Bags, name: str, *, part: str = "file") -> list[str]:
    """Return an attribute of the files, or of a part of the files, of each bag; "" if they do not state it."""
    values = []
    for number in range(len(bags)):
        known = bags.attributes is not None and f'"{name}"' in str(bags.attributes[number])
        files = bags.described(number).values() if known else ()
        values.append(" + ".join(sorted({str(file.get(part, {}).get(name, "")) for file in files} - {""})))
    return values


def header_patients(bags: Bags) -> tuple[list[str] | None, int]:
    """Return the patient of each bag by its DICOM headers, and the number of bags whose patient is unknown.

    The study, or else the bag itself, replaces an unknown patient. They are None if there is only one, or if nothing is
    known of any bag.
    """
    if bags.attributes is None or not any('"PatientID"' in str(entry) for entry in bags.attributes):
        return None, 0
    values = header_values(bags, "PatientID")
    named = ["" if _NOBODY.fullmatch(re.sub(r"[\W_]", "", value.casefold())) else value for value in values]
    named = named if len({*named} - {""}) > 1 else [""] * len(bags)
    studies, ids = named if all(named) else header_values(bags, _STUDY), bags.ids.tolist()
    patients = [name or study or bag for name, study, bag in zip(named, studies, ids)]
    return (patients if any(named) or 1 < len(set(patients)) < len(bags) else None), named.count("")


def group_origin(bags: Bags) -> str:
    """Return where the groups of bags come from: DICOM headers, barcodes, or the data."""
    groups = None if bags.groups is None else bags.groups.tolist()
    patients, unknown = header_patients(bags)
    if patients is not None and groups == patients:
        return "PatientID of the DICOM headers" + (f", unknown for {plural(unknown, 'bag')}" if unknown else "")
    name = next((name for name in HEADER if header_values(bags, name) == groups), None)
    if name is not None:
        return f"{name} of the DICOM headers"
    return "TCGA or BIDS names" if barcodes(bags.ids.tolist()) == groups else "a column of the data"


def _by_header(bags: Bags, names: Sequence[str]) -> list[str]:
    """Return the values of these attributes of the DICOM headers; refuse bags that do not state one of them."""
    columns = [header_values(bags, name) for name in names]
    for name, values in zip(names, columns):
        absent = [bag for bag, value in zip(bags.ids.tolist(), values) if not value]
        if absent:
            got = f"none in {len(absent)} of {len(bags)}: {listed(absent)} (in {bags.source})"
            wanted, advice = "as a column, or in the DICOM headers of all bags", "name another column or attribute"
            raise BagDataError(f"Expected {name} {wanted}, got {got}; {advice} as `groups`.")
    return ["/".join(row) for row in zip(*columns)]


def _warn_of_separated(bags: Bags, patients: Sequence[str] | None, origin: str) -> None:
    """Warn about groups that separate the bags of a patient, who is known by its `origin`."""
    pairs = set(zip(patients or (), () if bags.groups is None else bags.groups.tolist()))
    count = Counter(patient for patient, _ in pairs)
    split = [patient for patient in sorted(count) if count[patient] > 1]
    if split:
        text = f"{plural(len(split), 'patient')} with bags in several groups, {origin}"
        warnings.warn(f"{text}: {listed(split)} (in {bags.source}); they may be in several splits", stacklevel=5)


FILE = "file name"  # column of the names, if the table has none
_BARCODE = re.compile(r"TCGA-\w{2}-\w{4}(?:-[^.]*)?|(sub-[a-z\d]+)(?=_)", re.IGNORECASE)  # of TCGA, or of BIDS
_VIAL = re.compile(r"(?<=^TCGA-\w\w-\w{4})(-\d\d)[A-Z]$")
_PATIENT, _SLIDE = 3, 6  # parts of the barcode of a patient and of a slide: TCGA-XX-YYYY and TCGA-XX-YYYY-01Z-00-DX1
_SHOWN = 5
_SAMPLE = 3  # position of the sample in the barcode: 01 is a tumor, 11 normal tissue


def barcodes(names: Sequence[str], *, parts: int = _PATIENT) -> list[str] | None:
    """Return the TCGA barcode of the patient, or a longer one, at the start of each name; None if none has one.

    The subject of BIDS is the barcode of its files. A name without one, as of a slide from elsewhere, stays as it is.

    Examples
    --------
    >>> barcodes(["TCGA-A1-A0SB-01Z-00-DX1.0f6c", "TCGA-A1-A0SC-01Z-00-DX1"])
    ['TCGA-A1-A0SB', 'TCGA-A1-A0SC']
    >>> barcodes(["sub-01_ses-1_T1w", "sub-01_ses-2_T1w"])
    ['sub-01', 'sub-01']
    """
    matches = [_BARCODE.match(name.rpartition("/")[2]) for name in names]
    patients = [(m[1] or "-".join(m[0].split("-")[:parts]).upper()) if m else name for name, m in zip(names, matches)]
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

    The patients are the `groups` [N], or the `barcodes` of the names. `named` is the column that names files, if
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
    source = "the groups of the bags" if groups is not None else "the TCGA or BIDS names that files begin with"
    text = f"a row of the table is a patient: its column {column} holds {len(set(places) - {None})} of {source}"
    warnings.warn(f"{text}, for {len({file for _, file in rows})} bags (in {request.where})", Note, stacklevel=5)
    return spread


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
        got = f"several for {len(wrong)}: {patients}{more} (in {where})"
        advice = f"name the files in the table, or in a table of slides with `slides`{advice}"
        raise BagDataError(f"Expected {expected} for each patient, got {got}; {advice}.")
