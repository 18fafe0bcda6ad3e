"""From scores of held-out bags to one score: each candidate as a probability, and a weighted mean of these."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.intervals import paired_delong

Numbers = NDArray[np.float64]
_LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Line:
    """A candidate's probability: the mean over its scorers of ``sigmoid(slope logit + intercept)``, the slope > 0."""

    slope: float = 1.0
    intercept: float = 0.0

    def probabilities(self, logits: Numbers) -> Numbers:
        """Probabilities [n] of logits [M, n] of M scorers."""
        found: Numbers = expit(self.slope * logits + self.intercept).mean(axis=0)
        return found


def fit_line(logits: Numbers, labels: NDArray[np.int64]) -> Line | None:
    """Platt's line (1999) on the logits [M, n] of held-out bags; None where they rank no better than chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of such logits
        found = PlattCalibrator().fit(logits.ravel(), np.tile(labels, len(logits)), raw=True)
    slope = found.slope_ / found.scale_
    return Line(slope, found.intercept_ - slope * found.center_) if found.ranks else None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights [C], 0 or more and of sum 1, and the line of each of C candidates."""

    weights: Numbers
    lines: list[Line]

    def scores(self, logits: Sequence[Numbers]) -> Numbers:
        """Scores [n] in [0, 1] of the logits [M, n] of each candidate."""
        found: Numbers = self.weights @ np.array([line.probabilities(x) for line, x in zip(self.lines, logits)])
        return found


def even_mixture(count: int) -> Mixture:
    """Candidates as they are, all with one weight."""
    return Mixture(np.full(count, 1 / count), [Line()] * count)


def fit_mixture(
    logits: Sequence[Numbers],
    areas: Sequence[float],
    labels: NDArray[np.int64],
    groups: NDArray[np.str_] | None = None,
) -> Mixture:
    """Fit lines and weights to the logits [M, n] that C candidates gave to held-out bags.

    Up to a factor, the weight of a candidate is the p-value of its AUROC being that of the best (`paired_delong` of the
    probabilities): what cannot be told from the best counts as much, and what is worse beyond doubt next to nothing. A
    share below 0.01 is 0, and so is that of scores which rank no better than chance, unless all do.

    Parameters
    ----------
    logits : sequence of array [M, n]
        Of each candidate, whose number of scorers M is its own.
    areas : sequence of float
        AUROC of each candidate within the folds, by which the best is found; the first of equals.
    labels, groups : array [n]
        Of the bags.
    """
    lines = [fit_line(own, labels) for own in logits]
    if not any(lines):
        return even_mixture(len(lines))
    found = [line.probabilities(own) if line else np.zeros(len(labels)) for line, own in zip(lines, logits)]
    best = int(np.argmax([area if line else -1.0 for line, area in zip(lines, areas)]))
    alike = [paired_delong(labels, found[best], own, groups=groups)[3] for own in found]
    weights = np.array([p if line else 0.0 for line, p in zip(lines, alike)])
    weights = np.where(weights < _LEAST * weights.sum(), 0.0, weights)
    return Mixture(weights / weights.sum(), [line or Line() for line in lines])
