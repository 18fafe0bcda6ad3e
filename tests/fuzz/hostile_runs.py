"""Runs, stores and settings made by hand: right sums over wrong types and values, and code to be run."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import torch
import yaml
from safetensors.torch import load_file, save_file
from tests.fuzz.mutate import ANY, REFUSE
from tests.fuzz.reading import CANARY

from midam.data.store import format as store_format

Craft = Callable[[Path, Random], str]

_STRANGE: tuple[Any, ...] = (
    *(None, 0, -1, 1, 2**70, 1.5, math.nan, math.inf, "", "x", "nan", True, [], [[]], {}, {"a": 1}, [1, "a"], [None]),
    *(torch.zeros(0), torch.tensor(math.nan), torch.zeros(3, 3), "../../x", [2**63], {"": {}}),
)


def _paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Places of all values in a tree of dictionaries and lists."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree[:3]) if isinstance(tree, list) else ()
    return [found for key, value in inner for found in ((*at, key), *_paths(value, (*at, key)))]


def _put(tree: Any, at: tuple[Any, ...], change: Callable[[Any, Any], None]) -> None:
    for key in at[:-1]:
        tree = tree[key]
    change(tree, at[-1])


def _strange_tree(tree: Any, rng: Random, *, plain: bool) -> Any:
    """A tree of which one value is another, missing, or beside a stranger."""
    known = _paths(tree)
    shallow = [at for at in known if len(at) <= 2]
    at = rng.choice(shallow if rng.random() < 0.6 else known)
    values = [value for value in _STRANGE if not (plain and isinstance(value, torch.Tensor))]
    way = rng.random()
    if way < 0.75:
        _put(tree, at, lambda held, key: held.__setitem__(key, rng.choice(values)))
    elif way < 0.9:
        _put(tree, at, lambda held, key: held.__delitem__(key))
    else:
        _put(tree, at, lambda held, key: held.update({"stranger": 1}) if isinstance(held, dict) else held.append(0))
    return tree


def _model(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "run/model.pt"
    return path, torch.load(path, weights_only=True)


def run_types(folder: Path, rng: Random) -> str:
    """A model file of the right form, in which a value has the wrong type."""
    path, content = _model(folder)
    torch.save(_strange_tree(content, rng, plain=False), path)
    return ANY


def run_not_finite(folder: Path, rng: Random) -> str:
    path, content = _model(folder)
    weights = content["model"]
    name = rng.choice([key for key, value in weights.items() if value.is_floating_point() and value.numel()])
    weights[name].view(-1)[rng.randrange(weights[name].numel())] = rng.choice([math.nan, math.inf])
    torch.save(content, path)
    return REFUSE


def run_code(folder: Path, rng: Random) -> str:
    """A run that names a function of anybody's where a network is expected."""
    path, content = _model(folder)
    canary = str(folder / CANARY)
    ways: list[dict[str, Any]] = [
        {"encoder": "os.system", "encoder_args": {"command": f"touch {canary}"}},
        {"encoder": "subprocess.run", "encoder_args": {"args": ["touch", canary]}},
        {"encoder": "builtins.open", "encoder_args": {"file": canary, "mode": "w"}},
        {"encoder": "os.mkdir", "encoder_args": {"path": canary}},
        {"encoder": "pathlib.Path", "encoder_args": {}},
        {"encoder": "torch.save", "encoder_args": {"obj": 1, "f": canary}},
        {"encoder": "torch.hub.load", "encoder_args": {"repo_or_dir": str(folder), "model": "x", "source": "local"}},
        {"encoder": "midam.files.write_text", "encoder_args": {"path": canary, "text": "x"}},
        {"encoder": "evil.Net", "encoder_args": {}},
        {"pooling": "os.system", "pooling_args": {"command": f"touch {canary}"}},
        {"objective": "evil.Net"},
        {"estimator": "evil.Net"},
        {"reader": "evil.Net"},
    ]
    (folder / "evil.py").write_text(f"open({canary!r}, 'w').close()\nclass Net: pass\n")
    content["config"] |= rng.choice(ways)
    torch.save(content, path)
    return REFUSE


def checkpoint_types(folder: Path, rng: Random) -> str:
    path = rng.choice(sorted((folder / "run/checkpoints").glob("*.pt")))
    torch.save(_strange_tree(torch.load(path, weights_only=True), rng, plain=False), path)
    return ANY


def checkpoint_code(folder: Path, rng: Random) -> str:
    """A run to be continued whose settings, in both places, run code."""
    path, canary = folder / "run/checkpoints/last.pt", str(folder / CANARY)
    changes: dict[str, Any] = {"encoder": "os.system", "encoder_args": {"command": f"touch {canary}"}}
    way = rng.random()
    if way < 0.3:
        changes = {"logger": "torch.save", "logger_args": {"obj": 1, "f": canary}}
    elif way < 0.7:
        changes = {rng.choice(["pooling", "objective", "estimator"]): "evil.Net"}
        (folder / "evil.py").write_text(f"open({canary!r}, 'w').close()\nclass Net: pass\n")
    content = torch.load(path, weights_only=True)
    content["config"] |= changes
    torch.save(content, path)
    settings = folder / "run/config.yaml"
    settings.write_text(yaml.safe_dump(yaml.safe_load(settings.read_text()) | changes))
    return REFUSE


def store_types(folder: Path, rng: Random) -> str:
    """A store whose description has the right sum and the wrong values."""
    path = folder / "store/store.json"
    content = json.loads(path.read_text())
    content.pop("checksum")
    content = _strange_tree(content, rng, plain=True)
    try:
        text = json.dumps(content, sort_keys=True)
    except ValueError:
        return ANY
    content["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content))
    return ANY


def store_table(folder: Path, rng: Random) -> str:
    """A bag table of the right sum in which a column has the wrong type, length or values."""
    table, path = folder / "store/bags.csv", folder / "store/store.json"
    frame = pd.read_csv(table, dtype=object, keep_default_na=False)
    name = rng.choice(sorted(frame))
    strange = ["", "-1", "2.5", "nan", "a b", str(2**62), "[1]", "\0", frame[name].iloc[0]]
    if rng.random() < 0.2:
        frame = frame.iloc[:1] if rng.random() < 0.5 else frame.drop(columns=name)
    elif rng.random() < 0.9:
        frame.loc[rng.randrange(len(frame)), name] = rng.choice(strange)
    else:
        frame["stranger"] = rng.choice(strange)
    frame.to_csv(table, index=False)
    content = json.loads(path.read_text())
    content.pop("checksum")
    content["table"] = hashlib.sha256(table.read_bytes()).hexdigest()
    content["checksum"] = store_format._checksum(content)
    path.write_text(json.dumps(content))
    return ANY


def settings_text(folder: Path, rng: Random) -> str:
    """YAML that runs code, or that no reader should choke on."""
    canary = str(folder / CANARY)
    texts = [
        f'!!python/object/apply:os.system ["touch {canary}"]\n',
        f'epochs: !!python/object/new:os.system ["touch {canary}"]\n',
        "lr: 2024-02-03\n",
        "2024-02-03: 1\n",
        "seed: 2024-02-03 12:00:00\n",
        "encoder_args: {when: 2024-02-03, what: !!binary aGVsbG8=}\n",
        "encoder_args: " + "[" * 3000 + "]" * 3000 + "\n",
        "encoder_args: " + "{a: " * 2000 + "1" + "}" * 2000 + "\n",
        "- " * 5000 + "\n",
        "hidden: &a [*a]\n",
        "encoder_args: &a {b: *a}\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\nhidden: [*d, *d]\n",
        "? [epochs]\n: 3\n",
        "epochs: 1_0\nlr: 1:30\n",
        "epochs: " + "9" * 5000 + "\n",
        "lr: .nan\n",
        "!!set {epochs, lr}\n",
        "encoder_args: !!set {a}\n",
        "hidden: !!omap [a: 1]\n",
        "epochs: 3\nepochs: 5\n",
        "%YAML 9.9\n---\nepochs: 3\n",
        "--- 1\n--- 2\n",
        "<<: 3\n",
        "<<: [{epochs: 3}, 4]\n",
        "true: 3\n",
        "null: 3\n",
        "ignore: [2024-02-03, 1, no]\n",
        "epochs: 3\n\0",
        "lr: 1e400\n",
        "data: [1, 2]\n",
        "data: {a: 1}\n",
        "=: 3\n",
        "epochs: =\n",
    ]
    (folder / "settings.yaml").write_text(rng.choice(texts))
    return ANY


def run_settings_text(folder: Path, rng: Random) -> str:
    settings_text(folder, rng)
    (folder / "settings.yaml").rename(folder / "run/config.yaml")
    return ANY


def journal_rows(folder: Path, rng: Random) -> str:
    """Lines of a journal that are JSON, and no rows of it."""
    path = rng.choice(
        sorted(path for path in folder.rglob("*") if path.suffix in (".jsonl", ".part", ".journal") and path.is_file())
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    at = rng.randrange(len(lines))
    values = [value for value in _STRANGE if not isinstance(value, torch.Tensor)]
    if rng.random() < 0.3 or not isinstance(lines[at], dict | list) or not lines[at]:
        lines[at] = rng.choice(values)
    else:
        held = lines[at]
        known = _paths(held)
        _put(held, rng.choice(known), lambda tree, key: tree.__setitem__(key, rng.choice(values)))
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return ANY


def _json_values(folder: Path, rng: Random) -> str:
    """A value of another type in a JSON file that midam wrote."""
    path = rng.choice(sorted(folder.glob("run/summary.json")) + sorted(folder.glob("run/explain/explain.json")))
    path.write_text(json.dumps(_strange_tree(json.loads(path.read_text()), rng, plain=True)))
    return ANY


def _record_values(folder: Path, rng: Random) -> str:
    path = rng.choice(sorted(folder.glob("*/config.yaml")))
    path.write_text(yaml.safe_dump(_strange_tree(yaml.safe_load(path.read_text()), rng, plain=True)))
    return ANY


def _network_values(folder: Path, rng: Random) -> str:
    """A value of another type in the settings of a model or of its processor, or no such file."""
    path = folder / "eyes" / rng.choice(["config.json", "preprocessor_config.json"])
    if rng.random() < 0.1:
        path.unlink()
    else:
        path.write_text(json.dumps(_strange_tree(json.loads(path.read_text()), rng, plain=True)))
    return ANY


def _network_weights(folder: Path, rng: Random) -> str:
    """Weights that are missing, or have another shape."""
    path = folder / "eyes/model.safetensors"
    weights = load_file(path)
    name = rng.choice(sorted(weights))
    weights[name] = weights[name][..., :1].contiguous()
    if rng.random() < 0.5:
        del weights[name]
    save_file(weights, path, metadata={"format": "pt"})
    return ANY if "pooler" in name else REFUSE


HOSTILE_RUNS: dict[str, tuple[Craft, ...]] = {
    "transformers": (_network_values, _network_weights),
    "store": (store_types, store_table),
    "run": (run_types, run_types, run_code, run_not_finite),
    "checkpoint": (checkpoint_types, checkpoint_types, checkpoint_code),
    "run settings": (run_settings_text,),
    "settings": (settings_text,),
    "trials": (journal_rows,),
    "scores": (journal_rows,),
    "import": (journal_rows,),
    "explanations": (journal_rows,),
    "auto": (journal_rows,),
    "saved": (run_types, run_code),
    "finished": (_json_values, _record_values),
    "report": (_json_values, _json_values, _record_values),
    **{f"report {name}": (_json_values,) for name in ("multiclass", "ordinal", "continuous", "survival")},
    "report data": (_json_values, run_types),
    "report compare": (_record_values,),
    "export": (_json_values, run_types),
}
