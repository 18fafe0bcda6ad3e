"""Score bags with an exported midam model in onnxruntime: this file, the three .onnx files beside it, and config.json.

    from score_onnx import Model
    model = Model("the/export")
    model.score(bag).probability

A bag is an array [n, ...] of instances or, if it is too large for that, an iterable of parts of it. It takes the memory
of one chunk: chunk.onnx makes the statistic (n, l, r) of some instances, merge.onnx joins two, score.onnx scores a bag.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_RISKS = ("low", "middle", "high")
_RESOLUTION = 2.0**-24  # of scores, which are single precision numbers


class Score(NamedTuple):
    """Score of a bag, which ranks bags, and the prediction where the model was calibrated."""

    score: float  # in [0, 1]; ranks bags, and is not a probability
    probability: float | None  # of the positive class
    positive: bool | None  # whether the score reaches the threshold


class Ranked(NamedTuple):
    """Scores and predictions of a bag of a target that is not binary: classes, labels, grades, numbers, survival."""

    scores: dict[str, float]  # of each class or label, or of "score" alone; in [0, 1], ranks bags, is no probability
    told: dict[str, Any]  # probabilities of classes or labels, the class, grade, number or risk; empty if uncalibrated


class Model:
    """The exported model.

    `folder` is that of the export, or of its .onnx files (default: where this file lies), `providers` those of
    onnxruntime.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
        config: dict[str, Any] | None = None,
    ) -> None:
        import onnxruntime  # so that the file can be imported without

        at = Path(__file__).parent if folder is None else Path(folder)
        at = at if (at / "chunk.onnx").exists() else at / "onnx"
        for path in (at.parent / "config.json", *at.glob("*.onnx")):
            if path.exists() and not path.is_file():
                raise OSError(f"Expected a file, got a folder, pipe or device (in {path}); export the run again.")
        self.config: dict[str, Any] = config or _read_config(at.parent / "config.json")
        with _as_exported(at.parent):
            self._dtype = np.dtype(self.config["onnx"]["dtype"])
            self._shape, self._size = (
                list(self.config["architecture"]["instance_shape"]),
                int(self.config["chunk_size"]),
            )
            self._fills = self.config["data"]["imputed"] is not None
            self._threshold = None if self.config["threshold"] is None else float(self.config["threshold"])
            if self._dtype.kind != "f" or self._size < 1:
                raise ValueError("numbers that cannot be")
        self._folder = at.parent
        self._parts = {
            name: onnxruntime.InferenceSession(str(at / f"{name}.onnx"), providers=list(providers))
            for name in ("chunk", "merge", "score")
        }

    def score(self, bag: NDArray[Any] | Iterable[NDArray[Any]], *, chunk_size: int | None = None) -> Score | Ranked:
        """Score a bag: instances [n, ...], or parts of it, one after the other, each [m, ...]."""
        size, merged = chunk_size or self._size, None
        for part in [bag] if isinstance(bag, np.ndarray) else bag:
            for low in range(0, len(part), size):
                x = np.ascontiguousarray(part[low : low + size], dtype=self._dtype)
                self._check(x)
                found = self._parts["chunk"].run(["n", "l", "r"], {"x": x})
                merged = found if merged is None else self._merge(merged, found)
        if merged is None:
            raise ValueError("Expected at least one instance, got an empty bag.")
        found = self._parts["score"].run(None, dict(zip("nlr", merged)))
        if "target" in self.config:
            with _as_exported(self._folder):
                return _ranked(self.config, np.atleast_1d(found[0]).astype(np.float64).tolist())
        score = float(found[0])
        positive = None if self._threshold is None else score >= self._threshold
        return Score(score, float(found[2]) if len(found) > 2 else None, positive)

    def _check(self, x: NDArray[Any]) -> None:
        """Refuse another shape, and what is no finite number; missing values (NaN) where the model fills none."""
        if list(x.shape[1:]) != self._shape:
            raise ValueError(f"Expected instances of shape {self._shape}, got {list(x.shape[1:])}.")
        fills = self._fills
        if not (np.isfinite(x) | (fills & np.isnan(x))).all():
            raise ValueError(f"Expected finite numbers{' or NaN' * fills}, got others; clean the features.")

    def _merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        names = [f"{name}{number}" for number in (1, 2) for name in "nlr"]
        return self._parts["merge"].run(["n", "l", "r"], dict(zip(names, [*first, *second])))


def _read_config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"Expected a whole JSON file, got a damaged one (in {path}); export the run again.")
    return found


@contextmanager
def _as_exported(folder: Path) -> Iterator[None]:
    """Say which file is at fault where config.json holds other values than an export has."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"Expected config.json as it was exported, got another: {reason} (in {folder}); export the run again."
        ) from None


def _ranked(config: dict[str, Any], scores: list[float]) -> Ranked:
    """Scores of a bag by name, with its predictions."""
    several = config["target"] in ("multiclass", "multilabel")
    return Ranked(dict(zip(config["names"] if several else ["score"], scores)), _told(config, scores))


def _told(config: dict[str, Any], scores: list[float]) -> dict[str, Any]:
    """Predictions from the scores of a bag, by the names of `midam predict`."""
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
        found = [None if line is None else _sigmoid(_logit(line, score, line["intercept"])) for score, line in pairs]
        return {f"probability_{name}": share for name, share in zip(names, found)}
    if kind == "continuous":
        return {"number": _between(scores[0], decision["scores"], decision["numbers"])}
    place = bisect_right(decision["cuts"], scores[0])
    return {"risk": _RISKS[place]} if kind == "survival" else {"grade": names[place]}


def _between(score: float, scores: list[float], numbers: list[float]) -> float:
    """Number at a score, linear between the knots."""
    right = bisect_right(scores, score)
    if right in (0, len(scores)):
        return numbers[0] if right == 0 else numbers[-1]
    share = (score - scores[right - 1]) / (scores[right] - scores[right - 1])
    return numbers[right - 1] + share * (numbers[right] - numbers[right - 1])


def _logit(line: dict[str, Any], score: float, intercept: float) -> float:
    """Logit of a probability, by a line on the bounded logit of the score; of version 1 on the score itself."""
    x = score
    if line.get("version") == 2:
        share = _RESOLUTION + (1 - 2 * _RESOLUTION) * score
        x = math.log(share) - math.log(1 - share)
    return line["slope"] * (x - line["center"]) / line["scale"] + intercept


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
