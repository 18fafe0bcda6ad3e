"""A file never names code: runs, settings files and checkpoints name what the user has imported as a plug-in."""

import ast
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tests.integration.commands import fitted
from tests.pairs import each

import midam
from midam.cli import main
from midam.errors import CheckpointError, ConfigError, MidamError
from midam.registry import ENCODERS, NAMED
from midam.runs import load_run
from midam.runs.fit import resume_run
from midam.runs.folder import RunFolder
from midam.settings.settings import describe_settings

NET = """
from pathlib import Path
Path({made!r}).touch()
from torch import nn
from midam.registry import ENCODERS
class Net(nn.Linear):
    def __init__(self, width=3):
        super().__init__(4, width)
ENCODERS.add("strange", Net)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("finished"), "--epochs", "1", "--members", "1")


@pytest.fixture
def here(tmp_path, monkeypatch, finished):
    """A folder with a run, and a plug-in on the path that tells of its import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.delenv("MIDAM_PLUGINS", raising=False)
    shutil.copytree(finished[1], tmp_path / "run")
    shutil.copy(finished[0], tmp_path / "t.csv")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/strange_net.py").write_text(NET.format(made=str(tmp_path / "made")))
    yield tmp_path
    forget(tmp_path)


def forget(here):
    """Be as a process that has not imported the plug-in."""
    sys.modules.pop("strange_net", None)
    (here / "made").unlink(missing_ok=True)
    if "strange" in ENCODERS.names():
        ENCODERS.remove("strange")


EVIL = "strange_net.Net"
SETTINGS = [(name, EVIL) for name in NAMED if name != "encoder_args"]
SETTINGS += [("method", f"bce+vrsp+{EVIL}"), ("method", f"midam.x+vrsp+{EVIL}"), ("encoder", "strange_net.deep.Net")]
SETTINGS += [
    ("pooling", {"a.b": EVIL}),
    ("pooling", "midam.nn.pooling.strange_net.Net"),
    ("encoder", "torch.nn.Linear"),
]
SETTINGS += [
    ("encoder", "torch.nn.Linear"),
    ("encoder", "os.system"),
    ("plugins", {"attention": "strange_net"}),
    ("plugins", ["strange_net"]),
]
USES = {
    "predict": ["predict", "run", "t.csv", "--out", "p.csv"],
    "evaluate": ["evaluate", "run", "t.csv", "--out", "e.json"],
    "explain": ["explain", "run", "t.csv", "--out", "explained"],
    "report": ["report", "run", "t.csv", "--out", "r.html"],
    "page": ["report", "run", "--out", "r.html"],
    "export": ["export", "run", "--format", "safetensors", "--out", "exported"],
    "resume": ["fit", "--resume", "run"],
}


def named_in(here, file, named):
    """Name something in a file of the run, or in a settings file."""
    path = here / {"model.pt": "run/model.pt", "last.pt": "run/checkpoints/last.pt", "--config": "c.yaml"}.get(
        file, f"run/{file}"
    )
    if file == "--config":
        path.write_text(yaml.safe_dump({"epochs": 1, "members": 1, **named}))
    elif file == "config.yaml":
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | named))
    else:
        content = torch.load(path, weights_only=True)
        content |= named if {*named} & {"method", "plugins"} else {"config": content["config"] | named}
        torch.save(content, path)


READS = {
    "model.pt": USES["predict"],
    "last.pt": USES["predict"],
    "config.yaml": USES["page"],
    "--config": ["fit", "t.csv", "--config", "c.yaml", "--out", "new"],
}


@pytest.mark.parametrize(("named", "file"), each(SETTINGS, READS), ids=str)
def test_what_a_file_names_is_not_imported(here, file, named, capsys):
    setting, value = named
    named_in(here, file, {setting: value})
    if file == "last.pt":  # of a run that did not finish
        (here / "run/model.pt").unlink()
        (here / "run/summary.json").unlink()
    code = main(READS[file])
    assert not (here / "made").exists()
    assert "strange_net" not in sys.modules
    if (setting, file) != ("method", "config.yaml"):  # the page shows the name of a method as text
        assert code == (0 if setting == "plugins" and isinstance(value, dict) else 2)
    assert code == 0 or "Expected" in capsys.readouterr().err


def test_no_command_imports_what_a_run_names(here, capsys):
    for file in ("model.pt", "last.pt", "config.yaml"):
        named_in(here, file, {"encoder": EVIL})
    for name, words in USES.items():
        assert main(words) == 2, name
        said = " ".join(capsys.readouterr().err.split())
        assert f"Expected a known encoder, got '{EVIL}' (in run/" in said
        assert not (here / "made").exists()


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_plug_in_that_is_named_works_everywhere(here, way, monkeypatch, capsys):
    pytest.importorskip("safetensors")
    if way == "environment":
        monkeypatch.setenv("MIDAM_PLUGINS", " strange_net ,")
    named = ["--plugin", "strange_net"] if way == "option" else []
    few = ["--encoder", "strange", "--encoder-args", '{"width": 3}', "--epochs", "1", "--members", "1"]
    shutil.rmtree("run")
    assert main(["fit", "t.csv", *few, "--out", "run", *named]) == 0
    entry = {"strange": "strange_net"}
    assert yaml.safe_load((here / "run/config.yaml").read_text())["plugins"] == entry
    for file in ("model.pt", "checkpoints/last.pt"):
        assert torch.load(here / "run" / file, weights_only=True)["plugins"] == entry
    uses = USES if way == "option" else {"predict": USES["predict"]}
    uses = {**uses, "config": ["fit", "t.csv", "--config", "run/config.yaml", "--out", "again"]}
    monkeypatch.delenv("MIDAM_PLUGINS", raising=False)
    capsys.readouterr()
    for name, words in uses.items():
        forget(here)
        assert main(words) == 2, name
        said = " ".join(capsys.readouterr().err.split())
        assert "'strange' (in run/" in said
        assert "which the plug-in strange_net adds; pass --plugin strange_net" in said
        assert not (here / "made").exists()
    if way == "environment":
        monkeypatch.setenv("MIDAM_PLUGINS", "strange_net")
    compare = ["compare", "t.csv", "--methods", "midam-att,midam-mean", "--cv", "1x2", "--lrs", "0.1", "--margins", "1"]
    if way == "option":
        uses["compare"] = [*compare, "--jobs", "1", *few[:-2], "--out", "compared"]
    for name, words in uses.items():
        forget(here)
        assert main([*words, *named]) == 0, (name, capsys.readouterr().err)
        assert (here / "made").exists()


def test_whatever_a_setting_names_is_checked():
    assert {setting.name for setting in describe_settings() if setting.known} - {"target"} <= {*NAMED}


@pytest.mark.parametrize(
    ("logger", "arguments"),
    [
        ("tensorboard", {"root_dir": "elsewhere"}),
        ("tensorboard", {"version": "../../x"}),
    ],
    ids=str,
)
def test_where_a_logger_of_a_file_writes_is_given_again(here, logger, arguments, capsys):
    settings = {"epochs": 1, "logger": logger, "logger_args": arguments}
    (here / "c.yaml").write_text(yaml.safe_dump(settings))
    config = yaml.safe_load((here / "run/config.yaml").read_text())
    (here / "run/config.yaml").write_text(yaml.safe_dump(config | settings))
    for command in (["t.csv", "--config", "c.yaml", "--out", "new"], ["--resume", "run"]):
        assert main(["fit", *command]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "Expected --logger-args of a file to be given again" in said
        assert f"give --logger-args '{json.dumps(arguments)}'" in said
    with pytest.raises(ConfigError, match="of a file to be given again"):
        resume_run(None, RunFolder(here / "run"))
    assert main(["fit", "--resume", "run", "--logger-args", json.dumps({**arguments, "name": "x"})]) == 2
    assert "to be given again" in " ".join(capsys.readouterr().err.split())
    main(["fit", "--resume", "run", "--logger-args", json.dumps(arguments)])
    assert "to be given again" not in " ".join(capsys.readouterr().err.split())
    assert not (here / "elsewhere").exists() or logger == "tensorboard"


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


# Where src imports a module by its name. What is added here must not come from a file.
IMPORTS = {
    "load_plugins": {"cli/app.py", "compare/workers.py"},
    "import_module": {
        *("cli/app.py", "compare/workers.py", "errors.py"),
        *("export/programs.py", "lazy_imports.py", "registry.py"),
    },
    "find_spec": {"imaging/pixels.py"},
}


def test_no_text_of_a_file_can_reach_an_import():
    """These places alone import a module by its name."""
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
