"""What midam.data needs of the system and of other packages: nothing that Windows lacks, and nothing before its use."""

import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"

# What Python has on Linux alone, or on POSIX alone.
BARE = """
import asyncio  # Python's own, which asks for sysconf where there is POSIX
import mmap, os, signal, subprocess, sys
subprocess._USE_POSIX_SPAWN = False  # it has looked for posix_spawn already; its documented switch
for module in ("fcntl", "resource", "grp", "pwd", "termios", "posix_ipc"):
    sys.modules[module] = None
names = ["preadv", "pwritev", "pread", "pwrite", "sysconf", "fork", "forkpty", "mkfifo", "statvfs", "getuid"]
names += ["sched_getaffinity"]
names += [name for name in dir(os) if name.startswith(("posix_", "RWF_", "POSIX_FADV_"))]
names += ["O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY", "O_PATH"]
for name in names:
    if hasattr(os, name):
        delattr(os, name)
for name in [name for name in dir(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)
"""

TRAIN = """
import warnings
from pathlib import Path
import numpy as np
warnings.filterwarnings("ignore", message=".*soft.*")
import midam
from midam.cli import main

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    arrays = [rng.normal(label, 1, (5, 3)).astype("f4") for label in [0, 1] * 12]
    bags = midam.Bags.from_list(arrays, [0, 1] * 12)
    store = midam.write_store(bags, "store", jobs=2)
    for reads in ("mmap", "pread"):
        found = midam.open_store(store, reads=reads)
        assert all((found[i] == bags[i]).all() for i in range(len(bags)))
        order = rng.integers(0, 120, 40)
        assert (found.gather(order) == bags.gather(order)).all()
    assert midam.verify_store(store) == []
    (Path("empty")).mkdir()
    midam.write_store(bags, "empty")
    few = ["--epochs", "1", "--members", "1", "--no-baseline", "--test-fraction", "0.2"]
    code = main(["fit", "store", *few, "--out", "run"])
    assert code == 0, code
    assert main(["predict", "run", "store", "--out", "scores.csv"]) == 0
    print("trained")
"""

LAZY = """
import sys, types
package = types.ModuleType("midam")  # what the package itself imports is another matter
package.__path__ = [SRC + "/midam"]
package.__version__ = "0"
sys.modules["midam"] = package
import midam.data
assert "torch" not in sys.modules and "numpy" not in sys.modules
for name in midam.data.__all__:
    getattr(midam.data, name)
from midam.data.sources.file_names import file_readers
from midam.data.sources import bag_readers
list(bag_readers()), file_readers()
heavy = ["pandas", "sklearn", "scipy", "matplotlib", "h5py", "zarr", "PIL", "pydicom", "nibabel", "openslide"]
heavy += ["tifffile", "lightning", "rich", "pyarrow"]
print([name for name in heavy if name in sys.modules])
"""


def run(script, folder):
    path = folder / "script.py"
    path.write_text(script)
    return subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_store_is_written_read_and_trained_on_without_what_one_system_alone_has(tmp_path):
    done = run(BARE + TRAIN, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"store", "empty", "run", "scores.csv"}
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.long  # `test_public_api.py` looks at a prediction and an estimator
def test_midam_data_loads_no_package_before_it_is_used(tmp_path):
    done = run(LAZY.replace("SRC", repr(str(SRC))), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
