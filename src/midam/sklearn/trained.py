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

from midam.data.bags import Bags, warn_of_doubts
from midam.errors import CheckpointError, ConfigError, Note, RunExistsError
from midam.evaluate.decisions import Decision
from midam.evaluate.pooled import InstanceScores, instance_scores
from midam.evaluate.predict import predict, prepared
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Fitted, Method, Trained
from midam.methods.names import DEFAULT, choose_method, make_method, taken_settings, usual_method
from midam.nn.scorer import BagEnsemble
from midam.runs.cross_validation import train_folds, trials_of
from midam.runs.data import describe_origin, split_data
from midam.runs.folder import RunFolder
from midam.runs.folds import choose_folds
from midam.runs.loaded import LoadedRun, load_run
from midam.runs.results import model_content, write_model
from midam.runs.typical import warn_of_units
from midam.settings import ResolvedSettings
from midam.sklearn.base import SettingsEstimator, chosen_settings
from midam.sklearn.inputs import ROWS, PerBag, per_bag, warn_of_groups_for_bags, warn_of_known_groups, with_weights
from midam.sklearn.labels import MADE_FOR, Labeled
from midam.targets import OutOfFold, Target, target_of
from midam.train.members import with_objective

if TYPE_CHECKING:
    from midam.explain.explanation import Explanation
    from midam.report.terminal import FitProgress


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
    show_progress: bool
    random_state: int | None
    verbose: int
    run_: LoadedRun
    history_: list[dict[str, Any]]
    oof_scores_: NDArray[np.float64] | None
    cv_results_: dict[str, Any] | None
    _classes: NDArray[Any]  # names in y of the columns of the scores, or of the grades; empty for numbers

    def bag_scores(self, X: Any) -> NDArray[np.float64]:
        """Return scores in [0, 1] as in the files of a run, [N], or [N, C] with several classes or labels."""
        return self._scores(self._match_fitted(X))

    def instance_scores(self, X: Any, *, label: Any = None) -> list[InstanceScores]:
        """Return the score, attention logit and weight of every instance, one `InstanceScores` per bag.

        With more than two classes, or with labels, they belong to `label`, one of them. Default: the most probable
        class or label of each bag.
        """
        bags, chunk = self._match_fitted(X), self.settings_.run.chunk_size
        columns = enumerate(self._columns(bags, label))
        return [instance_scores(self.model_, bags, i, column=column, chunk_size=chunk) for i, column in columns]

    def explain(self, X: Any, *, label: Any = None) -> "list[Explanation]":
        """Explain the score of each bag, see `midam.explain.explain_bag`; `label` as in `instance_scores`."""
        from midam.explain.explanation import Features, explain_bag

        bags, chunk = self._match_fitted(X), self.settings_.run.chunk_size
        options: dict[str, Any] = {"chunk_size": chunk, "features": Features.of(self.run_.data, self.model_, bags)}
        columns = enumerate(self._columns(bags, label))
        return [explain_bag(self.model_, bags, i, column=column, **options) for i, column in columns]

    def to_run(self) -> LoadedRun:
        """Return the fitted estimator as a run in memory, for functions such as `midam.explain.explain_bags`."""
        check_is_fitted(self)
        return self.run_

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
        origin = {name: getattr(run, name) for name in ("data", "splits", "contents", "groups")}
        write_model(folder, model_content(fitted, origin, decided=run.target.saved(run.decision)))

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
        values = {**values, "method": run.method or DEFAULT, "folds": cls().folds}
        estimator, shape, names = cls(), tuple(run.data["instance_shape"]), run.data["feature_names"]
        if run.columns is not None:
            names, shape = list(run.columns.kinds), (len(run.columns.kinds),)
        estimator.set_params(**{name: values[name] for name in estimator.get_params(deep=False) if name in values})
        estimator.instance_shape_, estimator.n_features_in_ = shape, math.prod(shape)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.run_, estimator.history_, estimator.oof_scores_, estimator.cv_results_ = run, [], None, None
        estimator._single = run.data["source"] == ROWS
        outcome = run.data.get("outcome") or {"names": run.data.get("classes") or [0, 1]}
        estimator._classes = np.array(outcome.get("values", outcome["names"]))
        estimator._restore()
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling; a model that was trained on a GPU can be loaded without a GPU."""
        state: dict[str, Any] = super().__getstate__()
        if "run_" in state and any(weight.is_cuda for weight in self.model_.parameters()):
            state["run_"] = replace(self.run_, model=copy.deepcopy(self.model_).cpu())
        return state

    @property
    def model_(self) -> BagEnsemble:
        """The trained scorers, one per member."""
        return self.run_.model

    @property
    def settings_(self) -> ResolvedSettings:
        """The settings of the training, with those that depend on the shape of the instances filled in."""
        return self.run_.settings

    @property
    def decision_(self) -> Decision | None:
        """Rule that turns scores into predictions; None without held-out bags."""
        return self.run_.decision

    @property
    def target_(self) -> str:
        """Target of y: a name of `midam.registry.TARGETS`."""
        return self.run_.target.name

    def _match_fitted(self, X: Any) -> Bags:
        check_is_fitted(self)
        bags = prepared(self.model_, self._match_features(X))
        warn_of_units(bags, self.run_.data, run="this model")
        warn_of_known_groups(bags, self.run_.groups, self.run_.splits)
        return bags

    def _scores(self, bags: Bags) -> NDArray[np.float64]:
        return predict(self.model_, bags, chunk_size=self.settings_.run.chunk_size)

    def _columns(self, bags: Bags, label: Any) -> Sequence[int | None]:
        """Return the score column of each bag: that of the `label`, or of its most probable class."""
        target, several = self.run_.target, self.run_.target.count > 1
        if label is None:
            return target.main_column(self._scores(bags), self.decision_).tolist() if several else [None] * len(bags)
        names = self._classes.tolist()
        if not several or label not in names:
            expected = "a class" if several else f"no label with {self.target_} y, as there is one score"
            raise ConfigError(f"Expected {expected}, got {label!r}; known are {', '.join(map(repr, names))}.")
        return [names.index(label)] * len(bags)

    def _restore(self) -> None:
        """Take the parameters and the classes that a loaded run implies."""

    def _train(self, labeled: Labeled, X: Any, groups: PerBag, weights: PerBag = None) -> None:
        """Train on labeled bags, and fit the decision."""
        bags, groups = labeled.bags.replace(splits=None), per_bag(groups, X, "group")
        counted = np.ones(len(bags), dtype=np.bool_)
        if groups is not None:
            bags = bags.replace(groups=groups)
            warn_of_doubts(bags)
            warn_of_groups_for_bags(bags)
        if weights is not None:
            bags = with_weights(bags, weights := per_bag(weights, X, "weight"))
            counted = np.asarray(weights) != 0
        settings, target = chosen_settings(self.get_params(deep=False)), target_of(bags)
        name = usual_method(bags, settings) if self.method is None else self.method
        settings, name = choose_method(name, settings)
        folds = choose_folds(bags, settings, at_once=name is not None)
        with warnings.catch_warnings():  # a search would say so for each of its fits
            warnings.filterwarnings("ignore", message=".*missing values are filled", category=Note)
            parts = split_data(bags, settings.replace(test_fraction=0.0), folds=folds)
        val = parts.part("val") if "val" in parts.splits else None
        config = with_objective(settings, target).resolve(parts.bags.instance_shape)
        method: Method = Trained() if name is None else make_method(name)
        with ExitStack() as stack:
            calls = QUIET
            if self.show_progress or self.verbose:
                bar = stack.enter_context(_progress(1 if name else config.training.epochs))
                calls = Callbacks(on_candidate=bar.candidate, on_epoch=lambda row, _: bar.update(row))
            fitted = method.fit(parts.part("train"), val, config, calls, trials_of(parts, config))
        origin, model = describe_origin(parts), fitted.model.eval()
        if "outcome" in origin["data"] and len(labeled.classes):
            origin["data"]["outcome"]["values"] = labeled.classes.tolist()
        self.history_ = fitted.history or list(fitted.entries.get("auto", {}).get("tried", ()))
        self.oof_scores_ = self.cv_results_ = None
        rule = settings.run.threshold
        if folds is None:
            scores = np.empty(0) if val is None else predict(model, val, chunk_size=settings.run.chunk_size)
            values = np.empty(0, dtype=np.int64) if val is None else target.values(val)
            decision = target.decide(values, scores, rule=rule, out_of_fold=fitted.out_of_fold)
        else:
            scored = fitted.out_of_fold or train_folds(parts, fitted.config)
            decided = target.cross_decide(scored, rule=rule, alike=not parts.by_site)
            decision = decided.decision
            self.oof_scores_ = np.full((len(counted), *decided.scores.shape[1:]), np.nan)
            self.oof_scores_[counted] = decided.scores
            tried = () if fitted.method is None else self.history_
            self.cv_results_ = cv_results(target, scored, fitted.method or DEFAULT, tried)
        count = settings.run.site or (0 if folds is None else len(np.unique(folds)))
        used = fitted.config.replace(seed=settings.run.seed, folds=count)
        self._classes = labeled.classes
        named: dict[str, Any] = {**origin, "method": fitted.method, "parts": fitted.parts}
        self.run_ = LoadedRun(model=model, settings=used, decision=decision, **named)


def _progress(epochs: int) -> "FitProgress":
    """Return a progress bar; rich is loaded only where one is shown."""
    from midam.report.program import VisibleConsole
    from midam.report.terminal import FitProgress

    return FitProgress(epochs, console=VisibleConsole(stderr=True))


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
