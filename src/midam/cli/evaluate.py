"""`midam evaluate`: test a trained run on labelled bags."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from midam.cli.parser import DATA, Parser
from midam.cli.predict import TABLES, add_tables, keep_data
from midam.report.terminal import BagProgress, print_evaluation, stdout_console
from midam.runs.apply import evaluate_run, load_run, read_for
from midam.runs.folder import RunFolder, write_json


def parser() -> ArgumentParser:
    """Options of the command."""
    evaluate = Parser(
        prog="midam evaluate",
        allow_abbrev=False,
        description="Test a trained run on labelled bags; bags the run was trained on are told apart, never mixed in.",
    )
    evaluate.add_argument("run", type=str, help="run folder")
    evaluate.add_argument("data", type=str, help=DATA)
    add_tables(evaluate)
    evaluate.add_argument(
        "--out", type=str | None, default=None, metavar="FILE.json", help="also write the figures as JSON"
    )
    return evaluate


def run(options: Namespace, console: Console) -> int:
    """Test a run; returns the exit code."""
    keep_data(options)
    trained = load_run(RunFolder(Path(options.run)))
    bags = read_for(trained, options.data, **{name: options[name] for name in TABLES})
    with BagProgress("scoring", bags.sizes, console=console) as progress:
        result = evaluate_run(trained, bags, on_bags=progress.update_all)
    if options.out is not None:
        write_json(Path(options.out), result)
    print_evaluation(stdout_console(), result)
    return 0
