"""Tasks of a comparison, whose results depend only on their arguments, and the plan that groups them."""

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from midam.compare.folds import Fold, Parts, validation_part
from midam.compare.methods import ComparedMethod, has_margin
from midam.compare.trials import Status, trial_name, trial_result
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.column_codes import prepare
from midam.data.instance_labels import labels_of
from midam.errors import ConfigError, require_choice
from midam.evaluate.labeled_instances import IN_BAG, evaluate_instances
from midam.evaluate.metrics import auprc
from midam.evaluate.pooled import instance_ranks
from midam.evaluate.predict import cpu_threads
from midam.methods.inner_folds import Positions, ranked, trainable
from midam.methods.store import Row
from midam.nn.scorer import BagEnsemble
from midam.settings import DataSettings, Settings
from midam.targets import Target, target_of
from midam.train.side import Trial, TrialResult, train_trial

# Initial weights use torch's global random state, so trainings in threads of a process run one after the other.
_TURN = threading.Lock()
# Default candidates by optimizer: the paper's, and values around the default for deep encoders.
LEARNING_RATES = {"sgd": (0.1, 0.01, 0.001), "adam": (0.001, 0.0003, 0.0001)}
_NOTHING: Positions = np.array([], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Task:
    """One method, or one of its candidates, on some folds."""

    method: ComparedMethod
    config: Settings | None  # None: a baseline
    folds: Sequence[Fold]
    parts: Sequence[Parts]  # for each fold; without validation bags, nothing is selected
    every_epoch: bool = False  # select the epoch too


class Outcome(NamedTuple):
    """Result of a task on one fold."""

    columns: Row  # of the trial
    validation: tuple[float, float] = (0.0, 0.0)  # main metric of the tested epoch, and mean over epochs


def run_task(bags: Bags, task: Task, *, data_settings: DataSettings | None = None) -> tuple[list[Outcome], list[str]]:
    """Run a task in one thread, and return outcomes of the folds and warnings.

    By `data_settings`, columns are encoded and missing values filled from the training bags of each fold (see
    `midam.data.column_codes.prepare`).
    """
    outcomes, messages = list[Outcome](), list[str]()
    for fold, parts in zip(task.folds, task.parts, strict=True):
        made = bags
        if data_settings is not None:
            with warnings.catch_warnings(action="ignore"):  # it would repeat for each fold
                made = prepare(bags, data_settings, train=parts[0]).bags
        if task.config is None:
            with cpu_threads(1), threadpool_limits(1):
                outcomes.append(_run_baseline(made, task, fold))
        else:
            with single_threaded() as caught:
                outcomes.append(_train(made, task, task.config, fold, parts))
            messages += [str(warning.message) for warning in caught]
    return outcomes, messages


@contextmanager
def single_threaded() -> Iterator[list[warnings.WarningMessage]]:
    """Run one training at a time in this process, in one thread; yield the list of its hidden warnings."""
    with cpu_threads(1), threadpool_limits(1), _TURN, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        # A cluster passes the bags read-only, and no training writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        yield caught


def _train(bags: Bags, task: Task, config: Settings, fold: Fold, parts: Parts) -> Outcome:
    train, val = parts
    after, target = range(1, config.training.epochs + 1) if task.every_epoch else None, target_of(bags)
    values, test = target.values(bags), bags.subset(fold.test)
    keep = None if labels_of(test) is None else _BestEpoch(target, values[val])
    trial = Trial(train, np.concatenate([val, fold.test]), fold.repeat)
    result = train_trial(config, bags, trial, after=after, keep=keep)
    outcome = _tested_epoch(target, values, result, val=val, test=fold.test, config=config)
    if outcome.columns["status"] == Status.OK and result.model is not None:
        outcome.columns["instances"] = _instances(target, test, result.model, outcome.columns)
    return outcome


class _BestEpoch:
    """Whether an epoch has the best validation metric so far, as `_tested_epoch` selects it; without bags always."""

    def __init__(self, target: Target, values: NDArray[Any]) -> None:
        self._target, self._values, self._best = target, values, -np.inf

    def __call__(self, scores: NDArray[np.float64]) -> bool:
        if not np.isfinite(scores).all():
            return False
        count = len(self._values)
        metric = _metric(self._target, self._values, scores[:count]) if count else 0.0
        better = metric >= self._best
        self._best = max(metric, self._best)
        return better


def _instances(target: Target, test: Bags, model: BagEnsemble, tested: Row) -> dict[str, float | None]:
    """Return how well contributions find the labeled instances of test bags, the metrics of `IN_BAG`."""
    scores = np.asarray(tested["scores"])
    columns = None if target.count == 1 else target.main_column(scores, None)
    metrics = evaluate_instances(test, instance_ranks(model, test, columns=columns), resamples=1)
    return {name: None if (one := getattr(metrics, name)) is None else one.value for name in IN_BAG}


def _tested_epoch(
    target: Target, values: NDArray[Any], result: TrialResult, *, val: Positions, test: Positions, config: Settings
) -> Outcome:
    """Test the latest epoch with the best validation metric; without validation bags, the last epoch."""
    rows, margin = len(result.scores), config.method.margin if has_margin(config.method.objective) else None
    usable = np.flatnonzero(np.isfinite(result.scores.reshape(rows, -1)).all(axis=1))
    columns = {"seconds": result.seconds, "lr": config.training.lr, "margin": margin}
    if not len(usable) or (not len(val) and usable[-1] != rows - 1):
        return Outcome({**columns, "status": Status.DIVERGED})
    best, validation = int(usable[-1]), (0.0, 0.0)
    if len(val):
        metrics = [_metric(target, values[val], result.scores[e, : len(val)]) for e in usable]
        best = int(usable[len(metrics) - 1 - int(np.argmax(metrics[::-1]))])
        validation = max(metrics), float(np.mean(metrics))
    tested = _tested(target, values[test], result.scores[best, len(val) :])
    return Outcome({**columns, **tested, "epoch": config.training.epochs - rows + best + 1}, validation)


def _run_baseline(bags: Bags, task: Task, fold: Fold) -> Outcome:
    baseline = task.method.baseline
    if baseline is None:
        raise TypeError(f"{task.method.name} is no baseline")
    target, test = target_of(bags), bags.subset(fold.test)
    labeled = target.name == "binary" and labels_of(test) is not None
    with _TURN if baseline.uses_torch or labeled else nullcontext():
        started = time.perf_counter()
        scores = baseline.score(bags, Trial(fold.train, fold.test, fold.repeat))
        seconds = time.perf_counter() - started
        if not np.isfinite(scores).all():
            return Outcome({"seconds": seconds, "status": Status.DIVERGED})
        tested = _tested(target, target.values(bags)[fold.test], scores)
        if labeled and baseline.lacks is None:
            model = baseline.trained(bags.subset(fold.train), seed=fold.repeat)
            tested["instances"] = _instances(target, test, model, tested)
    return Outcome({"seconds": seconds, **tested})


def _tested(target: Target, values: NDArray[Any], scores: NDArray[np.float64]) -> dict[str, Any]:
    figures = {target.metric: _metric(target, values, scores)}
    if target.name == "binary":
        figures["auprc"] = auprc(values, scores)
    return {"status": Status.OK, **figures, "scores": np.asarray(scores, dtype=np.float64).tolist()}


def _metric(target: Target, values: NDArray[Any], scores: NDArray[np.float64]) -> float:
    """Return the main metric of bags; folds in which it is undefined are not computed."""
    value = target.metric_value(values, scores)
    return float("nan") if value is None else value


@dataclass(frozen=True)
class Grid:
    """What is chosen on validation bags, for methods of this library.

    Parameters
    ----------
    lrs, margins : sequence of float
        Candidates; ties go to the first, and only AUC objectives have a margin. Default of `lrs`:
        `midam.compare.LEARNING_RATES` of the optimizer.
    select : {"best", "last"}
        Epoch that is tested.

    Examples
    --------
    Nothing to choose but the learning rate:

    >>> Grid(lrs=[0.1, 0.01], margins=[1.0], select="last").lrs
    [0.1, 0.01]
    """

    lrs: Sequence[float] | None = None
    margins: Sequence[float] = (0.1, 0.5, 1.0)
    select: Literal["best", "last"] = "best"


@dataclass(frozen=True)
class Selection:
    """Choice of learning rate, margin and epoch; the order of the candidates decides between equals."""

    base: Settings
    lrs: list[float]
    margins: list[float]
    select: str

    def validates(self, method: ComparedMethod) -> bool:
        """Return whether a method needs a validation part."""
        return method.tuned and (self.select == "best" or len(self.configs(method)) > 1)

    def configs(self, method: ComparedMethod) -> list[Settings]:
        """Return the candidates of a trained method: the grid, or only its settings."""
        values = settings_of(self.base, method)
        if not method.tuned:
            return [Settings.from_flat(values)]
        margins = self.margins if has_margin(values["objective"]) else [self.base.method.margin]
        return [Settings.from_flat({**values, "lr": lr, "margin": margin}) for lr in self.lrs for margin in margins]


def settings_of(base: Settings, method: ComparedMethod) -> dict[str, Any]:
    """Return the settings of a trained method by flat name, before learning rate and margin are chosen.

    The temperature of `base` applies to methods with its pooling; others may take none, or one in another unit.
    """
    values = {**base.flat(), **method.settings}
    return values if values["pooling"] == base.method.pooling else values | {"temperature": None}


def make_selection(base: Settings, grid: Grid) -> Selection:
    """Check the candidates; default learning rates depend on the optimizer."""
    require_choice(("best", "last"), select=grid.select)
    lrs = LEARNING_RATES[base.training.optimizer] if grid.lrs is None else grid.lrs
    for name, values in (("lr", lrs), ("margin", grid.margins)):
        if not len(values):
            raise ConfigError(f"Expected at least one {name}, got none; give one.")
        for value in values:
            Settings.from_flat({**base.flat(), name: value})
    # Training keeps the last epoch; the comparison selects the epoch.
    last = base.replace(select="last", patience=None)
    return Selection(last, [float(x) for x in lrs], [float(x) for x in grid.margins], grid.select)


def plan(
    bags: Bags, methods: Sequence[ComparedMethod], folds: Sequence[Fold], selection: Selection
) -> tuple[list[tuple[Row, Row]], list[Group[Task]]]:
    """Return names and results of trials on unusable folds, and groups of the other trials, by repeat."""
    barred: list[tuple[Row, Row]] = []
    groups: list[Group[Task]] = []
    for repeat in dict.fromkeys(fold.repeat for fold in folds):
        inside = [fold for fold in folds if fold.repeat == repeat]
        share = selection.base.run.val_fraction
        parts = {f.fold: validation_part(bags, f.train, fraction=share, seed=repeat) for f in inside}
        for method in methods:
            usable = []
            for fold in inside:
                status = _status(bags, fold, parts[fold.fold], validates=selection.validates(method))
                if status is None:
                    usable.append(fold)
                else:
                    barred.append((trial_name(method.name, fold), trial_result(bags, fold, status=status)))
            for tasks in _tasks(method, usable, parts, selection):
                groups.append(Group([trial_name(method.name, fold) for fold in tasks[0].folds], tasks))
    return barred, groups


def group_results(bags: Bags, group: Group[Task], outcomes: Sequence[Sequence[Outcome]]) -> list[Row]:
    """Return results of a group's folds by the candidate with the best validation metric.

    Ties are decided by the best mean over epochs, then by order.
    """
    made = []
    for i, fold in enumerate(group.tasks[0].folds):
        of_fold = [of_task[i] for of_task in outcomes]
        usable = [outcome for outcome in of_fold if outcome.columns["status"] == Status.OK]
        best = max(usable, key=lambda outcome: outcome.validation) if usable else of_fold[0]
        seconds = sum(outcome.columns["seconds"] for outcome in of_fold)
        made.append(trial_result(bags, fold, **{**best.columns, "seconds": seconds}))
    return made


def _status(bags: Bags, fold: Fold, parts: Parts | None, *, validates: bool) -> str | None:
    binary = bags.outcome is None
    if not ranked(bags, fold.test):
        return Status.ONE_CLASS_TEST if binary else Status.UNRANKED_TEST
    if not trainable(bags, fold.train):
        return Status.ONE_CLASS_TRAIN if binary else Status.UNFIT_TRAIN
    return Status.NO_VALIDATION if validates and parts is None else None


def _tasks(
    method: ComparedMethod, folds: list[Fold], parts: dict[int, Parts | None], selection: Selection
) -> Iterator[list[Task]]:
    """Yield the tasks of each group: a baseline on one fold, or a method's candidates on all folds of a repeat."""
    if method.baseline is not None:
        yield from ([Task(method, None, [f], [(f.train, _NOTHING)])] for f in folds)
    elif folds:
        validates = selection.validates(method)
        used = [(validates and parts[f.fold]) or (f.train, _NOTHING) for f in folds]
        every_epoch = validates and selection.select == "best"
        yield [Task(method, config, folds, used, every_epoch) for config in selection.configs(method)]
