import copy
import dataclasses
import inspect
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from docs import gen_stub
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV

from midam import BagClassifier, BagStatistics, MIDAMClassifier, MIDAMRanker, MIDAMSurvival
from midam.data.bags import Bags
from midam.data.splits import split_bags
from midam.errors import BagDataError, ConfigError, OneClassError, RunExistsError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.explain import ExplainOptions, explain_bags
from midam.methods.auto.candidates import VECTORS
from midam.nn.scorer import scorers_of
from midam.runs.apply import evaluate_bags
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run, predict_run
from midam.settings import Settings
from midam.sklearn.labels import with_classes
from studies.sets import catalog

# A few epochs on few bags may rank the held-out bags worse than chance; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")


SETTINGS = {"members": 1, "optimizer": "adam", "lr": 0.005, "num_instances": 8}


@pytest.fixture(scope="module")
def data():
    bags = catalog.load("digits")
    return bags.subset(bags.where_split("train")), bags.subset(bags.where_split("test"))


@pytest.fixture(scope="module")
def fitted(data):
    train, _ = data
    return MIDAMClassifier(epochs=15, **SETTINGS).fit(train, train.labels)


@pytest.fixture(scope="module")
def quick(data):
    return MIDAMClassifier(epochs=2, **SETTINGS).fit(data[0])


def test_it_is_a_scikit_learn_estimator():
    classifier = MIDAMClassifier(pooling="mean", epochs=3, lr=0.1)
    twin = clone(classifier)
    assert twin is not classifier
    assert twin.get_params() == classifier.get_params()
    assert twin.set_params(seed=4).seed == 4


def test_every_setting_is_a_parameter_with_its_default():
    parameters = inspect.signature(MIDAMClassifier).parameters
    assert set(parameters) == set(MIDAMClassifier().get_params(deep=False))
    rooms = dict(Settings())
    for room in ("method", "training", "model"):
        for name, value in rooms[room]:
            assert parameters[name].default == (None if value == {} else value), name
    assert not {"label_column", "slice_size", "test_fraction", "logger", "reads", "baseline"} & set(parameters)


def test_the_stub_is_up_to_date():
    text = gen_stub.STUB.read_text(encoding="utf-8")
    assert text == gen_stub.rendered(), "out of date: run `python docs/gen_stub.py`"
    for kind in (BagClassifier, MIDAMClassifier, MIDAMRanker, MIDAMSurvival):
        own = ("method", "positive", "grades")
        made = [name for name in inspect.signature(kind).parameters if name not in own]
        assert re.findall(r"^    (\w+): ", text, re.MULTILINE) == made


def test_scores_rank_probabilities_and_classes_follow(fitted, data):
    _, test = data
    scores, decision = fitted.bag_scores(test), fitted.decision_function(test)
    assert roc_auc_score(test.labels, scores) == roc_auc_score(test.labels, decision) > 0.8
    probabilities = fitted.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert (np.diff(probabilities[np.argsort(scores), 1]) >= 0).all()
    assert np.array_equal(fitted.predict(test), (scores >= fitted.threshold_).astype(int))
    assert np.array_equal(fitted.predict(test), (decision > 0).astype(int))
    assert fitted.score(test, test.labels) == np.mean(fitted.predict(test) == test.labels)
    assert fitted.classes_.tolist() == [0, 1]
    assert len(fitted.history_) == 15


def test_a_bag_at_the_operating_point_is_positive(fitted, data):
    twin = copy.copy(fitted)
    for score in (fitted.bag_scores(data[1])[0], 0.0, 1.0):
        decision = fitted.decision_.model_copy(update={"threshold": score})
        twin.run_ = dataclasses.replace(fitted.run_, decision=decision)
        scores = np.array([score, np.nextafter(score, -1)])
        assert (twin._decide(scores) > 0).tolist() == [True, False]
        assert np.isfinite(twin._decide(np.array([0.0, 1.0]))).all()


def test_a_list_of_arrays_is_as_good(data, fitted):
    train, test = data
    arrays, labels = [train[i] for i in range(len(train))], train.labels.tolist()
    other = MIDAMClassifier(epochs=15, **SETTINGS).fit(arrays, labels)
    expected = fitted.decision_function(test)
    assert np.array_equal(other.decision_function([test[i] for i in range(len(test))]), expected)


def test_a_fitted_classifier_survives_pickle(fitted, data):
    twin = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(twin.decision_function(data[1]), fitted.decision_function(data[1]))


def test_instances_explain_the_scores(fitted, data):
    _, test = data
    scores = fitted.bag_scores(test)
    found = fitted.instance_scores(test)
    assert [len(one.weight) for one in found] == test.sizes.tolist()
    for one, score in zip(found, scores, strict=True):
        np.testing.assert_allclose(one.weight.sum(dtype=np.float64), 1, rtol=1e-5)
        single = one.score.astype(np.float64)
        pooled = (one.weight * np.log(single / (1 - single))).sum()
        np.testing.assert_allclose(1 / (1 + np.exp(-pooled)), score, rtol=2e-5)


def test_the_seed_decides(data):
    train, test = data
    scores = [MIDAMClassifier(epochs=1, members=1, seed=seed).fit(train).decision_function(test) for seed in (1, 1, 2)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_the_names_of_scikit_learn_stand_for_seed_and_progress(data, capsys):
    train, test = data
    known = MIDAMClassifier(epochs=1, members=1, random_state=2, verbose=1).fit(train)
    assert "epoch 1/1" in capsys.readouterr().err
    same = MIDAMClassifier(epochs=1, members=1, seed=2).fit(train)
    np.testing.assert_array_equal(known.decision_function(test), same.decision_function(test))
    assert clone(known).get_params() == known.get_params()
    with pytest.raises(ConfigError, match=r"`random_state` .* int, got RandomState"):
        MIDAMClassifier(random_state=np.random.RandomState(0)).fit(train)


def test_missing_numbers_are_refused_before_the_training(data):
    train, _ = data
    gap = train.instances.astype(float)
    gap[0] = np.nan
    with pytest.raises(BagDataError, match="finite numbers"):
        MIDAMClassifier(epochs=1, members=1).fit(train.replace(instances=gap, digests=None))


def test_the_best_epoch_on_request(data):
    train, test = data
    settings = {"optimizer": "adam", "lr": 0.05, "decay_at": [], "members": 1}
    classifier = MIDAMClassifier(epochs=30, **settings, select="best", patience=2).fit(train)
    values = np.array([row["val_auroc"] for row in classifier.history_])
    # Of equal values, which another processor may have, patience counts from the first and the last has the weights.
    assert len(values) == values.argmax() + 3 < 30
    best = int(np.flatnonzero(values == values.max())[-1]) + 1
    until = MIDAMClassifier(epochs=best, **settings).fit(train)
    assert np.array_equal(until.decision_function(test), classifier.decision_function(test))


@pytest.mark.parametrize("select", [pytest.param("last", marks=pytest.mark.long), "best"])
def test_several_members_are_averaged_calibrated_and_pickled_as_one(select, data):
    train, test = data
    settings = {"members": 3, "select": select, "dropout": 0.2, "optimizer": "adam", "lr": 0.05}
    classifier = MIDAMClassifier(epochs=3, **settings).fit(train)
    members = scorers_of(classifier.model_)
    assert len(members) == 3
    scores = classifier.bag_scores(test)
    assert np.array_equal(scores, np.mean([predict(member, test) for member in members], axis=0))
    held = split_bags(train.labels, groups=None, fractions=(0.8, 0.2, 0.0), seed=0) == "val"
    val = train.subset(np.flatnonzero(held))
    areas = [row["val_auroc"] for row in classifier.history_]
    assert auroc(val.labels, classifier.bag_scores(val)) == (areas[-1] if select == "last" else max(areas))
    assert classifier.predict_proba(test).shape == (100, 2)
    assert np.array_equal(pickle.loads(pickle.dumps(classifier)).bag_scores(test), scores)
    first = classifier.instance_scores(test)[0]
    assert len(first.members) == 3
    np.testing.assert_allclose(first.weight.sum(dtype=np.float64), 1, rtol=1e-5)


def test_groups_are_held_out_together(data):
    train, _ = data
    groups = np.arange(len(train)) // 4
    classifier = MIDAMClassifier(epochs=1).fit(train, train.labels, groups=groups)
    assert auroc(train.labels, classifier.decision_function(train)) >= 0
    with pytest.raises(BagDataError, match="group"):
        MIDAMClassifier(epochs=1).fit(train, train.labels, groups=groups[:-1])


def test_without_held_out_bags_there_is_no_probability(data):
    train, test = data
    classifier = MIDAMClassifier(epochs=1, members=1, val_fraction=0.0).fit(train)
    assert classifier.threshold_ == 0.5
    assert classifier.predict(test).shape == (100,)
    with pytest.raises(ConfigError, match="val_fraction=0"):
        classifier.predict_proba(test)


METHODS = ["decision_function", "predict", "predict_proba", "bag_scores", "instance_scores", "explain"]


@pytest.mark.parametrize("method", METHODS)
def test_it_must_be_fitted_first(method, data):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(MIDAMClassifier(), method)(data[1])


def test_other_features_are_refused(fitted):
    with pytest.raises(BagDataError, match=r"\[64\] as in fit, got \[63\]"):
        fitted.decision_function([np.zeros((2, 63))])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lr": "fast"}, "`lr`, got 'fast'"),
        ({"estimator": "vsrp"}, "known estimator, got 'vsrp'; did you mean 'vrsp'"),
        ({"pooling": "max"}, "smooth pooling"),
        ({"pooling_args": {"heads": 3}}, "arguments of"),
    ],
)
def test_wrong_settings_are_refused_in_fit(settings, text, data):
    with pytest.raises(ConfigError, match=text):
        MIDAMClassifier(**settings).fit(data[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num_instance", "did you mean 'num_instances'"),
        ("label_column", "about files or runs; pass bags, y and groups to fit"),
        ("logger", "about files"),
        ("baseline", "about files or runs"),
    ],
)
def test_an_unknown_parameter_is_refused_at_once(name, text):
    with pytest.raises(TypeError, match=text):
        MIDAMClassifier(**{name: 3})
    with pytest.raises(ValueError, match="Invalid parameter"):
        MIDAMClassifier().set_params(**{name: 3})


def test_wrong_labels_are_refused(data):
    train, _ = data
    with pytest.raises(BagDataError, match=r"at least 2 training bags of each class, got fewer of 0 \(1\), 1 \(1\)"):
        MIDAMClassifier().fit(train, np.minimum(np.arange(len(train)), 7))
    with pytest.raises(BagDataError, match="200 labels, got 3"):
        MIDAMClassifier().fit(train, [0, 1, 0])
    with pytest.raises(OneClassError, match="got one class: 1"):
        MIDAMClassifier().fit(train, np.ones(len(train), dtype=int))
    with pytest.raises(BagDataError, match=r"without .*requires y to be passed"):
        MIDAMClassifier().fit(Bags.from_list([[[1.0]], [[2.0]]]))
    for missing in (None, np.nan):
        with pytest.raises(BagDataError, match="y contains NaN"):
            MIDAMClassifier().fit(train, np.array([missing] + ["a", "b"] * 99 + ["a"], dtype=object))


NAMED = [("no", "yes"), (False, True), (-1, 1), (1, 2), (0.0, 1.0), ("benign", "malignant")]


@pytest.mark.parametrize("dtype", ["category", "string", "boolean", "Int64", "object", "truth"])
def test_labels_of_pandas_are_taken(dtype, data, quick):
    train, test = data
    texts = dtype in ("category", "string")
    y = pd.Series(np.array(["no", "yes"])[train.labels] if texts else train.labels)
    y = y.astype(bool).astype(object) if dtype == "truth" else y.astype(dtype)
    named = clone(quick).fit(train, y)
    assert named.score(train, y) > 0.5
    assert named.classes_.tolist() == (["no", "yes"] if texts else [0, 1])  # False is 0
    assert (named.classes_.dtype == bool) == (dtype in ("boolean", "truth"))
    assert np.array_equal(named.bag_scores(test), quick.bag_scores(test))


@pytest.mark.parametrize("classes", NAMED, ids=str)
def test_any_two_labels_are_classes(classes, data, quick):
    fitted, (train, test) = quick, data
    y = np.array(classes)[train.labels]
    named = clone(fitted).fit(train, y)
    assert named.classes_.tolist() == list(classes)
    assert named.classes_.dtype == y.dtype
    assert named.positive_ == classes[1]
    assert np.array_equal(named.bag_scores(test), fitted.bag_scores(test))
    assert np.array_equal(named.predict(test), np.array(classes)[fitted.predict(test)])
    assert named.score(test, np.array(classes)[test.labels]) == fitted.score(test, test.labels)


@pytest.mark.parametrize(("words", "warns"), [(("no", "yes"), False), (("case", "control"), True), (("a", "b"), False)])
def test_a_negative_word_that_comes_second_is_positive_with_a_warning(words, warns):
    bags = Bags.from_list([[[float(i)]] for i in range(4)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labeled = with_classes(bags, np.array(words)[[0, 1, 0, 1]], positive=None, estimator=None)
        with_classes(bags, np.array(words)[[0, 1, 0, 1]], positive=words[1], estimator=None)
    assert labeled.positive == words[1]
    assert [str(one.message) for one in caught] == warns * [
        f"{words[1]!r}, the second class, is positive: positive={words[0]!r} swaps them"
    ]


def test_texts_that_look_like_a_class_are_that_class(quick, data):
    train, test = data
    y, truth = (np.array(["no ", "yes"])[bags.labels] for bags in data)
    with pytest.warns(UserWarning, match="'no ' in y is read, and predicted, as 'no'"):
        classifier = clone(quick).fit(train, y)
    assert classifier.score(test, truth) == classifier.score(test, truth.tolist()) == quick.score(test, test.labels)


def test_the_positive_class_can_be_the_first(data, quick):
    fitted, (train, test) = quick, data
    y, truth = (np.array(["normal", "malignant"])[bags.labels] for bags in data)
    named = clone(fitted).set_params(positive="malignant").fit(train, y.tolist())
    assert named.classes_.tolist() == ["malignant", "normal"]
    assert np.array_equal(named.bag_scores(test), fitted.bag_scores(test))
    # Everything else is of classes_[1], as scikit-learn's scorers expect.
    assert np.array_equal(named.decision_function(test), -fitted.decision_function(test))
    assert np.array_equal(named.predict_proba(test), fitted.predict_proba(test)[:, ::-1])
    assert np.array_equal(named.predict(test) == "malignant", fitted.predict(test) == 1)
    area = roc_auc_score(test.labels, fitted.bag_scores(test))
    assert get_scorer("roc_auc")(named, test, truth) == pytest.approx(area, rel=1e-12)
    # Bags that know their classes say which is positive.
    of_bags = clone(fitted).fit(train.replace(classes=("normal", "malignant")))
    assert of_bags.positive_ == "malignant"
    assert np.array_equal(of_bags.predict_proba(test), named.predict_proba(test))
    with pytest.raises(
        BagDataError, match="`positive` in 'malignant', 'normal', got 'Malignant'; name one, or give y == 'Malignant'"
    ):
        MIDAMClassifier(positive="Malignant").fit(train, y)


def _two_kinds_of_positives(count):
    """Bags whose positives have a high or a low first feature: no line ranks both above the negatives."""
    random = np.random.default_rng(0)
    kind = np.tile(["negative", "negative", "high", "low"], count // 4)
    shift = {"negative": 0.0, "high": 1.5, "low": -1.5}
    return [random.normal([shift[name], 0.0], 1.0, (5, 2)) for name in kind], kind


LONG, LOGISTIC = (pytest.param(name, marks=pytest.mark.long) for name in ("auto", "bag-statistics-logistic"))


@pytest.mark.parametrize("method", ["midam", "bce", "bag-statistics-logistic", "mean-map-svm", LONG])
def test_weights_of_bags_decide_which_bags_rank_high(method):
    (bags, kind), training = _two_kinds_of_positives(80), {"hidden": (4,), "epochs": 20, "members": 1}
    settings = {"midam": training, "bce": {**training, "objective": "bce"}}.get(method, {})
    method = "midam" if method == "bce" else method
    means = {}
    for favored in ("high", "low"):
        weights = np.where(np.isin(kind, ["negative", favored]), 1.0, 0.001)
        scores = MIDAMClassifier(method=method, **settings).fit(bags, kind != "negative", weights).bag_scores(bags)
        means[favored] = scores[kind == "high"].mean() - scores[kind == "low"].mean()
    assert means["high"] > means["low"] + 0.05


@pytest.mark.parametrize("method", ["midam", "bag-statistics-extratrees", LOGISTIC])
def test_equal_weights_of_bags_change_nothing_and_a_weight_of_0_leaves_a_bag_out(data, method):
    train, test = data
    train, settings = train.subset(range(60)), {"epochs": 2, **SETTINGS} if method == "midam" else {}
    plain = MIDAMClassifier(method=method, **settings).fit(train).bag_scores(test)
    weighted = MIDAMClassifier(method=method, **settings).fit(train, sample_weight=np.ones(60)).bag_scores(test)
    assert np.array_equal(weighted, plain)
    kept = np.arange(60) % 5 != 1
    less = MIDAMClassifier(method=method, **settings).fit(train.subset(np.flatnonzero(kept))).bag_scores(test)
    zero = MIDAMClassifier(method=method, **settings).fit(train, sample_weight=kept.astype(int)).bag_scores(test)
    assert np.array_equal(zero, less)
    assert not np.array_equal(less, plain)


def test_weights_of_bags_follow_the_index_of_a_series_and_the_folds_of_a_search():
    bags, kind = _two_kinds_of_positives(40)
    names = [f"b{i}" for i in range(40)]
    frame = pd.concat({name: pd.DataFrame(rows) for name, rows in zip(names, bags)})
    y, weights = (kind != "negative").astype(int), np.where(kind == "high", 5.0, 1.0)
    classifier = MIDAMClassifier(epochs=2, members=1, num_positive=4, num_negative=4)
    expected = classifier.fit(bags, y, weights).bag_scores(bags)
    shuffled = pd.Series(weights, index=names).sample(frac=1.0, random_state=0)
    assert np.array_equal(clone(classifier).fit(frame, y, shuffled).bag_scores(frame), expected)
    found = GridSearchCV(classifier, {"seed": [0]}, cv=2).fit(np.stack(bags), y, sample_weight=weights)
    assert np.array_equal(found.best_estimator_.bag_scores(bags), expected)


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        (np.ones(3), "one weight"),
        (np.zeros(40), "zero"),
        (-np.ones(40), "above 0"),
        (np.full(40, np.nan), "above 0"),
        (["a"] * 40, "numbers"),
    ],
)
def test_weights_of_bags_that_are_no_weights_are_refused(weights, fault):
    bags, kind = _two_kinds_of_positives(40)
    with pytest.raises(BagDataError, match=fault):
        MIDAMClassifier(epochs=1).fit(bags, kind != "negative", weights)


def test_weights_of_bags_need_two_classes_with_a_bag_of_each():
    bags, kind = _two_kinds_of_positives(40)
    with pytest.raises(BagDataError, match="two classes with weights"):
        MIDAMClassifier(epochs=1).fit(bags, kind, np.ones(40))
    with pytest.raises(OneClassError):
        MIDAMClassifier(epochs=1).fit(bags, kind != "negative", kind == "negative")


def test_a_bag_classifier_chooses_the_method_as_midam_fit_does(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.methods.auto.candidates._MOST_DRAWS", 40)
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 5)
    bags, kind = _two_kinds_of_positives(20)
    chosen = BagClassifier().fit(bags, kind != "negative")
    assert [row["method"] for row in chosen.history_] == list(VECTORS)
    trained = BagClassifier(epochs=2, members=1).fit(bags, kind != "negative")
    assert len(trained.history_) == 2
    trained.save(tmp_path)
    assert BagClassifier.load(tmp_path).method == "midam"
    several = BagClassifier(val_fraction=0.0).fit(bags[:8], kind[:8])
    assert several.target_ == "multiclass"
    assert "loss" in several.history_[0]


@pytest.mark.parametrize("settings", [{"method": "bag-statistics-logistic"}, {"epochs": 2, "members": 1}], ids=str)
def test_folds_score_each_bag_as_a_run_does(settings, tmp_path):
    bags, kind = _two_kinds_of_positives(40)
    y, groups = kind != "negative", np.repeat(np.arange(20), 2).astype(str)
    classifier = BagClassifier(folds=3, **settings).fit(bags, y, groups=groups)
    path = tmp_path / "bags.npz"
    of_rows = np.repeat(np.arange(40), [len(bag) for bag in bags])
    np.savez(path, X=np.concatenate(bags), bag=of_rows, y=y.astype(int), group=groups)
    method = settings.pop("method", None)
    fit_run(str(path), Settings(folds=3, **settings), RunFolder(tmp_path / "run"), method=method)
    rows = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert classifier.oof_scores_ == pytest.approx(rows["score"], abs=1e-8)
    assert classifier.threshold_ == pytest.approx(load_run(tmp_path / "run").decision.threshold)
    of_folds = [roc_auc_score(part["label"], part["score"]) for _, part in rows.groupby("fold")]
    results = classifier.cv_results_
    assert [results[f"split{fold}_test_score"][0] for fold in range(3)] == pytest.approx(of_folds)
    assert results["mean_test_score"][0] == pytest.approx(np.mean(of_folds))
    assert classifier.settings_.run.folds == 3
    classifier.save(tmp_path / "saved")
    again = BagClassifier.load(tmp_path / "saved")
    assert (again.folds, again.oof_scores_, again.cv_results_) == ("auto", None, None)


def test_out_of_fold_scores_follow_the_order_of_classes_and_leave_bags_of_weight_0_out(data):
    random = np.random.default_rng(0)
    y = np.array(["b", "c", "a"] * 12)
    bags = [random.normal(3.0 * np.eye(3)["abc".index(name)], 1.0, (4, 3)) for name in y]
    settings = {"epochs": 20, "members": 1, "num_instances": 4, "lr": 0.02, "optimizer": "adam", "folds": 2}
    classifier = MIDAMClassifier(**settings).fit(bags, y)
    assert roc_auc_score(y == "a", classifier.oof_scores_[:, 0]) > 0.9
    assert roc_auc_score(y == "c", classifier.oof_scores_[:, 2]) > 0.9
    weights = np.where(np.arange(36) < 3, 0.0, 1.0)
    weighted = MIDAMClassifier(**settings | {"epochs": 1}).fit(bags, y == "a", weights)
    assert np.isnan(weighted.oof_scores_).tolist() == (weights == 0).tolist()


def test_a_second_fit_starts_again(data):
    train, test = data
    cold = MIDAMClassifier(epochs=3, **SETTINGS).fit(train)
    scores = cold.bag_scores(test)
    assert np.array_equal(cold.fit(train).bag_scores(test), scores)


def _few(names, *, seed=0):
    """Return 40 bags of two instances, as a frame of the features `names`."""
    index = pd.MultiIndex.from_product([range(40), range(2)], names=["bag", "instance"])
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(80, len(names))), index=index, columns=list(names))


@pytest.mark.parametrize(
    ("estimator", "y", "bad"),
    [
        (MIDAMClassifier(epochs=1, **SETTINGS), np.arange(40) % 2, np.zeros(40)),
        (MIDAMRanker(epochs=1, **SETTINGS), np.arange(40) % 5, np.full(40, np.nan)),
        (MIDAMSurvival(epochs=1, **SETTINGS), np.c_[1.0 + np.arange(40), np.arange(40) % 2], np.full((40, 2), -1.0)),
        (BagStatistics(impute="mean"), None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_call_leaves_an_estimator_as_it_was(estimator, y, bad):
    bags, others = _few("abc"), _few("xy").assign(z=np.nan if bad is None else 0.0)
    estimator = clone(estimator)
    apply = estimator.transform if bad is None else estimator.bag_scores
    with pytest.raises((BagDataError, UserWarning)):  # warnings are errors
        estimator.fit(others, bad)
    with pytest.raises(NotFittedError):
        apply(bags)
    before = apply(estimator.fit(bags, y) and bags)
    with pytest.raises((BagDataError, UserWarning)):  # warnings are errors
        estimator.fit(others, bad)
    with pytest.raises(BagDataError):
        estimator.fit(bags, y, groups=np.arange(3)) if y is not None else estimator.fit(bags.iloc[:0])
    np.testing.assert_array_equal(apply(bags), before)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]


def test_progress_is_shown_on_request_alone(data, capsys):
    train, _ = data
    MIDAMClassifier(epochs=2, **SETTINGS).fit(train)
    assert capsys.readouterr() == ("", "")
    MIDAMClassifier(epochs=2, show_progress=True, **SETTINGS).fit(train)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "epoch 2/2" in shown.err


def test_explanations_rank_the_instances(fitted, data):
    test = data[1].subset([0, 1])
    found = fitted.explain(test)
    assert [one.bag for one in found] == test.ids.tolist()
    np.testing.assert_allclose([one.score for one in found], fitted.bag_scores(test), rtol=1e-6)


@pytest.mark.parametrize("positive", ["yes", "no"])
def test_a_saved_classifier_is_a_run_and_comes_back(positive, data, tmp_path):
    train, test = data
    y = np.array(["no", "yes"])[train.labels]
    classifier = MIDAMClassifier(epochs=2, positive=positive, hidden=(5,), pooling_args={"hidden": 4}, **SETTINGS)
    classifier.fit(train, y, groups=np.arange(200) // 2).save(tmp_path / "run")
    twin = MIDAMClassifier.load(tmp_path / "run")
    for method in ("bag_scores", "decision_function", "predict_proba", "predict"):
        assert np.array_equal(getattr(twin, method)(test), getattr(classifier, method)(test)), method
    assert twin.classes_.tolist() == ["no", "yes"]
    assert twin.get_params()["hidden"] == [5]
    run = load_run(tmp_path / "run")
    scores, probabilities = predict_run(run, test)
    assert np.array_equal(scores, classifier.bag_scores(test))
    assert np.array_equal(probabilities, classifier.predict_proba(test)[:, ["no", "yes"].index(positive)])
    # The bags that it was made of are no test.
    with pytest.warns(UserWarning, match="intervals count bags"):  # `train` has no groups
        found = evaluate_bags(run, train.replace(classes=("no", "yes"))).result
    inside = np.array(run.known_splits(train)) == "train"
    assert found["train"]["auroc"] == auroc(y[inside] == positive, classifier.bag_scores(train)[inside])
    with pytest.raises(BagDataError, match=f"write them so, or name the value that means {positive} as `positive`"):
        evaluate_bags(run, train)
    assert {part: found[part]["bags"] for part in found if part in ("train", "val", "test")} == {
        "train": 160,
        "val": 40,
    }
    assert len(run.groups) == 100
    with pytest.raises(RunExistsError):
        classifier.save(tmp_path / "run")
    assert len(twin.fit(train, y).history_) == 2


@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.long), "bag-statistics-logistic"])
def test_a_method_that_is_fitted_in_one_step_is_a_classifier_too(method, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 5)
    monkeypatch.setattr("midam.methods.baselines._KERNEL_C", np.ones(1))
    monkeypatch.setattr("midam.methods.baselines._MAP_GAMMAS", np.ones(1))
    monkeypatch.setattr("midam.methods.auto.candidates._MOST_DRAWS", 80)
    monkeypatch.setattr("midam.methods.networks._EPOCHS", 2)
    train, test = data[0].subset(np.arange(80)), data[1]
    classifier = MIDAMClassifier(method=method, seed=3, show_progress=True).fit(train)
    assert ("bag-statistics-extratrees" in capsys.readouterr().err) == (method == "auto")
    assert [row["method"] for row in classifier.history_] == (list(VECTORS) if method == "auto" else [])
    assert roc_auc_score(test.labels, classifier.decision_function(test)) > 0.7
    classifier.save(tmp_path / "run")
    again = MIDAMClassifier.load(tmp_path / "run")
    assert again.method == classifier.to_run().method == method
    assert again.predict_proba(test).tolist() == classifier.predict_proba(test).tolist()
    again.save(tmp_path / "copy")
    assert load_run(tmp_path / "copy").digest() == load_run(tmp_path / "run").digest()
    assert again.seed == 3
    assert again.fit(train).predict_proba(test).tolist() == classifier.predict_proba(test).tolist()
    assert (
        MIDAMClassifier(**classifier.get_params() | {"method": "midam", "epochs": 1}).fit(train).to_run().method is None
    )


def test_a_method_that_is_fitted_in_one_step_takes_no_settings_of_a_training(data):
    with pytest.raises(ConfigError, match="Expected no `epochs` with the method 'auto', got 3"):
        MIDAMClassifier(method="auto", epochs=3).fit(data[0])
    with pytest.raises(ConfigError, match="Expected a known method, got 'autos'"):
        MIDAMClassifier(method="autos").fit(data[0])


def test_a_run_of_the_command_line_is_a_classifier(tmp_path, data):
    settings = Settings(epochs=1, members=1)
    fit_run("digits", settings, RunFolder(tmp_path / "run"))
    classifier = MIDAMClassifier.load(tmp_path / "run")
    assert np.array_equal(classifier.bag_scores(data[1]), predict_run(load_run(tmp_path / "run"), data[1])[0])
    assert classifier.get_params()["epochs"] == 1


def test_explanations_are_written_as_of_a_run(tmp_path, fitted, data):
    explain_bags(fitted.to_run(), data[1], [3], tmp_path / "why", options=ExplainOptions())
    assert (tmp_path / "why" / "index.html").is_file()


@pytest.mark.gpu
def test_a_model_of_a_gpu_is_unpickled_on_the_cpu(data):
    train, test = data
    classifier = MIDAMClassifier(epochs=2, accelerator="cuda", **SETTINGS).fit(train)
    twin = pickle.loads(pickle.dumps(classifier))
    assert next(classifier.model_.parameters()).is_cuda
    assert not next(twin.model_.parameters()).is_cuda
    np.testing.assert_allclose(twin.bag_scores(test), classifier.bag_scores(test), rtol=1e-4)


def test_a_saved_classifier_of_rows_takes_rows(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    classifier = MIDAMClassifier(epochs=2, members=1).fit(X, y)
    classifier.save(tmp_path / "run")
    assert np.array_equal(MIDAMClassifier.load(tmp_path / "run").bag_scores(X), classifier.bag_scores(X))
