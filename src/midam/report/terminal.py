"""What the command line shows: progress, results, data descriptions."""

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from midam.data import catalog
from midam.data.bags import Bags

_LINES = 10
_PLAIN_WIDTH = 120


class FitProgress:
    """Progress of a training run: a bar with loss and validation AUROC on a terminal, ten plain lines elsewhere.

    Parameters
    ----------
    epochs : int
        Epochs in all.
    console : Console
        Where to draw.
    """

    def __init__(self, epochs: int, *, console: Console) -> None:
        self._epochs = epochs
        self._console = console
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=epochs, state="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, row: Mapping[str, Any]) -> None:
        """Show a finished epoch."""
        val = row["val_auroc"]
        state = f"loss {row['loss']:.4f}" + ("" if val is None else f"  val AUROC {val:.3f}")
        self._bar.update(self._task, completed=row["epoch"], state=state)
        every = max(1, self._epochs // _LINES)
        if not self._console.is_terminal and (row["epoch"] % every == 0 or row["epoch"] == self._epochs):
            self._console.print(f"epoch {row['epoch']}/{self._epochs}  {state}", soft_wrap=True)


def stdout_console() -> Console:
    """Console for results, plain where the output is not a terminal."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _PLAIN_WIDTH)
    return console


def print_summary(console: Console, summary: Mapping[str, Any], *, run: str) -> None:
    """Result of a run: a row a split, then the headline and the folder."""
    parts = [name for name in ("test", "val", "train") if name in summary]
    _print_parts(console, {name: summary[name] for name in parts})
    headline = parts[0]
    for message in summary[headline].get("warnings", []):
        console.print(f"[yellow]note:[/] {headline}: {escape(message)}")
    other = {k: v for k, v in summary["by_weights"].items() if k != summary["selected"]["weights"]}
    for key, values in other.items():
        if values.get("test_auroc") is not None:
            console.print(
                f"weights of the {key} epoch ({values['epoch']}) instead: test AUROC {values['test_auroc']:.3f}"
            )
    if summary["members"] > 1:
        console.print(f"scores are the mean of {summary['members']} scorers trained from different seeds")
    console.print(f"{headline} AUROC {format_auroc(summary[headline])}")
    console.print(f"run folder: {escape(run)}")


def print_evaluation(console: Console, result: Mapping[str, Any]) -> None:
    """Result of `midam evaluate`."""
    parts = {name: result[name] for name in ("new", "test", "val", "train") if name in result}
    _print_parts(console, parts)
    headline = result["headline"]
    for message in result[headline].get("warnings", []):
        console.print(f"[yellow]note:[/] {headline}: {escape(message)}")
    label = {"new": "new bags", "train": "train bags (no test: the model has seen them)"}.get(
        headline, f"{headline} bags"
    )
    console.print(f"{label}: AUROC {format_auroc(result[headline])}")


def format_auroc(part: Mapping[str, Any]) -> str:
    """AUROC with its interval, for people."""
    if part["auroc"] is None:
        return "not defined (one class only)"
    low, high = part["auroc_ci95"]
    return f"{part['auroc']:.3f} (95% CI {low:.3f} to {high:.3f}, {part['auroc_method']})"


def print_catalog(console: Console, entries: Sequence[Mapping[str, Any]]) -> None:
    """The data sets of the catalogue."""
    table = Table("name", "bags (+)", "instances", "features", "here", "what", box=None, header_style="bold")
    for entry in entries:
        table.add_row(
            entry["name"],
            f"{entry['bags']} ({entry['positives']})",
            str(entry["instances"]),
            str(entry["features"]),
            escape(entry["location"] or "to fetch"),
            entry["description"],
        )
    console.print(table)


def bag_facts(name: str, bags: Bags) -> dict[str, Any]:
    """Facts about labelled bags, and about their data set where `name` is in the catalogue."""
    labels, sizes = bags.require_labels(), bags.sizes
    facts: dict[str, Any] = {}
    if name in catalog.CATALOG:
        entry = catalog.describe(name)
        facts = {key: entry[key] for key in ("description", "licence", "citation", "url", "location")}
    facts |= {
        "bags": f"{len(bags)} ({int(labels.sum())} positive)",
        "instances": f"{bags.num_instances}, {sizes.mean():.2f} a bag ({sizes.min()} to {sizes.max()})",
        "instance shape": list(bags.instance_shape),
    }
    if 0 < labels.sum() < len(labels):
        facts["mean bag size"] = f"{sizes[labels == 1].mean():.1f} positive, {sizes[labels == 0].mean():.1f} negative"
    if bags.splits is not None:
        facts["splits"] = ", ".join(f"{part} {int((bags.splits == part).sum())}" for part in ("train", "val", "test"))
    if bags.groups is not None:
        facts["groups"] = len(set(bags.groups.tolist()))
    return facts


def print_description(console: Console, name: str, facts: Mapping[str, Any], sizes: NDArray[np.int64]) -> None:
    """Facts about a set of bags, and a histogram of its bag sizes."""
    console.print(f"[bold]{escape(name)}[/]")
    for key, value in facts.items():
        console.print(f"  {key}: {escape(str(value))}")
    edges = np.unique(np.round(np.geomspace(sizes.min(), sizes.max() + 1, 9)).astype(int))
    if len(edges) < 2:
        return
    counts, _ = np.histogram(sizes, bins=edges)
    console.print("  bag sizes:")
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        label = f"{low}" if high - low == 1 else f"{low}-{high - 1}"
        console.print(f"    {label:>13} {'#' * int(np.ceil(40 * count / counts.max()))} {count}")


def _print_parts(console: Console, parts: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table("bags", "n (+)", "AUROC", "95% CI", "AUPRC", "sens.", "spec.", "bal. acc.", "F1", "Brier", box=None)
    for name, part in parts.items():
        at = part.get("at_threshold") or {}
        interval = "-" if part["auroc"] is None else "{:.3f}-{:.3f}".format(*part["auroc_ci95"])
        cells = [part["auroc"], interval, part["auprc"]]
        cells += [at.get(key) for key in ("sensitivity", "specificity", "balanced_accuracy", "f1")]
        cells.append(part.get("brier"))
        table.add_row(name, f"{part['bags']} ({part['positives']})", *(_cell(c) for c in cells))
    console.print(table)


def _cell(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.3f}"
