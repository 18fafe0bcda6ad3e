"""A run that is stopped at any moment and resumed ends with the very bits of one that was not."""

import json
import random
import signal
from pathlib import Path

import pytest
import torch
from tests.integration.commands import Moment, finish, fitted, rows, start, stop, table

from midam.cli import main
from midam.train.checkpoint import load_checkpoint

EPOCHS = dict.fromkeys(("vrsp", "minibatch", "exact", "exact-point"), 6)
FILES = {"config.yaml", "metrics.csv", "checkpoints", "last.pt", "best.pt"}
METHODS = {
    "vrsp": ["--optimizer", "sgd", "--members", "2"],
    "minibatch": [
        "--no-baseline",
        "--estimator",
        "minibatch",
        "--members",
        "2",
        "--dropout",
        "0.2",
        "--select",
        "best",
    ],
    "exact": ["--no-baseline", "--estimator", "exact", "--dropout", "0.3", "--chunk-size", "50", "--members", "2"],
    "exact-point": [
        *("--estimator", "exact-point", "--chunk-size", "50", "--pooling", "smoothed-max", "--members", "1"),
        "--no-baseline",
    ],
}


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory):
    """Uninterrupted runs by method, each made once."""
    made: dict[str, Path] = {}

    def of(method: str) -> Path:
        if method not in made:
            made[method] = tmp_path_factory.mktemp("whole") / "run"
            assert main(fit(method, made[method])) == 0
        return made[method]

    return of


def fit(method: str, run: Path) -> list[str]:
    return ["fit", "digits", "--epochs", str(EPOCHS[method]), *METHODS[method], "--out", str(run)]


def assert_same_run(run: Path, whole: Path) -> None:
    for name in ("predictions.csv", "metrics.csv", "config.yaml"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (run, whole)]
    for summary in summaries:
        assert summary.pop("seconds")["total"] > 0
    assert summaries[0] == summaries[1]
    for name in ("model.pt", "checkpoints/last.pt", "checkpoints/best.pt"):
        mine, other = load_checkpoint(run / name), load_checkpoint(whole / name)
        mine.pop("seconds", None), other.pop("seconds", None)
        assert_identical(mine, other, name)


def assert_identical(mine, other, where: str) -> None:
    assert type(mine) is type(other), where
    if isinstance(mine, torch.Tensor):
        assert (mine.dtype, mine.tolist()) == (other.dtype, other.tolist()), where
    elif isinstance(mine, dict):
        assert mine.keys() == other.keys(), where
        for key in mine:
            assert_identical(mine[key], other[key], f"{where}: {key}")
    elif isinstance(mine, list):
        assert len(mine) == len(other), where
        for i, (a, b) in enumerate(zip(mine, other, strict=True)):
            assert_identical(a, b, f"{where}: {i}")
    else:
        assert mine == other, where


@pytest.mark.slow
@pytest.mark.parametrize("method", [m if m == "vrsp" else pytest.param(m, marks=pytest.mark.long) for m in METHODS])
def test_a_killed_run_resumes_to_the_same_bits(method, whole_runs, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    rng = random.Random(method)
    command = fit(method, run)
    for epochs in sorted(rng.sample(range(1, EPOCHS[method] // 2), 2)):
        moment = Moment(run / "metrics.csv", epochs, delay=rng.uniform(0, 0.1))
        assert stop(start(*command, log=log, wait_at=moment), signal.SIGKILL) == -signal.SIGKILL
        assert epochs <= rows(run / "metrics.csv") < EPOCHS[method]
        assert not (run / "predictions.csv").exists()
        command = ["fit", "digits", "--resume", str(run)]
    assert main(command) == 0
    assert_same_run(run, whole_runs(method))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_run_says_how_to_go_on_and_resumes_to_the_same_bits(number, whole_runs, tmp_path):
    run, log = tmp_path / "a run", tmp_path / "log"
    process = start(*fit("vrsp", run), log=log, wait_at=Moment(run / "metrics.csv", 3, delay=0.05))
    assert stop(process, number) == 130
    assert f"Continue with `midam fit digits --resume '{run}'`" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert {path.name for path in run.rglob("*")} == FILES
    assert main(["fit", "digits", "--resume", str(run)]) == 0
    assert_same_run(run, whole_runs("vrsp"))


@pytest.mark.slow
def test_an_unfinished_run_can_be_applied(tmp_path, capsys):
    run, log = tmp_path / "run", tmp_path / "log"
    process = start(*fit("minibatch", run), log=log, wait_at=Moment(run / "metrics.csv", 2))
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    assert main(["predict", str(run), "digits", "--out", str(tmp_path / "p.csv")]) == 0
    assert "did not finish" in capsys.readouterr().err
    header, first = (tmp_path / "p.csv").read_text().splitlines()[:2]
    assert header == "bag,label,score,probability,class,positive"
    assert first.endswith(",,,1"), "an unfinished run is not calibrated"
    assert main(["evaluate", str(run), "digits", "--out", str(tmp_path / "e.json")]) == 0
    result = json.loads((tmp_path / "e.json").read_text())
    assert set(result) == {"test", "val", "train", "headline", "instances", "notes"}
    assert result["headline"] == "test"


def test_a_finished_run_is_rewritten_the_same(whole_runs):
    whole = whole_runs("minibatch")
    names = ["predictions.csv", "metrics.csv", "config.yaml", "model.pt"]
    before = {name: (whole / name).read_bytes() for name in names}
    summary = json.loads((whole / "summary.json").read_text())
    for name in (*names, "summary.json"):
        if name != "config.yaml":
            (whole / name).unlink()
    assert main(["fit", "--resume", str(whole)]) == 0
    for name in names:
        assert (whole / name).read_bytes() == before[name], name
    again = json.loads((whole / "summary.json").read_text())
    # It is scored anew, and was trained before.
    taken, took = again.pop("seconds"), summary.pop("seconds")
    assert (again, taken["training"]) == (summary, took["training"])


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("table"), "--epochs", "2")


def content(run):
    """Content of each file of a run."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_other_data_are_refused(table_run, tmp_path, capsys):
    data, run = table_run
    before = content(run)
    other = tmp_path / "other.csv"
    lines = data.read_text().splitlines()
    other.write_text("\n".join([*lines[:-1], lines[-1][:-1] + "9"]) + "\n")
    assert main(["fit", str(other), "--resume", str(run)]) == 2
    message = capsys.readouterr().err
    assert str(other) in message
    assert str(data) in message
    assert message.count("\n") == 1
    assert content(run) == before


@pytest.mark.parametrize(
    "settings",
    [
        ["--epochs", "9"],
        ["--lr=0.5"],
        ["--pooling-args", "{p: 3}"],
        ["--hidden", "3"],
        ["--epoch", "9"],
        ["--config", "c.yaml"],
        ["--out", "x"],
    ],
)
def test_settings_are_refused(table_run, settings, capsys):
    data, run = table_run
    assert main(["fit", str(data), "--resume", str(run), *settings]) == 2
    error = capsys.readouterr().err
    assert settings[0].split("=")[0].strip("-") in error


def test_settings_changed_in_the_file_are_refused(table_run, capsys):
    data, run = table_run
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("seed: 0", "seed: 1"))
    assert main(["fit", str(data), "--resume", str(run)]) == 2
    assert "a different seed" in capsys.readouterr().err
    (run / "config.yaml").write_text(text)


def test_a_run_whose_data_were_moved_says_how_to_go_on(table_run, tmp_path, capsys):
    data, run = table_run
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace(f"data: {data}", "data: runs/vectors/gone"))
    assert main(["fit", "--resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert f"name moved data: `midam fit DATA --resume {run}`" in error
    (run / "config.yaml").write_text(text)


def test_a_run_from_before_a_setting_goes_on_with_its_default(tmp_path, capsys):
    data, run = table(tmp_path / "bags.csv"), tmp_path / "run"
    few = ["--epochs", "2", "--members", "1", "--no-baseline", "--folds", "0"]
    assert main(["fit", str(data), *few, "--out", str(run)]) == 0
    for path in (run / "checkpoints" / "last.pt", run / "model.pt"):
        content = load_checkpoint(path)
        for name in ("anneal", "val_every", "workers"):
            del content["config"][name]
        torch.save(content, path)
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    (run / "config.yaml").write_text("".join(x for x in lines if not x.startswith(("anneal", "val_every", "wor"))))
    assert main(["fit", str(data), "--resume", str(run)]) == 0, capsys.readouterr().err


def test_no_run_to_resume(tmp_path, capsys):
    assert main(["fit", "digits", "--resume", str(tmp_path / "none")]) == 2
    assert "Expected a run, got nothing in" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "file"), [(600, "config.yaml"), (4000, "last.pt")])
def test_a_full_disk_in_a_first_epoch_leaves_nothing(limit, file, tmp_path):
    run, log = tmp_path / "r", tmp_path / "log"
    code = finish(
        start("fit", "digits", "--epochs", "2", "--members", "1", "--out", str(run), log=log, file_limit=limit)
    )
    assert code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    text = log.read_text()
    assert "File too large" in text
    assert file in text
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.long
def test_a_full_disk_later_keeps_what_was_done(tmp_path):
    run, log, again = tmp_path / "run", tmp_path / "log", tmp_path / "again"
    command = ["fit", "digits", "--epochs", "3", "--num-instances", "2", "--out"]
    assert main([*command, str(again)]) == 0
    # The checkpoint of epoch 0 fits, that of epoch 1 with the optimizer's state does not.
    limit = (again / "checkpoints" / "last.pt").stat().st_size - 1000
    assert finish(start(*command, str(run), log=log, file_limit=limit)) == 2
    assert f"--resume {run}" in log.read_text()
    assert "last.pt" in log.read_text()
    assert {p.name for p in run.rglob("*") if p.is_file()} == {
        "config.yaml",
        "metrics.csv",
        "best.pt",
        "last.pt",
    }
    assert load_checkpoint(run / "checkpoints" / "last.pt")["trainer"]["epoch"] == 0
    assert main(["fit", "digits", "--resume", str(run)]) == 0
    assert_same_run(run, again)


@pytest.mark.slow
@pytest.mark.long
def test_a_full_disk_while_predicting_leaves_nothing(table_run, tmp_path):
    data, run = table_run
    out, log = tmp_path / "p.csv", tmp_path / "log"
    code = finish(start("predict", str(run), str(data), "--out", str(out), log=log, file_limit=500))
    assert code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert "File too large" in log.read_text()
    assert str(out) in log.read_text()
