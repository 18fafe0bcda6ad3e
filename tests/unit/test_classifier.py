import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from midam import MIDAMClassifier
from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.data.splits import split_bags
from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn.ensemble import scorers_of

# A few epochs on few bags may rank the held-out bags worse than chance; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:Expected scores that rank validation bags")


SETTINGS = {"members": 1, "optimizer": "adam", "lr": 0.005, "num_instances": 8}


@pytest.fixture(scope="module")
def data():
    bags = catalog.load("digits")
    return bags.subset(bags.where_split("train")), bags.subset(bags.where_split("test"))


@pytest.fixture(scope="module")
def fitted(data):
    train, _ = data
    return MIDAMClassifier(epochs=15, settings=SETTINGS).fit(train, train.labels)


def test_it_is_a_scikit_learn_estimator():
    classifier = MIDAMClassifier(pooling="mean", epochs=3, settings={"lr": 0.1})
    twin = clone(classifier)
    assert twin is not classifier
    assert twin.get_params() == classifier.get_params()
    assert twin.set_params(seed=4).seed == 4
    assert set(classifier.get_params()) == {"pooling", "estimator", "objective", "seed", "epochs", "settings"}


def test_scores_rank_probabilities_and_classes_follow(fitted, data):
    _, test = data
    scores = fitted.decision_function(test)
    assert roc_auc_score(test.labels, scores) > 0.8
    probabilities = fitted.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert (np.diff(probabilities[np.argsort(scores), 1]) >= 0).all()
    assert np.array_equal(fitted.predict(test), (scores >= fitted.threshold_).astype(int))
    assert fitted.score(test, test.labels) == np.mean(fitted.predict(test) == test.labels)
    assert fitted.classes_.tolist() == [0, 1]
    assert len(fitted.history_) == 15


def test_a_list_of_arrays_is_as_good(data, fitted):
    train, test = data
    arrays, labels = [train[i] for i in range(len(train))], train.labels.tolist()
    other = MIDAMClassifier(epochs=15, settings=SETTINGS).fit(arrays, labels)
    expected = fitted.decision_function(test)
    assert np.array_equal(other.decision_function([test[i] for i in range(len(test))]), expected)


def test_a_fitted_classifier_survives_pickle(fitted, data):
    twin = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(twin.decision_function(data[1]), fitted.decision_function(data[1]))


def test_instances_explain_the_scores(fitted, data):
    _, test = data
    scores = fitted.decision_function(test)
    found = fitted.instance_scores(test)
    assert [len(one.weight) for one in found] == test.sizes.tolist()
    for one, score in zip(found, scores, strict=True):
        np.testing.assert_allclose(one.weight.sum(dtype=np.float64), 1, rtol=1e-5)
        single = one.score.astype(np.float64)
        pooled = (one.weight * np.log(single / (1 - single))).sum()
        np.testing.assert_allclose(1 / (1 + np.exp(-pooled)), score, rtol=2e-5)


def test_the_seed_decides(data):
    train, test = data
    scores = [MIDAMClassifier(epochs=1, seed=seed).fit(train).decision_function(test) for seed in (1, 1, 2)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_the_best_epoch_on_request(data):
    train, test = data
    settings = {"optimizer": "adam", "lr": 0.05, "decay_at": []}
    classifier = MIDAMClassifier(epochs=30, settings={**settings, "select": "best", "patience": 2}).fit(train)
    values = np.array([row["val_auroc"] for row in classifier.history_])
    # Of equal values, which another processor may have, patience counts from the first and the last has the weights.
    assert len(values) == values.argmax() + 3 < 30
    best = int(np.flatnonzero(values == values.max())[-1]) + 1
    until = MIDAMClassifier(epochs=best, settings=settings).fit(train)
    assert np.array_equal(until.decision_function(test), classifier.decision_function(test))


@pytest.mark.parametrize("select", ["last", "best"])
def test_several_members_are_averaged_calibrated_and_pickled_as_one(select, data):
    train, test = data
    settings = {"members": 3, "select": select, "dropout": 0.2, "optimizer": "adam", "lr": 0.05}
    classifier = MIDAMClassifier(epochs=6, settings=settings).fit(train)
    members = scorers_of(classifier.model_)
    assert len(members) == 3
    scores = classifier.decision_function(test)
    assert np.array_equal(scores, np.mean([predict(member, test) for member in members], axis=0))
    held = split_bags(train.labels, groups=None, fractions=(0.8, 0.2, 0.0), seed=0) == "val"
    val = train.subset(np.flatnonzero(held))
    areas = [row["val_auroc"] for row in classifier.history_]
    assert auroc(val.labels, classifier.decision_function(val)) == (areas[-1] if select == "last" else max(areas))
    assert classifier.predict_proba(test).shape == (100, 2)
    assert np.array_equal(pickle.loads(pickle.dumps(classifier)).decision_function(test), scores)
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
    classifier = MIDAMClassifier(epochs=1, settings={"val_fraction": 0.0}).fit(train)
    assert classifier.threshold_ == 0.5
    assert classifier.predict(test).shape == (100,)
    with pytest.raises(ConfigError, match="val_fraction=0"):
        classifier.predict_proba(test)


@pytest.mark.parametrize("method", ["decision_function", "predict", "predict_proba", "instance_scores"])
def test_it_must_be_fitted_first(method, data):
    with pytest.raises(ConfigError, match="call fit first"):
        getattr(MIDAMClassifier(), method)(data[1])


def test_other_features_are_refused(fitted):
    with pytest.raises(BagDataError, match=r"\[64\] as in fit, got \[63\]"):
        fitted.decision_function([np.zeros((2, 63))])


@pytest.mark.parametrize(
    ("classifier", "text"),
    [
        (MIDAMClassifier(settings={"num_instance": 3}), "did you mean 'num_instances'"),
        (MIDAMClassifier(settings={"epochs": 3}), "argument of its own"),
        (MIDAMClassifier(settings={"lr": "fast"}), "`lr` as a number > 0, got 'fast'"),
        (MIDAMClassifier(estimator="vsrp"), "known estimator, got 'vsrp'; did you mean 'vrsp'"),
        (MIDAMClassifier(pooling="max"), "smooth pooling"),
    ],
)
def test_wrong_settings_are_refused_in_fit(classifier, text, data):
    with pytest.raises(ConfigError, match=text):
        classifier.fit(data[0])


def test_wrong_labels_are_refused(data):
    train, _ = data
    with pytest.raises(BagDataError, match="0 or 1"):
        MIDAMClassifier().fit(train, np.arange(len(train)))
    with pytest.raises(BagDataError, match="200 labels, got 3"):
        MIDAMClassifier().fit(train, [0, 1, 0])
    with pytest.raises(OneClassError):
        MIDAMClassifier().fit(train, np.ones(len(train)))
    with pytest.raises(BagDataError, match="without labels"):
        MIDAMClassifier().fit(Bags.from_list([[[1.0]], [[2.0]]]))
