"""Estimators of more than two classes, of labels, grades, numbers and survival: y in its forms, and what comes out."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from lifelines.utils import concordance_index as concordance_of_lifelines
from scipy.special import softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from midam import Bags, MIDAMClassifier, MIDAMRanker, MIDAMSurvival
from midam.data import write_store
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, CheckpointError, ConfigError
from midam.runs.apply import evaluate_bags, read_for
from midam.runs.loaded import load_run, predict_run
from midam.sklearn.labels import times_of

# A few epochs on few bags may rank the held-out bags worse than chance; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:Expected scores that")

N, NAMES = 60, ["area", "edge", "tone"]
HOW = {"epochs": 4, "members": 1, "threads": 1, "num_instances": 3, "optimizer": "adam", "lr": 0.05}
HOW |= {"num_positive": 4, "num_negative": 4}


def drawn(values):
    """Bags of 2 to 4 instances around these values [N, 3]."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(2 + i % 3, 3)) + value for i, value in enumerate(values)]


CLASSES = np.array(["lung", "bone", "skin"])[np.arange(N) % 3]
OF_CLASSES = drawn(4 * np.eye(3)[np.searchsorted(["bone", "lung", "skin"], CLASSES)])
LABELS = np.stack([np.arange(N) % k < k / 2 for k in (2, 3, 5)], axis=1).astype(float)
OF_LABELS = drawn(4 * LABELS)
GRADES = np.arange(N) % 3
OF_GRADES = drawn(np.stack([2.0 * GRADES] * 3, axis=1))
TIME = np.exp(-GRADES) * (1 + np.arange(N) / N)
EVENT = np.arange(N) % 4 > 0


def of_scikit_survival(names=("event", "time")):
    y = np.empty(N, dtype=[(names[0], bool), (names[1], float)])
    y[names[0]], y[names[1]] = EVENT, TIME
    return y


@pytest.fixture(scope="module")
def several():
    return MIDAMClassifier(**HOW).fit(OF_CLASSES, CLASSES)


@pytest.fixture(scope="module")
def labeled():
    y = LABELS.copy()
    y[4, 1] = np.nan
    return MIDAMClassifier(**HOW).fit(OF_LABELS, y)


@pytest.fixture(scope="module")
def graded():
    return MIDAMRanker(grades=("low", "mid", "high"), **HOW).fit(OF_GRADES, np.array(["low", "mid", "high"])[GRADES])


@pytest.fixture(scope="module")
def survival():
    return MIDAMSurvival(**HOW).fit(OF_GRADES, of_scikit_survival())


# Classes.


def test_several_classes_have_a_column_each(several):
    assert (several.target_, several.classes_.tolist()) == ("multiclass", ["bone", "lung", "skin"])
    scores, decision, shares = (
        getattr(several, name)(OF_CLASSES) for name in ("bag_scores", "decision_function", "predict_proba")
    )
    assert scores.shape == decision.shape == shares.shape == (N, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(shares, softmax(decision, axis=1), rtol=1e-12)
    np.testing.assert_allclose(shares, several.decision_.predict(scores), rtol=1e-12)
    # Each column ranks as the scores do, and as the class it is named after.
    assert all((np.diff(decision[np.argsort(s), c]) >= 0).all() for c, s in enumerate(scores.T))
    assert roc_auc_score(CLASSES, shares, multi_class="ovr") > 0.8
    called = several.predict(OF_CLASSES)
    assert (called == several.classes_[shares.argmax(axis=1)]).all()
    assert several.score(OF_CLASSES, CLASSES) == accuracy_score(CLASSES, called) > 0.5
    assert several.positive_ is None
    assert several.calibrator_ is None


def test_classes_of_any_kind_are_the_same_classes(several):
    codes = np.searchsorted(["bone", "lung", "skin"], CLASSES)
    for y in (np.array([-2, 5, 7])[codes], np.array([0.5, 1.0, 7.0])[codes] * 2, pd.Series(CLASSES, dtype="category")):
        found = clone(several).fit(OF_CLASSES, y)
        assert found.classes_.tolist() == np.unique(y).tolist()
        assert found.predict(OF_CLASSES).dtype == np.asarray(y).dtype
        assert np.array_equal(found.bag_scores(OF_CLASSES), several.bag_scores(OF_CLASSES))
        assert found.score(OF_CLASSES, y) == several.score(OF_CLASSES, CLASSES)


def test_bags_say_their_own_classes(several):
    codes = np.searchsorted(["bone", "lung", "skin"], CLASSES)
    names = ["skin", "bone", "lung"]  # in an order of their own
    outcome = TargetLabels.of(
        "multiclass", [names.index(["bone", "lung", "skin"][code]) for code in codes], names=names
    )
    found = clone(several).fit(Bags.from_list(OF_CLASSES, outcome=outcome))
    assert found.classes_.tolist() == ["bone", "lung", "skin"]
    assert np.array_equal(found.bag_scores(OF_CLASSES), several.bag_scores(OF_CLASSES))
    of_two = Bags.from_list(OF_CLASSES, labels=codes == 1)
    assert clone(several).fit(of_two, CLASSES).target_ == "multiclass"
    assert MIDAMClassifier(**HOW).fit(Bags.from_list(OF_CLASSES, outcome=outcome), codes == 1).target_ == "binary"


def test_positive_goes_with_two_classes_alone():
    with pytest.raises(BagDataError, match="two classes in y with `positive`, got 3 classes; leave `positive` out"):
        MIDAMClassifier(positive="lung", **HOW).fit(OF_CLASSES, CLASSES)
    with pytest.raises(BagDataError, match="got 3 labels"):
        MIDAMClassifier(positive=1, **HOW).fit(OF_LABELS, LABELS)


def test_without_held_out_bags_the_shares_are_those_of_the_scores():
    found = MIDAMClassifier(val_fraction=0.0, **HOW).fit(OF_CLASSES, CLASSES)
    assert found.decision_ is None
    odds = found.bag_scores(OF_CLASSES) / (1 - found.bag_scores(OF_CLASSES))
    np.testing.assert_allclose(found.predict_proba(OF_CLASSES), odds / odds.sum(axis=1, keepdims=True), rtol=1e-9)
    assert (found.predict(OF_CLASSES) == found.classes_[found.bag_scores(OF_CLASSES).argmax(axis=1)]).all()
    labels = MIDAMClassifier(val_fraction=0.0, **HOW).fit(OF_LABELS, LABELS)
    np.testing.assert_allclose(labels.predict_proba(OF_LABELS), labels.bag_scores(OF_LABELS), rtol=1e-9)


def test_instances_and_explanations_are_those_of_a_class(several):
    bags = OF_CLASSES[:4]
    scores = several.bag_scores(bags)
    for place, name in enumerate(several.classes_):
        found = several.explain(bags, label=name)
        np.testing.assert_allclose([one.score for one in found], scores[:, place], rtol=1e-5)
        assert len(several.instance_scores(bags, label=name)[1].score) == len(bags[1])
    usual = several.explain(bags)
    expected = scores[np.arange(4), several.predict_proba(bags).argmax(axis=1)]
    np.testing.assert_allclose([one.score for one in usual], expected, rtol=1e-5)
    with pytest.raises(ConfigError, match="Expected a class, got 'liver'; known are 'bone', 'lung', 'skin'"):
        several.explain(bags, label="liver")
    two = MIDAMClassifier(**HOW).fit(OF_CLASSES, CLASSES == "lung")
    assert len(two.explain(bags)) == 4
    with pytest.raises(ConfigError, match="there is one score"):
        two.instance_scores(bags, label=True)


# Labels.


def test_several_labels_have_a_column_each(labeled):
    assert (labeled.target_, labeled.classes_.tolist()) == ("multilabel", [0, 1, 2])
    shares, called = labeled.predict_proba(OF_LABELS), labeled.predict(OF_LABELS)
    assert shares.shape == called.shape == (N, 3)
    np.testing.assert_allclose(shares, labeled.decision_.predict(labeled.bag_scores(OF_LABELS)), rtol=1e-12)
    assert np.array_equal(called, shares > 0.5)
    assert np.array_equal(called, labeled.decision_function(OF_LABELS) > 0)
    assert get_scorer("roc_auc")(labeled, OF_LABELS, LABELS) > 0.7
    assert labeled.score(OF_LABELS, LABELS) == accuracy_score(LABELS, called)
    # What is not known of a bag cannot be wrong.
    unknown = np.where(called == LABELS, LABELS, np.nan)
    assert labeled.score(OF_LABELS, unknown) == 1
    with pytest.raises(BagDataError, match="Expected 0, 1 or nothing in column 0 of y, one of 3 labels, got 2"):
        clone(labeled).fit(OF_LABELS, np.where(np.arange(N)[:, None] + np.arange(3) == 0, 2, LABELS))
    with pytest.raises(BagDataError, match="Expected 0, 1 or nothing in column 0 of y, one of 2 labels, got x"):
        clone(labeled).fit(OF_LABELS, np.full((N, 2), "x"))


def test_labels_of_a_frame_keep_their_names_and_their_bags():
    frame = pd.concat({f"b{i:02}": pd.DataFrame(part, columns=NAMES) for i, part in enumerate(OF_LABELS)})
    y = pd.DataFrame(LABELS, columns=["necrosis", "fat", "blood"], index=[f"b{i:02}" for i in range(N)])
    y.iloc[4, 1] = np.nan
    found = MIDAMClassifier(**HOW).fit(frame, y.sample(frac=1, random_state=0))
    assert found.classes_.tolist() == ["necrosis", "fat", "blood"]
    expected = MIDAMClassifier(**HOW).fit(OF_LABELS, y.to_numpy()).bag_scores(OF_LABELS)
    assert np.array_equal(found.bag_scores(frame), expected)
    # Labels are matched by name when they are scored, too.
    assert (
        found.score(frame, y[["blood", "necrosis", "fat"]]) == found.score(frame, y) == found.score(frame, y.to_numpy())
    )
    with pytest.raises(BagDataError, match="got no 'fat'"):
        found.score(frame, y[["blood", "necrosis"]])
    with pytest.raises(BagDataError, match="Expected 3 labels of a bag as in fit, got shape"):
        found.score(frame, y.to_numpy()[:, :2])
    of_rows = y.loc[frame.index.get_level_values(0)].to_numpy(copy=True)
    assert np.array_equal(clone(found).fit(frame, of_rows).bag_scores(frame), expected)
    of_rows[1, 0] = 1 - of_rows[1, 0]
    with pytest.raises(BagDataError, match=r"one label in a bag, got several \(bag b00"):
        clone(found).fit(frame, of_rows)


@pytest.mark.parametrize("names", [[7, 3, 5], pd.MultiIndex.from_product([["fat"], ["left", "right", "top"]])])
def test_labels_are_matched_by_names_that_are_no_texts(names):
    y = pd.DataFrame(LABELS, columns=names)
    found = MIDAMClassifier(**HOW).fit(OF_LABELS, y)
    assert found.classes_.tolist() == [name if isinstance(name, int) else str(name) for name in names]
    assert found.score(OF_LABELS, y[y.columns[::-1]]) == found.score(OF_LABELS, y)
    assert found.score(OF_LABELS, LABELS[:, ::-1]) != found.score(OF_LABELS, LABELS) == found.score(OF_LABELS, y)


def test_labels_in_lists_and_sparse_are_taken(labeled):
    expected = clone(labeled).fit(OF_LABELS, LABELS).bag_scores(OF_LABELS)
    for y in (LABELS.astype(int).tolist(), scipy.sparse.csr_matrix(LABELS), LABELS.astype(bool)):
        assert np.array_equal(clone(labeled).fit(OF_LABELS, y).bag_scores(OF_LABELS), expected)


def test_a_label_without_held_out_bags_of_both_kinds_is_not_calibrated():
    y = LABELS.copy()
    y[:, 2] = np.arange(N) < 3
    groups = np.where(np.arange(N) < 3, 0, np.arange(N))  # all that have the label stay together
    with pytest.warns(UserWarning, match="all have, or all lack, 2: predict_proba returns"):
        found = MIDAMClassifier(**HOW).fit(OF_LABELS, y, groups=groups)
    np.testing.assert_allclose(found.predict_proba(OF_LABELS)[:, 2], found.bag_scores(OF_LABELS)[:, 2], rtol=1e-9)


# Grades and numbers.


def test_a_ranker_gives_grades_and_is_judged_by_the_order(graded):
    y = np.array(["low", "mid", "high"])[GRADES]
    assert (graded.target_, graded.grades_.tolist()) == ("ordinal", ["low", "mid", "high"])
    scores, called = graded.bag_scores(OF_GRADES), graded.predict(OF_GRADES)
    assert scores.shape == (N,)
    assert graded.score(OF_GRADES, y) == pytest.approx(concordance_of_lifelines(GRADES, scores), rel=1e-12)
    codes = np.array([["low", "mid", "high"].index(name) for name in called])
    assert (np.diff(codes[np.argsort(scores)]) >= 0).all()
    assert accuracy_score(y, called) > 0.6
    with pytest.raises(BagDataError, match=r"grades low, mid, high in y, got worst \(in y, bag 0\)"):
        clone(graded).fit(OF_GRADES, np.where(y == y[0], "worst", y))


def test_a_ranker_of_numbers_gives_numbers():
    y = 10.0 * GRADES + np.arange(N) / N
    found = MIDAMRanker(**HOW).fit(OF_GRADES, y)
    assert (found.target_, found.grades_) == ("continuous", None)
    scores, numbers = found.bag_scores(OF_GRADES), found.predict(OF_GRADES)
    assert (np.diff(numbers[np.argsort(scores)]) >= 0).all()
    assert np.abs(numbers - y).mean() < np.abs(np.median(y) - y).mean() / 2
    assert found.score(OF_GRADES, y) == pytest.approx(concordance_of_lifelines(y, scores), rel=1e-12)
    assert is_regressor(found)
    assert not is_classifier(found)
    whole = MIDAMRanker(**HOW).fit(OF_GRADES, pd.Series(GRADES))
    assert np.array_equal(
        whole.bag_scores(OF_GRADES), clone(whole).fit(OF_GRADES, GRADES.tolist()).bag_scores(OF_GRADES)
    )
    with pytest.raises(
        BagDataError, match=r"numbers in y, got low \(in y, bag .*\); correct it, or name the grades, the"
    ):
        MIDAMRanker(**HOW).fit(OF_GRADES, np.array(["low", "mid", "high"])[GRADES])


def test_without_held_out_bags_there_are_ranks_alone():
    found = MIDAMRanker(val_fraction=0.0, **HOW).fit(OF_GRADES, GRADES)
    assert found.score(OF_GRADES, GRADES) > 0.8
    with pytest.raises(ConfigError, match="set val_fraction above 0, or use `bag_scores`"):
        found.predict(OF_GRADES)


def test_held_out_bags_that_say_nothing_are_warned_of():
    with pytest.warns(UserWarning, match="the val labels order no bags"):
        found = MIDAMRanker(val_fraction=0.02, **HOW).fit(OF_GRADES, GRADES)
    assert found.decision_ is None


def test_bags_say_their_own_grades(graded):
    outcome = TargetLabels.of("ordinal", GRADES, names=["low", "mid", "high"])
    bags = Bags.from_list(OF_GRADES, outcome=outcome)
    expected = graded.bag_scores(OF_GRADES)
    for ranker in (MIDAMRanker(**HOW), MIDAMRanker(grades=("low", "mid", "high"), **HOW)):
        assert np.array_equal(ranker.fit(bags).bag_scores(bags), expected)
        assert ranker.score(bags, np.array(["low", "mid", "high"])[GRADES]) == ranker.score(bags, None)
    with pytest.raises(BagDataError, match=r"ordinal or continuous, got survival .*; use MIDAMSurvival, or pass"):
        MIDAMRanker().fit(
            bags.replace(outcome=TargetLabels.of("survival", np.stack([TIME, EVENT], 1), names=["t", "e"]))
        )
    with pytest.raises(BagDataError, match=r"multiclass or multilabel, got ordinal .*; use MIDAMRanker"):
        MIDAMClassifier().fit(bags)
    with pytest.raises(BagDataError, match=r"got binary .*; use MIDAMClassifier"):
        MIDAMRanker().fit(Bags.from_list(OF_GRADES, labels=GRADES > 0))


# Survival.


def test_risks_rank_who_has_the_event_first(survival):
    risk = survival.predict(OF_GRADES)
    assert np.array_equal(risk, survival.bag_scores(OF_GRADES))
    expected = concordance_of_lifelines(TIME, -risk, EVENT)
    assert survival.score(OF_GRADES, of_scikit_survival()) == pytest.approx(expected, rel=1e-12)
    assert expected > 0.7
    groups = survival.risk_groups(OF_GRADES)
    assert risk[groups == "low"].max() < risk[groups == "high"].min()
    assert not is_regressor(survival)
    cox = MIDAMSurvival(objective="cox", **HOW).fit(OF_GRADES, of_scikit_survival())
    assert cox.score(OF_GRADES, of_scikit_survival()) > 0.7


FORMS = {
    "named otherwise": lambda: of_scikit_survival(("status", "days")),
    "the other way round": lambda: of_scikit_survival()[["time", "event"]],
    "array": lambda: np.stack([TIME, EVENT], axis=1),
    "list": lambda: np.stack([TIME, EVENT], axis=1).tolist(),
    "frame": lambda: pd.DataFrame({"Event": EVENT.astype(int), "Time": TIME}),
    "frame of truths": lambda: pd.DataFrame({"dead": EVENT, "days": TIME}),
    "frame in order": lambda: pd.DataFrame({"days": TIME, "dead": EVENT.astype(int)}),
    "frame with a named event": lambda: pd.DataFrame({"event": EVENT.astype(int), "months": TIME}),
    "frame with a named time": lambda: pd.DataFrame({"status": EVENT.astype(int), "TIME": TIME}),
}


@pytest.mark.parametrize("form", FORMS)
def test_times_and_events_in_any_form_are_the_same(form):
    found = np.asarray(times_of(FORMS[form]()), dtype=float)
    assert np.array_equal(found, np.stack([TIME, EVENT], axis=1))


def test_times_follow_the_bags_of_a_frame(survival):
    names = [f"b{i:02}" for i in range(N)]
    frame = pd.concat({name: pd.DataFrame(part, columns=NAMES) for name, part in zip(names, OF_GRADES, strict=True)})
    y = pd.DataFrame({"event": EVENT, "time": TIME}, index=names).sample(frac=1, random_state=0)
    found = clone(survival).fit(frame, y)
    assert np.array_equal(found.predict(frame), survival.predict(OF_GRADES))
    bags = Bags.from_list(OF_GRADES, outcome=TargetLabels.of("survival", np.stack([TIME, EVENT], 1), names=["t", "e"]))
    assert np.array_equal(clone(survival).fit(bags).predict(bags), survival.predict(OF_GRADES))


@pytest.mark.parametrize(
    ("y", "text"),
    [
        (TIME, r"time and event of each bag in y, got shape \(60,\)"),
        (pd.DataFrame({"a": TIME, "b": TIME, "c": TIME}), "got the columns a, b, c"),
        (np.zeros(N, dtype=[("a", int), ("b", float)]), "got the fields a, b; give an array"),
        (np.stack([EVENT, TIME], axis=1), "times above 0"),
        (np.stack([TIME, 2 * EVENT], axis=1), "a time and an event of 0"),
        (np.stack([TIME, EVENT], axis=1)[:5], "Expected 60 labels, got 5"),
        (pd.DataFrame({"time": TIME, "event": "dead"}), "numbers in y, got dead .*; give time and event as numbers"),
        (None, "MIDAMSurvival requires y to be passed"),
    ],
)
def test_what_are_no_times_is_refused(y, text):
    with pytest.raises(BagDataError, match=text):
        MIDAMSurvival(**HOW).fit(OF_GRADES, y)


# What all have in common.

CASES = {
    "several": (OF_CLASSES, CLASSES, ["predict", "predict_proba", "decision_function"]),
    "labeled": (OF_LABELS, LABELS, ["predict", "predict_proba", "decision_function"]),
    "graded": (OF_GRADES, np.array(["low", "mid", "high"])[GRADES], ["predict"]),
    "survival": (OF_GRADES, of_scikit_survival(), ["predict", "risk_groups"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_saved_estimator_is_a_run_and_comes_back(case, request, tmp_path):
    fitted, (X, y, methods) = request.getfixturevalue(case), CASES[case]
    fitted.save(tmp_path / "run")
    for twin in (type(fitted).load(tmp_path / "run"), pickle.loads(pickle.dumps(fitted))):
        for method in ("bag_scores", *methods):
            assert np.array_equal(getattr(twin, method)(X), getattr(fitted, method)(X)), method
        assert twin.score(X, y) == fitted.score(X, y)
        assert twin.predict(X).dtype == fitted.predict(X).dtype
    run = load_run(tmp_path / "run")
    assert run.target.name == fitted.target_
    assert np.array_equal(predict_run(run, Bags.from_list(X))[0], fitted.bag_scores(X))
    told = run.target.predictions(fitted.bag_scores(X), run.decision)
    if case == "several":
        assert told["class"] == fitted.predict(X).tolist()
        # The bags that it was made of are no test.
        names = fitted.classes_.tolist()
        bags = Bags.from_list(X, outcome=TargetLabels.of("multiclass", np.searchsorted(names, y), names=names))
        assert set(evaluate_bags(run, bags).result) >= {"train", "val"}
    if case == "graded":
        assert told["grade"] == fitted.predict(X).tolist()
        twin = type(fitted).load(tmp_path / "run")
        assert len(twin.fit(X, y).history_) == 4
    other = MIDAMRanker if case == "survival" else MIDAMSurvival
    with pytest.raises(CheckpointError, match=f"got {fitted.target_} .*; load it with {type(fitted).__name__}"):
        other.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("positive", "names"), [(0, (0, 1)), (False, (False, True)), ("b", ("b", "m")), (None, (0, 1))], ids=str
)
def test_a_run_keeps_its_classes_on_bags_that_hold_them_in_another_order(positive, names, tmp_path):
    label, y = np.arange(N) % 2, np.array(names)[np.arange(N) % 2]
    bags = Bags.from_list(drawn(np.stack([6.0 * label] * 3, axis=1)), feature_names=list("xyz"))
    fitted = MIDAMClassifier(method="bag-statistics-logistic", positive=positive).fit(bags, y)
    fitted.save(tmp_path / "run")
    twin, run = MIDAMClassifier.load(tmp_path / "run"), load_run(tmp_path / "run")
    assert np.array_equal(twin.predict(bags), y)
    assert twin.positive_ == fitted.positive_ == (names[1] if positive is None else positive)
    plain = bags.replace(instances=bags.instances + 0.01, ids=[f"new-{i}" for i in range(N)], labels=label)
    plain = plain.replace(classes=None if names == (0, 1) else names)
    turned = plain.replace(labels=1 - label, classes=names[::-1])
    write_store(plain, tmp_path / "plain.store")
    write_store(turned, tmp_path / "turned.store")
    frame = pd.DataFrame(np.concatenate([turned[i] for i in range(N)]), columns=list("xyz"))
    frame = frame.assign(bag=np.repeat(turned.ids, turned.sizes), label=np.repeat(y, turned.sizes))
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = [read_for(run, str(tmp_path / name), labeled=True) for name in ("plain.store", "turned.store", "t.csv")]
    for new in (plain, turned, *data):
        assert evaluate_bags(run, new).result["new"]["auroc"] == 1.0, new.source
    assert [new.labels.tolist() for new in data] == [(y == fitted.positive_).astype(int).tolist()] * 3
    part = plain.replace(labels=(y == fitted.positive_).astype(int), classes=("other", fitted.positive_))
    for classes in (("other", fitted.positive_), (fitted.positive_, "other")):
        with pytest.raises(BagDataError, match=r"as in training .*, got .*other.*; write them so, or name"):
            evaluate_bags(run, part.replace(classes=classes))
    # The other class of the run cannot be the positive value of some data: the metrics would be those of 1 - score.
    other = str(names[1 - names.index(fitted.positive_)])
    for name in ("plain.store", "turned.store", "t.csv"):
        with pytest.raises(BagDataError, match=r"name (the value that means .*|one of these) as `positive`"):
            read_for(run, str(tmp_path / name), labeled=True, positive=other)


def test_a_run_keeps_its_classes_on_bags_with_some_of_them(several):
    run = several.to_run()
    outcome = TargetLabels.of("multiclass", np.searchsorted(["lung", "skin"], CLASSES) % 2, names=["lung", "skin"])
    bags = Bags.from_list([bag + 0.01 for bag in OF_CLASSES], outcome=outcome, ids=[f"new-{i}" for i in range(N)])
    bags = bags.subset(CLASSES != "bone")
    other = TargetLabels.of("multiclass", bags.outcome.values, names=["eye", "skin"])
    with pytest.raises(BagDataError, match=r"one of the classes bone, lung, skin as in training .*got eye"):
        evaluate_bags(run, bags.replace(outcome=other))
    found = evaluate_bags(run, bags).result["new"]["accuracy"]
    assert found == np.mean(several.predict([bags[i] for i in range(len(bags))]) == CLASSES[CLASSES != "bone"])


def test_loaded_classes_are_what_they_were_in_y(tmp_path):
    names = np.array([10, 2, 33])
    y = names[np.arange(N) % 3]
    found = MIDAMClassifier(**HOW).fit(OF_CLASSES, y)
    found.save(tmp_path / "run")
    twin = MIDAMClassifier.load(tmp_path / "run")
    assert twin.classes_.tolist() == [2, 10, 33]
    assert np.array_equal(twin.predict(OF_CLASSES), found.predict(OF_CLASSES))
    # Names of a run have an order of their own: 2 before 10, which texts have not.
    twin._classes = np.array(["2", "10", "33"])
    twin._restore()
    assert twin.classes_.tolist() == ["10", "2", "33"]
    assert np.array_equal(twin.bag_scores(OF_CLASSES), found.bag_scores(OF_CLASSES)[:, [1, 0, 2]])
    assert np.array_equal(twin.predict(OF_CLASSES), found.predict(OF_CLASSES).astype(str))


@pytest.mark.parametrize("case", CASES)
def test_searches_pipelines_and_groups(case, request):
    fitted, (X, y, _) = request.getfixturevalue(case), CASES[case]
    small = clone(fitted).set_params(epochs=1)
    scores = cross_val_score(make_pipeline(FunctionTransformer(), small), X, y, cv=2, error_score="raise")
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(small, {"pooling": ["mean", "attention"]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_["pooling"] in ("mean", "attention")
    groups = np.arange(N) // 2
    held = clone(small).fit(X, y, groups=groups).run_.splits
    assert all(held[str(i)] == held[str(i + 1)] for i in range(0, N, 2))
    with pytest.raises(BagDataError, match="Expected 60 labels, got 59"):
        clone(small).fit(X, y[:-1])


def test_scorers_of_scikit_learn_take_the_columns():
    small = MIDAMClassifier(**{**HOW, "epochs": 1})
    for X, y, scoring in ((OF_CLASSES, CLASSES, "roc_auc_ovr"), (OF_LABELS, LABELS, "roc_auc")):
        assert np.isfinite(cross_val_score(small, X, y, cv=2, scoring=scoring, error_score="raise")).all()
    ranker = MIDAMRanker(**{**HOW, "epochs": 1})
    errors = cross_val_score(ranker, OF_GRADES, GRADES, cv=2, scoring="neg_mean_absolute_error", error_score="raise")
    assert (errors < 0).all()
