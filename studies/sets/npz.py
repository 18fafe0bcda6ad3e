"""The npz files of the sets: all bags of a set in one file, which `midam.read_bags` reads too."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.instance_labels import labels_of
from midam.data.sources.formats.open_file import FEATURE_NAMES
from midam.data.sources.inputs import KEYS, ArchiveReader
from midam.data.sources.request import Request
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, path_of
from midam.files import write_bytes


def read_npz(
    path: str | Path, *, require_labels: bool = True, positive: str | None = None, target: str = "auto"
) -> Bags:
    """Read bags from an npz file.

    Its keys are those of `midam.data.sources.inputs.ArchiveReader`.

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
        if name in KEYS:
            raise BagDataError(f"Expected covariates not named as keys of bags, got {name!r} (in {path}); rename it.")
    return dict(zip(covariates.names, covariates.columns))
