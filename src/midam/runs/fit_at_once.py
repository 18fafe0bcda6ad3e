"""Runs of methods that are fitted in one step, such as trees on bag statistics or `auto`."""

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from threadpoolctl import threadpool_limits

from midam.evaluate.predict import predict
from midam.evaluate.ranking import FEW_BAGS
from midam.files import write_text
from midam.nn.ensemble import BagEnsemble
from midam.registry import plugin_entry
from midam.runs.cross_validation import by_bag, preparing
from midam.runs.data import Callbacks, Reading, SplitBags, divided, read_data, split_parts, write_left_out
from midam.runs.folder import RunFolder, read_budget, require_same_data
from midam.runs.folds import fold_trials
from midam.runs.method import make_baseline, taken_settings
from midam.runs.result import Result
from midam.runs.results import Fitted, write_results
from midam.settings import ResolvedSettings, Settings, yaml_text
from midam.targets import OutOfFold
from midam.train.checkpoint import ModelContent, load_checkpoint
from midam.train.modes import cpu_threads


def fit_at_once(
    data: str,
    method: str,
    settings: Settings,
    folder: RunFolder,
    calls: Callbacks,
    *,
    reading: Reading | None = None,
    opened: float | None = None,
    budget: float | None = None,
) -> dict[str, Any]:
    """Fit a `midam.compare.Baseline` that can be a model, for `midam.runs.fit_run`; returns the summary.

    `reading` is the result of `split_parts`, and `opened` the time when the reading began; default: read the data here.

    The caller holds the folder. If the call is stopped, its files stay there; `refit_at_once` starts the run again, but
    skips the candidates that `auto` has tried.
    """
    from midam.runs.scoring import require_run_space

    started = opened or time.monotonic()
    reading = reading or split_parts(data, settings, left_out=folder.left_out.name, method=method)
    parts, origin, notes, settings, _ = reading
    require_run_space(folder, parts.bags, origin)
    config, read = settings.resolve(parts.bags.instance_shape), time.monotonic()
    limit = {} if budget is None else {"budget": budget}
    write_left_out(parts.bags, folder.left_out)
    values = {"method": method, **taken_settings(config)}
    write_text(folder.config, yaml_text({"data": data, **limit, **values, **plugin_entry(values)}))
    if calls.on_start is not None:
        calls.on_start(settings, method)
    calls = calls if budget is None else replace(calls, until=read + budget)
    search = {"budget": budget, "journal": folder.candidates, "on_candidate": calls.on_candidate}
    fitted = fit_baseline(method, config, parts, **search)
    trained = time.monotonic()
    if parts.folds is None:
        calls.stage("scoring", len(parts.bags))
        scores = predict(fitted.reported, parts.bags, chunk_size=config.run.chunk_size, on_bags=calls.on_bags)
    else:
        scores = cast(OutOfFold, fitted.out_of_fold).scores

    def seconds(baseline: float) -> dict[str, float]:  # noqa: ARG001
        now = time.monotonic()
        durations = {"reading": read - started, "training": trained - read, "evaluation": now - trained}
        return {name: round(value, 3) for name, value in {**durations, "total": now - started}.items()}

    summary = write_results(
        *(folder, fitted, parts, scores, calls), data=data, selected="last", origin=origin, seconds=seconds, notes=notes
    )
    from midam.runs.report import write_run_report  # draws: matplotlib is not needed to fit an estimator

    write_run_report(folder.root)
    return summary


def has_few(parts: SplitBags) -> bool:
    """Return whether bags of two classes have too few positive validation bags to choose a threshold."""
    labels = parts.bags.labels
    return labels is not None and int(labels[parts.splits == "val"].sum()) < FEW_BAGS


def fit_baseline(method: str, config: ResolvedSettings, parts: SplitBags, **options: Any) -> Fitted:
    """Fit a method of one step to all training bags; `options` are arguments of the search of `auto`.

    With folds, models of the folds score the bags. If validation bags are few, models of inner folds also score the
    training bags; `auto` always has these scores.

    BLAS gets one thread: for small matrices, several threads are ten times slower.
    """
    baseline, seed, train = make_baseline(method), config.run.seed, parts.part("train")
    trials = None if parts.folds is None else fold_trials(parts.folds, seed=seed)
    prepare = preparing(parts, config)
    scored: OutOfFold | None = None
    with cpu_threads(config.run.threads), threadpool_limits(1, user_api="blas"):
        if baseline.chooses:
            choice = baseline.choose(train, seed=seed, trials=trials, prepare=prepare, **options)
            scored, model = choice.out_of_fold, choice.model
            about, made = {"auto": choice.about}, choice.parts
        else:
            if trials is not None or has_few(parts):
                scored = baseline.out_of_fold(train, seed=seed, trials=trials, prepare=prepare)
            model, about, made = BagEnsemble([baseline.fit(train, seed=seed)]), {}, None
    scored = scored if trials is None or scored is None else by_bag(scored, trials)
    return Fitted(method, config, model, made, about, scored)


def refit_at_once(
    data: str | None, method: str, settings: Settings, folder: RunFolder, calls: Callbacks, *, recorded: str
) -> dict[str, Any]:
    """Resume a run of `fit_at_once`: return the summary if it is finished, else fit it again, with a warning.

    `auto` skips the candidates that it has tried. `recorded` names the data that the run was started with; `data` may
    name another copy with the same bags.
    """
    with folder.held():
        if all(path.exists() for path in (folder.summary, folder.model, folder.predictions)):
            if data is not None and Path(data).resolve() != Path(recorded).resolve():
                fingerprint = divided(read_data(data, settings), settings, at_once=True).bags.fingerprint()
                require_same_data(load_checkpoint(folder.model, ModelContent), fingerprint, data, recorded=recorded)
            warnings.warn(f"{folder.root} is finished: nothing was left to do", stacklevel=3)
            return Result.read(folder).entries()
        resumes = folder.candidates.exists()
        next_step = "it continues after the methods that it tried" if resumes else "it starts again"
        warnings.warn(f"{folder.root} was stopped before its end: {next_step}", stacklevel=3)
        return fit_at_once(data or recorded, method, settings, folder, calls, budget=read_budget(folder))
