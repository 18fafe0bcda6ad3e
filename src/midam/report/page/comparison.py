"""The page of a comparison: methods on the same folds, their paired differences, curves and folds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from midam.errors import plural
from midam.evaluate.labeled_instances import IN_BAG
from midam.evaluate.proportions import Estimate
from midam.report.figures import ORANGE
from midam.report.page.render import Box, Figure, Note, Number, Pair, Part, Section, Table, cell, made, render
from midam.report.plot_runs import Row, plot_forest
from midam.report.plot_scores import plot_mean_curves
from midam.report.words import INSTANCE_NAMES, METRIC_NAMES, capitalized

_GRID = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class Tested:
    """Scores [n] or [n, C] of a method on the test bags of a fold; `labels` [n] are 0 or 1 for two classes."""

    repeat: int
    fold: int
    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    metric: float


@dataclass(frozen=True)
class Method:
    """A method with its row of summary.csv and its folds."""

    name: str
    figures: Mapping[str, float]
    tested: Sequence[Tested]

    def estimate(self, name: str) -> Estimate | None:
        """Return a metric of the summary with its interval, or None."""
        value, low, high = (self.figures[key] for key in (name, f"{name}_low", f"{name}_high"))
        return Estimate(value, low, high, int(self.figures["folds"])) if np.isfinite(value) else None


@dataclass(frozen=True)
class MethodsStudy:
    """Content of the page of a comparison; settings and facts are as in `midam.report.page.target_page.Study`.

    `basis` is a sentence on the intervals, and `metric` a key of `midam.report.words.METRIC_NAMES`. `by_class` has a
    row for each class or label: its name, and its AUROC by each method.
    """

    data: str
    methods: Sequence[Method]
    basis: str
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    metric: str = "auroc"
    by_class: Sequence[tuple[str, Sequence[float]]] = ()

    @property
    def title(self) -> str:
        """Name of the metric, with a capital letter."""
        return capitalized(METRIC_NAMES[self.metric])


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
    """Return the method with the highest mean, and those whose paired interval excludes 0."""
    (first, *others), metric = study.methods, study.metric
    ranked = sorted((m for m in study.methods if m.estimate(metric)), key=lambda m: -m.figures[metric])
    best = ranked[0] if ranked else first
    lead = Markup("Of {} methods, <strong>{}</strong> has the highest mean {}: {}.").format(
        len(study.methods), best.name, METRIC_NAMES[metric], cell(best.estimate(metric))
    )
    gaps = {m.name: m.estimate("difference") for m in others}
    apart = [
        f"{name} ({'above' if gap.value > 0 else 'below'})"
        for name, gap in gaps.items()
        if gap and np.isfinite(gap.low) and gap.low * gap.high > 0
    ]
    if not apart:
        return [lead, f"No paired interval separates a method from {first.name}, the reference."]
    return [lead, f"By the paired interval, these differ from {first.name}, the reference: {', '.join(apart)}."]


def _metrics(study: MethodsStudy) -> list[Any]:
    first, metric, metric_name, rows = study.methods[0].name, study.metric, METRIC_NAMES[study.metric], []
    for method in study.methods:
        figures, estimate = method.figures, method.estimate("difference")
        gap = "reference" if method.name == first else Number(estimate, "+.3f", f"{method.name}.difference")
        precision = [Number(figures["auprc"])] if metric == "auroc" else []
        costs = [Number(figures["folds"], ".0f"), Number(figures["seconds"], ".2f"), Number(figures["peak_mib"], ".0f")]
        area = Number(method.estimate(metric), key=f"{method.name}.{metric}")
        rows.append([method.name, area, gap, *precision, *costs])
    precision_head = ["average precision"] if metric == "auroc" else []
    heads = ["method", metric_name, f"difference to {first}", *precision_head, "folds", "seconds a trial", "MiB"]
    gaps = [Row(first, Estimate(0.0, np.nan, np.nan, 0), "D", ORANGE)]
    gaps += [Row(method.name, method.estimate("difference"), color=ORANGE) for method in study.methods[1:]]
    differences = plot_forest(gaps, f"Difference to {first}", reference=0.0)
    blocks = [
        Table("Methods on the same folds", heads, rows, sorts=True),
        Note(f"Every method was trained and tested on the same folds. {study.basis} A hollow dot has no interval."),
        Figure(differences, "Paired differences, 95% intervals."),
        Pair(_curves(study)),
    ]
    blocks += _instances(study)
    if study.by_class:
        heads = ["class or label", *(method.name for method in study.methods)]
        by_class = [[name, *map(Number, areas)] for name, areas in study.by_class]
        blocks.append(Table("AUROC of each class or label, mean over folds", heads, by_class, sorts=True))
        blocks.append(Note("The mean is over the folds whose test bags hold both a class and others."))
    return blocks


def _instances(study: MethodsStudy) -> list[Any]:
    """Return a table of how well contributions find labeled instances, if the methods were evaluated on such."""
    names = [name for name in IN_BAG if name in study.methods[0].figures]
    if not names:
        return []
    rows = [[method.name, *(method.estimate(name) for name in names)] for method in study.methods]
    heads = ["method", *(capitalized(INSTANCE_NAMES[name]) for name in names)]
    text = (
        "Contributions against the known labels of instances, which no training used; mean over folds. A dash: the "
        "method only scores bags, or no fold has bags with both labels."
    )
    return [Table("Did the right instances decide?", heads, rows, sorts=True), Note(text)]


def _curves(study: MethodsStudy) -> list[Figure]:
    """Return the mean curves of methods for two classes."""
    if study.metric != "auroc":
        return []

    tested = (method for method in study.methods if method.tested)
    means = {method.name: (_GRID, np.mean([*map(_sensitivity, method.tested)], axis=0)) for method in tested}
    roc = plot_mean_curves(means, "1 \N{MINUS SIGN} specificity", "Sensitivity", diagonal="Chance")
    text = "Mean over the folds; scores are never pooled across folds, each of which has a scale of its own."
    return [Figure(roc, "ROC curves.", text)]


def _sensitivity(part: Tested) -> NDArray[np.float64]:
    fall, recall, _ = roc_curve(part.labels, part.scores, drop_intermediate=False)
    return np.asarray(np.interp(_GRID, fall, recall))


def _folds(study: MethodsStudy) -> Part:
    """Return how many bags the folds test."""
    first = next((method for method in study.methods if method.tested), None)
    if first is None:
        return Part("Folds", ["No fold could be used."])
    repeats = len({part.repeat for part in first.tested})
    positives = _range([int(part.labels.sum()) for part in first.tested])
    of_them = f", {positives} of them positive" if study.metric == "auroc" else ""
    count, sizes = len(first.tested) // repeats, _range([len(part.ids) for part in first.tested])
    text = f"{plural(repeats, 'repeat')} of {count} folds; each tests {sizes} bags{of_them}."
    return Part("Folds", [text])


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
