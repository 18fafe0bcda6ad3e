"""Any method is a model: `midam fit --method`."""

import json

import pytest
import yaml
from tests.integration.commands import table

from midam.cli import main, parse
from midam.compare import ModelBaseline
from midam.errors import ConfigError
from midam.export import export_run
from midam.methods.names import method_settings
from midam.registry import BASELINES
from midam.runs import fit_run, load_run
from midam.runs.folder import RunFolder
from midam.settings import Settings

TREES = "bag-statistics-extratrees"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return table(tmp_path_factory.mktemp("data") / "bags.csv")


def test_a_method_of_the_paper_is_a_shorthand_of_settings(data, tmp_path):
    for out, how in (
        ("name", ["--method", "dam-mb-smx"]),
        ("settings", ["--pooling", "smoothed-max", "--estimator", "minibatch"]),
    ):
        assert main(["fit", str(data), *how, "--epochs", "2", "--out", str(tmp_path / out)]) == 0
    config = yaml.safe_load((tmp_path / "name" / "config.yaml").read_text())
    assert method_settings("dam-mb-smx").items() <= config.items()
    for file in ("config.yaml", "predictions.csv", "metrics.csv"):
        assert (tmp_path / "name" / file).read_bytes() == (tmp_path / "settings" / file).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", TREES, "--pooling", "mean"], "Expected no --pooling with the method 'bag-statistics-extratrees'"),
        (["--method", TREES, "--pooling", "attention"], "got 'attention'; leave it out: only"),
        (["--method", TREES, "--epochs=3"], "Expected no --epochs"),
        (
            ["--method", "dam-att", "--estimator", "vrsp"],
            "got 'vrsp'; its name sets --pooling attention, --estimator exact",
        ),
        (["--method", "bag-statistics-cox"], "it trains and scores in one call"),
        (["--method", "bag-statistics-cox"], f"choose one of auto, {TREES}, bag-statistics-logistic"),
        (["--method", "bag-statistics-tree"], "did you mean"),
        (["--method", "tests.nowhere.Thing"], "got 'tests.nowhere.Thing'; known are"),
        (["--method", TREES, "--resume", "run"], "Expected no settings with --resume, got --method"),
    ],
)
def test_what_a_method_does_not_take_is_refused(data, tmp_path, capsys, words, said):
    out = [] if "--resume" in words else ["--out", str(tmp_path / "run")]
    assert main(["fit", str(data), *words, *out]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_settings_that_differ_are_refused_in_python_too(data, tmp_path):
    with pytest.raises(ConfigError, match=r"Expected no `lr` with the method"):
        fit_run(str(data), Settings(lr=0.1), RunFolder(tmp_path / "run"), method=TREES)
    summary = fit_run(str(data), Settings(seed=2), RunFolder(tmp_path / "run"), method=TREES)
    assert summary["method"] == {"name": TREES}
    assert load_run(tmp_path / "run").method == TREES


def test_a_fit_that_fails_or_is_stopped_leaves_nothing(data, tmp_path, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(BASELINES.find(TREES), "fit", stopped)
    assert main(["fit", str(data), "--method", TREES, "--out", str(tmp_path / "run")]) == 130
    assert not (tmp_path / "run").exists()


def test_groups_stay_together_and_patients_of_the_run_are_told(tmp_path, capsys):
    groups = [f"p{bag // 2}" for bag in range(40)]
    data, run = table(tmp_path / "bags.csv", patient=groups), tmp_path / "run"
    how = ["--groups", "patient", "--test-fraction", "0.3"]
    assert main(["fit", str(data), "--method", TREES, *how, "--out", str(run)]) == 0
    splits = load_run(run).splits
    assert all(splits[f"b{2 * i:02d}"] == splits[f"b{2 * i + 1:02d}"] for i in range(20))
    new = table(tmp_path / "new.csv", patient=groups)
    lines = new.read_text().splitlines()
    new.write_text("\n".join([lines[0], *(line[:-1] + "9" for line in lines[1:])]) + "\n")
    capsys.readouterr()
    assert main(["evaluate", str(run), str(new)]) == 0
    assert "the results below are no test" in " ".join(capsys.readouterr().err.split())


def test_an_export_holds_the_weights_and_a_card_of_the_method(data, tmp_path):
    fit_run(str(data), Settings(), RunFolder(tmp_path / "run"), method=TREES)
    with pytest.warns(UserWarning, match="Expected poolings by the log-weighted mean or the maximum"):
        assert export_run(tmp_path / "run", tmp_path / "out") == ["safetensors"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"The method is `{TREES}`" in card
    assert "pooled by" not in card
    assert json.loads((tmp_path / "out" / "config.json").read_text())["method"] == TREES


class Doubled(ModelBaseline):
    """A baseline of somebody's that borrows its model."""

    def score(self, bags, trial):
        return BASELINES.find("mean-map-svm")().score(bags, trial)

    def scorer(self, bags, *, seed):
        return BASELINES.find("mean-map-svm")().scorer(bags, seed=seed)

    def empty(self, instance_shape, weights):
        return BASELINES.find("mean-map-svm")().empty(instance_shape, weights)


def test_a_baseline_of_anybody_can_be_a_model(data, tmp_path, monkeypatch):
    path = "doubled"
    monkeypatch.setitem(BASELINES._added, path, Doubled)
    assert main(["fit", str(data), "--method", path, "--out", str(tmp_path / "run")]) == 0
    assert main(["evaluate", str(tmp_path / "run"), str(data)]) == 0
    assert load_run(tmp_path / "run").method == path


def test_a_run_is_resumed_with_settings_that_are_its_own(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("labels: l.csv\ncovariates: [age, sex]\n")
    words = ["fit", "--resume", str(tmp_path / "run"), "--labels", "l.csv", "--covariates", "age,sex"]
    parse(words)
    with pytest.raises(ConfigError, match="no settings with --resume, got --labels"):
        parse([*words[:4], "other.csv"])
