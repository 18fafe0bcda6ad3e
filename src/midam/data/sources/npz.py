"""Bags in a NumPy archive: ``X`` [instances, ...], ``bag`` [instances], ``y`` [bags]; never unpickled."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.instance_labels import labels_of
from midam.data.sources.formats.npy import read_archive, refuse_near
from midam.data.sources.formats.open_file import FEATURE_NAMES, require_file
from midam.data.sources.labels import SURVIVAL, code_labels, labels_or_none
from midam.data.sources.reader import BagReader
from midam.data.sources.request import COVARIATES, SPLITS, Request
from midam.data.sources.table_columns import PATIENT_COLUMNS, read_covariates, require_columns
from midam.data.target_labels import TargetLabels
from midam.data.validate import check_feature_names, name_array
from midam.errors import BagDataError, path_of
from midam.files import write_bytes

_KEYS = ("X", "bag", "y", "time", "event", "names", "ids", "group", "split", "coords", "instance_label", FEATURE_NAMES)
_NO_LENGTH = ("names", FEATURE_NAMES)  # have neither one entry per bag nor one per instance
_OF_INSTANCES = ("X", "bag", "coords", "instance_label")
_OF_BAGS = {"ids": "ids", "groups": "group", "splits": "split", "coords": "coords", "instance_labels": "instance_label"}
_SAME = {
    **{name: "group" for patient in PATIENT_COLUMNS for name in (patient, f"{patient}s")},
    **{"id": "ids", "coord": "coords"},
    **dict.fromkeys(("witness", "inst_labels", "instance_labels", "y_inst"), "instance_label"),
    **dict.fromkeys(("feature_name", "features_names", "featurenames", "columns", "column_names"), FEATURE_NAMES),
}


class ArchiveReader(BagReader):
    """Reader of an npz file of all bags."""

    what = "an npz file, whose groups and splits are its keys group and split"
    suffixes = (".npz",)
    parameters = (*COVARIATES, "positive", "target", "grades", "impute", *SPLITS)

    def read(self, request: Request) -> Bags:
        """Read the file."""
        path = request.path
        require_file(path)
        arrays, others = read_archive(path, (*_KEYS, *request.covariate_columns))
        require_columns([*arrays, *others], request.named_covariates, str(path))
        refuse_near(others, arrays, _KEYS, path, **_SAME)
        survival = "y" not in arrays and {"time", "event"} <= arrays.keys()
        labeled = SURVIVAL if survival else ("y",)
        required = ("X", "bag", *labeled) if request.require_labels else ("X", "bag")
        for key in required:
            if key not in arrays:
                raise BagDataError(
                    f"Expected the keys {', '.join(required)}, got no {key} but {', '.join(arrays) or 'others'} "
                    f"(in {path}); save the array under the key {key}."
                )
        _check_lengths(arrays, path)
        present = set(labeled) <= arrays.keys()
        labels = labels_or_none(request, lambda: _labels(arrays, request, labeled)) if present else None
        fields: dict[str, Any] = {name: arrays.get(key) for name, key in _OF_BAGS.items()}
        return Bags.from_arrays(
            arrays["X"].astype(arrays["X"].dtype.newbyteorder("="), copy=False),
            arrays["bag"],
            outcome=labels,
            covariates=read_covariates(arrays, request),
            **fields,
            feature_names=arrays[FEATURE_NAMES].tolist() if FEATURE_NAMES in arrays else None,
            source=str(path),
            missing=bool(request.impute),
        )


def read_npz(
    path: str | Path, *, require_labels: bool = True, positive: str | None = None, target: str = "auto"
) -> Bags:
    """Read bags from an npz file.

    Keys: ``X`` [M, ...] instances; ``bag`` [M] bag number of each instance, 0 to N - 1; ``y`` [N] labels, which are 0
    and 1, or others of which `positive` is 1 (optional without `require_labels`). Optional keys: ``ids``, ``group``,
    ``split`` [N]; ``coords`` [M, C]; ``instance_label`` [M], 1 for instances that make their bag positive, else 0, NaN
    if unknown; ``feature_names`` [D]. Two words such as no and yes need no `positive`, see
    `midam.data.sources.label_values`.

    Other targets: ``y`` [N] of classes, grades or numbers; ``y`` [N, L] of several labels, 0, 1 or NaN, with optional
    ``names`` [L]; or ``time`` and ``event`` [N]. `target` names the target if it is not clear.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "bags.npz"
    >>> np.savez(path, X=np.ones((3, 2)), bag=[0, 0, 1], y=[1, 0])
    >>> read_npz(path).sizes
    array([2, 1])
    """
    request = Request(path_of(path, "an npz file"), require_labels=require_labels, positive=positive, target=target)
    return ArchiveReader().read(request)


def _labels(arrays: Mapping[str, NDArray[Any]], request: Request, keys: Sequence[str]) -> TargetLabels:
    """Return the labels of the keys y, or time and event."""
    y, where = arrays[keys[0]], request.where
    if len(keys) == 1 and y.ndim == 2:
        names = name_array(arrays.get("names", np.arange(y.shape[1])), where).tolist()
        check_feature_names(names, y.shape[1], f"{where}, key names", kind="labels")
        return code_labels({name: y[:, place].tolist() for place, name in enumerate(names)}, request)
    columns, ids = {key: _plain(arrays[key]).tolist() for key in keys}, arrays.get("ids", np.arange(len(y))).tolist()
    return code_labels(columns, request, ids=ids, origin="key {}")


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels as they were written: bytes as text, and short floats as the decimals that they stand for."""
    if values.dtype.kind == "f" and values.dtype.itemsize < np.dtype(np.float64).itemsize:
        return values.astype(np.str_).astype(np.float64)
    return name_array(values) if values.dtype.kind in "SU" else values


def write_npz(bags: Bags, path: str | Path) -> None:
    """Write bags to an npz file that `read_npz` reads; the file appears whole or not at all."""
    path = path_of(path, "an npz file")
    rows = bags.rows()
    names = None if bags.classes is None else np.array(bags.classes, dtype=np.str_)
    arrays: dict[str, NDArray[Any] | None] = {
        "X": bags.gather(rows),
        "bag": np.repeat(np.arange(len(bags)), bags.sizes),
        "y": bags.labels if bags.labels is None or names is None else names[bags.labels],
        **({} if bags.outcome is None else _outcome_arrays(bags.outcome)),
        **({} if bags.covariates is None else _covariate_arrays(bags.covariates, path)),
        "ids": bags.ids,
        "group": bags.groups,
        "split": bags.splits,
        "coords": None if bags.coords is None else np.asarray(bags.coords[rows]),
        "instance_label": labels_of(bags),
        FEATURE_NAMES: None if bags.feature_names is None else np.array(bags.feature_names, dtype=np.str_),
    }
    present = {key: value for key, value in arrays.items() if value is not None}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **present)
    with buffer.getbuffer() as content:
        write_bytes(path, content, typed=True)


def _outcome_arrays(outcome: TargetLabels) -> dict[str, NDArray[Any]]:
    """Return the arrays from which an outcome is read again, with its target."""
    if outcome.target == "survival":
        return {"time": outcome.values[:, 0], "event": outcome.values[:, 1].astype(np.int64)}
    if outcome.target == "multilabel":
        return {"y": outcome.values, "names": np.array(outcome.names, np.str_)}
    return {"y": np.asarray(outcome.columns()["label"])}


def _covariate_arrays(covariates: Covariates, path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays from which covariates are read again, with their names."""
    for name in covariates.names:
        if name in _KEYS:
            raise BagDataError(f"Expected covariates not named as keys of bags, got {name!r} (in {path}); rename it.")
    return dict(zip(covariates.names, covariates.columns))


def _check_lengths(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse arrays whose length does not fit their key."""
    for key, array in arrays.items():
        if array.ndim == 0:
            raise BagDataError(f"Expected an array, got a single value (in {path}, key {key}); save an array.")
    instances, numbers = len(arrays["X"]), arrays["bag"]
    count: int | None = int(numbers.max()) + 1 if numbers.size and numbers.dtype.kind in "iu" else None
    for key, array in arrays.items():
        if key in _NO_LENGTH:
            continue
        unit, length = ("instance", instances) if key in _OF_INSTANCES else ("bag", count)
        # More labels than bag numbers means an empty bag, which the check of the bags names.
        if length is not None and len(array) != length and not (key == "y" and len(array) > length):
            raise BagDataError(
                f"Expected {length} entries, one for each {unit}, got {len(array)} (in {path}, key {key}); give one "
                f"for each {unit}."
            )
