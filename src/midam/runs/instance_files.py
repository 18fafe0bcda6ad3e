"""Write scores and weights of all instances, one HDF5 file a bag, in O(chunk) memory; evaluate them by known labels."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.data.instance_labels import label_counts
from midam.data.on_disk import Rows
from midam.data.sources.file_rows import instance_columns
from midam.errors import MidamError, RunExistsError, need_package
from midam.evaluate.decisions import Decision
from midam.evaluate.labeled_instances import evaluate_instances
from midam.evaluate.pooled import instance_ranks
from midam.evaluate.predict import InstancePass, covariates_of, evaluation, prepared, reader_of
from midam.files import allocate, replacing
from midam.nn.scorer import BagEnsemble, BagScorer, columns_of, of_covariates
from midam.settings import usual_chunk
from midam.targets import Target

_MAX_NAME = 150  # bytes; file systems allow 255, suffixes included
# Windows reserves these names, with any suffix.
_RESERVED = ("con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)))
_HEAD = 1 << 14  # bytes of a file besides its numbers, at most


def write_instance_scores(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    folder: Path,
    *,
    part: Sequence[int] | None = None,
    columns: Sequence[str] = (),
    chunk_size: int | None = None,
    on_score: Callable[[NDArray[np.float64]], None] | None = None,
) -> NDArray[np.float64]:
    """Score bags, and write scores and weights of their instances to ``folder/<bag>.h5``, laid out as CLAM's heatmaps.

    Each file holds the datasets `attention_scores` [n, 1] (logits of the weights), `score` [n] and `weight` [n],
    defined in `midam.evaluate.predict.InstanceScores`; `coords` [n, C] if they are known; for an ensemble,
    `members/attention_scores`, `members/score` and `members/weight` [n, M]; and the columns of
    `midam.data.sources.file_rows.instance_columns` (`file` [n], and number, UID and position of slices). Its attributes
    are `bag`, `bag_score`, `member_scores` [M], `member_weights` [M] if members are weighted, `pooling` and `members`.
    Logits are written to the file first and normalized there.

    For a model with C > 1 score columns, the columns are the last axis: `attention_scores`, `score` and `weight`
    [n, C], `members/...` [n, M, C], `bag_score` [C], `member_scores` [M, C]; the attribute `columns` names them.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call.
    bags, folder : Bags, Path
        Bags with or without labels, and the folder, which is made if missing. A file appears when it is complete.
    part : sequence of int, optional
        Positions of the bags to score; default: all. The name of a bag's file does not depend on the part.
    columns : sequence of str
        Names of the C columns, if there are several.
    chunk_size : int, optional
        Instances in memory at a time, >= 1; default: `midam.settings.usual_chunk`.
    on_score : callable, optional
        Called with the score [1] or [1, C] of each bag before its file gets its name.

    Returns
    -------
    float64 array [N] or [N, C]
        The scores of these bags, as `midam.evaluate.predict.predict` returns them.

    Raises
    ------
    RunExistsError
        If there is a file for a bag; nothing is written then.
    MidamError
        If a file cannot be written, or h5py is missing (extra ``hdf5``).
    """
    need_h5py()
    bags, part = prepared(model, bags), part if part is not None else range(len(bags))
    names = file_names(bags)
    paths = {i: folder / f"{names[i]}.h5" for i in part}
    existing = [path for path in paths.values() if path.exists()]
    if existing:
        raise RunExistsError(
            f"Expected a folder without files of these bags, got {len(existing)} of them (in {folder}, first "
            f"{existing[0].name}); choose another folder, or remove them."
        )
    reader, covariates = reader_of(model, bags), covariates_of(model, bags)
    count, chunk_size = columns_of(model), chunk_size or usual_chunk(bags.instance_shape)
    scores = np.empty(len(part) if count == 1 else (len(part), count))
    about = {} if count == 1 else {"columns": list(columns)}
    with evaluation(model):
        for row, (i, path) in enumerate(paths.items()):
            bag_model = model if covariates is None else of_covariates(model, covariates[i])
            passed = InstancePass(bag_model, WholeBatch.unlabeled(reader, torch.tensor([i])), chunk_size=chunk_size)
            scores[row] = write_bag(path, passed, bags, i, about=about, note=on_score)
    return scores


def write_bag(
    path: Path,
    passed: InstancePass,
    bags: Bags,
    index: int,
    *,
    about: Mapping[str, Any] = MappingProxyType({}),
    note: Callable[[NDArray[np.float64]], None] | None = None,
) -> float | NDArray[np.float64]:
    """Write the file of one bag as in `write_instance_scores`; returns the score of the bag, or its scores [C].

    `about` are further attributes. `note` is called with the score [1] or [1, C] before the file gets its name.
    """
    h5py, size, members = need_h5py(), int(bags.sizes[index]), len(passed.scorers)
    columns = passed.shape[1]
    optional = _encoded(instance_columns(bags, index))
    width = _width(bags.coords, members=members, columns=columns)
    width += sum(column.itemsize for column in optional.values())
    with _new_file(h5py, path, space=_HEAD + width * size) as file:
        _write_passes(file, passed, passed.chunks(), size=size)
        _write_coords(file, bags, index, chunk_size=passed.chunk_size)
        for name, column in optional.items():
            kind = h5py.string_dtype("utf-8", column.itemsize) if column.dtype.kind == "S" else column.dtype
            file.create_dataset(name, data=column.astype(kind), compression="gzip", compression_opts=1)
        score, scores = passed.bag_score(), passed.bag_scores()
        scored = {"bag": str(bags.ids[index]), "bag_score": score, "member_scores": scores}
        file.attrs.update({**scored, "pooling": passed.pooling, "members": members, **about})
        if passed.weights is not None:
            file.attrs["member_weights"] = passed.weights.numpy()
        if note is not None:
            note(np.array([score]))
    return score


def _width(coords: NDArray[Any] | Rows | None, *, members: int, columns: int) -> int:
    """Return the bytes of the numbers of one instance in the file of its bag."""
    places = 0 if coords is None else coords.shape[1] * coords.itemsize
    return places + 12 * (members + (members > 1)) * columns


def file_names(bags: Bags) -> list[str]:
    """Return file names of bags that any file system accepts; names that differ only in case get a digest."""
    return unique_names([file_name(str(bag)) for bag in bags.ids], [*map(str, bags.ids)])


def unique_names(names: Sequence[str], texts: Sequence[str], *, taken: Sequence[str] = ()) -> list[str]:
    """Return names that differ from each other and from those `taken`, also if case is ignored.

    A name that does not gets the digest of its entry in `texts`, which are unique.

    Examples
    --------
    >>> unique_names(["a", "b", "A"], ["a", "b", "A"])[1]
    'b'
    """
    counts = Counter(name.lower() for name in (*taken, *names))
    return [with_digest(name, text) if counts[name.lower()] > 1 else name for name, text in zip(names, texts)]


def file_name(bag: str) -> str:
    """Return a name for a bag that any file system accepts; names of two bags differ, maybe only in case.

    Examples
    --------
    >>> file_name("slide 7.svs"), file_name("../a/b"), file_name(".hidden"), file_name("con.svs"), file_name("-x")
    ('slide 7.svs', '%2E.%2Fa%2Fb', '%2Ehidden', '%63on.svs', '%2Dx')
    """
    name = quote(bag, safe=" ()+,;=@&!#$'[]{}^~")
    if name.startswith((".", "-")) or name.partition(".")[0].strip().lower() in _RESERVED:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    return with_digest(name, bag) if len(name) > _MAX_NAME else name or "%"


def with_digest(name: str, text: str) -> str:
    """Return at most 150 characters of a name with the digest of a text, which makes the name unique."""
    return f"{name[:_MAX_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _write_passes(file: Any, passed: InstancePass, chunks: Iterable[tuple[Tensor, Tensor]], *, size: int) -> None:
    (members, count), chunk_size = passed.shape, passed.chunk_size
    columns = [count] if count > 1 else []
    mean = {"score": (size, *columns), "attention_scores": (size, *(columns or [1])), "weight": (size, *columns)}
    shapes = mean if members == 1 else dict.fromkeys(mean, (size, members, *columns))
    group = file if members == 1 else file.create_group("members")
    datasets = {name: group.create_dataset(name, shape, "f4") for name, shape in shapes.items()}
    low = 0
    for score, z in chunks:
        _put(datasets, low, score=score, attention_scores=z)
        low += len(z)
    if members > 1:
        mixed = {name: file.create_dataset(name, shape, "f4") for name, shape in mean.items()}
    for low in range(0, size, chunk_size):
        parts = (datasets[name][low : low + chunk_size] for name in ("score", "attention_scores"))
        score, z = (torch.from_numpy(part.reshape(len(part), *passed.shape)) for part in parts)
        score, z, weight, weights = passed.average(score, z, first=low)
        _put(datasets, low, weight=weights)
        if members > 1:
            _put(mixed, low, score=score, attention_scores=z, weight=weight)


def _put(datasets: Mapping[str, Any], low: int, **columns: Tensor) -> None:
    for name, x in columns.items():
        datasets[name][low : low + len(x)] = x.numpy().reshape(len(x), *datasets[name].shape[1:])


def _encoded(columns: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[Any]]:
    """Encode columns for HDF5: texts as UTF-8 bytes, an unknown number as -1 or NaN."""
    encoded = {}
    for name, values in columns.items():
        example = next((value for value in values if value is not None), "")
        if isinstance(example, str):
            encoded[name] = np.array([str(value or "").encode() for value in values])
        else:
            missing = -1 if isinstance(example, int) else np.nan
            encoded[name] = np.array([missing if value is None else value for value in values])
    return encoded


def _write_coords(file: Any, bags: Bags, index: int, *, chunk_size: int) -> None:
    if bags.coords is None:
        return
    start, size = int(bags.starts[index]), int(bags.sizes[index])
    places = file.create_dataset("coords", (size, bags.coords.shape[1]), bags.coords.dtype)
    for low in range(0, size, chunk_size):
        high = min(low + chunk_size, size)
        places[low:high] = bags.coords[start + low : start + high]


@contextmanager
def _new_file(h5py: Any, path: Path, *, space: int) -> Iterator[Any]:
    """Open a file that gets its name when it is complete on the disk; `space` is an upper bound of its bytes."""
    try:
        with replacing(path) as empty:
            # On a full disk HDF5 fails at the write, again when the file is closed, and when the process ends.
            allocate(empty, space)
            with h5py.File(empty.name, "w", locking=False) as file:  # `replacing` locks the file
                yield file
    except OSError as error:
        if isinstance(error, MidamError):
            raise
        reason = error.strerror or error
        raise MidamError(f"Expected to write {path}, got: {reason}; free space or grant access, and repeat.") from error


def need_h5py() -> Any:
    """Return the package h5py; raise a `MidamError` if it is missing."""
    return need_package("h5py", "to write HDF5", extra="hdf5")


SCORE = "contribution"


def labeled_bags(bags: Bags, parts: NDArray[np.str_], names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the bags with a labeled instance, by part; without parts that have no such bag."""
    if bags.instance_labels is None:
        return {}
    known = label_counts(bags)[:, :2].sum(axis=1) > 0
    positions = {name: np.flatnonzero(known & (parts == name)) for name in names}
    return {name: index for name, index in positions.items() if len(index)}


def summarize_instances(
    model: BagEnsemble,
    bags: Bags,
    target: Target,
    labeled: dict[str, NDArray[np.int64]],
    scores: NDArray[np.float64],
    *,
    decision: Decision | None,
    chunk_size: int | None,
) -> dict[str, Any]:
    """Return the entry `instances` of summary.json: for each part the metrics of contributions; empty without labels.

    Parameters
    ----------
    model, bags : BagEnsemble, Bags
        The model, and bags with its features.
    target, decision : Target, Decision or None
        They choose the score column of each bag that is explained, as `midam explain` does.
    labeled : dict
        Result of `labeled_bags`.
    scores : array [N] or [N, C]
        Scores of all bags.
    chunk_size : int, optional
        Instances encoded at a time.
    """
    entry: dict[str, Any] = {}
    for name, index in labeled.items():
        part = bags.subset(index)
        columns = None if target.count == 1 else target.main_column(scores[index], decision)
        ranks = instance_ranks(model, part, columns=columns, chunk_size=chunk_size)
        entry[name] = evaluate_instances(part, ranks).entries()
    return {"score": SCORE, **entry} if entry else {}
