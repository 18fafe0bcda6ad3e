"""The model of a run as three programs, traced once and written for torch or for ONNX.

`chunk` computes the statistic of some instances of a bag, `merge` that of two parts of a bag together, `score` the
scores and predictions of a bag.

The statistic is one float64 vector: the number of instances n, then of each member l [G], log mean exp(z), and
r [G, V], the mean of v weighted by softmax(z); for max pooling, the maximum of z and its v. G is the number of branches
of its pooling (`midam.nn.pooling.base.Pooling`).
"""

import copy
import hashlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from midam.data.bags import Bags
from midam.errors import ExportError
from midam.evaluate.calibrate import BinaryDecision
from midam.evaluate.decisions import Cuts, LabelCalibrator, NumberScale, TemperatureCalibrator
from midam.evaluate.predict import predict
from midam.export.reader import Model
from midam.files import write_bytes
from midam.functional import logmean, maximum
from midam.functional.logmean import BagStatistic
from midam.functional.poolings import SCORE_RESOLUTION, bounded_logit
from midam.nn.pooling.base import LOG_MEAN, MAXIMUM, Pooling
from midam.nn.scorer import BagScorer, scorers_of, weights_of
from midam.runs.loaded import LoadedRun

# Largest differences of scores from those of the run; both are rounded to float32, and ONNX has other kernels.
TOLERANCES = {"torch": 1e-6, "onnx": 1e-5}
_DECISIONS = (BinaryDecision, TemperatureCalibrator, LabelCalibrator, NumberScale, Cuts, type(None))
# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988) 477-484,
# PPND7: a rational function of 0.180625 - q^2 for |q| <= 0.425, and one of sqrt(-log p) - 1.6 beyond, for p > 1.4e-11.
_MIDDLE = (3.3871327179, 50.434271938, 159.29113202, 59.109374720), (1.0, 17.895169469, 78.757757664, 67.187563600)
_TAIL = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1.0, 0.73700164250, 0.12021132975, 0.0)
_SMALLEST = 1.4e-11


class Part(NamedTuple):
    """The part of a member in the statistic: how it is computed and merged, its G and V, and the type of z."""

    kind: Any
    branches: int
    width: int
    dtype: torch.dtype


def trace(run: LoadedRun, config: dict[str, Any]) -> dict[str, ExportedProgram]:
    """Return chunk, merge and score of a run; `config` is the result of `midam.export.run.describe`.

    Raises an `ExportError` if a pooling has another statistic, or if the tracer cannot follow the code of the model.
    """
    members, imputed = scorers_of(copy.deepcopy(run.model).eval()), config["data"]["imputed"]
    x = torch.zeros(3, *config["instance_shape"], dtype=getattr(torch, config["dtype"]))
    filling = None if imputed is None else torch.tensor(imputed["values"], dtype=x.dtype)
    unknown = [m.pooling.name for m in members if m.pooling.statistic not in (LOG_MEAN, MAXIMUM)]
    unknown += [] if isinstance(run.decision, _DECISIONS) else [type(run.decision).__name__]
    if unknown:
        raise ExportError(
            "Expected poolings by the log-weighted mean or the maximum and a decision of midam for programs, got "
            f"{unknown[0]!r}; export the weights, `--format safetensors`, or score bags with `midam predict`."
        )
    with _tracing():
        chunk = Chunk(members, x, filling)
        statistic, rows = chunk(x), ({0: torch.export.Dim("m", min=1, max=2**31 - 1)},)
        # Two tensors, because one tensor given twice would be traced as one input.
        both = (statistic, statistic.clone())
        score = Score(run, [member.pooling for member in members], chunk.parts)
        return {
            "chunk": torch.export.export(chunk, (x,), dynamic_shapes=rows, strict=False),
            "merge": torch.export.export(Merge(chunk.parts), both, strict=False),
            "score": torch.export.export(score, (statistic,), strict=False),
        }


def write_programs(programs: dict[str, ExportedProgram], form: str, folder: Path) -> dict[str, str]:
    """Write the programs as "torch" or "onnx"; return the SHA-256 of each file by its name."""
    convert, name = (_torch_bytes, "{}.pt2") if form == "torch" else (_onnx_bytes, "onnx/{}.onnx")
    contents = {name.format(key): convert(program) for key, program in programs.items()}
    for key, content in contents.items():
        write_bytes(folder / key, content)
    return {key: hashlib.sha256(content).hexdigest() for key, content in contents.items()}


def check_programs(form: str, run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Raise an `ExportError` if an export scores bags of 1 and 7 random instances, in chunks of 4, unlike the run.

    If the run fills missing values, an eighth of the values is missing.
    """
    x = np.random.default_rng(0).normal(size=(8, *config["instance_shape"]))
    standard = scorers_of(run.model)[0].standardizer
    if standard is not None:
        center, scale = (standard.get_buffer(name).double().numpy() for name in ("center", "scale"))
        x = x * np.where(np.isinf(scale), 1.0, scale) + center  # inf where a feature was constant in training
    if config["data"]["imputed"] is not None:
        x[np.arange(x.size).reshape(x.shape) % 8 == 0] = np.nan
    model, worst = Model(folder, form=form), 0.0
    for bag in (x[:1].astype(config["dtype"]), x[1:].astype(config["dtype"])):
        with warnings.catch_warnings(action="ignore"):
            wanted = predict(run.model, Bags.from_list([bag], missing=True), chunk_size=4).reshape(-1)
        row = model.score(bag, chunk_size=4)
        worst = max(worst, float(np.abs(wanted - [row[column] for column in run.target.score_columns]).max()))
    if not worst <= TOLERANCES[form]:
        raise ExportError(
            f"Expected {form} scores within {TOLERANCES[form]:g} of the run's, got a difference of {worst:.2g}; export "
            f"without {form}: the encoder behaves differently when it is traced."
        )


def _torch_bytes(program: ExportedProgram) -> bytes:
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
            node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}  # no paths of this machine
    with _tracing():
        torch.export.save(program, content := io.BytesIO())
    return content.getvalue()


def _onnx_bytes(program: ExportedProgram) -> bytes:
    with _tracing():
        program, count = program.run_decompositions(DECOMPOSITIONS), len(program.graph_signature.user_inputs)
        names: Any = {"input_names": ["a", "b"][:count], "output_names": ["y"]}
        proto = cast(Any, torch.onnx.export(program, dynamo=True, verbose=False, **names)).model_proto
    for part in (proto.graph.node, proto.graph.value_info, proto.graph.input, proto.graph.output, proto.functions):
        for entry in part:
            del entry.metadata_props[:]  # stack traces with paths of this machine
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    return cast(bytes, proto.SerializeToString())


@contextmanager
def _tracing() -> Iterator[None]:
    """Hide the log messages and warnings of the tracer, and raise an `ExportError` if it cannot follow the model."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            import_module("torch.onnx")
            yield
    except Exception as error:  # the tracer and encoders of other packages raise any error
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(
            f"Expected a model that torch can trace, got {type(error).__name__}: {reason}; write the encoder in "
            "operations of torch without branches on its numbers, or export the weights, `--format safetensors`."
        ) from error
    finally:
        log.setLevel(level)


class Chunk(nn.Module):
    """Map instances x [m, ...] to their statistic.

    With `filling`, which has the shape of an instance, missing values (NaN) of x are filled first. `example` are some
    instances.
    """

    filling: Tensor | None

    def __init__(self, members: Sequence[BagScorer], example: Tensor, filling: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("filling", filling)
        self.members, self.parts = nn.ModuleList(members), list[Part]()
        for member in members:
            (z, v), pooling = member.instances(example), member.pooling
            kind = maximum if pooling.statistic is MAXIMUM else logmean
            self.parts.append(Part(kind, pooling.branches, v.shape[-1], z.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return the statistic of a chunk."""
        if self.filling is not None:
            x = torch.where(torch.isnan(x), self.filling, x)
        vector = list[Tensor]()
        for member, part in zip(cast(list[BagScorer], self.members), self.parts):
            z, v = member.instances(x)
            z, v = (z.unsqueeze(1), v.unsqueeze(1)) if z.ndim == 1 else (z, v)
            logits = z.double().T
            # The mask makes the graph count the instances, so that it takes any number of them.
            whole = torch.ones_like(logits, dtype=torch.bool)
            n, level, r = part.kind.reduce(logits, v.double().transpose(0, 1), mask=whole)
            vector += [level, r.flatten()] if vector else [n[:1], level, r.flatten()]
        return torch.cat(vector)


class Merge(nn.Module):
    """Merge the statistics of two parts of a bag."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the statistic of both parts."""
        vector = [first[:1] + second[:1]]
        for part, one, other in zip(self.parts, _split(first, self.parts), _split(second, self.parts)):
            _, level, r = part.kind.merge(one, other)
            vector += [level, r.flatten()]
        return torch.cat(vector)


def _split(vector: Tensor, parts: Sequence[Part]) -> Iterator[BagStatistic]:
    """Yield the statistic of each member."""
    sizes = [size for part in parts for size in (part.branches, part.branches * part.width)]
    n, *pairs = torch.split(vector, [1, *sizes])
    for part, level, r in zip(parts, pairs[::2], pairs[1::2]):
        yield BagStatistic(n, level, r.view(part.branches, part.width))


class Score(nn.Module):
    """Map the statistic of a bag to its scores [C] and predictions, the entries of its row in `midam predict`.

    A prediction that is a name is its position among the names, and NaN is none. Without a decision there is none.
    """

    def __init__(self, run: LoadedRun, poolings: Sequence[Pooling], parts: Sequence[Part]) -> None:
        super().__init__()
        self.poolings, self.parts, self.decision = nn.ModuleList(poolings), parts, run.decision
        weights = weights_of(run.model)
        equal = torch.full((len(parts),), 1 / len(parts), dtype=torch.float64)
        self.register_buffer("weights", equal if weights is None else weights.double())

    def forward(self, statistic: Tensor) -> Tensor:
        """Return scores and predictions."""
        each = []
        for pooling, part, (n, level, r) in zip(self.poolings, self.parts, _split(statistic, self.parts)):
            l, v, count = (x.to(part.dtype) for x in (level, r, n.expand(part.branches)))  # noqa: E741
            if part.branches > 1:
                l, v, count = l.unsqueeze(0), v.unsqueeze(0), count.unsqueeze(0)  # noqa: E741
            each.append(cast(Pooling, pooling).score(l, v, count).double().reshape(-1))
        scores = (torch.stack(each) * self.get_buffer("weights").unsqueeze(1)).sum(dim=0)
        return torch.cat([scores, *self._predictions(scores)])

    def _predictions(self, scores: Tensor) -> list[Tensor]:
        made = self.decision
        match made:
            case BinaryDecision(calibrator=line):
                return [torch.sigmoid(_logits(line, scores, line.intercept)), (scores >= made.threshold).double()]
            case TemperatureCalibrator():
                shares = torch.softmax(_logits(made, scores, _constant(made.offsets)), dim=0)
                return [shares, shares.argmax(dim=0, keepdim=True).double()]
            case LabelCalibrator(columns=lines):
                pairs = zip(lines, torch.split(scores, 1))
                return [
                    x * math.nan if line is None else torch.sigmoid(_logits(line, x, line.intercept))
                    for line, x in pairs
                ]
            case NumberScale():
                knots, numbers = _constant(made.scores), _constant(made.numbers)
                shares = ((scores - knots[:-1]) / knots.diff()).clamp(0, 1)
                return [numbers[:1] + (numbers.diff() * shares).sum(dim=0, keepdim=True)]
            case Cuts():
                return [(scores >= _constant(made.cuts)).double().sum(dim=0, keepdim=True)]
        return []


def _logits(line: Any, scores: Tensor, intercept: Any) -> Tensor:
    """Compute `midam.evaluate.calibrate.OnLogit`."""
    x = bounded_logit(scores, eps=SCORE_RESOLUTION) if line.on_logit else scores
    return line.slope * (x - line.center) / line.scale + intercept


def _constant(numbers: Any) -> Tensor:
    return torch.tensor(np.asarray(numbers), dtype=torch.float64)


def _searchsorted(knots: Tensor, x: Tensor, *, right: bool = False, **_: Any) -> Tensor:
    """Compute `torch.searchsorted` by comparisons: how many of the ascending knots [..., K] are below x [..., m]."""
    count = knots.shape[-1]
    position, step = torch.zeros_like(x, dtype=torch.int64), 1 << (count.bit_length() - 1)
    while step:
        at = position + step
        knot = knots.gather(-1, (at - 1).clamp(max=count - 1))
        below = (knot <= x) if right else (knot < x)
        position = torch.where(below & (at <= count), at, position)
        step >>= 1
    return position


def _ndtri(p: Tensor) -> Tensor:
    """Compute `torch.special.ndtri` with p clipped to [1.4e-11, 1 - 1.4e-11]."""
    q = p - 0.5
    tail = torch.sqrt(-torch.log(torch.minimum(p, 1 - p).clamp(min=_SMALLEST))) - 1.6
    return torch.where(q.abs() <= 0.425, q * _ratio(_MIDDLE, 0.180625 - q * q), torch.sign(q) * _ratio(_TAIL, tail))


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Tensor) -> Tensor:
    above, below = (torch.stack([c * x**power for power, c in enumerate(part)]).sum(dim=0) for part in coefficients)
    return above / below


def _squeeze(x: Tensor, dim: int) -> Any:
    """Skip `torch.squeeze` of an axis longer than 1, which torch ignores and ONNX refuses; else use torch's own."""
    return NotImplemented if x.shape[dim] == 1 else torch.ops.aten.alias.default(x)


# Operations of the standardizer and of poolings of several columns that ONNX lacks.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.searchsorted.Tensor: _searchsorted,
    torch.ops.aten.special_ndtri.default: _ndtri,
    torch.ops.aten.squeeze.dim: _squeeze,
}
