"""Comparisons of bags that are ranked by more than 0 and 1: folds, methods, trials, tables and pages."""

import json

import numpy as np
import pandas as pd
import pytest
from tests import judging, quick
from tests.trainings import bags_with, outcome_bags

from midam.cli.compare import _warn_of_unused
from midam.cli.parser import Options
from midam.compare import Fold, Grid, corrected_interval, repeated_folds, run_comparison
from midam.compare.folds import fold_remarks, validation_part
from midam.compare.methods import usual_methods
from midam.compare.trials import open_trials
from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, CheckpointError, ConfigError, with_article
from midam.evaluate.classes import class_aurocs
from midam.methods.inner_folds import inner_folds
from midam.methods.method import Baseline
from midam.registry import BASELINES
from midam.settings import Settings
from midam.targets import target_of
from midam.train.trainer import Trainer

TREES, COX = "bag-statistics-extratrees", "bag-statistics-cox"
TARGETS = ("multiclass", "multilabel", "ordinal", "continuous", "survival")
KEPT = ("multiclass", "survival")
FEW = Settings(epochs=2, members=1)
ALONE = {"grid": Grid([0.05], [1.0], "last")}


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midam.methods.statistics_models._TREES", 25)
        yield


@pytest.mark.parametrize("target", TARGETS)
def test_folds_hold_the_strata_in_like_shares_and_keep_groups(target):
    bags = outcome_bags(target, 120, groups=[f"g{i // 2}" for i in range(120)])
    folds = repeated_folds(bags, repeats=2, folds=4)
    assert [(fold.repeat, fold.fold) for fold in folds] == [(r, f) for r in range(2) for f in range(4)]
    strata = target_of(bags).strata(target_of(bags).values(bags))
    shares = np.bincount(strata) / 120
    for repeat in range(2):
        tested = [fold.test for fold in folds if fold.repeat == repeat]
        assert sorted(np.concatenate(tested).tolist()) == list(range(120))
    for fold in folds:
        assert not set(bags.groups[fold.train]) & set(bags.groups[fold.test])
        own = np.bincount(strata[fold.test], minlength=len(shares)) / len(fold.test)
        np.testing.assert_allclose(own, shares, atol=0.1)
    assert folds[0].test.tolist() != folds[4].test.tolist()


def test_folds_are_reduced_until_each_ranks_two_bags():
    # Four events: in no more than two folds can each test two of them.
    times = np.stack([np.arange(1.0, 21.0), np.arange(20) < 4], axis=1)
    bags = bags_with("survival", times, ["time", "event"])
    with pytest.warns(UserWarning, match="5 folds reduced to 2"):
        folds = repeated_folds(bags, repeats=1, folds=5)
    assert [int(times[fold.test, 1].sum()) for fold in folds] == [2, 2]
    single = [Fold(0, 0, np.arange(1, 19), np.array([0, 19]))]
    assert fold_remarks(bags, single) == ["1 of 1 folds rank a single bag above others"]
    outcome = TargetLabels.of("continuous", [1, 2, 3, 4], names=["size"])
    alike = Bags.from_list([[[0.0]]] * 4, outcome=outcome, groups=["a"] * 4)
    with pytest.raises(BagDataError, match=r"two groups that the labels rank above others, .* got 1 and 1"):
        repeated_folds(alike, repeats=1, folds=2)


def test_classes_that_folds_cannot_rank_are_named():
    bags = bags_with("multiclass", [0] * 12 + [1] * 12 + [2] * 3, ["often", "too", "rare"])
    folds = repeated_folds(bags, repeats=1, folds=6)
    said = "the macro AUROC of a fold leaves out a class without an AUROC: rare (3)"
    assert fold_remarks(bags, folds) == [said]
    assert fold_remarks(bags, [fold for fold in folds if fold.test.max() > 23]) == []


@pytest.mark.parametrize("target", TARGETS)
def test_the_inner_parts_teach_and_rank(target):
    bags, every = outcome_bags(target), np.arange(60)
    train, val = validation_part(bags, every, fraction=0.2, seed=1)
    assert sorted(np.concatenate([train, val]).tolist()) == every.tolist()
    assert 8 <= len(val) <= 16
    folds = inner_folds(bags, every[10:], seed=0)
    assert sorted(np.concatenate(folds).tolist()) == list(range(50))
    assert [len(fold) for fold in folds] == pytest.approx([10] * 5, abs=3)


def test_a_training_part_that_is_too_small_for_an_inner_one_has_none():
    bags = bags_with("multiclass", [0, 0, 1, 1, 0, 0], ["a", "b"])
    assert validation_part(bags, np.arange(6), fraction=0.3, seed=0) is None
    times = bags_with("survival", [[1, 1], [2, 0], [3, 1]], ["time", "event"])
    assert inner_folds(times, np.arange(3), seed=0) == []


@pytest.mark.parametrize(
    ("target", "methods", "words"),
    [
        ("survival", ["midam", "midam-att"], "midam-att, whose objective is minmax-auc; name midam, "),
        ("survival", ["midam-att", "ce-mean"], "ce-mean, whose objective is bce"),
        ("survival", ["midam", "witness-search"], "got witness-search; "),
        ("survival", ["midam", "bag-statistics-logistic"], f"such as pairwise+vrsp+attention, or {TREES}, {COX}"),
        ("continuous", ["midam", "cox+minibatch+mean"], "cox+minibatch+mean, whose objective is cox"),
        ("multilabel", ["midam", "auto"], "support the target 'multilabel', got auto"),
        ("multiclass", ["cross-entropy+vrsp+attention", "mean-map-svm"], "got mean-map-svm;"),
    ],
)
def test_methods_that_do_not_serve_are_refused_and_those_that_do_are_named(tmp_path, target, methods, words):
    bags = outcome_bags(target)
    with pytest.raises(ConfigError) as refused:
        run_comparison(bags, methods, repeated_folds(bags, repeats=1, folds=2), out=tmp_path / "out", **ALONE)
    assert words in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_two_classes_refuse_what_is_not_made_for_them():
    bags = Bags.from_list([[[float(i)]] for i in range(12)], [0, 1] * 6)
    folds = repeated_folds(bags, repeats=1, folds=2)
    with pytest.raises(ConfigError, match=rf"'binary', got cox\+minibatch\+mean, whose objective is cox; {COX}"):
        run_comparison(bags, ["midam", "cox+minibatch+mean", COX], folds, **ALONE)


@pytest.mark.parametrize("target", TARGETS)
def test_the_usual_methods_are_the_librarys_own_and_a_baseline(target):
    assert usual_methods(outcome_bags(target)) == ["midam", COX if target == "survival" else TREES]


@pytest.fixture(scope="module")
def compared(tmp_path_factory, few_trees):
    """A comparison of each target, by its name: bags, folds, what was found, and its folder."""
    found = {}

    def find(target):
        if target not in found:
            bags = outcome_bags(target, groups=[f"g{i // 2}" for i in range(60)])
            folds, out = repeated_folds(bags, repeats=1, folds=2), tmp_path_factory.mktemp(target) / "out"
            trained = "cox+minibatch+mean" if target == "survival" else "pairwise+vrsp+mean"
            how = {"settings": FEW, "grid": Grid([0.1, 0.01], [1.0])}
            with quick.drawing():
                found[target] = bags, folds, run_comparison(bags, ["midam", trained, TREES], folds, out=out, **how), out
        return found[target]

    return find


@pytest.mark.parametrize("target", TARGETS)
def test_trials_tables_and_scores_name_the_metric_of_the_target(target, compared):
    bags, folds, comparison, out = compared(target)
    kind = target_of(bags)
    columns = ["method", "repeat", "fold", kind.metric, "seconds", "lr", "margin", "epoch"]
    trials = pd.read_csv(out / "trials.csv")
    assert list(trials) == [*columns, "test_bags", "seed", "status"]
    assert trials["status"].eq("ok").all()
    assert comparison.metric == kind.metric
    said = {"multilabel": ["label_p", "label_q"], "survival": ["time", "event"]}.get(target, ["label"])
    assert list(comparison.predictions) == ["bag", "method", "repeat", "fold", *kind.score_columns, *said, "group"]
    for (method, fold), part in comparison.predictions.groupby(["method", "fold"]):
        test = folds[fold].test
        assert part["bag"].tolist() == bags.ids[test].tolist()
        scores = part[kind.score_columns].to_numpy()
        metric = kind.metric_value(kind.values(bags)[test], scores if kind.count > 1 else scores[:, 0])
        row = trials[(trials["method"] == method) & (trials["fold"] == fold)]
        assert row[kind.metric].item() == pytest.approx(metric)
    margins = trials.groupby("method")["margin"].count()
    assert margins["midam"] == 2
    assert margins.get("cox+minibatch+mean", 0) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_means_and_paired_differences_are_corrected(target, compared):
    bags, folds, comparison, _ = compared(target)
    metric = target_of(bags).metric
    metrics = comparison.trials.pivot_table(index="fold", columns="method", values=metric)
    ratio = np.mean([len(fold.test) / len(fold.train) for fold in folds])
    row = comparison.summary.set_index("method").loc[TREES]
    own = corrected_interval(metrics[TREES], ratio=ratio)
    gap = corrected_interval(metrics[TREES] - metrics["midam"], ratio=ratio)
    assert (row[metric], row[f"{metric}_low"]) == pytest.approx((own.mean, max(own.low, 0)))
    assert (row["difference"], row["difference_high"]) == pytest.approx((gap.mean, min(gap.high, 1)))
    name = {"auroc_macro": "macro AUROC", "c_index": "C-index"}[metric]
    assert f"| {name} [95% interval] |" in comparison.markdown()
    assert "AUPRC" not in comparison.markdown()


def test_midam_is_trained_by_the_objective_of_the_target(compared):
    bags, folds, comparison, out = compared("survival")
    assert "objective: pairwise" in (out / "config.yaml").read_text()
    trainer = Trainer(FEW.replace(objective="pairwise", seed=0, select="last"), bags.subset(folds[1].train))
    while not trainer.finished:
        trainer.train_epoch()
    scored = bags.subset(folds[1].test)
    alone = trainer.scores(scored, trainer.reader(scored))
    part = comparison.predictions.query("method == 'midam' and fold == 1")
    np.testing.assert_allclose(part["score"], alone, rtol=1e-6)


@pytest.mark.parametrize("target", KEPT)
def test_a_second_call_computes_nothing_and_damage_is_refused(target, compared, tmp_path):
    bags, folds, comparison, out = compared(target)
    kind, copy = target_of(bags), tmp_path / "out"
    copy.mkdir()
    for name in ("trials.jsonl", "config.yaml"):
        (copy / name).write_bytes((out / name).read_bytes())
    how = {"settings": FEW, "grid": Grid([0.1, 0.01], [1.0])}
    run_comparison(bags, comparison.summary["method"].tolist(), folds, out=copy, **how)
    lines = (out / "trials.jsonl").read_text()
    assert (copy / "trials.jsonl").read_text() == lines
    row = json.loads(lines.splitlines()[0])
    wrong = [{"scores": row["scores"][1:]}, {kind.metric: 1.5}, {"scores": [[0.5]] * len(row["scores"])}]
    for number, change in enumerate(wrong):
        path = tmp_path / f"damaged-{number}.jsonl"
        path.write_text(json.dumps(row | change) + "\n")
        with pytest.raises(CheckpointError, match=f"{with_article(kind.metric)} in"):
            open_trials(path, metric=kind.metric, columns=kind.count)


@pytest.mark.parametrize("target", TARGETS)
def test_the_page_names_metric_classes_and_folds(target, compared):
    bags, _, comparison, out = compared(target)
    page, kind = (out / "report.html").read_text("utf-8"), target_of(bags)
    assert f'data-key="midam.{kind.metric}"' in page
    assert f"{comparison.summary[kind.metric].iloc[0]:.3f}" in page
    assert "ROC" not in page.replace("AUROC", "")
    assert ("AUROC of each class or label" in page) == (kind.count > 1)


def test_the_table_of_classes_has_means_over_the_folds_that_rank_them(tmp_path):
    # Of a label nothing is known in one of three folds.
    bags = outcome_bags("multilabel")
    values = np.nan_to_num(bags.outcome.values)
    folds = [Fold(0, f, np.flatnonzero(np.arange(60) % 3 != f), np.arange(f, 60, 3)) for f in range(3)]
    values[folds[0].test, 1] = np.nan
    bags = Bags.from_list([bags[i] for i in range(60)], outcome=TargetLabels("multilabel", values, ("p", "q")))
    path = "first-feature"
    found = run_comparison(bags, [path, TREES], folds, out=tmp_path / "out")
    assert "the macro AUROC of a fold leaves out a label without an AUROC: q (1)" in found.notes
    part = found.predictions[found.predictions["method"] == TREES]
    scores = part[["score_p", "score_q"]].to_numpy().reshape(3, 20, 2)
    areas = [class_aurocs(values[fold.test], own) for fold, own in zip(folds, scores)]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    table = page[page.index("AUROC of each class or label") :].split("</table>")[0]
    for expected in np.nanmean(areas, axis=0):
        assert f"{expected:.3f}" in table


@pytest.mark.parametrize(("target", "grouped"), [("multiclass", False), ("survival", True)])
def test_a_single_fold_has_the_intervals_of_its_test_bags(target, grouped, tmp_path):
    bags = outcome_bags(target, 80, groups=[f"g{i // 2}" for i in range(80)] if grouped else None)
    fold, names = Fold(0, 0, np.arange(40), np.arange(40, 80)), ["first-feature", TREES]
    found = run_comparison(bags, names, [fold], out=tmp_path / "out")
    kind, groups = target_of(bags), bags.groups[fold.test] if grouped else None
    values, shape = kind.values(bags)[fold.test], (-1,) if kind.count == 1 else (-1, kind.count)
    by_method = found.predictions.groupby("method", sort=False)
    a, b = (part[kind.score_columns].to_numpy().reshape(shape) for _, part in by_method)
    first, second = found.summary.to_dict("records")
    for row, scores in ((first, a), (second, b)):
        own = judging.estimate(target, values, scores, groups=groups)
        assert (row[f"{kind.metric}_low"], row[f"{kind.metric}_high"]) == pytest.approx((own.low, own.high))
    expected = judging.difference(target, values, b, a, groups=groups)[:3]
    assert tuple(second[f"difference{end}"] for end in ("", "_low", "_high")) == pytest.approx(expected)
    assert "infinitesimal jackknife" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_folds_that_rank_or_teach_nothing_are_left_out_and_counted():
    bags = outcome_bags("survival")
    event, censored = (np.flatnonzero(bags.outcome.values[:, 1] == kind) for kind in (1, 0))
    folds = repeated_folds(bags, repeats=1, folds=3)
    folds.append(Fold(0, 3, np.setdiff1d(np.arange(60), censored[:4]), censored[:4]))
    folds.append(Fold(0, 4, censored, event))
    names = [COX, "first-feature"]
    found = run_comparison(bags, names, folds)
    assert found.trials["status"].tolist() == (["ok"] * 3 + ["unranked-test", "unfit-train"]) * 2
    assert found.summary[["unranked", "unfit", "no_validation", "diverged"]].values.tolist() == [[1, 1, 0, 0]] * 2
    alone = run_comparison(bags, names, folds[:3])
    assert found.summary["c_index"].tolist() == alone.summary["c_index"].tolist()
    assert "1 folds left out, whose test part holds no two bags that their labels order" in found.markdown()
    with pytest.raises(BagDataError, match="Expected a fold with enough training bags"):
        run_comparison(bags, names, folds[3:])


def test_folds_that_cannot_spare_validation_bags_are_told():
    bags = bags_with("multiclass", [0, 0, 1, 1, 0, 0, 1, 1], ["a", "b"])
    folds = repeated_folds(bags, repeats=1, folds=2)
    with pytest.raises(BagDataError, match=r"enough bags for validation bags, got none of 2.*nothing to choose"):
        run_comparison(bags, ["ce-mean", "midam-att"], folds, settings=FEW)


@pytest.fixture(autouse=True)
def first_feature(monkeypatch):
    """A baseline of somebody's, by its name."""
    monkeypatch.setitem(BASELINES._added, "first-feature", FirstFeature)


class FirstFeature(Baseline):
    """A baseline of somebody's: the mean of the first feature, of each column."""

    serves = frozenset({"labels", "classes", "survival"})

    def score(self, bags, trial):
        """Means of the bags."""
        means = np.array([bags[i][:, 0].mean() for i in trial.score], dtype=float)
        columns = target_of(bags).count
        return means if columns == 1 else means[:, None] * np.arange(1, columns + 1)


def test_a_baseline_of_ones_own_says_what_it_serves():
    bags = outcome_bags("ordinal")
    with pytest.raises(ConfigError, match=r"got first-feature; name midam"):
        run_comparison(bags, ["first-feature", TREES], repeated_folds(bags, repeats=1, folds=2))


def test_missing_values_are_filled_from_the_training_bags_of_each_fold():
    bags, rng = outcome_bags("continuous"), np.random.default_rng(0)
    rows = np.where(rng.random(bags.instances.shape) < 0.1, np.nan, bags.instances)
    gaps = Bags.from_arrays(rows, np.repeat(np.arange(60), bags.sizes), outcome=bags.outcome, missing=True)
    folds = repeated_folds(gaps, repeats=1, folds=2)
    with pytest.warns(UserWarning, match="the mean of the training bags of each fold"):
        found = run_comparison(gaps, ["midam", TREES], folds, settings=FEW.replace(impute="mean"), **ALONE)
    assert found.summary["folds"].tolist() == [2, 2]


@pytest.mark.parametrize("method", ["midam-att", "cross-entropy+vrsp+attention"])
def test_candidates_that_no_method_chooses_from_are_told(method):
    options = Options(lrs="0.05", margins="0.1,0.5,1.0", select="best")
    with pytest.warns(UserWarning, match="--lrs choose nothing here"):
        _warn_of_unused(options, ["midam", TREES])
    _warn_of_unused(options, ["midam", method])
