"""The estimators with one score that follows an order, without their constructors (parameters are the settings)."""

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate import Decision, concordance_index, concordance_index_censored
from midam.evaluate.decisions import RISKS
from midam.runs.loaded import LoadedRun
from midam.settings import Settings
from midam.sklearn.inputs import per_bag
from midam.sklearn.labels import Labeled, times_of, with_order, with_times
from midam.sklearn.trained import TrainedEstimator


class OrderEstimator(TrainedEstimator):
    """Base of the estimators with scores [N]."""

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Train on N bags, from the start or, with `warm_start`, from where the last call ended.

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
        return self._fit(X, y, groups, self._settings(), going_on=self.warm_start and hasattr(self, "model_"))

    def partial_fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Train one epoch on N bags, continuing from the last call; the bags may be new ones.

        The features are standardized as in the first call; predictions are fitted on the bags that this call holds
        out. The rest is as in `fit`.
        """
        return self._fit(X, y, groups, self._settings().replace(epochs=1), going_on=hasattr(self, "model_"))

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

    def _fit(self, X: Any, y: Any, groups: ArrayLike | None, settings: Settings, *, going_on: bool) -> Self:
        bags = self._match_features(X) if going_on else self._learn_features(X)
        if len(bags) < 2:
            raise BagDataError("Expected at least two bags to rank, got one sample; add bags.")
        self._train(self._labeled(bags, X, y), X, groups, settings, going_on=going_on)
        return self


class BagRanker(RegressorMixin, OrderEstimator):  # type: ignore[misc]
    """Ranker of bags without a constructor, see `midam.sklearn.ranker.MIDAMRanker`."""

    targets = ("ordinal", "continuous")
    grades: Sequence[Any] | None

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
        bags = self._match_fitted(X)
        labeled = with_order(bags, per_bag(y, X, "label"), grades=self.grades_, estimator=self)
        return concordance_index(self._target.values(labeled.bags)[:, 0], self.bag_scores(X))

    @property
    def grades_(self) -> NDArray[Any] | None:
        """The grades, the lowest first; None for numbers."""
        return self._classes if self.target_ == "ordinal" else None

    def _labeled(self, bags: Bags, X: Any, y: Any) -> Labeled:
        return with_order(bags, per_bag(y, X, "label"), grades=self.grades, estimator=self)

    def _restore(self, run: LoadedRun) -> None:
        super()._restore(run)
        self.grades = None if self.grades_ is None else self.grades_.tolist()


class BagSurvival(OrderEstimator):
    """Survival estimator of bags without a constructor, see `midam.sklearn.survival.MIDAMSurvival`."""

    targets = ("survival",)

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
        time, event = self._target.values(labeled.bags).T
        return concordance_index_censored(time, event, self.bag_scores(X))

    def _labeled(self, bags: Bags, X: Any, y: Any) -> Labeled:
        return with_times(bags, per_bag(times_of(y), X, "label"), estimator=self)
