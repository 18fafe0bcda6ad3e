"""Calibration on validation bags: from a ranking score to a probability, or to the set of possible labels of a bag.

A model trained for the AUROC ranks; its sigmoid is not a probability until it is calibrated on held-out bags.
"""

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, FiniteFloat, ValidationError

from midam.data.validate import as_array
from midam.errors import ConfigError
from midam.evaluate.proportions import RULES, Estimate, OperatingPoint, operating_points, proportion
from midam.evaluate.ranking import Scores, check_bags, check_probabilities, check_two_classes, units_of
from midam.lazy_imports import torch
from midam.reading import Count, Form, Number

# Probabilities of exactly 0 or 1 have no logit.
SMALLEST = 1e-12
NO_DECISION = "The scores rank held-out bags no better than chance: the class and probability of a bag mean nothing."
_BAGS_A_BIN, _MOST_BINS = 20, 10
_LEAST_SPREAD = 1e-3  # of the largest standard deviation of scores


class Fitted(Form):
    """Base of maps fitted on validation bags: plain numbers, which `fit` finds."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted numbers, for JSON or a checkpoint."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build it from the result of `to_dict`; raise a `ConfigError` for missing numbers, or numbers out of range."""
        try:
            return cls.model_validate(values)
        except ValidationError as reason:
            faults = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in reason.errors(include_url=False))
            raise ConfigError(f"Expected a {cls.__name__}, got {'; '.join(faults)}; fit again.") from None


class OnLogit(Fitted):
    """Map that is linear in the logit of scores in [0, 1], or in the scores themselves if they have another range.

    For scores that already are probabilities, it is the identity: slope 1 and intercept 0. Scores are single precision
    numbers that may round to 0 or 1, so the logit is bounded: it is the logit of ``eps + (1 - 2 eps) score``,
    eps = 2^-24, lies in [-16.6, 16.6] and rises with the score.

    Attributes
    ----------
    center, scale : float
        Mean and standard deviation of x, the logits or scores, over the validation bags.
    slope : float
        Slope on the standardized x, in logits; never negative.
    on_logit : bool
        Whether x is the logit.
    """

    center: Number
    scale: Annotated[FiniteFloat, Field(gt=0)]
    slope: Annotated[FiniteFloat, Field(ge=0)]
    on_logit: bool


def on_scale(scores: ArrayLike, *, on_logit: bool) -> Scores:
    """Return x of `OnLogit` for scores of any shape."""
    return score_logits(scores) if on_logit else as_array(scores, np.float64)


def line_scale(scores: Scores, *, raw: bool = False) -> tuple[dict[str, Any], Scores]:
    """Return center, scale and `on_logit` for a map of these scores, and their standardized x; `raw`: of the scores."""
    on_logit = not raw and bool(scores.min() >= 0) and bool(scores.max() <= 1)
    x = on_scale(scores, on_logit=on_logit)
    center, scale = _location(x)
    return {"center": center, "scale": scale, "on_logit": on_logit}, (x - center) / scale


def score_logits(scores: ArrayLike) -> Scores:
    """Return the bounded logits of scores in [0, 1], of any shape; see `OnLogit`.

    Examples
    --------
    >>> score_logits([0.0, 0.25, 1.0]).round(4).tolist()
    [-16.6355, -1.0986, 16.6355]
    """
    from midam.functional.poolings import SCORE_RESOLUTION, bounded_logit

    s = torch.from_numpy(np.clip(np.asarray(scores, dtype=np.float64), 0.0, 1.0))
    return bounded_logit(s, eps=SCORE_RESOLUTION).numpy()


def one_scale(scores: ArrayLike, models: ArrayLike, *, like: int | None = None, groups: Any = None) -> Scores:
    """Bring the scores [N] of several models to the scale of the model `like`, or to the mean of their scales.

    `models` [N] says which model gave a score; each scored other bags of the same kind, at random, so that mean and
    standard deviation of its scores should be those of the others. What differs by more than chance (DerSimonian and
    Laird 1986, Controlled Clinical Trials 7:177) is removed. The order of the scores of a model stays.

    Parameters
    ----------
    scores : array [N]
        Scores; if all lie in [0, 1], their logits are scaled, else they themselves.
    models : int array [N]
        Number of the model.
    like : int, optional
        Number of the model whose scale is taken; its scores stay. With fewer than two bags, the mean scale is taken.
    groups : array [N], optional
        Group (patient) of each bag: chance is then that of whole groups, and the scores of a model with one group stay.

    Examples
    --------
    Two models with the same order; the second is more cautious:

    >>> grid = scipy.special.expit(np.linspace(-4, 4, 9))
    >>> mild = scipy.special.expit(np.linspace(-1, 1, 9))
    >>> one_scale([*grid, *mild], [0] * 9 + [1] * 9, like=0)[9:].round(2).tolist()
    [0.03, 0.06, 0.14, 0.29, 0.5, 0.71, 0.86, 0.94, 0.97]
    """
    s, model = as_array(scores, np.float64), np.asarray(models)
    on_logit = s.size > 0 and s.min() >= 0 and s.max() <= 1
    x = score_logits(s) if on_logit else s.copy()
    units, grouped = units_of(groups, s.size)
    numbers = [number for number in np.unique(model).tolist() if np.unique(units[model == number]).size > 1]
    if not numbers:
        return s
    parts = [x[model == number] for number in numbers]
    counts, spread = np.array([part.size for part in parts]), np.array([part.std(ddof=1) for part in parts])
    # Scores that are all equal have no scale of their own.
    spread = np.maximum(spread, max(_LEAST_SPREAD * spread.max(), SMALLEST))
    inside = np.isin(model, numbers) & (model != like)
    effect = _design_effect(x[inside], model[inside], units[inside]) if grouped and inside.any() else 1.0
    scales, usual = _beyond_chance(np.log(spread), effect / (2 * (counts - 1.0)))
    means, middle = _beyond_chance(np.array([part.mean() for part in parts]), np.exp(2 * scales) * effect / counts)
    places = {number: (mean, scale) for number, mean, scale in zip(numbers, means.tolist(), scales.tolist())}
    to_mean, to_scale = places.get(like, (middle, usual)) if like is not None else (middle, usual)
    for number, (mean, scale) in places.items():
        x[model == number] = to_mean + np.exp(to_scale - scale) * (x[model == number] - mean)
    return np.asarray(np.where(model == like, s, scipy.special.expit(x) if on_logit else x))


def _design_effect(x: Scores, model: NDArray[Any], units: NDArray[np.intp]) -> float:
    """Return the variance of a model's mean score over whole units, divided by that over bags, at least 1."""
    part, unit = (np.unique(each, return_inverse=True)[1] for each in (model, model * (units.max() + 1) + units))
    apart, sums = x - (np.bincount(part, x) / np.bincount(part))[part], list[float]()
    for at in (np.arange(x.size), unit):
        sums.append(float((np.bincount(at, apart) ** 2).sum()) / (1 - (part.max() + 1) / (at.max() + 1)))
    return max(1.0, sums[1] / sums[0]) if sums[0] > 0 else 1.0


def _beyond_chance(values: Scores, variances: Scores) -> tuple[Scores, float]:
    """Return values [M] shrunk to their mean by the share of their spread that is chance, and the mean."""
    w = 1 / variances
    mean, total = float(w @ values / w.sum()), w.sum() - (w**2).sum() / w.sum()
    between = max(0.0, float(w @ (values - mean) ** 2 - (len(values) - 1)) / total) if total > 0 else 0.0
    w = 1 / (variances + between)
    mean = float(w @ values / w.sum())
    return mean + between * w * (values - mean), mean


def warn_of_chance(expected: str, consequence: str, *, columns: str = "") -> None:
    """Warn the caller of `fit` that its scores are no better than chance, with the consequence."""
    message = f"Expected scores that {expected}, got scores no better than chance{columns}; {consequence}"
    warnings.warn(message, stacklevel=3)


class PlattCalibrator(OnLogit):
    """Probability ``sigmoid(slope (x - center) / scale + intercept)`` fitted on validation bags (Platt 1999).

    x is the logit of the score if all fitted scores lie in [0, 1], else the score itself; see `OnLogit`.

    The targets are Platt's ``(P + 1) / (P + 2)`` and ``1 / (N + 2)`` instead of 1 and 0, so that the slope stays finite
    if the validation bags are separable. If the scores do not rank the validation bags better than chance, the
    calibrator returns the share of positive held-out bags, and warns.

    Attributes
    ----------
    intercept : float
        Intercept on the standardized x, in logits.

    Examples
    --------
    >>> calibrator = PlattCalibrator.fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    >>> calibrator.predict([-2.0, 0.0, 2.0]).round(2).tolist()
    [0.21, 0.5, 0.79]
    """

    intercept: Number

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike, *, raw: bool = False) -> Self:
        """Fit the line on the scores [N] and labels [N], 0 or 1, of validation bags of both classes.

        With `raw`, the scores themselves are used, even if all lie in [0, 1].
        """
        y, s = check_bags(labels, scores)
        positives, negatives = check_two_classes(y)
        targets = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        known, x = line_scale(s, raw=raw)
        slope, intercept = _line(x, targets) if np.ptp(x) > 0 else (0.0, 0.0)
        # An exact slope of zero is fitted only up to rounding.
        if slope <= 1e-8:
            warn_of_chance("rank held-out bags", "each probability is the share of positive held-out bags.")
            slope, intercept = 0.0, float(scipy.special.logit(positives / (positives + negatives)))
        return cls(**known, slope=slope, intercept=intercept)

    def predict(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probabilities [N] of the positive class for scores [N], non-decreasing in the score."""
        return scipy.special.expit(self.logits(scores))

    def logits(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the logits [N] of these probabilities, which differ even if the probabilities round to 1."""
        return self.slope * (on_scale(scores, on_logit=self.on_logit) - self.center) / self.scale + self.intercept

    @property
    def ranks(self) -> bool:
        """Whether scores rank held-out bags better than chance; if not, probability and class mean nothing."""
        return self.slope > 0


class Thresholds(Form):
    """Chosen thresholds: first the one in use, then those of other rules, with the number of bags that chose them.

    `out_of_fold` of the bags were scored by models of inner folds that did not train on them, the others by the model.
    """

    points: Annotated[list[OperatingPoint], Field(min_length=1)]
    bags: Count
    positives: Count
    out_of_fold: Count = 0

    @classmethod
    def choose(cls, labels: ArrayLike, scores: ArrayLike, *, rule: str = "youden", out_of_fold: int = 0) -> Self:
        """Choose on labels [N] and scores [N] of bags of both classes; the last `out_of_fold` bags are from folds."""
        points = operating_points(labels, scores, [rule, *(other for other in RULES if other != rule)])
        y = np.asarray(labels)
        return cls(points=points, bags=y.size, positives=int(y.sum()), out_of_fold=out_of_fold)

    @property
    def kind(self) -> str:
        """Kind of the bags, in a word."""
        if self.out_of_fold == self.bags:
            return "out-of-fold"
        return "held-out" if self.out_of_fold else "validation"

    @property
    def words(self) -> str:
        """The threshold, its rule, and the bags, in words."""
        bags = f"{self.bags} {self.kind} bags ({self.positives} positive)"
        return f"{self.points[0].threshold:.4g} ({self.points[0].rule}), chosen on {bags}"


class BinaryDecision(Fitted):
    """Decision for two classes: a calibrator for the probability, and a threshold on the score for the class.

    Attributes
    ----------
    calibrator : PlattCalibrator
        Map from scores to probabilities.
    threshold : float
        The score from which a bag is called positive.
    thresholds : Thresholds, optional
        The choice of the threshold, with the thresholds of other rules; None if unknown.
    """

    calibrator: PlattCalibrator
    threshold: Number
    thresholds: Thresholds | None = None

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike, *, rule: str = "youden", out_of_fold: int = 0) -> Self:
        """Fit both on the scores [N] and labels [N] of bags of both classes that the models did not train on.

        A `rule` that cannot be met causes a warning; `out_of_fold` is as in `Thresholds.choose`.
        """
        known = Thresholds.choose(labels, scores, rule=rule, out_of_fold=out_of_fold)
        point = known.points[0]
        if point.note is not None:
            warnings.warn(point.note, stacklevel=2)
        calibrator = PlattCalibrator.fit(scores, labels)
        return cls(calibrator=calibrator, threshold=point.threshold, thresholds=known)

    def predict(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probabilities [N] of the positive class for scores [N]."""
        return self.calibrator.predict(scores)

    def call(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Return the class, 0 or 1, for scores [N]."""
        return (np.asarray(scores) >= self.threshold).astype(np.int64)


def calibration_line(labels: ArrayLike, probabilities: ArrayLike) -> tuple[float, float] | None:
    """Return slope and intercept of the logistic regression of labels [N] on logits of probabilities [N] (Cox 1958).

    Slope 1 and intercept 0 are perfect; a slope below 1 means that the probabilities are too extreme. None if the
    likelihood has no maximum: with one class, or if a probability separates the classes. Probabilities, in [0, 1], are
    clipped to [1e-12, 1 - 1e-12].

    Examples
    --------
    >>> slope, intercept = calibration_line([0, 1, 0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6, 0.6, 0.8])
    >>> round(slope, 2), round(intercept, 2)
    (0.62, 0.1)
    """
    y, p = check_probabilities(labels, probabilities)
    x = scipy.special.logit(np.clip(p, SMALLEST, 1 - SMALLEST))
    pos, neg = x[y == 1], x[y == 0]
    # The likelihood has a maximum exactly when the two classes overlap on both sides (Albert and Anderson 1984).
    if pos.size == 0 or neg.size == 0 or neg.max() <= pos.min() or pos.max() <= neg.min():
        return None
    center, scale = _location(x)
    slope, intercept = _line((x - center) / scale, y.astype(np.float64))
    return slope / scale, intercept - slope * center / scale


def _location(values: Scores) -> tuple[float, float]:
    """Return mean and standard deviation; the latter is 1 if all values are equal."""
    spread = float(values.std())
    return float(values.mean()), spread if spread > 0 and np.ptp(values) > 0 else 1.0


def _line(x: Scores, targets: Scores) -> tuple[float, float]:
    """Fit ``sigmoid(slope x + intercept)`` to targets in [0, 1] by maximum likelihood.

    Each target t enters as a positive with weight t and a negative with weight 1 - t. C is large, not infinite: the
    penalty changes the slope by about 1e-9 and keeps the Hessian regular for equal scores.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e9, solver="newton-cholesky", tol=1e-9, max_iter=200)
    model.fit(np.tile(x, 2)[:, None], np.repeat([1, 0], x.size), sample_weight=np.concatenate([targets, 1 - targets]))
    return float(model.coef_[0, 0]), float(model.intercept_[0])


class Bin(NamedTuple):
    """Bags of similar probability: the mean probability, and the share of positive bags."""

    probability: float
    observed: Estimate


class Line(NamedTuple):
    """Logistic recalibration line with Wald intervals, see `midam.evaluate.calibrate.calibration_line`."""

    slope: Estimate
    intercept: Estimate


def reliability_bins(labels: ArrayLike, probabilities: ArrayLike, *, groups: ArrayLike | None = None) -> list[Bin]:
    """Group bags by probability into at most ten bins of equal size, with at least twenty bags each if possible.

    Equal probabilities share a bin. Parameters: labels 0 or 1, probabilities and optionally groups, all [N].

    Examples
    --------
    >>> bins = reliability_bins([0, 1] * 10 + [1] * 20, [0.4] * 20 + [0.9] * 20)
    >>> [(round(part.probability, 2), part.observed.value) for part in bins]
    [(0.4, 0.5), (0.9, 1.0)]
    """
    y, p = check_probabilities(labels, probabilities, groups)
    count = int(np.clip(y.size // _BAGS_A_BIN, 1, _MOST_BINS))
    edges = np.unique(np.quantile(p, np.linspace(0, 1, count + 1)[1:-1]))
    place = np.searchsorted(edges, p, side="left")
    parts = [place == number for number in np.unique(place)]
    observed = [proportion(y == 1, groups=groups, among=inside) for inside in parts]
    return [Bin(float(p[inside].mean()), share) for inside, share in zip(parts, observed) if share is not None]


def calibration_interval(
    labels: ArrayLike, probabilities: ArrayLike, *, groups: ArrayLike | None = None
) -> Line | None:
    """Return slope and intercept of the recalibration line with 95% Wald intervals; None if there is no line.

    If groups [N] hold several bags, the variance is that of whole groups (Liang and Zeger 1986, Biometrika 73:13).

    Examples
    --------
    >>> line = calibration_interval([0, 1, 0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6, 0.6, 0.8])
    >>> round(line.slope.value, 2), bool(line.slope.low < 1 < line.slope.high)
    (0.62, True)
    """
    y, p = check_probabilities(labels, probabilities, groups)
    if (line := calibration_line(y, p)) is None:
        return None
    slope, intercept = line
    x = np.stack([scipy.special.logit(np.clip(p, SMALLEST, 1 - SMALLEST)), np.ones(y.size)], axis=1)
    fitted = scipy.special.expit(x @ [slope, intercept])
    covariance = np.linalg.inv((x * (fitted * (1 - fitted))[:, None]).T @ x)
    units, grouped = units_of(groups, y.size)
    if grouped:
        pull = np.zeros((int(units.max()) + 1, 2))
        np.add.at(pull, units, x * (y - fitted)[:, None])
        covariance = covariance @ (pull.T @ pull) @ covariance
    half: NDArray[np.float64] = scipy.stats.norm.ppf(0.975) * np.sqrt(np.diag(covariance))
    pairs = zip((slope, intercept), half.tolist())
    return Line(*(Estimate(value, value - width, value + width, y.size) for value, width in pairs))
