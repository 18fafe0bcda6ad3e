"""The page of a comparison: methods on the same folds, their paired differences, curves and folds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from midam.evaluate.proportions import Estimate
from midam.report.html.chart import Chart, Range
from midam.report.html.frame import foot
from midam.report.html.making import settings_tables
from midam.report.html.markup import (
    Column,
    Html,
    Section,
    box,
    document,
    estimate,
    figure,
    join,
    listing,
    number,
    pair,
    paragraph,
    table,
    tag,
    titled,
)
from midam.report.html.subgroups import Row, forest

_GRID = np.linspace(0, 1, 101)
_COLORS = 8


@dataclass(frozen=True)
class Tested:
    """Scores of a method on the test bags of one fold."""

    repeat: int
    fold: int
    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    auroc: float


@dataclass(frozen=True)
class Method:
    """A method: its row of summary.csv, and its folds."""

    name: str
    figures: Mapping[str, float]
    tested: Sequence[Tested]

    def estimate(self, name: str) -> Estimate | None:
        """A figure of the summary with its interval; None where there is none."""
        value, low, high = (self.figures[key] for key in (name, f"{name}_low", f"{name}_high"))
        return Estimate(value, low, high, int(self.figures["folds"])) if np.isfinite(value) else None


@dataclass(frozen=True)
class MethodsStudy:
    """All that the page says of a comparison; settings and facts as of `midam.report.html.study.Study`."""

    data: str
    methods: Sequence[Method]
    basis: str  # What the intervals rest on
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str] = field(default_factory=tuple)


def comparison_page(study: MethodsStudy) -> str:
    """HTML of the page."""
    sections = [_summary(study), _curves(study), _folds(study), _provenance(study)]
    return document(
        title=f"{study.data}: {len(study.methods)} methods on the same folds",
        kicker="midam \N{MIDDLE DOT} Comparison",
        lead=_lead(study),
        sections=sections,
        footer=foot(),
        description=f"Comparison of {len(study.methods)} methods on {study.data}",
    )


def _lead(study: MethodsStudy) -> list[Html]:
    first, *others = study.methods
    ranked = sorted((m for m in study.methods if m.estimate("auroc")), key=lambda m: -m.figures["auroc"])
    best = ranked[0] if ranked else first
    apart = [m for m in others if (gap := m.estimate("difference")) and np.isfinite(gap.low) and gap.low * gap.high > 0]
    area = estimate(best.estimate("auroc"))
    words = [
        "The highest mean AUROC has ",
        tag("strong", best.name),
        " with ",
        area,
        f", of {len(study.methods)} methods.",
    ]
    if apart:
        names = ", ".join(f"{m.name} ({'above' if m.figures['difference'] > 0 else 'below'})" for m in apart)
        second = f"Told apart from {first.name}, the reference, by the paired interval: {names}."
    else:
        second = f"No paired interval tells a method apart from {first.name}, the reference."
    return [join(words), Html(second)]


def _summary(study: MethodsStudy) -> Section:
    first = study.methods[0].name
    rows = []
    for method in study.methods:
        figures = method.figures
        cells = [method.name, estimate(method.estimate("auroc"), key=f"{method.name}.auroc")]
        gap = (
            "reference"
            if method.name == first
            else estimate(method.estimate("difference"), form="+.3f", key=f"{method.name}.difference")
        )
        cells += [
            gap,
            _number(figures["auprc"]),
            f"{figures['folds']:.0f}",
            _number(figures["seconds"], ".2f"),
            _number(figures["peak_mib"], ".0f"),
        ]
        rows.append(cells)
    heads = [Column("method"), Column("AUROC"), Column(f"difference to {first}")]
    heads += [Column(name, True) for name in ("average precision", "folds", "seconds a trial", "MiB")]
    areas = [Row(method.name, method.estimate("auroc")) for method in study.methods]
    gaps = [Row(first, Estimate(0.0, np.nan, np.nan, 0), "diamond", 1)]
    gaps += [Row(method.name, method.estimate("difference"), color=1) for method in study.methods[1:]]
    drawn = pair(
        figure(
            forest(areas, "Mean AUROC over folds", "Mean AUROC of each method.", marked=False),
            titled("Mean AUROC, 95% intervals."),
        ),
        figure(
            forest(gaps, f"Difference to {first}", "Paired difference of each method.", reference=0.0),
            titled("Paired differences, 95% intervals."),
        ),
    )
    words = f"Every method was trained and tested on the same folds. {study.basis} A hollow dot has no interval."
    body = [table("Methods on the same folds", heads, rows, sorts=True), drawn, paragraph(words, note=True)]
    limits = [
        "Looking at many differences finds one by chance: intervals are not corrected for their number.",
        "The best of many methods looks better than it is: test it on bags that took no part here.",
        *study.notes,
    ]
    return Section("summary", "In short", join([*body, box("Before you rely on it", listing(limits), warn=True)]))


def _number(value: float, form: str = ".3f") -> Html:
    return number(value if np.isfinite(value) else None, form=form)


def _curves(study: MethodsStudy) -> Section:
    roc = Chart("Mean ROC curve of each method.", Range("1 \N{MINUS SIGN} specificity"), Range("Sensitivity"))
    precision = Chart(
        "Mean precision-recall curve of each method.", Range("Recall (sensitivity)"), Range("Precision (PPV)")
    )
    roc.reference([0, 1], [0, 1], name="Chance")
    for at, method in enumerate(study.methods):
        for chart, curve in ((roc, _sensitivity), (precision, _precision)):
            if method.tested:
                chart.line(
                    _GRID,
                    np.mean([curve(part) for part in method.tested], axis=0),
                    color=at % _COLORS,
                    dash=at % _COLORS,
                    name=method.name,
                )
    drawn = pair(
        figure(roc.drawing(), titled("ROC.", " Mean sensitivity of the folds at each specificity."), keys=roc.keys()),
        figure(
            precision.drawing(),
            titled("Precision and recall.", " Mean precision of the folds at each recall."),
            keys=precision.keys(),
        ),
    )
    words = (
        "Curves are averaged over folds, never drawn from scores pooled across folds: each fold's model has a scale "
        "of its own. `predictions.csv` beside this page holds the score of each test bag of each fold."
    )
    return Section("curves", "Curves of each method", join([drawn, paragraph(words, note=True)]))


def _sensitivity(part: Tested) -> NDArray[np.float64]:
    fall, recall, _ = roc_curve(part.labels, part.scores, drop_intermediate=False)
    found: NDArray[np.float64] = np.interp(_GRID, fall, recall)
    return found


def _precision(part: Tested) -> NDArray[np.float64]:
    share, recall, _ = precision_recall_curve(part.labels, part.scores)
    # Recall falls from the lowest threshold on: at each recall, the precision of the highest one that reaches it.
    at = recall.size - 1 - np.searchsorted(recall[::-1], np.maximum(_GRID, 1e-12) - 1e-12)
    found: NDArray[np.float64] = share[at]
    return found


def _folds(study: MethodsStudy) -> Section:
    first = next((method for method in study.methods if method.tested), None)
    if first is None:
        return Section("folds", "Folds", paragraph("No fold could be used."))
    names = [method.name for method in study.methods]
    values = [part.auroc for method in study.methods for part in method.tested]
    low = max(0.0, min(values) - 0.03)
    strip = Chart.of_rows("AUROC of each fold, by method.", Range("AUROC of a fold", low, 1.0), names, height=30)
    for y, method in enumerate(study.methods):
        for part in method.tested:
            spread = 0.32 * ((part.fold * 7 + part.repeat * 3) % 11 / 10 - 0.5)
            tip = f"{method.name}, repeat {part.repeat}, fold {part.fold}: {part.auroc:.3f}"
            strip.dot(part.auroc, y + spread, color=0, radius=3, tip=tip)
        found = method.estimate("auroc")
        if found is not None:
            strip.dot(found.value, y, color=1, shape="diamond", radius=5, tip=f"{method.name}: mean {found.value:.3f}")
    strip.key("A fold", color=0)
    strip.key("Mean", color=1, shape="diamond")
    said = titled("AUROC of each fold.", f" {len(first.tested)} folds.")
    parts = [figure(strip.drawing(), said, keys=strip.keys())]
    parts.append(_assignment([part for part in first.tested if part.repeat == first.tested[0].repeat]))
    sizes, positives = [len(part.ids) for part in first.tested], [int(part.labels.sum()) for part in first.tested]
    repeats = len({part.repeat for part in first.tested})
    made = f"{repeats} repeat{'s' * (repeats > 1)} of {len(first.tested) // repeats} folds"
    words = f"{made}; each tests {_span(sizes)} bags, {_span(positives)} of them positive."
    return Section("folds", "Folds", join([paragraph(words), pair(*parts)]))


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _assignment(parts: Sequence[Tested]) -> Html:
    """Which bags each fold of a repeat tests: negative bags to the left, positive ones to the right."""
    total = sum(len(part.ids) for part in parts)
    names, height = [f"fold {part.fold}" for part in parts], max(16, min(26, 260 // len(parts)))
    across = Range("Bags, negative first", 0, total)
    chart = Chart.of_rows("Bags that each fold tests.", across, names, height=height)
    starts = {0: 0, 1: sum(int((part.labels == 0).sum()) for part in parts)}
    for y, part in enumerate(parts):
        for low, high in ((0, starts[1]), (starts[1], total)):
            chart.block(low, high, y, color=4, faint=True)
        for label in (0, 1):
            count = int((part.labels == label).sum())
            tip = f"fold {part.fold} tests {count} {'positive' if label else 'negative'} bags"
            chart.block(starts[label], starts[label] + count, y, color=label, tip=tip)
            starts[label] += count
    for name, color in (("Tests negative", 0), ("Tests positive", 1)):
        chart.swatch(name, color=color)
    chart.swatch("Trains and validates", color=4, faint=True)
    caption = titled(f"Folds of repeat {parts[0].repeat}.", " Each bag is tested once; groups stay together.")
    return figure(chart.drawing(), caption, keys=chart.keys())


def _provenance(study: MethodsStudy) -> Section:
    body = settings_tables(study.facts, study.changed, study.settings)
    return Section("provenance", "How it was made: settings, versions, hashes", body)
