"""Checkpoints: one file with the whole state, written atomically, read without running code, and validated.

One is written before the metrics of its epoch. It holds no random state: draws and noise are functions of seed, epoch
and purpose.
"""

import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import AfterValidator, Field, FiniteFloat, model_validator
from torch import Tensor

from midam.data.column_codes import ColumnCoder
from midam.errors import CheckpointError, MidamError, with_place
from midam.evaluate.calibrate import Thresholds
from midam.files import require_plain, write_bytes
from midam.names import advice_on
from midam.reading import Form, check_archive, check_form, plain_fault
from midam.registry import plugin_entry

FORMAT = 3
_SCALE = "standardizer.scale"
_MOST_SETTINGS = 200_000  # values in the settings of a checkpoint


def _finite(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Refuse weights that are truncated, NaN or infinite, except the scale of a constant feature, which is infinite."""
    for name, tensor in weights.items():
        fault = _fault(tensor.nan_to_num(nan=torch.nan, posinf=1.0) if name.endswith(_SCALE) else tensor)
        if fault is not None:
            raise ValueError(f"{fault} in {name}")
    return weights


def _fault(tensor: Tensor) -> str | None:
    if tensor.layout != torch.strided or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "fewer numbers than its shape says"
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        return "NaN or infinity"
    return None


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    fault = plain_fault(values, most=_MOST_SETTINGS)
    if fault is not None:
        raise ValueError(f"{fault} among the settings")
    return values


_Settings = Annotated[dict[str, Any], AfterValidator(_plain)]
_Weights = Annotated[dict[str, Tensor], AfterValidator(_finite)]
_Splits = dict[str, Literal["train", "val", "test"]]


class _Imputed(Form):
    how: Literal["mean", "median", "zero"]
    values: list[Any]


class _Outcome(Form):
    """Target of a run with labels other than 0 and 1, and its names."""

    target: str
    names: list[str]


class _Ordinary(Form):
    """Means and quartiles of features over instances of training bags, see `midam.runs.data`."""

    bags: Literal["negative", "all"]
    instances: Annotated[int, Field(ge=1)]
    means: list[FiniteFloat]
    middle: Annotated[list[list[FiniteFloat]], Field(min_length=2, max_length=2)]


class _Data(Form):
    source: str
    place: str
    fingerprint: str
    instance_shape: Annotated[list[Annotated[int, Field(ge=1, lt=2**31)]], Field(min_length=1)]
    feature_names: list[str] | None
    typical: list[float] | None = None
    ordinary: _Ordinary | None = None
    extent: Annotated[list[list[FiniteFloat]], Field(min_length=4, max_length=4)] | None = None
    cut: dict[str, Any] | None
    classes: list[str | bool | int | float] | None = None
    imputed: _Imputed | None = None
    columns: str | None = None
    outcome: _Outcome | None = None

    @model_validator(mode="after")
    def _one_value_a_feature(self) -> Self:
        if self.typical is not None and [len(self.typical)] != self.instance_shape:
            raise ValueError("typical values that are not one number for each feature")
        known = [] if self.ordinary is None else [self.ordinary.means, *self.ordinary.middle]
        if any([len(row)] != self.instance_shape for row in (*known, *(self.extent or ()))):
            raise ValueError("means and quantiles that are not one number for each feature")
        if self.imputed is not None:
            values = np.array(self.imputed.values)
            numbers = values.dtype.kind in "if" and bool(np.isfinite(values).all())
            if not numbers or values.shape != tuple(self.instance_shape):
                raise ValueError("imputed values that are not one finite number for each feature")
        if self.columns is not None and ColumnCoder.from_json(self.columns).features != tuple(self.feature_names or ()):
            raise ValueError("columns that do not give its features")
        return self


class _Trainer(Form):
    model: _Weights
    members: list[dict[str, Any]]
    bag_ids: list[str]
    epoch: Annotated[int, Field(ge=0)]
    history: list[dict[str, float | None]]
    best_epoch: int | None


class _Origin(Form):
    config: _Settings
    data: _Data
    splits: _Splits
    contents: _Splits
    groups: _Splits


class _Part(Form):
    """Part of a model that was chosen: a method, its settings, if any, and the number of its members."""

    method: str
    config: _Settings | None
    scorers: Annotated[int, Field(ge=1)]


class ModelContent(_Origin):
    """Content of ``model.pt``."""

    model: _Weights
    calibrator: dict[str, FiniteFloat | bool] | None
    threshold: FiniteFloat | None
    thresholds: Thresholds | None = None
    decision: dict[str, Any] | None = None
    method: str | None = None
    parts: list[_Part] | None = None


class TrainerContent(_Origin):
    """Content of ``last.pt``."""

    trainer: _Trainer
    seconds: Annotated[FiniteFloat, Field(ge=0)]
    waited: Annotated[FiniteFloat, Field(ge=0)]


class BestContent(Form):
    """Content of ``best.pt``."""

    model: _Weights
    epoch: int


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint whose content loads with ``weights_only=True``; a reader sees the old or the new file."""
    # torch hides the reason of a failed write, such as a full disk, behind another error.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **content, **plugin_entry(named_parts(content))}, buffer)
    with buffer.getbuffer() as view:  # released at once: Python 3.13 complains about a view that outlives its buffer
        write_bytes(path, view)


def named_parts(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a checkpoint with names that plug-ins may add: settings, method, network, `plugins`."""
    network = ((content.get("data") or {}).get("cut") or {}).get("network")
    entries = {"network": network, **{name: content.get(name) for name in ("method", "plugins")}}
    return {**(content.get("config") or {}), **entries}


def load_checkpoint(path: Path, form: type[Form] = Form) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; raise a `CheckpointError` unless it has the `form` (`ModelContent`, ...)."""
    require_plain(path)
    try:
        # torch.load does not check the checksums of the archive: a flipped bit would become part of a weight.
        check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"Expected a checkpoint, got nothing at {path}; {advice_on(path)}") from None
    except NotADirectoryError:
        text = f"Expected the folder of a run, got the file {path.parent}; name the folder of the run, then the data."
        raise CheckpointError(text) from None
    except pickle.UnpicklingError:
        # torch's message advises to unpickle the file anyway, which would run code in it.
        raise CheckpointError(
            f"Expected a checkpoint, got other Python objects, which are not loaded, or damage (in {path}); restore a "
            "copy, or start a new run."
        ) from None
    except Exception as error:  # zipfile and torch may raise any error for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"Expected a checkpoint, got a damaged file (in {path}): {reason}; restore a copy, or start a new run."
        ) from None
    if not isinstance(content, dict) or "format" not in content:
        raise CheckpointError(f"Expected a checkpoint of midam, got something else (in {path}); check the path.")
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"Expected checkpoint format {FORMAT}, got {content['format']} (in {path}); use the midam that wrote it."
        )
    check_form(content, form, path, expected="a checkpoint of midam", advice="restore a copy, or start a new run")
    return content


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn the errors of a state that does not fit its parts into a `CheckpointError` that names the file."""
    try:
        yield
    except MidamError as error:
        if str(path) in str(error):
            raise
        raise CheckpointError(with_place(error, f"in {path}")) from error
    except Exception as error:  # torch and numpy may raise any error for a state that does not fit
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"Expected a state that fits the run, got another (in {path}): {reason}; restore the run folder."
        ) from error
