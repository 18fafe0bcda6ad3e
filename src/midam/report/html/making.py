"""The sections on how the model came about: flow of bags, learning curves, settings, versions and hashes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from midam.report.html.chart import Chart, Range, span
from midam.report.html.markup import (
    Cell,
    Column,
    Html,
    Section,
    box,
    facts,
    figure,
    folded,
    join,
    listing,
    pair,
    paragraph,
    table,
    tag,
    titled,
)
from midam.report.html.study import NAMES, PartBags, Report, ScoredBags
from midam.report.words import MERITS, merit_of

_OF_DRAWS = (
    ("Weight drawn", [("drawn_weight", "Share of a bag's remembered weight")]),
    (
        "Witnesses drawn",
        [
            ("drawn_witnesses", "Share of positive bags' draws that hold one"),
            ("found_witnesses", "Share of the witnesses drawn so far"),
        ],
    ),
    ("Drift of the memory", [("memory_drift", "Standard deviations")]),
    ("Age of the memory", [("memory_age", "Epochs since the last pass over all bags")]),
)
_FITS, _TESTS = "fits the weights", "tests, and nothing else"


class Counts(NamedTuple):
    """How the labels of parts are counted: lines on the card of some parts, and columns and cells of a table.

    `validates` is what validation bags are for.
    """

    lines: Callable[[Sequence[Any]], list[str]]
    columns: Sequence[str]
    cells: Callable[[Any], Sequence[Cell]]
    validates: str = "thresholds, calibration"


def data_flow(study: Report, counts: Counts | None = None, *more: Html) -> Section:
    """Where the bags went; by default positive ones are counted, and `more` stands at the end."""
    said = _POSITIVES if counts is None else counts
    heads = ["bags", *said.columns, "groups", "instances"]
    columns = [Column("part"), *(Column(head, True) for head in heads)]
    rows = [[NAMES.get(name, name), *_cells(bags, said)] for name, bags in study.parts.items()]
    body = [_diagram(study, said)]
    if study.left_out:
        body.append(box("Left out, or warned of, when the data was read", listing(study.left_out), warn=True))
    else:
        body.append(paragraph("Reading the data left nothing out and warned of nothing.", note=True))
    body.append(folded("The same as a table", table("Bags of each part", columns, rows)))
    return Section("flow", "Data: what was trained and tested on", join([*body, *more]))


def _cells(bags: PartBags, counts: Counts) -> list[Cell]:
    groups = None if bags.groups is None else len(np.unique(bags.groups))
    instances = None if bags.sizes is None else f"{int(bags.sizes.sum()):,}"
    return [len(bags), *counts.cells(bags), groups, instances]


def _diagram(study: Report, counts: Counts) -> Html:
    """The run's data above its parts, and new data beside it."""
    own = {name: bags for name, bags in study.parts.items() if name != "new"}
    trees = list[Html]()
    roles = {"train": _FITS, "val": counts.validates, "test": _TESTS}
    if own:
        leaves = (tag("li", _card(NAMES[name], [bags], counts, roles[name])) for name, bags in own.items())
        whole = _card("all bags of the run", list(own.values()), counts)
        trees.append(tag("li", whole, tag("ul", *leaves), class_="tree"))
    if "new" in study.parts:
        source, card = tag("strong", study.data), _card("new data", [study.parts["new"]], counts, _TESTS)
        trees.append(tag("li", source, tag("div", class_="down"), card))
    return tag("ul", *trees, class_="flow")


def _card(title: str, parts: Sequence[PartBags], counts: Counts, role: str = "") -> Html:
    lines = [f"{sum(map(len, parts)):,} bags", *counts.lines(parts)]
    if all(part.groups is not None for part in parts):
        groups = len(set().union(*(set(part.groups.tolist()) for part in parts if part.groups is not None)))
        lines.append(f"{groups:,} groups")
    if all(part.sizes is not None for part in parts):
        lines.append(f"{sum(int(part.sizes.sum()) for part in parts if part.sizes is not None):,} instances")
    said = tag("span", role, class_="role") if role else Html("")
    return tag("div", tag("strong", title), *(tag("span", line) for line in lines), said, class_="card")


def _positive(parts: Sequence[ScoredBags]) -> list[str]:
    bags, positives = sum(map(len, parts)), sum(part.positives for part in parts)
    return [f"{positives:,} positive ({positives / bags:.1%})"]


def _shares(bags: ScoredBags) -> list[Cell]:
    return [bags.positives, f"{bags.positives / len(bags):.1%}" if len(bags) else None]


_POSITIVES = Counts(_positive, ("positive", "share"), _shares)


def training(study: Report, *, left: int = 50) -> Section:
    """Learning curves, with so many pixels to the left of the charts."""
    history, title = study.history, "Training"
    if not history:
        return Section("training", title, paragraph("The model was fitted in one step: there are no epochs to draw."))
    merit = merit_of(history)
    drawn = pair(
        _curves(study, "Loss", (("loss", "Training"), ("val_loss", "Validation")), left),
        _curves(study, MERITS[merit], ((f"train_{merit}", "Training"), (f"val_{merit}", "Validation")), left),
    )
    known = [(name, kinds) for name, kinds in _OF_DRAWS if any(row.get(kinds[0][0]) is not None for row in history)]
    if known:
        drawn = join([drawn, pair(*(_curves(study, name, kinds, left) for name, kinds in known))])
    chosen = study.selected
    words = (
        f"Reported are the weights of epoch {chosen.get('epoch')} ({chosen.get('weights')}) of {len(history)}. The "
        f"training {MERITS[merit]} is that of the scores that the steps used: a coarse signal, not an evaluation."
    )
    return Section("training", title, join([drawn, paragraph(words, note=True)]))


def _curves(study: Report, name: str, kinds: Sequence[tuple[str, str]], left: int) -> Html:
    columns = {key: [(row["epoch"], row.get(key)) for row in study.history] for key, _ in kinds}
    known = {
        key: [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]
        for key, pairs in columns.items()
    }
    values = [y for pairs in known.values() for _, y in pairs]
    last = float(max(row["epoch"] or 0 for row in study.history))
    axes = Range("Epoch", 0, max(last, 1)), Range(name, *span(values))
    chart = Chart(f"{name} along the epochs.", *axes, left=left)
    for at, (key, title) in enumerate(kinds):
        if known[key]:
            x, y = zip(*known[key])
            chart.line(x, y, color=at, dash=at, name=title)
    if study.best_epoch is not None:
        chart.rule(study.best_epoch, name=f"Best validation (epoch {study.best_epoch})")
    return figure(chart.drawing(), titled(f"{name} along the epochs."), keys=chart.keys())


def provenance(study: Report) -> Section:
    """Settings, versions, hashes and the command."""
    body = settings_tables(study.facts, study.changed, study.settings)
    return Section("provenance", "How it was made: settings, versions, hashes", body)


def settings_tables(
    known: Sequence[tuple[str, str]], changed: Sequence[tuple[str, str, str]], everything: Sequence[tuple[str, str]]
) -> Html:
    """Facts, settings that differ from their defaults, and all settings."""
    body = [facts([(name, _exact(value)) for name, value in known], caption="How to find and repeat it")]
    body.append(tag("h3", "Settings that differ from the defaults"))
    if changed:
        rows = [(name, tag("code", value), tag("code", default)) for name, value, default in changed]
        body.append(table("Settings that were chosen", ["setting", "value", "default"], rows))
    else:
        body.append(paragraph("None: every setting has its default."))
    whole = facts([(name, tag("code", value)) for name, value in everything], caption="All settings")
    return join([*body, folded(f"All {len(everything)} settings", whole)])


def _exact(value: str) -> Html:
    return tag("span", value, class_="hash") if len(value) > 30 else tag("span", value)
