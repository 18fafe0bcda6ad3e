"""Decisions: from a score to a probability, a grade, a number or a risk group.

Each is fitted on validation bags and stored as plain numbers. `midam.targets.Target.decide` fits the decision of a
target.
"""

import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, model_validator

from midam.errors import BagDataError, OneClassError
from midam.evaluate.calibrate import Fitted, OnLogit, PlattCalibrator, line_scale, on_scale, warn_of_chance
from midam.evaluate.classes import check_codes, check_table
from midam.evaluate.proportions import cut_below
from midam.evaluate.ranking import Scores, check_numbers, check_scores
from midam.reading import Number

RISKS = ("low", "middle", "high")


def quadratic_kappa(grades: ArrayLike, predicted: ArrayLike, count: int) -> float | None:
    """Return Cohen's kappa with quadratic weights (Cohen 1968): 1 is perfect, 0 is chance with the same frequencies.

    None if all bags have one grade and are predicted to have it. A `BagDataError` for codes outside 0 to `count` - 1.

    Examples
    --------
    >>> round(quadratic_kappa([0, 1, 2, 2], [0, 1, 1, 2], 3), 3)
    0.8
    """
    from sklearn.metrics import cohen_kappa_score

    y, called = check_codes(grades, count, predicted), check_codes(predicted, count)
    if len({*y.tolist(), *called.tolist()}) == 1:
        return None
    return float(cohen_kappa_score(y, called, labels=range(count), weights="quadratic"))


def _ascending(numbers: list[float]) -> list[float]:
    if sorted(numbers) != numbers:
        raise ValueError("numbers that do not ascend")
    return numbers


Ascending = Annotated[list[Number], AfterValidator(_ascending)]


class Cuts(Fitted):
    """Ascending cuts of the score; the decision is the position of a score among the cuts."""

    cuts: Ascending

    def predict(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Return the grades or risk groups [N] of scores [N]: 0 below the first cut, 1 from this cut on, and so on."""
        return np.searchsorted(np.asarray(self.cuts, np.float64), np.asarray(scores, np.float64), side="right")


class GradeCuts(Cuts):
    """Cuts of the score between grades that give the validation bags as many of each grade as they have.

    These cuts (equipercentile linking) have a higher quadratic kappa on new bags than those with the highest kappa on
    the validation bags. Bags with equal scores get one grade. If the grades that they give agree no better than chance,
    every bag gets the median grade, with a warning.

    Attributes
    ----------
    cuts : list of float
        The G - 1 cuts, ascending; each lies halfway between two scores.

    References
    ----------
    Kolen and Brennan (2014), Test Equating, Scaling, and Linking, chapter 2.

    Examples
    --------
    >>> decision = GradeCuts.fit([0.1, 0.2, 0.4, 0.5, 0.7, 0.9], [0, 0, 1, 1, 2, 2], count=3)
    >>> [round(cut, 2) for cut in decision.cuts], decision.predict([0.0, 0.35, 1.0]).tolist()
    ([0.3, 0.6], [0, 1, 2])
    """

    @classmethod
    def fit(cls, scores: ArrayLike, grades: ArrayLike, *, count: int) -> Self:
        """Fit the cuts to scores [N] and grades [N], 0 to `count` - 1, of validation bags of two grades or more.

        Raise a `BagDataError` for invalid values, and an `OneClassError` for bags of one grade.
        """
        y = check_codes(grades, count, scores)
        s = check_scores(scores, y.size)
        if y.min() == y.max():
            raise OneClassError(f"Expected bags of two grades or more, got only grade {y[0]}; choose on other bags.")
        values, lower = np.unique(s), np.cumsum(np.bincount(y, minlength=count))[:-1]
        below = np.append(np.searchsorted(np.sort(s), values), s.size)  # bags below each score, and all
        fitted = cls(cuts=[cut_below(values, int(np.abs(below - bags).argmin())) for bags in lower])
        if (quadratic_kappa(y, fitted.predict(s), count) or 0.0) > 0:
            return fitted
        median = np.quantile(y, 0.5, method="lower")
        warn_of_chance("rank held-out bags", f"each bag gets grade {median}, the median of the held-out bags.")
        # No score lies beyond these cuts.
        return cls(cuts=np.where(np.arange(1, count) <= median, -(2.0**63), 2.0**63).tolist())


class Decision(Protocol):
    """Protocol of the decisions.

    Examples
    --------
    >>> decision: Decision = NumberScale.fit([0.1, 0.2, 0.3], [10.0, 14.0, 20.0])
    >>> decision.predict([0.25]).round(1).tolist()
    [17.0]
    >>> decision.to_dict()["numbers"]
    [10.0, 14.0, 20.0]
    """

    def predict(self, scores: ArrayLike) -> NDArray[Any]:
        """Return predictions for scores [N] or [N, C]: probabilities [N, C], or grades, numbers or risk groups [N]."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted numbers, for JSON or a checkpoint."""


class TemperatureCalibrator(OnLogit):
    """Probabilities ``softmax(slope (x - center) / scale + offsets)`` of classes, fitted on validation bags.

    x are the logits of the scores if all fitted scores lie in [0, 1], else the scores themselves; see `OnLogit`.

    It is temperature scaling (Guo et al. 2017) with an offset per class (bias-corrected, Alexandari et al. 2020),
    because the scales of columns that are trained to rank are not comparable. The targets are smoothed like Platt's:
    for a bag of a class with n bags, ``(n + 1) / (n + C)`` in its column and ``1 / (n + C)`` in the others, so that the
    slope stays finite if the validation bags are separable. Scores no better than chance get the slope 0, with a
    warning.

    Attributes
    ----------
    slope : float
        At least 0; the temperature is ``scale / slope``.
    offsets : list of float
        Offsets of the C classes, with sum 0.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks, ICML. Alexandari, Kundaje and Shrikumar (2020), Maximum
    likelihood with bias-corrected calibration is hard-to-beat at label shift adaptation, ICML.

    Examples
    --------
    >>> scores = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 1.5, 0.0]]
    >>> TemperatureCalibrator.fit(scores, [0, 1, 2, 1]).predict([[1.0, 0.0, 0.0]]).round(2).tolist()
    [[0.37, 0.39, 0.24]]
    """

    offsets: Annotated[list[Number], Field(min_length=2)]

    @classmethod
    def fit(cls, scores: ArrayLike, codes: ArrayLike) -> Self:
        """Fit slope and offsets to scores [N, C] and class codes [N] of validation bags of two classes or more.

        Raise a `BagDataError` for invalid values, and an `OneClassError` for bags of one class.
        """
        s = np.asarray(scores, dtype=np.float64)
        y = check_codes(codes, s.shape[-1] if s.ndim == 2 else 0, scores)
        check_table(np.eye(s.shape[1])[y], s)
        if y.min() == y.max():
            raise OneClassError(f"Expected bags of two classes or more, got only class {y[0]}; fit on other bags.")
        (known, x), count = line_scale(s), s.shape[1]
        sizes = np.bincount(y, minlength=count)[y][:, None]
        targets = (1 + sizes * np.eye(count)[y]) / (sizes + count)

        def loss(theta: Scores) -> tuple[float, Scores]:
            logits = theta[0] * x + theta[1:]
            error = scipy.special.softmax(logits, axis=1) - targets
            value = -(targets * scipy.special.log_softmax(logits, axis=1)).sum() / len(y)
            return float(value), np.append((error * x).sum(), error.sum(axis=0)) / len(y)

        bounds = [(0.0, None), *[(None, None)] * count]
        solver: dict[str, Any] = {"method": "L-BFGS-B", "options": {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9}}
        solution = scipy.optimize.minimize(loss, np.append(1.0, np.zeros(count)), jac=True, bounds=bounds, **solver)
        slope, offsets = float(solution.x[0]), solution.x[1:] - solution.x[1:].mean()
        if slope <= 1e-6:
            slope = 0.0
            warn_of_chance("separate classes", "each probability is a share of the held-out bags.")
        return cls(**known, slope=slope, offsets=offsets.tolist())

    def predict(self, scores: ArrayLike) -> Scores:
        """Return probabilities [N, C] for scores [N, C]; rows sum to 1, and the predicted class has the largest."""
        return scipy.special.softmax(self.logits(scores), axis=1)

    def logits(self, scores: ArrayLike) -> Scores:
        """Return the logits of the softmax for scores [N, C]; each column depends on its score only."""
        x = (on_scale(scores, on_logit=self.on_logit) - self.center) / self.scale
        return self.slope * x + np.array(self.offsets)


class LabelCalibrator(Fitted):
    """A `PlattCalibrator` for each label, fitted on the validation bags whose label is known.

    Attributes
    ----------
    columns : list of PlattCalibrator or None
        None for a label without validation bags of both kinds, whose probability is NaN.

    Examples
    --------
    Two labels, one of them unknown for a bag:

    >>> scores = [[0.1, 0.8], [0.2, 0.3], [0.7, 0.9], [0.9, 0.1]]
    >>> labels = [[0, 1], [0, 0], [1, float("nan")], [1, 0]]
    >>> LabelCalibrator.fit(scores, labels).predict([[0.8, 0.2]]).round(2).tolist()
    [[0.72, 0.27]]
    """

    columns: list[PlattCalibrator | None]

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike, *, names: Sequence[str] = ()) -> Self:
        """Fit on scores [N, L] and labels [N, L], 1, 0 or NaN; raise an `OneClassError` if no label has both kinds.

        A warning lists the labels, by `names` or by number, whose scores are no better than chance.
        """
        y, s = check_table(labels, scores)
        columns: list[PlattCalibrator | None] = []
        for column_labels, column_scores in zip(y.T, s.T):
            known = np.isfinite(column_labels)
            both = (column_labels == 1).any() and (column_labels == 0).any()
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                fitted = PlattCalibrator.fit(column_scores[known], column_labels[known]) if both else None
            columns.append(fitted)
        called = names or tuple(map(str, range(len(columns))))
        flat = [name for name, fitted in zip(called, columns, strict=True) if fitted and not fitted.ranks]
        if flat:
            consequence = "their probabilities are shares of the held-out bags."
            warn_of_chance("rank held-out bags by each label", consequence, columns=f" for {', '.join(flat)}")
        if not any(columns):
            raise OneClassError("Expected bags of both kinds of some label, got none; fit on other bags.")
        return cls(columns=columns)

    def predict(self, scores: ArrayLike) -> Scores:
        """Return probabilities [N, L] for scores [N, L]; NaN for a label without a calibrator."""
        return scipy.special.expit(self.logits(scores))

    def logits(self, scores: ArrayLike) -> Scores:
        """Return the logits [N, L] of these probabilities."""
        s = np.asarray(scores, dtype=np.float64)
        if s.ndim != 2 or s.shape[1] != len(self.columns):
            raise BagDataError(f"Expected scores of {len(self.columns)} labels, got shape {s.shape}; pass [N, L].")
        none, columns = np.full(len(s), np.nan), zip(self.columns, s.T)
        return np.stack([none if calibrator is None else calibrator.logits(x) for calibrator, x in columns], axis=1)


class NumberScale(Fitted):
    """Numbers in the unit of the label, by isotonic regression on validation bags.

    The map is linear between its knots and constant outside them; a score that only ranks is determined up to such a
    non-decreasing map.

    Attributes
    ----------
    scores, numbers : list of float
        The knots, ascending.

    References
    ----------
    Barlow et al. (1972), Statistical Inference under Order Restrictions.

    Examples
    --------
    >>> NumberScale.fit([0.1, 0.2, 0.3, 0.4], [10.0, 14.0, 12.0, 20.0]).predict([0.0, 0.25, 0.35]).round(2).tolist()
    [10.0, 13.0, 16.5]
    """

    scores: Ascending
    numbers: Ascending

    @model_validator(mode="after")
    def _alike(self) -> Self:
        if not 0 < len(self.scores) == len(self.numbers):
            raise ValueError("other numbers than scores")
        return self

    @classmethod
    def fit(cls, scores: ArrayLike, numbers: ArrayLike) -> Self:
        """Fit on scores [N] and numbers [N] of validation bags; raise a `BagDataError` for invalid values."""
        from sklearn.isotonic import IsotonicRegression

        y = check_numbers(numbers, scores)
        fitted = IsotonicRegression().fit(check_scores(scores, y.size), y)
        return cls(scores=fitted.X_thresholds_.tolist(), numbers=fitted.y_thresholds_.tolist())

    def predict(self, scores: ArrayLike) -> Scores:
        """Return numbers [N] for scores [N], non-decreasing in the score."""
        return np.interp(np.asarray(scores, dtype=np.float64), self.scores, self.numbers)


class RiskGroups(Cuts):
    """Three risk groups, cut at the tertiles of the validation bags' risk: 0 low, 1 middle, 2 high.

    Attributes
    ----------
    cuts : list of float
        The two cuts; fewer if the tertiles are equal, or not above the lowest risk.

    Examples
    --------
    >>> groups = RiskGroups.fit([0.1, 0.2, 0.4, 0.5, 0.8, 0.9], [None] * 6)
    >>> groups.predict([0.15, 0.45, 0.95]).tolist()
    [0, 1, 2]
    """

    @classmethod
    def fit(cls, scores: ArrayLike, values: ArrayLike) -> Self:  # noqa: ARG003
        """Fit the cuts to scores [N] of validation bags; the labels are not used."""
        risk = check_numbers(scores)
        tertiles = np.unique(np.quantile(risk, (1 / 3, 2 / 3), method="hazen"))
        return cls(cuts=[float(cut) for cut in tertiles if cut > risk.min()])
