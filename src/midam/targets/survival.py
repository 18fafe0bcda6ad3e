"""Survival: the score is a risk; of two bags, the one with the earlier event gets the higher score.

The baseline is a Cox regression with a ridge on statistics of bags; inner folds can choose the ridge.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate.decisions import RISKS, RiskGroups
from midam.evaluate.ranking import Pairs, check_times, group_numbers
from midam.evaluate.survival import kaplan_meier, median_follow_up, median_time
from midam.targets.base import CardWords, Decided, Groups, Scores
from midam.targets.ranked import RankedTarget

_RIDGES = 10.0 ** np.arange(2, -4, -1)
"""Ridges to choose from, the strongest first; with equal C-indices the first is chosen."""
_USUAL_RIDGE = 1.0
_FOLDS = 5
_TOLERANCE, _MOST_STEPS = 1e-8, 20_000  # of the gradient, per event, and of the search


class CoxRidge:
    """Cox regression with a ridge, on standardized statistics: log hazard ``eta = x beta``, larger for earlier events.

    It minimizes ``-1/E sum_i [eta_i - log sum_(j: t_j >= t_i) exp(eta_j)] + l2/2 |beta|^2`` over the E events i, of
    Breslow's partial likelihood, by L-BFGS.

    Parameters
    ----------
    l2 : float > 0
        The ridge.

    Attributes
    ----------
    coef_ : array of float64, shape [D]
        The coefficients beta of the standardized statistics, (x - `mean_`) / `scale_`.
    mean_, scale_ : array of float64, shape [D]
        Mean and standard deviation of the training bags; scale 1 for a statistic that does not vary.

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
        likelihood = PartialLikelihood(scaler.transform(x), *check_times(time, event))
        self.coef_ = likelihood.minimize(self.l2, np.zeros(self.mean_.size))
        return self

    def predict(self, x: ArrayLike) -> Scores:
        """Return log hazards [n] of statistics [n, D], up to a constant."""
        return (np.asarray(x, dtype=np.float64) - self.mean_) / self.scale_ @ self.coef_


def choose_cox(
    x: ArrayLike, time: ArrayLike, event: ArrayLike, *, groups: ArrayLike | None = None, seed: int = 0
) -> CoxRidge:
    """Fit a `CoxRidge` to all bags, with the ridge of the best mean C-index over inner folds.

    There are five folds, or fewer if fewer bags (groups) have an event. The folds are disjoint by group, and the events
    are spread over them. If only one bag (group) has an event, the ridge is 1.

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
        likelihood = PartialLikelihood(scaler.transform(statistics[~inside]), t[~inside], e[~inside])
        beta = np.zeros(statistics.shape[1])
        for ridge_areas, l2 in zip(areas, _RIDGES):
            beta = likelihood.minimize(float(l2), beta)
            ridge_areas.append(pairs.concordance(scaler.transform(statistics[inside]) @ beta))
    best = float(_RIDGES[np.argmax(np.mean(areas, axis=1))]) if areas[0] else _USUAL_RIDGE
    return CoxRidge(best).fit(statistics, t, e)


def _inner_folds(event: NDArray[np.bool_], units: NDArray[np.intp], *, seed: int) -> NDArray[np.int64]:
    """Return the fold of each bag; units stay whole, and units with an event are spread first.

    There is a single fold if fewer than two units have an event.
    """
    has = np.bincount(units, weights=event) > 0
    count = min(_FOLDS, int(has.sum()))
    unit_folds = np.zeros(has.size, dtype=np.int64)
    if count > 1:
        shuffled = np.random.default_rng(seed).permutation(has.size)
        unit_folds[shuffled[np.argsort(~has[shuffled], kind="stable")]] = np.arange(has.size) % count
    return unit_folds[units]


class PartialLikelihood:
    """The loss of `CoxRidge` on standardized rows z [N, D], with its gradient."""

    def __init__(self, z: Scores, time: Scores, event: NDArray[np.bool_]) -> None:
        if not event.any():
            raise BagDataError("Expected a bag with an event, got none; train on other bags.")
        # Latest first: the bags at risk at a time are those up to the last one with this time.
        order = np.argsort(-time, kind="stable")
        self._z, event = z[order], event[order]
        self._last = np.searchsorted(-time[order], -time[order][event], side="right") - 1
        self._events = event / event.sum()

    def minimize(self, l2: float, start: Scores) -> Scores:
        """Return the coefficients [D] that minimize the loss."""
        limits = {"gtol": _TOLERANCE, "ftol": 0.0, "maxcor": 50, "maxiter": _MOST_STEPS, "maxfun": _MOST_STEPS}
        return minimize(self._loss, start, args=(l2,), jac=True, method="L-BFGS-B", options=limits).x

    def _loss(self, beta: Scores, l2: float) -> tuple[float, Scores]:
        eta = self._z @ beta
        weights = np.exp(eta - eta.max())  # hazards, divided by the largest
        at_risk = np.cumsum(weights)[self._last]  # their sums over the bags at risk at each event
        value = (np.log(at_risk).sum() / len(self._last) + eta.max()) - self._events @ eta
        # For each bag, the sum over the events at which it is at risk.
        shares = np.cumsum(np.bincount(self._last, weights=1 / at_risk, minlength=len(eta))[::-1])[::-1]
        slope = weights * shares / len(self._last) - self._events
        return float(value + l2 / 2 * beta @ beta), slope @ self._z + l2 * beta


_LEAST_EVENTS = 2


class Survival(RankedTarget):
    """Survival: the score is a risk; of two bags, the one with the earlier event gets the higher score."""

    name = "survival"
    predicted = "risk"
    pairs = "survival"
    decided_by = RiskGroups
    objectives = ("pairwise", "cox")
    name_limits = (2, 2)
    decided_figure = "risk_groups"
    card = CardWords(
        "regression",
        "gives one score in [0, 1], the risk: the higher, the earlier the event",
        "a group of risk (low, middle or high)",
        (("events", "events"), ("median follow-up", "median_follow_up")),
    )

    @property
    def predicted_names(self) -> tuple[str, ...]:
        """Names of the risk groups."""
        return RISKS

    incomparable = "no bag has its event before the time of another"

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return four strata: bags with and without an event, each in an earlier and a later half."""
        time, event = values[:, 0], values[:, 1].astype(np.int64)
        late = np.zeros(len(values), dtype=np.int64)
        for kind in (0, 1):
            inside = event == kind
            late[inside] = time[inside] > np.median(time[inside]) if inside.any() else 0
        return 2 * event + late

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return two strata, with and without an event, if events are the minority; else one stratum.

        Each pair needs an event.
        """
        event = values[:, 1].astype(np.int64)
        return event if 2 * event.sum() < len(event) else np.zeros_like(event)

    def check(self, bags: Bags) -> None:
        """Refuse bags with fewer than two events, or without a bag whose time is later than another's event."""
        values = self.values(bags)
        if (events := int(values[:, 1].sum())) < _LEAST_EVENTS:
            got = f"Expected at least {_LEAST_EVENTS} training bags with the event, got {events or 'none'}"
            raise BagDataError(f"{got} (in {bags.source}); check the events: 1 is an event, 0 is censored.")
        if not self.has_metric(values):
            got = "Expected a training bag with a time after the event of another, got none to rank"
            raise BagDataError(f"{got} (in {bags.source}); check the column of times.")

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Return whether a pair can be compared."""
        time, event = values.T
        first = np.min(time[event == 1], initial=np.inf)
        outlived = (time > first) | ((time == first) & (event == 0))
        return bool(outlived.any())

    def comparable(self, values: NDArray[Any]) -> Pairs:
        """Return the pairs in which one bag has the event before the other's time."""
        return Pairs.of_times(*values.T)

    linear = "Cox regression"

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return log hazards of Cox regression (Breslow's ties), penalized by half the squared norm of the weights."""
        time, event = values.T
        likelihood = PartialLikelihood(x, time, event > 0)
        return scored @ likelihood.minimize(1 / event.sum(), np.zeros(x.shape[1]))

    def counted(self, values: NDArray[Any]) -> tuple[str, int]:
        """Return the events, and their number."""
        return "events", int(values[:, 1].sum())

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:  # noqa: ARG002
        """Return the events, the follow-up, and, with a decision, the risk groups."""
        time, event = values.T
        result: dict[str, Any] = {"events": int(event.sum()), "median_follow_up": median_follow_up(time, event)}
        if decision is not None:
            risk, rows = decision.predict(scores), []
            for group in np.unique(risk):
                inside = risk == group
                row = {"group": int(group), "bags": int(inside.sum()), "events": int(event[inside].sum())}
                rows.append(row | {"median_time": median_time(kaplan_meier(time[inside], event[inside]))})
            result["risk_groups"] = rows
        return result
