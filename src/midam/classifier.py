"""The scikit-learn face: a bag classifier with `fit`, `decision_function`, `predict_proba` and `predict`."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from midam.data.bags import Bags, both_classes
from midam.data.splits import split_bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.metrics import operating_point
from midam.evaluate.predict import InstanceScores, instance_scores, predict
from midam.settings import Settings, unknown_setting
from midam.train.trainer import Trainer, make_fabric

BagsLike = Bags | Sequence[ArrayLike]

_OF_FILES = (*Settings.names("data", "cut"), "test_fraction", "allow_leakage", "logger", "logger_args")


class MIDAMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Bag classifier that maximizes AUC.

    A share of the bags (`val_fraction`, stratified, disjoint by group) is held out of the training: it calibrates the
    probabilities, chooses the operating point of `predict`, and, with ``select="best"``, the epoch.

    Parameters
    ----------
    pooling, estimator, objective : str
        The method, see `midam.settings.MethodSettings`.
    seed : int
        Of the split, the initial weights and the sampling.
    epochs : int
        An epoch draws as many bags as the training set holds.
    settings : dict, optional
        Further settings of `midam.settings.Settings`, such as ``{"num_instances": 8, "members": 3}``.

    Attributes
    ----------
    classes_ : array [2]
        0 and 1.
    instance_shape_ : tuple of int
        Shape of one instance.
    model_ : BagEnsemble
        The trained scorers, one a member; the bags' scores are their mean.
    history_ : list of dict
        A row an epoch.
    calibrator_ : PlattCalibrator or None
        From scores to probabilities; None with ``val_fraction=0``.
    threshold_ : float
        Operating point on the score; 0.5 with ``val_fraction=0``.

    Examples
    --------
    >>> from midam.data.sets import catalog
    >>> bags = catalog.load("digits")
    >>> train, test = bags.subset(bags.where_split("train")), bags.subset(bags.where_split("test"))
    >>> classifier = MIDAMClassifier(epochs=20).fit(train, train.labels)
    >>> classifier.decision_function(test).shape
    (100,)
    """

    def __init__(
        self,
        *,
        pooling: str = "attention",
        estimator: str = "vrsp",
        objective: str = "minmax-auc",
        seed: int = 0,
        epochs: int = 100,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.pooling = pooling
        self.estimator = estimator
        self.objective = objective
        self.seed = seed
        self.epochs = epochs
        self.settings = settings

    def fit(self, bags: BagsLike, y: ArrayLike | None = None, *, groups: ArrayLike | None = None) -> Self:
        """Train on bags, or on a sequence of N arrays [n_i, ...].

        `y` [N] holds their labels, 0 or 1, and `groups` [N] the group (patient) of each: the held-out bags share no
        group with the rest. Default: those of `bags`. A `MidamError` where bags, labels or settings cannot be used.
        """
        settings = self._settings()
        run = settings.run
        bags = _as_bags(bags, y, groups)
        both_classes(bags)
        labels = bags.require_labels()
        held = np.zeros(len(bags), dtype=bool)
        if run.val_fraction > 0:
            shares = (1 - run.val_fraction, run.val_fraction, 0.0)
            held = split_bags(labels, groups=bags.groups, fractions=shares, seed=run.seed) == "val"
        val = bags.subset(np.flatnonzero(held)) if held.any() else None
        config = settings.resolve(bags.instance_shape)
        trainer = Trainer(config, bags.subset(np.flatnonzero(~held)), val, fabric=make_fabric(config))
        best: dict[str, Any] | None = None
        while not trainer.finished:
            trainer.train_epoch()
            if settings.training.select == "best" and trainer.best_epoch == trainer.epoch:
                best = {name: tensor.clone() for name, tensor in trainer.reported.state_dict().items()}
        if best is not None:
            trainer.reported.load_state_dict(best)
        self.classes_ = np.array([0, 1])
        self.instance_shape_ = bags.instance_shape
        self.model_ = trainer.reported.eval()
        self.history_ = trainer.history
        self.calibrator_, self.threshold_ = None, 0.5
        if val is not None:
            scores, truth = predict(self.model_, val, chunk_size=run.chunk_size), val.require_labels()
            self.calibrator_ = PlattCalibrator().fit(scores, truth)
            self.threshold_ = operating_point(truth, scores)
        return self

    def decision_function(self, bags: BagsLike) -> NDArray[np.float64]:
        """Scores [N] in [0, 1]: larger is more positive; not a probability."""
        of = self._fitting(bags)
        return predict(self.model_, of, chunk_size=self._settings().run.chunk_size)

    def predict_proba(self, bags: BagsLike) -> NDArray[np.float64]:
        """Probabilities [N, 2] of the classes, calibrated on the held-out bags; a `ConfigError` without such bags."""
        scores = self.decision_function(bags)
        if self.calibrator_ is None:
            raise ConfigError(
                "Expected a calibrated classifier, got val_fraction=0; hold bags out to get probabilities."
            )
        positive = self.calibrator_.predict(scores)
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, bags: BagsLike) -> NDArray[np.int64]:
        """Classes [N] at the operating point `threshold_`."""
        return (self.decision_function(bags) >= self.threshold_).astype(np.int64)

    def instance_scores(self, bags: BagsLike) -> list[InstanceScores]:
        """Score, attention logit and weight of every instance, a bag after the other: `midam.InstanceScores`."""
        of, chunk = self._fitting(bags), self._settings().run.chunk_size
        return [instance_scores(self.model_, of, i, chunk_size=chunk) for i in range(len(of))]

    def _settings(self) -> Settings:
        settings = dict(self.settings or {})
        own = {name: getattr(self, name) for name in ("pooling", "estimator", "objective", "seed", "epochs")}
        known = [name for name in Settings.names() if name not in _OF_FILES]
        for key in settings:
            if key in _OF_FILES:
                raise ConfigError(f"Expected no {key} in settings: it is about files; pass bags, y and groups to fit.")
            if key not in known:
                raise ConfigError(unknown_setting(key, known, source="settings"))
            if key in own:
                raise ConfigError(f"Expected {key} as an argument of its own, got it in settings; move it there.")
        return Settings(**settings, **own)

    def _fitting(self, bags: BagsLike) -> Bags:
        """Bags that the fitted model can score."""
        if not hasattr(self, "model_"):
            raise ConfigError("Expected a fitted classifier, got a fresh one; call fit first.")
        found = _as_bags(bags, None, None)
        if found.instance_shape != self.instance_shape_:
            raise BagDataError(
                f"Expected instances of shape {list(self.instance_shape_)} as in fit, got {list(found.instance_shape)} "
                f"(in {found.source}); use the same features."
            )
        return found


def _as_bags(bags: BagsLike, y: ArrayLike | None, groups: ArrayLike | None) -> Bags:
    if not isinstance(bags, Bags):
        return Bags.from_list(bags, y, groups=groups)
    if y is None and groups is None:
        return bags
    labels = bags.labels if y is None else y
    if labels is not None and len(np.asarray(labels)) != len(bags):
        raise BagDataError(f"Expected {len(bags)} labels, got {len(np.asarray(labels))}; give one label a bag.")
    return bags.replace(labels=labels, groups=bags.groups if groups is None else groups)
