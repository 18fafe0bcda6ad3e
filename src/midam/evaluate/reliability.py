"""How well probabilities are calibrated: shares of positive bags along the probability, and the recalibration line."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.evaluate.calibrate import SMALLEST, calibration_line
from midam.evaluate.proportions import Estimate, proportion
from midam.evaluate.ranking import check_bags, group_numbers

_BAGS_A_BIN, _MOST_BINS = 20, 10


class Bin(NamedTuple):
    """Bags of similar probability: the mean of it, and the share of positive ones among them."""

    probability: float
    observed: Estimate


class Line(NamedTuple):
    """The logistic recalibration line with Wald intervals: see `midam.evaluate.calibrate.calibration_line`."""

    slope: Estimate
    intercept: Estimate


def reliability_bins(labels: ArrayLike, probabilities: ArrayLike, *, groups: ArrayLike | None = None) -> list[Bin]:
    """Bags in bins of equal size by probability, at most ten, of twenty or more bags where there are so many.

    Equal probabilities share a bin. Parameters: labels 0 or 1, probabilities and optionally groups, all [N].

    Examples
    --------
    >>> bins = reliability_bins([0, 1] * 10 + [1] * 20, [0.4] * 20 + [0.9] * 20)
    >>> [(round(part.probability, 2), part.observed.value) for part in bins]
    [(0.4, 0.5), (0.9, 1.0)]
    """
    y, p = check_bags(labels, probabilities)
    units = None if groups is None else np.asarray(groups, dtype=np.str_)
    count = int(np.clip(y.size // _BAGS_A_BIN, 1, _MOST_BINS))
    edges = np.unique(np.quantile(p, np.linspace(0, 1, count + 1)[1:-1]))
    place = np.searchsorted(edges, p, side="left")
    found = []
    for own in (place == number for number in np.unique(place)):
        observed = proportion(y[own] == 1, groups=None if units is None else units[own])
        if observed is not None:
            found.append(Bin(float(p[own].mean()), observed))
    return found


def calibration_interval(
    labels: ArrayLike, probabilities: ArrayLike, *, groups: ArrayLike | None = None
) -> Line | None:
    """Slope and intercept of the recalibration line with their 95% Wald intervals; None where there is no line.

    Where groups [N] hold several bags the variance is that of whole groups (Liang and Zeger 1986, Biometrika 73:13).

    Examples
    --------
    >>> line = calibration_interval([0, 1, 0, 0, 1, 1], [0.2, 0.2, 0.4, 0.6, 0.6, 0.8])
    >>> round(line.slope.value, 2), bool(line.slope.low < 1 < line.slope.high)
    (0.62, True)
    """
    found = calibration_line(labels, probabilities)
    if found is None:
        return None
    y, p = check_bags(labels, probabilities)
    slope, intercept = found
    x = np.stack([scipy.special.logit(np.clip(p, SMALLEST, 1 - SMALLEST)), np.ones(y.size)], axis=1)
    fitted = scipy.special.expit(x @ [slope, intercept])
    covariance = np.linalg.inv((x * (fitted * (1 - fitted))[:, None]).T @ x)
    units = group_numbers(groups, y.size)
    if units is not None and int(units.max()) + 1 < y.size:
        pull = np.zeros((int(units.max()) + 1, 2))
        np.add.at(pull, units, x * (y - fitted)[:, None])
        covariance = covariance @ (pull.T @ pull) @ covariance
    half: NDArray[np.float64] = scipy.stats.norm.ppf(0.975) * np.sqrt(np.diag(covariance))
    pairs = zip((slope, intercept), half.tolist())
    return Line(*(Estimate(value, value - width, value + width, y.size) for value, width in pairs))
