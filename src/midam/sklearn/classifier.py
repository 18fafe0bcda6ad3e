"""`MIDAMClassifier` and `BagClassifier`: bags in, ranks, probabilities and classes out; settings are parameters."""

import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from midam.errors import ConfigError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.decisions import LabelCalibrator, TemperatureCalibrator
from midam.sklearn.inputs import PerBag, per_bag
from midam.sklearn.labels import in_columns, in_form, with_classes
from midam.sklearn.trained import TrainedEstimator

if TYPE_CHECKING:
    from midam.sklearn.parameters import SettingParameters

_TINY = np.finfo(np.float64).tiny
_ALMOST_ONE = np.nextafter(1.0, 0.0)


class MIDAMClassifier(ClassifierMixin, TrainedEstimator):  # type: ignore[misc]
    """Bag classifier that maximizes AUC, for scikit-learn's pipelines, searches and cross-validation.

    y [N] holds two or more classes; with more than two, each is ranked against the rest. y [N, L] of 0 and 1 holds L
    labels, of which a bag may have several; NaN is an unknown label.

    A share of the bags (`val_fraction`, stratified, disjoint by group) is held out of the training: it calibrates the
    probabilities, chooses the operating point at which `predict` separates two classes, and, with ``select="best"``,
    the epoch. With `folds`, no bag is held out: all train the model, and probabilities and operating point come from
    scores of models of the other folds.

    X, in `fit` and in all other methods, is one of these:

    - `midam.Bags`, as from `midam.read_bags`; their labels and groups are used if y and groups are not given;
    - a DataFrame with a MultiIndex (bag, instance): a row is an instance. Bags are in the order of their first rows; y
      and groups may be Series that have the bags, as they may have the names of `Bags`, as index;
    - a list of N arrays [n_i, ...], or of N DataFrames;
    - an array [N, n, ...]: N bags of n instances;
    - an array or DataFrame [N, D]: N bags of one instance each.

    Columns with names are matched by name: later input may have them in another order, and further columns.

    Every setting of `midam.settings` (method, training, model and run) that is not about files is a parameter, with the
    same default: `pooling`, `estimator`, `objective`, `epochs`, `lr`, `num_instances`, `members`, `seed`, ... None
    stands for an empty dictionary.

    Parameters
    ----------
    method : str, default "midam"
        "auto" tries a few methods on inner folds of the training bags and keeps a weighted mean of the best; or the
        name of a method of `midam compare` that gives a model. These methods take no settings of a training.
    positive : object, default None
        Label of the positive class of two, the class of bags with witnesses. Default: the positive class of `Bags`,
        else the second of `classes_`.
    show_progress : bool, default False
        Show a bar with loss and validation AUROC on standard error.
    random_state : int, optional
        scikit-learn's name of `seed`; if given, it replaces `seed`.
    verbose : int, default 0
        scikit-learn's name of `show_progress`; above 0 the bar is shown.

    Attributes
    ----------
    classes_ : array [C]
        The labels, in ascending order; for y [N, L], the names of its columns, else 0 to L - 1.
    positive_ : object
        The positive class of two; None with more classes.
    target_ : str
        "binary", "multiclass" or "multilabel".
    settings_ : ResolvedSettings
        The settings of the last training, with those that depend on the shape of the instances filled in.
    model_ : BagEnsemble
        The trained scorers, one per member; the score of a bag is their mean.
    history_ : list of dict
        A row per epoch; with ``method="auto"`` a row for each method that was tried.
    oof_scores_, cv_results_ : array [N] or [N, C], dict of arrays; or None
        With `folds`, the score of each bag by a model that has not seen it, as `bag_scores` gives it; and the AUROC by
        fold of the estimator, and with "auto" of each method, as scikit-learn's searches have it.
    calibrator_ : PlattCalibrator or None
        Map from scores of two classes to probabilities; None with ``val_fraction=0``, except for methods without
        epochs.
    threshold_ : float
        Operating point of two classes on the scores of `bag_scores`, by the rule `threshold`; 0.5 without calibrator.
    decision_ : BinaryDecision, TemperatureCalibrator, LabelCalibrator or None
        Rule from scores to probabilities and predictions; None with ``val_fraction=0``, as `calibrator_`.
    run_ : LoadedRun
        The same as a run in memory.
    instance_shape_, n_features_in_, feature_names_in_ : tuple of int, int, array of str
        Shape of one instance, its count of numbers, and their names if X had names.

    Examples
    --------
    >>> import midam
    >>> bags = midam.read_bags("digits")
    >>> train, test = bags.subset(bags.where_split("train")), bags.subset(bags.where_split("test"))
    >>> classifier = MIDAMClassifier(epochs=20, num_instances=4).fit(train, train.labels)
    >>> classifier.predict_proba(test).shape
    (100, 2)
    """

    targets = ("binary", "multiclass", "multilabel")
    positive: Any
    classes_: NDArray[Any]
    positive_: Any

    def __init__(
        self, *, method: str | None = "midam", positive: Any = None, **settings: Unpack["SettingParameters"]
    ) -> None:
        super().__init__(method=method, positive=positive, **settings)

    def fit(self, X: Any, y: PerBag = None, sample_weight: PerBag = None, *, groups: PerBag = None) -> Self:
        """Train on N bags.

        Parameters
        ----------
        X : Bags, DataFrame, array or sequence
            Bags, in a form that the class lists.
        y : array [N] or [N, L], optional
            Labels of the bags: each value is a class; with several columns 0 or 1, or NaN for an unknown label.
            Default: the labels of `Bags`.
        sample_weight : array [N], optional
            How much each bag counts in the training, for two classes; a bag of weight 0 is left out. The AUC gets the
            products of the weights in each class. Held-out bags count once in the choice of a method or setting, in
            probabilities and in the operating point.
        groups : array [N], optional
            Group (patient) of each bag: held-out bags share no group with the others. Default: the groups of `Bags`.

        Raises
        ------
        MidamError
            If bags, labels or settings cannot be used.
        """
        with self._all_or_nothing():
            bags = self._learn_features(X)
            labeled = with_classes(bags, per_bag(y, X, "label"), positive=self.positive, estimator=self)
            self._train(labeled, X, groups, sample_weight)
            columns = self.decision_.columns if isinstance(self.decision_, LabelCalibrator) else []
            rare = [str(name) for name, column in zip(self._classes, columns) if column is None]
            if rare:
                text = f"held-out bags all have, or all lack, {', '.join(rare)}: predict_proba returns uncalibrated"
                warnings.warn(f"{text} scores", stacklevel=2)
            self.classes_, self.positive_ = labeled.classes, labeled.positive
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the confidence of the predictions, as logits.

        Two classes [N]: the distance of the score above the operating point, positive if `predict` returns
        ``classes_[1]``. More classes [N, C]: the logits of the softmax in `predict_proba`; `predict` returns the class
        with the largest logit. Several labels [N, L]: positive if `predict` returns 1 for the label.
        """
        scores = super().bag_scores(X)
        return self._decide(scores) if scores.ndim == 1 else self._logits(scores)[:, self._order]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each bag, [N]: two classes by the operating point `threshold_`, else the most probable.

        With several labels, return 0 or 1, int64 [N, L]: 1 for a probability above 1/2.
        """
        far = self.decision_function(X)
        if self.target_ == "multilabel":
            return (far > 0).astype(np.int64)
        return self.classes_[far.argmax(axis=1) if far.ndim == 2 else (far > 0).astype(np.int64)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities of `classes_`, calibrated on the held-out bags: [N, 2], [N, C] (with row sum 1), [N, L].

        With few held-out bags, "auto" and other methods without epochs use scores of inner folds too. Without held-out
        bags (``val_fraction=0``, or none of a class) nothing is calibrated: two classes raise a `ConfigError`; for more
        classes, the result is the softmax of the scores' logits, and for several labels the scores. They rank the bags
        of a class, but are not probabilities.
        """
        check_is_fitted(self)
        if self.target_ == "multilabel":
            return expit(self.decision_function(X))
        if self.target_ == "multiclass":
            return softmax(self.decision_function(X), axis=1)
        scores = self.bag_scores(X)
        if self.calibrator_ is None:
            raise ConfigError("Expected a calibrated classifier, got val_fraction=0; set it above 0 for probabilities.")
        positive = self.calibrator_.predict(scores)
        return np.stack([1 - positive, positive] if self._ascending else [positive, 1 - positive], axis=1)

    def score(self, X: Any, y: ArrayLike, sample_weight: PerBag = None) -> float:
        """Return the share of bags that `predict` gets right; with several labels, all known labels of the bag.

        For the AUC, pass a `scoring` to a search: "roc_auc" for two classes and for labels, "roc_auc_ovr" for classes.
        """
        if self.target_ != "multilabel":
            return float(super().score(X, in_form(per_bag(y, X, "label")), per_bag(sample_weight, X, "weight")))
        labels = np.asarray(in_columns(per_bag(y, X, "label"), self._classes), dtype=np.float64)
        right = (np.isnan(labels) | (labels == self.predict(X))).all(axis=1)
        return float(np.average(right, weights=per_bag(sample_weight, X, "weight")))

    def bag_scores(self, X: Any) -> NDArray[np.float64]:
        """Return scores in [0, 1] as in the files of a run; larger is more likely, but they are not probabilities.

        With two classes, they are the scores of `positive_`, [N]; else [N, C] in the order of `classes_`.
        """
        scores = super().bag_scores(X)
        return scores if scores.ndim == 1 else scores[:, self._order]

    def __sklearn_tags__(self) -> Any:
        """Accept labels with several columns."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def calibrator_(self) -> PlattCalibrator | None:
        """Map from scores of two classes to probabilities."""
        return self.run_.calibrator

    @property
    def threshold_(self) -> float:
        """Operating point of two classes on the scores of `bag_scores`; 0.5 without calibrator."""
        usual = 0.5 if self.target_ == "binary" else math.nan
        return usual if self.run_.threshold is None else self.run_.threshold

    @property
    def _ascending(self) -> bool:
        """Whether the positive class is the second of `classes_`."""
        return bool(self.positive_ == self.classes_[1])

    @property
    def _order(self) -> NDArray[np.int64]:
        """Column of the model for each of more than two `classes_`, which are in ascending order."""
        labels = self.target_ == "multilabel"
        return np.arange(len(self._classes)) if labels else np.argsort(self._classes)

    def _logits(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logits of the probabilities of classes or labels, from scores [N, C]; or those of the scores."""
        uncalibrated: NDArray[np.float64] = logit(np.clip(scores, _TINY, _ALMOST_ONE))
        if self.decision_ is None:
            return uncalibrated
        logits = cast(TemperatureCalibrator | LabelCalibrator, self.decision_).logits(scores)
        return np.where(np.isnan(logits), uncalibrated, logits)

    def _decide(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        x, at = (logit(np.clip(values, _TINY, _ALMOST_ONE)) for values in (scores, self.threshold_))
        # A bag at the operating point is positive.
        far = np.where(scores >= self.threshold_, np.maximum(x - at, _TINY), np.minimum(x - at, -_TINY))
        return far if self._ascending else -far

    def _restore(self) -> None:
        if self.target_ != "binary":
            self.classes_, self.positive_ = self._classes[self._order], None
            return
        self.classes_, self.positive_ = np.unique(self._classes), self._classes[1]
        self._classes = self.classes_
        if not self._ascending:
            self.positive = self.positive_


class BagClassifier(MIDAMClassifier):
    """`MIDAMClassifier` that chooses the method as `midam fit` does: the best known answer without settings.

    With ``method=None``, its default, it is "auto" for feature vectors of two classes, and "midam" for images, for more
    classes, for several labels, and with settings of a training. As there, ``folds="auto"`` cross-validates up to 500
    bags, of which none is held out. All else is as in `MIDAMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> bags = [random.normal(label, 1.0, (4, 2)) for label in y]
    >>> classifier = BagClassifier(seed=0).fit(bags, y)
    >>> classifier.history_[0]["method"], classifier.predict(bags).shape
    ('bag-statistics-extratrees', (40,))
    """

    _defaults: ClassVar[dict[str, Any]] = {"folds": "auto"}

    def __init__(
        self, *, method: str | None = None, positive: Any = None, **settings: Unpack["SettingParameters"]
    ) -> None:
        super().__init__(method=method, positive=positive, **settings)
