"""What is still to be done: groups of tasks whose outcomes make rows of trials."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midam.compare.folds import Fold, Positions, one_class, validation_part
from midam.compare.methods import Method
from midam.compare.tasks import Outcome, Task
from midam.compare.trials import DIVERGED, NO_VALIDATION, OK, ONE_CLASS_TEST, ONE_CLASS_TRAIN, Key, TrialRow
from midam.data.bags import Bags
from midam.train.config import FitConfig

# Candidates where none are given, by optimizer: the paper's, and around the default for deep encoders.
LEARNING_RATES = {"sgd": (0.1, 0.01, 0.001), "adam": (0.001, 0.0003, 0.0001)}
_NOTHING: Positions = np.array([], dtype=np.int64)


@dataclass(frozen=True)
class Selection:
    """How learning rate, margin and epoch are chosen.

    Attributes
    ----------
    base : FitConfig
        All other settings.
    lrs, margins : list of float
        Candidates, in the order that decides between equals.
    select : str
        "best": the epoch with the best validation AUROC; "last".
    """

    base: FitConfig
    lrs: list[float]
    margins: list[float]
    select: str

    def validates(self, method: Method) -> bool:
        """Whether a method needs a validation part."""
        several = len(method.configs(self.base, lrs=self.lrs, margins=self.margins)) > 1 if method.tuned else False
        return method.tuned and (several or self.select == "best")


@dataclass(frozen=True)
class Group:
    """Tasks that are finished together: the candidates of a method on the folds of a repeat."""

    method: Method
    folds: list[Fold]
    tasks: list[Task]

    def rows(self, bags: Bags, outcomes: Sequence[list[Outcome]], *, peak: float | None) -> list[TrialRow]:
        """Rows of the folds, each by the candidate with the best validation AUROC.

        Of equals, the one with the best mean over epochs, then the first. `peak` goes to the first fold.
        """
        made = []
        for i, fold in enumerate(self.folds):
            of_fold = [of_task[i] for of_task in outcomes]
            usable = [outcome for outcome in of_fold if outcome.status == OK]
            best = max(usable, key=lambda outcome: outcome.validation) if usable else of_fold[0]
            seconds = sum(outcome.seconds for outcome in of_fold)
            row = empty_row(bags, self.method, fold, status=OK if usable else DIVERGED)
            made.append(
                replace(
                    row,
                    auroc=best.auroc,
                    auprc=best.auprc,
                    seconds=seconds,
                    lr=best.lr,
                    margin=best.margin,
                    epoch=best.epoch,
                    peak_mib=peak if i == 0 else None,
                )
            )
        return made


def plan(
    bags: Bags, methods: Sequence[Method], folds: Sequence[Fold], selection: Selection, *, done: Collection[Key]
) -> tuple[list[TrialRow], list[Group]]:
    """Rows of folds that cannot be used, and the groups that are not finished, repeat after repeat.

    A group is run whole even if some of its rows are there: trainings in lockstep agree bit for bit only in the same
    company.
    """
    barred: list[TrialRow] = []
    groups: list[Group] = []
    for repeat in dict.fromkeys(fold.repeat for fold in folds):
        inside = [fold for fold in folds if fold.repeat == repeat]
        parts = {fold.fold: _parts(bags, fold, selection.base.val_fraction) for fold in inside}
        for method in methods:
            usable = []
            for fold in inside:
                status = _status(bags, fold, parts[fold.fold], validates=selection.validates(method))
                if status is None:
                    usable.append(fold)
                elif (method.name, repeat, fold.fold) not in done:
                    barred.append(empty_row(bags, method, fold, status=status))
            groups += [
                group
                for group in _groups(method, usable, parts, selection)
                if any((method.name, f.repeat, f.fold) not in done for f in group.folds)
            ]
    return barred, groups


def empty_row(bags: Bags, method: Method, fold: Fold, *, status: str) -> TrialRow:
    """Row of a trial without a result."""
    positives = int(bags.require_labels()[fold.test].sum())
    return TrialRow(
        method=method.name,
        repeat=fold.repeat,
        fold=fold.fold,
        auroc=None,
        auprc=None,
        seconds=None,
        peak_mib=None,
        lr=None,
        margin=None,
        epoch=None,
        test_bags=len(fold.test),
        test_positives=positives,
        seed=fold.repeat,
        status=status,
    )


def _parts(bags: Bags, fold: Fold, fraction: float) -> tuple[Positions, Positions] | None:
    if one_class(bags, fold.train):
        return None
    return validation_part(bags, fold.train, fraction=fraction, seed=fold.repeat)


def _status(bags: Bags, fold: Fold, parts: tuple[Positions, Positions] | None, *, validates: bool) -> str | None:
    if one_class(bags, fold.test):
        return ONE_CLASS_TEST
    if one_class(bags, fold.train):
        return ONE_CLASS_TRAIN
    return NO_VALIDATION if validates and parts is None else None


def _groups(
    method: Method,
    folds: list[Fold],
    parts: dict[int, tuple[Positions, Positions] | None],
    selection: Selection,
) -> list[Group]:
    if not folds:
        return []
    if method.runner is not None:
        return [Group(method, [f], [Task(method, None, [f], [(f.train, _NOTHING)])]) for f in folds]
    validates = selection.validates(method)
    used = [(validates and parts[f.fold]) or (f.train, _NOTHING) for f in folds]
    configs = method.configs(selection.base, lrs=selection.lrs, margins=selection.margins)
    every_epoch = validates and selection.select == "best"
    return [Group(method, folds, [Task(method, config, folds, used, every_epoch) for config in configs])]
