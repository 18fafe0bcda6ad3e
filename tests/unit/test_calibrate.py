"""Platt scaling and the calibration line against a general optimiser."""

import json
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax

from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.calibrate import (
    PlattCalibrator,
    calibration_interval,
    calibration_line,
    reliability_bins,
    score_logits,
)
from midam.evaluate.curves import net_benefit
from midam.evaluate.decisions import LabelCalibrator, TemperatureCalibrator


def fitted_by_bfgs(x, targets):
    """Maximize the likelihood of ``sigmoid(slope x + intercept)`` with analytic gradients."""

    def loss(line):
        z = line[0] * x + line[1]
        residual = expit(z) - targets
        return np.sum(np.logaddexp(0, z) - targets * z), np.array([residual @ x, residual.sum()])

    return minimize(loss, [0.0, 0.0], jac=True, method="BFGS", options={"gtol": 1e-9}).x


@pytest.fixture
def sample():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [60, 40])
    return labels, generator.normal(size=100) + 1.2 * labels


def test_platt_equals_the_likelihood_with_smoothed_targets(sample):
    labels, scores = sample
    slope, intercept = fitted_by_bfgs(scores, np.where(labels == 1, 41 / 42, 1 / 62))
    grid = np.linspace(-4, 5, 50)
    found = PlattCalibrator.fit(scores, labels).predict(grid)
    # 1e-6: two iterative solvers, and the vanishing penalty of one of them.
    np.testing.assert_allclose(found, expit(slope * grid + intercept), rtol=1e-6)


def test_platt_does_not_depend_on_the_unit_of_the_score(sample):
    labels, scores = sample
    expected = PlattCalibrator.fit(scores, labels).predict(scores)
    scaled = 1e-6 * scores + 7
    found = PlattCalibrator.fit(scaled, labels).predict(scaled)
    # The offset alone costs seven digits of the score.
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_separable_validation_stays_finite():
    labels, scores = np.repeat([0, 1], [6, 4]), np.arange(10.0)
    calibrator = PlattCalibrator.fit(scores, labels)
    found = calibrator.predict(scores)
    assert np.isfinite(list(calibrator.to_dict().values())).all()
    assert (np.diff(found) > 0).all()
    assert 0.001 < found[0] < 0.5 < found[-1] < 0.999


def test_probabilities_keep_the_order(sample):
    labels, scores = sample
    found = PlattCalibrator.fit(scores, labels).predict(np.sort(scores))
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("scores", [-np.arange(8.0), np.full(8, 3.3), np.full(8, 0.1)])
def test_useless_scores_give_the_prevalence_and_a_warning(scores):
    labels = np.repeat([0, 1], [6, 2])
    with pytest.warns(UserWarning, match="share of positive held-out bags"):
        calibrator = PlattCalibrator.fit(scores, labels)
    np.testing.assert_allclose(calibrator.predict([-100.0, 0.0, 1e6]), 0.25, rtol=1e-9)


def test_scores_that_are_all_one_give_one_warning():
    with pytest.warns(UserWarning, match="share of positive held-out bags") as caught:
        PlattCalibrator.fit(np.full(20, 0.5), np.repeat([0, 1], 10))
    assert len(caught) == 1


def test_dict_round_trip_is_exact_and_plain(sample):
    labels, scores = sample
    calibrator = PlattCalibrator.fit(scores.astype(np.float32), labels)
    stored = json.loads(json.dumps(calibrator.to_dict()))
    assert all(type(value) in (float, bool) for value in calibrator.to_dict().values())
    np.testing.assert_array_equal(PlattCalibrator.from_dict(stored).predict(scores), calibrator.predict(scores))


@pytest.mark.parametrize(
    "values",
    [
        {"intercept": None},
        {"scale": 0.0},
        {"slope": -1.0},
        {"slope": float("nan")},
        {"scale": float("nan")},
        {"on_logit": 3.0},
    ],
)
def test_damaged_dict_is_refused(values):
    sound = {"center": 0.0, "scale": 1.0, "slope": 1.0, "intercept": 0.0, "on_logit": False}
    assert PlattCalibrator.from_dict(sound).to_dict() == sound
    with pytest.raises(ConfigError, match=f"Expected a PlattCalibrator, got {next(iter(values))}: "):
        PlattCalibrator.from_dict({**sound, **values})


def test_misuse_is_refused():
    with pytest.raises(OneClassError):
        PlattCalibrator.fit([0.1, 0.2], [1, 1])
    with pytest.raises(BagDataError, match="finite"):
        PlattCalibrator.fit([0.1, np.nan], [0, 1])


def test_calibration_line_equals_the_likelihood(sample):
    labels, scores = sample
    found = calibration_line(labels, expit(2 * scores - 0.3))
    # 1e-6: two iterative solvers.
    np.testing.assert_allclose(found, fitted_by_bfgs(2 * scores - 0.3, labels), rtol=1e-6)


def test_calibration_line_undoes_a_known_distortion(sample):
    labels, scores = sample
    slope, intercept = calibration_line(labels, expit(scores))
    twisted = calibration_line(labels, expit(3 * scores + 1))
    np.testing.assert_allclose(twisted, (slope / 3, intercept - slope / 3), rtol=1e-6)
    recalibrated = expit(slope * scores + intercept)
    np.testing.assert_allclose(calibration_line(labels, recalibrated), (1, 0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(recalibrated.mean(), labels.mean(), rtol=1e-6)


def test_calibration_line_takes_certain_probabilities():
    slope, intercept = calibration_line([0, 1, 0, 1, 0, 1], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(
        (slope, intercept),
        fitted_by_bfgs(logit(np.clip([0, 0.2, 0.4, 0.6, 0.8, 1], 1e-12, 1 - 1e-12)), np.array([0, 1, 0, 1, 0, 1])),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("labels", "probabilities"),
    [
        ([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]),
        ([1, 1, 0, 0], [0.1, 0.2, 0.8, 0.9]),
        ([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.9]),
        ([0, 1, 0, 1], [0.3, 0.3, 0.3, 0.3]),
        ([1, 1], [0.3, 0.6]),
    ],
    ids=["separated", "reversed", "touching", "constant", "one-class"],
)
def test_calibration_line_that_does_not_exist_is_none(labels, probabilities):
    assert calibration_line(labels, probabilities) is None


@pytest.mark.parametrize(("offset", "scale"), [(0, 3), (-6, 3), (6, 3), (-12, 6)])
def test_scores_that_are_the_probabilities_are_left_alone(offset, scale):
    generator = np.random.default_rng(0)
    held, new = (generator.normal(size=size) * scale + offset for size in (2000, 20_000))
    labels, truth = ((generator.random(len(x)) < expit(x)).astype(int) for x in (held, new))
    found = PlattCalibrator.fit(expit(held), labels).predict(expit(new))
    on_score = PlattCalibrator.fit(expit(held), labels, raw=True).predict(expit(new))
    best, reached, before = (
        -np.mean(truth * np.log(p) + (1 - truth) * np.log1p(-p)) for p in (expit(new), found, on_score)
    )
    assert reached < best + 0.002 < before - 0.005
    assert found.min() < 1e-4 if offset <= 0 else found.max() > 1 - 1e-4


def test_scores_of_exactly_0_and_1_have_probabilities_and_keep_their_order():
    scores = np.array([0, 1e-300, 1e-9, 1e-8, 0.5, 1 - 1e-8, 1 - 1e-9, np.nextafter(1, 0), 1])
    labels = np.array([0, 0, 0, 1, 0, 1, 0, 1, 1])
    x = score_logits(scores)
    assert (np.diff(x[[0, 2, 3, 4, 5, 6, 8]]) > 0).all()
    assert (np.diff(x) >= 0).all()
    assert np.abs(x).max() == pytest.approx(24 * np.log(2), abs=1e-3)
    found = PlattCalibrator.fit(scores, labels)
    assert np.isfinite(found.logits(scores)).all()
    assert (np.diff(found.predict(scores)) >= 0).all()
    np.testing.assert_array_equal(found.predict([-1e-9, 1 + 1e-9]), found.predict([0, 1]))  # rounding outside


def test_a_calibrator_says_whether_it_is_on_the_logit():
    line = {"center": 0.4, "scale": 0.2, "slope": 1.5, "intercept": -0.3}
    scores = np.linspace(0, 1, 11)
    calibrator = PlattCalibrator.from_dict({**line, "on_logit": False})
    np.testing.assert_allclose(calibrator.predict(scores), expit(1.5 * (scores - 0.4) / 0.2 - 0.3), rtol=1e-12)
    assert calibrator.to_dict() == {**line, "on_logit": False}
    made = PlattCalibrator.fit(scores, [0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1])
    assert made.on_logit


def test_classes_and_labels_are_calibrated_on_the_logit_too():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 3)) * 3 - 2
    labels = (generator.random(logits.shape) < expit(logits)).astype(float)
    found = LabelCalibrator.fit(expit(logits), labels).predict(expit(logits))
    np.testing.assert_allclose(found, expit(logits), atol=0.03)
    shares = softmax(logits, axis=1)
    codes = (shares.cumsum(axis=1) < generator.random((20_000, 1))).sum(axis=1)
    calibrator = TemperatureCalibrator.fit(expit(logits), codes)
    np.testing.assert_allclose(calibrator.predict(expit(logits)), shares, atol=0.03)
    again = TemperatureCalibrator.from_dict(json.loads(json.dumps(calibrator.to_dict())))
    np.testing.assert_array_equal(again.predict(expit(logits)), calibrator.predict(expit(logits)))
    line = {"center": 0.5, "scale": 0.5, "slope": 2.0, "offsets": [0.0, 1.0], "on_logit": False}
    scores = np.array([[0.2, 0.7]])
    expected = softmax(4 * (scores - 0.5) + [0.0, 1.0], axis=1)
    np.testing.assert_allclose(TemperatureCalibrator.from_dict(line).predict(scores), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "function", [reliability_bins, calibration_line, calibration_interval, partial(net_benefit, thresholds=[0.2])]
)
def test_a_number_outside_0_and_1_is_no_probability(function):
    for wrong in (1.5, -0.1):
        with pytest.raises(BagDataError, match=rf"probabilities.*{wrong} \(bag 1\)"):
            function([0, 1] * 20, [0.2, wrong] * 20)
