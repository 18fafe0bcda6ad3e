"""What to know before relying on a run: calibration, net benefit, operating points, subgroups."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate import calibrate
from midam.evaluate.proportions import OperatingPoint, proportion
from midam.evaluate.subgroups import binary_figures, find_subgroups
from midam.report import plot_scores
from midam.report.figures import ORANGE, Row, plot_forest
from midam.report.page.assumption import assumption_part
from midam.report.page.render import Figure, Note, Number, Pair, Part, Table
from midam.report.page.study import UNDECIDED, Study
from midam.report.words import form_apart
from midam.targets.binary import Binary
from midam.targets.columns import ColumnTarget, Multiclass
from midam.targets.ranked import Continuous

_BENEFIT = (
    "Net benefit is the true positives per bag minus the false positives per bag, weighted by the odds of the "
    "threshold probability: at 10%, nine false alarms weigh as much as one case found. The model is worth using where "
    "its curve is above both others, at thresholds that clinicians name for the decision."
)


def checks(study: Study) -> list[Part]:
    """Return the blocks on the predictions: what they rest on, whether they are calibrated, whether to act on them."""
    title, parts = "Calibration: are predictions right on average?", list[Part]()
    if isinstance(study.target, Binary | ColumnTarget | Continuous):
        parts.append(Part(title, [UNDECIDED] if study.tested.predicted is None else _calibration(study)))
    if isinstance(study.target, Binary):
        parts.append(Part("Usefulness: is acting on it better than not?", _usefulness(study)))
        parts.append(Part("Operating points", _operating(study)))
        if not study.external and "assumption" in study.about:
            parts.insert(0, assumption_part(study.about["assumption"]))
    return parts


def _calibration(study: Study) -> list[Any]:
    target, tested, p, rows = study.target, study.tested, np.asarray(study.tested.predicted), list[list[Any]]()
    if isinstance(target, Continuous):
        half, most = np.quantile(np.abs(p - tested.values[:, 0]), (0.5, 0.9)).tolist()
        return [f"Half of the bags are off by at most {half:.4g}, nine of ten by at most {most:.4g}."]
    across, up, line, groups = "Predicted probability", "Observed share", None, tested.groups
    caption, heads = f"Calibration of {tested.counted()}", ["", "mean probability", "share of bags"]
    if isinstance(target, ColumnTarget):
        labels = target.table(tested.values)
        for name, truth, share in zip(target.names, labels.T, p.T):
            known = np.isfinite(truth) & np.isfinite(share)
            rows.append([name, *(Number(float(x[known].mean()) if known.any() else None) for x in (share, truth))])
        if isinstance(target, Multiclass):
            labels, p = (p.argmax(axis=1) == tested.codes).astype(np.float64), p.max(axis=1)
            across, up = "Largest probability", "Share classified correctly"
        else:  # the labels of a bag are one unit of the intervals
            known, units = np.isfinite(labels) & np.isfinite(p), tested.ids if groups is None else groups
            labels, p, groups = labels[known], p[known], np.repeat(units[:, None], target.count, axis=1)[known]
    else:
        labels, line = tested.values, calibrate.calibration_interval(tested.values, p, groups=groups)
        heads, perfect = [], {"slope": "1 is perfect, below: too extreme", "intercept": "0 is perfect"}
        rows += [["Mean probability", Number(float(p.mean()))]]
        rows += [["Share of positive bags", proportion(labels == 1, groups=groups)]]
        for (name, text), estimate in zip(perfect.items(), line or (None, None)):
            # Of the summary; predictions.csv, from which the interval is computed, holds rounded scores.
            value = estimate and estimate._replace(value=study.summary[f"calibration_{name}"])
            rows.append([f"Calibration {name} ({text})", Number(value, ".2f", f"calibration_{name}")])
    bins = calibrate.reliability_bins(labels, p, groups=groups)
    curve = plot_scores.plot_reliability(bins, across, up, line)
    figure = Figure(curve, "Reliability.", f"{plural(len(bins), 'bin')} of equal numbers of bags.")
    note = f"Probabilities were fitted on {study.fitted_on}, and apply where each label is as frequent as there."
    return [Pair([figure, Table(caption, heads, rows, sorts=bool(heads))]), Note(note)]


def _usefulness(study: Study) -> list[Any]:
    if study.tested.predicted is None:
        return ["Net benefit needs probabilities, and this run has none."]
    curve = plot_scores.plot_decision_curve(study.tested.values, study.tested.predicted)
    return [_BENEFIT, Figure(curve, "Decision curve.", f"n = {study.tested.counted()}.")]


def _operating(study: Study) -> list[Any]:
    tested, choice = study.tested, study.thresholds
    if choice is None:
        return [UNDECIDED]
    groups, rows = tested.groups, []
    for at, point in enumerate(choice.points):
        cut = point.threshold if at == 0 or tested.folds is None else _cuts(study, point)
        called = tested.scores >= cut
        hits = [proportion(called == tested.values, groups=groups, among=tested.values == label) for label in (1, 0)]
        values = [proportion(called == tested.values, groups=groups, among=called == label) for label in (1, 0)]
        names = ("threshold", "sensitivity", "specificity")
        keys = [None if at else f"at_threshold.{name}" for name in names]
        shown = Number(point.threshold, form_apart(tested.scores, point.threshold, least=3), keys[0])
        rates = [Number(hit, key=key) for hit, key in zip(hits, keys[1:])]
        rule = f"{point.rule}{'' if at else ' (the threshold of the run)'}{'' if point.note is None else ' *'}"
        rows.append([rule, shown, *rates, *values, f"{int(called.sum())} of {len(tested)}"])
    heads = ["chosen for", "threshold", "sensitivity", "specificity", "PPV", "NPV", "called positive"]
    units = "Wilson intervals, with bags counted by their groups" if tested.grouped else "Wilson intervals"
    then = "these are training bags, so the results are no test" if study.part == "train" else "then applied once"
    if tested.folds is not None:
        then = "the bags of a fold are called by what the other folds choose, new bags by the threshold shown"
    inner = f"; {choice.out_of_fold} of them are training bags, scored by models of inner folds"
    inner = inner if 0 < choice.out_of_fold < choice.bags else ""
    return [
        f"Each threshold was chosen on {choice.bags} {choice.kind} bags ({choice.positives} positive{inner}); {then}. "
        f"PPV and NPV apply to a share of {tested.positives / len(tested):.1%} positive bags.",
        Table(f"Operating points on {tested.counted()}. 95% {units}.", heads, rows),
        *(Note(f"* {point.note}") for point in choice.points if point.note),
    ]


def _cuts(study: Study, point: OperatingPoint) -> NDArray[np.float64]:
    """Return the threshold [N] of each cross-validated bag, which the other folds have chosen by the rule."""
    folds = np.asarray(study.tested.folds)
    numbers = np.unique(folds if "sites" in study.about else folds.astype(int), return_inverse=True)[1]
    return np.array(point.by_fold)[numbers]


def subgroups(study: Study, name: str, levels: NDArray[np.str_]) -> Part:
    """Return the metrics of the levels of a column, and their differences to the largest level."""
    tested, metric = study.tested, study.metric_name
    figures, folds = {metric: study.target.estimate}, None
    if isinstance(study.target, Binary):
        figures = dict(zip((metric, "sensitivity", "specificity"), binary_figures(study.threshold).values()))
        folds = tested.folds
    parts = find_subgroups(tested.values, tested.scores, levels, figures=figures, groups=tested.groups, folds=folds)
    rows, lines, total = [], [], study.figure(study.metric)
    for part in parts:
        row: list[Any] = [part.level, part.bags]
        for figure, estimate in part.figures.items():
            gap = part.differences.get(figure)
            row += [estimate, gap and Number(gap, "+.3f")]
        rows.append(row)
        lines.append(Row(f"{part.level} (n = {part.bags})", part.figures[metric]))
    lines.append(Row(f"all (n = {len(tested)})", total, "D", ORANGE))
    heads = [name, "bags", *(head for figure in figures for head in (figure, "difference"))]
    forest = plot_forest(lines, metric, reference=total and total.value)
    pairs = set() if tested.groups is None else set(zip(tested.groups.tolist(), levels.tolist()))
    note = "Differences are to the largest level (Zou and Donner), not corrected for the number of subgroups."
    if len({group for group, _ in pairs}) < len(pairs):
        note += " Some groups have bags in several levels, so the levels are not independent."
    chart = Figure(forest, f"{metric} by {name}.", "The dashed line is that of all bags.")
    table = Table(f"Metrics by {name}, with 95% intervals", heads, rows, sorts=True)
    return Part(f"Subgroups: by {name}", [chart, table, Note(note)])
