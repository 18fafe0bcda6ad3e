"""Score exports where midam is not installed, and compare with midam: ``make test-exports``.

    python -m tests.outside.exports TORCH_PYTHON ONNX_PYTHON

The first interpreter holds torch alone, the second onnxruntime and NumPy alone. A run of each pooling, with three
members and features standardized by ranks, and runs on images and volumes are exported here and scored there, chunk by
chunk.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from tests.unit.test_export import SIZES, SUMMARY, bags_of, made

from midam import predict
from midam.export.run import write_export
from midam.registry import POOLINGS

TOLERANCE = 1e-5
CASES = [(name, (4,), SIZES, {"pooling": name, "members": 3}) for name in POOLINGS.names()]
CASES += [
    ("resnet20", (3, 16, 16), [1, 7, 1000], {"pooling": "smoothed-max"}),
    ("resnet20, batch norm", (1, 16, 16), [1, 7, 1000], {"norm": "batch"}),
    ("resnet20-3d", (1, 8, 16, 16), [1, 7, 100], {"pooling": "max"}),
]
BY_TORCH = """
import importlib.util, json, sys
from score_bags import Model
assert not [name for name in ("midam", "numpy", "safetensors") if importlib.util.find_spec(name)]
import torch
model = Model()
bags = [torch.load(path, weights_only=True) for path in sys.argv[1:]]
print(json.dumps([model.score(bag, chunk_size=256) for bag in bags]))
"""
BY_ONNX = """
import importlib.util, json, sys
import numpy as np
from score_onnx import Model
assert not [name for name in ("midam", "torch") if importlib.util.find_spec(name)]
model = Model()
print(json.dumps([model.score(np.load(path, mmap_mode="r"), chunk_size=256) for path in sys.argv[1:]]))
"""


def main() -> int:
    """Print the largest difference of each case; returns 1 above the tolerance."""
    python, worst = dict(zip(("torch", "onnx"), sys.argv[1:3], strict=True)), 0.0
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    sys.stdout.write(f"{'run':24}{'bags of':>22}{'torch alone':>14}{'onnxruntime':>14}\n")
    for name, shape, sizes, settings in CASES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            run, bags = made(shape, **settings), bags_of(shape, sizes)
            write_export(run, SUMMARY, folder / "export")
            for i, size in enumerate(sizes):
                np.save(folder / f"{size}.npy", bags[i])
                torch.save(torch.from_numpy(np.array(bags[i])), folder / f"{size}.pt")
            wanted = predict(run.model, bags)
            chances = run.calibrator.predict(wanted)
            differences = []
            for way, code, suffix in (("torch", BY_TORCH, "pt"), ("onnx", BY_ONNX, "npy")):
                files = [str(folder / f"{size}.{suffix}") for size in sizes]
                command = [python[way], "-W", "ignore", "-c", code, *files]
                done = subprocess.run(
                    command, cwd=folder / "export", env=clean, check=True, stdout=subprocess.PIPE, text=True
                )
                found = np.array([row[:2] for row in json.loads(done.stdout)])
                differences.append(max(np.abs(found[:, 0] - wanted).max(), np.abs(found[:, 1] - chances).max()))
            worst = max(worst, *differences)
            sys.stdout.write(f"{name:24}{', '.join(map(str, sizes)):>22}{differences[0]:14.1e}{differences[1]:14.1e}\n")
            sys.stdout.flush()
    sys.stdout.write(f"largest difference {worst:.1e}, tolerance {TOLERANCE:g}\n")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
