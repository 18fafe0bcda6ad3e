"""`midam fit`: train a bag classifier and test it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.parser import DATA, SETTINGS, Parser, names_option, take_config
from midam.errors import ConfigError
from midam.train.config import FitConfig, from_dict

_TEXT = """Train a bag classifier that maximizes AUC, and test it. In a table, a row is an instance; one column names
its bag, one holds the label (0 or 1), the rest are features. The run folder gets weights, predictions, metrics and
figures. Ctrl-C keeps what is done, --resume continues it. A setting on the command line beats one of --config."""


def parser(defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Options of the command; `defaults` are the settings of a file."""
    values = dict(defaults or {})
    fit = Parser(prog="midam fit", allow_abbrev=False, description=_TEXT)
    fit.add_argument("data", nargs="?", default=values.pop("data", None), help=DATA)
    fit.add_argument("--out", type=str | None, default=None, help="run folder; default: a new one in runs/")
    fit.add_argument("--resume", type=str | None, default=None, metavar="RUN", help="continue this run in place")
    fit.add_argument(
        "--config", type=str | None, default=None, metavar="FILE", help="settings as YAML, such as RUN/config.yaml"
    )
    fit.add_class_arguments(FitConfig, nested_key=None)
    fit.set_defaults(values)
    return fit


def take_defaults(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Take the settings file out of a normalized command line; refuse settings beside ``--resume``."""
    given = [key for key in (*SETTINGS, "config", "out") if any(names_option(token, key) for token in argv)]
    if "--resume" in argv and given:
        raise ConfigError(
            f"Expected no settings with --resume, got --{given[0]}: a resumed run keeps its own; start a new "
            "one to change them."
        )
    return take_config(argv, known=(*SETTINGS, "data"))


def run(options: Namespace, console: Console) -> int:
    """Train, or continue a run; returns the exit code."""
    from midam.report.terminal import FitProgress, print_summary, stdout_console
    from midam.runs.fit import fit_run, read_run_config, resume_run
    from midam.runs.folder import RunFolder, free_folder

    if options.resume is not None:
        folder = RunFolder(Path(options.resume))
        config, _ = read_run_config(folder)
        with FitProgress(config.epochs, console=console) as bar:
            summary = resume_run(options.data, folder, on_epoch=lambda row, _: bar.update(row), on_bags=bar.scored)
    else:
        if options.data is None:
            raise ConfigError(f"Expected DATA, got none; give a {DATA}.")
        config = from_dict({name: options[name] for name in SETTINGS})
        name = f"{Path(options.data).stem}-{config.pooling}-{config.estimator}-seed{config.seed}"
        folder = free_folder(Path("runs"), name) if options.out is None else RunFolder(Path(options.out))
        title = f"training {config.pooling} x {config.estimator} x {config.objective} on {escape(options.data)}"
        with FitProgress(config.epochs, console=console) as bar:
            summary = fit_run(
                options.data,
                config,
                folder,
                on_start=lambda: console.print(title),
                on_epoch=lambda row, _: bar.update(row),
                on_bags=bar.scored,
            )
    print_summary(stdout_console(), summary, run=str(folder.root))
    return 0
