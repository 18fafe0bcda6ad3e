"""`midam paper NAME`: one of the paper's tables, figures and claims, with its page."""

from pathlib import Path

from joblib import cpu_count
from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.parser import Parser
from midam.paper.options import CACHE, OUT, StudyOptions
from midam.paper.registry import STUDIES, check_study, run_study
from midam.paper.store import take_published
from midam.report.terminal import stdout_console


def parser() -> ArgumentParser:
    """Return the parser of the command."""
    studies = "; ".join(f"{name}: {study.help}" for name, study in STUDIES.items())
    paper = Parser(
        prog="midam paper",
        allow_abbrev=False,
        description="Run one of the paper's studies and write its page, DIR/NAME.md, with its figures. Finished "
        f"trials are kept: a stopped study goes on where it was. {studies}.",
    )
    paper.add_argument("name", type=str, help=f"one of {', '.join(STUDIES)}")
    paper.add_argument("--quick", action="store_true", help="a part of the study that ends in minutes")
    paper.add_argument("--out", type=str, default=str(OUT), metavar="DIR", help="folder of the page and figures")
    paper.add_argument("--cache", type=str, default=str(CACHE), metavar="DIR", help="folder of the finished trials")
    paper.add_argument(
        "--trials",
        type=str | None,
        default=None,
        metavar="FILE",
        help="published trials to start from, DIR/trials/NAME.jsonl.gz of a page: those that are missing are computed",
    )
    paper.add_argument("--jobs", type=int, default=cpu_count(), help="processes at a time; default: one a core")
    paper.add_argument("--margin", type=float | None, default=None, help="margin c of the AUC objectives (table2, ...)")
    paper.add_argument("--splits", type=int | None, default=None, help="random splits (table2)")
    paper.add_argument("--protocol", type=str | None, default=None, help="protocol: splits or cv (table2)")
    paper.add_argument("--size", type=str | None, default=None, help="size: full, small or paper (table3, ...)")
    paper.add_argument("--device", type=str | None, default=None, help="device: auto, cpu or cuda (table3, ...)")
    return paper


def run(options: Namespace, console: Console) -> int:
    """Run the study; returns the exit code."""
    settings = StudyOptions(
        quick=options.quick,
        out=Path(options.out),
        cache=Path(options.cache),
        jobs=options.jobs,
        margin=options.margin,
        splits=options.splits,
        protocol=options.protocol,
        size=options.size,
        device=options.device,
        console=console,
    )
    trials = None if options.trials is None else Path(options.trials)
    check_study(options.name, settings, trials=trials)
    if trials is not None:
        count = take_published(trials, settings.cache)
        console.print(f"took {count} lines of published trials into {escape(str(settings.cache))}")
    run_study(options.name, settings)
    stdout_console().print(f"page: {escape(str(settings.out / options.name))}.md")
    return 0
