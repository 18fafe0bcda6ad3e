"""A run as ONNX: three files, and a check in onnxruntime that they score as the run does."""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from midam.errors import ExportError
from midam.evaluate.predict import evaluation
from midam.export.onnx_parts import DECOMPOSITIONS, Chunk, Merge, Outer
from midam.export.score_onnx import Model, Ranked
from midam.files import write_bytes
from midam.nn.ensemble import scorers_of
from midam.nn.pooling.statistic import LOG_MEAN, MAXIMUM
from midam.runs.loaded import LoadedRun

TOLERANCE = 1e-5  # of a score in [0, 1]
_STATISTIC = ("n", "l", "r")


def write_onnx(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Write chunk.onnx, merge.onnx and score.onnx, and check that they score bags as the run does.

    `config` is that of `midam.export.config.describe`. Raises `ExportError` where the model cannot be traced, or scores
    otherwise when it is.
    """
    members = scorers_of(copy.deepcopy(run.model))
    pooling = members[0].pooling
    if pooling.statistic not in (LOG_MEAN, MAXIMUM):
        raise ExportError(
            f"Expected a pooling that rests on the log-weighted mean or the maximum, got {pooling.name!r}; export the "
            "weights alone (`formats=['safetensors']`)."
        )
    largest, count, width = pooling.statistic is MAXIMUM, len(members) * pooling.branches, pooling.value_size
    part = (torch.tensor(2.0).double(), torch.zeros(count).double(), torch.zeros(count, width).double())
    shape, kind = config["architecture"]["instance_shape"], getattr(torch, config["onnx"]["dtype"])
    imputed = config["data"]["imputed"]
    first = Chunk(members, filling=None if imputed is None else torch.tensor(imputed["values"], dtype=kind))
    saved = run.target.saved(run.decision).get("decision")
    outer = Outer(members, run.calibrator, target=run.target.name, decision=saved)
    names = ["score", "members", "probability"][: 3 if outer.calibrated else 2]
    with _quiet(), torch.no_grad():
        chunk = _trace(first, (torch.zeros(3, *shape, dtype=kind),), ["x"], ["z", "v", *_STATISTIC], rows=True)
        inputs = [f"{name}{number}" for number in (1, 2) for name in _STATISTIC]
        # Copies: one tensor given twice would be traced as one input.
        both = (*part, *(x.clone() for x in part))
        merge = _trace(Merge(largest=largest), both, inputs, list(_STATISTIC))
        score = _trace(outer, part, list(_STATISTIC), names)
    for name, content in (("chunk", chunk), ("merge", merge), ("score", score)):
        write_bytes(folder / f"{name}.onnx", content)
    _check(run, folder, config)


def _trace(module: nn.Module, example: Sequence[Tensor], inputs: list[str], outputs: list[str], **how: bool) -> bytes:
    """A module as ONNX; with `rows`, for any number of rows of its first argument."""
    dynamic = ({0: torch.export.Dim("m", min=1, max=2**31 - 1)},) if how.get("rows") else None
    try:
        found = torch.export.export(module.eval(), tuple(example), dynamic_shapes=dynamic, strict=False)
        program = torch.onnx.export(
            found.run_decompositions(DECOMPOSITIONS),
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            verbose=False,
        )
    except Exception as error:  # what the tracer and anybody's encoder raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(
            f"Expected a model that torch.onnx can trace, got {type(error).__name__}: {reason}; write the encoder in "
            "operations of torch without branches on its numbers, or export without ONNX."
        ) from error
    proto = program.model_proto  # type: ignore[union-attr]
    for part in (proto.graph.node, proto.graph.value_info, proto.graph.input, proto.graph.output, proto.functions):
        for entry in part:
            del entry.metadata_props[:]  # traces of the stack, with paths of this machine
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    return proto.SerializeToString()


def _check(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Score bags of 1 and 7 random instances, the second in two chunks, with the files and with the run.

    Where the run fills missing values, an eighth of them is missing.
    """
    standard = scorers_of(run.model)[0].standardizer
    center, scale = (standard.get_buffer(name) for name in ("center", "scale")) if standard else torch.eye(2)
    scale = torch.where(scale.isinf(), 1.0, scale)  # of features that were constant in training
    noise = np.random.default_rng(0).normal(size=(8, *config["architecture"]["instance_shape"]))
    x = (torch.from_numpy(noise) * scale + center).to(getattr(torch, config["onnx"]["dtype"]))
    given, imputed, model = x.numpy(), config["data"]["imputed"], Model(folder, config=config)
    if imputed is not None:
        missing = np.arange(x.numel()).reshape(x.shape) % 8 == 0
        given = np.where(missing, np.nan, given)
        x = torch.where(torch.from_numpy(missing), torch.tensor(imputed["values"], dtype=x.dtype), x)
    with evaluation(run.model):
        wanted = run.model(x, torch.tensor([1, 7])).double().numpy()
    found = [model.score(bag, chunk_size=4) for bag in (given[:1], given[1:])]
    got = np.array([list(one.scores.values()) if isinstance(one, Ranked) else [one.score] for one in found])
    worst = float(np.abs(wanted.reshape(got.shape) - got).max())
    if not worst <= TOLERANCE:
        raise ExportError(
            f"Expected ONNX that scores as the run to {TOLERANCE:g}, got a difference of {worst:.2g}; the encoder does "
            "something else when it is traced: export without ONNX."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the tracer says of its own inner workings from the user."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module("torch.onnx")
            yield
    finally:
        log.setLevel(level)
