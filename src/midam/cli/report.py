"""`midam report`: write one HTML page about a run, its evaluation on other data, or a comparison."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from midam.cli.data import MASKS
from midam.cli.evaluate import evaluated
from midam.cli.outputs import keep_other, tell_left_out
from midam.cli.parser import DATA, Options, Parser, words
from midam.cli.predict import TABLES
from midam.errors import ConfigError
from midam.report.program import note_result, say, stdout_console

if TYPE_CHECKING:
    from midam.runs.data import SubgroupTable

_TEXT = """Write one HTML page to forward: flow of bags, ROC, precision-recall, calibration, net benefit, operating
points, subgroups, errors and settings. Without DATA, it is about the test bags
of the run, and nothing is computed again; with DATA, about the run tested on it; for the folder of a comparison, about
its methods. The page is one file and needs no network."""


def parser() -> Parser:
    """Return the parser of the command."""
    report = Parser("report", _TEXT)
    report.add_argument("run", help="run folder, or folder of a comparison")
    report.add_argument("data", nargs="?", help=f"other data to test on: {DATA}")
    text = "HTML file; default: report.html in the folder, report-DATA.html with DATA"
    report.add_text("--out", metavar="FILE.html", help=text)
    report.add_argument("--subgroups", default="", metavar="A,B,...", help="columns of --table to show")
    report.add_text("--table", metavar="FILE", help="CSV, TSV or Excel with a row for each bag, or patient (group)")
    text = "replace names of bags, groups, levels and files; the key is PAGE.pseudonyms.csv next to the page"
    report.add_argument("--pseudonyms", action="store_true", help=text)
    report.add_text("--instance-masks", metavar="DIR", help=f"with DATA: {MASKS}")
    report.add_settings(TABLES, of_run=True)
    return report


def run(options: Options, console: Console) -> int:
    """Write the page; returns the exit code."""
    from midam.report.pseudonyms import Pseudonyms
    from midam.runs.report import evaluation_path, write_evaluation_report, write_run_report

    table = _table(options)
    root, out = Path(options.run), None if options.out is None else Path(options.out)
    page = out or (root / "report.html" if options.data is None else evaluation_path(root, options.data))
    key = Pseudonyms(page) if options.pseudonyms else None
    keep_other(options, ("page", page), *([] if key is None else [("key", key.path)]))
    if options.data is None and options.instance_masks is not None:
        raise ConfigError("Expected DATA with --instance-masks, got none; name the images that the masks label.")
    if options.data is not None:
        bags, evaluation, notes = evaluated(options, console)
        tell_left_out(bags, page, stdout_console())
        path = write_evaluation_report(
            root, bags, evaluation, out=out, key=key, data=options.data, table=table, notes=notes
        )
    elif (root / "trials.jsonl").exists():
        from midam.compare.report import write_comparison_report

        if table is not None:
            raise ConfigError("Expected no --subgroups for a comparison, got some; name the folder of a run.")
        path = write_comparison_report(root, out=out, key=key)
    else:
        path = write_run_report(root, out=out, table=table, key=key)
    note_result(report=path)
    say(f"report: {path}")
    if key is not None:
        say(f"the key of its pseudonyms, not to be shared: {key.write()}")
    return 0


def _table(options: Options) -> "SubgroupTable | None":
    from midam.runs.data import SubgroupTable

    columns = words(options.subgroups)
    if bool(columns) != (options.table is not None):
        raise ConfigError("Expected --subgroups and --table together, got one alone; name the columns and their file.")
    key = options.values.get("bag_column")
    return SubgroupTable(Path(options.table), columns, key) if columns else None
