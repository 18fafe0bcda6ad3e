"""The page of a comparison: methods on the same folds, their paired differences, curves and folds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from midam.evaluate.proportions import Estimate
from midam.report.figures import ORANGE
from midam.report.page.render import Number, Section, Table, render
from midam.report.plot_runs import Row, plot_assignment, plot_fold_strip, plot_forest
from midam.report.plot_scores import plot_mean_curves
from midam.report.words import METRIC_NAMES, capitalized

_GRID = np.linspace(0, 1, 101)
_MOST_KINDS = 7  # with more kinds of bags, the folds are not plotted


@dataclass(frozen=True)
class Tested:
    """Scores [n] or [n, C] of a method on the test bags of a fold; labels are positions in `MethodsStudy.kinds`."""

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

    `basis` is a sentence on the intervals, and `metric` a key of `midam.report.words.METRIC_NAMES`. `kinds` are the
    classes by which folds are stratified; empty for other labels. `by_class` has a row for each class or label: its
    name, and its AUROC by each method.
    """

    data: str
    methods: Sequence[Method]
    basis: str
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    metric: str = "auroc"
    kinds: Sequence[str] = ("negative", "positive")
    by_class: Sequence[tuple[str, Sequence[float]]] = ()

    @property
    def title(self) -> str:
        """Name of the metric, with a capital letter."""
        return capitalized(METRIC_NAMES[self.metric])


def comparison_page(study: MethodsStudy) -> str:
    """Return the HTML of the page."""
    template = "comparison.html"
    sections = [Section("summary", "In short", template, _summary(study))]
    if study.metric == "auroc":
        sections.append(Section("curves", "Curves of each method", template, _curves(study)))
    elif study.by_class:
        heads = ["class or label", *(method.name for method in study.methods)]
        rows = [[name, *map(Number, areas)] for name, areas in study.by_class]
        table = Table("AUROC of each class or label, mean over folds", heads, rows, sorts=True)
        sections.append(Section("classes", "Classes and labels", template, table))
    sections.append(Section("folds", "Folds", template, _folds(study)))
    sections.append(Section("provenance", "How it was made: settings, versions, hashes", "common.html", study))
    title, count = f"{study.data}: {len(study.methods)} methods on the same folds", len(study.methods)
    lead = Section("lead", "", template, _lead(study))
    context = {"title": title, "kicker": "midam \N{MIDDLE DOT} Comparison", "lead": lead, "sections": sections}
    return render("page.html", **context, description=f"Comparison of {count} methods on {study.data}", naming=None)


def _lead(study: MethodsStudy) -> dict[str, Any]:
    """Return the method with the highest mean, and those whose paired interval excludes 0."""
    (first, *others), metric = study.methods, study.metric
    ranked = sorted((m for m in study.methods if m.estimate(metric)), key=lambda m: -m.figures[metric])
    best = ranked[0] if ranked else first
    apart = [m for m in others if (gap := m.estimate("difference")) and np.isfinite(gap.low) and gap.low * gap.high > 0]
    content = {"metric": METRIC_NAMES[metric], "count": len(study.methods), "first": first.name, "apart": apart}
    return {**content, "best": best.name, "estimate": best.estimate(metric)}


def _summary(study: MethodsStudy) -> dict[str, Any]:
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
    areas = [Row(method.name, method.estimate(metric)) for method in study.methods]
    gaps = [Row(first, Estimate(0.0, np.nan, np.nan, 0), "D", ORANGE)]
    gaps += [Row(method.name, method.estimate("difference"), color=ORANGE) for method in study.methods[1:]]
    return {
        "table": Table("Methods on the same folds", heads, rows, sorts=True),
        "means": plot_forest(areas, f"Mean {metric_name} over folds"),
        "differences": plot_forest(gaps, f"Difference to {first}", reference=0.0),
        **{"metric": metric, "metric_name": metric_name, "basis": study.basis, "notes": study.notes},
    }


def _curves(study: MethodsStudy) -> dict[str, Any]:
    def means(curve: Callable[[Tested], NDArray[np.float64]]) -> dict[str, tuple[Any, Any]]:
        tested = (method for method in study.methods if method.tested)
        return {method.name: (_GRID, np.mean([curve(part) for part in method.tested], axis=0)) for method in tested}

    roc = plot_mean_curves(means(_sensitivity), "1 \N{MINUS SIGN} specificity", "Sensitivity", diagonal="Chance")
    precision = plot_mean_curves(means(_precision), "Recall (sensitivity)", "Precision (PPV)")
    return {"roc": roc, "precision": precision}


def _sensitivity(part: Tested) -> NDArray[np.float64]:
    fall, recall, _ = roc_curve(part.labels, part.scores, drop_intermediate=False)
    return np.asarray(np.interp(_GRID, fall, recall))


def _precision(part: Tested) -> NDArray[np.float64]:
    share, recall, _ = precision_recall_curve(part.labels, part.scores)
    # Recall falls as the threshold rises: take the precision at the highest threshold that reaches each recall.
    at = recall.size - 1 - np.searchsorted(recall[::-1], np.maximum(_GRID, 1e-12) - 1e-12)
    return np.asarray(share[at])


def _folds(study: MethodsStudy) -> dict[str, Any] | None:
    first = next((method for method in study.methods if method.tested), None)
    if first is None:
        return None
    folds: dict[str, list[tuple[float, str]]] = {method.name: [] for method in study.methods}
    for name, part in ((method.name, part) for method in study.methods for part in method.tested):
        folds[name].append((part.metric, f"{name}, repeat {part.repeat}, fold {part.fold}: {part.metric:.3f}"))
    estimates = {method.name: method.estimate(study.metric) for method in study.methods}
    means = {name: None if estimate is None else estimate.value for name, estimate in estimates.items()}
    assignment, repeat = None, first.tested[0].repeat
    if 1 < len(study.kinds) <= _MOST_KINDS:
        inside = [part for part in first.tested if part.repeat == repeat]
        counts = {f"fold {p.fold}": np.bincount(p.labels, minlength=len(study.kinds)).tolist() for p in inside}
        assignment = plot_assignment(counts, study.kinds)
    positives = _range([int(part.labels.sum()) for part in first.tested])
    return {
        **{"strip": plot_fold_strip(study.title, folds, means), "assignment": assignment, "repeat": repeat},
        **{"title": f"{study.title} of each fold", "folds": len(first.tested)},
        "repeats": len({part.repeat for part in first.tested}),
        "sizes": _range([len(part.ids) for part in first.tested]),
        "positives": positives if study.metric == "auroc" else None,
    }


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
