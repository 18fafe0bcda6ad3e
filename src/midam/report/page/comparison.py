"""The page of a comparison: methods on the same folds, their paired differences, and the folds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from midam.errors import plural
from midam.evaluate.labeled_instances import IN_BAG
from midam.evaluate.proportions import Estimate
from midam.lazy_imports import pandas as pd
from midam.report.figures import ORANGE, Row, plot_forest
from midam.report.page.render import Box, Figure, Note, Number, Part, Section, Table, cell, made, render
from midam.report.words import INSTANCE_NAMES, METRIC_NAMES, capitalized


@dataclass(frozen=True)
class MethodsStudy:
    """Content of the page of a comparison; settings and facts are as in `midam.report.page.study.Study`.

    `methods` are the rows of summary.csv, `scores` the table predictions.csv, `basis` is a sentence on the intervals,
    and `metric` a key of `midam.report.words.METRIC_NAMES`. `by_class` has a row for each class or label: its name, and
    its AUROC by each method.
    """

    data: str
    methods: Sequence[Mapping[str, Any]]
    scores: "pd.DataFrame"
    basis: str
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    metric: str = "auroc"
    by_class: Sequence[Sequence[Any]] = ()

    @property
    def names(self) -> list[str]:
        """Names of the methods."""
        return [row["method"] for row in self.methods]


def _estimate(row: Mapping[str, Any], name: str) -> Estimate | None:
    """Return a metric of a row of summary.csv with its interval, or None."""
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return Estimate(value, low, high, int(row["folds"])) if np.isfinite(value) else None


def comparison_page(study: MethodsStudy) -> str:
    """Return the HTML of the page."""
    sections = [
        Section("answer", "The answer", _answer(study)),
        Section("metrics", "How well they rank", _metrics(study)),
    ]
    warnings = [
        "With many differences, some lie off zero by chance: intervals are not corrected for their number.",
        "The best of many methods looks better than it is: test it on bags that took no part here.",
        *study.notes,
    ]
    sections.append(Section("caution", "Before you rely on it", [Box("Limits of these results", warnings)]))
    parts = [_folds(study), Part("Settings and versions", made(study.facts, study.changed, study.settings))]
    sections.append(Section("made", "How it was made: folds, settings, versions", parts))
    title = f"{study.data}: {len(study.methods)} methods on the same folds"
    return render("page.html", title=title, kicker="Comparison", sections=sections)


def _answer(study: MethodsStudy) -> list[Any]:
    """Return the methods with the highest mean, and those whose paired interval excludes 0."""
    first, metric = study.names[0], study.metric
    means = np.nan_to_num([row[metric] for row in study.methods], nan=-1.0)
    best = np.flatnonzero(np.isclose(means, means.max(), rtol=0, atol=1e-12)).tolist()
    names, have = ", ".join(study.names[at] for at in best), "share" if best[1:] else "has"
    lead = Markup("Of {} methods, <strong>{}</strong> {} the highest mean {}: {}.").format(
        len(means), names, have, METRIC_NAMES[metric], cell(_estimate(study.methods[best[0]], metric))
    )
    apart = [
        f"{row['method']} ({'above' if gap.value > 0 else 'below'})"
        for row in study.methods[1:]
        if (gap := _estimate(row, "difference")) and np.isfinite(gap.low) and gap.low * gap.high > 0
    ]
    if not apart:
        return [lead, f"No paired interval separates a method from {first}, the reference."]
    return [lead, f"By the paired interval, these differ from {first}, the reference: {', '.join(apart)}."]


def _metrics(study: MethodsStudy) -> list[Any]:
    first, metric, rows = study.names[0], study.metric, list[list[Any]]()
    gaps = [Row(first, Estimate(0.0, np.nan, np.nan, 0), "D", ORANGE)]
    for method in study.methods:
        name, gap = method["method"], _estimate(method, "difference")
        gaps += [Row(name, gap, color=ORANGE)] if rows else []
        area = Number(_estimate(method, metric), key=f"{name}.{metric}")
        rows.append([name, area, Number(gap, "+.3f", f"{name}.difference") if rows else "reference"])
        rows[-1] += [Number(method["auprc"])] if metric == "auroc" else []
        rows[-1] += [Number(method[cost], form) for cost, form in (("folds", ".0f"), ("seconds", ".2f"))]
    precision_head = ["average precision"] if metric == "auroc" else []
    heads = ["method", METRIC_NAMES[metric], f"difference to {first}", *precision_head, "folds", "seconds a trial"]
    differences = plot_forest(gaps, f"Difference to {first}", reference=0.0)
    blocks = [
        Table("Methods on the same folds", heads, rows, sorts=True),
        Note(f"Every method was trained and tested on the same folds. {study.basis} A hollow dot has no interval."),
        Figure(differences, "Paired differences, 95% intervals."),
        *_instances(study),
    ]
    if study.by_class:
        heads = ["class or label", *study.names]
        by_class = [[name, *map(Number, areas)] for name, *areas in study.by_class]
        blocks.append(Table("AUROC of each class or label, mean over folds", heads, by_class, sorts=True))
        blocks.append(Note("The mean is over the folds whose test bags hold both a class and others."))
    return blocks


def _instances(study: MethodsStudy) -> list[Any]:
    """Return a table of how well contributions find labeled instances, if the methods were evaluated on such."""
    names = [name for name in IN_BAG if name in study.methods[0]]
    if not names:
        return []
    rows = [[method["method"], *(_estimate(method, name) for name in names)] for method in study.methods]
    heads = ["method", *(capitalized(INSTANCE_NAMES[name]) for name in names)]
    text = "Contributions against the known labels of instances, which no training used; mean over folds."
    dash = "A dash: the method only scores bags, or no fold has bags with both labels."
    return [Table("Did the right instances decide?", heads, rows, sorts=True), Note(f"{text} {dash}")]


def _folds(study: MethodsStudy) -> Part:
    """Return how many bags the folds test."""
    tested = study.scores.drop_duplicates(["repeat", "fold", "bag"])  # of any method
    if not len(tested):
        return Part("Folds", ["No fold could be used."])
    folds = tested.groupby(["repeat", "fold"])
    repeats, of_them = tested["repeat"].nunique(), ""
    if "positive" in tested:
        counts = (tested["label"] == tested["positive"]).groupby([tested["repeat"], tested["fold"]]).sum()
        of_them = f", {_range(counts)} of them positive"
    text = f"{plural(repeats, 'repeat')} of {len(folds) // repeats} folds"
    return Part("Folds", [f"{text}; each tests {_range(folds.size())} bags{of_them}."])


def _range(values: "pd.Series[Any]") -> str:
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low} to {high}"
