"""`midam fit --fold all`: a run for each fold of a split table, one after the other, and their mean."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

from jsonargparse import Namespace
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from midam.cli.outputs import keep_folder
from midam.cli.parser import SETTINGS
from midam.compare.split_runs import cell, write_folds
from midam.data.sources.split_table import fold_numbers
from midam.errors import BagDataError, ConfigError
from midam.files import write_text
from midam.names import on_disk
from midam.report.terminal import stdout_console
from midam.runs.data import read_data, split_data
from midam.runs.folder import RunFolder, free_folder
from midam.settings import Settings, read_yaml, yaml_text


def fit_folds(options: Namespace, console: Console, fit: Callable[[Namespace], int]) -> int:
    """Train a run for each fold into OUT/fold-K by `fit`; folds that are done stay, one that was stopped goes on."""
    if options.split_file is None:
        raise ConfigError("Expected --split-file with --fold all, got none; name the table or the folder of splits.")
    if options.devices is not None or options.num_nodes is not None:
        raise ConfigError("Expected one process with --fold all, got several; train each fold by its number.")
    path = on_disk(options.split_file)
    folds = fold_numbers(path)
    if not folds:
        raise ConfigError(
            f"Expected a table of several folds, columns fold_0, fold_1, ... or a folder of splits_0.csv, ..., got one "
            f"split (in {path}); leave out --fold."
        )
    _check(options, path, folds)
    keep_folder(options, "out")
    root = _root(options, folds)
    folders = {fold: RunFolder(root / f"fold-{fold}") for fold in folds}
    for fold, folder in folders.items():
        if folder.summary.exists():
            console.print(f"fold {fold} is done: {escape(str(folder.root))}")
            continue
        console.print(f"fold {fold} of {len(folds)}")
        own = copy.copy(options)
        own.every_fold = False
        if folder.config.exists():
            own.resume = str(folder.root)
        else:
            own.fold, own.out = fold, str(folder.root)
        fit(own)
    table, said = write_folds(folders, root)
    shown = Table(*map(escape, table.columns), box=None)
    for row in table.itertuples(index=False, name=None):
        shown.add_row(*map(cell, row))
    stdout_console().print(shown)
    stdout_console().print(escape(said))
    stdout_console().print(f"folds: {escape(str(root))}")
    return 0


def _check(options: Namespace, path: Path, folds: list[int]) -> None:
    """Refuse what the run of a fold would be refused for, before one is trained."""
    settings = Settings.from_flat({name: options[name] for name in SETTINGS})
    for fold in folds:
        try:
            with warnings.catch_warnings(action="ignore"):  # the run of the fold repeats them
                parts = split_data(read_data(options.data, settings.replace(fold=fold)), settings)
            if "test" not in parts.splits:
                raise BagDataError("Expected test bags in each fold, got none; name some as test.")
        except BagDataError as error:
            raise type(error)(f"{str(error).removesuffix('.')} (in {path}, fold {fold}).") from None


def _root(options: Namespace, folds: list[int]) -> Path:
    """The folder of the runs: new, or one that this command has begun."""
    settings = Settings.from_flat({name: options[name] for name in SETTINGS})
    asked = {"data": options.data, "method": options.method, "folds": folds, **settings.flat()}
    name = f"{Path(options.data).stem}-folds"
    root = free_folder(Path("runs"), name).root if options.out is None else Path(options.out)
    record = root / "folds.yaml"
    if record.exists():
        kept = read_yaml(record)
        changed = [name for name, value in asked.items() if kept.get(name) != value]
        if changed:
            raise ConfigError(
                f"Expected the {changed[0]} that these folds were started with, got another (in {record}); choose "
                "another --out, or repeat the command as it was."
            )
        return root
    RunFolder(root).require_free()
    root.mkdir(parents=True, exist_ok=True)
    write_text(record, yaml_text(asked))
    return root
