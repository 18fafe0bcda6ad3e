"""Score bags with an exported midam model in onnxruntime: this file, the three .onnx files next to it, and config.json.

    from score_onnx import Model
    model = Model("the/export")
    model.score(bag).probability

A bag is an array [n, ...] of instances or, if it is too large for that, an iterable of parts of it. It takes the memory
of one chunk: chunk.onnx makes the statistic (n, l, r) of some instances, merge.onnx joins two, score.onnx scores a bag.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.export.score_bags import Ranked, Score, plain_file, ranked, read_config


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
        for path in at.glob("*.onnx"):
            plain_file(path)
        self.config: dict[str, Any] = config or read_config(at.parent / "config.json")
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
                return ranked(self.config, np.atleast_1d(found[0]).astype(np.float64).tolist())
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
