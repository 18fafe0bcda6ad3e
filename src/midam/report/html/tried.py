"""The section on what `auto` tried: each method on held-out bags, its weight in the model, and why."""

from collections.abc import Mapping
from typing import Any

from midam.report.html.chart import Chart, Range, span
from midam.report.html.markup import Cell, Column, Html, Section, figure, join, number, paragraph, prose, table, titled

_SAYS = (
    "Each was trained on all inner folds but one and scored the bags of that one, fold by fold, with training bags "
    "alone: bags of validation and test had no say, and their figures are no part of this choice. What was taken was "
    "then trained on all training bags. Seconds are those of the inner folds."
)


def tried(found: Mapping[str, Any]) -> Section:
    """The methods as a chart and a table; `found` is the entry `auto` of summary.json."""
    known = [row for row in found["tried"] if row["auroc"] is not None]
    heads = [Column("method"), *(Column(name, True) for name in ("AUROC, inner folds", "weight", "seconds"))]
    rows: list[list[Cell]] = [
        [
            row["method"],
            number(row["auroc"], key=f"auto.tried.{at}.auroc"),
            number(row["weight"], form=".2f", key=f"auto.tried.{at}.weight"),
            number(row["seconds"], form=".1f"),
            _what(row),
        ]
        for at, row in enumerate(found["tried"])
    ]
    if found["auroc"] is not None:
        rows.append(
            ["the model", number(found["auroc"], key="auto.auroc"), None, None, "fitted for each fold on the others"]
        )
    body = [paragraph(prose(found["note"])), table("What was tried", [*heads, "what came of it"], rows)]
    if known:
        body.insert(1, _chart(known, found["auroc"]))
        body.append(paragraph(_SAYS, note=True))
    return Section("tried", "What was tried: each method, and why this was taken", join(body))


def _what(row: Mapping[str, Any]) -> str:
    """What came of a method, in words."""
    return row["note"] or ("taken" if row["weight"] > 0 else "left out: surely behind, or no better than chance")


def _chart(known: list[Mapping[str, Any]], mixed: float | None) -> Html:
    areas = [row["auroc"] for row in known] + ([] if mixed is None else [mixed])
    low, high = span(areas)
    names = [row["method"] for row in known] + ([] if mixed is None else ["the model"])
    across = Range("AUROC, mean of the inner folds", max(low, 0.0), min(high, 1.02))
    chart = Chart.of_rows("AUROC of what was tried, on the inner folds.", across, names, height=34)
    for y, row in enumerate(known):
        tip = f"{row['method']}: AUROC {row['auroc']:.3f}, weight {row['weight']:.2f}"
        chart.dot(row["auroc"], y, shape="circle" if row["weight"] > 0 else "open", tip=tip)
    chart.key("Taken", color=0)
    if any(row["weight"] == 0 for row in known):
        chart.key("Left out", color=0, shape="open")
    if mixed is not None:
        chart.dot(mixed, len(known), color=1, shape="diamond", radius=5, tip=f"the model: AUROC {mixed:.3f}")
        chart.key("The model, their weighted mean", color=1, shape="diamond")
    caption = titled("AUROC on the inner folds.", " The surer a method is behind the best, the smaller its weight.")
    return figure(chart.drawing(), caption, keys=chart.keys())
