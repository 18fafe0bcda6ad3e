"""`midam compare`: many methods on the same folds of one data set."""

import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from midam.cli.outputs import keep_folder
from midam.cli.parser import DATA, SETTINGS, Options, Parser, words
from midam.compare.folds import Fold, repeated_folds, table_folds
from midam.compare.methods import find_method, find_methods, usual_methods
from midam.compare.plan import LEARNING_RATES, Grid
from midam.compare.run import run_comparison
from midam.compare.summary import Comparison, format_interval, format_number
from midam.compare.workers import BACKENDS, Workers
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.imaging.pixels import usual_network
from midam.methods.names import is_shorthand
from midam.registry import BASELINES
from midam.report.program import note_result, remark, say, stdout_console
from midam.report.terminal import LiveProgress
from midam.report.words import METRIC_NAMES
from midam.runs.data import SplitBags, noting, read_data, warn_of_leaks
from midam.settings import DataSettings, Settings

_TEXT = f"""Compare methods on the same repeated stratified folds, disjoint by group. A method is
OBJECTIVE[-ESTIMATOR]-POOLING, such as midam-att, dam-mb-smx or ce-mean; midam is the library's default; baselines are
{", ".join(BASELINES.own)}, and those of plug-ins. Learning rate, margin and epoch are chosen on
validation bags inside the training bags. Differences are to the first method. A stopped command continues where it
stopped. For other targets than two classes, name methods that support them."""

# Settings that the names of the methods, the folds or other options decide, or that have no effect here.
_METHOD = ("pooling", "estimator", "objective", "pooling_args", "estimator_args", "objective_args", "temperature")
_FOLDS = ("seed", "folds", "test_fraction", "split", "split_file", "fold")
_OTHER = ("lr", "margin", "select", "patience", "val_every", "allow_leakage", "logger", "logger_args", "threshold")
_SETTINGS = [name for name in SETTINGS if name not in {*_METHOD, *_FOLDS, *_OTHER, "baseline"}]


def parser() -> Parser:
    """Return the parser of the command."""
    compare = Parser("compare", _TEXT)
    compare.add_argument("data", help=DATA)
    text = "methods; the first is the reference; required for two classes; default for others: midam and a baseline"
    compare.add_text("--methods", metavar="A,B,...", help=text)
    compare.add_argument("--cv", default="5x10", metavar="REPEATSxFOLDS", help="repeats and folds")
    text = "table or folder of splits, CLAM's or Patho-Bench's, whose folds replace --cv"
    compare.add_hidden(compare.add_argument("--split-file", metavar="FILE", help=text))
    usual = "; ".join(f"{','.join(map(str, rates))} with {optimizer}" for optimizer, rates in LEARNING_RATES.items())
    compare.add_text("--lrs", help=f"learning rates to choose from; default: {usual}")
    compare.add_argument("--margins", default="0.1,0.5,1.0", help="margins to choose from")
    compare.add_argument("--select", choices=["best", "last"], default="best", help="epoch to test")
    compare.add_text("--out", metavar="DIR", help="folder for the trials; default: runs/compare-DATA-CV")
    text = "tasks at a time; default: one per core, with --accelerator cuda one per GPU, on a cluster one per worker"
    compare.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "where tasks run: processes (loky) or threads of this machine, or the workers of a cluster"
    compare.add_argument("--backend", choices=list(BACKENDS), default="loky", help=text)
    text = "address of the cluster, tcp://HOST:8786 or a scheduler file (dask), HOST:6379 or auto (ray)"
    compare.add_text("--cluster", metavar="ADDRESS", help=text)
    compare.add_settings(_SETTINGS)
    return compare


def run(options: Options, console: Console) -> int:
    """Compare methods; returns the exit code."""
    methods = None if options.methods is None else words(options.methods)
    if methods is not None:
        find_methods(methods)
    if options.split_file is not None and options.cv != parser().get_default("cv"):
        raise ConfigError("Expected --cv or --split-file, got both; leave one out.")
    repeats, folds = parse_cv(options.cv)
    lrs = None if options.lrs is None else _numbers("lrs", options.lrs)
    grid = Grid(lrs, _numbers("margins", options.margins), options.select)
    settings = options.settings()
    keep_folder(options, "out")
    if network := usual_network(options.data, settings)[0]:
        fit = f"`midam fit` passes them through {network} first: run `midam embed {options.data} --out STORE`"
        remark(console, f"methods are compared on the pixels; {fit}, and compare on that")
    with noting() as reading_notes:
        bags = read_data(options.data, settings)
        warn_of_leaks(SplitBags(bags, np.full(len(bags), "train")))
    if methods is None:
        if bags.outcome is None:
            raise ConfigError("Expected --methods, got nothing; see --help.")
        methods = usual_methods(bags)
    cv = options.cv if options.split_file is None else Path(options.split_file).stem
    out = Path(options.out or f"runs/compare-{Path(options.data).stem}-{cv}")
    _warn_of_unused(options, methods)
    splits, notes = _folds(options, settings.data, bags, repeats=repeats, folds=folds)
    notes = [*reading_notes, *notes, *_unaware(methods, settings)]
    more: dict[str, Any] = {"settings": settings, "grid": grid, "notes": notes, "out": out}
    workers = Workers(options.backend, options.jobs, options.cluster)
    with CompareProgress(console) as bar:
        comparison = run_comparison(bags, methods, splits, **more, workers=workers, on_progress=bar.update)
    print_comparison(stdout_console(), comparison, shown=reading_notes)
    note_result(comparison=out, metric=comparison.metric, methods=comparison.summary.to_dict("records"))
    note_result(remarks=comparison.remarks)
    say(f"comparison: {out}")
    return 0


def _folds(
    options: Options, data: DataSettings, bags: Bags, *, repeats: int, folds: int
) -> tuple[list[Fold], list[str]]:
    """Return the folds of the split table or of --cv, and notes on them."""
    if options.split_file is not None:
        skip = data.missing == "skip"
        splits = table_folds(bags, options.split_file, groups=data.groups, skip_missing=skip)
        used = len(np.unique(np.concatenate([np.concatenate(fold[2:]) for fold in splits])))
        unused = [f"{len(bags) - used} of {len(bags)} bags are in no fold"] if used < len(bags) else []
        inside = "validation bags of the table are training bags here: methods choose on validation bags of their own"
        return splits, [f"{len(splits)} folds of {options.split_file}; {inside}", *unused]
    splits = repeated_folds(bags, repeats=repeats, folds=folds)
    per_repeat = len(splits) // repeats
    unit = "bags" if bags.groups is None else "groups"
    fewer = f"{per_repeat} folds per repeat instead of {folds}: with more, a fold would lack two {unit} to rank above"
    return splits, [f"{fewer} others"] if per_repeat < folds else []


def _unaware(methods: list[str], settings: Settings) -> list[str]:
    """Return a note on the methods that ignore the covariates, if there are covariates."""
    names = [name for name in methods if find_method(name).baseline is not None]
    covariates = ", ".join(settings.data.covariates)
    return [f"{', '.join(names)}: from instances only, without {covariates}"] if names and covariates else []


def parse_cv(text: str) -> tuple[int, int]:
    """Return repeats and folds of a text such as ``"5x10"``."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None or int(match[2]) < 2:
        raise ConfigError(f"Expected --cv as REPEATSxFOLDS, at least 1x2, got {text!r}; write 1x10 for ten folds once.")
    return int(match[1]), int(match[2])


def _warn_of_unused(options: Options, methods: list[str]) -> None:
    selecting = [name for name in ("lrs", "margins", "select") if getattr(options, name) != parser().get_default(name)]
    if selecting and not any(map(is_shorthand, methods)):
        names = f"--{' and --'.join(selecting)}"
        why = "they belong to methods such as midam-att, and none of these was named"
        warnings.warn(f"{names} choose nothing here: {why}", stacklevel=2)


class CompareProgress(LiveProgress):
    """Progress of a comparison: a bar on a terminal, at most ten plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        super().__init__("comparing", console=console)
        self._tenths = -1

    def update(self, done: float, total: int) -> None:
        """Show how many trials are done."""
        self.show(done, total, f"{int(done)}/{total} trials")


def print_comparison(console: Console, comparison: Comparison, *, shown: Collection[str] = ()) -> None:
    """Print the summary as a table, and the notes that are not in `shown`."""
    first, metric = comparison.summary["method"].iloc[0], comparison.metric
    interval = f"{METRIC_NAMES[metric]} [95% interval]"
    table = Table("method", interval, f"difference to {first}", "folds", "s/trial", box=None)
    for row in comparison.summary.to_dict("records"):
        intervals = (format_interval(row, metric), format_interval(row, "difference", sign=True))
        seconds = format_number(row["seconds"], digits=2)
        table.add_row(row["method"], *map(escape, intervals), str(row["folds"]), seconds)
    console.print(table)
    for note in comparison.notes:
        if note not in shown:
            remark(console, note)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(word) for word in words(text)]
    except ValueError:
        raise ConfigError(f"Expected --{name} as numbers a,b,..., got {text!r}; correct the list.") from None
