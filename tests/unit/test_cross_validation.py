"""Cross-validation as the answer of a run: folds, what they see, their files, and a stopped run."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from tests import quick
from tests.quick import usual

from midam.cli import main
from midam.data.bags import Bags
from midam.errors import BagDataError, CheckpointError, ConfigError, LeakageError, RunStoppedError
from midam.evaluate.calibrate import calibration_line, score_logits
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.auto.candidates import make_candidate
from midam.methods.callbacks import Callbacks
from midam.methods.method import Fitted, Folds
from midam.methods.names import make_method
from midam.runs import load_run
from midam.runs.cross_validation import preparing, train_folds
from midam.runs.data import SplitBags, read_data, split_data
from midam.runs.fit import fit_run, resume_run
from midam.runs.folder import RunFolder
from midam.runs.folds import choose_folds, fold_trials
from midam.runs.results import RunEvaluation
from midam.settings import Settings
from midam.targets import OutOfFold, target_of
from midam.train.side import Trial

pytestmark = pytest.mark.filterwarnings("ignore::midam.errors.Note")
SITES = ["--label-column", "label", "--ignore", "grade,time,event,kind,patient", "--folds", "site"]
FEW = {"epochs": 2, "members": 1, "num_positive": 4, "num_negative": 4, "baseline": False}


@pytest.fixture(scope="module", autouse=True)
def _usual_folds():
    with quick.usual_folds():
        yield


def frame(bags=40, *, seed=0):
    """A table of bags, two a patient, with sites, several kinds of labels, a gap and a category."""
    rng, rows = np.random.default_rng(seed), []
    for bag in range(bags):
        label, site = bag // 2 % 2, "ABC"[bag // 2 % 3]
        for _ in range(int(rng.integers(2, 5))):
            x = rng.normal(size=3) + label
            known = {"bag": f"b{bag}", "patient": f"p{bag // 2}", "site": site, "label": label}
            known |= {"grade": bag % 3, "time": 1 + bag + 30 * (1 - label), "event": bag % 2, "kind": "uvw"[bag % 3]}
            rows.append(known | dict(zip("xyz", x)) | ({"x": None} if rng.random() < 0.1 else {}))
    return pd.DataFrame(rows)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    frame().to_csv(path, index=False)
    return path


def bags_of(count=40, positives=20, **more):
    rng = np.random.default_rng(0)
    labels = (np.arange(count) < positives).astype(int)
    return Bags.from_list([rng.normal(size=(3, 4)) + y for y in labels], labels).replace(**more)


def settings(*ignore, **more):
    ignored = ["site", "grade", "time", "event", *ignore]
    return Settings(**FEW, label_column="label", groups="patient", ignore=ignored, **more)


def plain():
    ignored = ["site", "grade", "time", "event", "kind"]
    return Settings(label_column="label", groups="patient", ignore=ignored, impute="zero")


def test_few_bags_are_cross_validated_and_others_held_out():
    few, many = bags_of(), bags_of(501, 250)
    assert np.bincount(choose_folds(few, Settings(), at_once=True)).tolist() == [8] * 5
    assert choose_folds(many, Settings(), at_once=True) is None
    assert choose_folds(bags_of(501, 50), Settings(), at_once=True) is not None
    assert choose_folds(bags_of(501, 50), Settings(), at_once=False) is None
    assert choose_folds(few.replace(splits=["train", "test"] * 20), Settings(), at_once=True) is None
    for held_out in ({"test_fraction": 0.2}, {"folds": 0}, {"select": "best"}, {"patience": 3}):
        assert choose_folds(few, Settings(**held_out), at_once=True) is None
    assert choose_folds(many, Settings(folds=3), at_once=False).max() == 2
    for clash in ({"test_fraction": 0.2}, {"select": "best"}):
        with pytest.raises(ConfigError, match="got both"):
            choose_folds(few, Settings(folds=3, **clash), at_once=True)
    with pytest.raises(ConfigError, match="folds"):
        Settings(folds=1)


def test_fractions_that_splits_would_leave_unused_are_refused():
    tested, validated = (bags_of().replace(splits=["train", name] * 20) for name in ("test", "val"))
    clashes = [(tested, "test_fraction", 0.5), (tested, "test_fraction", 0.0), (validated, "val_fraction", 0.3)]
    for bags, name, value in clashes:
        for folds in ({}, {"folds": 0}):
            with pytest.raises(ConfigError, match=rf"splits or `{name}`, got both \(in .*\); leave one out\.$"):
                choose_folds(bags, Settings(**{name: value}, **folds), at_once=True)
    assert choose_folds(tested, Settings(val_fraction=0.3), at_once=True) is None  # of the training bags


def test_folds_are_disjoint_by_group_and_as_many_as_a_rare_class_allows():
    groups = np.repeat(np.arange(20), 2).astype(str)
    bags = bags_of(40, 6, groups=groups)  # three positive groups
    folds = choose_folds(bags, Settings(), at_once=True)
    assert len(np.unique(folds)) == 3
    assert all(len(set(folds[groups == group])) == 1 for group in groups)
    assert all(len(set(bags.labels[folds == fold])) == 2 for fold in range(3))
    with pytest.raises(BagDataError, match="Expected 5 folds"):
        choose_folds(bags, Settings(folds=5), at_once=True)
    assert choose_folds(bags_of(40, 1), Settings(), at_once=True) is None


def test_each_site_is_a_fold():
    sites = np.array(["A", "B", "C", "D"] * 10)
    folds = choose_folds(bags_of(sites=sites), Settings(folds="site"), at_once=True)
    assert [set(sites[folds == fold]) for fold in range(4)] == [{"A"}, {"B"}, {"C"}, {"D"}]
    with pytest.raises(BagDataError, match="A alone"):
        choose_folds(bags_of(sites=["A"] * 40), Settings(folds="site"), at_once=True)
    with pytest.raises(BagDataError, match="none without A"):
        choose_folds(bags_of(sites=["A"] * 20 + ["B"] * 20), Settings(folds="site"), at_once=True)
    with pytest.raises(BagDataError, match="none"):
        choose_folds(bags_of(), Settings(folds="site"), at_once=True)
    with pytest.raises(BagDataError, match="got none for 10 of 40"):
        choose_folds(bags_of(sites=np.where(sites == "A", "", sites)), Settings(folds="site"), at_once=True)
    with pytest.raises(BagDataError, match="got one label in each"):
        choose_folds(bags_of(sites=np.repeat(["A", "B", "C", "D"], 10)), Settings(folds="site"), at_once=True)
    patients = bags_of(sites=sites, groups=np.repeat(np.arange(20), 2).astype(str))
    with pytest.raises(LeakageError, match="0 in A and B"):
        choose_folds(patients, Settings(folds="site"), at_once=True)


def test_a_site_with_more_positive_bags_keeps_its_higher_scores():
    rng, sites = np.random.default_rng(0), np.repeat(["A", "B", "C"], 200)
    labels = (rng.random(600) < np.repeat([0.1, 0.5, 0.9], 200)).astype(int)
    scores = expit(rng.normal(2.0 * labels - 1.0))
    bags = Bags.from_list([[[0.0]]] * 600, labels).replace(sites=sites)
    folds = choose_folds(bags, Settings(folds="site"), at_once=True)
    parts = SplitBags(bags, np.full(600, "train"), folds=folds, by_site=True)
    scored = OutOfFold(labels, scores, folds)
    config = Settings(threshold="youden").resolve((1,))
    evaluation = RunEvaluation(Fitted(None, config, out_of_fold=scored), parts, scores)
    share = {name: labels[sites == name].mean() for name in "ABC"}
    for name, entry in evaluation.by_site().items():
        assert abs(entry["called"] / 200 - (0.16 + 0.68 * share[name])) < 0.1, name
    means = [evaluation.decided.predict(scores)[sites == name].mean() for name in "ABC"]
    assert means[0] < means[1] < means[2]


def test_a_fold_never_sees_its_own_bags(tmp_path, table):
    """Labels, values and gaps of a fold may be anything: its scores stay, those of the others change."""
    config = settings("kind", impute="median")
    raw = read_data(str(table), config)
    folds = np.unique(raw.groups, return_inverse=True)[1] % 3
    scores = []
    for number, damaged in enumerate((False, True)):
        bags = raw
        if damaged:
            rng, inside = np.random.default_rng(1), folds == 0
            rows = np.concatenate([np.arange(s, s + n) for s, n in zip(raw.starts[inside], raw.sizes[inside])])
            x = raw.instances.copy()
            x[rows[::2]] = np.nan
            labels = np.where(inside, rng.permutation(raw.labels), raw.labels)
            bags = raw.replace(instances=x, labels=labels)
        with warnings.catch_warnings(action="ignore"):
            parts = split_data(bags, config, folds=folds)
        folder = RunFolder(tmp_path / str(number))
        folder.root.mkdir()
        first = fold_trials(folds, seed=0)[0]
        seen = preparing(parts, config)(first).subset(first.train)
        scores.append(seen.instances[seen.rows()])
        scored = train_folds(parts, config.resolve(parts.bags.instance_shape), folder.folds)
        scores.append(scored.scores)
    # What the first fold trains on is filled and coded without the first fold's own values.
    np.testing.assert_array_equal(scores[0], scores[2])
    others = folds > 0
    assert (scores[1][others] != scores[3][others]).any()


def test_a_run_reports_scores_of_models_that_have_not_seen_the_bag(tmp_path, table, capsys):
    words = ["fit", str(table), "--label-column", "label", "--groups", "patient", "--out", str(tmp_path / "run")]
    words += ["--ignore", "site,grade,time,event", "--impute", "median", "--method", "bag-statistics-extratrees"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "cross-validated in 5 folds of groups: each of the 40 bags is scored by a model that has not seen it" in out
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    rows = pd.read_csv(tmp_path / "run/predictions.csv")
    assert set(rows["split"]) == {"out_of_fold"}
    assert rows.groupby("group")["fold"].nunique().eq(1).all()
    assert summary["folds"] == rows["fold"].nunique() == 5
    found = summary["out_of_fold"]
    assert found["auroc"] == pytest.approx(auroc(rows["label"], rows["score"], folds=rows["fold"]), abs=1e-9)
    assert found["auroc_ci95"][0] <= found["auroc"] <= found["auroc_ci95"][1]
    # A threshold is chosen on the other folds, so the classes are not those of one threshold.
    assert ((rows["class"] == 1) == (rows["label"] == 1)).mean() > 0.6
    run = load_run(tmp_path / "run")
    assert set(run.splits.values()) == {"train"}
    assert run.settings.run.folds == 5
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(table)]) == 0
    assert "no test: the model has seen them" in capsys.readouterr().out


def test_the_model_of_a_cross_validated_run_is_that_of_all_bags(tmp_path, table):
    summary = fit_run(str(table), settings(impute="zero"), RunFolder(tmp_path / "run"), method="midam")
    assert summary["by_weights"]["last"]["out_of_fold_auroc"] == summary["out_of_fold"]["auroc"]
    fit_run(
        str(table),
        settings(impute="zero", test_fraction=0.0, val_fraction=0.0),
        RunFolder(tmp_path / "all"),
        method="midam",
    )
    one, other = (load_run(tmp_path / name).model.state_dict() for name in ("run", "all"))
    assert all((one[key] == other[key]).all() for key in other)


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("grade", {"target": "ordinal", "label_column": "grade"}),
        ("kind", {"target": "multiclass", "label_column": "kind"}),
        ("time", {"target": "survival", "label_column": "time,event"}),
    ],
)
def test_other_targets_are_cross_validated(tmp_path, table, label, options):
    ignored = [
        name for name in ("site", "grade", "time", "event", "kind", "label") if name not in options["label_column"]
    ]
    config = Settings(**FEW, groups="patient", impute="zero", ignore=ignored, **options)
    summary = fit_run(str(table), config, RunFolder(tmp_path / "run"), method="midam")
    assert summary["out_of_fold"]["bags"] == 40
    assert "test" not in summary
    assert len(pd.read_csv(tmp_path / "run/predictions.csv")["fold"].unique()) == summary["folds"]


def test_a_stopped_cross_validation_continues_to_the_same_bytes(tmp_path, table):
    config = settings(impute="zero")
    fit_run(str(table), config, RunFolder(tmp_path / "whole"), method="midam")

    def stop_after(count):
        left = [count]

        def on_bags(_):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        return on_bags

    folder = RunFolder(tmp_path / "stopped")
    with pytest.raises(RunStoppedError):
        fit_run(str(table), config, folder, method="midam", callbacks=Callbacks(on_bags=stop_after(2)))
    assert len(folder.folds.read_text().splitlines()) == 2
    with pytest.raises(RunStoppedError):
        resume_run(None, folder, callbacks=Callbacks(on_bags=stop_after(4)))
    resume_run(None, folder)
    for name in ("predictions.csv", "folds.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for damage, match in (
        ("{]\n", "line 1"),
        ('{"fold": 0, "digest": "", "scores": [2.0]}\n', "fold"),
        ('{"fold": 9, "digest": "", "scores": []}\n', "the bags, groups and folds that the run was started with"),
    ):
        folder.folds.write_text(damage)
        with pytest.raises(CheckpointError, match=match):
            resume_run(None, folder)


def test_corrected_patients_end_what_was_begun_with_others(tmp_path, table):
    """Scores of folds that were other bags never count as those of the new folds, nor does a patient leak."""

    def stop(*_):
        raise KeyboardInterrupt

    folder, config = RunFolder(tmp_path / "run"), settings("kind", impute="zero")
    with pytest.raises(RunStoppedError):
        fit_run(str(table), config, folder, method="midam", callbacks=Callbacks(on_bags=stop))
    table.write_text(table.read_text().replace(",p3,", ",p9,"))
    with pytest.raises(CheckpointError, match="Expected the bags and splits that the run was started with"):
        resume_run(None, folder)
    groups = np.repeat(np.arange(20), 2).astype(str)
    bags, candidate = bags_of(groups=groups), make_candidate("bag-statistics-logistic", (4,))
    others = [bags.replace(groups=np.roll(groups, 1)), bags.replace(groups=None)]
    assert len({candidate.digest(one, seed=0) for one in (bags, *others)}) == 3, "nor those of a candidate of auto"


def test_splits_that_changed_end_a_run_that_was_begun_with_others(tmp_path):
    data, path = frame().assign(split=lambda rows: rows.bag.str[1:].astype(int) // 4 % 5), tmp_path / "t.csv"
    names = {0: "val", 1: "test"}
    data.assign(split=data.split.map(lambda part: names.get(part, "train"))).to_csv(path, index=False)
    folder, config = RunFolder(tmp_path / "run"), settings("kind", split="split", impute="zero")

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(RunStoppedError):
        fit_run(str(path), config, folder, method="midam", callbacks=Callbacks(on_epoch=stop))
    swapped = {0: "test", 1: "val"}
    data.assign(split=data.split.map(lambda part: swapped.get(part, "train"))).to_csv(path, index=False)
    with pytest.raises(CheckpointError, match=r"Expected the bags and splits that the run was started with"):
        resume_run(None, folder)


def test_a_run_of_sites_scores_bags_with_and_without_the_column(tmp_path, table, capsys):
    run = tmp_path / "run"
    words = [
        "--label-column",
        "label",
        "--ignore",
        "grade,time,event,kind,patient",
        "--folds",
        "site",
        "--impute",
        "zero",
    ]
    assert main(["fit", str(table), *words, "--method", "bag-statistics-logistic", "--out", str(run)]) == 0
    new = tmp_path / "new.csv"
    frame(seed=1).drop(columns=["site", "patient", "label", "grade", "time", "event", "kind"]).to_csv(new, index=False)
    assert main(["predict", str(run), str(new), "--out", str(tmp_path / "s.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "s.csv")) == 40
    assert main(["predict", str(run), str(table), "--out", str(tmp_path / "u.csv")]) == 0
    words[words.index("site")] = "place"
    assert main(["fit", str(table), *words, "--out", str(tmp_path / "other")]) == 2
    assert "'place' of --folds" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "check"])
def test_bags_without_the_groups_that_the_run_has_are_counted_with_a_warning(tmp_path, table, capsys, command):
    run, new = tmp_path / "run", tmp_path / "new.csv"
    fit_run(str(table), plain(), RunFolder(run), method="bag-statistics-logistic")
    known = frame(seed=1).drop(columns=["site", "grade", "time", "event", "kind"])
    for name, rows in {"without": known.drop(columns="patient"), "with": known}.items():
        rows.to_csv(new, index=False)
        assert main([command, str(run), str(new)]) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert ("intervals count bags; if some are of one group" in told) == (name == "without")


def test_a_finished_run_is_kept_if_its_page_cannot_be_drawn(tmp_path, table, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no page")

    monkeypatch.setattr("midam.runs.report.write_run_report", fail)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(RuntimeError, match="no page"):
        fit_run(str(table), plain(), folder, method="bag-statistics-logistic")
    assert folder.summary.exists()
    assert folder.model.exists()


def _noisy_bags(count, seed):
    """Bags of which one in seven has the other label, and half of the instances of a positive bag differ."""
    rng, rows, labels = np.random.default_rng(seed), [], np.arange(count) % 2
    for label in np.where(rng.random(count) < 0.15, 1 - labels, labels):
        rows.append(rng.normal(size=(int(rng.integers(2, 6)), 3)))
        rows[-1][:, :2] += label * (rng.random((len(rows[-1]), 1)) < 0.5) * np.array([2.0, 1.0])
    return Bags.from_list(rows, labels)


@pytest.mark.parametrize("name", ["bag-statistics-logistic", "mean-map-svm"])
def test_the_final_model_has_the_scale_of_the_folds_whatever_strength_each_chose(name, monkeypatch):
    monkeypatch.setattr("midam.methods.baselines._KERNEL_C", usual["_KERNEL_C"])
    monkeypatch.setattr("midam.methods.baselines._MAP_GAMMAS", np.ones(1))
    new = _noisy_bags(1000, 101)
    for seed in range(2 if name == "bag-statistics-logistic" else 1):  # a kernel takes seconds
        bags = _noisy_bags(100, seed)
        target = target_of(bags)
        folds = target.folds(target.values(bags), folds=5, seed=seed)
        trials = Folds([Trial(np.flatnonzero(folds != k), np.flatnonzero(folds == k), seed) for k in range(5)])
        fitted = make_method(name).fit(bags, None, Settings(seed=seed).resolve((3,)), folds=trials)
        scored, scores = fitted.out_of_fold, predict(fitted.model, new)
        logits, found = score_logits(scored.scores), score_logits(scores)
        spreads = np.array([logits[folds == k].std() for k in range(5)]) / found.std()
        assert 0.4 < spreads.min() < spreads.max() < 2.5, "20 bags know a spread to a factor of about 1.4"
        assert abs(logits.mean() - found.mean()) < 0.3 * found.std()
        slope, _ = calibration_line(new.labels, target.cross_decide(scored).decision.predict(scores))
        assert 1 / 3 < slope < 3, "100 bags know a slope to a factor of about 2"


def test_several_processes_hold_bags_out(tmp_path, table):
    from midam.processes import Processes
    from midam.runs.fit import _held_out

    two = Processes(devices=2)
    assert _held_out(Settings(), two).run.folds == 0
    with pytest.raises(ConfigError, match="one process"):
        _held_out(Settings(folds=5), two)


def test_split_bags_without_folds_are_as_before():
    parts = split_data(bags_of(), Settings())
    assert parts.folds is None
    assert isinstance(parts, SplitBags)
    assert sorted(set(parts.splits.tolist())) == ["test", "train", "val"]


def test_a_finished_run_knows_another_copy_of_its_data(tmp_path, table):
    """Fills and codes are those of all bags, also when the copy is compared."""
    run, copy, method = RunFolder(tmp_path / "run"), tmp_path / "copy.csv", "bag-statistics-extratrees"
    config = Settings(
        label_column="label", groups="patient", impute="median", ignore=["site", "grade", "time", "event"]
    )
    fit_run(str(table), config, run, method=method)
    copy.write_bytes(table.read_bytes())
    with pytest.warns(UserWarning, match="is finished"):
        assert resume_run(str(copy), run)["folds"] == 5
    frame(seed=1).to_csv(copy, index=False)
    with pytest.raises(CheckpointError, match="bags"):
        resume_run(str(copy), run)


@pytest.mark.parametrize("name", ["bag-statistics-logistic", "mean-map-svm"])
def test_without_inner_folds_the_scores_keep_the_share_of_positive_bags(name):
    bags = bags_of(20, 1)  # one positive bag: no fold can be chosen on
    scores = predict(make_method(name).fit(bags, None, Settings().resolve((4,))).model, bags)
    assert np.median(scores) < 0.4
