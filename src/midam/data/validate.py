"""Checks of the arrays that `midam.data.bags.Bags` is made of. Each error names the first bag at fault."""

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam import errors
from midam.data.on_disk import Rows
from midam.errors import BagDataError, CheckpointError, OneClassError, given, listed
from midam.names import EXACT, MISSING, is_missing, name_of, names_of, text_of

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SPLIT_NAMES["testing"] = "test"
ClassName = str | int | float | bool
TwoNames = tuple[ClassName, ClassName]  # of the labels 0 and 1
LARGEST = np.iinfo(np.int64).max  # largest whole number
MOST = 2.0**64  # above it, float32 overflows when it squares a number; marks of no data such as 1e20 are larger
FEATURES_SHOWN = 3
_LAST_CHARACTER = 0x10FFFF  # of Unicode
_CHUNK_BYTES = 1 << 24  # a scan holds about this much of the instances at a time


def as_array(values: Any, dtype: type | None = None) -> NDArray[Any]:
    """Return an array of numbers; a tensor may be on any device, and a lazy conjugate or negative is resolved.

    Whole numbers that float64 would round are refused where it is wanted: different ones would become equal.
    """
    refuse_masked(values)
    if hasattr(values, "resolve_neg"):
        values = values.detach().resolve_conj().resolve_neg().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    try:
        array = np.asarray(values, dtype)
        whole = dtype is np.float64 and np.asarray(values).dtype.kind in "iu"
    except (TypeError, ValueError) as error:  # rows of several lengths, or no numbers at all
        got = f"got others ({errors.first_line(error)})"
        raise BagDataError(f"Expected numbers in rows of equal length, {got}; give such rows.") from None
    if whole and np.abs(array).max(initial=0) > EXACT:
        raise BagDataError(f"Expected whole numbers up to 2**53, got {np.abs(array).max():.0f}; scale them down.")
    return array


def in_bag_order(values: Any, ids: Collection[str], kind: str, *, strict: bool = True) -> Any:
    """Return a Series or DataFrame whose index names the bags in the order of their `ids`, and others as they are.

    Numbers in an index may be positions, if none names a bag. They are positions where the ids are those of 0 to N - 1
    in this order, and, for rows, whose `ids` are no array, in any order. Texts that name no bag are refused if
    `strict`, and else ignored, as scikit-learn does. Messages call a value a `kind`.
    """
    if not hasattr(values, "iloc") or values.index.nlevels > 1:
        return values
    named, positions, numbers = {*ids}, [*range(len(ids))], [*map(str, range(len(ids)))]
    shared, texts = named.intersection(map(name_of, values.index)), any(isinstance(x, str) for x in values.index)
    plain = [*ids] == numbers or not isinstance(ids, np.ndarray)
    counted = plain and named == {*numbers} and not (texts and shared == named)
    counted = counted or ([*values.index] == positions and shared != named)
    if counted or not (shared or (strict and texts)):
        return values
    return in_order(values, ids, kind)


def in_order(values: Any, bags: Collection[str], kind: str) -> Any:
    """Return a Series, as an array, or a DataFrame in the order of the names `bags`, which its index must hold.

    An index that pandas made, 0 to N - 1 without a name, is refused: these may be positions.
    """
    index, values = values.index, values.set_axis(values.index.map(name_of))
    if len(values) != len(bags) or not values.index.isin(bags).all() or not values.index.is_unique:
        got = "a Series whose index does not match; give it the names of the bags as index, or pass an array"
        raise BagDataError(f"Expected a {kind} for each of the {len(bags)} bags, got {got}.")
    made = type(index).__name__ == "RangeIndex" and index.name is None and [*index] == [*range(len(index))]
    if made and [*values.index] != [*bags]:
        got = f"0 to {len(bags) - 1}, which bags have as names in another order; pass an array, or name the index"
        raise BagDataError(f"Expected a Series of {kind}s with an index of positions or of names, got {got}.")
    return values.loc[bags] if values.ndim == 2 else values.loc[bags].to_numpy()


def refuse_other_order(*values: Any) -> None:
    """Refuse Series and DataFrames whose indexes hold the same names in another order, or partly others.

    So do columns of the same names in another order. An index of 0 to N - 1 may hold positions.
    """
    for axis, kind in (("index", "Series of the bags"), ("columns", "columns")):
        named = [getattr(one, axis) for one in values if hasattr(one, "iloc") and hasattr(one, axis)]
        named = [names for names in named if [*names] != [*range(len(names))]]
        for first, other in ((named[0], other) for other in named[1:]):
            if (len(other), other.nlevels) != (len(first), first.nlevels) or other.equals(first):
                continue
            known = other.isin(first)
            if known.all() if axis == "columns" else known.any():
                one, two = ([*names][int(np.argmax(other != first))] for names in (first, other))
                got = f"{one!r} and {two!r} in one place; order one by the other"
                raise BagDataError(f"Expected {kind} in one order, got {got}: `scores.reindex({axis}=labels.{axis})`.")


def column_names(values: Any) -> list[Any] | None:
    """Return the names of the columns of a DataFrame; None if they are positions, and for an array."""
    names = [*getattr(values, "columns", ())]
    return None if names == [*range(len(names))] else names


def bag_array(values: Any, bag: int) -> NDArray[Any]:
    """Act as `as_array` for the instances of a bag, which messages name by its position."""
    try:
        return as_array(values)
    except BagDataError as error:
        ragged = "Expected instances of one width, got several widths; give each bag as an array [n, ...]."
        raise BagDataError(errors.with_place(error if np.ma.is_masked(values) else ragged, f"bag {bag}")) from None


def refuse_masked(values: Any) -> None:
    """Refuse an array of `numpy.ma` with masked entries: NumPy would read the numbers behind the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):  # not an array of pandas, with its own mask
        count = np.count_nonzero(values.mask)
        raise BagDataError(f"Expected no masked entries, got {count}; leave them out, or fill them with NaN.")


def int_array(values: ArrayLike, name: str, source: str) -> NDArray[np.int64]:
    """Return whole numbers as int64 [n]."""
    array = as_array(values)
    if array.ndim != 1:
        raise BagDataError(f"Expected one-dimensional {name}, got shape {array.shape} (in {source}); flatten them.")
    whole = array.astype(np.int64) if array.dtype.kind in "biuf" and np.isfinite(array).all() else None
    if whole is None or not np.array_equal(whole, array):
        raise BagDataError(f"Expected {name} that are whole numbers, got {array.dtype} (in {source}); number them.")
    return whole


def group_array(values: ArrayLike, ids: NDArray[np.str_], source: str) -> NDArray[np.str_]:
    """Return group names as str [n]; a missing one would tie unrelated bags into one group."""
    names = site_array(values, source)
    for place in np.flatnonzero(names == ""):
        bag, word = (ids[place] if place < len(ids) else place), str(np.ravel(np.asarray(values, dtype=object))[place])
        got = f"{word!r}, which counts as missing (in {source}, bag {bag})"
        raise BagDataError(f"Expected a group for each bag, got {got}; a bag alone in its group needs a name too.")
    return names


def site_array(values: ArrayLike, source: str) -> NDArray[np.str_]:
    """Return names of sites as str [n], "" where a site is missing: None, NaN, a blank or a word such as NA."""
    # No loop over names that are an array already, so that a store of 100,000 bags opens in milliseconds.
    if isinstance(values, np.ndarray) and values.dtype.kind == "U":
        names = name_array(values.ravel(), source)
        return np.where(np.isin(names, [*MISSING]), "", names) if np.isin(names, [*MISSING]).any() else names
    sites = as_array(values, object).ravel()
    return name_array(np.array(["" if is_missing(value) else value for value in sites], dtype=object), source)


def id_array(values: ArrayLike, source: str) -> NDArray[np.str_]:
    """Return names of bags as `name_array`; refuse a missing one (None, NaN), which text such as "None" is not."""
    names = name_array(values, source)
    for place, value in enumerate(() if np.asarray(values).dtype.kind in "USbiu" else as_array(values, object).ravel()):
        if not isinstance(value, str | bytes) and is_missing(value):
            raise BagDataError(f"Expected a name for each bag, got none (in {source}, bag {place}); name it.")
    return names


def name_array(values: ArrayLike, source: str = "memory") -> NDArray[np.str_]:
    """Return names as an array of str [n], each in the form of `midam.names.name_of`."""
    array = as_array(values)
    if array.ndim == 0:
        raise BagDataError(f"Expected a list of names, got {type(values).__name__} (in {source}); give one per bag.")
    if array.dtype.kind == "U":
        # Arrays lose NUL at the end of a text.
        names_of([name for name in values if "\0" in str(name)] if isinstance(values, list | tuple) else (), source)
        if not is_unicode(array):
            raise BagDataError(f"Expected names in valid Unicode, got other characters (in {source}); rename them.")
        text = "".join(array.tolist())  # printable ASCII without blanks around it already has the form of `name_of`
        if text.isascii() and text.isprintable() and (np.char.strip(array) == array).all():
            return array
    if array.dtype.kind in "biu":  # such numbers already have the form of `name_of`
        return array.astype(np.str_)
    flat = list(array.ravel()) if array.dtype.kind == "f" else array.ravel().tolist()
    return np.array(names_of(flat, source), dtype=np.str_).reshape(array.shape)


def is_unicode(names: NDArray[np.str_]) -> bool:
    """Return whether all letters are Unicode characters; a damaged file may hold others."""
    if not names.nbytes:
        return True
    letters = np.ascontiguousarray(names, dtype=names.dtype.newbyteorder("=")).view(np.uint32)
    return not bool(((letters > _LAST_CHARACTER) | ((letters >= 0xD800) & (letters <= 0xDFFF))).any())


def text_array(values: ArrayLike) -> NDArray[np.object_]:
    """Return texts as str objects [n]: a long one does not widen the others, and equal ones can share memory."""
    texts = np.array(values, dtype=object)
    texts.reshape(-1)[:] = [text_of(text) if isinstance(text, bytes) else str(text) for text in texts.flat]
    return texts


def label_array(
    values: ArrayLike, ids: NDArray[np.str_], source: str, *, classes: TwoNames | None = None
) -> NDArray[np.int64]:
    """Return labels as int64 [N]: each is 0 or 1, or a text of `classes`."""
    array = as_array(values)
    check_length(array, len(ids), "label", source)
    if array.dtype.kind in "biu" and not ((array != 0) & (array != 1)).any():
        return array.astype(np.int64)
    words = {name: code for code, name in enumerate(classes or ()) if isinstance(name, str)}
    codes: dict[Any, int] = {0: 0, 1: 1, **words}
    entries = name_array(array, source).tolist() if array.dtype.kind in "US" else array.tolist()
    coded = [codes.get(value, -1) if isinstance(value, str | int | float) else -1 for value in entries]
    if -1 in coded:
        first = coded.index(-1)
        wanted = " or ".join(map(repr, words)) or "0 or 1"
        got = f"{array.tolist()[first]!r} (in {source}, bag {ids[first]})"
        raise BagDataError(f"Expected labels {wanted}, got {got}; name others with `classes=(NEGATIVE, POSITIVE)`.")
    return np.array(coded, dtype=np.int64)


def binary_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """Return labels 0 or 1 [N]; refuse anything else, with advice on the argument."""
    advice = "pass labels 0 and 1, one per bag, such as `bags.labels`"
    values = np.empty((0, 2)) if hasattr(labels, "instances") else as_array(labels)
    if values.ndim != 1:
        raise BagDataError(f"Expected labels [N], got {type(labels).__name__}; {advice}.")
    wrong = [value for value in values.tolist() if value not in (0, 1)]
    if wrong:
        raise BagDataError(f"Expected labels 0 and 1, got {wrong[0]!r}; {advice}.")
    return values.astype(np.int64)


def instance_label_array(values: ArrayLike, rows: int, source: str) -> NDArray[np.float32]:
    """Return labels of the `rows` instances as float32 [rows]: 0, 1, or NaN if unknown; None is unknown too."""
    try:
        labels = as_array(values).astype(np.float32)
    except (ValueError, TypeError):
        labels = np.full(np.shape(values)[:1], -1, np.float32)
    if labels.shape != (rows,):
        raise BagDataError(f"Expected instance labels [{rows}], got shape {labels.shape} (in {source}); give them all.")
    for wrong in np.flatnonzero((labels != 0) & (labels != 1) & ~np.isnan(labels))[:1]:
        got = f"{np.asarray(values, dtype=object)[wrong]!r} at instance {wrong} (in {source})"
        raise BagDataError(f"Expected instance labels 0, 1 or NaN (unknown), got {got}; correct it.")
    return labels


def class_names(values: Sequence[ClassName], source: str) -> TwoNames:
    """Return the names of label 0 and of label 1, as Python strings, numbers or booleans."""
    names = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    names = tuple(names_of([name], source)[0] if isinstance(name, str) else name for name in names)
    distinct = len(names) == len({*map(name_of, names)}) == 2
    if not distinct or not all(isinstance(name, str | int | float) for name in names):
        raise BagDataError(f"Expected two names of classes, label 0 first, got {names} (in {source}); name both.")
    return names[0], names[1]


def check_length(array: NDArray[Any], count: int, name: str, source: str) -> None:
    """Refuse an array that does not have one entry for each of `count` bags."""
    if array.shape != (count,):
        got = f"got shape {array.shape} (in {source}); give as many as bags."
        raise BagDataError(f"Expected one {name} for each of the {count} bags, {got}")


def weight_array(values: ArrayLike, source: str) -> NDArray[np.float64]:
    """Return weights of bags as float64 [n]; each must be above 0 and finite."""
    weights = as_array(values, np.float64).ravel()
    for bad in weights[~(np.isfinite(weights) & (weights > 0))][:1]:
        raise BagDataError(f"Expected weights above 0, got {bad:g} (in {source}); correct it, or drop its bag.")
    return weights


def split_array(values: ArrayLike, ids: Sequence[str] | NDArray[np.str_], source: str) -> NDArray[np.str_]:
    """Return splits as "train", "val" and "test" [n]; refuse other names than those of `SPLIT_NAMES`, in any case."""
    names = name_array(values, source)
    distinct, places = np.unique(names, return_inverse=True)
    known = [SPLIT_NAMES.get(name.casefold(), "") for name in distinct.tolist()]
    for wrong in np.flatnonzero(np.array([*known, ""])[places] == "")[:1]:
        got = f"{str(names.flat[wrong])!r} (in {source}, bag {ids[wrong] if wrong < len(ids) else wrong})"
        raise BagDataError(f"Expected a split of {', '.join(SPLITS)}, got {got}; rename the split.")
    return np.array([*known, "train"])[places].reshape(names.shape)


def count_instances(numbers: NDArray[np.int64], expected: int, ids: ArrayLike | None, source: str) -> NDArray[np.int64]:
    """Count the instances of the bags 0, 1, ..., at least ``expected`` of them; refuse gaps."""
    if len(numbers) and numbers.min() < 0:
        raise BagDataError(f"Expected bag numbers from 0, got {numbers.min()} (in {source}); number the bags again.")
    present = np.unique(numbers)
    count = max(int(numbers.max(initial=-1)) + 1, expected)
    if len(present) < count:
        gap = int(np.argmin(np.append(present, -1) == np.arange(len(present) + 1)))
        names = [] if ids is None else id_array(ids, source).tolist()
        raise BagDataError(empty_bag_message(names[gap] if gap < len(names) else gap, source))
    return np.bincount(numbers, minlength=count)


def concatenate(parts: Sequence[NDArray[Any]], ids: NDArray[np.str_], name: str, source: str) -> NDArray[Any]:
    """Join the arrays of the bags; refuse empty arrays and arrays of different widths."""
    if not parts:
        raise BagDataError(f"Expected at least one bag, got none (in {source}); give some bags.")
    check_length(ids, len(parts), "id", source)
    for part, bag in zip(parts, ids, strict=True):
        if part.ndim == 0 or len(part) == 0:
            raise BagDataError(empty_bag_message(bag, source))
        if part.shape[1:] != parts[0].shape[1:]:
            wanted, got = f"{parts[0].shape[1:]} as in bag {ids[0]}", f"{part.shape[1:]} (in {source}, bag {bag})"
            raise BagDataError(f"Expected {name} of shape {wanted}, got {got}; give all bags the same width.")
    return np.concatenate(parts)


def empty_bag_message(bag: object, source: str) -> str:
    """Return the message about a bag without instances."""
    return f"Expected at least one instance in each bag, got none (in {source}, bag {bag}); drop the bag or fill it."


def check_feature_names(names: Sequence[str], width: int, source: str, *, kind: str = "features") -> tuple[str, ...]:
    """Return names in the form of `name_of`; refuse duplicates, and more or fewer names than features or labels."""
    if len(names) != width:
        raise BagDataError(f"Expected names of {width} {kind}, got {len(names)} (in {source}); name all or none.")
    plain = tuple(names_of(names, source))
    twice = next((name for name, count in Counter(plain).items() if count > 1), None)
    if twice is not None:
        raise BagDataError(f"Expected unique names of {kind}, got {twice!r} twice (in {source}); rename one.")
    return plain


def feature_order(names: Sequence[str], features: Sequence[str], *, reference: str, where: str) -> list[int]:
    """Return the positions in `features` of the features `names`, which are those of the `reference`.

    Other features are left out with a note; a `BagDataError` names missing ones. `reference` says in messages whose
    features `names` are.

    Examples
    --------
    >>> feature_order(["a", "b"], ["b", "a"], reference="the run", where="memory")
    [1, 0]
    """
    features = [name_of(name) for name in features]
    places, names = {name: place for place, name in enumerate(features)}, [name_of(name) for name in names]
    missing = [name for name in names if name not in places]
    if missing:
        absent, count = listed([*map(repr, missing)], most=FEATURES_SHOWN), f"{len(missing)} of {len(names)}"
        advice = errors.nearest(missing[0], [name for name in features if name not in set(names)], count=3)
        got = f"no {absent} ({count} missing, in {where}); add or rename the columns: {advice}"
        raise BagDataError(f"Expected the features of {reference}, got {got}")
    expected = set(names)
    extra = [name for name in features if name not in expected]
    if extra:
        count = f"{len(extra)} columns" if len(extra) > 1 else "a column"
        message = f"left out {count} that {reference} did not use: {listed(extra, most=FEATURES_SHOWN)} (in {where})"
        warnings.warn(message, errors.Note, stacklevel=3)
    return [places[name] for name in names]


def check_rows(instances: Any, coords: Any, source: str, *, sound: bool = True) -> None:
    """Refuse instances that are not numbers [M, ...], in memory or in a file, and coordinates that do not fit them."""
    refuse_masked(instances)
    refuse_masked(coords)
    shape: tuple[int, ...] = tuple(np.shape(instances))
    dtype: Any = getattr(instances, "dtype", "no type")
    if not sound or len(shape) < 2 or 0 in shape[1:] or dtype.kind not in "biuf":
        got = f"shape {shape} of {dtype} (in {source}); convert it"
        raise BagDataError(f"Expected instances as an array [instances, features, ...] of real numbers, got {got}.")
    if coords is not None and (tuple(coords.shape[:-1]) != shape[:1] or coords.dtype.kind not in "iuf"):
        got = f"{coords.dtype} {list(coords.shape)} (in {source})"
        raise BagDataError(f"Expected numeric coordinates [{shape[0]}, C], got {got}; give a row for each instance.")


def check_layout(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], ids: NDArray[np.str_], rows: int, source: str
) -> None:
    """Refuse duplicate ids, empty bags, and bags that reach beyond the ``rows`` instances."""
    if len(sizes) == 0:
        raise BagDataError(f"Expected at least one bag, got none (in {source}); give some bags.")
    check_length(starts, len(sizes), "start", source)
    check_names(ids, source)
    if sizes.min() < 1:
        raise BagDataError(empty_bag_message(ids[sizes.argmin()], source))
    outside = np.flatnonzero((starts < 0) | (starts + sizes > rows))
    if len(outside):
        got = f"got instances up to {(starts + sizes)[outside[0]]} (in {source}, bag {ids[outside[0]]})"
        raise BagDataError(f"Expected bags inside the {rows} instances, {got}; correct starts and sizes.")


def check_names(ids: NDArray[np.str_], source: str) -> None:
    """Refuse empty and duplicate ids."""
    if not (ids[1:] > ids[:-1]).all():
        names, counts = np.unique(ids, return_counts=True)
        if counts.max() > 1:
            got = f"{counts.max()} bags of one id (in {source}, bag {names[counts.argmax()]})"
            raise BagDataError(f"Expected unique bag ids, got {got}; rename them: names that look the same are one.")
    if (ids == "").any():
        raise BagDataError(f"Expected a name for each bag, got an empty one (in {source}); name the bag.")


def refuse_not_finite(
    rows: NDArray[Any], index: slice | NDArray[np.int64], where: str, *, advice: str | None = None
) -> None:
    """Refuse numbers that are not `usable` in the instances at these positions of a bag or file."""
    if rows.dtype.kind != "f" and rows.dtype != np.uint64:
        return
    flat = rows.reshape(len(rows), -1)
    good = usable(flat)
    if not good.all():
        row, column = np.argwhere(~good)[0].tolist()
        got, at = flat[row, column], index.start + row if isinstance(index, slice) else int(index[row])
        filled = f"train with {given(impute='median')}, of a table or npz file" if np.isnan(got) else "correct it"
        advice = (advice or f"drop it, or {filled}") if rows.dtype.kind == "f" else "convert the features to float64"
        place = f"instance {at}, column {column} (in {where})"
        raise BagDataError(f"Expected {wanted(got)}, got {got} at {place}; {advice}.")


def other_data(expected: str, got: object) -> CheckpointError:
    """Return the error about a state to resume from that is one of other data."""
    return CheckpointError(f"Expected {expected}, got {got}; resume with the data of the run.")


def require_both(positives: int, negatives: int, source: str) -> None:
    """Refuse labeled bags of one class only, with a `OneClassError`."""
    if not positives or not negatives:
        got = f"{positives} positive and {negatives} negative (in {source})"
        raise OneClassError(f"Expected positive and negative bags, got {got}; add bags of the other class.")


def usable(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each number is finite, and its square too, also in float32, in which networks compute."""
    if numbers.dtype.kind != "f":
        return np.asarray(numbers <= LARGEST) if numbers.dtype == np.uint64 else np.ones(numbers.shape, dtype=np.bool_)
    return np.abs(numbers) <= min(MOST, float(np.finfo(numbers.dtype).max))


def wanted(value: float | np.number[Any]) -> str:
    """Return words for the numbers that a message expects instead of one that is not usable."""
    if isinstance(value, np.integer):
        return "whole numbers below 2^63"
    return "numbers of at most 1.8e19 (larger ones mark missing data)" if np.isfinite(value) else "finite numbers"


def row_chunks(
    instances: NDArray[Any] | Rows, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that cover the bags in order, 16 MiB at most, or the `chunk_bytes` of the instances."""
    bytes_per_row = max(int(instances.itemsize * np.prod(instances.shape[1:], dtype=np.int64)), 1)
    step = max((getattr(instances, "chunk_bytes", 0) or _CHUNK_BYTES) // bytes_per_row, 1)
    ends = starts + sizes
    # Neighboring bags are read in one go: a bag opens a run where it does not follow its predecessor.
    opens = np.flatnonzero(np.append(True, starts[1:] != ends[:-1]))
    closes = np.append(opens[1:], len(starts)) - 1
    for first, last in zip(starts[opens].tolist(), ends[closes].tolist(), strict=True):
        for begin in range(first, last, step):
            yield begin, min(begin + step, last)


def digest_array(values: ArrayLike, source: str) -> NDArray[np.uint8]:
    """Return SHA-256 digests, uint8 [N, 32]."""
    digests = np.asarray(values)
    if digests.dtype != np.uint8 or digests.shape[1:] != (32,):
        got = f"{digests.dtype} {list(digests.shape)} (in {source})"
        raise BagDataError(f"Expected digests as bytes [N, 32], got {got}; leave them out.")
    return digests
