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
from midam.data.validate import check_feature_names, check_rows, feature_order, refuse_not_finite
from midam.errors import BagDataError, DataNotFoundError, Note, fault_list, given, listed
from midam.files import require_plain, require_plain_folder
from midam.names import missing

_LISTED = 10  # files at fault that a message names in one line
_LINES = 20  # and in a list
_EXACT_HALF = 2048  # up to which float16 holds all whole numbers
_ROWS = 4096  # rows of features that are checked at a time
_interned = lru_cache(maxsize=16)(lambda names: names)  # equal names are one object, however many files have them
OR_SKIP = f", or leave such files out with {given(missing='skip')}"  # advice of errors about one file of many
_RESIZE = "resize them"  # advice on scans of several sizes
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
        raise BagDataError(
            f"Expected names of features [D] under {FEATURE_NAMES!r}, got others (in {where}); give a list of strings, "
            "or leave it out."
        )
    return _interned(check_feature_names(names, shape[0], where))


def sift_files(paths: Sequence[Path], request: Request) -> tuple[dict[int, FileFacts], dict[int, str]]:
    """Probe files, several at a time; return facts by position, and why the others are left out.

    Files without instances are left out. If the request skips missing files, so are unusable files, and files whose
    instances differ from most in shape, type of pixels or feature names. All others hold the same kind of instances.
    """
    skip = request.missing == "skip"
    facts: dict[int, FileFacts] = {}
    wrong: dict[int, BagDataError] = {}

    def look(path: Path) -> FileFacts | BagDataError:
        try:
            return probe(path, request.images, reader=request.reader, values=skip)
        except BagDataError as error:
            return error
        except DataNotFoundError as error:  # a broken link
            return BagDataError(str(error))

    for number, (_, probed) in enumerate(read_ahead(paths, look, workers=_PROBES)):
        if isinstance(probed, BagDataError):
            wrong[number] = probed
        else:
            facts[number] = probed
        if request.on_file is not None:
            request.on_file(number + 1, len(paths))
    faults = [(paths[at], error) for at, error in wrong.items() if not skip and not isinstance(error, NoInstancesError)]
    if faults:
        raise _refusal(faults, len(paths))
    places = list(facts)
    for number, why in _unlike([*facts.values()]).items() if skip and facts else ():
        wrong[places[number]] = BagDataError(why)
        del facts[places[number]]
    if not facts:
        raise _refusal([(paths[at], error) for at, error in wrong.items()], len(paths))
    kept, kept_facts = [paths[at] for at in facts], [*facts.values()]
    check_like(kept, kept_facts)
    _warn_of_scales(kept_facts)
    return facts, {at: str(wrong[at]) for at in sorted(wrong)}


def _refusal(wrong: Sequence[tuple[Path, BagDataError]], count: int) -> BagDataError:
    """Return the error about files that cannot be used, with advice on how to leave them out."""
    leave = "" if len(wrong) == count else OR_SKIP
    kind = SizesError if all(isinstance(error, SizesError) for _, error in wrong) else BagDataError
    if len(wrong) == 1:
        return kind(f"{str(wrong[0][1]).removesuffix('.')}{leave}.")
    head = f"Expected files that can be used, got {len(wrong)} of {count} that cannot:"
    lines = _fault_lines(wrong)
    text = f"{head}\n- {lines[0]}" if len(lines) == 1 else fault_list(head, lines, most=_LINES)
    return kind(text + (f" {leave.removeprefix(', ').capitalize()}." if leave else ""))


def _kinds(facts: Sequence[FileFacts], *, skip: bool = False) -> list[tuple[str, list[Any], str]]:
    """Return the properties that instances must share: name, value of each file, and advice.

    With `skip`, scans may differ in size, since they can be resized.
    """
    scans = skip and facts[0].cut in ("slices", "volume")
    # Only slides have a magnification, and are limited to tissue.
    slides = ["level0_magnification" in fact.attributes.get("coords", {}) for fact in facts]
    sources = [("slides" if slide else "images") if fact.cut else "" for slide, fact in zip(slides, facts)]
    shapes = [fact.instance_shape[: 1 if scans else None] for fact in facts]
    pixels = [fact.dtype if fact.cut else None for fact in facts]
    advice = f"convert the files to one type{OR_SKIP}"
    shape = ("instances of shape", shapes, _same_shape(facts))
    return [("files that are", sources, "leave one kind out"), shape, ("pixels of type", pixels, advice)]


def _unlike(facts: Sequence[FileFacts]) -> dict[int, str]:
    """Return the files whose instances differ from most in kind or in feature names, with the difference."""
    unlike = dict[int, str]()
    for kind, values, _ in _kinds(facts, skip=True):
        common = Counter(values).most_common(1)[0][0]
        wrong = [at for at, value in enumerate(values) if value != common]
        unlike |= {at: f"{kind} {values[at]}, not {common} as most files have" for at in wrong}
    names = {at: frozenset(fact.names) for at, fact in enumerate(facts) if fact.names is not None and at not in unlike}
    most = Counter(names.values()).most_common(1)
    why = "its features have other names than those of most files"
    return unlike | {at: why for at, feature_names in names.items() if feature_names != most[0][0]}


def _fault_lines(wrong: Sequence[tuple[Path, BagDataError]]) -> list[str]:
    """Return a line for each fault of files; a fault of several files is listed once, with the names of all."""
    kinds: dict[str, list[Path]] = {}
    for path, error in wrong:
        kinds.setdefault(str(error).replace(str(path), "\0"), []).append(path)
    above = os.path.commonpath([path.parent for path, _ in wrong])
    lines = []
    for text, paths in kinds.items():
        names = listed([path.relative_to(above).as_posix() for path in paths], most=_LISTED)
        more = f"; {len(paths)} such: {names}" if len(paths) > 1 else ""
        end = text.find(")", text.rfind("\0")) % (len(text) + 1)  # a text without a place gets them at its end
        lines.append(f"{text[:end]}{more}{text[end:]}".replace("\0", str(paths[0])))
    return lines


def check_like(names: Sequence[object], facts: Sequence[FileFacts]) -> None:
    """Refuse instances of several shapes, and pixels of several types.

    Features of several types are read as a type that holds them all, with a note. Coordinates that only some files have
    cause a warning.
    """
    types = Counter(str(fact.dtype) for fact in facts)
    if not facts[0].cut and len(types) > 1:
        kinds_of = ", ".join(f"{count} of {name}" for name, count in types.most_common())
        wide = np.result_type(*(fact.dtype for fact in facts))
        first = next(name for name, fact in zip(names, facts) if str(fact.dtype) != types.most_common(1)[0][0])
        warnings.warn(f"features of several types ({kinds_of} files) are read as {wide}: {first}", Note, stacklevel=5)
    for kind, values, advice in _kinds(facts):
        # The value that most files have is right; in a tie, the first.
        first = values.index(Counter(values).most_common(1)[0][0])
        other = [place for place, value in enumerate(values) if value != values[first]]
        if other:
            text = listed([str(names[place]) for place in other], most=_LISTED)
            sizes = kind.startswith("instances") and advice.startswith(_RESIZE)
            raise (SizesError if sizes else BagDataError)(
                f"Expected {kind} {values[first]} as in {names[first]}, got {values[other[0]]} (in {text}); {advice}."
            )
    _note_places(names, facts)
    _check_same_names(names, facts)


def places_width(facts: Sequence[FileFacts]) -> int | None:
    """Return the width of coordinates in most of the files that have any; None if no file has any."""
    widths = Counter(fact.coords_width for fact in facts if fact.coords_width is not None)
    return widths.most_common(1)[0][0] if widths else None


def _note_places(names: Sequence[object], facts: Sequence[FileFacts]) -> None:
    """Warn about files whose instances have no place: without coordinates, or with another width than most."""
    width = places_width(facts)
    other = [place for place, fact in enumerate(facts) if fact.coords_width != width]
    if other:
        got = facts[other[0]].coords_width
        why = "no coordinates" if got is None else f"coordinates of width {got}"
        text = f"{len(other)} of {len(facts)} files hold no coordinates of width {width} as the others do"
        text += f", the first {names[other[0]]} has {why}: maps leave out their instances"
        warnings.warn(text, stacklevel=6)


def _check_same_names(files: Sequence[object], facts: Sequence[FileFacts]) -> None:
    """Refuse features of other names than most files have; their order is free. Note files without names."""
    names_by_file = [(file, fact.names) for file, fact in zip(files, facts) if fact.names is not None]
    if not names_by_file:
        return
    common = Counter(frozenset(names) for _, names in names_by_file).most_common(1)[0][0]
    for file, names in names_by_file:
        if common != frozenset(names):
            feature_order(sorted(common), names, reference="most files", where=str(file))
    if len(names_by_file) < len(facts):
        first = next(file for file, fact in zip(files, facts) if fact.names is None)
        count = f"{len(facts) - len(names_by_file)} of {len(facts)} files"
        text = f"{count} do not name their features, which are read in the order of {names_by_file[0][0]}: {first}"
        warnings.warn(text, Note, stacklevel=5)


def _warn_of_scales(facts: Sequence[FileFacts]) -> None:
    """Warn about slides of several magnifications at level 0, whose patches show areas of several sizes."""
    coords = [fact.attributes.get("coords", {}) for fact in facts]
    powers = {slide.get("level0_magnification") for slide in coords}
    at_level0 = all(slide.get("target_magnification") == slide.get("level0_magnification") for slide in coords)
    if len(powers) > 1 and facts[0].cut == "patches" and at_level0:
        scales = sorted({str(slide.get("level0_magnification", "unknown")) for slide in coords})
        text = f"slides of several magnifications ({listed(scales)}) are read at level 0"
        warnings.warn(f"{text}: give `magnification` to read all at the same one", stacklevel=5)


def _same_shape(facts: Sequence[FileFacts]) -> str:
    if facts[0].cut in ("slices", "volume") and len({fact.instance_shape[0] for fact in facts}) == 1:
        return f"{_RESIZE}, such as with {given(slice_size=64)}, or `volume_size` with {given(volume=True)}"
    return ("convert the images to color, or to gray" if facts[0].cut else "use features of one encoder") + OR_SKIP
