"""Content of files of instances: of each file, and compared with each other."""

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.on_disk import read_ahead
from midam.data.sources.file_names import file_reader
from midam.data.sources.formats.open_file import FEATURE_NAMES, OpenFile, refuse_empty, refuse_growth, sound
from midam.data.sources.request import DEFAULTS, ImageOptions, Places, Request, SizesError
from midam.data.validate import check_feature_names, check_rows, refuse_not_finite
from midam.errors import BagDataError, DataNotFoundError, Note, fault_list, given, listed
from midam.files import require_plain, require_plain_folder
from midam.names import missing

_LISTED = 10  # files at fault that a message names in one line
_LINES = 20  # and in a list
_EXACT_HALF = 2048  # up to which float16 holds all whole numbers
_ROWS = 4096  # rows of features that are checked at a time
_interned = lru_cache(maxsize=16)(lambda names: names)  # equal names are one object, however many files have them
OR_SKIP = f", or leave such files out with {given(missing='skip')}"  # advice of errors about one file of many
AGAIN = "extract it again"
_PROBES = 8  # files opened at a time: a network share answers several requests as fast as one


@dataclass(frozen=True)
class FileFacts:
    """Content of a file of instances; attributes and cut are those of `OpenFile`."""

    rows: int
    instance_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    coords_width: int | None  # None without coordinates
    coords_dtype: np.dtype[Any] | None
    attributes: Mapping[str, Mapping[str, Any]]
    cut: str = ""
    places: Places | None = None  # of the patches or slices of an image, slide or volume
    names: tuple[str, ...] | None = None  # of the features


def open_file(
    path: Path, options: ImageOptions = DEFAULTS, places: Places | None = None, *, reader: str | None = None
) -> OpenFile:
    """Open a file of instances, or the folder of a DICOM series; `reader` names the only reader to ask."""
    file_format = file_reader(path, reader)
    if not path.exists():
        raise DataNotFoundError(missing(path, "a file"))
    require_plain(path)
    refuse_empty(path)
    opened = file_format.open(path, options, places)
    with sound("a readable file", path, close=opened.close):
        refuse_growth(opened, path)
        return opened


class NoInstancesError(BagDataError):
    """A file is sound, but has no instance."""


def probe(
    path: Path, options: ImageOptions = DEFAULTS, *, reader: str | None = None, values: bool = False
) -> FileFacts:
    """Open a file and return its facts; images and volumes are read, so that damage is found now.

    With `values`, features are read too, and refused if they are not finite.
    """
    require_plain_folder(path)  # of a series or an array, which are folders
    with closing(open_file(path, options, reader=reader)) as opened, sound("a readable file", path):
        file_reader(path, reader).verify(path)
        facts = facts_of(opened, where=str(path))
        for low in range(0, facts.rows, _ROWS) if values and not opened.cut and facts.dtype.kind == "f" else ():
            part = slice(low, min(low + _ROWS, facts.rows))
            refuse_not_finite(np.asarray(opened.features[part]), part, str(path), advice=AGAIN)
    return facts


def facts_of(opened: OpenFile, *, where: str) -> FileFacts:
    """Return the content of an open file; refuse a file without instances, or with coordinates of another length."""
    features, coords = opened.features, opened.coords
    if tuple(features.shape[:1]) == (0,) and not opened.cut:
        raise NoInstancesError(f"Expected at least one instance, got none (in {where}); remove the file, or fill it.")
    check_rows(features, coords, where)
    n = features.shape[0]
    if opened.cut == "patches":
        features[n - 1 :]  # read the end, which an incomplete copy of a slide lacks
    kind, attributes, cut = features.dtype.newbyteorder("="), opened.attributes, opened.cut
    names = None if cut or opened.names is None else _checked_names(opened.names, features.shape[1:], where)
    if coords is None or not coords.shape[1]:
        return FileFacts(n, features.shape[1:], kind, None, None, attributes, cut, names=names)
    width, coords_dtype = coords.shape[1], coords.dtype.newbyteorder("=")
    places = coords[:] if cut else None
    if coords_dtype == np.float16 and np.nanmax(np.abs(coords[:]), initial=0) > _EXACT_HALF:
        doubt = f"its coordinates are float16, exact only up to {_EXACT_HALF}: maps show patches at wrong positions"
        attributes = {**attributes, "file": {**attributes.get("file", {}), "doubt": doubt}}
    return FileFacts(n, features.shape[1:], kind, width, coords_dtype, attributes, cut, places, names)


def _checked_names(names: Sequence[str], shape: tuple[int, ...], where: str) -> tuple[str, ...]:
    """Return names of features [D] in the form of `name_of`; refuse others than one name each."""
    if not isinstance(names, list | tuple | np.ndarray) or np.ndim(names) != 1 or len(shape) != 1:
        got = f"others (in {where}); give a list of strings, or leave it out"
        raise BagDataError(f"Expected names of features [D] under {FEATURE_NAMES!r}, got {got}.")
    return _interned(check_feature_names(names, shape[0], where))


def sift_files(paths: Sequence[Path], request: Request) -> tuple[dict[int, FileFacts], dict[int, str]]:
    """Probe files, several at a time; return facts by position, and why the others are left out.

    Files without instances are left out. If the request skips missing files, so are unusable files, and files whose
    instances differ from most. All others hold the same kind of instances.
    """
    skip = request.missing == "skip"
    facts: dict[int, FileFacts] = {}
    wrong: dict[int, BagDataError] = {}

    def look(path: Path) -> FileFacts | BagDataError:
        try:
            return probe(path, request.images, reader=request.reader, values=skip)
        except (BagDataError, DataNotFoundError) as error:  # the second is a broken link
            return error if isinstance(error, BagDataError) else BagDataError(str(error))

    for number, (_, probed) in enumerate(read_ahead(paths, look, workers=_PROBES)):
        if isinstance(probed, BagDataError):
            wrong[number] = probed
        else:
            facts[number] = probed
    odd = unlike({at: (paths[at], fact) for at, fact in facts.items()})
    left = {at: error for at, error in wrong.items() if skip or isinstance(error, NoInstancesError)}
    left |= {at: error for at, error in odd.items() if skip and not isinstance(error, SizesError)}
    wrong |= odd
    refused = sorted(wrong if len(left) == len(paths) else wrong.keys() - left.keys())
    if refused:
        raise _refusal([(paths[at], wrong[at]) for at in refused], len(paths))
    facts = {at: fact for at, fact in facts.items() if at not in wrong}
    _note_differences([paths[at] for at in facts], [*facts.values()])
    return facts, {at: str(wrong[at]) for at in sorted(wrong)}


def _refusal(wrong: Sequence[tuple[Path, BagDataError]], count: int) -> BagDataError:
    """Return the error about files that cannot be used; a fault of several files is listed once, with their names."""
    leave = "" if len(wrong) == count else OR_SKIP
    kind = SizesError if all(isinstance(error, SizesError) for _, error in wrong) else BagDataError
    alike: dict[str, list[Path]] = {}
    for path, error in wrong:
        alike.setdefault(str(error).removesuffix(".").replace(str(path), "\0"), []).append(path)
    above = os.path.commonpath([path.parent for path, _ in wrong])
    lines = []
    for text, paths in alike.items():
        names = listed([path.relative_to(above).as_posix() for path in paths], most=_LISTED)
        such = f"{paths[0]}; {len(paths)} such: {names}" if len(paths) > 1 else str(paths[0])
        lines.append(f"{text.replace(chr(0), such)}{leave}.")
    head = f"Expected files that can be used, got {len(wrong)} of {count} that cannot:"
    return kind(f"{head}\n- {lines[0]}" if len(lines) == 1 < len(wrong) else fault_list(head, lines, most=_LINES))


def unlike(files: Mapping[int, tuple[object, FileFacts]]) -> dict[int, BagDataError]:
    """Return the errors about files whose instances differ from most in kind, shape, type of pixels or feature names.

    In a tie, the first file is right. Scans of several sizes, which can be resized, give a `SizesError`.
    """
    facts, errors = [fact for _, fact in files.values()], dict[int, BagDataError]()
    # Only slides have a magnification, and are limited to tissue.
    slides = ["level0_magnification" in fact.attributes.get("coords", {}) for fact in facts]
    sources = [("slides" if slide else "images") if fact.cut else "" for slide, fact in zip(slides, facts)]
    pixels = [fact.dtype if fact.cut else None for fact in facts]
    scans = [fact.cut in ("slices", "volume") for fact in facts]
    color = "convert the images to color, or to gray" if any(x.cut for x in facts) else "use features of one encoder"
    resize = f"resize them, such as with {given(slice_size=64)}, or `volume_size` with {given(volume=True)}"
    kinds: list[tuple[str, list[Any], str]] = [
        ("files that are", sources, "leave one kind out"),
        ("channels", [fact.instance_shape[0] if scan else None for fact, scan in zip(facts, scans)], color),
        ("instances of shape", [fact.instance_shape for fact in facts], resize if all(scans) else color),
        ("pixels of type", pixels, "convert the files to one type"),
    ]
    for kind, values, advice in kinds:
        first = values.index(Counter(values).most_common(1)[0][0]) if values else 0
        for (at, (name, _)), value in zip(files.items(), values):
            if value != values[first] and at not in errors:
                as_in = f"{values[first]} as in {[*files.values()][first][0]}"
                error = SizesError if advice == resize else BagDataError
                errors[at] = error(f"Expected {kind} {as_in}, got {value} (in {name}); {advice}.")
    sets = {at: frozenset(fact.names) for at, (_, fact) in files.items() if fact.names is not None and at not in errors}
    common = Counter(sets.values()).most_common(1)[0][0] if sets else frozenset()
    for at, names in sets.items():
        absent, more = (sorted(map(repr, part)) for part in (common - names, names - common))
        if absent or more:
            got = f"no {listed(absent, most=3)}" if absent else f"also {listed(more, most=3)}"
            errors[at] = BagDataError(
                f"Expected the features of most files, got {got} (in {files[at][0]}); rename them."
            )
    return errors


def places_width(facts: Sequence[FileFacts]) -> int | None:
    """Return the width of coordinates in most of the files that have any; None if no file has any."""
    widths = Counter(fact.coords_width for fact in facts if fact.coords_width is not None)
    return widths.most_common(1)[0][0] if widths else None


def _note_differences(names: Sequence[object], facts: Sequence[FileFacts]) -> None:
    """Note features of several types and files without feature names, and warn about files without coordinates.

    Features are read as a type that holds them all; maps leave out instances without a place.
    """
    types = Counter(str(fact.dtype) for fact in facts)
    if not facts[0].cut and len(types) > 1:
        kinds_of = ", ".join(f"{count} of {name}" for name, count in types.most_common())
        wide = np.result_type(*(fact.dtype for fact in facts))
        first = next(name for name, fact in zip(names, facts) if str(fact.dtype) != types.most_common(1)[0][0])
        warnings.warn(f"features of several types ({kinds_of} files) are read as {wide}: {first}", Note, stacklevel=5)
    width = places_width(facts)
    other = [place for place, fact in enumerate(facts) if fact.coords_width != width]
    if other:
        got = facts[other[0]].coords_width
        why = "no coordinates" if got is None else f"coordinates of width {got}"
        text = f"{len(other)} of {len(facts)} files hold no coordinates of width {width} as the others do"
        text += f", the first {names[other[0]]} has {why}: maps leave out their instances"
        warnings.warn(text, stacklevel=5)
    named, others = ([n for n, fact in zip(names, facts) if (fact.names is None) == none] for none in (False, True))
    if named and others:
        text = f"{len(others)} of {len(facts)} files do not name their features, which are read in the order of"
        warnings.warn(f"{text} {named[0]}: {others[0]}", Note, stacklevel=5)
    _warn_of_scales(facts)


def _warn_of_scales(facts: Sequence[FileFacts]) -> None:
    """Warn about slides of several magnifications at level 0, whose patches show areas of several sizes."""
    coords = [fact.attributes.get("coords", {}) for fact in facts]
    powers = {slide.get("level0_magnification") for slide in coords}
    at_level0 = all(slide.get("target_magnification") == slide.get("level0_magnification") for slide in coords)
    if len(powers) > 1 and facts[0].cut == "patches" and at_level0:
        scales = sorted({str(slide.get("level0_magnification", "unknown")) for slide in coords})
        text = f"slides of several magnifications ({listed(scales)}) are read at level 0"
        warnings.warn(f"{text}: give `magnification` to read all at the same one", stacklevel=5)
