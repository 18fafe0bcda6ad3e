"""The command line: `midam fit | predict | evaluate | data`.

Options of `fit` are generated from `FitConfig` by jsonargparse; ``--option-name`` and ``--option_name`` are the same.
Exit codes: 0 done, 2 bad input or settings, 130 stopped by Ctrl-C or SIGTERM.
"""

import csv
import dataclasses
import json
import re
import signal
import sys
import warnings
from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, get_origin

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam import __version__
from midam.data import catalog
from midam.errors import ConfigError, DataNotFoundError, MidamError, RunStoppedError
from midam.report.terminal import (
    FitProgress,
    bag_facts,
    print_catalog,
    print_description,
    print_evaluation,
    print_summary,
    stdout_console,
)
from midam.runs.apply import evaluate_run, load_run, predict_run, read_for
from midam.runs.data import read_data
from midam.runs.fit import fit_run, read_run_config, resume_run
from midam.runs.folder import RunFolder, csv_text, free_folder, write_json, write_text
from midam.runs.report import prediction_rows
from midam.train.config import FitConfig, from_dict, read_yaml, unknown_key

_DATA = "catalogue name (see `midam data list`), or a .npz, .csv, .tsv or .parquet file"
_FIT = """Train a bag classifier that maximises AUC, and test it. In a table, a row is an instance; one column names its
bag, one holds the bag's label (0 or 1), the rest are features. The run folder gets weights, predictions, metrics and
figures. Ctrl-C keeps what is done, --resume continues it. A setting on the command line beats one of --config."""
_SETTINGS = [field.name for field in dataclasses.fields(FitConfig)]
_FLAGS = [field.name for field in dataclasses.fields(FitConfig) if field.type is bool]
_LISTS = {field.name: field.type for field in dataclasses.fields(FitConfig) if get_origin(field.type) is list}


# From the parser's wording to the form of our own messages.
_PLAIN = [
    (r"<class '(\w+)'>", r"\1"),
    (r"typing\.Literal", "one of "),
    (r'Parser key "(\w+)": Expected an? (.*)\. Got value: (.*)', r"Expected --\1 as \2, got \3"),
    (r'^expected "command" to be (.*), but it was not provided', r"Expected a command, \1, got none"),
    (r"the following arguments are required: (?:\w+\.)?(out)\b", r"Expected --\1, got nothing"),
    (r"the following arguments are required: (?:\w+\.)?(\w+)", r"Expected \1, got nothing"),
    (r"unrecognized arguments: (.*)", r"Expected no further arguments, got \1"),
]


class _Parser(ArgumentParser):
    """Hyphens in the help, one line for an error, the nearest option for an unknown one."""

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        text: str = super().format_help() if formatter is None else super().format_help(formatter)
        return re.sub(r"--[a-z]+(?:_[a-z]+)+", lambda match: match[0].replace("_", "-"), text)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        unknown = re.search(r"(?:unrecognized arguments: --|does not accept option ')([\w.-]+)", message)
        if unknown:
            raise ConfigError(unknown_key(unknown[1], _SETTINGS, source="the command line"))
        text = " ".join(message.split()).rstrip(".")
        for pattern, plain in _PLAIN:
            text = re.sub(pattern, plain, text)
        raise ConfigError(f"{text}; see --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    terminate = signal.signal(signal.SIGTERM, _terminate)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.print(f"[yellow]warning:[/] {escape(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", UserWarning)
        warnings.filterwarnings("ignore", module=r"(lightning|torch|matplotlib)")
        warnings.showwarning = show
        try:
            arguments = _parse(list(sys.argv[1:] if argv is None else argv))
            return _run(arguments, console)
        except RunStoppedError as stop:
            console.print(f"[yellow]midam:[/] {escape(str(stop))}")
            return 130
        except KeyboardInterrupt:
            console.print("[yellow]midam:[/] stopped")
            return 130
        except MidamError as error:
            console.print(f"[red]midam: error:[/] {escape(_one_line(error))}")
            return 2
        except OSError as error:
            where = f" (in {error.filename})" if error.filename else ""
            text = f"Expected a file that can be read or written, got: {error.strerror or error}{where}"
            console.print(f"[red]midam: error:[/] {escape(text)}; check path, access and free space, and repeat.")
            return 2
        finally:
            signal.signal(signal.SIGTERM, terminate)


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
        title = f"training {config.pooling} x {config.estimator} x {config.objective} on {escape(options.data)}"
        with FitProgress(config.epochs, console=console) as bar:
            summary = fit_run(
                options.data,
                config,
                folder,
                on_start=lambda: console.print(title),
                on_epoch=lambda row, _: bar.update(row),
            )
    print_summary(stdout_console(), summary, run=str(folder.root))
    return 0


def _run_folder(options: Namespace, config: FitConfig) -> RunFolder:
    if options.out is not None:
        return RunFolder(Path(options.out))
    name = f"{Path(options.data).stem}-{config.pooling}-{config.estimator}-seed{config.seed}"
    return free_folder(Path("runs"), name)


def _predict(options: Namespace) -> int:
    _keep_data(options)
    run = load_run(RunFolder(Path(options.run)))
    bags = read_for(run, options.data)
    scores, probabilities = predict_run(run, bags)
    rows = prediction_rows(bags.ids, scores, labels=bags.labels, splits=None, probabilities=probabilities)
    columns = ["bag", *(["label"] if bags.labels is not None else []), "score", "probability"]
    write_text(Path(options.out), csv_text(columns, rows))
    stdout_console().print(f"{len(bags)} bags scored: {escape(options.out)}")
    return 0


def _evaluate(options: Namespace) -> int:
    _keep_data(options)
    run = load_run(RunFolder(Path(options.run)))
    result = evaluate_run(run, read_for(run, options.data))
    if options.out is not None:
        write_json(Path(options.out), result)
    print_evaluation(stdout_console(), result)
    return 0


def _keep_data(options: Namespace) -> None:
    if options.out is None:
        return
    out = Path(options.out).resolve()
    if out == Path(options.data).resolve() or (out.exists() and Path(options.run).resolve() in out.parents):
        raise ConfigError(
            f"Expected another file than the data or one of the run's for --out, got {options.out}; choose a new name."
        )


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
        stdout_console().print(escape(f"{options.name}: {where}"))
        return 0
    bags = read_data(options.name, FitConfig())
    print_description(stdout_console(), options.name, bag_facts(options.name, bags), bags.sizes)
    return 0


def _parse(argv: list[str]) -> Namespace:
    argv = _normalise(argv)
    defaults, resumed = {}, "--resume" in argv
    if argv[:1] == ["fit"]:
        given = [key for key in (*_SETTINGS, "config", "out") if any(_names(token, key) for token in argv)]
        if resumed and given:
            raise ConfigError(
                f"Expected no settings with --resume, got --{given[0]}: a resumed run keeps its own; start a new "
                "one to change them."
            )
        if argv.count("--config") > 1:
            raise ConfigError("Expected --config once, got it several times; join the files.")
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


def _names(token: str, key: str) -> bool:
    return token == f"--{key}" or token.startswith((f"--{key}.", f"--{key}+"))


def _normalise(argv: list[str]) -> list[str]:
    """`--some-flag=x` to `--some_flag x`, a bare flag to `--flag true`, `--list a,b` to `--list [a,b]`."""
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
        plain = at + 1 < len(tokens) and not tokens[at + 1].startswith(("[", "--"))
        if tokens[at][2:] in _LISTS and tokens[at].startswith("--") and plain:
            parts = next(csv.reader([tokens[at + 1]]))
            # Quoted, or YAML would read the columns 2020 and no as a number and a truth value.
            texts = [json.dumps(part) for part in parts] if _LISTS[tokens[at][2:]] == list[str] else parts
            tokens[at + 1] = f"[{', '.join(texts)}]"
    return tokens


def _parser(defaults: dict[str, Any]) -> ArgumentParser:
    fit = _Parser(prog="midam fit", allow_abbrev=False, description=_FIT)
    fit.add_argument("data", nargs="?", default=defaults.pop("data", None), help=_DATA)
    fit.add_argument("--out", type=str | None, default=None, help="run folder; default: a new one in runs/")
    fit.add_argument("--resume", type=str | None, default=None, metavar="RUN", help="continue this run in place")
    fit.add_argument(
        "--config", type=str | None, default=None, metavar="FILE", help="settings as YAML, such as RUN/config.yaml"
    )
    fit.add_class_arguments(FitConfig, nested_key=None)
    fit.set_defaults(defaults)
    predict = _Parser(
        prog="midam predict", allow_abbrev=False, description="Score bags with a trained run; labels are not needed."
    )
    predict.add_argument("run", type=str, help="run folder")
    predict.add_argument("data", type=str, help=_DATA)
    predict.add_argument(
        "--out", type=str, required=True, metavar="FILE.csv", help="where to write bag, score, probability"
    )
    evaluate = _Parser(
        prog="midam evaluate",
        allow_abbrev=False,
        description="Test a trained run on labelled bags; bags the run was trained on are told apart, never mixed in.",
    )
    evaluate.add_argument("run", type=str, help="run folder")
    evaluate.add_argument("data", type=str, help=_DATA)
    evaluate.add_argument(
        "--out", type=str | None, default=None, metavar="FILE.json", help="also write the figures as JSON"
    )
    data = _Parser(prog="midam data", allow_abbrev=False, description="List, describe or fetch data.")
    data.add_argument("action", choices=["list", "describe", "fetch"], help="what to do")
    data.add_argument("name", type=str | None, nargs="?", default=None, help="catalogue name, or a file for describe")
    top = _Parser(
        prog="midam", allow_abbrev=False, description="Multi-instance deep AUC maximisation.", version=__version__
    )
    commands = top.add_subcommands(dest="command")
    for parser, text in (
        (fit, "train a bag classifier and test it"),
        (predict, "score bags"),
        (evaluate, "test a run on labelled bags"),
        (data, "list, describe or fetch data"),
    ):
        commands.add_subcommand(str(parser.prog).split()[-1], parser, help=text)
    return top


def _one_line(error: BaseException) -> str:
    return " ".join(line.strip() for line in str(error).splitlines())


def _terminate(*_: object) -> NoReturn:
    # A preempted job stops like Ctrl-C: the last whole epoch is on disk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
