"""Plan of a comparison: groups of tasks, and folds that cannot be used."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midam.compare.engine import Group, Row
from midam.compare.folds import Fold, Parts, Positions, ranked, trainable, validation_part
from midam.compare.methods import ComparedMethod, has_margin
from midam.compare.tasks import Outcome, Task
from midam.compare.trials import (
    NO_VALIDATION,
    OK,
    ONE_CLASS_TEST,
    ONE_CLASS_TRAIN,
    UNFIT_TRAIN,
    UNRANKED_TEST,
    trial_name,
    trial_result,
)
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.settings import Settings
from midam.train.batch_size import choose_for_each
from midam.train.trainer import make_fabric

# Candidates where none are given, by optimizer: the paper's, and around the default for deep encoders.
LEARNING_RATES = {"sgd": (0.1, 0.01, 0.001), "adam": (0.001, 0.0003, 0.0001)}
_NOTHING: Positions = np.array([], dtype=np.int64)


@dataclass(frozen=True)
class Selection:
    """How learning rate, margin and epoch are chosen: candidates in the order that decides between equals."""

    base: Settings
    lrs: list[float]
    margins: list[float]
    select: str

    def validates(self, method: ComparedMethod) -> bool:
        """Whether a method needs a validation part."""
        return method.tuned and (self.select == "best" or len(self.configs(method)) > 1)

    def configs(self, method: ComparedMethod) -> list[Settings]:
        """Candidates of a method trained here: the grid, or the settings as they are."""
        values = settings_of(self.base, method)
        if not method.tuned:
            return [Settings.from_flat(values)]
        margins = self.margins if has_margin(values["objective"]) else [self.base.method.margin]
        return [Settings.from_flat({**values, "lr": lr, "margin": margin}) for lr in self.lrs for margin in margins]


def settings_of(base: Settings, method: ComparedMethod) -> dict[str, Any]:
    """Settings of a method trained here, by their flat names, without learning rate and margin that it may choose."""
    values = {**base.flat(), **method.settings}
    return values if values["pooling"] == "smoothed-max" else values | {"temperature": None}


def make_selection(base: Settings, *, lrs: Sequence[float] | None, margins: Sequence[float], select: str) -> Selection:
    """Check the candidates; learning rates that are not given go by the optimizer."""
    if select not in ("best", "last"):
        raise ConfigError(f"Expected select as one of best, last, got {select!r}; choose one of them.")
    lrs = LEARNING_RATES[base.training.optimizer] if lrs is None else lrs
    for name, values in (("lr", lrs), ("margin", margins)):
        if not len(values):
            raise ConfigError(f"Expected at least one {name}, got none; give one.")
        for value in values:
            Settings.from_flat({**base.flat(), name: value})
    # The weights of the last epoch are asked for; the comparison selects.
    last = base.replace(select="last", patience=None)
    return Selection(last, [float(x) for x in lrs], [float(x) for x in margins], select)


def plan(
    bags: Bags, methods: Sequence[ComparedMethod], folds: Sequence[Fold], selection: Selection
) -> tuple[list[tuple[Row, Row]], list[Group[Task]]]:
    """Names and results of trials on unusable folds, and the groups of the others, repeat after repeat."""
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


def group_results(
    bags: Bags, group: Group[Task], outcomes: Sequence[Sequence[Outcome]], *, peak: float | None
) -> list[Row]:
    """Results of the folds of a group, each of the candidate with the best validation metric; the first gets `peak`.

    Of equals, the one with the best mean over epochs is taken, then the first.
    """
    made = []
    for i, fold in enumerate(group.tasks[0].folds):
        of_fold = [of_task[i] for of_task in outcomes]
        usable = [outcome for outcome in of_fold if outcome.columns["status"] == OK]
        best = max(usable, key=lambda outcome: outcome.validation) if usable else of_fold[0]
        seconds = sum(outcome.columns["seconds"] for outcome in of_fold)
        made.append(trial_result(bags, fold, **{**best.columns, "seconds": seconds, "peak_mib": None if i else peak}))
    return made


def chosen_counts(bags: Bags, groups: Sequence[Group[Task]]) -> list[str]:
    """Sentences on counts that are chosen for the training bags of each fold, a method each; none where none are."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for task in (group.tasks[0] for group in groups):
        if task.config is not None and task.config.training.open:
            config, trains = task.config.resolve(bags.instance_shape), [train for train, _ in task.parts]
            choices = choose_for_each(config, bags, trains, fabric=make_fabric(config))
            found[task.method.name].update(choice.what for choice in choices)
    return [
        f"{name}, chosen for the training bags of each fold: "
        + "; ".join(f"{what} ({count} folds)" for what, count in counts.items())
        for name, counts in found.items()
    ]


def _status(bags: Bags, fold: Fold, parts: Parts | None, *, validates: bool) -> str | None:
    binary = bags.outcome is None
    if not ranked(bags, fold.test):
        return ONE_CLASS_TEST if binary else UNRANKED_TEST
    if not trainable(bags, fold.train):
        return ONE_CLASS_TRAIN if binary else UNFIT_TRAIN
    return NO_VALIDATION if validates and parts is None else None


def _tasks(
    method: ComparedMethod, folds: list[Fold], parts: dict[int, Parts | None], selection: Selection
) -> Iterator[list[Task]]:
    """Tasks of each group: a baseline on one fold, or the candidates of a method on all folds of the repeat."""
    if method.baseline is not None:
        yield from ([Task(method, None, [f], [(f.train, _NOTHING)])] for f in folds)
    elif folds:
        validates = selection.validates(method)
        used = [(validates and parts[f.fold]) or (f.train, _NOTHING) for f in folds]
        every_epoch = validates and selection.select == "best"
        yield [Task(method, config, folds, used, every_epoch) for config in selection.configs(method)]
