"""Output of the command line: progress, results, data descriptions."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from rich import progress
from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.markup import escape
from rich.table import Column, Table

from midam.data.bags import Bags
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.metrics import NEAR_CHANCE
from midam.report import words
from midam.report.program import remark

if TYPE_CHECKING:
    from midam.report.describe import BagDescription

_LINES, _EVERY_SECONDS = 10, 30.0  # of plain output: lines for all the work, and seconds between two
_WHOLE = Column(no_wrap=True)
_SPARE = 3  # columns for the ^C of a terminal, which would otherwise break the line and leave a second bar
_SIZE_BINS, _BAR = 8, 40
# Figures of a part of a summary, for all targets; the page and the card show those of `CardWords` of the target.
_FIGURES = {
    **{"auprc": "AUPRC", "at_threshold.sensitivity": "sens.", "at_threshold.specificity": "spec."},
    **{"at_threshold.balanced_accuracy": "bal. acc.", "at_threshold.f1": "F1", "brier": "Brier"},
    **{"accuracy": "accuracy", "balanced_accuracy": "bal. acc.", "quadratic_kappa": "kappa"},
    **{"spearman": "Spearman", "mae": "mean error", "mae_constant": "of a constant", "events": "events"},
}


class LiveProgress:
    """Context manager of a progress bar with `columns` and a state, shown only on a terminal; an error removes it.

    Without a terminal, plain lines are printed after each tenth of the work, and at least every half minute, whatever
    the work does.
    """

    def __init__(self, title: str, *columns: Any, total: float | None = None, console: Console) -> None:
        self._console = console
        bar_columns = ("{task.description}", progress.BarColumn(), *columns, "{task.fields[state]}")
        # On a narrow terminal, the bar shrinks first.
        times = (progress.TimeElapsedColumn(table_column=_WHOLE), progress.TimeRemainingColumn(table_column=_WHOLE))
        self._bar = _Bar(*bar_columns, *times, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(title, total=total, state="")
        self._tenths, self._shown_at, self._moved_at = 0, time.monotonic(), 0.0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._bar.start()
        if not self._console.is_terminal:
            threading.Thread(target=self._say_that_it_runs, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        if self._bar.disable:
            return  # rich 14 would print an empty line
        self._bar.live.transient = kind is not None
        self._bar.stop()

    def show(self, done: float, total: float, state: str, line: str | None = None) -> None:
        """Show finished work, by default by its state; `line` is that of a console that is no terminal."""
        self._move(done, total, state)
        tenths = int(_LINES * done // total)
        if tenths > self._tenths or self._moved_at - self._shown_at >= _EVERY_SECONDS:
            self._tenths = tenths
            self._print(line or state)

    def _move(self, done: float, total: float, state: str) -> None:
        self._bar.update(self._task, completed=done, total=total, state=state)
        self._moved_at = time.monotonic()

    def _print(self, line: str) -> None:
        if not self._console.is_terminal:
            self._shown_at = time.monotonic()
            self._console.print(line, soft_wrap=True)

    def _say_that_it_runs(self) -> None:
        while not self._over.wait(_EVERY_SECONDS / 10):
            if time.monotonic() - self._shown_at >= _EVERY_SECONDS:
                task = self._bar.tasks[self._task]
                title = f"{task.description} {escape(task.fields['state'])}".rstrip()
                done = f", {task.completed / task.total:.0%} done" if task.total else ""
                seconds = int((task.time_remaining or 0.0) - (time.monotonic() - self._moved_at))
                left = f", {timedelta(seconds=seconds)} left" if seconds > 0 else ""
                with suppress(OSError, ValueError):  # a stream that has been closed
                    self._print(f"{title}{done}{left}")


class _Bar(progress.Progress):
    def get_renderable(self) -> RenderableType:
        width = max(1, self.console.width - _SPARE) if hasattr(self, "live") else None  # rich calls it before `start`
        return Constrain(super().get_renderable(), width)


class FitProgress(LiveProgress):
    """Progress of training and scoring: bars on a terminal, else ten plain lines for each stage."""

    def __init__(self, epochs: int, *, console: Console) -> None:
        self._epochs, self._title, self._bags, self._scored = epochs, "", 0, 0
        super().__init__("training", progress.MofNCompleteColumn(table_column=_WHOLE), total=epochs, console=console)

    def update(self, row: Mapping[str, Any]) -> None:
        """Show the loss and the validation metric of a finished epoch."""
        metric, loss = words.metric_of_history([row]), f"loss {row['loss']:.4f}"
        val = row[f"val_{metric}"]
        state = loss if val is None else f"{loss}  val {words.METRIC_NAMES[metric]} {val:.3f}"
        self.show(row["epoch"], self._epochs, state, f"epoch {row['epoch']}/{self._epochs}  {state}")

    def candidate(self, title: str, number: int, count: int, share: float) -> None:
        """Show that a `share` of the folds of method `number` of `count` is done: 0 as it begins."""
        self._move(number + share, count, title)
        if not share:
            self._print(f"{number + 1}/{count} {title}")

    def stage(self, title: str, bags: int) -> None:
        """Show that a stage after the last epoch begins, and the number of its bags (0 for none)."""
        self._bar.update(self._task, total=self._bar.tasks[self._task].completed)  # patience may have stopped early
        self._title, self._bags, self._scored, self._tenths = title, bags, 0, 0
        self._print(f"{title}: 0/{bags} bags" if bags else title)
        self._task = self._bar.add_task(title, total=bags or None, state="")

    def scored(self, bags: Sequence[int]) -> None:
        """Count bags that the trained model has scored."""
        self._scored += len(bags)
        self.show(self._scored, self._bags, "", f"{self._title}: {self._scored}/{self._bags} bags")


class BagProgress(LiveProgress):
    """Progress through bags of `sizes` [N] instances, which say how far the work is."""

    def __init__(self, title: str, sizes: NDArray[np.int64], *, console: Console) -> None:
        self._title, self._sizes = title, sizes
        self._bags = self._rows = 0
        super().__init__(title, console=console)

    def update(self, bag: int) -> None:
        """Count a bag, by its position."""
        self.update_all([bag])

    def update_all(self, bags: Sequence[int]) -> None:
        """Count bags, by their positions."""
        self._bags += len(bags)
        self._rows += int(self._sizes[bags].sum())
        state = f"{self._bags}/{len(self._sizes)} bags"
        self.show(self._rows, int(self._sizes.sum()), state, f"{self._title} {state}")


def print_summary(console: Console, summary: Mapping[str, Any], *, run: str) -> None:
    """Print the result of a run: a row for each split, then the headline and the folder."""
    parts = {name: summary[name] for name in ("test", "out_of_fold", "val", "train") if name in summary}
    headline = next(iter(parts))
    _print_parts(console, parts, headline)
    trained = summary.get("train", {}).get("auroc")
    if trained is not None and trained < NEAR_CHANCE:
        epochs = f" after {summary['epochs']} epochs" if "epochs" in summary else ""
        way_out = "raise --epochs or --lr" if epochs else "take another --method"
        text = f"even the training bags are hardly ranked (AUROC {trained:.3f}{epochs}): the model has not learned yet"
        remark(console, f"{text}, and its other metrics mean little; {way_out}", "warning")
    several = words.mean_words(summary)
    if several is not None:
        console.print(f"scores are {several}")
    if "folds" in summary:
        console.print(words.fold_words(summary))
    console.print(f"{_shown(headline)} {format_metric(summary[headline])}")
    _print_threshold(console, summary)
    _print_tried(console, summary)
    _print_baseline(console, summary)
    for line in words.covariate_words(summary["covariates"]) if "covariates" in summary else ():
        console.print(escape(line), soft_wrap=True)
    _print_instances(console, summary, headline)
    console.print(f"run folder: {escape(run)}")


def print_evaluation(console: Console, result: Mapping[str, Any]) -> None:
    """Print the result of `midam evaluate`."""
    parts = {name: result[name] for name in ("new", "test", "val", "train") if name in result}
    headline = result["headline"]
    caution = " (no test: the model has seen them)" if headline == "train" else ""
    _print_parts(console, parts, headline)
    for metric in result[headline].get("metrics", ()):
        values = ", ".join(f"{name} {_cell(part['metrics'][metric])}" for name, part in parts.items())
        console.print(f"{escape(metric)}: {values}")
    _print_instances(console, result, headline)
    _print_threshold(console, result)
    console.print(f"{headline} bags{caution}: {format_metric(result[headline])}")


def format_metric(part: Mapping[str, Any]) -> str:
    """Format the main metric with its interval."""
    metric = words.metric_of_part(part)
    if part[metric] is None:
        why = "one class only" if metric == "auroc" else "no two bags that the labels order"
        return f"{words.METRIC_NAMES[metric]} not defined ({why})"
    interval, method = part.get(f"{metric}_ci95"), part.get(f"{metric}_method")
    interval_text = "" if interval is None else "95% CI {:.3f} to {:.3f}".format(*interval)
    interval_text = f" ({', '.join(filter(None, (interval_text, method)))})" if interval_text else ""
    return f"{words.METRIC_NAMES[metric]} {part[metric]:.3f}{interval_text}"


def print_description(console: Console, name: str, facts: Mapping[str, Any], bags: Bags) -> None:
    """Print facts about bags and a histogram of bag sizes."""
    console.print(f"[bold]{escape(name)}[/]")
    for key, value in facts.items():
        console.print(f"  {key}: {escape(str(value))}")
    low, high = int(bags.sizes.min()), int(bags.sizes.max()) + 1
    spaced = np.geomspace if high > 10 * low else np.linspace  # on a logarithmic scale if sizes differ much
    edges = np.unique(spaced(low, high, _SIZE_BINS + 1).round().astype(np.int64))
    if len(edges) < 3:
        return
    counts, _ = np.histogram(bags.sizes, bins=edges)
    console.print("  bag sizes:")
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        label = f"{low}" if high - low == 1 else f"{low}-{high - 1}"
        console.print(f"    {label:>13} {'o' * int(np.ceil(_BAR * count / counts.max()))} {count}")


def print_warnings(console: Console, description: "BagDescription") -> None:
    """Print problems that can spoil a result, and checks that were skipped."""
    for kind, messages in (("warning", description.warnings), ("note", description.notes)):
        for message in messages:
            remark(console, message, kind)


def _print_instances(console: Console, result: Mapping[str, Any], headline: str) -> None:
    """Print how well contributions find labeled instances, of the headline's part or the next one that has some."""
    if (evaluated := words.instances_of(result.get("instances") or {}, headline)) is not None:
        part, entry = evaluated
        where = "" if part == headline else f" ({words.PART_NAMES[part]} bags)"
        console.print(f"{words.instance_words(entry)}{where}", soft_wrap=True)


def _print_threshold(console: Console, metrics: Mapping[str, Any]) -> None:
    """Print how the threshold was chosen, and a warning if its rule cannot be met."""
    if "thresholds" not in metrics:
        return
    thresholds = Thresholds.model_validate(metrics["thresholds"])
    console.print(f"threshold {thresholds.words}", soft_wrap=True)
    remark(console, thresholds.points[0].note, "warning")


def _print_tried(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the methods that `auto` tried, and the reason for its choice."""
    auto = summary.get("auto")
    if auto is None:
        return
    table = Table("tried", "AUROC, inner folds", "weight", "seconds", "", box=None)
    for row in auto["tried"]:
        cells = (_cell(row["auroc"]), f"{row['weight']:.2f}", f"{row['seconds']:.1f}", row["note"] or "")
        table.add_row(escape(row["method"]), *cells)
    console.print(table)
    console.print(escape(auto["note"]), soft_wrap=True)


def _print_baseline(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the comparison of the model with the baseline, and cautions and advice if needed."""
    baseline, note = summary.get("baseline"), summary.get("baseline_note")
    remark(console, note and f"no baseline to compare the model with: {note}", "warning")
    if baseline is None:
        return
    console.print(escape(words.result_words(baseline)))
    for text in words.baseline_notes(baseline):
        remark(console, text, "warning")


def _shown(part: str) -> str:
    """Return the name of a part as it is printed."""
    return part.replace("_", "-")


def _print_parts(console: Console, parts: Mapping[str, Mapping[str, Any]], headline: str) -> None:
    """Print a row for each part; for the headline's part, also its notes."""
    metric = words.metric_of_part(next(iter(parts.values())))
    keys = [key for key in _FIGURES if any(_figure(part, key) is not None for part in parts.values())]
    counted = "n (+)" if "positives" in parts[headline] else "n"
    table = Table("bags", counted, words.METRIC_NAMES[metric], "95% CI", *(_FIGURES[key] for key in keys), box=None)
    for name, part in parts.items():
        positives = f" ({part['positives']})" if "positives" in part else ""
        bounds = "-".join(map(_cell, part.get(f"{metric}_ci95") or ("", "")))
        figures = (_cell(_figure(part, key)) for key in keys)
        table.add_row(_shown(name), f"{part['bags']}{positives}", _cell(part[metric]), bounds, *figures)
    console.print(table)
    for message in parts[headline].get("warnings", []):
        remark(console, f"{_shown(headline)}: {message}")


def _figure(part: Mapping[str, Any], key: str) -> Any:
    """Return a metric of a part; a dot in the key leads into a mapping."""
    place, _, name = key.rpartition(".")
    return ((part.get(place) or {}) if place else part).get(name)


def _cell(value: float | str | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
