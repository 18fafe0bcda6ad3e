"""`midam predict`: score bags with a trained run."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_data, keep_sources
from midam.cli.parser import DATA, TRUST, Parser
from midam.errors import RunStoppedError

if TYPE_CHECKING:
    from midam.data.bags import Bags
    from midam.runs.apply import LoadedRun

TABLES = {
    "labels": "label table of a folder of feature files, or of a store",
    "slides": "table of patients and their files, where the label table is one of patients",
    "bag_column": "column that names the bag or the file; default: the run's",
    "label_column": "column of the label; default: the run's",
    "positive": "value of the label column that is label 1; default: the run's",
    "groups": "column of the group; default: the run's",
    "missing": "what to do about rows whose file is missing; default: the run's",
}


def parser() -> ArgumentParser:
    """Options of the command."""
    predict = Parser("predict", "Score bags with a trained run; labels are not needed.")
    add_inputs(predict)
    text = "where to write bag, score, probability"
    predict.add_argument("--out", type=str, required=True, metavar="FILE.csv", help=text)
    text = "also write DIR/<bag>.h5 with score, weight and attention of each instance; needs midam[hdf5]"
    predict.add_text("--instances", metavar="DIR", help=text)
    return predict


def add_inputs(parser: ArgumentParser) -> None:
    """Add the run, the data, and the options of `add_tables`."""
    parser.add_argument("run", type=str, help="run folder")
    parser.add_argument("data", type=str, help=DATA)
    parser.add_argument("--trust", action="store_true", help=TRUST)
    add_tables(parser)


def add_tables(parser: ArgumentParser) -> None:
    """Add the options that say how labels are read where the run's own settings do not hold."""
    for name, text in TABLES.items():
        kind = str | None if name != "missing" else Literal["error", "skip"] | None
        parser.add_argument(f"--{name}", type=kind, default=None, help=text)


def read_inputs(options: Namespace) -> "tuple[LoadedRun, Bags]":
    """Run and bags that the options of `add_inputs` name."""
    from midam.runs.apply import load_run, read_for

    run = load_run(options.run, trust=options.trust)
    return run, read_for(run, options.data, **{name: options[name] for name in TABLES})


def run(options: Namespace, console: Console) -> int:
    """Score bags; returns the exit code."""
    from midam.files import write_text
    from midam.report.terminal import BagProgress, stdout_console
    from midam.runs.apply import predict_run
    from midam.runs.folder import csv_text
    from midam.runs.journal import ScoreJournal
    from midam.runs.results import prediction_rows

    keep_data(options)
    trained, bags = read_inputs(options)
    for name in ("out", "instances"):
        if options[name] is not None:
            keep_sources(bags, options.data, options[name], f"--{name}", folder=name == "instances")
    out, folder = Path(options.out), None if options.instances is None else Path(options.instances)
    call = {"run": trained.digest(), "chunk_size": trained.settings.run.chunk_size}
    call["instances"] = None if folder is None else str(folder.resolve())
    with ScoreJournal(out.with_name(f"{out.name}.part"), call) as journal:
        if len(journal):
            console.print(f"{escape(str(journal.path))} holds the scores of {len(journal)} bags: going on from there")
        try:
            with BagProgress("scoring", bags.sizes, console=console) as bar:
                scores, probabilities = predict_run(
                    trained, bags, instances=folder, journal=journal, on_bags=bar.update_all
                )
        except KeyboardInterrupt:
            if not len(journal):
                raise
            raise RunStoppedError(
                f"stopped; {journal.path} holds {len(journal)} of {len(bags)} bags. The same command goes on from there"
            ) from None
        rows = prediction_rows(bags.ids, scores, labels=bags.labels, splits=None, probabilities=probabilities)
        columns = ["bag", *(["label"] if bags.labels is not None else []), "score", "probability"]
        write_text(out, csv_text(columns, rows))
        journal.remove()
    stdout_console().print(f"{len(bags)} bags scored: {escape(options.out)}")
    return 0
