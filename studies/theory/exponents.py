"""Power laws: the exponent of y ~ x^p in log-log, its interval over seeds, and its comparison with a bound."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from midam.errors import ConfigError

_LEVEL = 0.95
TOLERANCE = 0.1


@dataclass(frozen=True)
class Exponent:
    """A fitted exponent."""

    value: float  # Least-squares slope of log y on log x, mean over the seeds
    # 95% t interval over the seeds
    low: float
    high: float

    def __neg__(self) -> "Exponent":
        """Return the exponent in 1/x."""
        return Exponent(-self.value, -self.high, -self.low)

    def __str__(self) -> str:
        """Return the exponent and its interval as the pages print them."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def slopes(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Return the slope of log y on log x by least squares, for each row.

    Examples
    --------
    >>> slopes([1, 2, 4], [[1, 4, 16]]).round(6).tolist()
    [2.0]
    """
    log_x = np.log(np.asarray(x, dtype=np.float64))
    log_y = np.log(np.asarray(y, dtype=np.float64))
    centered = log_x - log_x.mean()
    found: NDArray[np.float64] = (log_y @ centered) / (centered @ centered)
    return found


def fit_exponent(x: ArrayLike, y: ArrayLike) -> Exponent:
    """Return the exponent of a power law from one curve for each seed, and its t interval over the seeds.

    This is no bootstrap: resamples of the mean of five slopes cannot leave their range, and the coverage is too low.

    Examples
    --------
    >>> print(fit_exponent([1, 2, 4], [[3, 6, 12], [5, 10, 20]]))
    1.00 [1.00, 1.00]
    """
    found = slopes(x, y)
    count = len(found)
    if count < 2:
        raise ConfigError(f"Expected curves of at least 2 seeds, got {count}; an interval needs more.")
    reach = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1) * found.std(ddof=1) / np.sqrt(count))
    mean = float(found.mean())
    return Exponent(mean, mean - reach, mean + reach)


def verdict(fit: Exponent, bound: float) -> str:
    """Return the verdict on the claim that a quantity grows no faster than x^bound.

    A bound in O(.) allows constants and terms of lower order, which change the exponent of a fit over a finite range.
    Thus an exponent is compared with the bound with a tolerance of a tenth of the bound.

    Examples
    --------
    >>> verdict(Exponent(1.0, 0.97, 1.03), 1.0)
    'no worse than the bound'
    >>> verdict(Exponent(-0.1, -0.2, 0.0), -1.0)
    'worse than the bound'
    >>> verdict(Exponent(1.0, 0.8, 1.2), 1.0)
    'open: the interval is too wide'
    """
    limit = bound + TOLERANCE * abs(bound)
    if fit.low > limit:
        return "worse than the bound"
    return "no worse than the bound" if fit.high <= limit else "open: the interval is too wide"
