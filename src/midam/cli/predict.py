"""`midam predict`: score bags with a trained run."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_data, keep_other, keep_sources
from midam.cli.parser import DATA, TRUST, Parser
from midam.errors import RunStoppedError

if TYPE_CHECKING:
    from midam.data.bags import Bags
    from midam.runs.apply import LoadedRun
    from midam.runs.journal import ScoreJournal

TABLES = {
    "labels": "label table of a folder of feature files, or of a store",
    "slides": "table of patients and their files, where the label table is one of patients",
    "bag_column": "column that names the bag or the file; default: the run's",
    "label_column": "column of the label; default: the run's",
    "positive": "value of the label column that is label 1; default: by the names of the run's classes",
    "sheet": "sheet of an Excel table; default: the first, of the run's own data the run's",
    "groups": "column of the group; default: the run's",
    "missing": "what to do about rows whose file is missing; default: the run's",
}


def parser() -> ArgumentParser:
    """Options of the command."""
    predict = Parser("predict", "Score bags with a trained run; labels are not needed.")
    add_inputs(predict)
    text = "where to write bag, score, probability, class; a device or pipe, such as /dev/stdout, is written to"
    predict.add_argument("--out", type=str, required=True, metavar="FILE.csv", help=text)
    text = "also write DIR/<bag>.h5 with score, weight and attention of each instance; needs the extra hdf5"
    predict.add_text("--instances", metavar="DIR", help=text)
    return predict


def add_inputs(parser: ArgumentParser) -> None:
    """Add the run, the data, and the options of `add_tables`."""
    parser.add_argument("run", type=str, help="run folder")
    parser.add_argument("data", type=str, help=DATA)
    add_tables(parser)


def add_tables(parser: ArgumentParser) -> None:
    """Add --trust, and the options that say how labels are read where the run's own settings do not hold."""
    parser.add_argument("--trust", action="store_true", help=TRUST)
    for name, text in TABLES.items():
        kind = str | None if name != "missing" else Literal["error", "skip"] | None
        parser.add_argument(f"--{name}", type=kind, default=None, help=text)


def read_inputs(options: Namespace, *, labeled: bool = False) -> "tuple[LoadedRun, Bags]":
    """Run and bags that the options of `add_inputs` name; `labeled` bags need labels."""
    from midam.runs.apply import load_run, read_for

    run = load_run(options.run, trust=options.trust)
    return run, read_for(run, options.data, labeled=labeled, **{name: options[name] for name in TABLES})


def run(options: Namespace, console: Console) -> int:
    """Score bags; returns the exit code."""
    from midam.files import is_stream, write_text
    from midam.report.terminal import BagProgress, stdout_console
    from midam.runs.apply import predict_run
    from midam.runs.judge import decision_notes, predictions_text
    from midam.runs.outcomes import outcome_predictions

    keep_data(options)
    trained, bags = read_inputs(options)
    for name in ("out", "instances"):
        if options[name] is not None:
            keep_sources(bags, options.data, options[name], f"--{name}", folder=name == "instances")
    keep_other(Path(options.out))
    out, folder = Path(options.out), None if options.instances is None else Path(options.instances)
    with _journal(options, trained) as journal:
        if journal is not None and len(journal):
            console.print(f"{escape(str(journal.path))} holds the scores of {len(journal)} bags: going on from there")
        try:
            with BagProgress("scoring", bags.sizes, console=console) as bar:
                scores, probabilities = predict_run(
                    trained, bags, instances=folder, journal=journal, on_bags=bar.update_all
                )
        except KeyboardInterrupt:
            if journal is None or not len(journal):
                raise
            raise RunStoppedError(
                f"stopped; {journal.path} holds {len(journal)} of {len(bags)} bags. The same command goes on from there"
            ) from None
        if trained.target.name == "binary":
            called: dict[str, Any] = {"threshold": trained.threshold, "classes": trained.data["classes"]}
            text = predictions_text(bags, scores, probabilities=probabilities, **called)
        else:
            text = outcome_predictions(bags, trained.target, scores, decision=trained.target.decision(trained.decision))
        write_text(out, text)
        if journal is not None:
            journal.remove()
    # What reads the scores from a stream reads nothing else there.
    said = console if is_stream(out) else stdout_console()
    for note in decision_notes(trained.calibrator):
        said.print(f"[yellow]note:[/] {escape(note)}")
    said.print(f"{len(bags)} bags scored: {escape(options.out)}")
    return 0


def _journal(options: Namespace, trained: "LoadedRun") -> "AbstractContextManager[ScoreJournal | None]":
    """Scores that a stopped call has left beside its file; a stream has none."""
    from midam.files import is_stream, resolved
    from midam.runs.journal import ScoreJournal

    if is_stream(Path(options.out)):
        return nullcontext()
    out = resolved(Path(options.out))
    call = {"run": trained.digest(), "chunk_size": trained.settings.run.chunk_size}
    call["instances"] = None if options.instances is None else str(Path(options.instances).resolve())
    return ScoreJournal(out.with_name(f"{out.name}.part"), call)
