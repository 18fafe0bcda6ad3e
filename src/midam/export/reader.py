"""Score bags by the programs of this export, with torch and NumPy or with onnxruntime and NumPy.

    from reader import Model
    Model().score(bag)

A bag is an array [n, ...] of instances or, if it is too large for memory, an iterable of its parts.
"""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Model:
    """The model of an export; `form` is "torch" or "onnx", by default the first one in the `folder` of this file."""

    def __init__(self, folder: str | Path | None = None, *, form: str | None = None) -> None:
        self.folder = Path(__file__).parent if folder is None else Path(folder)
        self.config: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        programs = self.config["programs"][form or next(iter(self.config["programs"]))]
        self.chunk, self.merge, self.finish = (self._load(*entry) for entry in sorted(programs.items()))

    def score(self, bag: Any, *, chunk_size: int | None = None) -> dict[str, Any]:
        """Return the scores of a bag and its predictions by name; None where the model predicts nothing."""
        statistic, size = None, chunk_size or self.config["chunk_size"]
        for part in [bag] if hasattr(bag, "shape") else bag:
            for low in range(0, len(part), size):
                one = self.chunk(self._checked(part[low : low + size]))
                statistic = one if statistic is None else self.merge(statistic, one)
        if statistic is None:
            raise ValueError("Expected at least one instance, got an empty bag; leave it out.")
        pairs = zip(self.config["columns"].items(), self.finish(statistic).tolist(), strict=True)
        return {key: None if np.isnan(x) else x if names is None else names[int(x)] for (key, names), x in pairs}

    def _checked(self, part: Any) -> Any:
        x, fills = np.ascontiguousarray(part, dtype=self.config["dtype"]), self.config["data"]["imputed"] is not None
        if list(x.shape[1:]) != self.config["instance_shape"]:
            raise ValueError(f"Expected instances of shape {self.config['instance_shape']}, got {list(x.shape[1:])}.")
        if not (np.isfinite(x) | (fills & np.isnan(x))).all():
            raise ValueError(f"Expected finite numbers{' or NaN' * fills}, got others; clean the features.")
        return x

    def _load(self, name: str, digest: str) -> Callable[..., Any]:
        content = (self.folder / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"Expected {name} as it was exported, got another file; export the run again.")
        if name.endswith(".pt2"):
            import torch

            program = torch.export.load(io.BytesIO(content)).module()
            return lambda *arrays: program(*map(torch.from_numpy, arrays)).detach().numpy()
        import onnxruntime

        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        return lambda *arrays: session.run(None, dict(zip("ab", arrays)))[0]
