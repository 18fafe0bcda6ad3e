"""`MIDAMSurvival`: bags in, risks out; every setting of a run is a parameter."""

from midam.sklearn.bag_rankers import BagSurvival
from midam.sklearn.base import constructor


class MIDAMSurvival(BagSurvival):
    """Ranks bags by the time of an event that may be censored: `predict` returns a risk.

    y holds time (above 0) and event (1 if the event came at this time, 0 if none was seen until then) of each bag:

    - a structured array of an event (True or False) and a time, as in scikit-survival;
    - a DataFrame of two columns, where the event is the column of True and False, or else the column named event, or
      else the second;
    - an array [N, 2] of time and event, in this order.

    A share of the bags (`val_fraction`, stratified by event and time, and disjoint by group) is held out of the
    training: it sets the cuts of `risk_groups` and, with ``select="best"``, it chooses the epoch.

    X and the settings are those of `midam.MIDAMClassifier`. ``objective="cox"`` trains by the partial likelihood.

    Parameters
    ----------
    warm_start : bool, default False
        `fit` continues from where the last call of `fit` or `partial_fit` ended.
    show_progress : bool, default False
        Show a bar with loss and validation C-index on standard error.
    random_state, verbose : int
        As in `midam.MIDAMClassifier`.

    Attributes
    ----------
    decision_ : RiskGroups or None
        The cuts of `risk_groups`; None with ``val_fraction=0``.
    target_, settings_, model_, history_, instance_shape_, n_features_in_, feature_names_in_ :
        As in `midam.MIDAMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> time, event = rng.exponential(size=60) + 0.1, rng.random(60) < 0.7
    >>> bags = [rng.normal(loc=-np.log(value), size=(4, 2)) for value in time]
    >>> y = np.array(list(zip(event, time)), dtype=[("event", bool), ("time", float)])
    >>> model = MIDAMSurvival(epochs=5, members=1, num_instances=4).fit(bags, y)
    >>> model.score(bags, y) > 0.8, set(model.risk_groups(bags).tolist()) == {"low", "middle", "high"}
    (True, True)
    """

    __init__ = constructor("MIDAMSurvival", {})
