"""Metrics of instance scores: against scikit-learn bag by bag, intervals by whole groups, and in the files of a run."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.trainings import make_scorers

from midam import load_run
from midam.cli import main
from midam.compare import Baseline, Grid, repeated_folds, run_comparison
from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.labeled_instances import InstanceMetrics, evaluate_instances, instance_metrics
from midam.evaluate.pooled import PooledBags, instance_ranks
from midam.evaluate.predict import predict
from midam.explain.explanation import explain_bag
from midam.nn.pooling import MaxPooling
from midam.nn.scorer import BagScorer
from midam.registry import BASELINES
from midam.runs.apply import evaluate_bags
from midam.settings import Settings
from midam.train.side import Trial, train_trial


def make(bags=60, *, largest=30, decimals=1, unknown=0.1, seed=0):
    """Labels, tied scores and sizes of bags, some of one instance, with unknown labels."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest, bags)
    labels = (rng.random(sizes.sum()) < 0.3).astype(float)
    scores = np.round(rng.normal(size=len(labels)) + labels, decimals)
    labels[rng.random(len(labels)) < unknown] = np.nan
    return labels, scores, sizes


def naive(labels, scores, sizes, bag_labels):
    """The metrics by scikit-learn, a bag at a time."""
    aurocs, precisions, hits = [], [], []
    for at, rows in enumerate(np.split(np.arange(len(labels)), np.cumsum(sizes)[:-1])):
        labeled = rows[~np.isnan(labels[rows])]
        y, s = labels[labeled], scores[labeled]
        if len(set(y)) == 2:
            aurocs.append(roc_auc_score(y, s))
            precisions.append(average_precision_score(y, s))
            hits += [y[s == s.max()].mean()] if bag_labels[at] else []
    known = ~np.isnan(labels)
    pooled = [metric(labels[known], scores[known]) for metric in (roc_auc_score, average_precision_score)]
    return [*map(np.mean, (aurocs, precisions, hits)), *pooled], (len(aurocs), len(hits))


@pytest.mark.parametrize("decimals", [1, 9])
def test_the_metrics_are_those_of_scikit_learn(decimals):
    labels, scores, sizes = make(decimals=decimals)
    bag_labels = np.arange(len(sizes)) % 2
    found = instance_metrics(labels, scores, sizes, bag_labels=bag_labels)
    expected, (both, positive) = naive(labels, scores, sizes, bag_labels)
    names = ("auroc_in_bag", "auprc_in_bag", "hit_rate", "auroc", "auprc")
    np.testing.assert_allclose([getattr(found, name).value for name in names], expected, rtol=1e-9)
    assert (found.auroc_in_bag.bags, found.hit_rate.bags) == (both, positive)
    assert found.instances == (~np.isnan(labels)).sum()
    for name in names:
        estimate = getattr(found, name)
        assert 0 <= estimate.low < estimate.value < estimate.high <= 1
    assert found.entries()["auroc_ci95"] == [found.auroc.low, found.auroc.high]


def test_many_distinct_scores_have_nearly_the_interval_of_all_scores(monkeypatch):
    labels, scores, sizes = make(400, decimals=9)
    found = instance_metrics(labels, scores, sizes, resamples=400)
    monkeypatch.setattr("midam.evaluate.labeled_instances._MOST_BINS", 10**6)
    exact = instance_metrics(labels, scores, sizes, resamples=400)
    for name in ("auroc", "auprc"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), atol=2e-3)


def test_random_scores_reach_the_values_of_chance():
    labels, _, sizes = make(3000)
    found = instance_metrics(labels, np.random.default_rng(1).random(len(labels)), sizes, resamples=10)
    for name in ("auroc_in_bag", "hit_rate", "auroc", "auprc"):
        assert abs(getattr(found, name).value - found.chance[name]) < 0.02


def test_intervals_resample_whole_groups():
    labels, scores, sizes = (np.tile(part, 20) for part in make(10))
    plain = instance_metrics(labels, scores, sizes)
    groups = np.tile(np.arange(10).astype(str), 20)
    grouped = instance_metrics(labels, scores, sizes, groups=groups)
    for name in ("auroc_in_bag", "hit_rate", "auroc", "auprc"):
        one, other = getattr(plain, name), getattr(grouped, name)
        assert one.value == other.value
        assert other.high - other.low > 2 * (one.high - one.low), "twenty copies of a bag are one bag"
    assert instance_metrics(labels, scores, sizes, groups=groups) == grouped, "the same seed"


def test_a_perfect_score_has_an_interval_and_one_label_has_no_metric():
    found = instance_metrics([0, 1, 0, 1], [0, 1, 0, 1], [2, 2])
    assert found.auroc_in_bag.value == 1
    assert found.auroc_in_bag.low < 0.5, "two bags tell little"
    single = instance_metrics([0, 0, np.nan], [0, 1, 2], [2, 1])
    assert (single.bags, single.auroc_in_bag, single.hit_rate, single.auroc) == (1, None, None, None)
    none = instance_metrics([np.nan], [0], [1])
    assert isinstance(none, InstanceMetrics)
    assert none.entries()["chance"] == {}


def test_bags_without_labels_of_instances_and_wrong_scores_are_refused():
    bags = Bags.from_list([[[1.0], [2.0]]], [1])
    with pytest.raises(BagDataError, match="labels of instances, got none"):
        evaluate_instances(bags, [1, 2])
    with pytest.raises(BagDataError, match="score"):
        evaluate_instances(bags.replace(instance_labels=[0, 1]), [1, 2, 3])
    with pytest.raises(BagDataError, match="finite"):
        evaluate_instances(bags.replace(instance_labels=[0, 1]), [1, np.nan])


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max", "mean"])
def test_the_contributions_of_all_bags_are_those_of_explain(pooling):
    rng, model = np.random.default_rng(0), make_scorers(pooling, 2)
    bags = Bags.from_list([rng.normal(size=(size, 4)).astype(np.float32) for size in (5, 1, 9)]).subset([2, 0, 1])
    each = [explain_bag(model, bags, index).contribution for index in range(3)]
    np.testing.assert_allclose(PooledBags(model, bags).contributions(), np.concatenate(each), rtol=1e-5, atol=1e-8)


def test_equal_contributions_rank_by_the_score_of_the_instance_alone():
    bags = Bags.from_list([np.array([[3.0], [2.0], [-1.0], [0.0]], np.float32)], [1], instance_labels=[1, 1, 0, 0])
    model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    torch.nn.init.ones_(model.pooling.scorer.weight)
    added, ranks = PooledBags(model, bags).contributions(), instance_ranks(model, bags)
    assert (added[1:] == 0).all(), "only the maximum of a bag adds"
    assert ranks.tolist() == [3, 2, 0, 1]
    assert evaluate_instances(bags, added).auroc_in_bag.value == 0.75
    assert evaluate_instances(bags, ranks).auroc_in_bag.value == 1


@pytest.fixture(scope="module")
def labeled_run(tmp_path_factory):
    """A table with labels of instances, and a run on it."""
    folder, rng = tmp_path_factory.mktemp("labeled"), np.random.default_rng(0)
    bag = np.repeat(np.arange(80), 6)
    truth = (np.arange(len(bag)) % 6 == 2) & (bag % 2 == 1)
    frame = pd.DataFrame({"bag": [f"b{i:02}" for i in bag], "label": bag % 2, "x": rng.normal(size=len(bag))})
    frame["x"] += 4 * truth
    frame["truth"] = np.where(bag < 70, truth.astype(float), np.nan)
    frame["split"] = np.array(["train", "val", "test", "test"])[bag // 2 % 4]
    frame.to_csv(folder / "rows.csv", index=False)
    command = ["fit", str(folder / "rows.csv"), "--split", "split", "--instance-label", "truth", "--epochs", "30"]
    command += ["--members", "1", "--no-baseline"]
    assert main([*command, "--lr", "0.05", "--out", str(folder / "run")]) == 0
    return folder, frame


@pytest.mark.drawn
def test_a_run_reports_how_well_it_finds_the_labeled_instances(labeled_run, capsys):
    folder, frame = labeled_run
    summary = json.loads((folder / "run/summary.json").read_text())["instances"]
    assert set(summary) == {"score", "test", "val"}
    known = frame[(frame["split"] == "test") & frame["truth"].notna()]
    assert summary["test"]["instances"] == len(known)
    assert summary["test"]["positives"] == known["truth"].sum()
    assert summary["test"]["hit_rate"] > 0.9
    page = (folder / "run/report.html").read_text()
    assert "Did the right instances decide?" in page
    assert f'value="{summary["test"]["auprc_in_bag"]!r}"' in page
    run = load_run(folder / "run")
    assert run.data["feature_names"] == ["x"]
    frame.drop(columns=["truth", "split"]).to_csv(folder / "new.csv", index=False)
    assert main(["predict", str(folder / "run"), str(folder / "new.csv"), "--out", str(folder / "scores.csv")]) == 0
    capsys.readouterr()
    assert main(["--json", "evaluate", str(folder / "run"), str(folder / "rows.csv")]) == 0
    shown = json.loads(capsys.readouterr().out)["instances"]
    for name in ("test", "val"):
        assert shown[name] == summary[name]
    assert "train" in shown
    assert main(["evaluate", str(folder / "run"), str(folder / "rows.csv")]) == 0
    assert "labeled instances: the top instance is positive in" in capsys.readouterr().out
    assert "instances" not in evaluate_bags(run, Bags.from_list([[[0.0]], [[4.0]]], [0, 1], feature_names=["x"])).result


@pytest.mark.drawn
def test_explanations_show_the_known_labels(labeled_run):
    folder, _ = labeled_run
    command = ["explain", str(folder / "run"), str(folder / "rows.csv"), "--bags", "b05", "b04", "b79"]
    assert main([*command, "--out", str(folder / "why")]) == 0
    first, _, unknown = json.loads((folder / "why/explain.json").read_text())["bags"]
    assert first["instances"][0]["columns"]["instance_label"] == 1
    assert "instance_label" not in unknown["instances"][0]["columns"]
    assert "instance label" in (folder / "why/index.html").read_text()


def compared_bags(*, labeled=True):
    """Bags of four instances, of which the third decides in positive bags."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4, 1))
    x[1::2, 2] += 2
    truth = np.zeros((40, 4))
    truth[1::2, 2] = 1
    bags = Bags.from_list(list(x.astype(np.float32)), np.arange(40) % 2)
    return bags.replace(instance_labels=truth.reshape(-1)) if labeled else bags


class BagSize(Baseline):
    """A baseline that only scores bags."""

    def score(self, bags, trial):
        return bags.sizes[trial.score].astype(float)


def test_a_comparison_shows_how_well_methods_find_the_labeled_instances(tmp_path, monkeypatch):
    monkeypatch.setitem(BASELINES._added, "bag-size", BagSize)
    models = ["bag-statistics-logistic", "mean-map-svm", "embedding-networks"]
    methods, options = ["midam-smx", "midam-mean", *models, "bag-size"], {}
    options |= {"settings": Settings(epochs=20, members=1, num_positive=4, num_negative=4)}
    options |= {"grid": Grid(lrs=[0.1], margins=[1.0])}
    bags = compared_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    found = run_comparison(bags, methods, folds, out=tmp_path / "compare", **options)
    rows = found.summary.set_index("method")
    assert rows["hit_rate"]["midam-smx"] > 0.6
    assert (rows["hit_rate"][models] > 0.6).all(), "a baseline that is a model has contributions too"
    assert np.isnan(rows["hit_rate"]["bag-size"]), "it only scores bags"
    assert rows["auroc_in_bag_low"]["midam-smx"] <= rows["auroc_in_bag"]["midam-smx"] <= 1
    assert "instances: hit rate of the top instance" in (tmp_path / "compare/summary.md").read_text()
    assert "Did the right instances decide?" in (tmp_path / "compare/report.html").read_text()
    again = run_comparison(bags, methods, folds, out=tmp_path / "compare", **options)
    pd.testing.assert_frame_equal(again.summary, found.summary)
    some = [methods[0], models[0]]  # one that trains, and a baseline
    plain = run_comparison(compared_bags(labeled=False), some, folds, **options)
    assert "hit_rate" not in plain.summary
    assert plain.summary.set_index("method")["auroc"].equals(rows["auroc"][some])


def test_the_kept_model_is_that_of_the_tested_epoch():
    bags, kept = compared_bags(), []
    trial = Trial(np.arange(20), np.arange(20, 40), 0)
    settings = Settings(epochs=3, members=1, num_positive=4, num_negative=4)

    def second(scores):
        kept.append(scores)
        return len(kept) == 2

    found = train_trial(settings, bags, trial, after=(1, 2, 3), keep=second)
    np.testing.assert_allclose(predict(found.model, bags.subset(trial.score)), found.scores[1], rtol=1e-6)
    assert train_trial(settings, bags, trial).model is None
