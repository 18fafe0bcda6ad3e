"""`MIDAMRanker` and `MIDAMSurvival`: bags in, ranks by grades, numbers or times out; settings are parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate.decisions import RISKS, Decision
from midam.evaluate.ranking import Pairs
from midam.sklearn.inputs import per_bag
from midam.sklearn.labels import Labeled, times_of, with_order, with_times
from midam.sklearn.trained import TrainedEstimator

if TYPE_CHECKING:
    from midam.sklearn.parameters import SettingParameters


class OrderEstimator(TrainedEstimator):
    """Base of the estimators with scores [N]."""

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Train on N bags.

        Parameters
        ----------
        X : Bags, DataFrame, array or sequence
            Bags, in a form that the class lists.
        y : array, optional
            Labels of the bags, in a form that the class lists. Default: the labels of `Bags`.
        groups : array [N], optional
            Group (patient) of each bag: held-out bags share no group with the others. Default: the groups of `Bags`.

        Raises
        ------
        MidamError
            If bags, labels or settings cannot be used.
        """
        with self._all_or_nothing():
            bags = self._learn_features(X)
            if len(bags) < 2:
                raise BagDataError("Expected at least two bags to rank, got one sample; add bags.")
            self._train(self._labeled(bags, X, y), X, groups)
        return self

    def _labeled(self, bags: Bags, X: Any, y: Any) -> Labeled:
        """Return the bags with their labels from y."""
        raise NotImplementedError

    def _decided(self, meaning: str) -> Decision:
        if self.decision_ is None:
            raise ConfigError(
                f"Expected held-out bags of different labels, which turn a score into {meaning}, got none; set "
                "val_fraction above 0, or use `bag_scores`."
            )
        return self.decision_


class MIDAMRanker(RegressorMixin, OrderEstimator):  # type: ignore[misc]
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
    settings_, model_, history_, oof_scores_, cv_results_, instance_shape_, n_features_in_, feature_names_in_ :
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

    targets = ("ordinal", "continuous")
    grades: Sequence[Any] | None

    def __init__(self, *, grades: Sequence[Any] | None = None, **settings: Unpack["SettingParameters"]) -> None:
        super().__init__(grades=grades, **settings)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted y of each bag, [N]: a grade of `grades_`, or a number.

        It depends only on the score, by cuts or an increasing curve that are fitted on the held-out bags; without such
        bags a `ConfigError` is raised. Bags with different `bag_scores` may have the same prediction.
        """
        scores = self.bag_scores(X)
        predicted = self._decided("a grade or a number").predict(scores)
        return predicted if self.target_ == "continuous" else cast(NDArray[Any], self._classes[predicted])

    def score(self, X: Any, y: Any) -> float:
        """Return the C-index of `bag_scores`: the share of pairs of bags with different y that they order correctly.

        Two equal scores count one half; 1/2 is chance. For other metrics, such as the error of `predict`, pass a
        `scoring` to a search.
        """
        labeled = with_order(self._match_fitted(X), per_bag(y, X, "label"), grades=self.grades_, estimator=self)
        return Pairs.of_numbers(self.run_.target.values(labeled.bags)[:, 0]).concordance(self.bag_scores(X))

    @property
    def grades_(self) -> NDArray[Any] | None:
        """The grades, the lowest first; None for numbers."""
        return self._classes if self.target_ == "ordinal" else None

    def _labeled(self, bags: Bags, X: Any, y: Any) -> Labeled:
        return with_order(bags, per_bag(y, X, "label"), grades=self.grades, estimator=self)

    def _restore(self) -> None:
        self.grades = None if self.grades_ is None else self.grades_.tolist()


class MIDAMSurvival(OrderEstimator):
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
    show_progress : bool, default False
        Show a bar with loss and validation C-index on standard error.
    random_state, verbose : int
        As in `midam.MIDAMClassifier`.

    Attributes
    ----------
    decision_ : RiskGroups or None
        The cuts of `risk_groups`; None with ``val_fraction=0``.
    target_, settings_, model_, history_, oof_scores_, cv_results_, instance_shape_, n_features_in_, feature_names_in_ :
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

    targets = ("survival",)

    def __init__(self, **settings: Unpack["SettingParameters"]) -> None:
        super().__init__(**settings)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the risk of each bag, [N] in [0, 1]: higher means an earlier event; the same as `bag_scores`."""
        return self.bag_scores(X)

    def risk_groups(self, X: Any) -> NDArray[np.str_]:
        """Return the risk group of each bag, [N]: "low", "middle" or "high", by the tertiles of the held-out bags."""
        return np.array(RISKS)[self._decided("a group of risk").predict(self.bag_scores(X))]

    def score(self, X: Any, y: Any) -> float:
        """Return Harrell's C-index: the share of comparable pairs in which the earlier event has the higher risk.

        Two equal risks count one half; 1/2 is chance.
        """
        labeled = self._labeled(self._match_fitted(X), X, y)
        time, event = self.run_.target.values(labeled.bags).T
        return Pairs.of_times(time, event).concordance(self.bag_scores(X))

    def _labeled(self, bags: Bags, X: Any, y: Any) -> Labeled:
        return with_times(bags, per_bag(times_of(y), X, "label"), estimator=self)
