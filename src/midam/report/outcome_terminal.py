"""Results on the terminal where bags are ranked by more than 0 and 1."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from midam.evaluate.outcomes.decide import RISKS
from midam.report.words import MERITS, merit_of_part

_FIGURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "bal. acc.",
    "quadratic_kappa": "kappa",
    "kendall_tau": "tau",
    "spearman": "Spearman",
    "mae": "mean error",
    "mae_constant": "of a constant",
    "events": "events",
    "c_ipcw": "C (IPCW)",
}
_MOST = 30  # classes that are listed


def format_merit(part: Mapping[str, Any]) -> str:
    """Figure of merit with its interval, for people."""
    merit = merit_of_part(part)
    if part[merit] is None:
        return f"{MERITS[merit]} not defined (no two bags that the labels order)"
    interval = part.get(f"{merit}_ci95")
    said = "" if interval is None else " (95% CI {:.3f} to {:.3f})".format(*interval)
    return f"{MERITS[merit]} {part[merit]:.3f}{said}"


def print_outcomes(console: Console, parts: Mapping[str, Mapping[str, Any]], *, headline: str) -> None:
    """A row a part, and of the headline's part a row a class or label."""
    first = next(iter(parts.values()))
    shown = [name for name in _FIGURES if any(part.get(name) is not None for part in parts.values())]
    merit = merit_of_part(first)
    table = Table("bags", "n", MERITS[merit], "95% CI", *(_FIGURES[name] for name in shown), box=None)
    for name, part in parts.items():
        interval = part.get(f"{merit}_ci95")
        cells = [str(part["bags"]), _cell(part[merit]), "-" if interval is None else "{:.3f}-{:.3f}".format(*interval)]
        table.add_row(name, *cells, *(_cell(part.get(key)) for key in shown))
    console.print(table)
    classes = parts[headline].get("per_class")
    if classes:
        table = Table(f"{headline} bags of", "n (+)", "AUROC", "95% CI", "AP", box=None)
        for name, own in list(classes.items())[:_MOST]:
            interval = own.get("auroc_ci95")
            low_high = "-" if interval is None else "{:.3f}-{:.3f}".format(*interval)
            counts = f"{own['positives'] + own['negatives']} ({own['positives']})"
            table.add_row(escape(name), counts, _cell(own["auroc"]), low_high, _cell(own.get("ap")))
        console.print(table)
    _print_risks(console, parts[headline], headline=headline)
    for message in parts[headline].get("warnings", []):
        console.print(f"[yellow]note:[/] {headline}: {escape(message)}")


def _print_risks(console: Console, part: Mapping[str, Any], *, headline: str) -> None:
    """A line on the groups of risk, where there are some."""
    rows = part.get("risk_groups")
    if rows:
        said = ", ".join(f"{RISKS[row['group']]} {row['events']} of {row['bags']}" for row in rows)
        p = part["log_rank_p"]
        test = "" if p is None else f" (log-rank p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"
        console.print(f"{headline} bags with the event, by risk: {said}{test}")


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
