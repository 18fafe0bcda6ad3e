"""Write models of a comparison as runs that score new bags: the best method on all bags, and those of the folds."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import pandas as pd

from midam.compare.folds import Fold, Parts
from midam.compare.methods import ComparedMethod, find_method
from midam.compare.plan import Task, settings_of, single_threaded
from midam.compare.summary import Comparison, format_interval
from midam.compare.trials import Status
from midam.compare.workers import Group, Workers, compute
from midam.data.bags import Bags
from midam.data.column_codes import Prepared, prepare
from midam.errors import ConfigError, DivergedError
from midam.evaluate.predict import predict
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Trained
from midam.methods.names import make_method
from midam.methods.store import TrialStore
from midam.runs.data import Reading, SplitBags, describe_origin
from midam.runs.folder import RunFolder
from midam.runs.instance_files import file_name
from midam.runs.kept import write_metrics
from midam.runs.report import write_run_report
from midam.runs.results import model_content, write_model, write_results
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


def deploy_method(
    bags: Bags,
    comparison: Comparison,
    out: str | Path,
    *,
    settings: Settings | None = None,
    method: str | None = None,
    data: str | None = None,
    notes: Sequence[str] = (),
    callbacks: Callbacks = QUIET,
) -> dict[str, Any]:
    """Train a method of a comparison on all bags, and write it as a run; returns its summary.

    By default, the method is the first with the highest mean AUROC over the folds. This AUROC is the largest of
    several on the same folds, and so optimistic; the summary notes this and the number of methods. If the method chose
    learning rate and margin, the values that most folds chose are used, and the median epoch of these folds. No bag is
    held out. For `auto`, and for a method that is fitted in one step, inner folds give calibration and threshold. The
    scores of separate trainings have no common scale, so a run of a trained method has neither.

    Parameters
    ----------
    bags, comparison : Bags, Comparison
        Labeled bags, and the result of `run_comparison` on them.
    out : str or Path
        Run folder; new or empty.
    settings : Settings, optional
        Settings of the comparison.
    method : str, optional
        Another method of the comparison.
    data : str, optional
        Name of the data in the run; default: the source of the bags.
    notes : sequence of str
        Warnings from reading the bags.
    callbacks : Callbacks, optional
        Functions that are called meanwhile.

    Raises
    ------
    ConfigError
        If there is no such method, or it cannot be a model; for bags of other targets than two classes.
    RunExistsError
        If the folder is not empty.
    """
    check_target(bags)
    name = best_method(comparison, method)
    compared, data, folder, started = find_method(name), data or bags.source, RunFolder(Path(out)), time.monotonic()
    base = (settings or Settings()).replace(select="last", patience=None, val_fraction=0.0, test_fraction=0.0)
    trials = comparison.trials[(comparison.trials["method"] == name) & (comparison.trials["status"] == Status.OK)]
    config, epochs = _config(base, compared, trials, bags.instance_shape)
    # No bags are left for the baseline of a run; the comparison has baselines.
    config = config.replace(baseline=False)
    folder.require_free()
    with folder.held():
        try:
            made = prepare(bags, config.data, train=range(len(bags)))
            parts = SplitBags(made.bags, np.full(len(bags), "train", dtype="<U5"), made.imputed, None, made.columns)
            reading = Reading(parts, describe_origin(parts), list(notes), config, None)
            made_method = Trained(epochs=epochs) if compared.baseline is None else make_method(name)
            fitted = made_method.fit(made.bags, None, config, callbacks)
            decided = fitted.out_of_fold is not None
            fitted.entries["deployed"] = _entries(comparison, name, chosen=method is not None, decided=decided)
            if compared.baseline is None:
                write_metrics(folder, fitted.history)
            folder.write_config(data, fitted.values)
            took = {"training": time.monotonic() - started}
            summary = write_results(folder, fitted, reading, callbacks, data=data, took=took)
            write_run_report(folder.root)
            return summary
        except BaseException:
            folder.clear()
            raise


def check_target(bags: Bags) -> None:
    """Raise a `ConfigError` for bags of other targets than two classes, for which no method can be deployed."""
    if bags.outcome is not None:
        raise ConfigError(
            f"Expected bags of two classes to deploy a method, got the target {bags.outcome.target!r} (in "
            f"{bags.source}); train the best method with `midam fit`."
        )


def best_method(comparison: Comparison, method: str | None = None) -> str:
    """Return the method with the highest mean AUROC over the folds, or check the given `method`.

    Raises a `ConfigError` if the method is not in the comparison, or cannot be a model.
    """
    table = comparison.summary.dropna(subset=["auroc"])
    ranked = table.sort_values("auroc", ascending=False, kind="stable")["method"].tolist()
    if not ranked:
        raise ConfigError("Expected a method with an AUROC to deploy, got none; see the notes of the comparison.")
    name = method or ranked[0]
    if name not in ranked:
        raise ConfigError(f"Expected a method of the comparison to deploy, got {name!r}; name one of {ranked}.")
    why = find_method(name).lacks
    if why is not None:
        able = next((other for other in ranked if find_method(other).lacks is None), None)
        advice = "compare others" if able is None else f"name the best that can, {able}, with `deploy_method`"
        raise ConfigError(f"Expected a method that can be deployed, got {name!r}: {why}; {advice}.")
    return name


def _config(
    base: Settings, method: ComparedMethod, trials: pd.DataFrame, instance_shape: tuple[int, ...]
) -> tuple[ResolvedSettings, int]:
    """Return settings and number of epochs for the training on all bags, as most folds chose them."""
    if method.baseline is not None:
        return base.resolve(instance_shape), 0
    values = settings_of(base, method)
    chosen, rows = {}, trials
    if method.tuned:
        keys = ["lr", "margin"] if trials["margin"].notna().all() else ["lr"]
        most = Counter(trials[keys].itertuples(index=False, name=None)).most_common(1)[0][0]
        chosen = dict(zip(keys, map(float, most)))
        rows = trials[(trials[keys] == list(most)).all(axis=1)]
    return Settings.from_flat({**values, **chosen}).resolve(instance_shape), round(float(np.median(rows["epoch"])))


def _entries(comparison: Comparison, name: str, *, chosen: bool, decided: bool) -> dict[str, Any]:
    """Return the summary's entries about the comparison, with a note."""
    row = next(row for row in comparison.summary.to_dict("records") if row["method"] == name)
    count = len(comparison.summary)
    choice = "named" if chosen else f"the highest of {count} methods on the same folds, which is optimistic"
    calibration = "Without held-out bags there are no probabilities, no threshold and no classes."
    if decided:
        calibration = "Probabilities and threshold come from inner folds of all bags."
    note = (
        f"Trained on all bags, without test bags: results on the training bags are no test. Cross-validated AUROC of "
        f"{name}: {format_interval(row, 'auroc')} over {row['folds']} folds, {choice}. {calibration}"
    )
    interval = [row["auroc_low"], row["auroc_high"]]
    return {
        "method": name,
        "methods": comparison.summary["method"].tolist(),
        "auroc": row["auroc"],
        "auroc_ci95": interval if np.isfinite(interval).all() else None,
        "folds": row["folds"],
        "note": note,
    }
