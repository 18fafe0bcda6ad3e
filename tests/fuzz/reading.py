"""What a child process does with an input, and what came of it."""

import contextlib
import hashlib
import importlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from midam import registry
from midam.cli.app import main, parse
from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.sources.request import ImageOptions
from midam.data.store import open_store, verify_store
from midam.errors import MidamError
from midam.imaging import load_network
from midam.methods.auto.candidates import Candidate, make_candidate
from midam.methods.auto.search import search
from midam.nn.encoders.custom import load_weights
from midam.nn.encoders.mlp import MLP
from midam.settings import Settings
from midam.sklearn import MIDAMClassifier

CANARY = "CANARY"  # a file of this name, beside the input, is made by code that ought not to run
SECRET = 7777.25  # a number of a file that no input may read
_CHANGES = {"os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.symlink": 1, "os.link": 1, "os.chmod": 0}
_KNOWN = set[str]()  # top names of modules that are installed, or there when the first input comes
_READERS = (
    *("h5py", "zarr", "numcodecs", "nibabel", "pydicom", "tifffile", "openslide", "PIL.Image", "pyarrow.parquet"),
    *("pandas", "midam.cli.fit"),
    *("midam.data.sources.folder", "midam.data.sources.inputs", "midam.data.sources.formats.datasets"),
)
_COMMANDS = (
    *("sklearn.linear_model", "transformers", "onnxruntime", "midam.runs.fit", "midam.runs.apply", "midam.runs.report"),
    *("midam.cli.predict", "midam.cli.compare", "midam.cli.explain", "midam.cli.data", "midam.cli.report"),
    *("midam.cli.export", "midam.cli.evaluate", "midam.explain.run", "midam.compare.report", "midam.export.run"),
)


def warm(*, commands: bool) -> None:
    """Import what reading needs, and what commands need, once for all children."""
    for name in (*_READERS, *(_COMMANDS if commands else ())):
        importlib.import_module(name)
    torch.set_num_threads(1)
    Image.init()  # its plugins look for packages that few have
    loaded = {name.partition(".")[0] for name in sys.modules}
    _KNOWN.update(packages_distributions(), sys.stdlib_module_names, sys.builtin_module_names, loaded)


def attempt(folder: Path, how: dict[str, Any]) -> dict[str, Any]:
    """Read an input; returns its content as a digest, or how it was refused."""
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    task, seen = dict(how), _watch(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = {"end": "accepted", "content": _TASKS[task.pop("do")](**task)}
        except (MidamError, OSError) as error:
            found = {"end": "refused" if isinstance(error, MidamError) or error.filename else "traceback"}
            found |= {"text": str(error)} | ({} if found["end"] == "refused" else {"trace": traceback.format_exc()})
        except _CommandError as error:
            found = {"end": "refused", "text": str(error)}
        except SecretError as error:
            found = {"end": "foreign", "text": str(error)}
        except BaseException:
            found = {"end": "traceback", "trace": traceback.format_exc()}
    return found | {"warnings": [str(warning.message) for warning in caught], **seen}


def _asked_by_registry() -> bool:
    """Whether midam's registry, which imports by name, is among the callers."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == registry.__file__:
            return True
    return False


def _watch(folder: Path) -> dict[str, list[str]]:
    """What is written outside the folder from now on, and which modules are asked for that nobody has installed."""
    seen: dict[str, list[str]] = {"outside": [], "imports": []}
    inside = (str(folder.resolve()), "/dev/", "/proc/", "/tmp/torchinductor")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Libraries look for packages that few have; what counts is a module that a file names.
        if event == "import" and arguments[0].partition(".")[0] not in _KNOWN and _asked_by_registry():
            seen["imports"].append(arguments[0])
        flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
        if event in _CHANGES or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            path = arguments[_CHANGES.get(event, 0)]
            if isinstance(path, str) and not os.path.realpath(path).startswith(inside):
                seen["outside"].append(f"{event} {path}")

    sys.addaudithook(hook)
    return seen


class SecretError(Exception):
    """The numbers of another file were read."""


class _CommandError(Exception):
    """A command ended with exit code 2, and said why."""


def _bags(path: str, **how: Any) -> str:
    images = ImageOptions(**how.pop("images", {}))
    return _digest(read_bags(path, images=images, **how))


def _store() -> str:
    bags = open_store("store")
    damaged = verify_store("store")
    if damaged:
        raise _CommandError(f"damaged: {damaged[0][0]} (in store/{damaged[0][1]})")
    return _digest(bags)


def _digest(bags: Bags) -> str:
    """SHA-256 of all that bags hold."""
    digest = hashlib.sha256()
    facts = [bags.ids, bags.sizes, bags.labels, bags.groups, bags.splits]
    digest.update(json.dumps([None if fact is None else fact.tolist() for fact in facts]).encode())
    digest.update(json.dumps([bags.feature_names, bags.cut, bags.instance_shape, bags.instances.dtype.str]).encode())
    for rows in (bags.instances, bags.coords):
        if rows is None:
            continue
        for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
            part = np.ascontiguousarray(rows[start : start + size])
            if (part == SECRET).any():
                raise SecretError(f"{bags.source} holds the numbers of another file")
            digest.update(part.tobytes())
    return digest.hexdigest()


def _command(*words: str, refusals: Sequence[int] = (2,)) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(words)
    if code in refusals:
        raise _CommandError(said.getvalue())
    if code:
        raise RuntimeError(f"exit code {code}: {said.getvalue()}")


def _written(*files: str) -> str:
    """Digest of files that a command wrote, without that of the model, which a page shows."""
    digest, model = hashlib.sha256(), Path("run/model.pt")
    shown = hashlib.sha256(model.read_bytes()).hexdigest().encode() if model.is_file() else b"no model"
    for file in files:
        digest.update(Path(file).read_bytes().replace(shown, b""))
    return digest.hexdigest()


def _predict(out: str = "p.csv") -> str:
    _command("predict", "run", "bags.csv", "--out", out)
    return _written(out)


def _resume() -> str:
    for file in ("predictions.csv", "model.pt"):
        Path("run", file).unlink()
    _command("fit", "--resume", "run")
    weights = torch.load("run/model.pt", weights_only=True)["model"]
    digest = hashlib.sha256(Path("run/predictions.csv").read_bytes())
    for name, tensor in weights.items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def _settings() -> str:
    return json.dumps(parse(["fit", "digits", "--config", "settings.yaml"]).settings().flat())


def _compare(words: list[str]) -> str:
    _command("compare", "bags.csv", *words, "--out", "compare")
    rows = pd.read_csv("compare/trials.csv").drop(columns="seconds")
    return str(rows.sort_values(["method", "repeat", "fold"]).to_csv(index=False))


def _import() -> str:
    _command("data", "import", "bags.csv", "--out", "imported", "--jobs", "1")
    return _written(*sorted(str(file) for file in Path("imported").iterdir()))


def _explain() -> str:
    _command("explain", "run", "bags.csv", "--bags", "b00", "b01", "--top", "2", "--out", "why")
    return _written("why/explain.json", "why/b00.csv", "why/b01.csv")


def _any_command(words: list[str], written: Sequence[str] = ()) -> str:
    """Run a command; returns the digest of what it wrote."""
    _command(*words, refusals=(1, 2) if "verify" in words else (2,))  # 1: damaged bags were found
    return _written(*written)


def _exported() -> str:
    """Score a bag with the reader of an export, which knows nothing of midam."""
    try:
        return repr(runpy.run_path("export/reader.py")["Model"]("export").score(np.ones((4, 4))))
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise _CommandError(f"export: {error!r}") from None


def try_candidates() -> str:
    """Score two cheap methods as `auto` does, from its journal on; returns what is chosen."""
    bags = read_bags("bags.csv")
    small = Settings.from_flat({"epochs": 1, "members": 1}).resolve(bags.instance_shape)
    methods = [make_candidate("bag-statistics-logistic", bags.instance_shape), Candidate("small", config=small)]
    found = search(methods, bags, seed=0, journal=Path("candidates.jsonl"))
    return repr([(row.method, row.auroc, row.weight, row.note) for row in found.tried])


def _saved() -> str:
    """Load a run as an estimator, and score with it."""
    return repr(MIDAMClassifier.load("run").decision_function(read_bags("bags.csv")).tolist())


def _weights(path: str) -> str:
    """Fill an encoder with the weights of a file."""
    module = MLP(5, hidden=[4])
    load_weights(module, path)
    return repr([tensor.tolist() for tensor in module.state_dict().values()])


def _network(name: str) -> str:
    """Load a network for embedding; returns its weights' digest and what it makes of an image."""
    network = load_network(name)
    maps = network.maps(torch.linspace(0, 1, 3 * 32 * 32).reshape(1, 3, 32, 32))
    return network.weights + hashlib.sha256(maps.detach().numpy().tobytes()).hexdigest()


_TASKS: dict[str, Callable[..., str]] = {
    "bags": _bags,
    "store": _store,
    "predict": _predict,
    "resume": _resume,
    "settings": _settings,
    "compare": _compare,
    "import": _import,
    "explain": _explain,
    "command": _any_command,
    "exported": _exported,
    "candidates": try_candidates,
    "saved": _saved,
    "weights": _weights,
    "network": _network,
}
