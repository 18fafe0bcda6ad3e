"""The section on parts of the bags: by site, by size, by any column; and the forest plot, which comparisons share."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.evaluate.subgroups import Subgroup, find_subgroups
from midam.report.html.chart import Chart, Range
from midam.report.html.markup import Cell, Column, Html, Section, estimate, figure, join, paragraph, table, tag, titled
from midam.report.html.study import PartBags, Study

_SITES = re.compile(r"\b(site|center|centre|hospital|clinic|institution|institute|scanner|vendor)s?\b", re.IGNORECASE)
_SHORT = 18  # letters of a level that stays in one line
_FIGURES = ("auroc", "sensitivity", "specificity")


TITLE = "Subgroups: is it as good for everyone?"
NONE_ASKED = (
    "No subgroups were asked for. `--subgroups COLUMN --table FILE` of `midam report` shows those of any table."
)
DIFFERENCES = (
    "Differences are to the largest level of each column, from the two intervals (Zou and Donner). Few bags "
    "give wide intervals: no difference found is not the same as no difference. Nothing here is corrected for "
    "looking at many subgroups."
)


class Row(NamedTuple):
    """A line of a forest plot."""

    name: str
    found: Estimate | None
    shape: str = "circle"
    color: int = 0


def subgroups(study: Study) -> Section:
    """Each column: figures of its levels, and their differences to the largest."""
    if not study.columns:
        return Section("subgroups", TITLE, paragraph(NONE_ASKED))
    parts = [_column(study, name, levels) for name, levels in study.columns.items()]
    return Section("subgroups", TITLE, join([paragraph(DIFFERENCES), *parts]))


def _column(study: Study, name: str, levels: NDArray[np.str_]) -> Html:
    tested = study.tested
    found = find_subgroups(tested.labels, tested.scores, levels, threshold=study.threshold, groups=tested.groups)
    heading = f"Site by site: {name}" if names_sites(name) else f"By {name}"
    bounds = study.summary["auroc_ci95"]
    total = None if bounds is None else Estimate(study.summary["auroc"], bounds[0], bounds[1], len(tested))
    rows = [Row(f"{part.level} (n = {part.bags})", part.auroc) for part in found]
    rows.append(Row(f"all (n = {len(tested)})", total, "diamond", 1))
    drawing = forest(rows, "AUROC", f"AUROC of each level of {name}, with 95% intervals.")
    caption = titled(f"AUROC by {name}.", " Lines are 95% intervals; the dashed line is that of all bags.")
    body = [tag("h3", heading), figure(drawing, caption, kind="tall"), _table(name, found)]
    return join([*body, shared_groups(levels, tested.groups)])


def names_sites(column: str) -> bool:
    """Whether a column tells sites apart, by its name."""
    return _SITES.search(column.replace("_", " ")) is not None


def beside_own_test(study: Study) -> Html:
    """Figures of new bags beside those of the run's own test bags; nothing where there are none."""
    own, new = study.parts.get("test"), study.tested
    if not study.external or own is None or not own.both_classes or not new.both_classes:
        return Html("")
    names = ("own test bags", study.data)
    levels = np.repeat(names, [len(own), len(new)])
    groups = units_of(own, new)
    both = (np.append(own.labels, new.labels), np.append(own.scores, new.scores), levels)
    found = find_subgroups(*both, threshold=study.threshold, groups=groups, reference=names[0])
    return _table(
        "data", sorted(found, key=lambda part: part.level != names[0]), caption="Beside the run's own test bags"
    )


def units_of(own: PartBags, new: PartBags) -> list[str]:
    """Groups of the bags of two data sets, none of which is one of the other; the bags where they have no groups."""
    units = [part.ids if own.groups is None or part.groups is None else part.groups for part in (own, new)]
    return [f"{at} {group}" for at, names_of in enumerate(units) for group in names_of]


def _table(name: str, found: Sequence[Subgroup], *, caption: str | None = None) -> Html:
    rows = []
    for part in found:
        level = tag("span", part.level, class_="nowrap") if len(part.level) < _SHORT else part.level
        cells: list[Cell] = [level, part.bags, part.positives]
        for what in _FIGURES:
            cells.append(estimate(getattr(part, what)))
            gap = part.differences.get(what)
            if what != "specificity":
                same = "reference" if not part.differences and part.auroc is not None else None
                cells.append(same if gap is None else estimate(gap, form="+.3f"))
        rows.append(cells)
    heads = [Column(name), Column("bags", True), Column("positive", True)]
    heads += [Column(head) for head in ("AUROC", "difference", "sensitivity", "difference ", "specificity")]
    return table(caption or f"Figures by {name}, with 95% intervals", heads, rows, sorts=True)


def shared_groups(levels: NDArray[np.str_], groups: NDArray[np.str_] | None) -> Html:
    """A caution where groups have bags in several levels."""
    if groups is None:
        return Html("")
    pairs = np.unique(np.stack([groups, levels]), axis=1)
    if len(np.unique(pairs[0])) == int(pairs.shape[1]):
        return Html("")
    return paragraph("Some groups have bags in several levels, so that these are not independent.", note=True)


def forest(
    rows: Sequence[Row],
    label: str,
    description: str,
    *,
    reference: float | None = None,
    marked: bool = True,
    missing: str = "one class only",
) -> Html:
    """A forest plot: a line a row, a hollow dot where there is no interval, `missing` where there is no figure.

    A dashed line stands at the reference, by default the figure of the last row, if it is `marked`.
    """
    known = [row.found for row in rows if row.found is not None]
    bounds = [bound for found in known for bound in found[:3] if np.isfinite(bound)]
    low, high = (min(bounds), max(bounds)) if bounds else (0.0, 1.0)
    mark = reference if reference is not None else next((row.found.value for row in rows[::-1] if row.found), None)
    room = 0.05 * (high - low) or 0.05
    x = Range(label, min(low, mark or low) - room, max(high, mark or high) + room)
    chart = Chart.of_rows(description, x, [row.name for row in rows], height=26)
    if mark is not None and marked:
        chart.rule(mark)
    for y, row in enumerate(rows):
        if row.found is None:
            chart.write((x.low + x.high) / 2, y + 0.15, missing)
            continue
        value, start, end, _ = row.found
        whole = np.isfinite(start)
        tip = f"{row.name}: {value:.3f}" + (f" [{start:.3f} to {end:.3f}]" if whole else "")
        shape = row.shape if whole or row.shape == "diamond" else "open"
        chart.dot(value, y, tip=tip, x_bar=(start, end) if whole else None, color=row.color, shape=shape)
    return chart.drawing()
