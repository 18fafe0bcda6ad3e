"""Patients as groups of bags: by the headers of DICOM files, and by TCGA barcodes."""

import re
import warnings
from collections import Counter
from collections.abc import Sequence

from midam.data.bags import Bags
from midam.data.sources.patient_rows import barcodes
from midam.data.sources.request import HEADER, Request
from midam.errors import BagDataError, Note, given, listed, plural

_STUDY = "StudyInstanceUID"
# Of a PatientID that names nobody, in lower case without signs: words of tools that remove names, or only zeros.
_NOBODY = re.compile("|anon(ym(ous|i[sz]ed)?)?|deidentified|unknown|none|null|na|patient|test|removed|redacted|0+|x+")


def patients_together(bags: Bags, request: Request) -> Bags:
    """Group bags by the attributes of DICOM headers that a request names as groups.

    Bags without groups are grouped by the patients of their DICOM headers or, if some patients have several bags, of
    their TCGA barcodes. Groups of other origin that separate the bags of a patient cause a warning.
    """
    if bags.groups is None and (asked := request.header_groups()) and request.require_labels:
        return bags.replace(groups=_by_header(bags, asked))
    patients, unknown = header_patients(bags)
    if bags.groups is not None:
        _warn_of_separated(bags, patients)
        return bags
    origin = "by the TCGA barcodes that their names begin with"
    if patients is not None:
        origin = "by the PatientID of their DICOM headers"
    elif request.require_labels:
        patients = barcodes(bags.ids.tolist())
        patients = patients if len(set(patients or ())) < len(bags) else None
    if unknown and request.require_labels and len(bags) > 1:
        text = f"the DICOM headers of {unknown} of {len(bags)} bags name no patient, or all the same one: scans of one"
        text += f" patient may be in several splits; name a column of patients with {given(groups='patient')}"
        warnings.warn(f"{text} (in {bags.source})", stacklevel=4)
    several = sum(count > 1 for count in Counter(patients).values())
    if several and request.require_labels:
        text = f"{plural(several, 'patient')} with several bags, {origin}: the patients are the groups"
        warnings.warn(f"{text} (in {bags.source})", Note, stacklevel=4)
    return bags if patients is None else bags.replace(groups=patients)


def header_values(bags: Bags, name: str) -> list[str]:
    """Return an attribute of the DICOM headers of each bag; "" if they do not state it."""
    values = []
    for number in range(len(bags)):
        known = bags.attributes is not None and f'"{name}"' in str(bags.attributes[number])
        files = bags.described(number).values() if known else ()
        values.append(" + ".join(sorted({str(file.get("file", {}).get(name, "")) for file in files} - {""})))
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
    informative = any(named) or 1 < len(set(patients)) < len(bags)
    return (patients if informative else None), named.count("")


def group_origin(bags: Bags) -> str:
    """Return where the groups of bags come from: DICOM headers, barcodes, or the data."""
    groups = None if bags.groups is None else bags.groups.tolist()
    patients, unknown = header_patients(bags)
    if patients is not None and groups == patients:
        return "PatientID of the DICOM headers" + (f", unknown for {plural(unknown, 'bag')}" if unknown else "")
    name = next((name for name in HEADER if header_values(bags, name) == groups), None)
    if name is not None:
        return f"{name} of the DICOM headers"
    return "TCGA barcodes of the names" if barcodes(bags.ids.tolist()) == groups else "a column of the data"


def _by_header(bags: Bags, names: Sequence[str]) -> list[str]:
    """Return the values of these attributes of the DICOM headers; refuse bags that do not state one of them."""
    columns = [header_values(bags, name) for name in names]
    for name, values in zip(names, columns):
        absent = [bag for bag, value in zip(bags.ids.tolist(), values) if not value]
        if absent:
            raise BagDataError(
                f"Expected {name} as a column, or in the DICOM headers of all bags, got none in {len(absent)} of "
                f"{len(bags)}: {listed(absent)} (in {bags.source}); name another column or attribute as `groups`."
            )
    return ["/".join(row) for row in zip(*columns)]


def _warn_of_separated(bags: Bags, patients: Sequence[str] | None) -> None:
    """Warn about groups that separate the bags of a patient of the DICOM headers."""
    pairs = set(zip(patients or (), () if bags.groups is None else bags.groups.tolist()))
    count = Counter(patient for patient, _ in pairs)
    split = [patient for patient in sorted(count) if count[patient] > 1]
    if split:
        text = f"{plural(len(split), 'patient')} with bags in several groups, by the PatientID of the DICOM headers"
        warnings.warn(f"{text}: {listed(split)} (in {bags.source}); they may be in several splits", stacklevel=5)
