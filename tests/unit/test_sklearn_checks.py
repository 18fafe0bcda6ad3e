"""scikit-learn's own checks, with those that are expected to fail."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from midam import MIDAMClassifier, MIDAMRanker
from midam.sklearn.transformers import BagStatistics

BATCHES = dict.fromkeys(
    ("check_methods_subset_invariance", "check_methods_sample_order_invariance"),
    "expects the same score to 1e-7 at any position in any batch; in float32 the seventh digit can differ, on some "
    "processors and with the order that the check draws",
)
EXPECTED_FAILURES = {
    "MIDAMClassifier": {
        "check_classifiers_train": (
            "expects predict to return the class of the larger probability, but predict uses the operating point that "
            "was chosen on held-out bags: with few positive bags, no probability may reach 1/2"
        ),
        "check_sample_weights_list": "weighs three classes, but weights need two",
        "check_sample_weight_equivalence_on_dense_data": (
            "expects a weight of 2 to be the same as a bag that is there twice, but then other bags are held out"
        ),
        **BATCHES,
    },
    "MIDAMRanker": BATCHES,
    "BagStatistics": {},
}
SMALL = {"epochs": 2, "members": 1, "threads": 1}
# The checks have no images, and no y of survival times.
ESTIMATORS = [
    pytest.param(estimator, id=name, marks=[pytest.mark.long] if name != "BagStatistics" else [])
    for estimator in (MIDAMClassifier(**SMALL), MIDAMRanker(**SMALL), BagStatistics())
    for name in [type(estimator).__name__]
]


@pytest.mark.filterwarnings("ignore")  # of what the checks do on purpose
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scikit_learn_finds_no_fault_but_those_on_the_list(estimator):
    expected = EXPECTED_FAILURES[type(estimator).__name__]
    rows = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert [(row["check_name"], row["exception"]) for row in rows if row["status"] == "failed"] == []
    assert sum(row["status"] == "passed" for row in rows) > 40
    # Which of those on the list fail can hang on a processor's rounding.
    assert {row["check_name"] for row in rows if row["status"] == "xfail"} <= set(expected)
    assert len(rows) == len(list(estimator_checks_generator(estimator)))


def test_no_score_hangs_on_the_order_of_the_bags_beyond_float32():
    X, y = make_blobs(n_samples=60, centers=3, random_state=0)
    fitted = MIDAMClassifier(**SMALL).fit(X, y)
    scores = fitted.bag_scores(X)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X))
        np.testing.assert_allclose(fitted.bag_scores(X[order]), scores[order], rtol=0, atol=1e-6)
