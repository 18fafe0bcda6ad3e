"""Write scores and weights of all instances, one HDF5 file a bag, a chunk at a time; evaluate them by known labels."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.instance_labels import label_counts
from midam.data.sources.file_rows import instance_columns
from midam.errors import MidamError, RunExistsError, need_package
from midam.evaluate.decisions import Decision
from midam.evaluate.labeled_instances import evaluate_instances
from midam.evaluate.pooled import InstanceScores, PooledBags, instance_ranks
from midam.evaluate.predict import covariates_of, prepared
from midam.files import allocate, replacing
from midam.nn.scorer import BagEnsemble, BagScorer, columns_of, scorers_of, weights_of
from midam.targets import Target

_MAX_NAME = 150  # bytes; file systems allow 255, suffixes included
# Windows reserves these names, with any suffix.
_RESERVED = ("con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)))
_HEAD = 1 << 14  # bytes of a file besides its numbers, at most
_NUMBERS = {"score": "score", "attention_scores": "attention", "weight": "weight"}  # fields of `InstanceScores`


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
    defined in `midam.evaluate.pooled.InstanceScores`; `coords` [n, C] if they are known; for an ensemble,
    `members/attention_scores`, `members/score` and `members/weight` [n, M]; and the columns of
    `midam.data.sources.file_rows.instance_columns` (`file` [n], and number, UID and position of slices). Its attributes
    are `bag`, `bag_score`, `member_scores` [M], `member_weights` [M] if members are weighted, `pooling` and `members`.

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
        got = f"{len(existing)} of them (in {folder}, first {existing[0].name}); choose another folder, or remove them"
        raise RunExistsError(f"Expected a folder without files of these bags, got {got}.")
    scores = np.empty(len(part) if columns_of(model) == 1 else (len(part), columns_of(model)))
    options: dict[str, Any] = {"columns": columns, "chunk_size": chunk_size, "note": on_score}
    known = covariates_of(model, bags)  # once: it warns of new categories
    for row, (i, path) in enumerate(paths.items()):
        covariates = None if known is None else known[[i]]
        scores[row] = write_bag(path, model, bags, i, covariates=covariates, **options)
    return scores


def write_bag(
    path: Path,
    model: BagScorer | BagEnsemble,
    bags: Bags,
    index: int,
    *,
    covariates: Tensor | None,
    columns: Sequence[str],
    chunk_size: int | None,
    note: Callable[[NDArray[np.float64]], None] | None,
) -> NDArray[np.float64]:
    """Write the file of one bag as in `write_instance_scores`; returns the score of the bag, [] or [C].

    `covariates` [1, P] are those of the bag, encoded. `note` is called with the score [1] or [1, C] before the file
    gets its name.
    """
    h5py, members, weights = need_h5py(), len(scorers_of(model)), weights_of(model)
    known, coords = _encoded(instance_columns(bags, index)), bags.places(index)
    known |= {} if coords is None else {"coords": np.asarray(coords)}
    numbers = 4 * len(_NUMBERS) * (members + (members > 1)) * columns_of(model) * int(bags.sizes[index])
    with _new_file(h5py, path, space=_HEAD + numbers + sum(column.nbytes for column in known.values())) as file:
        for name, array in known.items():
            kind = h5py.string_dtype("utf-8", array.itemsize) if array.dtype.kind == "S" else array.dtype
            file.create_dataset(name, data=array.astype(kind), compression="gzip", compression_opts=1)
        first = PooledBags(model, bags.subset([index]), column=0, chunk_size=chunk_size, covariates=covariates)
        by_column = [first, *(first.of_column(column) for column in range(1, columns_of(model)))]
        _write_numbers(file, by_column, int(bags.sizes[index]))
        scores = np.stack([np.concatenate(x.member_predictions()) for x in by_column], axis=-1)  # [M, C]
        score = np.average(scores, axis=0, weights=weights)
        about: dict[str, Any] = {
            "bag": str(bags.ids[index]),
            "bag_score": _narrow(score),
            "member_scores": _narrow(scores),
        }
        about |= {"pooling": first.pooling, "members": members}
        about |= {"columns": list(columns)} if len(by_column) > 1 else {}
        about |= {} if weights is None else {"member_weights": weights.numpy()}
        file.attrs.update(about)
        if note is not None:
            note(_narrow(score[None]))
    return _narrow(score)


def _write_numbers(file: Any, by_column: Sequence[PooledBags], size: int) -> None:
    """Write the numbers of the instances of a bag, a chunk at a time; several columns are the last axis."""
    for rows in zip(*(pooled.instance_chunks() for pooled in by_column)):
        part, chunk = rows[0][0], [scores for _, scores in rows]
        for name, array in _datasets(chunk).items():
            if name not in file:
                file.create_dataset(name, (size, *array.shape[1:]), array.dtype)
            file[name][part] = array


def _datasets(of_columns: Sequence[InstanceScores]) -> dict[str, NDArray[Any]]:
    """Return the numbers of the instances of a bag by their names in its file; several columns are the last axis."""
    arrays = dict[str, NDArray[Any]]()
    for name, field in _NUMBERS.items():
        mean = np.stack([getattr(one, field) for one in of_columns], axis=-1)
        arrays[name] = mean if name == "attention_scores" else _narrow(mean)
        if of_columns[0].members:
            members = [np.stack([getattr(x, field) for x in one.members], axis=-1) for one in of_columns]
            arrays[f"members/{name}"] = _narrow(np.stack(members, axis=-1))
    return arrays


def _narrow(x: NDArray[Any]) -> NDArray[Any]:
    """Return numbers [..., C] without their last axis if there is one score column."""
    return x[..., 0] if x.shape[-1] == 1 else x


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
