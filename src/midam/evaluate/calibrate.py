"""From a ranking score to a probability: Platt scaling on validation bags, and how well probabilities are calibrated.

A model trained for the AUROC ranks; its sigmoid is no probability until it is calibrated on bags that it did not see.
"""

import warnings
from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from midam.errors import ConfigError
from midam.evaluate.ranking import Scores, check_bags, check_two_classes

# Probabilities of exactly 0 or 1 have no logit.
SMALLEST = 1e-12
_KEYS = ("center", "scale", "slope", "intercept")


class PlattCalibrator:
    """Probability ``sigmoid(slope (score - center) / scale + intercept)`` fitted on validation bags (Platt 1999).

    The targets are Platt's ``(P + 1) / (P + 2)`` and ``1 / (N + 2)`` in place of 1 and 0, so that separable validation
    bags keep a finite slope. Scores that rank validation bags the wrong way, or not at all, carry no usable
    probability: the calibrator then returns the share of positive validation bags, and warns.

    Attributes
    ----------
    center_, scale_ : float
        Mean and standard deviation of the validation scores.
    slope_, intercept_ : float
        Line on the standardized score, in logits; the slope is never negative.

    Examples
    --------
    >>> calibrator = PlattCalibrator().fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    >>> calibrator.predict([-2.0, 0.0, 2.0]).round(2).tolist()
    [0.21, 0.5, 0.79]
    """

    def fit(self, scores: ArrayLike, labels: ArrayLike) -> Self:
        """Fit the line on the scores [N] and labels [N], 0 or 1, of validation bags of both classes."""
        y, s = check_bags(labels, scores)
        positives, negatives = check_two_classes(y)
        targets = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        self.center_, self.scale_ = _location(s)
        self.slope_, self.intercept_ = _line((s - self.center_) / self.scale_, targets)
        # Exact zero slopes come out as rounding.
        if self.slope_ <= 1e-8:
            what = "every probability is the share of positive validation bags."
            message = f"Expected scores that rank validation bags, got none better than chance; {what}"
            warnings.warn(message, UserWarning, stacklevel=2)
            self.slope_, self.intercept_ = 0.0, float(logit(positives / (positives + negatives)))
        return self

    def predict(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Probabilities [N] of the positive class of scores [N], non-decreasing in the score."""
        probabilities: NDArray[np.float64] = expit(self.logits(scores))
        return probabilities

    def logits(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Logits [N] of these probabilities, which tell those apart that round to 1."""
        self._check_fitted()
        s = (np.asarray(scores, dtype=np.float64) - self.center_) / self.scale_
        return self.slope_ * s + self.intercept_

    def to_dict(self) -> dict[str, float]:
        """The fitted numbers `center`, `scale`, `slope` and `intercept` as plain floats, for JSON or a checkpoint."""
        self._check_fitted()
        return {key: float(getattr(self, f"{key}_")) for key in _KEYS}

    @property
    def ranks(self) -> bool:
        """Whether scores rank validation bags better than chance: else probability and class of a bag mean nothing."""
        self._check_fitted()
        return self.slope_ > 0

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> Self:
        """Build a fitted calibrator from `to_dict`; a `ConfigError` for other keys, or numbers out of range."""
        if set(values) != set(_KEYS):
            raise ConfigError(f"Expected the keys {', '.join(_KEYS)}, got {', '.join(values)}; pass to_dict's result.")
        if not all(np.isfinite(values[key]) for key in _KEYS) or values["scale"] <= 0 or values["slope"] < 0:
            raise ConfigError(f"Expected finite numbers, scale > 0 and slope >= 0, got {dict(values)}; fit again.")
        calibrator = cls()
        for key in _KEYS:
            setattr(calibrator, f"{key}_", float(values[key]))
        return calibrator

    def _check_fitted(self) -> None:
        if not hasattr(self, "intercept_"):
            raise ConfigError("Expected a fitted calibrator, got one without numbers; call fit first.")


def calibration_line(labels: ArrayLike, probabilities: ArrayLike) -> tuple[float, float] | None:
    """Logistic recalibration (Cox 1958): slope and intercept of the labels [N] on the logit of the probabilities [N].

    Slope 1 and intercept 0 are perfect; a slope below 1 means probabilities that are too extreme. None where there is
    no maximum likelihood: one class, or a probability that separates the classes. Probabilities, in [0, 1], are clipped
    to [1e-12, 1 - 1e-12].

    Examples
    --------
    >>> slope, intercept = calibration_line([0, 1, 0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6, 0.6, 0.8])
    >>> round(slope, 2), round(intercept, 2)
    (0.62, 0.1)
    """
    y, p = check_bags(labels, probabilities)
    x = logit(np.clip(p, SMALLEST, 1 - SMALLEST))
    pos, neg = x[y == 1], x[y == 0]
    # The likelihood has a maximum exactly when the two classes overlap on both sides (Albert and Anderson 1984).
    if pos.size == 0 or neg.size == 0 or neg.max() <= pos.min() or pos.max() <= neg.min():
        return None
    center, scale = _location(x)
    slope, intercept = _line((x - center) / scale, y.astype(np.float64))
    return slope / scale, intercept - slope * center / scale


def _location(values: Scores) -> tuple[float, float]:
    """Mean and standard deviation; scale 1 where all values are equal."""
    spread = float(values.std())
    return float(values.mean()), spread if spread > 0 and np.ptp(values) > 0 else 1.0


def _line(x: Scores, targets: Scores) -> tuple[float, float]:
    """Fit ``sigmoid(slope x + intercept)`` to targets in [0, 1] by maximum likelihood.

    Each target enters as a positive of weight t and a negative of weight 1 - t. C is large, not infinite: the penalty
    moves the slope by about 1e-9 and keeps the Hessian of equal scores regular.
    """
    model = LogisticRegression(C=1e9, solver="newton-cholesky", tol=1e-9, max_iter=200)
    both = np.concatenate([x, x]).reshape(-1, 1)
    classes = np.repeat([1, 0], x.size)
    model.fit(both, classes, sample_weight=np.concatenate([targets, 1 - targets]))
    return float(model.coef_[0, 0]), float(model.intercept_[0])
