"""`midam fit --fold all`: train a run for each fold of a split table, and report the mean of the main metric."""

import copy
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from midam.cli.outputs import keep_folder
from midam.cli.parser import Options
from midam.compare.summary import CorrectedInterval, corrected_interval
from midam.data.sources.split_table import fold_numbers
from midam.errors import BagDataError, CheckpointError, ConfigError
from midam.files import write_text
from midam.names import on_disk
from midam.report.program import note_result, say, stdout_console
from midam.report.words import METRIC_NAMES, metric_of_part
from midam.runs.data import SplitBags, read_data, split_data
from midam.runs.folder import RunFolder, free_folder
from midam.runs.result import Result
from midam.settings import read_yaml, yaml_text

_RECORD = "folds.yaml"  # the call that began the folds


def fit_folds(options: Options, console: Console, fit: Callable[[Options], int]) -> int:
    """Train a run for each fold into OUT/fold-K by `fit`; keep finished folds and continue a stopped one."""
    path, folds = folds_of(options)
    settings = options.settings()
    keep_folder(options, "out")
    call = {"data": options.data, "method": options.method, "folds": folds, **settings.flat()}
    root = _root(options, call)
    folders = {fold: RunFolder(root / f"fold-{fold}") for fold in folds}

    def split(fold: int) -> SplitBags:
        parts, folder = split_data(read_data(options.data, settings.replace(fold=fold)), settings), folders[fold]
        if folder.summary.exists() and Result.read(folder).data["fingerprint"] != parts.bags.fingerprint():
            raise CheckpointError(
                f"Expected the bags and splits on which fold {fold} was trained, got others (in {options.data} or "
                f"{path}); choose another --out, or remove {root} to train all folds again."
            )
        return parts

    check_folds(path, folds, split)
    write_text(root / _RECORD, yaml_text(call))
    for fold, folder in folders.items():
        if folder.summary.exists():
            console.print(f"fold {fold} is done: {escape(str(folder.root))}")
            continue
        console.print(f"fold {fold} of {len(folds)}")
        fold_options = copy.copy(options)
        fold_options.every_fold = False
        if folder.config.exists():
            fold_options.resume = str(folder.root)
        else:
            fold_options.values, fold_options.out = {**options.values, "fold": fold}, str(folder.root)
        fit(fold_options)
    table = fold_table(folders)
    sentence = write_folds(table, root)
    rich_table = Table(*map(escape, table.columns), box=None)
    for row in cells(table):
        rich_table.add_row(*row)
    stdout_console().print(rich_table)
    say(sentence)
    note_result(folds=root, table=table.to_dict("records"))
    say(f"folds: {root}")
    return 0


def folds_of(options: Options) -> tuple[Path, list[int]]:
    """Return the path of the split table and the numbers of its folds; raise a `ConfigError` if there are none."""
    if options.values.get("split_file") is None:
        raise ConfigError("Expected --split-file with --fold all, got none; name the table or the folder of splits.")
    if options.devices is not None:
        raise ConfigError("Expected one process with --fold all, got several; train each fold by its number.")
    path = on_disk(options.values["split_file"])
    folds = fold_numbers(path)
    if not folds:
        raise ConfigError(
            f"Expected a table of several folds, columns fold_0, fold_1, ... or a folder of splits_0.csv, ..., got one "
            f"split (in {path}); leave out --fold."
        )
    return path, folds


def check_folds(path: Path, folds: list[int], split: Callable[[int], SplitBags]) -> None:
    """Refuse data that the run of any fold would refuse, before the first fold is trained."""
    for fold in folds:
        try:
            with warnings.catch_warnings(action="ignore"):  # the run of the fold repeats them
                parts = split(fold)
            if "test" not in parts.splits:
                raise BagDataError("Expected test bags in each fold, got none; name some as test.")
        except BagDataError as error:
            raise type(error)(f"{str(error).removesuffix('.')} (in {path}, fold {fold}).") from None


def _root(options: Options, call: Mapping[str, Any]) -> Path:
    """Return the folder of the runs: a new one, or the one that the same command has begun."""
    root = Path(options.out) if options.out else free_folder(Path("runs"), f"{Path(options.data).stem}-folds").root
    record = root / _RECORD
    if not record.exists():
        RunFolder(root).require_free()
    recorded = read_yaml(record) if record.exists() else call
    changed = [name for name, value in call.items() if recorded.get(name) != value]
    if changed:
        raise ConfigError(
            f"Expected the {changed[0]} that these folds were started with, got a different one (in {record}); choose "
            "another --out, or repeat the command as it was."
        )
    return root


def fold_table(folders: Mapping[int, RunFolder]) -> pd.DataFrame:
    """Return a row for each fold: its number, the counts of bags, and the metrics of the test bags."""
    rows = []
    for fold, folder in folders.items():
        summary = Result.read(folder).entries()
        tested = summary["test"]
        metric = metric_of_part(tested)
        low, high = tested.get(f"{metric}_ci95") or (None, None)
        counts = {f"{name}_bags": summary.get(name, {}).get("bags", 0) for name in ("train", "val", "test")}
        figures = {metric: tested[metric], f"{metric}_low": low, f"{metric}_high": high}
        figures |= {name: tested[name] for name in ("auprc", "brier") if tested.get(name) is not None}
        rows.append({"fold": fold, **counts, **figures})
    return pd.DataFrame(rows)


def write_folds(table: pd.DataFrame, root: Path) -> str:
    """Write folds.csv and folds.md of the result of `fold_table`; returns the text on the mean."""
    sentence = mean_words(table)
    write_text(root / "folds.csv", table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    lines = [f"| {' | '.join(row)} |" for row in ([*table.columns], ["---"] * len(table.columns), *cells(table))]
    write_text(root / "folds.md", "\n".join([*lines, "", sentence]) + "\n")
    return sentence


def mean_of(table: pd.DataFrame) -> CorrectedInterval:
    """Return the mean of the main metric over the folds that have it, with the interval of `corrected_interval`."""
    metric = metric_of_part(table)
    used = table.dropna(subset=[metric])
    ratios = used["test_bags"] / (used["train_bags"] + used["val_bags"])
    return corrected_interval(used[metric].to_numpy(dtype=float), ratio=float(ratios.mean()) if len(used) else 1.0)


def mean_words(table: pd.DataFrame) -> str:
    """Return a text on the mean over the folds and its interval."""
    mean, metric = mean_of(table), METRIC_NAMES[metric_of_part(table)]
    if not mean.trials:
        return f"No fold has a test {metric}."
    interval = "" if mean.low != mean.low else f" (95% interval {max(mean.low, 0):.3f} to {min(mean.high, 1):.3f})"
    failed = len(table) - mean.trials
    fewer = f" {failed} folds have none." if failed else ""
    return (
        f"Mean test {metric} {mean.mean:.3f}{interval} of {mean.trials} folds.{fewer} The interval is the corrected "
        "resampled t (Nadeau and Bengio). Scores of different folds have no common scale, and are not pooled."
    )


def cells(table: pd.DataFrame) -> list[list[str]]:
    """Return the rows of a table for display."""
    return [[_cell(value) for value in row] for row in table.itertuples(index=False, name=None)]


def _cell(value: Any) -> str:
    return "-" if pd.isna(value) else f"{value:.3f}" if isinstance(value, float) else str(value)
