"""Platt scaling and the calibration line against a general optimiser."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.calibrate import PlattCalibrator, calibration_line


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
    found = PlattCalibrator().fit(scores, labels).predict(grid)
    # 1e-6: two iterative solvers, and the vanishing penalty of one of them.
    np.testing.assert_allclose(found, expit(slope * grid + intercept), rtol=1e-6)


def test_platt_does_not_depend_on_the_unit_of_the_score(sample):
    labels, scores = sample
    expected = PlattCalibrator().fit(scores, labels).predict(scores)
    scaled = 1e-6 * scores + 7
    found = PlattCalibrator().fit(scaled, labels).predict(scaled)
    # The offset alone costs seven digits of the score.
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_separable_validation_stays_finite():
    labels, scores = np.repeat([0, 1], [6, 4]), np.arange(10.0)
    calibrator = PlattCalibrator().fit(scores, labels)
    found = calibrator.predict(scores)
    assert np.isfinite(list(calibrator.to_dict().values())).all()
    assert (np.diff(found) > 0).all()
    assert 0.001 < found[0] < 0.5 < found[-1] < 0.999


def test_probabilities_keep_the_order(sample):
    labels, scores = sample
    found = PlattCalibrator().fit(scores, labels).predict(np.sort(scores))
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("scores", [-np.arange(8.0), np.full(8, 3.3), np.full(8, 0.1)])
def test_useless_scores_give_the_prevalence_and_a_warning(scores):
    labels = np.repeat([0, 1], [6, 2])
    with pytest.warns(UserWarning, match="share of positive validation bags"):
        calibrator = PlattCalibrator().fit(scores, labels)
    np.testing.assert_allclose(calibrator.predict([-100.0, 0.0, 1e6]), 0.25, rtol=1e-9)


def test_dict_round_trip_is_exact_and_plain(sample):
    labels, scores = sample
    calibrator = PlattCalibrator().fit(scores.astype(np.float32), labels)
    stored = json.loads(json.dumps(calibrator.to_dict()))
    assert all(type(value) is float for value in calibrator.to_dict().values())
    np.testing.assert_array_equal(PlattCalibrator.from_dict(stored).predict(scores), calibrator.predict(scores))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"center": 0.0, "scale": 1.0, "slope": 1.0},
        {"center": 0.0, "scale": 0.0, "slope": 1.0, "intercept": 0.0},
        {"center": 0.0, "scale": 1.0, "slope": -1.0, "intercept": 0.0},
        {"center": 0.0, "scale": 1.0, "slope": float("nan"), "intercept": 0.0},
    ],
)
def test_damaged_dict_is_refused(values):
    with pytest.raises(ConfigError, match="Expected"):
        PlattCalibrator.from_dict(values)


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="call fit first"):
        PlattCalibrator().predict([0.0])
    with pytest.raises(ConfigError, match="call fit first"):
        PlattCalibrator().to_dict()
    with pytest.raises(OneClassError):
        PlattCalibrator().fit([0.1, 0.2], [1, 1])
    with pytest.raises(BagDataError, match="finite"):
        PlattCalibrator().fit([0.1, np.nan], [0, 1])


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
