"""Base of all trained estimators of bags: training, scores, explanations, and runs on disk."""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.utils.validation import check_is_fitted

from midam.data.bags import Bags, warn_of_alike_names
from midam.data.column_codes import prepare
from midam.data.digests import set_digests
from midam.errors import CheckpointError, ConfigError, RunExistsError
from midam.evaluate.decisions import Decision
from midam.evaluate.pooled import InstanceScores, instance_scores
from midam.evaluate.predict import predict, prepared
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Fitted, Trained
from midam.methods.names import DEFAULT, choose_method, is_shorthand, make_method, taken_settings, usual_method
from midam.nn.scorer import BagEnsemble
from midam.runs.cross_validation import train_folds, trials_of
from midam.runs.data import SplitBags, describe_origin, split_data
from midam.runs.folder import RunFolder
from midam.runs.folds import choose_folds
from midam.runs.loaded import LoadedRun, load_run
from midam.runs.results import model_content, write_model
from midam.runs.typical import warn_of_units
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.settings.group import AUTO
from midam.sklearn.base import SettingsEstimator, chosen_settings
from midam.sklearn.inputs import ROWS, PerBag, per_bag, warn_of_groups_for_bags, warn_of_known_groups, with_weights
from midam.sklearn.labels import MADE_FOR, Labeled
from midam.targets import OutOfFold, Target, target_named, target_of
from midam.train.members import with_objective
from midam.train.trainer import Trainer

if TYPE_CHECKING:
    from midam.explain.explanation import Explanation
    from midam.report.terminal import FitProgress

_FIRST_CALL = 2**16  # above the number of any member


class TrainedEstimator(SettingsEstimator):
    """Base of the estimators that are trained: a subclass defines the form of y and the predictions.

    Attributes
    ----------
    targets : tuple of str
        Targets of `midam.registry.TARGETS` that it supports.
    target_ : str
        The target of y.
    oof_scores_ : array [N] or [N, C], or None
        With `folds`, the score of each bag of the last fit by a model that has not seen it, on the scale of
        `bag_scores`; NaN for a bag of weight 0. None if bags were held out.
    cv_results_ : dict of str to array, or None
        With `folds`, the main metric of this estimator on the bags of each fold, and, with "auto", that of each method
        that was tried: params, split0_test_score, ..., mean_test_score, std_test_score and rank_test_score, as in
        scikit-learn's searches, and the weight of each method in the model.
    """

    targets: ClassVar[tuple[str, ...]]
    method: str | None = DEFAULT
    folds: int | str
    warm_start: bool
    show_progress: bool
    random_state: int | None
    verbose: int
    settings_: ResolvedSettings
    model_: BagEnsemble
    history_: list[dict[str, Any]]
    oof_scores_: NDArray[np.float64] | None
    cv_results_: dict[str, Any] | None
    decision_: Decision | None
    origin_: dict[str, Any]
    _calls: int
    _fitted: tuple[str | None, list[dict[str, Any]] | None]  # the method, if it has no epochs, and its parts
    _rest: list[dict[str, Any]]
    _classes: NDArray[Any]  # names in y of the columns of the scores, or of the grades; empty for numbers

    def bag_scores(self, X: Any) -> NDArray[np.float64]:
        """Return scores in [0, 1] as in the files of a run, [N], or [N, C] with several classes or labels."""
        check_is_fitted(self)
        return predict(self.model_, self._match_fitted(X), chunk_size=self.settings_.run.chunk_size)

    def instance_scores(self, X: Any) -> list[InstanceScores]:
        """Return the score, attention logit and weight of every instance, one `InstanceScores` per bag."""
        bags = self._match_fitted(X)
        return self._instance_scores(bags, [None] * len(bags))

    def explain(self, X: Any) -> "list[Explanation]":
        """Explain the score of each bag, see `midam.explain.explain_bag`."""
        bags = self._match_fitted(X)
        return self._explain(bags, [None] * len(bags))

    def to_run(self) -> LoadedRun:
        """Return the fitted estimator as a run in memory, for functions such as `midam.explain.explain_bags`."""
        check_is_fitted(self)
        method, parts = self._fitted
        fields: dict[str, Any] = {"decision": self._decision(), "method": method, "parts": parts}
        return LoadedRun(model=self.model_, settings=self.settings_, **self.origin_, **fields)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a new run folder for `load` and for `midam predict`, `evaluate`, `explain` and `report`.

        The run recognizes its training bags by their content, so that none of them counts as a test bag. A
        `RunExistsError` is raised if the folder is not empty; with `overwrite`, if it holds more than a saved
        estimator.
        """
        folder, run = RunFolder(Path(path)), self.to_run()
        if folder.is_model_alone() and not overwrite:
            raise RunExistsError(
                f"Expected a free folder, got {path}, which holds a saved model; pass overwrite=True to replace it, or "
                "choose another folder."
            )
        if not folder.is_model_alone():
            folder.require_free()
        fitted = Fitted(run.model, run.settings, run.method, run.parts)
        write_model(folder, model_content(fitted, self.origin_, decided=run.target.saved(run.decision)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a fitted estimator from a run folder of `save` or of `midam fit`; `history_` is empty.

        Raises
        ------
        CheckpointError
            If there is no run, if its file is damaged, or if this estimator does not support its target.
        """
        run = load_run(path)
        if run.target.name not in cls.targets:
            raise CheckpointError(
                f"Expected a run of the target {' or '.join(cls.targets)}, got {run.target.name} (in {path}); load it "
                f"with {MADE_FOR.get(run.target.name, 'midam.load_run')}."
            )
        # A method that is fitted in one step takes few settings; the others keep their defaults.
        values = run.settings.flat() if run.method is None else taken_settings(run.settings)
        values = {**values, "method": run.method or DEFAULT, "folds": cls().folds}  # it may go on
        estimator, shape, names = cls(), tuple(run.data["instance_shape"]), run.data["feature_names"]
        if run.columns is not None:
            names, shape = list(run.columns.kinds), (len(run.columns.kinds),)
        estimator.set_params(**{name: values[name] for name in estimator.get_params(deep=False) if name in values})
        estimator.instance_shape_, estimator.n_features_in_ = shape, math.prod(shape)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.model_, estimator.settings_ = run.model, run.settings
        known = {name: getattr(run, name) for name in ("data", "splits", "contents", "groups")}
        estimator.origin_, estimator.history_, estimator._rest, estimator._calls = known, [], [], 1
        estimator.oof_scores_, estimator.cv_results_ = None, None
        estimator._single, estimator._fitted = run.data["source"] == ROWS, (run.method, run.parts)
        outcome = run.data.get("outcome") or {"names": run.data.get("classes") or [0, 1]}
        estimator._classes = np.array(outcome.get("values", outcome["names"]))
        estimator._restore(run)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling; a model that was trained on a GPU can be loaded without a GPU."""
        state: dict[str, Any] = super().__getstate__()
        if "model_" in state and any(weight.is_cuda for weight in self.model_.parameters()):
            state |= {"model_": copy.deepcopy(self.model_).cpu(), "_rest": []}
        return state

    @property
    def target_(self) -> str:
        """Target of y: a name of `midam.registry.TARGETS`."""
        return self._target.name

    @property
    def _target(self) -> Target:
        return target_named(self.origin_["data"].get("outcome"))

    def _settings(self, *, once: bool = False) -> Settings:
        """Return the settings; `once` those of a single epoch. A training that goes on later has no folds."""
        settings = chosen_settings(self.get_params(deep=False))
        if not once and not self.warm_start:
            return settings
        if settings.run.folds not in (0, AUTO):
            text = f"Expected `folds` 0 for a training that goes on, got {settings.run.folds!r}: its models have seen"
            raise ConfigError(f"{text} the bags of all folds; set folds=0, or call fit with warm_start=False.")
        return settings.replace(folds=0, **({"epochs": 1} if once else {}))

    def _match_fitted(self, X: Any) -> Bags:
        check_is_fitted(self)
        bags = prepared(self.model_, self._match_features(X))
        warn_of_units(bags, self.origin_["data"], run="this model")
        warn_of_known_groups(bags, self.origin_["groups"], self.origin_["splits"])
        return bags

    def _instance_scores(self, bags: Bags, columns: list[int | None]) -> list[InstanceScores]:
        chunk = self.settings_.run.chunk_size
        return [instance_scores(self.model_, bags, i, column=c, chunk_size=chunk) for i, c in enumerate(columns)]

    def _explain(self, bags: Bags, columns: list[int | None]) -> "list[Explanation]":
        from midam.explain.explanation import Features, explain_bag

        chunk, features = self.settings_.run.chunk_size, Features.of(self.origin_["data"], self.model_, bags)
        options: dict[str, Any] = {"chunk_size": chunk, "features": features}
        return [explain_bag(self.model_, bags, i, column=column, **options) for i, column in enumerate(columns)]

    def _decision(self) -> Decision | None:
        """Return the decision that turns scores into predictions."""
        return self.decision_

    def _restore(self, run: LoadedRun) -> None:
        """Take the decision and the classes of a loaded run."""
        self._store_decision(run.decision)

    def _store_decision(self, decision: Decision | None) -> None:
        """Store a decision, or None."""
        self.decision_ = decision

    def _decide_on(self, val: Bags | None, out_of_fold: OutOfFold | None) -> None:
        """Fit the decision on the held-out bags, if any, or on scores of inner folds."""
        target, values, scores = self._target, np.empty(0, dtype=np.int64), np.empty(0)
        if val is not None:
            values, scores = target.values(val), predict(self.model_, val, chunk_size=self.settings_.run.chunk_size)
        decision = target.decide(values, scores, rule=self.settings_.run.threshold, out_of_fold=out_of_fold)
        self._store_decision(decision)
        if decision is None and val is not None and target.name != "binary":
            warnings.warn("y orders no two of the bags held out: the scores are not calibrated", stacklevel=5)

    def _cross_decide(self, parts: SplitBags, scored: OutOfFold, counted: NDArray[np.bool_]) -> None:
        """Fit the decision on bags scored by models of other folds; keep these scores, and their metric by fold."""
        made = self._target.cross_decide(scored, rule=self.settings_.run.threshold, alike=not parts.by_site)
        self._store_decision(made.decision)
        self.oof_scores_ = np.full((len(counted), *made.scores.shape[1:]), np.nan)
        self.oof_scores_[counted] = made.scores
        tried = [] if self._fitted[0] is None else self.history_
        self.cv_results_ = cv_results(self._target, scored, self._fitted[0] or DEFAULT, tried)

    def _train(
        self, labeled: Labeled, X: Any, groups: PerBag, settings: Settings, *, going_on: bool, weights: PerBag = None
    ) -> None:
        """Train on labeled bags, from the start or from the last call, and fit the decision."""
        bags, groups = labeled.bags, per_bag(groups, X, "group")
        counted = np.ones(len(bags), dtype=np.bool_)
        if groups is not None:
            bags = bags.replace(groups=groups)
            warn_of_alike_names(bags)
            warn_of_groups_for_bags(bags)
        if weights is not None:
            bags = with_weights(bags, weights := per_bag(weights, X, "weight"))
            counted = np.asarray(weights) != 0
        target = target_of(bags)
        if going_on and (target.name, labeled.classes.tolist()) != (self.target_, self._classes.tolist()):
            before = f"{self.target_} ({', '.join(map(str, self._classes))})"
            now = f"{target.name} ({', '.join(map(str, labeled.classes))})"
            raise ConfigError(f"Expected y as before, {before}, got {now}; set warm_start=False.")
        target.check_rule(settings.run.threshold)
        name = usual_method(bags, settings) if self.method is None else self.method
        settings, name = choose_method(name, settings)
        parts = self._divided(bags, settings, at_once=name is not None, going_on=going_on)
        val = parts.part("val") if "val" in parts.splits else None
        val = self._without_trained(val) if going_on and val is not None else val
        config = with_objective(settings, target).resolve(parts.bags.instance_shape)
        with ExitStack() as stack:
            show = self.show_progress or bool(self.verbose)
            bar = stack.enter_context(_progress(1 if name else config.training.epochs)) if show else None
            if name is not None:
                calls = QUIET if bar is None else Callbacks(on_candidate=bar.candidate)
                fitted = make_method(name).fit(parts.part("train"), val, config, calls, trials_of(parts, config))
                self.history_, self._rest, self._calls = list(fitted.entries.get("auto", {}).get("tried", ())), [], 1
            else:
                fitted = self._fit_epochs(config, parts.part("train"), val, bar, going_on=going_on)
        self.model_, self._fitted = fitted.model.eval(), (fitted.method, fitted.parts)
        count = settings.run.site or (0 if parts.folds is None else len(np.unique(parts.folds)))
        self.settings_ = fitted.config.replace(seed=settings.run.seed, folds=count)
        self._classes = labeled.classes
        origin = describe_origin(parts)
        if "outcome" in origin["data"] and len(labeled.classes):
            origin["data"]["outcome"]["values"] = labeled.classes.tolist()
        self.origin_ = _joined(self.origin_ if going_on else {}, origin)
        self.oof_scores_ = self.cv_results_ = None
        if parts.folds is None:
            self._decide_on(val, fitted.out_of_fold)
        else:
            scored = fitted.out_of_fold or train_folds(parts, fitted.config)
            self._cross_decide(parts, scored, counted)
        self.to_run()  # sets the features of the model

    def _divided(self, bags: Bags, settings: Settings, *, at_once: bool, going_on: bool) -> SplitBags:
        """Give bags folds or hold some out, as the settings say; a training that goes on prepares them as before."""
        bags = bags.replace(splits=None)
        folds = choose_folds(bags, settings, at_once=at_once)
        if folds is not None:
            return split_data(bags, settings, folds=folds)
        parts = _held_out(bags, settings, target_of(bags))
        if not going_on:
            made = prepare(parts.bags, settings.data, train=np.flatnonzero(parts.splits == "train"))
            return SplitBags(made.bags, parts.splits, made.imputed, made.gaps, made.columns)
        self._require_epochs()
        known = {name: self.origin_["data"].get(name) for name in ("imputed", "columns")}
        parts = SplitBags(prepared(self.model_, parts.bags), parts.splits, **known)
        warn_of_units(parts.bags, self.origin_["data"], run="the earlier calls")
        return parts

    def _without_trained(self, val: Bags) -> Bags:
        """Return the held-out bags that no earlier call trained on, nor on others of their group; all, if alike."""
        contents, groups = self.origin_["contents"], self.origin_["groups"]
        pairs = zip(set_digests(val), val.ids if val.groups is None else val.groups)
        new = np.array(["train" not in (contents.get(digest), groups.get(group)) for digest, group in pairs])
        if len(np.unique(self._target.values(val)[new], axis=0)) > 1:
            return val.subset(new)
        warnings.warn("held-out bags were trained on before: probabilities and threshold are too good", stacklevel=6)
        return val

    def _require_epochs(self) -> None:
        """Refuse a method that cannot continue from the last call."""
        if self.method is None or (self.method != DEFAULT and not is_shorthand(self.method)):
            wanted = f"method={DEFAULT!r} to continue"
            raise ConfigError(f"Expected {wanted}, got {self.method!r}; call fit with warm_start=False.")

    def _fit_epochs(
        self, settings: ResolvedSettings, train: Bags, val: Bags | None, bar: "FitProgress | None", *, going_on: bool
    ) -> Fitted:
        """Train, with the weights of the last call and, for the same method, its state."""
        # Each call draws other instances, but holds out bags by the seed of the settings.
        seed = member_seed(settings.run.seed, _FIRST_CALL + self._calls) if going_on else settings.run.seed
        config, before = settings.replace(seed=seed), self.history_ if going_on else []
        alike = going_on and _method(self.settings_) == _method(config)
        trainers: list[Trainer] = []

        def continue_from(trainer: Trainer) -> None:
            trainers.append(trainer)
            for member, rest in zip(trainer.members, self._rest if alike else ()):
                state = member.objective.state_dict()
                # State with a row for each bag starts again, because the bags may have changed.
                same = {name: value for name, value in rest["objective"].items() if value.shape == state[name].shape}
                member.objective.load_state_dict({**state, **same})
                groups = member.optimizer.state_dict()["param_groups"]
                # A copy, since an optimizer changes its state in place, and the training may fail.
                member.optimizer.load_state_dict({"state": copy.deepcopy(rest["optimizer"]), "param_groups": groups})

        calls = Callbacks(on_trainer=continue_from)
        if bar is not None:
            calls = replace(calls, on_epoch=lambda row, _: bar.update(row))
        method = Trained(start=self.model_.state_dict() if going_on else None)
        try:
            fitted = method.fit(train, val, config, calls)
        except RuntimeError as error:
            if not going_on or trainers:
                raise
            wanted = "the settings of the model to continue"
            raise ConfigError(f"Expected {wanted}, got others ({error}); set warm_start=False.") from None
        self._calls = self._calls + 1 if going_on else 1
        self.history_ = before + [{**row, "epoch": len(before) + row["epoch"]} for row in fitted.history]
        self._rest = [
            {"objective": member.objective.state_dict(), "optimizer": member.optimizer.state_dict()["state"]}
            for member in trainers[0].members
        ]
        return fitted


def _progress(epochs: int) -> "FitProgress":
    """Return a progress bar; rich is loaded only where one is shown."""
    from midam.report.program import VisibleConsole
    from midam.report.terminal import FitProgress

    return FitProgress(epochs, console=VisibleConsole(stderr=True))


def _method(settings: ResolvedSettings) -> tuple[Any, ...]:
    """Return the settings that must be equal to continue with centers, dual variable and momenta."""
    return settings.method, settings.model, settings.training.optimizer


def _held_out(bags: Bags, settings: Settings, target: Target) -> SplitBags:
    """Split into bags to train on, and held-out bags, if any."""
    shares = (1 - settings.run.val_fraction, settings.run.val_fraction, 0.0)
    if shares[1] == 0:
        return SplitBags(bags, np.full(len(bags), "train"))
    seed = settings.run.seed
    return SplitBags(bags, target.split(target.values(bags), groups=bags.groups, fractions=shares, seed=seed))


def cv_results(
    target: Target, scored: OutOfFold, method: str, tried: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the main metric by fold of a method, and of those that it tried, as scikit-learn's searches do.

    Examples
    --------
    >>> scored = OutOfFold(np.array([0, 1, 0, 1]), np.array([0.2, 0.7, 0.4, 0.3]), np.array([0, 0, 1, 1]))
    >>> bags = Bags.from_list([[[0.0]]] * 4, scored.values)
    >>> tried = [{"method": "midam", "by_fold": [1.0, 0.5], "weight": 1.0}]
    >>> result = cv_results(target_of(bags), scored, "auto", tried)
    >>> result["params"], result["mean_test_score"].tolist(), result["rank_test_score"].tolist()
    ([{'method': 'auto'}, {'method': 'midam'}], [0.5, 0.75], [2, 1])
    """
    folds = [scored.folds == fold for fold in np.unique(scored.folds)]
    areas = [target.metric_value(scored.values[each], scored.scores[each]) for each in folds]
    rows = [{"method": method, "by_fold": areas, "weight": 1.0}, *tried]
    by_fold = np.array([row["by_fold"] or [None] * len(folds) for row in rows], dtype=np.float64)
    masked = np.ma.masked_invalid(by_fold)  # where a fold cannot be ranked, or a method was not tried to the end
    means = masked.mean(axis=1).filled(np.nan)
    return {
        "params": [{"method": row["method"]} for row in rows],
        "weight": np.array([row["weight"] for row in rows]),
        **{f"split{fold}_test_score": column for fold, column in enumerate(by_fold.T)},
        "mean_test_score": means,
        "std_test_score": masked.std(axis=1).filled(np.nan),
        "rank_test_score": rankdata(-np.nan_to_num(means, nan=-np.inf), method="min").astype(np.int64),
    }


def _joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the splits of bags and groups of several calls; what any call trained on counts as trained on."""
    joined = {**before, **now}
    if before and before["data"].get("extent") and now["data"]["extent"]:
        both = np.array([before["data"]["extent"], now["data"]["extent"]])
        now["data"]["extent"] = [*both[:, :2].min(axis=0).tolist(), *both[:, 2:].max(axis=0).tolist()]
    for key in ("splits", "contents", "groups") if before else ():
        trained = {name: split for name, split in before[key].items() if split == "train"}
        joined[key] = {**before[key], **now[key], **trained}
    return joined
