"""`midam evaluate`: test a trained run on labeled bags."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from midam.cli.outputs import keep_data
from midam.cli.parser import Parser
from midam.cli.predict import add_inputs, read_inputs
from midam.registry import METRICS


def parser() -> ArgumentParser:
    """Options of the command."""
    text = "Test a trained run on labeled bags; bags the run was trained on are told apart, never mixed in."
    evaluate = Parser("evaluate", text)
    add_inputs(evaluate)
    known = f"further metrics: {', '.join(METRICS.names())}, or class paths such as mypkg.metrics.partial_auroc"
    evaluate.add_argument("--metrics", type=str, default="", metavar="A,B,...", help=known)
    evaluate.add_text("--out", metavar="FILE.json", help="also write the figures as JSON")
    return evaluate


def run(options: Namespace, console: Console) -> int:
    """Test a run; returns the exit code."""
    from midam.files import write_json
    from midam.report.terminal import BagProgress, print_evaluation, stdout_console
    from midam.runs.apply import evaluate_run

    keep_data(options)
    trained, bags = read_inputs(options, labeled=True)
    metrics = [name.strip() for name in options.metrics.split(",") if name.strip()]
    with BagProgress("scoring", bags.sizes, console=console) as progress:
        result = evaluate_run(trained, bags, metrics=metrics, on_bags=progress.update_all)
    if options.out is not None:
        write_json(Path(options.out), result)
    print_evaluation(stdout_console(), result)
    return 0
