"""Code that a run names: nothing of others runs before it is trusted, and what is no network never does."""

import json
import os
import shutil
import sys

import pytest
import torch
import yaml
from tests.integration.commands import fitted

from midam.cli import main
from midam.errors import CheckpointError, ConfigError, UntrustedError
from midam.runs import load_run
from midam.runs.fit import resume_run
from midam.runs.folder import RunFolder
from midam.runs.trust import check_code

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


@pytest.mark.parametrize(
    "named", [{"encoder": "strange_net.Net"}, {"pooling": "strange_net.Net"}, {"augment": ["strange_net.Net"]}]
)
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
    check_code({"logger": "midam.runs.loggers.WandbLogger"}, here / "c.yaml")
    with pytest.raises(ConfigError, match=r"torch\.nn\.Module as encoder, got 'torch\.hub\.load'"):
        check_code({"encoder": "torch.hub.load"}, here / "c.yaml")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(here, number):
    content = torch.load("run/model.pt", weights_only=True)
    name = next(name for name, value in content["model"].items() if value.is_floating_point() and value.numel())
    content["model"][name].view(-1)[0] = number
    torch.save(content, "run/model.pt")
    with pytest.raises(CheckpointError, match=rf"model\.{name}.*NaN or infinity.*run/model\.pt"):
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
