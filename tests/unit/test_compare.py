"""Folds, statistics, trials, baselines and selection of a comparison."""

import json
import math

import numpy as np
import pytest
import torch

from midam.cli.compare import parse_cv
from midam.compare import Fold, Grid, Workers, known_methods, repeated_folds, run_comparison
from midam.compare.folds import check_folds, fold_remarks, validation_part
from midam.compare.methods import find_methods
from midam.compare.plan import LEARNING_RATES, Selection, group_results, plan, run_task
from midam.compare.summary import corrected_interval, stopped_early
from midam.compare.trials import open_trials, trial_columns, write_trials
from midam.data.bags import Bags
from midam.data.missing import fill_values, impute
from midam.data.statistics import bag_statistics
from midam.errors import BagDataError, CheckpointError, ConfigError, LeakageError, OneClassError
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods import baselines
from midam.methods.baselines import MeanMapSVM
from midam.methods.store import TrialStore
from midam.registry import BASELINES, load_plugins
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.peers import PEERS, libauc_folder
from studies.tabular.instance_methods import set_kernels

QUICK = Settings(epochs=2)
OTHERS = ("rgb", "voxel", "patch", "libauc", "torchmil", "mikit")  # of images, and of other libraries


def witness_bags(count=60, groups=None, seed=3, shift=2.5):
    """Bags of 4 instances of 5 features; one instance of a positive bag is shifted."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(count):
        x = rng.normal(size=(4, 5))
        x[0] += shift * (i % 2)
        parts.append(x.astype(np.float32))
    return Bags.from_list(parts, [i % 2 for i in range(count)], groups=groups)


def halves(bags):
    index = np.arange(len(bags))
    return index[: len(bags) // 2], index[len(bags) // 2 :]


def test_the_interval_equals_a_hand_computed_one():
    # Mean 0.9, s^2 = 0.01, t(0.975, 2) = 4.302653: 4.302653 * sqrt((1/3 + 1/2) * 0.01) = 0.392777.
    found = corrected_interval([0.8, 0.9, 1.0], ratio=0.5)
    assert found.mean == pytest.approx(0.9)
    assert (found.low, found.high) == (pytest.approx(0.507223, abs=1e-6), pytest.approx(1.292777, abs=1e-6))
    assert found.trials == 3


def test_without_spread_there_is_no_interval():
    for values in ([0.7], [1.0, 1.0, 1.0]):
        found = corrected_interval(values, ratio=0.1)
        assert found.mean == values[0]
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert math.isnan(corrected_interval([], ratio=0.1).mean)


@pytest.mark.parametrize("text", ["3", "x", "0x5", "2x1", "2x", "-1x5", "1.5x2"])
def test_a_strange_cv_is_refused(text):
    with pytest.raises(ConfigError, match="REPEATSxFOLDS"):
        parse_cv(text)


def test_weights_of_bags_are_refused_because_not_every_method_takes_them():
    bags = witness_bags()
    with pytest.raises(ConfigError, match="without weights"):
        run_comparison(bags.replace(weights=np.ones(len(bags))), ["midam", "mean-map-svm"], [])


def test_folds_are_disjoint_by_group_and_each_bag_is_tested_once_a_repeat():
    bags = witness_bags(groups=[f"p{i // 4}" for i in range(60)])
    folds = repeated_folds(bags, repeats=2, folds=5)
    for repeat in (0, 1):
        tested = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        assert sorted(tested) == list(range(60))
    for fold in folds:
        assert not set(bags.groups[fold.train]) & set(bags.groups[fold.test])
        inner, val = validation_part(bags, fold.train, fraction=0.2, seed=fold.repeat)
        assert sorted([*inner, *val]) == sorted(fold.train)
        assert not set(bags.groups[inner]) & set(bags.groups[val])


def few_groups(positive):
    """30 positive bags of so many patients, 30 negative ones of a patient each."""
    groups = [f"p{i % positive}" for i in range(30)] + [f"n{i}" for i in range(30)]
    bags = witness_bags()
    order = np.argsort(-bags.labels, kind="stable")
    return Bags.from_list([bags[i] for i in order], bags.labels[order], groups=groups)


def test_few_positive_groups_reduce_the_folds_with_one_warning():
    bags = few_groups(7)
    with pytest.warns(UserWarning, match="10 folds reduced to 3") as caught:
        folds = repeated_folds(bags, repeats=2, folds=10)
    assert len(caught) == 1
    assert {fold.fold for fold in folds} == {0, 1, 2}
    for fold in folds:
        assert len(set(bags.groups[fold.test][bags.labels[fold.test] == 1])) >= 2
        assert bags.labels[fold.test].min() == 0
    assert fold_remarks(bags, folds) == []


def test_folds_that_cannot_test_two_positive_groups_are_said(tmp_path):
    bags = few_groups(3)
    with pytest.warns(UserWarning, match="4 folds reduced to 2"):
        folds = repeated_folds(bags, repeats=1, folds=4)
    assert fold_remarks(bags, folds) == ["1 of 2 folds rank a single group above others"]
    options = {"out": tmp_path / "out", "notes": ["4 folds were asked for"]}
    found = run_comparison(bags, ["bag-statistics-logistic", "mean-map-svm"], folds, **options)
    text = (tmp_path / "out" / "summary.md").read_text()
    for note in ("4 folds were asked for", "1 of 2 folds rank a single group above others"):
        assert note in found.notes
        assert f"- {note}." in text


def test_more_folds_than_bags_of_a_class_are_reduced_and_one_of_a_class_is_refused():
    with pytest.warns(UserWarning, match="31 folds reduced to 15"):
        assert len(repeated_folds(witness_bags(), repeats=1, folds=31)) == 15
    with pytest.raises(BagDataError, match=r"two groups that the labels rank above others.*got 1 and \d+ .*add bags"):
        repeated_folds(few_groups(1), repeats=1, folds=5)


@pytest.mark.parametrize(
    "folds",
    [
        [],
        [(0, 0, [0, 1], [2]), (0, 0, [0, 2], [1])],
        [(0, 0, [0, 1], [1, 2])],
        [(0, 0, [0, 1], [60])],
        [(0, 0, [], [1])],
    ],
)
def test_folds_that_are_none_are_refused(folds):
    with pytest.raises(ConfigError):
        check_folds(witness_bags(), folds)


def test_folds_of_ones_own_that_share_a_patient_are_refused():
    bags = Bags.from_list([np.full((2, 1), i) for i in range(6)], [0, 1] * 3, groups=list("aabbcc"))
    whole = Fold(0, 0, np.array([0, 1, 2, 3]), np.array([4, 5]))
    assert len(check_folds(bags, [whole])) == 1
    with pytest.raises(LeakageError, match="c"):
        check_folds(bags, [whole, Fold(0, 1, np.array([0, 1, 2, 4]), np.array([3, 5]))])


def test_bag_statistics():
    bags = Bags.from_list([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 5.0]]])
    assert bag_statistics(bags, np.array([1, 0])).tolist() == [[5, 5, 5, 5, 5, 5, 0, 0], [2, 4, 1, 2, 3, 6, 1, 2]]


def test_the_set_kernel_equals_its_definition():
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(n, 3)) for n in (1, 4, 2)]

    def raw(x, z):
        return sum(math.exp(-0.7 * float(((a - b) ** 2).sum())) for a in x for b in z)

    expected = [[raw(x, z) / math.sqrt(raw(x, x) * raw(z, z)) for z in bags[1:]] for x in bags]
    np.testing.assert_allclose(set_kernels(bags, bags[1:], gammas=[0.7])[0], expected, rtol=1e-9)


def test_the_mean_map_is_close_to_the_set_kernel():
    rng, labels = np.random.default_rng(0), np.arange(12) % 2
    bags = Bags.from_list([rng.normal(size=(4, 3)) + label for label in labels], labels)
    model = MeanMapSVM().scorer(bags, seed=0)
    rows = np.split(model.standardized(torch.as_tensor(bags.instances)).double().numpy(), 12)
    gamma = float(model.pooling.scales[0]) ** 2 / 2
    mean = torch.stack([model.pooling(torch.as_tensor(x))[1].mean(dim=0) for x in rows])
    found = model.pooling.rows(mean).numpy()
    np.testing.assert_allclose(found @ found.T, set_kernels(rows, rows, gammas=[gamma])[0], rtol=0, atol=0.12)
    with pytest.raises(ConfigError, match="at most 2000 training bags for mean-map-svm, got 2002"):
        MeanMapSVM().scorer(Bags.from_list([np.zeros((1, 3))] * 2002, [0, 1] * 1001), seed=0)


def test_the_mean_map_of_a_large_bag_is_that_of_some_of_its_instances(monkeypatch):
    rng, labels = np.random.default_rng(0), np.arange(12) % 2
    bags = Bags.from_list([rng.normal(size=(count, 3)) for count in np.arange(12) % 4 + 1], labels)
    model = MeanMapSVM().scorer(bags, seed=0)
    whole = predict(model, bags)
    monkeypatch.setattr(baselines, "_MAP_INSTANCES", 3)
    monkeypatch.setattr(baselines, "_MAP_BAGS", 5)
    some = baselines._of_some(model, bags, np.random.default_rng(1))
    assert np.array_equal(some[bags.sizes <= 3], whole[bags.sizes <= 3])
    for number in np.flatnonzero(bags.sizes == 4):
        parts = [
            predict(model, Bags.from_list([np.delete(bags[number], left_out, axis=0)]))[0] for left_out in range(4)
        ]
        assert np.isclose(parts, some[number], atol=1e-9).sum() == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "auto" else [])
        for name in BASELINES.names()
        if not name.startswith(OTHERS) and "binary" in BASELINES.find(name).serves
    ],
)
def test_baselines_beat_chance_and_repeat(name):
    bags = witness_bags(100)
    train, test = halves(bags)
    baseline = BASELINES.find(name)()
    scores = baseline.score(bags, Trial(train, test, 0))
    assert auroc(bags.labels[test], scores) > 0.8
    assert scores.tolist() == baseline.score(bags, Trial(train, test, 0)).tolist()


@pytest.mark.libauc
@pytest.mark.parametrize("name", ["libauc-midam-att", pytest.param("libauc-midam-smx", marks=pytest.mark.long)])
def test_libauc_learns(name, capsys):
    assert libauc_folder() is not None
    bags = witness_bags(60, shift=6.0)
    train, test = halves(bags)
    assert auroc(bags.labels[test], PEERS[name]().score(bags, Trial(train, test, 0))) > 0.7
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("package", "name"), [("torchmil", "torchmil-abmil"), ("milearn", "mikit-mean"), ("milearn", "mikit-attention")]
)
def test_other_libraries_learn(package, name):
    pytest.importorskip(package)
    bags = witness_bags(60, shift=6.0)
    train, test = halves(bags)
    assert auroc(bags.labels[test], PEERS[name]().score(bags, Trial(train, test, 0))) > 0.7


def test_names_are_checked():
    assert len(set(known_methods())) == len(known_methods())
    for names, words in (
        (["midam"], "at least two"),
        (["midam", "midam"], "twice"),
        (["midam", "mean-map-swm"], "did you mean 'mean-map-svm'"),
    ):
        with pytest.raises(ConfigError, match=words):
            find_methods(names)


def test_a_candidate_is_chosen_by_validation_bags_alone():
    bags = witness_bags()
    selection = Selection(QUICK, [0.5, 1e-6], [1.0], "best")
    methods = find_methods(["ce-mb-mean", "midam"])
    (fold,) = repeated_folds(bags, repeats=1, folds=2)[:1]
    _, groups = plan(bags, methods, [fold], selection)
    tasks = groups[0].tasks
    assert [task.config.training.lr for task in tasks] == [0.5, 1e-6]
    inner, val = tasks[0].parts[0]
    outcomes = [run_task(bags, task)[0][0] for task in tasks]
    for task, outcome in zip(tasks, outcomes, strict=True):
        trial, every = Trial(inner, np.concatenate([val, fold.test]), 0), range(1, task.config.training.epochs + 1)
        (result,) = train_trials(task.config, bags, [trial], after=every)
        areas = [auroc(bags.labels[val], row[: len(val)]) for row in result.scores]
        assert outcome.validation == (max(areas), pytest.approx(np.mean(areas)))
        epoch = outcome.columns["epoch"]
        assert areas[epoch - 1] == max(areas)
        assert outcome.columns["auroc"] == auroc(bags.labels[fold.test], result.scores[epoch - 1, len(val) :])
    # Turned labels of the test bags change the figure, and not the choice.
    labels = bags.labels.copy()
    labels[fold.test] = 1 - labels[fold.test]
    turned = Bags.from_list([bags[i] for i in range(len(bags))], labels)
    again = [run_task(turned, task)[0][0] for task in tasks]
    assert [(o.validation, o.columns["epoch"]) for o in again] == [(o.validation, o.columns["epoch"]) for o in outcomes]
    rows = [group_results(b, groups[0], [[o] for o in of])[0] for b, of in ((bags, outcomes), (turned, again))]
    assert [rows[0][key] for key in ("lr", "epoch")] == [rows[1][key] for key in ("lr", "epoch")]
    assert rows[1]["auroc"] == pytest.approx(1 - rows[0]["auroc"])


def test_with_nothing_to_choose_the_whole_training_part_trains():
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    options = {"settings": QUICK, "grid": Grid([0.05], [1.0], "last")}
    found = run_comparison(bags, ["midam-att", "midam"], folds, **options)
    trials = found.trials.set_index(["method", "fold"])
    for fold in folds:
        expected = train_trials(QUICK, bags, [Trial(f.train, f.test, 0) for f in folds])[fold.fold].scores[0]
        for method in ("midam-att", "midam"):
            assert trials.loc[(method, fold.fold), "auroc"] == auroc(bags.labels[fold.test], expected)
    assert trials["epoch"].eq(2).all()


def test_the_usual_learning_rates_go_by_the_optimizer():
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    for optimizer, lrs in LEARNING_RATES.items():
        settings = QUICK.replace(epochs=1, optimizer=optimizer, lr=None)
        found, named = (
            run_comparison(bags, ["midam-att", "midam"], folds, settings=settings, grid=grid)
            for grid in (Grid(margins=[1.0], select="last"), Grid(lrs, [1.0], "last"))
        )
        assert found.trials["lr"].isin([*lrs, settings.resolve(bags.instance_shape).training.lr]).all()
        assert found.trials["auroc"].equals(named.trials["auroc"])


def test_one_class_folds_are_reported_and_never_averaged():
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    positive, negative = np.flatnonzero(bags.labels == 1), np.flatnonzero(bags.labels == 0)
    folds += [
        Fold(0, 2, np.setdiff1d(np.arange(60), positive[:5]), positive[:5]),
        Fold(0, 3, negative[5:], np.concatenate([positive[:5], negative[:5]])),
    ]
    names = ["bag-statistics-logistic", "mean-map-svm"]
    found = run_comparison(bags, names, folds)
    alone = run_comparison(bags, names, folds[:2])
    assert found.trials["status"].tolist() == ["ok", "ok", "one-class-test", "one-class-train"] * 2
    assert found.summary["one_class"].tolist() == [2, 2]
    columns = ["folds", "auroc", "auroc_low", "difference", "paired_folds"]
    assert found.summary[columns].equals(alone.summary[columns])
    assert "2 folds left out, whose test or training part holds one class only" in found.markdown()


def test_the_summary_is_of_folds_and_pairs():
    bags = witness_bags(shift=1.0)
    folds = repeated_folds(bags, repeats=1, folds=3)
    found = run_comparison(bags, ["mean-map-svm", "bag-statistics-logistic"], folds)
    areas = found.trials.pivot_table(index="fold", columns="method", values="auroc")
    gaps = (areas["bag-statistics-logistic"] - areas["mean-map-svm"]).tolist()
    expected = corrected_interval(gaps, ratio=0.5)
    row = found.summary.iloc[1]
    assert (row["difference"], row["difference_low"], row["paired_folds"]) == pytest.approx((*expected[:2], 3))
    assert np.isfinite(expected.low)
    assert np.isnan(found.summary.iloc[0]["difference"])


def test_methods_near_chance_after_few_epochs_are_said_to_be_stopped_early(tmp_path):
    alike = Bags.from_list([np.ones((2, 3))] * 40, [0, 1] * 20)  # all scores are equal, the AUROC is 1/2
    folds, methods = repeated_folds(alike, repeats=1, folds=2), ["mean-map-svm", "midam-att", "midam"]
    how = {"grid": Grid([0.1], [1.0], "last")}
    found = run_comparison(alike, methods, folds, settings=Settings(epochs=2, members=1), out=tmp_path / "out", **how)
    said = "near chance after 2 epochs (100 are the default): midam-att, midam; train for longer"
    assert found.notes == [said]
    assert f"- {said}.\n" in (tmp_path / "out/summary.md").read_text()
    assert stopped_early(found.summary, methods, 100) == []
    assert stopped_early(found.summary.assign(auroc=[0.5, 0.9, np.nan]), methods[1:], 2) == []


@pytest.mark.parametrize("groups", [None, [f"p{i // 4}" for i in range(60)]])
def test_the_intervals_of_a_single_fold_are_of_its_test_bags(tmp_path, groups):
    bags = witness_bags(shift=1.0, groups=groups)
    train, test = halves(bags)
    train, test = (train[:28], np.concatenate([train[28:], test]))
    names = ["mean-map-svm", "bag-statistics-logistic"]
    found = run_comparison(bags, names, [Fold(0, 0, train, test)], out=tmp_path / "out")
    a, b = (part["score"].to_numpy() for _, part in found.predictions.groupby("method", sort=False))
    own = None if groups is None else bags.groups[test]
    first, second = found.summary.to_dict("records")
    areas = [auroc_interval(bags.labels[test], s, groups=own)[:2] for s in (a, b)]
    assert [(row["auroc_low"], row["auroc_high"]) for row in (first, second)] == areas
    expected = paired_delong(bags.labels[test], b, a, groups=own)[:3]
    columns = ("difference", "difference_low", "difference_high")
    assert tuple(second[name] for name in columns) == pytest.approx(expected)
    assert np.isnan(first["difference_low"])
    assert "One fold: intervals" in found.markdown()
    assert "One fold: intervals" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_no_usable_fold_is_an_error_and_writes_nothing(tmp_path):
    bags = witness_bags()
    positive = np.flatnonzero(bags.labels == 1)
    fold = Fold(0, 0, np.setdiff1d(np.arange(60), positive[:5]), positive[:5])
    with pytest.raises(BagDataError, match="none of 1"):
        run_comparison(bags, ["midam", "ce-att"], [fold], out=tmp_path / "out")
    only = Bags.from_list([bags[i] for i in positive], [1] * len(positive))
    with pytest.raises(OneClassError):
        run_comparison(only, ["midam", "ce-att"], [Fold(0, 0, np.arange(5), np.arange(5, 9))], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def row(**changes):
    values = dict.fromkeys(trial_columns("auroc"))
    values |= {"method": "midam", "repeat": 0, "fold": 1, "test_bags": 4, "test_positives": 2, "seed": 0, "auroc": 0.5}
    return {**values, "status": "ok", "scores": [0.25, 0.5, 0.5, 0.75], "instances": None, **changes}


def test_a_half_written_trial_is_dropped(tmp_path):
    path = tmp_path / "trials.jsonl"
    with open_trials(path) as trials:
        assert trials.rows == []
        trials.add([row(), row(fold=2, lr=0.1)])
    whole = path.read_text()
    path.write_text(whole + '{"method": "midam", "rep')
    with open_trials(path) as trials:
        assert trials.rows == [row(), row(fold=2, lr=0.1)]
    assert path.read_text() == whole
    write_trials(tmp_path / "trials.csv", trials.rows)
    assert (tmp_path / "trials.csv").read_text().splitlines() == [
        ",".join(trial_columns("auroc")),
        "midam,0,1,0.5,,,,,,4,2,0,ok",
        "midam,0,2,0.5,,,0.1,,,4,2,0,ok",
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"midam,0,3,0.5\n",
        b"7\n",
        b"\xff\n",
        *(
            json.dumps(changed).encode() + b"\n"
            for changed in (
                {"method": "midam"},
                row(status="good"),
                row(auroc=math.nan),
                row(auroc=None),
                row(auroc=1.5),
                row(auroc="high"),
                row(instances={"hit_rate": 0.5}),
                row(instances={"auroc_in_bag": 0.5, "auprc_in_bag": 2.0, "hit_rate": None}),
                row(scores=None),
                row(scores=[0.5]),
            )
        ),
    ],
)
def test_a_damaged_trial_is_an_error_with_its_line(tmp_path, line):
    path = tmp_path / "trials.jsonl"
    with open_trials(path) as trials:
        trials.add([row()])
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(CheckpointError, match="line 2"):
        open_trials(path)


def test_a_folder_is_held_by_one_comparison_at_a_time(tmp_path):
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    names = ["bag-statistics-logistic", "mean-map-svm"]
    busy = pytest.raises(ConfigError, match=r"no other process that adds to .*trials.jsonl, got one that is running")
    with TrialStore(tmp_path / "out" / "trials.jsonl"), busy:
        run_comparison(bags, names, folds, out=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert len(run_comparison(bags, names, folds, out=tmp_path / "out").trials) == 4


@pytest.mark.long  # starts processes
def test_a_baseline_of_a_plug_in_is_known_to_the_workers(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "import numpy as np\n"
        "from midam.compare import Baseline\n"
        "from midam.registry import BASELINES\n"
        "class FirstFeature(Baseline):\n"
        "    def score(self, bags, trial):\n"
        "        return np.array([bags[i][:, 0].max() for i in trial.score], dtype=float)\n"
        "BASELINES.add('first-feature', FirstFeature)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(BASELINES, "_added", {})
    load_plugins(["elsewhere"])
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    path = "first-feature"
    found = run_comparison(bags, ["mean-map-svm", path], folds, workers=Workers(jobs=2))
    assert found.summary["method"].tolist() == ["mean-map-svm", path]
    expected = [auroc(bags.labels[f.test], [bags[i][:, 0].max() for i in f.test]) for f in folds]
    assert found.trials.query("method == @path")["auroc"].tolist() == expected
    with pytest.raises(ConfigError, match=r"got 'collections\.OrderedDict'; known are"):
        find_methods(["midam", "collections.OrderedDict"])


def test_folds_without_room_for_validation_say_so():
    bags = few_groups(2)
    with pytest.warns(UserWarning, match="reduced to 2"):
        folds = repeated_folds(bags, repeats=1, folds=3)
    with pytest.raises(BagDataError, match=r"enough bags for validation bags.*nothing to choose"):
        run_comparison(bags, ["midam-att", "ce-att"], folds, settings=QUICK)
    options = {"settings": QUICK, "grid": Grid([0.05], [1.0], "last")}
    assert run_comparison(bags, ["midam-att", "ce-att"], folds, **options).summary["folds"].tolist() == [2, 2]


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    bags = witness_bags()
    folds = repeated_folds(bags, repeats=1, folds=2)
    options = {"settings": QUICK, "grid": Grid([0.05]), "out": tmp_path / "out"}
    first = run_comparison(bags, ["midam", "mean-map-svm"], folds, **options)
    kept = (tmp_path / "out" / "trials.csv").read_text()
    for changes in (
        {"settings": QUICK.replace(epochs=3)},
        {"grid": Grid([0.1])},
        {"grid": Grid([0.05], select="last")},
    ):
        with pytest.raises(ConfigError, match="choose another folder"):
            run_comparison(bags, ["midam", "mean-map-svm"], folds, **{**options, **changes})
    with pytest.raises(ConfigError, match="fingerprint"):
        run_comparison(witness_bags(seed=9), ["midam", "mean-map-svm"], folds, **options)
    more = run_comparison(bags, ["midam", "mean-map-svm", "bag-statistics-logistic"], folds, **options)
    assert (tmp_path / "out" / "trials.csv").read_text().startswith(kept)
    assert more.trials[:4].equals(first.trials)


def test_missing_values_are_filled_from_the_training_bags_of_each_fold():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(48, 3)) + np.repeat(np.arange(24) % 2, 2)[:, None]
    rows[rng.random(rows.shape) < 0.2] = np.nan
    bags = Bags.from_arrays(rows, np.repeat(np.arange(24), 2), np.arange(24) % 2, missing=True)
    how = {"grid": Grid([0.05], [1.0], "last")}
    few = {"epochs": 2, "num_positive": 4, "num_negative": 4}
    methods, folds = ["ce-mean", "bag-statistics-extratrees"], repeated_folds(bags, repeats=1, folds=2)
    with pytest.warns(UserWarning, match="the mean of the training bags of each fold"):
        found = run_comparison(bags, methods, folds, settings=Settings(**few, impute="mean"), **how)
    for fold in folds:
        filled = impute(bags, fill_values(bags.subset(fold.train), "mean"))
        alone = run_comparison(filled, methods, [fold], settings=Settings(**few), **how)
        same = found.trials[found.trials["fold"] == fold.fold].set_index("method")["auroc"]
        assert same.to_dict() == alone.trials.set_index("method")["auroc"].to_dict()
