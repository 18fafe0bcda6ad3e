"""Net benefit: what acting on a model's probabilities is worth, in true positives a bag (Vickers and Elkin 2006)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import as_array
from midam.errors import ConfigError
from midam.evaluate.ranking import check_bags


def net_benefit(labels: ArrayLike, probabilities: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """Net benefit of acting on bags whose probability is at least the threshold.

    ``TP/N - FP/N * t/(1 - t)`` at threshold probability t: true positives a bag, less the false positives at the
    exchange rate that t stands for. Who acts from 10% on takes nine false alarms for one case found.

    Parameters
    ----------
    labels, probabilities : array_like, shape [N]
        Labels 0 or 1, and probabilities of the positive class.
    thresholds : array_like, shape [T]
        Threshold probabilities in [0, 1).

    Returns
    -------
    array of float64, shape [T]
        Acting on no bag has net benefit 0.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    ConfigError
        A threshold outside [0, 1).

    References
    ----------
    Vickers and Elkin (2006), Medical Decision Making 26:565.

    Examples
    --------
    >>> net_benefit([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8], [0.0, 0.2, 0.5]).tolist()
    [0.5, 0.4375, 0.0]
    """
    y, p = check_bags(labels, probabilities)
    t = check_thresholds(thresholds)
    true, false = (_at_least(p[y == label], t) for label in (1, 0))
    return (true - false * t / (1 - t)) / y.size


def net_benefit_of_all(labels: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """Net benefit [T] of acting on every bag, the other line that a model has to beat; parameters as `net_benefit`."""
    y = as_array(labels)
    return net_benefit(y, np.ones(y.shape), thresholds)


def check_thresholds(thresholds: ArrayLike) -> NDArray[np.float64]:
    """Threshold probabilities as float64 [T]; a `ConfigError` for one outside [0, 1)."""
    t = np.asarray(thresholds, dtype=np.float64)
    if not ((t >= 0) & (t < 1)).all():
        raise ConfigError(f"Expected threshold probabilities in [0, 1), got {t.min()} to {t.max()}; leave others out.")
    return t


def _at_least(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of values at or above each threshold."""
    return (values.size - np.searchsorted(np.sort(values), thresholds, side="left")).astype(np.float64)
