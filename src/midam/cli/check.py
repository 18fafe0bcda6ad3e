"""`midam check`: test whether a run keeps the assumption of multi-instance learning."""

from rich.console import Console
from rich.markup import escape

from midam.cli.parser import Options, Parser
from midam.cli.predict import add_inputs, read_inputs
from midam.report.program import note_result, stdout_console

_TEXT = """Test whether a run keeps the assumption of multi-instance learning: a bag is positive because of what it
holds. Adds instances of negative bags to positive ones, removes those that decided, and counts each twice."""


def parser() -> Parser:
    """Return the parser of the command."""
    check = Parser("check", _TEXT)
    add_inputs(check)
    check.add_argument("--most", type=int, default=100, metavar="N", help="bags of each class (default: 100)")
    return check


def run(options: Options, console: Console) -> int:
    """Check a run; returns the exit code."""
    from midam.errors import require_counts
    from midam.report.page.assumption import assumption_words
    from midam.runs.assumption import check_run

    require_counts(most=options.most)
    trained, bags = read_inputs(options, console)
    result = check_run(trained, bags, most=options.most)
    note_result(**result)
    messages = stdout_console()
    bags_of = f"{result['positive']} positive and {result['negative']} negative bags"
    which = {"labeled": "", "called": ", by the calls of the run"}[result["positives"]]
    messages.print(f"[bold]{bags_of}[/]{which}")
    for line in assumption_words(result):
        messages.print(escape(line))
    if result["part"] == "train":
        messages.print("most of these bags trained or validated the run: give others for a fair answer")
    return 0
