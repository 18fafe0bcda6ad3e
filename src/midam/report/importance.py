"""Permutation importance: how much worse bags are ranked once the values of a feature are shuffled."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError, require, require_counts
from midam.evaluate.intervals import paired_delong
from midam.evaluate.predict import predict
from midam.evaluate.ranking import group_numbers
from midam.targets import Target, target_of

_NUMBERS_AT_A_TIME = 4_000_000
_DRAWS = 200


class Importance(NamedTuple):
    """What a feature is worth to a model.

    Attributes
    ----------
    feature : str
        Its name, or its number.
    drop, low, high : float
        The metric of the bags, less that of the bags with the values of the feature shuffled, mean over the shuffles;
        and its 95% interval over bags, or groups of bags.
    """

    feature: str
    drop: float
    low: float
    high: float


def permutation_importance(model: Any, bags: Bags, *, repeats: int = 5, seed: int = 0) -> list[Importance]:
    """Shuffle one feature after the other over the instances of all bags, and rank the bags again.

    Two features that say the same cover for each other: each alone looks worth little (Breiman 2001, Random forests,
    Machine Learning 45:5; for bags, the values of a feature move between instances of any bags, whose sizes stay).

    Parameters
    ----------
    model : scorer, ensemble, loaded run or fitted estimator
        What has the method `bag_scores` (an estimator of `midam.sklearn`), a `model` (a loaded run), or can be given to
        `midam.evaluate.predict.predict`.
    bags : Bags
        Labeled bags of feature vectors, best none of those that were trained on.
    repeats : int
        Shuffles of each feature, >= 1.
    seed : int
        Of the shuffles and, for labels of more than two classes, of the bootstrap of the interval.

    Returns
    -------
    list of Importance
        The greatest drop first. Of two classes the metric is the AUROC, and the interval is DeLong's of the difference,
        the mean over the shuffles; of other labels it is their main metric, and a bootstrap.

    Raises
    ------
    BagDataError
        If the bags are no feature vectors, or their labels cannot be ranked.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from midam.sklearn import BagStatistics
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> bags = Bags.from_list([rng.normal(size=(5, 2)) + [2 * label, 0] for label in y], y)
    >>> fitted = make_pipeline(BagStatistics(), LogisticRegression()).fit(bags, y)
    >>> [row.feature for row in permutation_importance(fitted, bags)]
    ['feature 0', 'feature 1']
    """
    require(bags, Bags, "bags", "read them with `midam.read_bags`")
    require_counts(repeats=repeats)
    if len(bags.instance_shape) != 1:
        raise BagDataError(
            f"Expected feature vectors, got instances of shape {list(bags.instance_shape)} (in {bags.source}); the "
            "pixels of images have no importance each."
        )
    target = target_of(bags)
    if not target.has_metric(target.values(bags)):
        raise BagDataError(
            f"Expected bags that their labels rank, got none (in {bags.source}); give bags of both classes."
        )
    score, plain = _scorer(model), bags.replace(digests=None, attributes=None)
    judge = _Judge(target, bags, score(plain), np.random.default_rng(seed))
    x, rng = np.concatenate([np.asarray(plain[i]) for i in range(len(plain))]), np.random.default_rng([seed, 1])
    names = plain.feature_names or [f"feature {number}" for number in range(x.shape[1])]
    at_a_time = min(repeats, max(1, _NUMBERS_AT_A_TIME // max(x.size, 1)))
    found = []
    for number, name in enumerate(names):
        shuffled: list[NDArray[np.float64]] = []
        while len(shuffled) < repeats:
            count = min(at_a_time, repeats - len(shuffled))
            tiled = np.tile(x, (count, 1))
            for k in range(count):
                tiled[k * len(x) : (k + 1) * len(x), number] = rng.permutation(x[:, number])
            shuffled += np.split(score(_repeated(plain, tiled, count)), count)
        found.append(Importance(str(name), *judge.drop(shuffled)))
    return sorted(found, key=lambda row: -row.drop)


class _Judge:
    """How much less the metric of bags is with other scores."""

    def __init__(self, target: Target, bags: Bags, scores: NDArray[np.float64], rng: np.random.Generator) -> None:
        self._target, self._bags, self._scores = target, bags, scores
        self._values = target.values(bags)
        self._by_delong = target.pairs == "binary"
        units = group_numbers(bags.groups, len(bags))
        members = [np.flatnonzero(units == unit) for unit in range(int(units.max()) + 1)] if units is not None else None
        members = members or [np.array([i]) for i in range(len(bags))]
        # Whole groups, drawn with replacement.
        drawn = [rng.integers(len(members), size=len(members)) for _ in range(0 if self._by_delong else _DRAWS)]
        self._draws = [np.concatenate([members[k] for k in own]) for own in drawn]

    def drop(self, shuffled: list[NDArray[np.float64]]) -> tuple[float, float, float]:
        """Mean drop over several other scores, and its interval."""
        if self._by_delong:
            labels, groups = self._bags.require_labels(), self._bags.groups
            each = [paired_delong(labels, self._scores, own, groups=groups)[:3] for own in shuffled]
            drop, low, high = np.mean(each, axis=0)
            return float(drop), float(low), float(high)
        everything = np.arange(len(self._bags))
        drop = np.mean([self._less(own, everything) for own in shuffled])
        found = [self._less(shuffled[k % len(shuffled)], draw) for k, draw in enumerate(self._draws)]
        low, high = np.nanpercentile(found, [2.5, 97.5])
        return float(drop), float(low), float(high)

    def _less(self, other: NDArray[np.float64], at: NDArray[np.int64]) -> float:
        first, second = (self._target.metric_value(self._values[at], own[at]) for own in (self._scores, other))
        return float("nan") if first is None or second is None else first - second


def _scorer(model: Any) -> Any:
    """What gives the scores of bags."""
    if hasattr(model, "bag_scores"):
        return model.bag_scores
    if hasattr(model, "decision_function"):
        return model.decision_function
    if hasattr(model, "predict_proba"):
        return lambda bags: model.predict_proba(bags)[:, 1]
    inner = getattr(model, "model", model)
    if not hasattr(inner, "parameters"):
        raise ConfigError(
            f"Expected a fitted estimator, a loaded run or a model, got {type(model).__name__}; give one of these."
        )
    return lambda bags: predict(inner, bags)


def _repeated(bags: Bags, instances: NDArray[Any], count: int) -> Bags:
    """The same bags, several times, with these instances."""
    covariates = None if bags.covariates is None else bags.covariates.subset([*range(len(bags))] * count)
    return Bags(instances, sizes=np.tile(bags.sizes, count), feature_names=bags.feature_names, covariates=covariates)
