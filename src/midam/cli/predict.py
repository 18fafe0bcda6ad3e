"""`midam predict`: score bags with a trained run."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.parser import DATA, Parser
from midam.errors import ConfigError
from midam.report.terminal import stdout_console
from midam.runs.apply import load_run, predict_run, read_for
from midam.runs.folder import RunFolder, csv_text, write_text
from midam.runs.report import prediction_rows


def parser() -> ArgumentParser:
    """Options of the command."""
    predict = Parser(
        prog="midam predict", allow_abbrev=False, description="Score bags with a trained run; labels are not needed."
    )
    predict.add_argument("run", type=str, help="run folder")
    predict.add_argument("data", type=str, help=DATA)
    predict.add_argument(
        "--out", type=str, required=True, metavar="FILE.csv", help="where to write bag, score, probability"
    )
    return predict


def run(options: Namespace, console: Console) -> int:  # noqa: ARG001
    """Score bags; returns the exit code."""
    keep_data(options)
    trained = load_run(RunFolder(Path(options.run)))
    bags = read_for(trained, options.data)
    scores, probabilities = predict_run(trained, bags)
    rows = prediction_rows(bags.ids, scores, labels=bags.labels, splits=None, probabilities=probabilities)
    columns = ["bag", *(["label"] if bags.labels is not None else []), "score", "probability"]
    write_text(Path(options.out), csv_text(columns, rows))
    stdout_console().print(f"{len(bags)} bags scored: {escape(options.out)}")
    return 0


def keep_data(options: Namespace) -> None:
    """Refuse to write over the data or a file of the run."""
    if options.out is None:
        return
    out = Path(options.out).resolve()
    if out == Path(options.data).resolve() or (out.exists() and Path(options.run).resolve() in out.parents):
        raise ConfigError(
            f"Expected another file than the data or one of the run's for --out, got {options.out}; choose a new name."
        )
