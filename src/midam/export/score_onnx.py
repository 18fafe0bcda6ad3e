"""Score bags with an exported midam model in onnxruntime by this file, config.json and the three .onnx files.

    from score_onnx import Model
    model = Model("the/export")
    model.score(bag).probability

A bag is an array [n, ...] of instances or, if it is too large, an iterable of its parts. It takes the memory of one
chunk: chunk.onnx computes the statistic (n, l, r) of a chunk, merge.onnx merges two statistics, score.onnx scores a
bag.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.export.score_bags import Scorer, plain_file


class Model(Scorer):
    """The exported model.

    `folder` is the folder of the export or of its .onnx files (default: the folder of this file); `providers` are
    onnxruntime's.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
        config: dict[str, Any] | None = None,
    ) -> None:
        import onnxruntime  # so that this file can be imported without it

        at = Path(__file__).parent if folder is None else Path(folder)
        at = at if (at / "chunk.onnx").exists() else at / "onnx"
        for path in at.glob("*.onnx"):
            plain_file(path)
        super().__init__(at.parent, config)
        with self.as_exported():
            self._dtype = np.dtype(self.config["onnx"]["dtype"])
            self._fills = self.config["data"]["imputed"] is not None
            if self._dtype.kind != "f":
                raise ValueError(f"a dtype of {self._dtype}")
        self._parts = {
            name: onnxruntime.InferenceSession(str(at / f"{name}.onnx"), providers=list(providers))
            for name in ("chunk", "merge", "score")
        }

    def statistic(self, rows: NDArray[Any]) -> list[Any]:
        """Return the statistic of instances; refuse another shape, and missing values (NaN) if the model fills none."""
        x = np.ascontiguousarray(rows, dtype=self._dtype)
        if x.shape[1:] != self.shape:
            raise ValueError(f"Expected instances of shape {list(self.shape)}, got {list(x.shape[1:])}.")
        if not (np.isfinite(x) | (self._fills & np.isnan(x))).all():
            raise ValueError(f"Expected finite numbers{' or NaN' * self._fills}, got others; clean the features.")
        return self._parts["chunk"].run(["n", "l", "r"], {"x": x})

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        """Return the statistic of two parts of a bag together."""
        names = [f"{name}{number}" for number in (1, 2) for name in "nlr"]
        return self._parts["merge"].run(["n", "l", "r"], dict(zip(names, [*first, *second])))

    def outer(self, merged: list[Any]) -> list[float]:
        """Return the scores of a bag."""
        score = self._parts["score"].run(["score"], dict(zip("nlr", merged)))[0]
        return np.atleast_1d(score).astype(np.float64).tolist()
