"""The command line: `midam fit | predict | evaluate | data`.

Options of `fit` are generated from `FitConfig` by jsonargparse; ``--option-name`` and ``--option_name`` are the same.
Exit codes: 0 done, 2 bad input or settings, 130 stopped by Ctrl-C or SIGTERM.
"""

import dataclasses
import re
import signal
import sys
import warnings
from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam import __version__
from midam.data import catalog
from midam.data.bags import Bags
from midam.errors import ConfigError, DataNotFoundError, MidamError
from midam.report.terminal import (
    FitProgress,
    print_catalog,
    print_description,
    print_evaluation,
    print_summary,
    stdout_console,
)
from midam.runs.apply import evaluate_run, load_run, predict_run, read_for
from midam.runs.data import read_data
from midam.runs.fit import Interrupted, fit_run, read_run_config, resume_run
from midam.runs.folder import RunFolder, csv_text, free_folder, write_json, write_text
from midam.runs.report import prediction_rows
from midam.train.config import FitConfig, from_dict, read_yaml, unknown_key

_DATA = "catalogue name (see `midam data list`), or a .npz, .csv, .tsv or .parquet file"
_FIT = """Train a bag classifier that maximises AUC, and test it. In a table, a row is an instance; one column names its
bag, one holds the bag's label (0 or 1), the rest are features. The run folder gets weights, predictions, metrics and
figures. Ctrl-C keeps what is done, --resume continues it. A setting on the command line beats one of --config."""
_SETTINGS = [field.name for field in dataclasses.fields(FitConfig)]
_FLAGS = [field.name for field in dataclasses.fields(FitConfig) if field.type is bool]


class _Parser(ArgumentParser):
    """Hyphens in the help, one line for an error, the nearest option for an unknown one."""

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        text: str = super().format_help() if formatter is None else super().format_help(formatter)
        return re.sub(r"--[a-z]+(?:_[a-z]+)+", lambda match: match[0].replace("_", "-"), text)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        unknown = re.search(r"(?:unrecognized arguments: --|does not accept option ')([\w.-]+)", message)
        if unknown:
            raise ConfigError(unknown_key(unknown[1], _SETTINGS, source="the command line"))
        text = " ".join(message.split()).replace("typing.Literal", "one of ")
        raise ConfigError(f"{text}; see --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.print(f"[yellow]warning:[/] {escape(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", UserWarning)
        warnings.filterwarnings("ignore", module=r"(lightning|torch|matplotlib)")
        warnings.showwarning = show
        try:
            signal.signal(signal.SIGTERM, _terminate)
            arguments = _parse(list(sys.argv[1:] if argv is None else argv))
            return _run(arguments, console)
        except Interrupted as stop:
            console.print(f"[yellow]midam:[/] {escape(str(stop))}")
            return 130
        except KeyboardInterrupt:
            console.print("[yellow]midam:[/] stopped")
            return 130
        except MidamError as error:
            console.print(f"[red]midam: error:[/] {escape(str(error))}")
            return 2
        except OSError as error:
            where = f" (in {error.filename})" if error.filename else ""
            console.print(f"[red]midam: error:[/] {escape(f'{error.strerror or error}{where}; mend it and repeat.')}")
            return 2


def _run(arguments: Namespace, console: Console) -> int:
    command = arguments.command
    options = arguments[command]
    if command == "fit":
        return _fit(options, console)
    if command == "predict":
        return _predict(options)
    if command == "evaluate":
        return _evaluate(options)
    return _data(options)


def _fit(options: Namespace, console: Console) -> int:
    if options.resume is not None:
        folder = RunFolder(Path(options.resume))
        config, _ = read_run_config(folder)
        with FitProgress(config.epochs, console=console) as bar:
            summary = resume_run(options.data, folder, on_epoch=lambda row, _: bar.update(row))
    else:
        if options.data is None:
            raise ConfigError(f"Expected DATA, got none; give a {_DATA}.")
        config = from_dict({name: options[name] for name in _SETTINGS})
        folder = _run_folder(options, config)
        console.print(f"training {config.pooling} x {config.estimator} x {config.objective} on {escape(options.data)}")
        with FitProgress(config.epochs, console=console) as bar:
            summary = fit_run(options.data, config, folder, on_epoch=lambda row, _: bar.update(row))
    print_summary(stdout_console(), summary, run=str(folder.root))
    return 0


def _run_folder(options: Namespace, config: FitConfig) -> RunFolder:
    if options.out is not None:
        return RunFolder(Path(options.out))
    name = f"{Path(options.data).stem}-{config.pooling}-{config.estimator}-seed{config.seed}"
    return free_folder(Path("runs"), name)


def _predict(options: Namespace) -> int:
    run = load_run(RunFolder(Path(options.run)))
    bags = read_for(run, options.data)
    scores, probabilities = predict_run(run, bags)
    rows = prediction_rows(bags.ids, scores, labels=bags.labels, splits=None, probabilities=probabilities)
    columns = ["bag", *(["label"] if bags.labels is not None else []), "score", "probability"]
    write_text(Path(options.out), csv_text(columns, rows))
    stdout_console().print(f"{len(bags)} bags scored: {options.out}")
    return 0


def _evaluate(options: Namespace) -> int:
    run = load_run(RunFolder(Path(options.run)))
    result = evaluate_run(run, read_for(run, options.data))
    if options.out is not None:
        write_json(Path(options.out), result)
    print_evaluation(stdout_console(), result)
    return 0


def _data(options: Namespace) -> int:
    if options.action == "list":
        print_catalog(stdout_console(), [catalog.describe(name) for name in catalog.names()])
        return 0
    if options.name is None:
        raise ConfigError(f"Expected a name, got none; names in the catalogue: {', '.join(catalog.names())}.")
    if options.action == "fetch":
        if options.name not in catalog.CATALOG:
            raise DataNotFoundError(
                f"Expected a name of the catalogue, got {options.name!r}; known are {', '.join(catalog.names())}."
            )
        bundled = catalog.CATALOG[options.name].url is None
        where = "comes with scikit-learn, nothing to fetch" if bundled else catalog.fetch(options.name)
        stdout_console().print(f"{options.name}: {where}")
        return 0
    bags = read_data(options.name, FitConfig())
    print_description(stdout_console(), options.name, _facts(options.name, bags), bags.sizes)
    return 0


def _facts(name: str, bags: Bags) -> dict[str, Any]:
    labels, sizes = bags.require_labels(), bags.sizes
    facts: dict[str, Any] = {}
    if name in catalog.CATALOG:
        entry = catalog.describe(name)
        facts = {key: entry[key] for key in ("description", "licence", "citation", "url", "location")}
    facts |= {
        "bags": f"{len(bags)} ({int(labels.sum())} positive)",
        "instances": f"{bags.num_instances}, {sizes.mean():.2f} a bag ({sizes.min()} to {sizes.max()})",
        "instance shape": list(bags.instance_shape),
        "mean bag size": f"{sizes[labels == 1].mean():.1f} positive, {sizes[labels == 0].mean():.1f} negative",
    }
    if bags.splits is not None:
        facts["splits"] = ", ".join(f"{part} {int((bags.splits == part).sum())}" for part in ("train", "val", "test"))
    if bags.groups is not None:
        facts["groups"] = len(set(bags.groups.tolist()))
    return facts


def _parse(argv: list[str]) -> Namespace:
    argv = _normalise(argv)
    defaults, resumed = {}, "--resume" in argv
    if argv[:1] == ["fit"]:
        given = [key for key in _SETTINGS if f"--{key}" in argv]
        if resumed and given:
            raise ConfigError(
                f"Expected no settings with --resume, got --{given[0]}: a resumed run keeps its own; start a new one to "
                "change them."
            )
        if "--config" in argv:
            at = argv.index("--config")
            if at + 1 == len(argv):
                raise ConfigError("Expected a file after --config, got nothing; name a YAML file.")
            path = Path(argv[at + 1])
            defaults = read_yaml(path)
            for key in defaults:
                if key not in (*_SETTINGS, "data"):
                    raise ConfigError(unknown_key(key, _SETTINGS, source=str(path)))
            del argv[at : at + 2]
    parsed: Namespace = _parser(defaults).parse_args(argv)
    return parsed


def _normalise(argv: list[str]) -> list[str]:
    """`--some-flag=x` to `--some_flag x`; a bare flag to `--flag true`."""
    tokens: list[str] = []
    for token in argv:
        name, equals, value = token.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        tokens += [name, value] if name.startswith("--") and equals else [name + equals + value]
    for at in range(len(tokens) - 1, -1, -1):
        bare = at + 1 == len(tokens) or tokens[at + 1].lower() not in ("true", "false")
        if tokens[at][2:] in _FLAGS and tokens[at].startswith("--") and bare:
            tokens.insert(at + 1, "true")
    return tokens


def _parser(defaults: dict[str, Any]) -> ArgumentParser:
    fit = _Parser(prog="midam fit", description=_FIT)
    fit.add_argument("data", nargs="?", default=defaults.pop("data", None), help=_DATA)
    fit.add_argument("--out", type=str | None, default=None, help="run folder; default: a new one in runs/")
    fit.add_argument("--resume", type=str | None, default=None, metavar="RUN", help="continue this run in place")
    fit.add_argument(
        "--config", type=str | None, default=None, metavar="FILE", help="settings as YAML, such as RUN/config.yaml"
    )
    fit.add_class_arguments(FitConfig, nested_key=None)
    fit.set_defaults(defaults)
    predict = _Parser(prog="midam predict", description="Score bags with a trained run; labels are not needed.")
    predict.add_argument("run", type=str, help="run folder")
    predict.add_argument("data", type=str, help=_DATA)
    predict.add_argument(
        "--out", type=str, required=True, metavar="FILE.csv", help="where to write bag, score, probability"
    )
    evaluate = _Parser(
        prog="midam evaluate",
        description="Test a trained run on labelled bags; bags the run was trained on are told apart, never mixed in.",
    )
    evaluate.add_argument("run", type=str, help="run folder")
    evaluate.add_argument("data", type=str, help=_DATA)
    evaluate.add_argument(
        "--out", type=str | None, default=None, metavar="FILE.json", help="also write the figures as JSON"
    )
    data = _Parser(prog="midam data", description="List, describe or fetch data.")
    data.add_argument("action", choices=["list", "describe", "fetch"], help="what to do")
    data.add_argument("name", type=str | None, nargs="?", default=None, help="catalogue name, or a file for describe")
    top = _Parser(prog="midam", description="Multi-instance deep AUC maximisation.", version=__version__)
    commands = top.add_subcommands(dest="command")
    for parser, text in (
        (fit, "train a bag classifier and test it"),
        (predict, "score bags"),
        (evaluate, "test a run on labelled bags"),
        (data, "list, describe or fetch data"),
    ):
        commands.add_subcommand(str(parser.prog).split()[-1], parser, help=text)
    return top


def _terminate(*_: object) -> NoReturn:
    # A preempted job stops like Ctrl-C: the last whole epoch is on disk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
