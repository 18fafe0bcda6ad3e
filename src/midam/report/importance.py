"""Permutation importance: the loss in ranking when the values of a feature are shuffled."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError, require_counts
from midam.evaluate.predict import predict
from midam.targets import target_of

_NUMBERS_AT_A_TIME = 4_000_000


class Importance(NamedTuple):
    """Importance of a feature for a model.

    Attributes
    ----------
    feature : str
        Name of the feature, or "feature" and its number.
    drop, low, high : float
        The metric of the bags minus the metric with the feature shuffled, averaged over the shuffles, and its 95%
        interval over bags or groups of bags.
    """

    feature: str
    drop: float
    low: float
    high: float


def permutation_importance(
    model: Any, bags: Bags, *, repeats: int = 5, seed: int = 0, columns: Mapping[str, str] | None = None
) -> list[Importance]:
    """Return how much worse a model ranks bags when one feature is shuffled over the instances of all bags.

    If two features hold the same information, each alone has low importance, because the other replaces it (Breiman
    2001, Random forests, Machine Learning 45:5). The shuffled values move between the instances of all bags; bag sizes
    do not change.

    Parameters
    ----------
    model : scorer, ensemble, loaded run or fitted estimator
        An object with a method `bag_scores`, `decision_function` or `predict_proba` (a fitted estimator), with a
        `model` (a loaded run), or a model that `midam.evaluate.predict.predict` takes.
    bags : Bags
        Labeled bags of feature vectors, best without training bags.
    repeats : int
        Shuffles of each feature, >= 1.
    seed : int
        Seed of the shuffles.
    columns : mapping, optional
        Column of each feature that codes a category; the features of a column are shuffled together, under its name.

    Returns
    -------
    list of Importance
        The greatest drop first. The metric is the AUROC for two classes, with DeLong's interval of the difference, and
        else the main metric of the labels, with the interval of `midam.targets.Target.difference`. Drop and interval
        are means over the shuffles.

    Raises
    ------
    BagDataError
        If the instances are not feature vectors, or the labels do not order the bags.

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
    require_counts(repeats=repeats)
    if len(bags.instance_shape) != 1:
        raise BagDataError(
            f"Expected feature vectors, got instances of shape {list(bags.instance_shape)} (in {bags.source}); single "
            "pixels of images have no importance."
        )
    target = target_of(bags)
    values = target.values(bags)
    if not target.has_metric(values):
        raise BagDataError(f"Expected bags that their labels rank, got none (in {bags.source}); give both classes.")
    score, plain = _scorer(model, bags), bags.replace(digests=None, attributes=None)
    scores = score(plain)
    x, rng = np.concatenate([np.asarray(plain[i]) for i in range(len(plain))]), np.random.default_rng([seed, 1])
    names = plain.feature_names or [f"feature {number}" for number in range(x.shape[1])]
    sources = [(columns or {}).get(name, name) for name in names]
    at_a_time = min(repeats, max(1, _NUMBERS_AT_A_TIME // max(x.size, 1)))
    importances = []
    for name in dict.fromkeys(sources):
        numbers = [number for number, source in enumerate(sources) if source == name]
        shuffled: list[NDArray[np.float64]] = []
        while len(shuffled) < repeats:
            count = min(at_a_time, repeats - len(shuffled))
            tiled = np.tile(x, (count, 1))
            for k in range(count):
                tiled[k * len(x) : (k + 1) * len(x), numbers] = rng.permutation(x[:, numbers])
            shuffled += np.split(score(_repeated(plain, tiled, count)), count)
        drops = [target.difference(values, scores, permuted, groups=bags.groups)[:3] for permuted in shuffled]
        importances.append(Importance(str(name), *np.mean(drops, axis=0).tolist()))
    return sorted(importances, key=lambda row: -row.drop)


def _scorer(model: Any, bags: Bags) -> Any:
    """Return the function that scores bags, higher for the positive class of these two."""
    classes: Any = getattr(model, "classes_", ()) if bags.outcome is None else ()
    negative = 0 if bags.classes is None else bags.classes[0]
    # The second class has the higher scores, except for bag scores, which are those of `positive_`.
    sign = -1 if len(classes) == 2 and getattr(model, "positive_", classes[1]) == negative else 1
    for name in ("bag_scores", "decision_function"):
        if hasattr(model, name):
            return lambda bags: sign * getattr(model, name)(bags)
    if hasattr(model, "predict_proba"):
        return lambda bags: sign * model.predict_proba(bags)[:, 1]
    inner = getattr(model, "model", model)
    if not hasattr(inner, "parameters"):
        raise ConfigError(f"Expected a fitted estimator, a run or a model, got {type(model).__name__}; give one.")
    return lambda bags: predict(inner, bags)


def _repeated(bags: Bags, instances: NDArray[Any], count: int) -> Bags:
    """Return the same bags several times, with these instances."""
    covariates = None if bags.covariates is None else bags.covariates.subset([*range(len(bags))] * count)
    kept: dict[str, Any] = {"feature_names": bags.feature_names, "columns": bags.columns, "covariates": covariates}
    return Bags(instances, sizes=np.tile(bags.sizes, count), **kept)
