"""Score exports where midam is not installed, and compare with midam: ``make test-exports``.

    python -m tests.outside.exports TORCH_PYTHON ONNX_PYTHON

The first interpreter holds torch and NumPy alone, the second onnxruntime and NumPy alone. A run of each pooling, with
three members and features standardized by ranks, and runs on images and volumes are exported here and scored there,
chunk by chunk.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
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
ALONE = """
import importlib.util, json, sys
import numpy as np
from reader import Model
form, *paths = sys.argv[1:]
assert not [name for name in ("midam", "safetensors", "scipy", "pandas") if importlib.util.find_spec(name)]
assert (importlib.util.find_spec("torch") is None) == (form == "onnx")
model = Model(form=form)
print(json.dumps([model.score(np.load(path, mmap_mode="r"), chunk_size=256) for path in paths]))
"""


def main() -> int:
    """Print the largest difference of each case; returns 1 above the tolerance."""
    python, worst = dict(zip(("torch", "onnx"), sys.argv[1:3], strict=True)), 0.0
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    sys.stdout.write(f"{'run':24}{'bags of':>22}{'torch':>14}{'onnxruntime':>14}\n")
    for name, shape, sizes, settings in CASES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            run, bags = made(shape, **settings), bags_of(shape, sizes)
            write_export(run, SUMMARY, folder / "export")
            for i, size in enumerate(sizes):
                np.save(folder / f"{size}.npy", bags[i])
            wanted = predict(run.model, bags)
            chances = run.calibrator.predict(wanted)
            differences = []
            for form in ("torch", "onnx"):
                files = [str(folder / f"{size}.npy") for size in sizes]
                command = [python[form], "-W", "ignore", "-c", ALONE, form, *files]
                done = subprocess.run(
                    command, cwd=folder / "export", env=clean, check=True, stdout=subprocess.PIPE, text=True
                )
                found = np.array([[row["score"], row["probability"]] for row in json.loads(done.stdout)])
                differences.append(max(np.abs(found[:, 0] - wanted).max(), np.abs(found[:, 1] - chances).max()))
            worst = max(worst, *differences)
            sys.stdout.write(f"{name:24}{', '.join(map(str, sizes)):>22}{differences[0]:14.1e}{differences[1]:14.1e}\n")
            sys.stdout.flush()
    sys.stdout.write(f"largest difference {worst:.1e}, tolerance {TOLERANCE:g}\n")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
