"""Memory of training and scoring does not know how large the bags are: measured in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_WORK = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from midam.data.bags import Bags
from midam.data.on_disk import RowFile
from midam.data.statistics import bag_statistics
from midam.evaluate.predict import predict
from midam.runs.instance_files import write_instance_scores
from midam.settings import Settings
from midam.train.trainer import Trainer

size, folder = int(sys.argv[1]), Path(sys.argv[2])
bags, width = 4, 64

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

def peak_of(work):
    peak, done = [anonymous()], threading.Event()
    def watch():
        while not done.wait(0.001):
            peak.append(anonymous())
    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(peak) - start

path = folder / f"rows-{size}"
with path.open("wb") as file:  # a file of holes: zeros that take no room
    file.truncate(bags * size * width * 2)
rows = RowFile(path, shape=(bags * size, width), dtype="<f2", reads="pread")
everything = Bags(rows, starts=np.arange(bags) * size, sizes=[size] * bags, labels=np.arange(bags) % 2)
common = dict(epochs=1, num_positive=2, num_negative=2, chunk_size=256, members=1, standardize=False)

def train(**settings):
    Trainer(Settings(**common, **settings), everything, everything.subset([0, 1])).train_epoch()

start, found = anonymous(), {}
found["baseline"] = peak_of(lambda: bag_statistics(everything, np.arange(bags)))
found["vrsp"] = peak_of(lambda: train(pooling="smoothed-max"))
found["exact-point"] = peak_of(lambda: train(estimator="exact-point"))
model = Trainer(Settings(**common), everything).model
found["score"] = peak_of(lambda: predict(model, everything, chunk_size=256))
try:
    import h5py
    found["instances"] = peak_of(
        lambda: write_instance_scores(model, everything.subset([0]), folder / f"out-{size}", chunk_size=256)
    )
except ImportError:
    pass
print(json.dumps(found))
"""


def measured(size: int, folder: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(size), str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure memory")
def test_anonymous_memory_does_not_know_the_size_of_a_bag(tmp_path):
    small, large = measured(1000, tmp_path), measured(60_000, tmp_path)
    # Of the baseline, 16 MiB: what is read at a time is more than the small bag, and the large one as float64 holds 29.
    assert large.pop("baseline") < small.pop("baseline") + 16
    for what, peak in small.items():
        # In MiB above the imports; one large bag holds 7, all of them 29. The 4 are what the allocator may keep.
        assert large[what] < 1.05 * peak + 4, f"{what}: {small} and {large}"
