"""`midam evaluate`: test a trained run on labeled bags."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from midam.cli.data import MASKS, with_masks
from midam.cli.outputs import keep_other, tell_left_out
from midam.cli.parser import Options, Parser, words
from midam.cli.predict import add_inputs, read_inputs
from midam.registry import METRICS
from midam.report.program import note_result, say, stdout_console

if TYPE_CHECKING:
    from midam.data.bags import Bags
    from midam.runs.apply import Evaluation


def parser() -> Parser:
    """Return the parser of the command."""
    text = "Test a trained run on labeled bags; bags that the run was trained on are reported separately."
    evaluate = Parser("evaluate", text)
    add_inputs(evaluate)
    known = f"further metrics: {', '.join(METRICS.names())}"
    evaluate.add_argument("--metrics", default="", metavar="A,B,...", help=known)
    evaluate.add_text("--instance-masks", metavar="PATH", help=MASKS)
    evaluate.add_text("--out", metavar="FILE.json", help="also write the metrics as JSON, and the report next to it")
    return evaluate


def run(options: Options, console: Console) -> int:
    """Test a run; returns the exit code."""
    from midam.files import is_stream, write_json
    from midam.report.terminal import print_evaluation
    from midam.runs.report import evaluation_path, write_evaluation_report
    from midam.runs.results import thresholds_of

    root, out = Path(options.run), None if options.out is None else Path(options.out)
    page = evaluation_path(root if out is None or is_stream(out) else out.parent, options.data)
    earlier = ", instead of an earlier one" if page.is_file() else ""
    each = words(options.metrics)
    for name in each:  # before bags are read and embedded
        METRICS.find(name)
    keep_other(options, ("page", page), *([] if out is None else [("metrics", out)]))
    bags, evaluation, notes = evaluated(options, console, metrics=each)
    try:
        tell_left_out(bags, page, stdout_console())
        # A link is followed only at a path that the user gave.
        write_evaluation_report(root, bags, evaluation, data=options.data, out=out and page, notes=notes)
    except OSError as error:
        # The run folder may be read-only; the metrics are still printed.
        warnings.warn(f"no report was written: {error.strerror} (in {page}); choose --out", stacklevel=2)
    else:
        note_result(report=page)
        say(f"report: {page}{earlier}")
    result = {**evaluation.result, "notes": [*notes, *evaluation.notes]}
    note_result(**result)
    print_evaluation(stdout_console(), {**evaluation.result, **thresholds_of(evaluation.decision)})
    if out is not None:  # last, because it may fail
        write_json(out, result, typed=True)
    return 0


def evaluated(
    options: Options, console: Console, *, metrics: Sequence[str] = ()
) -> "tuple[Bags, Evaluation, list[str]]":
    """Return the labeled bags that the options name, the evaluation of the run on them, and warnings from reading."""
    from midam.report.terminal import BagProgress
    from midam.runs.apply import evaluate_bags
    from midam.runs.data import noting

    with noting() as notes:
        trained, bags = read_inputs(options, console, labeled=True)
        bags = with_masks(bags, options)
    with BagProgress("scoring", bags.sizes, console=console) as progress:
        return bags, evaluate_bags(trained, bags, metrics=metrics, on_bags=progress.update_all), notes
