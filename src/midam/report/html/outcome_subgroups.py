"""The section on parts of the bags where they are ranked by more than 0 and 1: by site, by size, by any column."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.outcomes.subgroups import OutcomeSubgroup, outcome_subgroups
from midam.report.html.markup import Cell, Column, Html, Section, estimate, figure, join, paragraph, table, tag, titled
from midam.report.html.outcome_study import OutcomeStudy
from midam.report.html.subgroups import (
    DIFFERENCES,
    NONE_ASKED,
    TITLE,
    Row,
    forest,
    names_sites,
    shared_groups,
    units_of,
)
from midam.targets import target_named


def subgroups(study: OutcomeStudy) -> Section:
    """Each column: the figure of merit of its levels, and their differences to the largest."""
    if not study.columns:
        return Section("subgroups", TITLE, paragraph(NONE_ASKED))
    parts = [_column(study, name, levels) for name, levels in study.columns.items()]
    return Section("subgroups", TITLE, join([paragraph(DIFFERENCES), *parts]))


def beside_own_test(study: OutcomeStudy) -> Html:
    """The figure of new bags beside that of the run's own test bags; nothing where there are none."""
    own, new = study.parts.get("test"), study.tested
    if not study.external or own is None:
        return Html("")
    names = ("own test bags", study.data)
    levels = np.repeat(names, [len(own), len(new)])
    values, scores = np.concatenate([own.values, new.values]), np.concatenate([own.scores, new.scores])
    units, estimate = units_of(own, new), target_named({"target": study.target, "names": study.names}).estimate
    found = outcome_subgroups(estimate, values, scores, levels, groups=units, reference=names[0])
    found = sorted(found, key=lambda part: part.level != names[0])
    return _table(study, "data", found, caption="Beside the run's own test bags")


def _column(study: OutcomeStudy, name: str, levels: NDArray[np.str_]) -> Html:
    tested, merit = study.tested, study.merit_name
    estimate = target_named({"target": study.target, "names": study.names}).estimate
    found = outcome_subgroups(estimate, tested.values, tested.scores, levels, groups=tested.groups)
    rows = [Row(f"{part.level} (n = {part.bags})", part.found) for part in found]
    rows.append(Row(f"all (n = {len(tested)})", study.figure(study.merit), "diamond", 1))
    drawing = forest(rows, merit, f"{merit} of each level of {name}, with 95% intervals.", missing="nothing to rank")
    caption = titled(f"{merit} by {name}.", " Lines are 95% intervals; the dashed line is that of all bags.")
    heading = f"Site by site: {name}" if names_sites(name) else f"By {name}"
    body = [tag("h3", heading), figure(drawing, caption, kind="tall"), _table(study, name, found)]
    return join([*body, shared_groups(levels, tested.groups)])


def _table(study: OutcomeStudy, name: str, found: Sequence[OutcomeSubgroup], *, caption: str | None = None) -> Html:
    rows: list[list[Cell]] = []
    compared = any(part.gap is not None for part in found)
    for part in found:
        same = "reference" if compared and part.gap is None and part.found is not None else None
        gap = same if part.gap is None else estimate(part.gap, form="+.3f")
        rows.append([part.level, part.bags, estimate(part.found), gap])
    heads = [Column(name), Column("bags", True), Column(study.merit_name), Column("difference")]
    return table(caption or f"{study.merit_name} by {name}, with 95% intervals", heads, rows, sorts=True)
