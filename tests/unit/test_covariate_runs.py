"""Covariates in runs: what they are worth alone, what a run remembers of them, resume, and what refuses them."""

import json
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.trainings import covariate_bags, train

from midam.data import CovariateCoder
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, CheckpointError, ConfigError, ExportError, RunStoppedError
from midam.evaluate.ranking import Pairs, auroc
from midam.export import export_run
from midam.methods.callbacks import Callbacks
from midam.report.words import covariate_words
from midam.runs.apply import evaluate_bags, read_for
from midam.runs.data import SplitBags
from midam.runs.fit import fit_run, resume_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run, predict_run
from midam.runs.results import summarize_covariates
from midam.settings import Settings
from midam.targets import target_named
from midam.train.trainer import Trainer
from studies.sets.npz import write_npz

# Covariates alone.


@pytest.mark.parametrize(
    ("target", "values", "names"),
    [
        ("binary", None, ()),
        ("multiclass", [[0.0], [1.0], [2.0]], ("a", "b", "c")),
        ("multilabel", [[0, 1], [1, np.nan], [1, 0]], ("p", "q")),
        ("ordinal", [[0.0], [1.0], [2.0]], ("1", "2", "3")),
        ("continuous", [[0.5], [1.5], [9.0]], ("x",)),
        ("survival", [[3.0, 1.0], [2.0, 1.0], [1.0, 1.0]], ("time", "event")),
    ],
)
def test_covariates_alone_rank_by_every_target(target, values, names):
    rng = np.random.default_rng(0)
    kind = np.resize([0, 1, 2], 90)
    x = (kind + 0.01 * rng.normal(size=90))[:, None]
    found = target_named({"target": target, "names": list(names)})
    of = (kind > 0).astype(np.int64) if target == "binary" else np.array(values, dtype=float)[kind]
    scores = found.linear_scores(x, of, x)
    assert scores.shape == ((90,) if found.count == 1 else (90, found.count))
    metric = auroc(of, scores) if target == "binary" else found.metric_value(of, scores)
    assert (
        metric > 0.65 if target == "multiclass" else metric > 0.95
    )  # a line cannot single out the class in the middle


def test_the_weights_of_cox_regression_are_those_of_the_penalized_likelihood():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    time = rng.exponential(np.exp(-x @ [1.0, -0.5])).round(1) + 0.1  # with ties
    event = rng.integers(0, 2, 60).astype(float)

    def loss(w):
        total = 0.5 * float(np.dot(w, w))
        for i in np.flatnonzero(event):
            at_risk = time >= time[i]
            total += np.log(np.exp(x[at_risk] @ w).sum()) - x[i] @ w
        return total

    survival = target_named({"target": "survival", "names": ["time", "event"]})
    w = survival.linear_scores(x, np.stack([time, event], axis=1), np.eye(2))
    for step in (np.array([1e-4, 0]), np.array([0, 1e-4])):
        slope = (loss(w + step) - loss(w - step)) / 2e-4
        assert abs(slope) < 1e-5


# Runs.


pytestmark = pytest.mark.filterwarnings("ignore:covariates.*:UserWarning", "ignore:the covariate site:UserWarning")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    bags = covariate_bags(80, missing=0.2, sex=np.resize(["f", "m", "f", "m", None], 80), site=np.full(80, "x"))
    splits = np.resize(["train", "train", "train", "train", "val", "val", "test", "test"], 80)
    path = tmp_path_factory.mktemp("data") / "bags.npz"
    write_npz(bags.replace(splits=splits), path)
    return path


def settings_of(**changes):
    return Settings(epochs=3, members=2, covariates=("age", "sex", "site"), baseline=False, **changes)


@pytest.fixture(scope="module")
def run(data):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit_run(str(data), settings_of(), RunFolder(data.parent / "run"))
    said = [str(warning.message) for warning in told]
    assert "covariates: age (number, 15 missing), sex (category: f, m; 16 missing), site (category: x)" in said[0]
    assert "the covariate site is left out: the training bags have only x" in said[1]
    assert len(said) == 2
    return data.parent / "run"


def test_a_run_tells_what_covariates_are_worth_alone(run, data):
    found = json.loads((run / "summary.json").read_text())["covariates"]
    assert (found["names"], found["kinds"]) == (["age", "sex"], ["number", "category"])
    loaded = load_run(run)
    bags = read_for(loaded, str(data))
    assert bags.covariates.names == ("age", "sex")
    weights = np.mean([member.covariates.weight.detach() for member in loaded.model.members], axis=0)
    features = ("age", "age missing", "sex=f", "sex=m", "sex other", "sex missing")
    assert tuple(found["weights"]) == features
    np.testing.assert_allclose(list(found["weights"].values()), weights, rtol=1e-6)
    # What scikit-learn finds of the same codes.
    coder = loaded.model.members[0].covariates.coder
    x, inside, tested = coder.encode(bags), bags.splits == "train", bags.splits == "test"
    assert coder == CovariateCoder.fit(bags.subset(inside).covariates)
    alone = LogisticRegression().fit(x[inside], bags.labels[inside]).predict_proba(x[tested])[:, 1]
    told = found["alone"]
    assert (told["part"], told["bags"], told["method"]) == ("test", 20, "logistic regression")
    assert told["auroc"] == pytest.approx(auroc(bags.labels[tested], alone))
    whole = json.loads((run / "summary.json").read_text())["test"]["auroc"]
    assert told["difference"] == pytest.approx(whole - told["auroc"])
    assert told["difference_ci95"][0] <= told["difference"] <= told["difference_ci95"][1]
    page = (run / "report.html").read_text()
    assert "Compared on the same 20 test bags" in page
    assert "Next to age, sex alone: " in page


def test_a_run_remembers_its_covariates(run, data, tmp_path):
    loaded = load_run(run)
    bags = read_for(loaded, str(data))
    scores, _ = predict_run(loaded, bags)
    rows = [line.split(",") for line in (run / "predictions.csv").read_text().splitlines()]
    np.testing.assert_allclose(scores, [float(row[rows[0].index("score")]) for row in rows[1:]], rtol=1e-6)
    assert evaluate_bags(loaded, read_for(loaded, str(data), labeled=True)).result["test"]["bags"] == 20
    # site was constant in training: it need not be there.
    parts = dict(np.load(data))
    for name in ("site", "age"):
        del parts[name]
        np.savez(tmp_path / f"{name}.npz", **parts)
    np.testing.assert_array_equal(predict_run(loaded, read_for(loaded, str(tmp_path / "site.npz")))[0], scores)
    with pytest.raises(BagDataError, match="column 'age' of `covariates`"):
        read_for(loaded, str(tmp_path / "age.npz"))


def test_a_new_category_is_told_once_and_scored(run, data, tmp_path):
    loaded, parts = load_run(run), dict(np.load(data))
    np.savez(tmp_path / "new.npz", **{**parts, "sex": np.where(np.arange(80) < 3, "d", parts["sex"])})
    bags = read_for(loaded, str(tmp_path / "new.npz"))
    with pytest.warns(UserWarning, match="3 of 80 bags have a sex that no training bag had: d") as told:
        scores, _ = predict_run(loaded, bags)
    assert len(told) == 1
    assert np.isfinite(scores).all()


def test_a_stopped_run_goes_on_bit_for_bit_and_with_the_same_covariates_alone(run, data, tmp_path):
    def stop(row, _):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    folder = RunFolder(tmp_path / "stopped")
    with pytest.raises(RunStoppedError, match="Continue with"):
        fit_run(str(data), settings_of(), folder, callbacks=Callbacks(on_epoch=stop))
    with pytest.warns(UserWarning, match="did not finish"):
        unfinished = load_run(folder.root)
    assert unfinished.model.members[1].covariates.coder == load_run(run).model.members[0].covariates.coder
    parts = dict(np.load(data))
    np.savez(tmp_path / "other.npz", **{**parts, "age": parts["age"] + 1})
    with pytest.raises(CheckpointError, match="got others"):
        resume_run(str(tmp_path / "other.npz"), folder)
    resume_run(None, folder)
    for name in ("predictions.csv", "metrics.csv"):
        assert (folder.root / name).read_bytes() == (run / name).read_bytes()
    one, other = (json.loads((path / "summary.json").read_text())["covariates"] for path in (run, folder.root))
    assert one == other


def test_what_cannot_carry_covariates_refuses_them(run, data, tmp_path):
    with pytest.raises(ExportError, match=r"takes covariates or encodes columns: .*age, sex"):
        export_run(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for method in ("bag-statistics-extratrees", "auto"):
        with pytest.raises(ConfigError, match=f"no `covariates` with the method '{method}'"):
            fit_run(str(data), Settings(covariates=("age",)), RunFolder(tmp_path / "no"), method=method)


@pytest.mark.parametrize("grouped", [False, True])
def test_covariates_alone_are_told_of_other_targets(grouped):
    bags = covariate_bags(90, sex=np.resize(["f", "m"], 90))
    values = bags.covariates.columns[0] + 5 * np.random.default_rng(1).normal(size=90)
    outcome = TargetLabels.of("continuous", values, names=("size",))
    groups = [f"P{i // 6}" for i in range(90)] if grouped else None
    bags = bags.replace(labels=None, outcome=outcome, groups=groups)
    parts = SplitBags(bags, np.repeat(["train", "test", "val"], [36, 36, 18]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "patience")
        trainer = train(Trainer(Settings(epochs=1, members=1), parts.part("train")))
    scores = -values  # the model that is wrong on each pair
    found = summarize_covariates(trainer.model, parts, scores)
    alone, tested = found["alone"], parts.splits == "test"
    expected = Pairs.of_numbers(values[tested]).concordance(bags.covariates.columns[0][tested])
    assert alone["c_index"] == pytest.approx(expected, abs=0.02)
    assert alone["difference"] == pytest.approx(-alone["c_index"])
    low, high = alone["c_index_ci95"]
    assert low < alone["c_index"] < high
    assert alone["difference_ci95"][0] < alone["difference"] < alone["difference_ci95"][1] < 0
    assert alone["difference_method"] == ("paired jackknife (groups)" if grouped else "paired jackknife")
    lines = covariate_words(found)
    assert lines[0] == "covariates: age (number), sex (category)"
    assert lines[1].startswith(f"covariates alone C-index {alone['c_index']:.3f} (ridge")
    assert lines[1].endswith(": the model is behind")


def test_covariates_that_could_not_be_tested_alone_are_told():
    found = {"names": ["age"], "kinds": ["number"], "weights": {"age": 0.5}, "alone": None}
    assert covariate_words(found)[1].startswith("covariates alone were not tested")
