"""Score bags with an exported midam model by this file, config.json, model.safetensors and torch, nothing else.

From a shell, with tables whose rows are instances, or other files with a bag each:

    python score_bags.py bags.csv > scores.csv
    python score_bags.py slide1.pt slide2.npy slide3.h5 --out scores.csv

and from Python, with a bag as a tensor [n, ...] of instances or, if it is too large, an iterable of parts:

    from score_bags import Model
    model = Model()
    model.score(bag).probability

A bag of any size takes the memory of one chunk. No code in a file is run.
"""

import argparse
import csv
import hashlib
import json
import math
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor
from torch.nn import functional

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_TYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
_TYPES |= {"BOOL": torch.bool}
_TYPES_READ = {*_TYPES.values(), torch.uint16, torch.uint32, torch.uint64}
# Entries of a table that mean a missing value.
_MISSING = {"", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None", "NaN", "nan", "-NaN"}
_MISSING |= {"-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
# Invisible characters, and all kinds of blanks.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_SAME = 1e-5  # closer values of a feature count as equal
_MAX_NORMAL_SCORE = 3.0

# Instances n, log-mean weight l [], weighted mean value r [V], in float64. If each of G score columns has its own
# weights of the instances, l [G] and r [G, V].
Statistic = tuple[float, Tensor, Tensor]


# score_onnx.py of an export holds a copy of this part.
_RESOLUTION = 2.0**-24  # of scores, which are float32
_RISKS = ("low", "middle", "high")


class Score(NamedTuple):
    """Score of a bag, which ranks bags, and its prediction if the model is calibrated."""

    score: float  # in [0, 1]; it ranks bags, and is not a probability
    probability: float | None  # of the positive class
    positive: bool | None  # whether the score reaches the threshold


class Ranked(NamedTuple):
    """Scores and predictions of a bag for classes, labels, grades, numbers or survival."""

    scores: dict[str, float]  # of each class or label, or only "score"; in [0, 1], rank bags, are not probabilities
    told: dict[str, Any]  # probabilities of classes or labels, or class, grade, number or risk; empty if uncalibrated


class Scorer(ABC):
    """Scores bags of any size in the memory of a chunk; a subclass computes, merges and scores statistics."""

    def __init__(self, folder: Path, config: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.config: dict[str, Any] = config or read_config(folder / "config.json")
        with self.as_exported():
            self.shape = tuple(self.config["architecture"]["instance_shape"])
            self.chunk_size = int(self.config["chunk_size"])
            if self.chunk_size < 1:
                raise ValueError(f"a chunk_size of {self.chunk_size}")

    @abstractmethod
    def statistic(self, rows: Any) -> Any:
        """Return the statistic of instances [m, ...], m >= 1; refuse instances that the model cannot take."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """Return the statistic of two parts of a bag together."""

    @abstractmethod
    def outer(self, merged: Any) -> list[float]:
        """Return the scores of a bag, one or C, from its statistic."""

    def score(self, bag: Any, *, chunk_size: int | None = None) -> Score | Ranked:
        """Score a bag: instances [n, ...], or an iterable of its parts [m, ...]."""
        merged, size = None, chunk_size or self.chunk_size
        for part in [bag] if hasattr(bag, "shape") else bag:
            for low in range(0, len(part), size):
                merged = self.add(merged, part[low : low + size])
        return self.prediction(merged)

    def add(self, merged: Any, rows: Any) -> Any:
        """Return the statistic `merged` of a bag, None at the start, with further instances [m, ...] added."""
        statistic = self.statistic(rows)
        return statistic if merged is None else self.merge(merged, statistic)

    def prediction(self, merged: Any) -> Score | Ranked:
        """Return score and prediction of a bag from its statistic."""
        if merged is None:
            raise ValueError("Expected at least one instance, got an empty bag.")
        scores = self.outer(merged)
        with self.as_exported():
            if "target" in self.config:
                return ranked(self.config, scores)
            line, threshold = self.config["calibration"], self.config["threshold"]
            probability = None if line is None else _sigmoid(_logit(line, scores[0], line["intercept"]))
            return Score(scores[0], probability, None if threshold is None else scores[0] >= threshold)

    @contextmanager
    def as_exported(self) -> Iterator[None]:
        """Raise a `ValueError` that names config.json if it holds invalid values."""
        try:
            yield
        except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"Expected config.json as it was exported, got another: {reason} (in {self.folder}); export the run "
                "again."
            ) from None


def ranked(config: dict[str, Any], scores: list[float]) -> Ranked:
    """Return the scores of a bag by name, with its predictions."""
    several = config["target"] in ("multiclass", "multilabel")
    return Ranked(dict(zip(config["names"] if several else ["score"], scores)), _predictions(config, scores))


def _predictions(config: dict[str, Any], scores: list[float]) -> dict[str, Any]:
    """Return predictions from the scores of a bag, named as in `midam predict`."""
    kind, names, decision = config["target"], config["names"], config["decision"]
    if decision is None:
        return {}
    if kind == "multiclass":
        logits = [_logit(decision, score, offset) for score, offset in zip(scores, decision["offsets"])]
        shares = [math.exp(logit - max(logits)) for logit in logits]
        likely = names[shares.index(max(shares))]
        return {f"probability_{name}": x / sum(shares) for name, x in zip(names, shares)} | {"class": likely}
    if kind == "multilabel":
        pairs = zip(scores, decision["columns"])
        probabilities = [
            None if line is None else _sigmoid(_logit(line, score, line["intercept"])) for score, line in pairs
        ]
        return {f"probability_{name}": share for name, share in zip(names, probabilities)}
    if kind == "continuous":
        return {"number": _between(scores[0], decision["scores"], decision["numbers"])}
    place = bisect_right(decision["cuts"], scores[0])
    return {"risk": _RISKS[place]} if kind == "survival" else {"grade": names[place]}


def _between(score: float, scores: list[float], numbers: list[float]) -> float:
    """Return the number at a score, linear between the knots."""
    right = bisect_right(scores, score)
    if right in (0, len(scores)):
        return numbers[0] if right == 0 else numbers[-1]
    share = (score - scores[right - 1]) / (scores[right] - scores[right - 1])
    return numbers[right - 1] + share * (numbers[right] - numbers[right - 1])


def _logit(line: dict[str, Any], score: float, intercept: float) -> float:
    """Return the logit of a probability: a line on the bounded logit of the score, in version 1 on the score itself."""
    x = score
    if line.get("version") == 2:
        share = _RESOLUTION + (1 - 2 * _RESOLUTION) * score
        x = math.log(share) - math.log(1 - share)
    return line["slope"] * (x - line["center"]) / line["scale"] + intercept


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of config.json; raise a `ValueError` for a damaged file."""
    try:
        config = json.loads(plain_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"Expected a whole JSON file, got a damaged one (in {path}); export the run again.")
    return config


def plain_file(path: Path) -> Path:
    """Return the path, or refuse a pipe or device, on which a read could wait forever."""
    if path.exists() and not path.is_file():
        raise OSError(f"Expected a file, got a folder, pipe or device (in {path}); export the run again.")
    return path


# The part ends here.


class Model(Scorer):
    """The exported model; `folder` holds config.json and model.safetensors (default: the folder of this file)."""

    def __init__(self, folder: str | Path | None = None, *, device: str = "cpu") -> None:
        super().__init__(Path(__file__).parent if folder is None else Path(folder))
        self.device, imputed = torch.device(device), self.config["data"]["imputed"]
        # Values that replace missing ones (NaN), in the shape of an instance.
        self.filling = None if imputed is None else torch.tensor(imputed["values"], dtype=torch.float64)
        weights = read_safetensors(self.folder / "model.safetensors", self.config.get("weights_sha256"))
        numbers = range(self.config["architecture"]["members"])
        self.members = [_Member(self.config["architecture"], weights, f"members.{i}.", self.device) for i in numbers]

    @torch.no_grad()
    def statistic(self, rows: Tensor) -> list[Statistic]:
        """Return the statistic of instances for each member; refuse another shape and numbers that are not finite."""
        if tuple(rows.shape[1:]) != self.shape:
            raise ValueError(f"Expected instances of shape {list(self.shape)}, got {list(rows.shape[1:])}.")
        if rows.is_floating_point() and self.filling is not None:
            rows = torch.where(rows.isnan(), self.filling.to(rows), rows)
        if rows.is_floating_point() and not torch.isfinite(rows).all():
            raise ValueError("Expected finite numbers, got NaN or infinity; clean the features.")
        x = rows.to(self.device)
        return [member.statistic(x) for member in self.members]

    @torch.no_grad()
    def merge(self, first: list[Statistic], second: list[Statistic]) -> list[Statistic]:
        """Return the statistic of two parts of a bag together, for each member."""
        return [member.merge(*pair) for member, *pair in zip(self.members, first, second)]

    @torch.no_grad()
    def outer(self, merged: list[Statistic]) -> list[float]:
        """Return the scores of a bag, the mean over the members."""
        each = [member.outer(statistic) for member, statistic in zip(self.members, merged)]
        scores: list[float] = torch.stack(each).double().mean(dim=0).reshape(-1).tolist()
        return scores


class _Member:
    """One of the scorers whose scores are averaged."""

    def __init__(self, architecture: dict[str, Any], weights: dict[str, Tensor], prefix: str, device: Any) -> None:
        of_member = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        self.w = {name: value.to(device) for name, value in of_member.items()}
        self.scaling, self.clip = architecture["scaling"], architecture["clip"]
        self.encoder, self.pooling = architecture["encoder"], architecture["pooling"]
        self.kind: str = self.pooling["name"]

    def statistic(self, x: Tensor) -> Statistic:
        """Return l = log mean exp z and r = softmax(z) . v of instances x [m, ...] with logits z, values v."""
        z, v = self.instances(x)
        z, v = z.double(), v.double()
        if self.kind == "max":
            return float(len(z)), z.amax(dim=0), v.new_zeros(0)
        weights = torch.softmax(z, dim=0)
        r = weights @ v if z.ndim == 1 else torch.einsum("mg,mgv->gv", weights, v)
        return float(len(z)), torch.logsumexp(z, dim=0) - math.log(len(z)), r

    def merge(self, first: Statistic, second: Statistic) -> Statistic:
        """Return the statistic of two parts of a bag together."""
        n = first[0] + second[0]
        if self.kind == "max":
            return n, torch.maximum(first[1], second[1]), first[2]
        a, b = first[1] + math.log(first[0] / n), second[1] + math.log(second[0] / n)
        level = torch.logaddexp(a, b)
        shares = [torch.exp(x - level).unsqueeze(-1) for x in (a, b)]
        return n, level, shares[0] * first[2] + shares[1] * second[2]

    def instances(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: PLR0911 - a line a pooling
        """Return logits z [m] and values v [m, V] of instances, or z [m, G] and v [m, G, V]."""
        e, kind = self._encode(self._standardize(x)), self.kind
        if kind.endswith("attention"):
            hidden = torch.tanh(self._linear("pooling.hidden", e))
            if "pooling.gate.weight" in self.w:
                hidden = hidden * torch.sigmoid(self._linear("pooling.gate", e))
            z = self._linear("pooling.attention", hidden).squeeze(-1)
            if kind == "embedding-attention":
                return z, e if z.ndim == 1 else e.unsqueeze(1).expand(-1, z.shape[1], -1)
            v = self._linear("pooling.scorer", e)
            return z, v if z.ndim == 1 else v.unsqueeze(-1)
        raw = self._linear("pooling.scorer", e).squeeze(-1)
        none, zeros, width = raw.new_empty(*raw.shape, 0), raw.new_zeros(len(raw)), (len(raw), -1)
        if kind == "generalized-mean":
            return self._number("exponent", "log_p") * functional.logsigmoid(raw), none
        if kind == "noisy-or":
            return zeros, functional.logsigmoid(-raw).reshape(width)
        phi = torch.sigmoid(raw) if self.pooling["squash"] else raw
        if kind == "max":
            return phi, none
        if kind == "smoothed-max":
            return phi / self._number("temperature", "log_tau"), none
        return zeros, phi.reshape(width)  # mean, noisy-and

    def outer(self, statistic: Statistic) -> Tensor:  # noqa: PLR0911 - a line a pooling
        """Return the score [] of a bag, or its scores [C], from its statistic."""
        n, l, r = statistic[0], statistic[1].float(), statistic[2].float()  # noqa: E741
        kind, w = self.kind, self.w
        if kind == "embedding-attention":
            last = "pooling.head"
            if "pooling.head.weight" not in w:
                last, r = "pooling.head.2", torch.relu(self._linear("pooling.head.0", r))
            if r.ndim > 1:  # the output of each column for its encoding
                return torch.sigmoid((r * w[f"{last}.weight"]).sum(dim=-1) + w[f"{last}.bias"])
            return torch.sigmoid(self._linear(last, r)).squeeze()
        if kind.endswith("attention"):
            return torch.sigmoid(r).squeeze()
        if kind == "generalized-mean":
            return torch.exp(l / self._number("exponent", "log_p"))
        if kind == "noisy-or":
            return -torch.expm1((n * r).clamp(max=-1e-30)).squeeze()
        if kind == "noisy-and":
            a, b = w["pooling.a"], torch.sigmoid(w["pooling.b_logit"])
            low = torch.sigmoid(-a * b)
            return ((torch.sigmoid(a * (r - b)) - low) / (torch.sigmoid(a * (1 - b)) - low)).squeeze()
        pooled = l if kind == "max" else r.squeeze()
        if kind == "smoothed-max":
            pooled = l * self._number("temperature", "log_tau")
        return pooled if self.pooling["squash"] else torch.sigmoid(pooled)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def _number(self, name: str, learned: str) -> Tensor | float:
        """Return a number of the pooling, which was set or learned."""
        value: Tensor | float = self.pooling[name]
        return self.w[f"pooling.{learned}"].exp() if f"pooling.{learned}" in self.w else value

    def _standardize(self, x: Tensor) -> Tensor:
        """Return standardized, clipped instances; `blended` features are averaged with normal scores of their ranks."""
        center, scale = self.w["standardizer.center"], self.w["standardizer.scale"]
        clip = math.inf if self.clip is None else self.clip
        # Whole numbers of 32 bits and more are not exact in float32.
        if x.dtype == torch.float64 or (x.element_size() >= 4 and not x.is_floating_point()):
            x = x.double() - center.double() - self.w["standardizer.center_low"].double()
            u = (x / scale).clamp(-clip, clip).float()
        else:
            u = ((x.float() - center) / scale).clamp(-clip, clip)
        if self.scaling == "linear":
            return u
        blended = 0.5 * (u + self._normal_scores(u)) - self.w.get("standardizer.offset", 0.0)
        return torch.where(self.w["standardizer.blended"], blended, u)

    def _normal_scores(self, u: Tensor) -> Tensor:
        """Return the standard normal quantile, within +-3, of each feature's rank among the training instances."""
        knots, columns = self.w["standardizer.knots"], u.T.contiguous()
        last = knots.shape[1] - 1
        low, high = torch.searchsorted(knots, columns - _SAME), torch.searchsorted(knots, columns + _SAME, right=True)
        upper = high.clamp(1, last)
        left, right = knots.gather(1, upper - 1), knots.gather(1, upper)
        share = (columns - left) / (right - left).clamp(min=torch.finfo(u.dtype).tiny)
        rank = torch.where(high > low, 0.5 * (low + high - 1).to(u.dtype), upper - 1 + share.clamp(0, 1))
        first, end = knots[:, :1], knots[:, -1:]
        rank = torch.where(columns >= end - _SAME, torch.full_like(rank, last), rank)
        rank = torch.where(columns <= first + _SAME, torch.zeros_like(rank), rank)
        score = torch.special.ndtri((rank / last).double()).clamp(-_MAX_NORMAL_SCORE, _MAX_NORMAL_SCORE)
        return torch.where(first == end, torch.zeros_like(rank), score.to(u.dtype)).T

    def _encode(self, x: Tensor) -> Tensor:
        """Return the encodings [m, D] of standardized instances."""
        prefix = self.encoder["prefix"]
        if self.encoder["name"] == "mlp":
            x, suffix = x.flatten(1), ".weight"
            names = [name for name in self.w if name.startswith(f"{prefix}layers.") and name.endswith(suffix)]
            layers = sorted(int(name.removesuffix(suffix).rpartition(".")[2]) for name in names)
            for layer in layers:
                x = self._linear(f"{prefix}layers.{layer}", x)
                x = torch.tanh(x) if layer == 0 else torch.relu(x)
            return x
        x = torch.relu(self._normalize(f"{prefix}stem.1", self._convolve(f"{prefix}stem.0", x)))
        for number in range(9):
            block = f"{prefix}blocks.{number}"
            stride = 2 if number in (3, 6) else 1
            y = self._convolve(f"{block}.conv1", x, stride=stride)
            y = torch.relu(self._normalize(f"{block}.norm1", y))
            y = self._normalize(f"{block}.norm2", self._convolve(f"{block}.conv2", y))
            if stride > 1:
                axes, half = x.ndim - 2, (y.shape[1] - x.shape[1]) // 2
                x = x[(slice(None), slice(None), *[slice(None, None, 2)] * axes)]
                x = functional.pad(x, (*[0] * (2 * axes), half, half))
            x = torch.relu(y + x)
        return x.flatten(2).mean(dim=2)

    def _convolve(self, name: str, x: Tensor, *, stride: int = 1) -> Tensor:
        weight = self.w[f"{name}.weight"]
        convolve = functional.conv3d if weight.ndim == 5 else functional.conv2d
        return convolve(x, weight, stride=stride, padding=1)

    def _normalize(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        if f"{name}.running_mean" not in self.w:
            return functional.group_norm(x, 8, weight, bias)
        return functional.batch_norm(x, self.w[f"{name}.running_mean"], self.w[f"{name}.running_var"], weight, bias)


def read_safetensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file: length of the header, header as JSON, bytes of the tensors.

    Refuses a file with another SHA-256 than `sha256`.
    """
    content = bytearray(plain_file(path).read_bytes())
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"Expected the weights as they were exported, got others (in {path}); export the run again.")
    start = 8 + int.from_bytes(content[:8], "little")
    header, tensors = json.loads(content[8:start]), {}
    for name, entry in header.items():
        if name != "__metadata__":
            low, high = (start + offset for offset in entry["data_offsets"])
            kind, shape = _TYPES[entry["dtype"]], entry["shape"]
            flat = (
                torch.frombuffer(bytearray(content[low:high]), dtype=kind) if high > low else torch.empty(0, dtype=kind)
            )
            tensors[name] = flat.reshape(shape)
    return tensors


def read_table(path: Path, model: Model, *, bag_column: str, chunk_size: int) -> Iterator[tuple[str, Score | Ranked]]:
    """Yield the scores of the bags of a table whose rows are instances; rows of a bag may be anywhere.

    The separator is the most frequent of comma, semicolon and tab in the first line; with semicolons or tabs, numbers
    may have a decimal comma.
    """
    totals: dict[str, Any] = {}
    waiting: dict[str, list[list[float]]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        rows, comma = csv.DictReader(file, delimiter=separator), "," if separator == "," else "."
        columns = rows.fieldnames = [_name(column) for column in rows.fieldnames or []]
        bag_column, known = _name(bag_column), [_name(name) for name in model.config["data"]["feature_names"] or ()]
        features = known or [name for name in columns if name != bag_column]
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Expected unique names of columns, got {twice!r} twice (in {path}).")
        missing = [name for name in (bag_column, *features) if name not in columns]
        if missing:
            raise ValueError(f"Expected the columns {', '.join(missing)}, got {', '.join(columns)} (in {path}).")
        if len(features) != math.prod(model.shape):
            raise ValueError(f"Expected {math.prod(model.shape)} feature columns, got {len(features)} (in {path}).")
        others = [name for name in columns if name not in (bag_column, *features)]
        if others:
            sys.stderr.write(f"score_bags: note: columns left out: {', '.join(others)} (in {path})\n")
        fills = model.filling is not None
        for count, row in enumerate(rows, start=1):
            try:
                texts = [row[name].replace(",", comma) for name in features]
                numbers = [math.nan if fills and text in _MISSING else float(text) for text in texts]
            except (AttributeError, ValueError):
                raise ValueError(f"Expected numbers as features, got others (in {path}, row {count + 1}).") from None
            bag = _name(row[bag_column])
            waiting.setdefault(bag, []).append(numbers)
            if count % chunk_size == 0:
                _flush(model, totals, waiting)
    _flush(model, totals, waiting)
    for bag, total in totals.items():
        yield bag, model.prediction(total)


def _name(text: str) -> str:
    """Normalize a name as midam does: names that look the same become equal."""
    text = _SPACES.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip("\u200c\u200d").strip()
    return text[1:] if text.startswith("'") and _safe(text) != text else text


def _flush(model: Model, totals: dict[str, Any], waiting: dict[str, list[list[float]]]) -> None:
    for bag, numbers in waiting.items():
        rows = torch.tensor(numbers, dtype=torch.float64)
        totals[bag] = model.add(totals.get(bag), rows.reshape(len(rows), *model.shape))
    waiting.clear()


def read_bag(path: Path, *, chunk_size: int, names: Sequence[str] | None = None) -> Tensor | Iterator[Tensor]:
    """Read the bag of a file: a tensor of torch.save, or an array of numpy.save or HDF5, which is read in parts.

    In HDF5, as CLAM, TRIDENT and STAMP write it, the dataset is `features` or `feats`; this needs h5py. Refuses a file
    whose feature names differ from `names`, also in order.
    """
    if path.suffix in (".pt", ".pth"):
        content = torch.load(path, map_location="cpu", weights_only=True)
        content = _features(content, path, names) if isinstance(content, dict) else content
        plain = isinstance(content, Tensor) and content.layout == torch.strided and content.device.type == "cpu"
        if not plain or content.dtype not in _TYPES_READ:
            kind = f"{content.dtype}, {content.layout}" if isinstance(content, Tensor) else type(content).__name__
            raise ValueError(f"Expected one dense tensor of real numbers, got {kind} (in {path}).")
        x: Tensor = content.resolve_neg()
        return x[0] if x.ndim == 3 and len(x) == 1 else x  # [1, n, D]
    if path.suffix == ".npy":
        import numpy as np  # for this format alone

        return _parts(np.load(path, mmap_mode="r", allow_pickle=False), chunk_size)
    if path.suffix in (".h5", ".hdf5"):
        try:
            import h5py  # for this format alone
        except ImportError:
            raise ValueError(f"Expected the package h5py to read {path}, got none; pip install h5py.") from None
        return _parts(_features(h5py.File(path, "r"), path, names), chunk_size)
    raise ValueError(f"Expected .csv, .tsv, .pt, .npy or .h5, got {path}.")


def _parts(array: Any, chunk_size: int) -> Iterator[Tensor]:
    """Yield parts of an array on disk, [n, ...] or [1, n, D], in the byte order of this machine."""
    whole = array.ndim == 3 and len(array) == 1
    for low in range(0, array.shape[1] if whole else len(array), chunk_size):
        rows = array[0, low : low + chunk_size] if whole else array[low : low + chunk_size]
        yield torch.from_numpy(rows.astype(rows.dtype.newbyteorder("=")))


def _features(parts: Any, path: Path, names: Sequence[str] | None) -> Any:
    name = next((name for name in ("features", "feats") if name in parts), None)
    if name is None:
        raise ValueError(f"Expected features or feats, got {', '.join(map(str, parts)) or 'nothing'} (in {path}).")
    key, attributes = "feature_names", [getattr(part, "attrs", {}) for part in (parts[name], parts)]
    stored = next((part[key] for part in (parts, *attributes) if key in part), None)
    if stored is not None and names is not None:
        given = [_name(one.decode() if isinstance(one, bytes) else str(one)) for one in stored]
        if given != [_name(one) for one in names]:
            raise ValueError(f"Expected the features {', '.join(names)}, got {', '.join(given)} (in {path}).")
    return parts[name]


def _write(scored: Iterable[tuple[str, Score | Ranked]], file: TextIO) -> None:
    writer, rows = csv.writer(file, lineterminator="\n"), [(bag, _row(result)) for bag, result in scored]
    writer.writerow(map(_safe, ["bag", *(rows[0][1] if rows else Score._fields)]))
    for bag, row in rows:
        texts = (f"{value:.9g}" if isinstance(value, float) else value for value in row.values())
        writer.writerow(map(_safe, [bag, *("" if text is None else text for text in texts)]))


def _safe(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula; numbers stay unchanged."""
    if not isinstance(value, str) or value.lstrip("'")[:1] not in tuple("=+-@\t\r\n"):
        return value
    try:
        float(value.lstrip("'"))
    except ValueError:
        return f"'{value}"
    return value


def _row(result: Score | Ranked) -> dict[str, Any]:
    """Return the scores and predictions of a bag by column."""
    if isinstance(result, Score):
        return result._asdict() | {"positive": None if result.positive is None else int(result.positive)}
    several = len(result.scores) > 1
    return {f"score_{name}" if several else "score": score for name, score in result.scores.items()} | result.told


def main() -> None:
    """Score the files that the command line names."""
    parser = argparse.ArgumentParser(description="Score bags with an exported midam model.")
    text = "a table (.csv, .tsv) of instances, or a bag each (.pt, .npy, .h5)"
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--out", type=Path, metavar="FILE.csv", help="where to write the scores; default: standard output"
    )
    parser.add_argument("--bag-column", help="column of a table that names the bag; default: as in training")
    parser.add_argument("--chunk-size", type=int, help="instances encoded at a time; default: as in training")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    options = parser.parse_args()
    try:
        model = Model(device=options.device)
        column = options.bag_column or model.config["data"]["bag_column"]
        chunk = options.chunk_size or model.chunk_size
        scored: list[tuple[str, Score | Ranked]] = []
        for path in options.files:
            if path.suffix in (".csv", ".tsv"):
                scored += read_table(path, model, bag_column=column, chunk_size=chunk)
            else:
                bag = read_bag(path, chunk_size=chunk, names=model.config["data"]["feature_names"])
                scored.append((path.stem, model.score(bag, chunk_size=chunk)))
    except (ValueError, OSError) as error:
        sys.exit(f"score_bags: error: {error}")
    except (LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        sys.exit(
            "score_bags: error: Expected config.json and model.safetensors as they were exported, got others: "
            f"{reason} (in {Path(__file__).parent}); export the run again."
        )
    if options.out is None:
        _write(scored, sys.stdout)
    else:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            _write(scored, file)


if __name__ == "__main__":
    main()
