"""All of the classifier but its constructor, whose parameters are the settings."""

import copy
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from scipy.special import logit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from midam.data.bags import Bags
from midam.data.splits import split_bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.predict import InstanceScores, instance_scores, predict
from midam.nn.ensemble import BagEnsemble
from midam.report.terminal import FitProgress
from midam.runs.apply import LoadedRun, load_run
from midam.runs.data import SplitBags, describe_origin
from midam.runs.folder import RunFolder
from midam.runs.judge import fit_decision
from midam.runs.results import model_content, write_model
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.sklearn.base import BagEstimator
from midam.sklearn.inputs import encoded, per_bag
from midam.sklearn.parameters import chosen_settings, setting_defaults
from midam.train.trainer import Trainer, make_fabric

if TYPE_CHECKING:
    from midam.explain.explanation import Explanation

_FIRST_CALL = 2**16  # a member never has this number
_TINY = np.finfo(np.float64).tiny
_ALMOST_ONE = np.nextafter(1.0, 0.0)


class BagClassifier(ClassifierMixin, BagEstimator):  # type: ignore[misc]
    """Classifier of bags without a constructor, see `midam.sklearn.classifier.MIDAMClassifier`."""

    positive: Any
    warm_start: bool
    show_progress: bool
    classes_: NDArray[Any]
    positive_: Any
    settings_: ResolvedSettings
    model_: BagEnsemble
    history_: list[dict[str, Any]]
    calibrator_: PlattCalibrator | None
    threshold_: float
    origin_: dict[str, Any]
    _calls: int
    _rest: list[dict[str, Any]]

    def fit(self, X: Any, y: ArrayLike | None = None, *, groups: ArrayLike | None = None) -> Self:
        """Train on N bags, from the start or, with `warm_start`, from where the last call ended.

        Parameters
        ----------
        X : Bags, DataFrame, array or sequence
            Bags, as the class says.
        y : array [N], optional
            Their labels: any two values. Default: the labels of `Bags`.
        groups : array [N], optional
            Group (patient) of each bag: the bags held out share no group with the rest. Default: those of `Bags`.

        Raises
        ------
        MidamError
            Where bags, labels or settings cannot be used.
        """
        return self._train(X, y, groups, self._settings(), going_on=self.warm_start and hasattr(self, "model_"))

    def partial_fit(
        self, X: Any, y: ArrayLike | None = None, classes: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Train one epoch on N bags of both classes, the same as before or others, from where the last call ended.

        The features are standardized as in the first call; `classes`, if given, are the two labels. Probabilities and
        operating point come from the bags that this call holds out. The rest is as in `fit`.
        """
        settings, going_on = self._settings().replace(epochs=1), hasattr(self, "model_")
        return self._train(X, y, groups, settings, going_on=going_on, classes=classes)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """How far the score of each bag lies above the operating point, [N], as a difference of logits.

        Positive where `predict` gives ``classes_[1]``, negative where it gives ``classes_[0]``.
        """
        return self._decide(self.bag_scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each bag, [N], at the operating point `threshold_`."""
        second = self.decision_function(X) > 0
        chosen: NDArray[Any] = self.classes_[second.astype(np.int64)]
        return chosen

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities [N, 2] of `classes_`, calibrated on the held-out bags; a `ConfigError` without such bags."""
        scores = self.bag_scores(X)
        if self.calibrator_ is None:
            raise ConfigError(
                "Expected a calibrated classifier, got val_fraction=0; hold bags out to get probabilities."
            )
        positive = self.calibrator_.predict(scores)
        return np.stack([1 - positive, positive] if self._ascending else [positive, 1 - positive], axis=1)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of the bags that `predict` gives their label; for the AUC, pass ``scoring="roc_auc"`` to a search."""
        return float(super().score(X, per_bag(y, X, "label"), sample_weight))

    def bag_scores(self, X: Any) -> NDArray[np.float64]:
        """Scores [N] in [0, 1] as in the files of a run: larger is more likely `positive_`; no probability."""
        check_is_fitted(self)
        return predict(self.model_, self._match_features(X), chunk_size=self.settings_.run.chunk_size)

    def instance_scores(self, X: Any) -> list[InstanceScores]:
        """Score, attention logit and weight of every instance, a bag after the other: `midam.InstanceScores`."""
        check_is_fitted(self)
        bags, chunk = self._match_features(X), self.settings_.run.chunk_size
        return [instance_scores(self.model_, bags, i, chunk_size=chunk) for i in range(len(bags))]

    def explain(self, X: Any, *, faithful: bool = False) -> "list[Explanation]":
        """Why each bag got its score, see `midam.explain.explain_bag`; `faithful` measures deletion curves too."""
        from midam.explain.explanation import explain_bag  # noqa: PLC0415

        check_is_fitted(self)
        bags, chunk = self._match_features(X), self.settings_.run.chunk_size
        return [explain_bag(self.model_, bags, i, chunk_size=chunk, faithful=faithful) for i in range(len(bags))]

    def to_run(self) -> LoadedRun:
        """The fitted classifier as a run in memory, for what takes one: `midam.explain.explain_bags`, ..."""
        check_is_fitted(self)
        return LoadedRun(
            model=self.model_,
            settings=self.settings_,
            calibrator=self.calibrator_,
            threshold=None if self.calibrator_ is None else self.threshold_,
            splits=self.origin_["splits"],
            contents=self.origin_["contents"],
            groups=set(self.origin_["groups"]),
            data=self.origin_["data"],
        )

    def save(self, path: str | Path) -> None:
        """Write a new run folder, which `midam predict`, `evaluate` and `explain` take, and `load`.

        It knows the bags that it was trained on by their content, so that none of them passes for a test. A
        `RunExistsError` if the folder holds something.
        """
        folder, run = RunFolder(Path(path)), self.to_run()
        folder.require_free()
        decision: dict[str, Any] = {"calibrator": run.calibrator, "threshold": run.threshold}
        write_model(folder, model_content(run.settings, run.model, self.origin_, **decision))

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """A fitted classifier from a run folder, of `save` or of `midam fit`; `history_` is empty.

        `trust` as in `midam.load_run`.

        Raises
        ------
        CheckpointError
            If there is no run, or its file is damaged.
        """
        run = load_run(path, trust=trust)
        values = run.settings.flat()
        found, shape, names = cls(), tuple(run.data["instance_shape"]), run.data["feature_names"]
        found.set_params(**{name: values[name] for name in setting_defaults()})
        classes = run.data.get("classes") or [0, 1]
        found.classes_, found.positive_ = np.unique(np.array(classes)), np.array(classes)[1]
        found.instance_shape_, found.n_features_in_ = shape, math.prod(shape)
        if not found._ascending:
            found.positive = classes[1]
        if names is not None:
            found.feature_names_in_ = np.array(names, dtype=object)
        found.model_, found.settings_, found.calibrator_ = run.model, run.settings, run.calibrator
        found.threshold_ = 0.5 if run.threshold is None else run.threshold
        known = {"data": run.data, "splits": run.splits, "contents": run.contents, "groups": sorted(run.groups)}
        found.origin_, found.history_, found._rest, found._calls = known, [], [], 1
        found._single = False
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: a model that was trained on a GPU is read where there is none."""
        state: dict[str, Any] = super().__getstate__()
        if "model_" in state and any(weight.is_cuda for weight in self.model_.parameters()):
            state |= {"model_": copy.deepcopy(self.model_).cpu(), "_rest": []}
        return state

    def __sklearn_tags__(self) -> Any:
        """Two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @property
    def _ascending(self) -> bool:
        """Whether the positive class is the second of `classes_`."""
        return bool(self.positive_ == self.classes_[1])

    def _settings(self) -> Settings:
        return chosen_settings(self.get_params(deep=False))

    def _decide(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        far: NDArray[np.float64] = logit(np.clip(scores, _TINY, _ALMOST_ONE)) - logit(
            np.clip(self.threshold_, _TINY, _ALMOST_ONE)
        )
        # A bag at the operating point is positive.
        far = np.where(scores >= self.threshold_, np.maximum(far, _TINY), np.minimum(far, -_TINY))
        return far if self._ascending else -far

    def _train(
        self,
        X: Any,
        y: ArrayLike | None,
        groups: ArrayLike | None,
        settings: Settings,
        *,
        going_on: bool,
        classes: ArrayLike | None = None,
    ) -> Self:
        bags = self._match_features(X) if going_on else self._learn_features(X)
        labels, found, ascending = encoded(bags, per_bag(y, X, "label"), positive=self.positive, estimator=self)
        known = self.classes_ if going_on else found if classes is None else np.unique(np.asarray(classes))
        if known.tolist() != found.tolist():
            raise BagDataError(f"Expected the classes {known.tolist()}, got {found.tolist()}; give bags of both.")
        before, now = self.positive_ if going_on else found[int(ascending)], found[int(ascending)]
        if before != now:
            raise ConfigError(f"Expected the positive class {before!s} as before, got {now!s}; set `positive`.")
        groups = per_bag(groups, X, "group")
        names = None if found.tolist() == [0, 1] else (found[int(not ascending)], now)
        bags = bags.replace(labels=labels, classes=names, groups=bags.groups if groups is None else groups)
        parts = _held_out(bags, settings)
        val = parts.part("val") if "val" in parts.splits else None
        trainer = self._trainer(settings, parts.part("train"), val, going_on=going_on)
        self.classes_, self.positive_ = found, now
        self.history_ = self._run(trainer, before=self.history_ if going_on else [])
        self.model_, self.settings_ = trainer.reported.eval(), trainer.config.replace(seed=settings.run.seed)
        self._rest = [
            {"objective": member.objective.state_dict(), "optimizer": member.optimizer.state_dict()["state"]}
            for member in trainer.members
        ]
        self.origin_ = _joined(self.origin_ if going_on else {}, describe_origin(parts))
        self.calibrator_, self.threshold_ = None, 0.5
        if val is not None:
            scores = predict(self.model_, val, chunk_size=self.settings_.run.chunk_size)
            self.calibrator_, point = fit_decision(val.require_labels(), scores)
            self.threshold_ = 0.5 if point is None else point
        return self

    def _trainer(self, settings: Settings, train: Bags, val: Bags | None, *, going_on: bool) -> Trainer:
        """A trainer of these bags, which takes up weights and, with the same method, what belongs to them."""
        # Another call draws other instances; the bags that it holds out are those of the first seed.
        seed = member_seed(settings.run.seed, _FIRST_CALL + self._calls) if going_on else settings.run.seed
        resolved = settings.replace(seed=seed).resolve(train.instance_shape)
        start = self.model_.state_dict() if going_on else None
        try:
            trainer = Trainer(resolved, train, val, fabric=make_fabric(resolved), start=start)
        except RuntimeError as error:
            if start is None:
                raise
            raise ConfigError(
                f"Expected settings of the same model to go on with, got others ({error}); set warm_start=False."
            ) from None
        self._calls = self._calls + 1 if going_on else 1
        alike = going_on and _method(self.settings_) == _method(resolved)
        for member, rest in zip(trainer.members, self._rest if alike else ()):
            own = member.objective.state_dict()
            # What has a row for each bag begins anew: these may be others.
            same = {name: value for name, value in rest["objective"].items() if value.shape == own[name].shape}
            member.objective.load_state_dict({**own, **same})
            groups = member.optimizer.state_dict()["param_groups"]
            member.optimizer.load_state_dict({"state": rest["optimizer"], "param_groups": groups})
        return trainer

    def _run(self, trainer: Trainer, *, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Train to the end, and report the weights that are selected; rows of the epochs, after those `before`."""
        best: dict[str, Any] | None = None
        with ExitStack() as stack:
            progress = None
            if self.show_progress:
                console = Console(stderr=True)
                progress = stack.enter_context(FitProgress(trainer.config.training.epochs, console=console))
            while not trainer.finished:
                row = trainer.train_epoch()
                if progress is not None:
                    progress.update(row)
                if trainer.config.training.select == "best" and trainer.best_epoch == trainer.epoch:
                    best = {name: tensor.clone() for name, tensor in trainer.reported.state_dict().items()}
        if best is not None:
            trainer.reported.load_state_dict(best)
        return before + [{**row, "epoch": len(before) + row["epoch"]} for row in trainer.history]


def _method(settings: ResolvedSettings) -> tuple[Any, ...]:
    """What must be the same for centers, dual variable and momenta to be taken up."""
    return settings.method, settings.model, settings.training.optimizer


def _held_out(bags: Bags, settings: Settings) -> SplitBags:
    """Bags to train on, and those that are held out, if any."""
    share, shares = settings.run.val_fraction, (1 - settings.run.val_fraction, settings.run.val_fraction, 0.0)
    if share == 0:
        return SplitBags(bags, np.full(len(bags), "train"))
    return SplitBags(
        bags, split_bags(bags.require_labels(), groups=bags.groups, fractions=shares, seed=settings.run.seed)
    )


def _joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What is known of the bags of several calls; what was trained on once was trained on."""
    found = {**before, **now}
    for key in ("splits", "contents") if before else ():
        trained = {name: split for name, split in before[key].items() if split == "train"}
        found[key] = {**before[key], **now[key], **trained}
    return found | {"groups": sorted({*before.get("groups", ()), *now["groups"]})}
