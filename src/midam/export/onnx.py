"""Export a run as three ONNX files, and check in onnxruntime that they score as the run does.

The files compute the statistic of a chunk, the merge of two statistics, and the score of a bag.

The statistic of a bag is (n, l, r): its number of instances, log mean exp(z), and the mean of v weighted by softmax(z);
for max pooling, the maximum of z and its v. It is float64 for each of M members: l [M], r [M, V].

If each of C score columns has its own weights of the instances, a member has G = C rows, one for each column: l
[M * G], r [M * G, V]; else G is 1.
"""

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from midam.errors import ExportError
from midam.evaluate.predict import evaluation
from midam.export.score_bags import Ranked
from midam.export.score_onnx import Model
from midam.files import write_bytes
from midam.functional import logmean, maximum
from midam.functional.logmean import BagStatistic
from midam.functional.poolings import SCORE_RESOLUTION, bounded_logit
from midam.nn.ensemble import scorers_of
from midam.nn.pooling import Pooling
from midam.nn.pooling.base import LOG_MEAN, MAXIMUM
from midam.nn.scorer import BagScorer
from midam.runs.loaded import LoadedRun

TOLERANCE = 1e-5  # for scores in [0, 1]
_STATISTIC = ("n", "l", "r")
# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988) 477-484,
# PPND16: a rational function of 0.180625 - q^2 for |q| <= 0.425, and one of sqrt(-log p) - 1.6 beyond, for p > 1.4e-11.
# fmt: off
_MIDDLE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)
# fmt: on
_SMALLEST = 1.4e-11


def write_onnx(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Write chunk.onnx, merge.onnx and score.onnx, and check that they score bags as the run does.

    `config` is the result of `midam.export.run.describe`. Raises an `ExportError` if the model cannot be traced, or if
    the files score differently.
    """
    members = scorers_of(copy.deepcopy(run.model))
    pooling = members[0].pooling
    if pooling.statistic not in (LOG_MEAN, MAXIMUM):
        raise ExportError(
            f"Expected a pooling by the log-weighted mean or the maximum, got {pooling.name!r}; export only the "
            "weights (`formats=['safetensors']`)."
        )
    largest, count, width = pooling.statistic is MAXIMUM, len(members) * pooling.branches, pooling.value_size
    part = (torch.tensor(2.0).double(), torch.zeros(count).double(), torch.zeros(count, width).double())
    shape, kind = config["architecture"]["instance_shape"], getattr(torch, config["onnx"]["dtype"])
    imputed = config["data"]["imputed"]
    first = Chunk(members, filling=None if imputed is None else torch.tensor(imputed["values"], dtype=kind))
    outer = Outer(members, config)
    names = ["score", "members", "probability"][: 3 if outer.calibrated else 2]
    with _quiet(), torch.no_grad():
        chunk = _trace(first, (torch.zeros(3, *shape, dtype=kind),), ["x"], ["z", "v", *_STATISTIC], rows=True)
        inputs = [f"{name}{number}" for number in (1, 2) for name in _STATISTIC]
        # Copies, because one tensor given twice would be traced as one input.
        both = (*part, *(x.clone() for x in part))
        merge = _trace(Merge(largest=largest), both, inputs, list(_STATISTIC))
        score = _trace(outer, part, list(_STATISTIC), names)
    for name, content in (("chunk", chunk), ("merge", merge), ("score", score)):
        write_bytes(folder / f"{name}.onnx", content)
    _check(run, folder, config)


def _trace(
    module: nn.Module, example: Sequence[Tensor], inputs: list[str], outputs: list[str], *, rows: bool = False
) -> bytes:
    """Return a module as ONNX; with `rows`, for any number of rows of its first argument."""
    dynamic = ({0: torch.export.Dim("m", min=1, max=2**31 - 1)},) if rows else None
    try:
        exported = torch.export.export(module.eval(), tuple(example), dynamic_shapes=dynamic, strict=False)
        program = torch.onnx.export(
            exported.run_decompositions(DECOMPOSITIONS),
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            verbose=False,
        )
    except Exception as error:  # the tracer and encoders of other packages raise any error
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(
            f"Expected a model that torch.onnx can trace, got {type(error).__name__}: {reason}; write the encoder in "
            "operations of torch without branches on its numbers, or export without ONNX."
        ) from error
    proto = program.model_proto  # type: ignore[union-attr]
    for part in (proto.graph.node, proto.graph.value_info, proto.graph.input, proto.graph.output, proto.functions):
        for entry in part:
            del entry.metadata_props[:]  # stack traces with paths of this machine
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    return proto.SerializeToString()


def _check(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Score bags of 1 and 7 random instances, the second in two chunks, with the files and with the run, and compare.

    If the run fills missing values, an eighth of the values is missing.
    """
    standard = scorers_of(run.model)[0].standardizer
    center, scale = (standard.get_buffer(name) for name in ("center", "scale")) if standard else torch.eye(2)
    scale = torch.where(scale.isinf(), 1.0, scale)  # features that were constant in training
    noise = np.random.default_rng(0).normal(size=(8, *config["architecture"]["instance_shape"]))
    x = (torch.from_numpy(noise) * scale + center).to(getattr(torch, config["onnx"]["dtype"]))
    given, imputed, model = x.numpy(), config["data"]["imputed"], Model(folder, config=config)
    if imputed is not None:
        missing = np.arange(x.numel()).reshape(x.shape) % 8 == 0
        given = np.where(missing, np.nan, given)
        x = torch.where(torch.from_numpy(missing), torch.tensor(imputed["values"], dtype=x.dtype), x)
    with evaluation(run.model):
        wanted = run.model(x, torch.tensor([1, 7])).double().numpy()
    outputs = [model.score(bag, chunk_size=4) for bag in (given[:1], given[1:])]
    got = np.array([list(one.scores.values()) if isinstance(one, Ranked) else [one.score] for one in outputs])
    worst = float(np.abs(wanted.reshape(got.shape) - got).max())
    if not worst <= TOLERANCE:
        raise ExportError(
            f"Expected ONNX scores within {TOLERANCE:g} of the run's, got a difference of {worst:.2g}; export without "
            "ONNX: the encoder behaves differently when it is traced."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the log messages and warnings of the tracer."""
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


class Chunk(nn.Module):
    """Map instances x [m, ...] to logits z [m, M * G], values v [m, M * G, V], and their statistic n, l, r.

    With `filling`, which has the shape of an instance, missing values (NaN) of x are filled first.
    """

    filling: Tensor | None

    def __init__(self, members: Sequence[BagScorer], *, filling: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("filling", filling)
        self.members = nn.ModuleList(members)
        self.reduce = (maximum if members[0].pooling.statistic is MAXIMUM else logmean).reduce

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return z, v, n, l and r of a chunk."""
        if self.filling is not None:
            x = torch.where(torch.isnan(x), self.filling, x)
        pairs = [cast(BagScorer, member).instances(x) for member in self.members]
        z, v = torch.stack([z for z, _ in pairs], dim=1), torch.stack([v for _, v in pairs], dim=1)
        if z.ndim > 2:
            z, v = z.flatten(1, 2), v.flatten(1, 2)
        logits = z.double().T
        # The mask makes the graph count the instances, so that it takes any number of them.
        whole = torch.ones_like(logits, dtype=torch.bool)
        n, level, r = self.reduce(logits, v.double().transpose(0, 1), mask=whole)
        return z, v, n[0], level, r


class Merge(nn.Module):
    """Merge the statistics of two parts of a bag."""

    def __init__(self, *, largest: bool) -> None:
        super().__init__()
        self.merge = (maximum if largest else logmean).merge

    def forward(self, *parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return n, l and r of both parts, from n, l and r of each."""
        return self.merge(BagStatistic(*parts[:3]), BagStatistic(*parts[3:]))


class Outer(nn.Module):
    """Map the statistic of a bag to its score, the scores of the members [M] and, if calibrated, the probability.

    For C > 1 score columns, shapes are [C], [M, C] and [C]. Probabilities come from the entry `calibration` of
    config.json, or from `decision` for the targets multiclass and multilabel; other targets have none.
    """

    def __init__(self, members: Sequence[BagScorer], config: Mapping[str, Any]) -> None:
        super().__init__()
        self.members = nn.ModuleList(member.pooling for member in members)
        target, decision = config.get("target"), config.get("decision")
        lines = [] if config["calibration"] is None else [config["calibration"]]
        self.softmax = target == "multiclass"
        if decision is not None and self.softmax:
            lines = [{**decision, "intercept": offset} for offset in decision["offsets"]]
        elif decision is not None and target == "multilabel":
            lines = decision["columns"]
        # NaN for a label without a probability.
        names = ("slope", "scale", "center", "intercept")
        rows = [[math.nan if line is None else line[name] for name in names] for line in lines]
        self.register_buffer("lines", torch.tensor(rows, dtype=torch.float64).reshape(-1, len(names)))
        on_logit = [line is not None and line.get("version") == 2 for line in lines]
        self.register_buffer("on_logit", torch.tensor(on_logit, dtype=torch.bool))

    @property
    def calibrated(self) -> bool:
        """Whether the module returns a probability."""
        return len(self.get_buffer("lines")) > 0

    def forward(self, n: Tensor, l: Tensor, r: Tensor) -> tuple[Tensor, ...]:  # noqa: E741
        """Return score, scores of the members and, if calibrated, probability."""
        branches = cast(Pooling, self.members[0]).branches
        parts, each = [x.float() for x in (l, r, n.view(1))], []
        for i, pooling in enumerate(self.members):
            level, value, count = *(x[i * branches : (i + 1) * branches] for x in parts[:2]), parts[2]
            if branches > 1:
                level, value, count = level.unsqueeze(0), value.unsqueeze(0), count.expand(1, branches)
            each.append(cast(Pooling, pooling).score(level, value, count))
        scores = torch.cat(each)
        score = scores.double().mean() if scores.ndim == 1 else scores.double().mean(dim=0)
        if not self.calibrated:
            return score, scores
        slope, scale, center, intercept = self.get_buffer("lines").unbind(1)
        x = torch.where(self.get_buffer("on_logit"), bounded_logit(score, eps=SCORE_RESOLUTION), score)
        logits = slope * (x - center) / scale + intercept
        logits = logits[0] if score.ndim == 0 else logits
        return score, scores, torch.softmax(logits, dim=0) if self.softmax else torch.sigmoid(logits)


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
    above, below = (torch.zeros_like(x) for _ in range(2))
    for a, b in zip(*(reversed(part) for part in coefficients)):
        above, below = above * x + a, below * x + b
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
