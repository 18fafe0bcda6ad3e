"""Runs of methods that are fitted in one step, such as trees on bag statistics, and of `auto`, which chooses some."""

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from midam.errors import CheckpointError
from midam.evaluate.predict import predict
from midam.files import write_text
from midam.nn.ensemble import BagEnsemble
from midam.runs.data import (
    describe_origin,
    left_out_notes,
    noting,
    read_data,
    split_data,
    warn_of_leaks,
    write_left_out,
)
from midam.runs.folder import RunFolder, read_budget
from midam.runs.forms import read_summary
from midam.runs.method import make_baseline, taken_settings
from midam.runs.report import write_run_report
from midam.runs.results import Fitted, write_results
from midam.runs.scoring import require_run_space
from midam.runs.trust import remember
from midam.settings import Settings, yaml_text
from midam.train.checkpoint import ModelContent, load_checkpoint
from midam.train.memory import cpu_threads

OnStage = Callable[[str, int], None]
OnBags = Callable[[Sequence[int]], None]
OnCandidate = Callable[[str, int, int], None]


def fit_at_once(
    data: str,
    method: str,
    settings: Settings,
    folder: RunFolder,
    *,
    budget: float | None = None,
    on_start: Callable[[Settings], None] | None = None,
    on_stage: OnStage | None = None,
    on_bags: OnBags | None = None,
    on_candidate: OnCandidate | None = None,
) -> dict[str, Any]:
    """Fit a `midam.compare.Baseline` that can be a model, as `midam.runs.fit_run` does; returns the summary.

    The folder is held. What stops it leaves a part of the run there, which `refit_at_once` begins anew, but for the
    candidates that `auto` has tried.
    """
    started, on_stage = time.monotonic(), on_stage or (lambda *_: None)
    baseline = make_baseline(method)
    with noting() as notes:
        parts = split_data(read_data(data, settings), settings)
        origin = describe_origin(parts)
        warn_of_leaks(parts)
    require_run_space(folder, parts.bags, origin)
    config, read = settings.resolve(parts.bags.instance_shape), time.monotonic()
    limit = {} if budget is None else {"budget": budget}
    notes += left_out_notes(parts.bags, folder.left_out.name)
    write_left_out(parts.bags, folder.left_out)
    write_text(folder.config, yaml_text({"data": data, "method": method, **limit, **taken_settings(config)}))
    remember({"method": method, **taken_settings(config)})
    if on_start is not None:
        on_start(settings)
    train, seed = parts.part("train"), config.run.seed
    with cpu_threads(config.run.threads):
        if baseline.chooses:
            how: dict[str, Any] = {"budget": budget, "journal": folder.candidates, "on_candidate": on_candidate}
            chosen = baseline.choose(train, seed=seed, **how)
            fitted = Fitted(method, config, chosen.model, chosen.parts, {"auto": chosen.about})
        else:
            fitted = Fitted(method, config, BagEnsemble([baseline.fit(train, seed=seed)]))
    trained = time.monotonic()
    on_stage("scoring", len(parts.bags))
    scores = predict(fitted.reported, parts.bags, chunk_size=config.run.chunk_size, on_bags=on_bags)

    def seconds(baseline: float) -> dict[str, float]:  # noqa: ARG001
        now = time.monotonic()
        found = {"reading": read - started, "training": trained - read, "evaluation": now - trained}
        return {name: round(value, 3) for name, value in {**found, "total": now - started}.items()}

    what: dict[str, Any] = {"parts": parts, "data": data, "origin": origin, "seconds": seconds, "notes": notes}
    what["on_stage"] = on_stage
    summary = write_results(folder, trainer=fitted, scores=scores, selected="last", **what)
    write_run_report(folder.root)
    return summary


def refit_at_once(
    data: str | None,
    method: str,
    settings: Settings,
    folder: RunFolder,
    *,
    recorded: str,
    on_stage: OnStage | None = None,
    on_bags: OnBags | None = None,
    on_candidate: OnCandidate | None = None,
) -> dict[str, Any]:
    """Resume a run of `fit_at_once`: the summary of one that is finished, or all of it anew, with a warning.

    `auto` goes on behind the candidates that it has tried.

    `recorded` is the data that it was started with, `data` other data that the user names, which must hold the same.
    """
    with folder.held():
        if all(path.exists() for path in (folder.summary, folder.model, folder.predictions)):
            if data is not None and Path(data).resolve() != Path(recorded).resolve():
                _require_same(data, settings, folder, recorded=recorded)
            warnings.warn(f"{folder.root} is finished: nothing was left to do", UserWarning, stacklevel=3)
            return read_summary(folder, settings)[0]
        anew = "it starts anew" if not folder.candidates.exists() else "it goes on behind the methods that it has tried"
        warnings.warn(f"{folder.root} was stopped before its end: {anew}", UserWarning, stacklevel=3)
        how: dict[str, Any] = {"on_stage": on_stage, "on_bags": on_bags, "on_candidate": on_candidate}
        return fit_at_once(data or recorded, method, settings, folder, budget=read_budget(folder), **how)


def _require_same(data: str, settings: Settings, folder: RunFolder, *, recorded: str) -> None:
    """Refuse data that hold other bags than those of a finished run."""
    content = load_checkpoint(folder.model, ModelContent)
    found = split_data(read_data(data, settings), settings).bags.fingerprint()
    if found != content["data"]["fingerprint"]:
        raise CheckpointError(
            f"Expected the data that the run was started with ({recorded}), got other bags (in {data}); resume with "
            "the same data, or start a new run."
        )
