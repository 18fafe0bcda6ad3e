"""Bags of each class or grade by what they are called: a chart, the same as a table, and each class by itself."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.evaluate.proportions import proportion
from midam.report.html.chart import Chart
from midam.report.html.markup import (
    Cell,
    Column,
    Html,
    estimate,
    figure,
    folded,
    join,
    number,
    paragraph,
    table,
    titled,
)
from midam.report.html.outcome_kind import MOST_NAMES, plural

_FOLDED = 30  # classes up to which a click shows the whole table
_PAIRS = 15


def confusion(counts: Sequence[Sequence[int]], names: Sequence[str], *, what: str) -> Html:
    """The matrix `confusion` of the summary, a row a true class, of `what` "class" or "grade"."""
    found = np.asarray(counts, dtype=np.int64)
    parts = [_chart(found, names, what)] if len(names) <= MOST_NAMES else [_pairs(found, names, what)]
    if len(names) <= _FOLDED:
        heads = [Column(f"true {what}"), *(Column(name, True) for name in names)]
        rows = [
            [name, *(number(count, form=".0f", key=f"confusion.{i}.{j}") for j, count in enumerate(row))]
            for i, (name, row) in enumerate(zip(names, found.tolist()))
        ]
        title = "The same as a table" if len(names) <= MOST_NAMES else "All of them as a table"
        parts.append(folded(title, table(f"Bags of each {what} by what they are called", heads, rows)))
    return join(parts)


def _chart(counts: NDArray[np.int64], names: Sequence[str], what: str) -> Html:
    says = f"Confusion of {plural(len(names), what)}: rows are the true ones, columns what bags are called."
    chart = Chart.of_cells(says, (f"called this {what}", f"true {what}"), names)
    for i, row in enumerate(counts.tolist()):
        for j, count in enumerate(row):
            share = count / max(sum(row), 1)
            tip = f"{names[i]} called {names[j]}: {count} of {sum(row)} bags ({share:.0%})"
            chart.cell(j, i, share, f"{count}" if count else "", color=0 if i == j else 1, tip=tip)
    words = f" Bags of each {what}, a row, by what they are called; the darker a cell, the more of its row it holds."
    return figure(chart.drawing(), titled("Confusion.", words), kind="tall" if len(names) > 8 else None)


def _pairs(counts: NDArray[np.int64], names: Sequence[str], what: str) -> Html:
    """The most frequent confusions."""
    wrong = counts * (1 - np.eye(len(counts), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_PAIRS]
    rows = []
    for i, j in zip(*(part.tolist() for part in np.unravel_index(order, wrong.shape))):
        count, of = int(wrong[i, j]), int(counts[i].sum())
        if count:
            rows.append([names[i], names[j], count, f"{count / of:.0%} of {of}"])
    if not rows:
        return paragraph("No bag was called wrongly.")
    heads = [Column(what), Column("called"), Column("bags", True), Column(f"of this {what}", True)]
    return table("The most frequent confusions", heads, rows, sorts=True)


def each(codes: ArrayLike, called: ArrayLike, names: Sequence[str], *, what: str, groups: ArrayLike | None) -> Html:
    """How much of each class is found, and how much of what is called so is of it, with intervals."""
    true, told = np.asarray(codes), np.asarray(called)
    units, rows = None if groups is None else np.asarray(groups), list[list[Cell]]()
    for code, name in enumerate(names):
        own, of = true == code, told == code
        shares = [
            proportion((true == told)[inside], groups=None if units is None else units[inside]) for inside in (own, of)
        ]
        rows.append([name, int(own.sum()), int(of.sum()), *map(estimate, shares)])
    heads = [Column(what), Column("bags", True), Column("called so", True)]
    heads += [Column("found (recall)"), Column("right when called so (precision)")]
    return table(f"Each {what}, with 95% Wilson intervals", heads, rows, sorts=True)
