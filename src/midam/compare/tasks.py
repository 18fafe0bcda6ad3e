"""The units of work of a comparison, each a function of its arguments alone, wherever it runs."""

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from midam.compare.engine import Row
from midam.compare.folds import Fold, Parts, Positions
from midam.compare.methods import ComparedMethod, has_margin
from midam.compare.trials import DIVERGED, OK
from midam.data.bags import Bags
from midam.data.missing import fill_values, impute
from midam.evaluate.metrics import auprc
from midam.settings import Settings
from midam.targets import Target, target_of
from midam.train.lockstep import Trial, TrialResult, train_trials
from midam.train.memory import cpu_threads

# Weights are drawn from torch's global state: trainings in threads of one process take turns.
_TURN = threading.Lock()


@dataclass(frozen=True, eq=False)
class Task:
    """One method, or one candidate of it, on some folds."""

    method: ComparedMethod
    config: Settings | None  # None: a baseline
    folds: Sequence[Fold]
    parts: Sequence[Parts]  # of each fold; without validation bags nothing is selected
    every_epoch: bool = False  # select the epoch too


class Outcome(NamedTuple):
    """Result of a task on one fold."""

    columns: Row  # of the trial
    validation: tuple[float, float] = (0.0, 0.0)  # main metric of the tested epoch, and mean over epochs


def run_task(bags: Bags, task: Task, *, how: str = "none") -> tuple[list[Outcome], list[str]]:
    """Outcomes of the folds, and warnings; uses one thread.

    Missing values are filled as `how` says (see `midam.data.missing`), from the training bags of each fold.
    """
    if how != "none":
        return _run_imputed(bags, task, how)
    if task.config is None:
        with cpu_threads(1), threadpool_limits(1):
            return [_run_baseline(bags, task)], []
    with single_threaded() as caught:
        outcomes = _train(bags, task, task.config)
    return outcomes, [str(warning.message) for warning in caught]


def _run_imputed(bags: Bags, task: Task, how: str) -> tuple[list[Outcome], list[str]]:
    """Outcomes of the folds, each on bags of its own."""
    outcomes: list[Outcome] = []
    messages: list[str] = []
    for number, fold in enumerate(task.folds):
        parts = task.parts[number : number + 1]
        trained = parts[0][0] if parts else fold.train
        filled = impute(bags, fill_values(bags.subset(trained), how))
        found, told = run_task(filled, replace(task, folds=[fold], parts=parts))
        outcomes, messages = outcomes + found, messages + told
    return outcomes, messages


@contextmanager
def single_threaded() -> Iterator[list[warnings.WarningMessage]]:
    """Let one training at a time run in this process, by one thread; gives the warnings, which are not shown."""
    with cpu_threads(1), threadpool_limits(1), _TURN, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        # A cluster hands the bags over read-only, and nothing here writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        yield caught


def _train(bags: Bags, task: Task, config: Settings) -> list[Outcome]:
    trials = [
        Trial(train, np.concatenate([val, fold.test]), fold.repeat)
        for fold, (train, val) in zip(task.folds, task.parts, strict=True)
    ]
    results = train_trials(config, bags, trials, every_epoch=task.every_epoch)
    target = target_of(bags)
    values = target.values(bags)
    return [
        _pick(target, values, result, val=val, test=fold.test, config=config)
        for fold, (_, val), result in zip(task.folds, task.parts, results, strict=True)
    ]


def _pick(
    target: Target, values: NDArray[Any], result: TrialResult, *, val: Positions, test: Positions, config: Settings
) -> Outcome:
    """Test the epoch with the best main metric of the validation bags, the later of equals; without any, the last."""
    rows, margin = len(result.scores), config.method.margin if has_margin(config.method.objective) else None
    usable = np.flatnonzero(np.isfinite(result.scores.reshape(rows, -1)).all(axis=1))
    columns = {"seconds": result.seconds, "lr": config.training.lr, "margin": margin}
    if not len(usable) or (not len(val) and usable[-1] != rows - 1):
        return Outcome({**columns, "status": DIVERGED})
    best, validation = int(usable[-1]), (0.0, 0.0)
    if len(val):
        metrics = [_metric(target, values[val], result.scores[e, : len(val)]) for e in usable]
        best = int(usable[len(metrics) - 1 - int(np.argmax(metrics[::-1]))])
        validation = max(metrics), float(np.mean(metrics))
    tested = _tested(target, values[test], result.scores[best, len(val) :])
    return Outcome({**columns, **tested, "epoch": config.training.epochs - rows + best + 1}, validation)


def _run_baseline(bags: Bags, task: Task) -> Outcome:
    (fold,), baseline = task.folds, task.method.baseline
    if baseline is None:
        raise TypeError(f"{task.method.name} is no baseline")
    with _TURN if baseline.uses_torch else nullcontext():
        started = time.perf_counter()
        scores = baseline.score(bags, Trial(fold.train, fold.test, fold.repeat))
        seconds = time.perf_counter() - started
    target, finite = target_of(bags), bool(np.isfinite(scores).all())
    tested = _tested(target, target.values(bags)[fold.test], scores) if finite else {"status": DIVERGED}
    return Outcome({"seconds": seconds, **tested})


def _tested(target: Target, values: NDArray[Any], scores: NDArray[np.float64]) -> dict[str, Any]:
    figures = {target.metric: _metric(target, values, scores)}
    if target.name == "binary":
        figures["auprc"] = auprc(values, scores)
    return {"status": OK, **figures, "scores": np.asarray(scores, dtype=np.float64).tolist()}


def _metric(target: Target, values: NDArray[Any], scores: NDArray[np.float64]) -> float:
    """Main metric of bags that the labels order: folds without such are not computed."""
    found = target.metric_value(values, scores)
    return float("nan") if found is None else found
