"""`Method`, the protocol of the trainer, the baselines and `auto`; its result, `Fitted`; `Trained`, the trainer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from midam.data.bags import Bags
from midam.evaluate.predict import cpu_threads, predict
from midam.evaluate.ranking import FEW_BAGS
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.inner_folds import inner_trials
from midam.nn.scorer import BagEnsemble, BagScorer, all_weights
from midam.process_group import Ranks
from midam.settings import ResolvedSettings, Settings
from midam.targets import OutOfFold
from midam.train.side import Prepare, Trial
from midam.train.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Scores = NDArray[np.float64]


class Folds(NamedTuple):
    """Trials whose models score bags that they have not seen, and the bags for each, if they differ."""

    trials: Sequence[Trial]
    prepare: Prepare | None = None

    def parts(self, bags: Bags) -> Iterable[tuple[Bags, Sequence[Trial]]]:
        """Return bags with the trials that take them: `bags` with all, or prepared bags with one each."""
        prepare = self.prepare
        return [(bags, self.trials)] if prepare is None else ((prepare(trial), [trial]) for trial in self.trials)

    def scores(self, bags: Bags, held_out: "Callable[[Bags, Sequence[Trial]], Iterator[Scores]]") -> Iterator[Scores]:
        """Yield the scores of the bags that each trial holds out, by `ModelBaseline.held_out`."""
        return (scores for some, part in self.parts(bags) for scores in held_out(some, part))


@dataclass(eq=False)
class Fitted:
    """Result of `Method.fit`.

    Attributes
    ----------
    model : BagEnsemble
        The model to report.
    config : ResolvedSettings
        The settings, with numbers instead of "auto".
    method : str, optional
        Name of a method that has no epochs and takes few settings; only these are written.
    parts : list of dict, optional
        Parts of a model that `auto` chose, as the model file has them.
    entries : dict
        Entries of summary.json about the fit.
    history : list of dict
        A row for each epoch.
    out_of_fold : OutOfFold, optional
        Training bags, scored by models that have not seen them.
    """

    model: BagEnsemble
    config: ResolvedSettings
    method: str | None = None
    parts: list[dict[str, Any]] | None = None
    entries: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    out_of_fold: OutOfFold | None = None


class Method:
    """A method: labeled bags in, a model out.

    It is constructed before anything runs; the constructor raises a `ConfigError` if a required package is missing.
    """

    name: str | None = None
    """Name of a method that has no epochs."""
    serves: ClassVar[frozenset[str]] = frozenset({"binary"})
    """Kinds of targets that it serves, by `pairs` of `midam.targets.Target`. Default: two classes."""
    pixels: ClassVar[bool] = False
    """Whether it needs pixels of images and cannot use vectors."""
    uses_torch = False
    """Whether it uses torch's global random state; threads of a process run such methods one after the other."""
    lacks: ClassVar[str | None] = None
    """Reason why it cannot be a model that scores new bags; None if it can."""

    def fit(
        self,
        train: Bags,
        val: Bags | None,
        settings: ResolvedSettings,
        callbacks: Callbacks = QUIET,
        folds: Folds | None = None,
    ) -> Fitted:
        """Fit a model to all training bags; a method that `lacks` something cannot.

        Parameters
        ----------
        train, val : Bags
            Labeled bags, and validation bags, if any.
        settings : ResolvedSettings
            Settings; a method without epochs takes few of them, see `midam.methods.names.TAKEN`.
        callbacks : Callbacks
            Functions that are called meanwhile.
        folds : Folds, optional
            Folds of the training bags. A method without epochs also scores each bag by a model of the other folds; by
            default, it scores those of inner folds if validation bags are too few to choose a threshold.
        """
        raise NotImplementedError(self.lacks)


class Baseline(Method):
    """A method of a comparison that trains and scores in its own way.

    Examples
    --------
    A custom baseline, the number of instances of a bag:

    >>> class BagSize(Baseline):
    ...     def score(self, bags, trial):
    ...         return bags.sizes[trial.score].astype(np.float64)
    >>> bags = Bags.from_list([[[0.0]], [[0.0], [0.0]], [[0.0]], [[0.0]] * 3], [0, 1, 0, 1])
    >>> BagSize().score(bags, Trial(train=np.array([0, 1]), score=np.array([2, 3]), seed=0)).tolist()
    [1.0, 3.0]
    """

    lacks: ClassVar[str | None] = "it is no midam.compare.ModelBaseline: it trains and scores in one call"

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Train on the bags ``trial.train`` with ``trial.seed``, and score the bags ``trial.score``: float64 [n].

        Positive bags score higher. For several score columns, the shape is [n, C]. Only labels of the training bags may
        be used.
        """
        return predict(self.trained(bags.subset(trial.train), seed=trial.seed), bags.subset(trial.score))

    def trained(self, bags: Bags, *, seed: int) -> BagEnsemble:
        """Return the model of all these bags; a method that `lacks` something has none."""
        raise NotImplementedError(self.lacks)


class ModelBaseline(Baseline, ABC):
    """A baseline that can be a model, which is written as a run and scores new bags.

    Examples
    --------
    >>> from midam.methods.baselines import BagStatisticsTrees
    >>> bags = Bags.from_list([[[float(i % 2)], [0.1 * i]] for i in range(12)], [0, 1] * 6)
    >>> model = BagStatisticsTrees().scorer(bags, seed=0)
    >>> predict(model, bags.subset([0, 1])).round(1).tolist()
    [0.0, 1.0]
    """

    lacks: ClassVar[str | None] = None

    def trained(self, bags: Bags, *, seed: int) -> BagEnsemble:
        """Return the model of all these bags."""
        return BagEnsemble(self.scorers(bags, seed=seed))

    @abstractmethod
    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Train on all these bags as `score` does, and return a model with scores in [0, 1] of the same ranking.

        Its state dictionary holds everything that it learned, as tensors of finite numbers.
        """

    def scorers(self, bags: Bags, *, seed: int) -> list[BagScorer]:
        """Train the scorers of the model on all these bags: one, or several whose mean score is that of a bag."""
        return [self.scorer(bags, seed=seed)]

    @abstractmethod
    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:
        """Make a model like the result of `scorer` for instances of this shape, to be filled with `weights`.

        Raises a `ValueError` or `KeyError` if `weights`, a state dictionary from a file, do not fit such a model.
        """

    def model(
        self,
        instance_shape: tuple[int, ...],
        weights: Mapping[str, Tensor],
        parts: Sequence[Mapping[str, Any]],  # noqa: ARG002
    ) -> BagEnsemble:
        """Make a model to be filled with the state dictionary of a model of `fit`, which has these `parts`."""
        return BagEnsemble([self.empty(instance_shape, of_scorer) for of_scorer in all_weights(weights)])

    def held_out(self, bags: Bags, trials: Sequence[Trial]) -> Iterator[Scores]:
        """Yield the scores of the bags that each trial holds out, by a model of its training bags."""
        for trial in trials:
            yield predict(self.scorer(bags.subset(trial.train), seed=trial.seed), bags.subset(trial.score))

    def fit(
        self,
        train: Bags,
        val: Bags | None,
        settings: ResolvedSettings,
        callbacks: Callbacks = QUIET,  # noqa: ARG002
        folds: Folds | None = None,
    ) -> Fitted:
        """Fit the model to all training bags, and score bags of folds if they are given or needed."""
        seed, few = settings.run.seed, val is None or int(val.require_labels().sum()) < FEW_BAGS
        with few_threads(settings):
            scored = None
            if folds is not None or (few and train.labels is not None):
                scored = self.out_of_fold(train, folds or Folds(inner_trials(train, np.arange(len(train)), seed=seed)))
            model = self.trained(train, seed=seed)
        return Fitted(model, settings, self.name, out_of_fold=scored if folds is None else by_bag(scored, folds))

    def out_of_fold(self, bags: Bags, folds: Folds) -> OutOfFold | None:
        """Return scores of bags by models that hold them out; None if there are no folds."""
        trials = folds.trials
        if not trials:
            return None
        held = list(folds.scores(bags, self.held_out))
        part = bags.subset(np.concatenate([trial.score for trial in trials]))
        numbers = np.repeat(np.arange(len(trials)), [len(trial.score) for trial in trials])
        return OutOfFold(part.require_labels(), np.concatenate(held), numbers, part.groups)


@contextmanager
def few_threads(settings: Settings) -> Iterator[None]:
    """Run with the threads of the settings, and one of BLAS: for small matrices, several are ten times slower.

    scikit-learn does not check the parameters of its models, which takes a fifth of the fit of a small one.
    """
    from sklearn import config_context

    unchecked = config_context(skip_parameter_validation=True)
    with unchecked, cpu_threads(settings.run.threads), threadpool_limits(1, user_api="blas"):
        yield


def by_bag(scored: OutOfFold | None, folds: Folds) -> OutOfFold | None:
    """Return scores in the order of the trials as scores in the order of the bags."""
    if scored is None:
        return None
    back = np.argsort(np.concatenate([trial.score for trial in folds.trials]))
    return OutOfFold._make(None if each is None else each[back] for each in scored)


class BestWeights:
    """The weights of the best epoch, in memory; a subclass may keep them elsewhere."""

    def keep(self, trainer: Trainer) -> None:
        """Keep a copy of the reported weights, if they may be selected."""
        if trainer.config.training.select == "best":
            self._kept = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    def load(self, trainer: Trainer) -> None:
        """Give the reported model the weights that were kept."""
        trainer.model.load_state_dict(self._kept)


@dataclass
class Trained(Method):
    """The method of the settings, trained in epochs.

    Parameters
    ----------
    fabric, ranks
        As in `midam.train.trainer.Trainer`.
    best : BestWeights
        Place for the weights of the best epoch.
    """

    fabric: "Fabric | None" = None
    ranks: Ranks | None = None
    best: BestWeights = field(default_factory=BestWeights)

    def fit(
        self,
        train: Bags,
        val: Bags | None,
        settings: ResolvedSettings,
        callbacks: Callbacks = QUIET,
        folds: Folds | None = None,  # noqa: ARG002
    ) -> Fitted:
        """Train a model on the training bags; `folds` are ignored."""
        trainer = Trainer(settings, train, val, fabric=self.fabric, ranks=self.ranks)

        def after_epoch(trainer: Trainer, row: dict[str, Any]) -> None:
            # The best weights are written first: after a kill between two writes, a resume repeats the epoch.
            if trainer.best_epoch == trainer.epoch:
                self.best.keep(trainer)
            callbacks.on_epoch(row, trainer)

        callbacks.on_trainer(trainer)
        trainer.fit(callbacks=[after_epoch])
        best = trainer.config.training.select == "best" and trainer.best_epoch is not None
        if best:
            self.best.load(trainer)
        entries = _entries(trainer, "best" if best else "last")
        return Fitted(trainer.model, trainer.config, entries=entries, history=trainer.history)


def _entries(trainer: Trainer, selected: str) -> dict[str, Any]:
    """Return the summary's entries about a training."""
    settings, epochs = trainer.config.flat(), {"last": trainer.epoch, "best": trainer.best_epoch}
    by_weights = {
        name: {"epoch": epoch, trainer.validated: trainer.history[epoch - 1][trainer.validated]}
        for name, epoch in epochs.items()
        if epoch
    }
    entries: dict[str, Any] = {
        "selected": {"weights": selected, "epoch": epochs[selected]},
        "by_weights": by_weights,
        "method": {key: settings[key] for key in ("pooling", "estimator", "objective")},
        "members": trainer.config.training.members,
        "epochs": trainer.epoch,
    }
    if trainer.states:
        # The tracked states of training bags next to the whole bags, means over the members.
        rows = [{key: value for key, value in asdict(state).items() if key != "enough"} for state in trainer.states]
        means = {key: None if rows[0][key] is None else float(np.mean([row[key] for row in rows])) for key in rows[0]}
        entries["state"] = {**means, "bags": rows[0]["bags"]}
    return entries
