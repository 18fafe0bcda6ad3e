"""Baselines on bag statistics for labels that are more than 0 and 1: extremely randomized trees, and Cox with a ridge.

They are functions of a table of statistics [N, D] (`midam.data.statistics.bag_statistics`) and the labels [N, L] of an
outcome; nothing of the bags that are scored but their statistics is used.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.preprocessing import StandardScaler

from midam.compare.fitted import tree_offset
from midam.errors import BagDataError, ConfigError
from midam.evaluate.outcomes.pairs import Pairs, check_times
from midam.evaluate.ranking import Scores, group_numbers

Positions = NDArray[np.int64]

_TREES = 500
_RIDGES = 10.0 ** np.arange(2, -4, -1)
"""Ridges to choose from, the strongest first; the first of equals is taken."""
_USUAL_RIDGE = 1.0
_FOLDS = 5
_TOLERANCE = 1e-7  # of the gradient, per event


def score_outcome(
    target: str,
    statistics: ArrayLike,
    values: ArrayLike,
    train: Positions,
    test: Positions,
    *,
    columns: int,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> Scores:
    """Train the baseline of a target on the bags at `train`, and score those at `test`: [n, C], or [n] of one column.

    - Classes and labels: the probabilities of 500 extremely randomized trees (Geurts et al. 2006), of labels a forest
      each, of the bags whose entry is known. A class without training bags scores 0, a label of one kind its share.
    - Grades and numbers: what 500 such trees predict.
    - Times: the log hazard of Cox regression with a ridge that is chosen (`choose_cox`).

    Parameters
    ----------
    target : {"multiclass", "multilabel", "ordinal", "continuous", "survival"}
        What bags are ranked by.
    statistics : array_like, shape [N, D]
        Finite numbers of each bag.
    values : array_like, shape [N, L]
        Labels, as of `midam.targets.Target.values`; only those of the training bags are used.
    train, test : array of int
        Positions of bags.
    columns : int
        C, the columns of the scores.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag: inner folds are disjoint by it.
    seed : int, default 0
        Of trees and inner folds.

    Raises
    ------
    MidamError
        Another target; statistics or labels that cannot be used.

    Examples
    --------
    >>> x = [[float(bag)] for bag in range(8)]
    >>> scores = score_outcome("ordinal", x, x, np.arange(6), np.arange(6, 8), columns=1)
    >>> scores.tolist()
    [5.0, 5.0]
    """
    if target not in _BASELINES:
        raise ConfigError(f"Expected one of {', '.join(_BASELINES)}, got {target!r}; name the target.")
    x, y = np.asarray(statistics, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not np.isfinite(x).all():
        raise BagDataError(
            f"Expected finite statistics [N, D] and labels [N, L], got {x.shape} and {y.shape}; pass both."
        )
    units = group_numbers(groups, len(x))
    own, offset = None if units is None else units[train], tree_offset(x[train])
    x = x if offset is None else x - offset
    found = _BASELINES[target](x[train], y[train], x[test], columns=columns, units=own, seed=seed)
    return found[:, 0] if columns == 1 else found


class CoxRidge:
    """Cox regression with a ridge, on standardized statistics: the log hazard ``eta = x beta``, larger is earlier.

    It minimizes ``-1/E sum_i [eta_i - log sum_(j: t_j >= t_i) exp(eta_j)] + l2/2 |beta|^2`` over the E events i, of
    Breslow's partial likelihood, by Newton steps in a trust region. Their linear systems are solved by conjugate
    gradients, so a step costs a few passes over the statistics, however many there are.

    Parameters
    ----------
    l2 : float > 0
        The ridge.

    Attributes
    ----------
    coef_ : array of float64, shape [D]
        The coefficients beta, by which statistics minus `mean_` over `scale_` are multiplied.
    mean_, scale_ : array of float64, shape [D]
        Mean and standard deviation of the training bags; scale 1 of a statistic that does not vary.

    References
    ----------
    Cox (1972), Journal of the Royal Statistical Society B 34:187. Breslow (1974), Biometrics 30:89. Verweij and van
    Houwelingen (1994), Statistics in Medicine 13:2427.

    Examples
    --------
    >>> model = CoxRidge(l2=0.1).fit([[3.0], [2.0], [1.0], [0.0]], [1, 2, 3, 4], [1, 1, 1, 0])
    >>> model.predict([[4.0], [0.0]]).round(2).tolist()
    [4.1, -2.46]
    """

    def __init__(self, l2: float) -> None:
        if not l2 > 0:
            raise ConfigError(f"Expected a ridge above 0, got {l2}; give for example l2=1.")
        self.l2 = l2

    def fit(self, x: ArrayLike, time: ArrayLike, event: ArrayLike) -> Self:
        """Fit the coefficients to statistics [N, D], times [N] and events [N]; a `BagDataError` without an event."""
        scaler = StandardScaler().fit(x)
        self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        likelihood = _PartialLikelihood(scaler.transform(x), *check_times(time, event))
        self.coef_ = likelihood.minimize(self.l2, np.zeros(self.mean_.size))
        return self

    def predict(self, x: ArrayLike) -> Scores:
        """Log hazards [n] of statistics [n, D], up to a constant."""
        hazards: Scores = (np.asarray(x, dtype=np.float64) - self.mean_) / self.scale_ @ self.coef_
        return hazards


def choose_cox(
    x: ArrayLike, time: ArrayLike, event: ArrayLike, *, groups: ArrayLike | None = None, seed: int = 0
) -> CoxRidge:
    """`CoxRidge` with the ridge of the best mean C-index over inner folds, fitted to all bags.

    The folds are five, fewer where fewer bags (groups) have an event, disjoint by group; the events are spread over
    them. With one such bag (group) the ridge is 1.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(60, 1))
    >>> choose_cox(x, np.exp(-x[:, 0]), np.ones(60)).l2 in 10.0 ** np.arange(-3, 3)
    True
    """
    statistics = np.asarray(x, dtype=np.float64)
    t, e = check_times(time, event)
    units = group_numbers(groups, t.size)
    folds = _inner_folds(e, np.arange(t.size) if units is None else units, seed=seed)
    areas: list[list[float]] = [[] for _ in _RIDGES]
    for fold in range(folds.max() + 1 if folds.any() else 0):
        inside = folds == fold
        pairs = Pairs.of_times(t[inside], e[inside])
        if not pairs.total:
            continue
        scaler = StandardScaler().fit(statistics[~inside])
        likelihood = _PartialLikelihood(scaler.transform(statistics[~inside]), t[~inside], e[~inside])
        beta = np.zeros(statistics.shape[1])
        for found, l2 in zip(areas, _RIDGES):
            beta = likelihood.minimize(float(l2), beta)
            found.append(pairs.concordance(scaler.transform(statistics[inside]) @ beta))
    best = float(_RIDGES[np.argmax(np.mean(areas, axis=1))]) if areas[0] else _USUAL_RIDGE
    return CoxRidge(best).fit(statistics, t, e)


def _inner_folds(event: NDArray[np.bool_], units: NDArray[np.intp], *, seed: int) -> Positions:
    """Fold of each bag; whole units, those with an event spread first. All in one where fewer than two have any."""
    has = np.bincount(units, weights=event) > 0
    count = min(_FOLDS, int(has.sum()))
    of = np.zeros(has.size, dtype=np.int64)
    if count > 1:
        shuffled = np.random.default_rng(seed).permutation(has.size)
        of[shuffled[np.argsort(~has[shuffled], kind="stable")]] = np.arange(has.size) % count
    return of[units]


class _PartialLikelihood:
    """The loss of `CoxRidge` on standardized rows z [N, D], with its gradient and the products with its Hessian."""

    def __init__(self, z: Scores, time: Scores, event: NDArray[np.bool_]) -> None:
        if not event.any():
            raise BagDataError("Expected a bag with an event, got none; train on other bags.")
        # Latest first: who is at risk at a time are the bags up to the last one with this time.
        order = np.argsort(-time, kind="stable")
        self._z, event = z[order], event[order]
        self._last = np.searchsorted(-time[order], -time[order][event], side="right") - 1
        self._events = event / event.sum()
        # A step asks for many products at the same coefficients.
        self._seen: tuple[Scores, tuple[Scores, Scores, Scores]] | None = None

    def minimize(self, l2: float, start: Scores) -> Scores:
        """Coefficients [D] of the least loss."""
        how: dict[str, Any] = {"method": "trust-ncg", "jac": True, "options": {"gtol": _TOLERANCE}}
        found: Scores = minimize(self._loss, start, args=(l2,), hessp=self._product, **how).x
        return found

    def _loss(self, beta: Scores, l2: float) -> tuple[float, Scores]:
        eta, weights, at_risk = self._at(beta)
        value = (np.log(at_risk).sum() / len(self._last) + eta.max()) - self._events @ eta
        slope = weights * self._over_events(1 / at_risk) - self._events
        return float(value + l2 / 2 * beta @ beta), slope @ self._z + l2 * beta

    def _product(self, beta: Scores, vector: Scores, l2: float) -> Scores:
        _, weights, at_risk = self._at(beta)
        moved = self._z @ vector
        means = np.cumsum(weights * moved)[self._last] / at_risk
        slope = weights * (self._over_events(1 / at_risk) * moved - self._over_events(means / at_risk))
        product: Scores = slope @ self._z + l2 * vector
        return product

    def _at(self, beta: Scores) -> tuple[Scores, Scores, Scores]:
        """Log hazards, hazards over the largest, and their sum over the bags at risk at each event."""
        if self._seen is None or not np.array_equal(self._seen[0], beta):
            eta = self._z @ beta
            weights = np.exp(eta - eta.max())
            self._seen = beta.copy(), (eta, weights, np.cumsum(weights)[self._last])
        return self._seen[1]

    def _over_events(self, values: Scores) -> Scores:
        """Sum of a value of each event over those at which a bag is at risk, over their number."""
        sums = np.bincount(self._last, weights=values, minlength=len(self._z))
        return np.cumsum(sums[::-1])[::-1] / len(self._last)


def _classes(x: Scores, y: Scores, test: Scores, *, columns: int, units: Any, seed: int) -> Scores:  # noqa: ARG001
    forest = ExtraTreesClassifier(_TREES, random_state=seed).fit(x, y[:, 0].astype(np.int64))
    found = np.zeros((len(test), columns))
    found[:, forest.classes_] = forest.predict_proba(test)
    return found


def _labels(x: Scores, y: Scores, test: Scores, *, columns: int, units: Any, seed: int) -> Scores:
    found = np.zeros((len(test), columns))
    for column, of in enumerate(y.T):
        known = np.isfinite(of)
        if np.unique(of[known]).size == 2:
            own = {"columns": 2, "units": units, "seed": seed}
            found[:, column] = _classes(x[known], of[known, None], test, **own)[:, 1]
        elif known.any():
            found[:, column] = of[known][0]
    return found


def _numbers(x: Scores, y: Scores, test: Scores, *, columns: int, units: Any, seed: int) -> Scores:  # noqa: ARG001
    forest = ExtraTreesRegressor(_TREES, random_state=seed).fit(x, y[:, 0])
    return np.asarray(forest.predict(test), dtype=np.float64)[:, None]


def _times(x: Scores, y: Scores, test: Scores, *, columns: int, units: Any, seed: int) -> Scores:  # noqa: ARG001
    return choose_cox(x, y[:, 0], y[:, 1], groups=units, seed=seed).predict(test)[:, None]


_BASELINES: dict[str, Callable[..., Scores]] = {
    "multiclass": _classes,
    "multilabel": _labels,
    "ordinal": _numbers,
    "continuous": _numbers,
    "survival": _times,
}
