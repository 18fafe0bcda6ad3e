"""`MIDAMRanker`: bags in, ranks by grades or numbers out; every setting of a run is a parameter."""

from midam.sklearn.bag_rankers import BagRanker
from midam.sklearn.base import constructor


class MIDAMRanker(BagRanker):
    """Ranks bags by grades or numbers: of two bags, the one with the higher y gets the higher score.

    y [N] holds numbers, or grades if `grades` names them. A share of the bags (`val_fraction`, stratified by grades or
    by low and high numbers, and disjoint by group) is held out of the training: `predict` is fitted on it, and, with
    ``select="best"``, it chooses the epoch.

    X and the settings are those of `midam.MIDAMClassifier`. `score` is the C-index of `bag_scores`, not the R2 of
    scikit-learn's regressors, because the training uses only the order of y.

    Parameters
    ----------
    grades : sequence, default None
        The grades in y, the lowest first: numbers or words. None: y holds numbers, and `predict` returns numbers.
    warm_start : bool, default False
        `fit` continues from where the last call of `fit` or `partial_fit` ended.
    show_progress : bool, default False
        Show a bar with loss and validation C-index on standard error.
    random_state, verbose : int
        As in `midam.MIDAMClassifier`.

    Attributes
    ----------
    target_ : str
        "ordinal" or "continuous".
    grades_ : array [G] or None
        The grades, the lowest first; None for numbers.
    decision_ : GradeCuts, NumberScale or None
        Map from scores to predictions; None with ``val_fraction=0``.
    settings_, model_, history_, instance_shape_, n_features_in_, feature_names_in_ :
        As in `midam.MIDAMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 60)
    >>> bags = [rng.normal(loc=number, size=(4, 2)) for number in y]
    >>> ranker = MIDAMRanker(grades=(0, 1, 2), epochs=5, members=1, num_instances=4).fit(bags, y)
    >>> ranker.score(bags, y) > 0.8, sorted(set(ranker.predict(bags).tolist()) | {0, 1, 2})
    (True, [0, 1, 2])
    """

    __init__ = constructor("MIDAMRanker", {"grades": None})
