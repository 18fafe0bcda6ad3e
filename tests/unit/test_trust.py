"""Code that a run names: nothing of others runs before it is trusted, and what is no network never does."""

import ast
import json
import os
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from tests.integration.commands import fitted

import midam
from midam.cli import main
from midam.cli.fit import take_defaults
from midam.errors import CheckpointError, ConfigError, MidamError, UntrustedError
from midam.runs import load_run
from midam.runs.fit import resume_run
from midam.runs.folder import RunFolder, read_run_config
from midam.runs.trust import NAMED, check_code, code_digest, remember
from midam.settings.settings import describe_settings

NET = """
from pathlib import Path
Path({made!r}).touch()
from torch import nn
class Net(nn.Linear):
    def __init__(self, width):
        super().__init__(4, width)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("finished"), "--epochs", "1", "--members", "1")


@pytest.fixture
def here(tmp_path, monkeypatch, finished):
    """A folder with a run, a place for what is trusted, and a package on the path that tells of its import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    shutil.copytree(finished[1], tmp_path / "run")
    shutil.copy(finished[0], tmp_path / "t.csv")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/strange_net.py").write_text(NET.format(made=str(tmp_path / "made")))
    yield tmp_path
    sys.modules.pop("strange_net", None)


def changed(path, **changes):
    content = torch.load(path, weights_only=True)
    content["config"] |= changes
    torch.save(content, path)


CALLS = {
    "os.system": {"command": "touch made"},
    "subprocess.run": {"args": ["touch", "made"]},
    "builtins.open": {"file": "made", "mode": "w"},
    "torch.save": {"obj": 1, "f": "made"},
    "midam.files.write_text": {"path": "made", "text": ""},
}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_network_is_never_called(here, name, trust, capsys):
    changed(here / "run/model.pt", encoder=name, encoder_args=CALLS[name])
    with pytest.raises((UntrustedError, ConfigError), match=r"run/model\.pt"):
        load_run("run", trust=trust)
    assert main(["predict", "run", "t.csv", "--out", "p.csv", *(["--trust"] if trust else [])]) == 2
    assert "run/model.pt" in capsys.readouterr().err
    assert not (here / "made").exists()
    assert not (here / "p.csv").exists()


@pytest.mark.parametrize("words", [[], ["--trust"]], ids=" ".join)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_logger_is_never_called(here, name, words, capsys):
    settings = yaml.safe_load((here / "run/config.yaml").read_text())
    settings |= {"logger": name, "logger_args": CALLS[name]}
    (here / "run/config.yaml").write_text(yaml.safe_dump(settings))
    (here / "c.yaml").write_text(yaml.safe_dump({"epochs": 1, "logger": name, "logger_args": CALLS[name]}))
    for command in (["t.csv", "--config", "c.yaml", "--out", "new"], ["--resume", "run"]):
        assert main(["fit", *command, *words]) == 2
        assert f"{name!r} (in " in capsys.readouterr().err
    assert not (here / "made").exists()
    assert not (here / "new").exists()


@pytest.mark.parametrize("named", [{"encoder": "strange_net.Net"}, {"pooling": "strange_net.Net"}])
def test_code_of_others_is_not_even_imported(here, named):
    changed(here / "run/model.pt", **named)
    with pytest.raises(UntrustedError, match=r"'strange_net\.Net' .*model\.pt.*give `trust`"):
        load_run("run")
    settings = yaml.safe_load((here / "run/config.yaml").read_text()) | named
    (here / "run/config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(UntrustedError, match=r"config\.yaml"):
        resume_run(None, RunFolder(here / "run"))
    assert main(["fit", "t.csv", "--config", "run/config.yaml", "--out", "new"]) == 2
    assert not (here / "made").exists()


def own_run(here):
    words = ["--encoder", "strange_net.Net", "--encoder-args", '{"width": 3}', "--epochs", "1", "--members", "1"]
    assert main(["fit", "t.csv", *words, "--out", "own"]) == 0
    (here / "made").unlink()
    del sys.modules["strange_net"]


def test_who_trains_with_code_of_others_has_trusted_it(here):
    own_run(here)
    assert main(["predict", "own", "t.csv", "--out", "p.csv"]) == 0
    assert (here / "made").exists()


def test_trust_is_given_once_for_the_same_code_and_arguments(here, capsys):
    own_run(here)
    shutil.rmtree(here / "config")  # as if the run came from somebody else
    assert main(["predict", "own", "t.csv", "--out", "p.csv"]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not (here / "made").exists()
    assert main(["predict", "own", "t.csv", "--out", "p.csv", "--trust"]) == 0
    assert list(json.loads((here / "config/midam/trusted.json").read_text()).values()) == ["strange_net.Net"]
    assert main(["evaluate", "own", "t.csv"]) == 0
    load_run("own")
    changed(here / "own/model.pt", encoder_args={"width": 4})
    with pytest.raises(UntrustedError):
        load_run("own")


@pytest.mark.slow
def test_a_terminal_is_asked(here):
    own_run(here)
    shutil.rmtree(here / "config")
    code = "import sys; from midam.cli import main; words = ['predict', 'own', 't.csv', '--out', 'p.csv']; "
    code += "sys.exit(main(words) * 10 + main(words))"
    ours, theirs = os.openpty()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs, number) for number in (0, 1, 2)],
    )
    os.write(ours, b"n\ny\n")  # refused, then granted
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 20, os.read(ours, 5000).decode()
    os.close(ours)
    os.close(theirs)
    assert (here / "p.csv").exists()


def test_an_export_runs_code_of_others_once_it_is_trusted(here, capsys):
    pytest.importorskip("safetensors")
    own_run(here)
    shutil.rmtree(here / "config")
    export = ["export", "own", "--format", "safetensors", "--out", "model"]
    assert main(export) == 2
    assert "--trust" in capsys.readouterr().err
    assert not (here / "made").exists()
    assert main([*export, "--trust"]) == 0
    assert (here / "model/model.safetensors").exists()


def test_networks_of_torch_need_no_trust(here):
    check_code({"encoder": "torch.nn.Linear", "pooling": "attention"}, here / "c.yaml")
    check_code({"logger": "midam.runs.loggers.tensorboard"}, here / "c.yaml")
    for path in ("torch.hub.load", "midam.cli.__main__.main", "midam.files.write_text"):
        with pytest.raises(UntrustedError, match=path):
            check_code({"encoder": path}, here / "c.yaml")
        with pytest.raises(ConfigError, match=rf"torch\.nn\.Module as encoder, got '{path}'"):
            check_code({"encoder": path}, here / "c.yaml", trust=True)


def test_whatever_a_setting_names_is_checked():
    assert set(NAMED) == {setting.name for setting in describe_settings() if setting.paths} | {"method"}


EVIL = "strange_net.Net"
SETTINGS = [(name, EVIL) for name in NAMED]
SETTINGS += [("method", f"bce+vrsp+{EVIL}"), ("method", f"midam.x+vrsp+{EVIL}"), ("encoder", "strange_net.deep.Net")]
SETTINGS += [("pooling", {"a.b": EVIL}), ("pooling", "midam.nn.pooling.strange_net.Net")]


@pytest.mark.parametrize(("setting", "value"), SETTINGS, ids=str)
@pytest.mark.parametrize("file", ["model.pt", "last.pt", "config.yaml", "--config"])
def test_a_class_path_of_any_file_is_not_imported(here, file, setting, value):
    run, named = here / "run", {setting: value}
    config = yaml.safe_load((run / "config.yaml").read_text())
    if file == "model.pt":
        content = torch.load(run / file, weights_only=True)
        content |= named if setting == "method" else {"config": content["config"] | named}
        torch.save(content, run / file)
        read = partial(load_run, "run")
    elif file == "last.pt":
        changed(run / "checkpoints/last.pt", **named)
        (run / "model.pt").unlink()
        (run / "summary.json").unlink()
        read = partial(load_run, "run")
    elif file == "config.yaml":
        (run / "config.yaml").write_text(yaml.safe_dump(config | named))
        read = partial(read_run_config, RunFolder(run))
    else:
        (here / "c.yaml").write_text(yaml.safe_dump(named))
        read = partial(take_defaults, ["t.csv", "--config", "c.yaml"])
    said = pytest.warns(UserWarning, match="did not finish") if file == "last.pt" else nullcontext()
    with said, pytest.raises(MidamError):
        read()
    assert not (here / "made").exists()
    assert "strange_net" not in sys.modules


@pytest.mark.parametrize("target", [EVIL, "midam.targets.binary.Binary", "os.path", ".", "a.b"])
def test_a_target_is_a_known_name_wherever_it_stands(here, target):
    from midam.compare.report import write_comparison_report
    from midam.data.bags import Bags
    from midam.data.store import open_store, write_store
    from midam.data.target_labels import TargetLabels
    from midam.runs.report import write_run_report
    from midam.targets import target_of

    said = {"target": target, "names": ["a", "b"]}
    content = torch.load("run/model.pt", weights_only=True)
    content["data"]["outcome"] = said
    torch.save(content, "run/model.pt")
    with pytest.raises(MidamError, match="target"):
        load_run("run")
    summary = json.loads((here / "run/summary.json").read_text())
    (here / "run/summary.json").write_text(json.dumps(summary | said))
    with pytest.raises(MidamError):
        write_run_report(here / "run")
    (here / "compared").mkdir()
    for name in ("summary.csv", "predictions.csv", "trials.csv"):
        (here / "compared" / name).write_text("method\n")
    (here / "compared/config.yaml").write_text(yaml.safe_dump(said))
    with pytest.raises(MidamError):
        write_comparison_report(here / "compared")
    bags = Bags.from_list([[[1.0]], [[2.0]]], outcome=TargetLabels.of("multiclass", [0, 1], names=("a", "b")))
    bags = bags.replace(outcome=TargetLabels(target, bags.outcome.values, ("a", "b")))
    with pytest.raises(MidamError, match="target"):
        target_of(open_store(write_store(bags, here / "store")))
    assert main(["fit", "store", "--out", "new"]) == 2
    assert not (here / "made").exists()


@pytest.mark.parametrize(
    ("logger", "arguments"),
    [
        ("tensorboard", {"root_dir": "elsewhere"}),
        ("tensorboard", {"version": "../../x"}),
    ],
    ids=str,
)
def test_where_a_logger_of_a_file_writes_is_trusted_first(here, logger, arguments, capsys):
    settings = {"epochs": 1, "logger": logger, "logger_args": arguments}
    (here / "c.yaml").write_text(yaml.safe_dump(settings))
    config = yaml.safe_load((here / "run/config.yaml").read_text())
    (here / "run/config.yaml").write_text(yaml.safe_dump(config | settings))
    for command in (["t.csv", "--config", "c.yaml", "--out", "new"], ["--resume", "run"]):
        assert main(["fit", *command]) == 2
        assert "no arguments of the logger" in capsys.readouterr().err
    assert not (here / "elsewhere").exists()
    assert check_code(settings, here / "c.yaml", trust=True) == check_code(settings, here / "c.yaml")
    with pytest.raises(UntrustedError):
        check_code(settings | {"logger_args": {**arguments, "name": "x"}}, here / "c.yaml")


PACKAGE = ("__init__.py", "deep/__init__.py", "deep/net.py", "deep/helper.py", "other.py")


@pytest.mark.parametrize("changes", [*PACKAGE, "deep/new.py"])
def test_trust_ends_when_the_code_changes(here, changes):
    package, values = here / "packages/trusted_once", {"encoder": "trusted_once.deep.net.Net"}
    for name in PACKAGE:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("from torch import nn\nclass Net(nn.Linear): pass\n")
    before = code_digest("trusted_once.deep.net")
    assert not [name for name in sys.modules if name.startswith("trusted_once")], "nothing is imported to look"
    remember(values)
    check_code(values, here / "c.yaml")
    (package / "notes.txt").write_text("of no account")
    check_code(values, here / "c.yaml")
    (package / changes).write_text("print('other code')\n")
    assert code_digest("trusted_once.deep.net") != before
    with pytest.raises(UntrustedError, match=r"'trusted_once\.deep\.net\.Net'"):
        check_code(values, here / "c.yaml")
    for name in [name for name in sys.modules if name.startswith("trusted_once")]:
        del sys.modules[name]


def test_code_of_one_file_and_of_folders_without_a_file_of_their_own(here):
    packages = here / "packages"
    (packages / "spread/inner").mkdir(parents=True)
    (packages / "spread/inner/net.py").write_text("1")
    digests = [code_digest(name) for name in ("strange_net", "spread.inner.net", "no_such_module_here")]
    assert len(set(digests)) == 3
    (packages / "spread/beside.py").write_text("2")
    assert code_digest("spread.inner.net") == digests[1]
    (packages / "spread/inner/net.py").write_text("2")
    assert code_digest("spread.inner.net") != digests[1]


def test_a_damaged_list_of_what_is_trusted_is_said(here):
    (here / "config/midam").mkdir(parents=True)
    (here / "config/midam/trusted.json").write_text("[")
    with pytest.warns(UserWarning, match=r"trusted\.json is damaged"), pytest.raises(UntrustedError):
        check_code({"encoder": EVIL}, here / "c.yaml")


# Where src makes a text importable, imports one, or runs one. What is added here must not come from a file.
IMPORTS = {
    "typed": {
        *(
            "cli/compare.py",
            "compare/deploy.py",
            "compare/methods.py",
            "data/sources/__init__.py",
            "embed/others.py",
            "evaluate/metrics.py",
        ),
        *("nn/pooling/__init__.py", "runs/method.py", "settings/group.py"),
    },
    "ClassPath": {"registry.py", "runs/trust.py"},
    "import_path": {"registry.py", "runs/trust.py"},
    "import_module": {
        *(
            "cli/app.py",
            "cli/completion.py",
            "compare/workers.py",
            "errors.py",
        ),
        *("export/onnx.py", "export/run.py", "lazy_imports.py", "registry.py"),
    },
    "find_spec": {"embed/kinds.py", "runs/trust.py"},
}


def test_no_text_of_a_file_can_reach_an_import():
    """Only a `ClassPath` can be imported, as mypy sees; and these places alone make one."""
    src, found = Path(midam.__file__).parent, {}
    for file in src.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            found.setdefault(name, set()).add(str(file.relative_to(src)))
            assert not isinstance(call.func, ast.Name) or name not in ("exec", "eval", "compile", "__import__"), file
    assert {name: found.get(name, set()) for name in IMPORTS} == IMPORTS
    assert not {"exec_module", "load_module", "unsafe_load", "full_load", "runpy"} & set(found)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(here, number):
    content = torch.load("run/model.pt", weights_only=True)
    name = next(name for name, value in content["model"].items() if value.is_floating_point() and value.numel())
    content["model"][name].view(-1)[0] = number
    torch.save(content, "run/model.pt")
    with pytest.raises(CheckpointError, match=rf"NaN or infinity in {name}.*run/model\.pt"):
        load_run("run")


@pytest.mark.parametrize(
    "changes",
    [
        *({"threshold": "x"}, {"calibrator": 3}, {"splits": []}, {"groups": [1]}, {"model": {"a": 1}}, {"data": None}),
        *({"config": {"seed": "x"}}, {"contents": {"a": "new"}}),
    ],
    ids=str,
)
def test_a_model_file_of_the_right_sum_and_the_wrong_types(here, changes):
    content = torch.load("run/model.pt", weights_only=True)
    torch.save(content | changes, "run/model.pt")
    with pytest.raises((CheckpointError, ConfigError), match=r"run/model\.pt|in run"):
        load_run("run")


@pytest.mark.parametrize(
    ("imputed", "sound"),
    [
        ({"how": "mean", "values": [0.0, 1.5, 2, 3.0], "missing": 1}, True),
        *[({"how": "mean", "values": values}, False) for values in (None, [0.0], [[0.0] * 4])],
        *[({"how": "mean", "values": [0.0, value, 0.0, 0.0]}, False) for value in ("1", float("nan"), {}, [])],
        *[(other, False) for other in (3, {}, {"how": "mean"}, {"how": "most", "values": [0.0] * 4})],
    ],
    ids=str,
)
def test_what_fills_missing_values_is_one_number_for_each_feature(here, imputed, sound):
    content = torch.load("run/model.pt", weights_only=True)
    content["data"]["imputed"] = imputed
    torch.save(content, "run/model.pt")
    if sound:
        assert load_run("run").data["imputed"] == imputed
        return
    with pytest.raises(CheckpointError, match=r"data.*run/model\.pt"):
        load_run("run")


@pytest.mark.parametrize(
    "changes",
    [{"epoch": "x"}, {"members": []}, {"history": [3]}, {"bag_ids": None}, {"model": {}}, {"members": [{}, {}]}],
    ids=str,
)
def test_a_checkpoint_of_the_right_sum_and_the_wrong_types(here, changes):
    content = torch.load("run/checkpoints/last.pt", weights_only=True)
    content["trainer"] |= changes
    torch.save(content, "run/checkpoints/last.pt")
    with pytest.raises(CheckpointError, match=r"last\.pt"):
        resume_run(None, RunFolder(here / "run"))
