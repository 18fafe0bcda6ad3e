"""Train the best method of a comparison on all bags, and write it as a run that scores new bags."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from midam.compare.methods import ComparedMethod, find_method
from midam.compare.plan import settings_of
from midam.compare.summary import Comparison, format_interval
from midam.compare.trials import Status
from midam.data.bags import Bags
from midam.data.column_codes import prepare
from midam.errors import ConfigError
from midam.files import write_text
from midam.methods.method import QUIET, Callbacks, Trained
from midam.methods.names import make_method
from midam.registry import plugin_entry
from midam.runs.data import Reading, SplitBags, describe_origin
from midam.runs.folder import RunFolder
from midam.runs.kept import write_metrics
from midam.runs.report import write_run_report
from midam.runs.results import write_results
from midam.settings import ResolvedSettings, Settings, yaml_text


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
            values = {"data": data, **fitted.values, **plugin_entry(fitted.values)}
            write_text(folder.config, yaml_text(values))
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
