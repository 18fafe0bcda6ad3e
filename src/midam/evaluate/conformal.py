"""Abstention with a promise: which labels a bag may have, by class-conditional conformal prediction on validation bags.

A bag whose set holds one label is decided, any other is left to a person. The promise, of both classes, holds for bags
exchangeable with the validation bags, and needs neither a calibrated score nor a right model.
"""

from typing import Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.errors import ConfigError, require, require_counts
from midam.evaluate.ranking import check_bags, check_two_classes, group_numbers


class ConformalSets:
    """Sets of labels that leave out the true one with a chance of at most `error`, of each class.

    The p-value of label 1 is the share of positive validation bags, the new bag counted in, that score no higher; that
    of label 0 the share of negative ones that score no lower. The set holds the labels whose p-value exceeds `error`
    (Vovk 2012, Mondrian conformal). Where groups hold several bags, each group has the same weight, its bags shares
    of it, and the promise is for a bag of a new group (Lee, Barber and Willett 2023). It is one of the mean over
    validation sets: with one of them at hand, coverage lies around it, see `coverage_range`.

    References
    ----------
    Vovk (2012), Asian Conference on Machine Learning, PMLR 25:475. Lee, Barber and Willett (2023), arXiv 2306.06342.

    Examples
    --------
    >>> sets = ConformalSets().fit([0.1, 0.2, 0.3, 0.6, 0.5, 0.7, 0.8, 0.9], [0, 0, 0, 0, 1, 1, 1, 1])
    >>> sets.predict([0.05, 0.55, 0.95], error=0.3).tolist()
    [[True, False], [True, True], [False, True]]
    """

    def fit(self, scores: ArrayLike, labels: ArrayLike, *, groups: ArrayLike | None = None) -> Self:
        """Keep the scores [N] and labels [N], 0 or 1, of validation bags of both classes, and their groups [N]."""
        y, s = check_bags(labels, scores)
        check_two_classes(y)
        units = group_numbers(groups, y.size)
        units = np.arange(y.size) if units is None else units
        # Of a class: its scores in ascending order, towards what is typical of it, and the weight of each.
        self._classes = []
        for label, sign in ((0, -1.0), (1, 1.0)):
            typical, of = sign * s[y == label], units[y == label]
            order = np.argsort(typical, kind="stable")
            weights = 1.0 / np.bincount(of)[of]
            self._classes.append((sign, typical[order], np.append(0.0, np.cumsum(weights[order]))))
        return self

    @property
    def counts(self) -> tuple[int, int]:
        """Independent units (groups, or bags without) of the negative and the positive validation bags."""
        first, second = (round(float(total[-1])) for _, _, total in self._fitted())
        return first, second

    def p_values(self, scores: ArrayLike) -> NDArray[np.float64]:
        """P-values of label 0 and of label 1 for each score, [N, 2]."""
        s = np.asarray(scores, dtype=np.float64)
        columns = []
        for sign, typical, total in self._fitted():
            below = total[np.searchsorted(typical, sign * s, side="right")]
            columns.append((below + 1) / (total[-1] + 1))
        return np.stack(columns, axis=-1)

    def predict(self, scores: ArrayLike, *, error: float = 0.1) -> NDArray[np.bool_]:
        """Whether label 0 and label 1 are in the set of each score, [N, 2]."""
        if not 0 < error < 1:
            raise ConfigError(f"Expected an error in (0, 1), got {error}; pass for example error=0.1.")
        # A p-value of exactly the error is left out, whatever the rounding of the two.
        return np.asarray(self.p_values(scores) > error * (1 + 1e-12))

    def _fitted(self) -> list[tuple[float, NDArray[np.float64], NDArray[np.float64]]]:
        if not hasattr(self, "_classes"):
            raise ConfigError("Expected fitted conformal sets, got ones without bags; call fit first.")
        return self._classes


def coverage_range(calibration: int, tested: int, *, error: float = 0.1, level: float = 0.95) -> tuple[float, float]:
    """Range in which the coverage of `tested` bags of a class lies, with chance `level`, where the promise holds.

    `calibration` independent validation bags of the class make the coverage Beta distributed, and the share of tested
    bags beta-binomial (Angelopoulos and Bates 2023, Foundations and Trends in Machine Learning 16:494).

    Examples
    --------
    >>> [round(bound, 2) for bound in coverage_range(50, 100, error=0.1)]
    [0.79, 0.98]
    """
    require_counts(calibration=calibration, tested=tested)
    for name, share in (("error", error), ("level", level)):
        require(share, float, name, "give a share between 0 and 1")
    out = int(np.floor(error * (calibration + 1) + 1e-9))
    if out == 0:
        return 1.0, 1.0
    low, high = scipy.stats.betabinom.ppf([(1 - level) / 2, (1 + level) / 2], tested, calibration + 1 - out, out)
    return float(low / tested), float(high / tested)
