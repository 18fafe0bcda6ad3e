"""Write the fitted models of a comparison as run folders for `midam.load_run` and `midam predict`.

A trial keeps only numbers, so its model is trained again with the candidate and to the epoch that the trial tested; the
scores of both agree up to rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from midam.compare.folds import Fold, Parts
from midam.compare.methods import ComparedMethod
from midam.compare.plan import Task, single_threaded
from midam.compare.trials import Status
from midam.compare.workers import Group, Workers, compute
from midam.data.bags import Bags
from midam.data.column_codes import Prepared, prepare
from midam.errors import DivergedError
from midam.evaluate.predict import predict
from midam.methods.method import Trained
from midam.methods.store import TrialStore
from midam.runs.data import SplitBags, describe_origin
from midam.runs.folder import RunFolder
from midam.runs.instance_files import file_name
from midam.runs.results import model_content, write_model
from midam.settings import DataSettings, ResolvedSettings, Settings
from midam.targets import target_of


@dataclass(frozen=True, eq=False)
class ModelTask:
    """A model to train: the candidate and the epoch that a trial tested."""

    folder: Path
    config: Settings
    fold: Fold
    parts: Parts
    epoch: int


def keep_models(
    bags: Bags,
    root: Path,
    groups: Sequence[Group[Task]],
    store: TrialStore,
    *,
    data_settings: DataSettings | None,
    workers: Workers,
    on_progress: Callable[[float, int, str], None] | None = None,
) -> None:
    """Train and write the missing models of all trials that tested a trained model.

    Columns are encoded and missing values filled by `data_settings`, from the training bags of each fold.
    """
    tasks = [task for task in _tasks(root, groups, store) if not RunFolder(task.folder).model.exists()]

    def write(group: Group[ModelTask], results: Sequence[dict[str, Any] | None]) -> None:
        (task,), (content,) = group.tasks, results
        if content is None:
            warn(f"{task.folder}: the model diverged when it was trained again, and is not kept", stacklevel=4)
            return
        write_model(RunFolder(task.folder), content)

    report = None if on_progress is None else lambda done: on_progress(done, len(tasks), "models")
    made = [Group([{"folder": str(task.folder)}], [task]) for task in tasks]
    fit = partial(fit_model, bags, data_settings=data_settings)
    compute(made, fit, keep=write, workers=workers, on_progress=report)


def fit_model(bags: Bags, task: ModelTask, *, data_settings: DataSettings | None = None) -> dict[str, Any] | None:
    """Return the content of the model file of a run; None if the training diverges."""
    train, val = task.parts
    made = Prepared(bags) if data_settings is None else prepare(bags, data_settings, train=train)
    bags = made.bags
    names = np.full(len(bags), "", dtype="<U5")
    for name, part in (("train", train), ("val", val), ("test", task.fold.test)):
        names[part] = name
    used = np.flatnonzero(names != "")
    with single_threaded():
        config: ResolvedSettings = task.config.resolve(bags.instance_shape)
        config = config.replace(seed=task.fold.repeat, select="last", patience=None)
        try:
            fitted = Trained(epochs=task.epoch).fit(bags.subset(train), None, config)
        except DivergedError:
            return None
        target = target_of(bags)
        decided = target.saved(None)
        if len(val):
            held = bags.subset(val)
            decided = target.saved(
                target.decide(target.values(held), predict(fitted.model, held, chunk_size=config.run.chunk_size))
            )
    origin = describe_origin(SplitBags(bags.subset(used), names[used], made.imputed, None, made.columns))
    return model_content(fitted, origin, decided=decided)


def unkept(methods: Sequence[ComparedMethod]) -> list[str]:
    """Return a note on the methods without a model to keep."""
    names = [method.name for method in methods if method.baseline is not None]
    return [f"no models of {', '.join(names)} are kept: baselines train and score in one call"] if names else []


def _tasks(root: Path, groups: Sequence[Group[Task]], store: TrialStore) -> Iterator[ModelTask]:
    for group in groups:
        for i, row in enumerate(store.find(group.names)):
            if row is None or row["status"] != Status.OK:
                continue
            for task in group.tasks:
                config, fold = task.config, task.folds[i]
                # Trials of cross-entropy hold no margin.
                if config is None or config.training.lr != row["lr"]:
                    continue
                if row["margin"] in (None, config.method.margin):
                    place = root / "models" / file_name(task.method.name) / f"repeat-{fold.repeat}-fold-{fold.fold}"
                    yield ModelTask(place, config, fold, task.parts[i], row["epoch"])
                    break
