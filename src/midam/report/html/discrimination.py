"""The sections on ranking, calibration and usefulness: curves with bands, and the numbers that belong to them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from midam.evaluate.bands import Bands
from midam.evaluate.proportions import Estimate, proportion
from midam.evaluate.ranking import auroc
from midam.evaluate.reliability import Line, calibration_interval, reliability_bins
from midam.evaluate.utility import net_benefit, net_benefit_of_all
from midam.report.html.chart import Chart, Range, span
from midam.report.html.markup import (
    Column,
    Html,
    Section,
    estimate,
    facts,
    figure,
    interval,
    join,
    number,
    pair,
    paragraph,
    table,
    titled,
)
from midam.report.html.study import Study

_SHOWN_BENEFIT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_BINS = 24


def ranking(study: Study, bands: Bands) -> Section:
    """ROC and precision-recall curve, and the scores of both classes."""
    tested, summary = study.tested, study.summary
    drawn = pair(_roc(study, bands), _precision(study, bands), _histogram(study), _trade(study))
    unit = "groups" if tested.grouped else "bags"
    how = (
        f"Bands and the interval of the average precision: {bands.resamples} bootstrap resamples of whole {unit}, "
        f"point by point. Interval of the AUROC: {summary['auroc_method']}."
    )
    return Section("ranking", "Ranking: who is above whom", join([drawn, paragraph(how, note=True)]))


def _roc(study: Study, bands: Bands) -> Html:
    summary, tested = study.summary, study.tested
    area, (low, high) = summary["auroc"], summary["auroc_ci95"]
    says = (
        f"ROC curve: sensitivity against 1 minus specificity. AUROC {area:.3f}, 95% interval {low:.3f} to {high:.3f}."
    )
    second = None if study.baseline is None else study.baseline.scores
    if second is not None:
        says += f" Baseline: AUROC {auroc(tested.labels, second):.3f}."
    chart = Chart(says, Range("1 \N{MINUS SIGN} specificity"), Range("Sensitivity"))
    chart.band(bands.roc.at, bands.roc.low, bands.roc.high, name="95% band")
    chart.reference([0, 1], [0, 1], name="Chance")
    if second is not None:
        x, y, _ = roc_curve(tested.labels, second)
        chart.line(x, y, color=2, dash=1, name="Baseline")
    chart.line(bands.roc.x, bands.roc.y, name="This model")
    at = summary.get("at_threshold")
    if at is not None:
        x, y = 1 - at["specificity"], at["sensitivity"]
        chart.dot(x, y, color=1, tip=f"sensitivity {y:.3f}, specificity {1 - x:.3f}", radius=5.5)
        chart.key("Validation threshold", color=1)
    words = titled("ROC.", f" AUROC {area:.3f} ", interval(low, high), f"; n = {tested.counts()}.")
    return figure(chart.drawing(), words, keys=chart.keys())


def _precision(study: Study, bands: Bands) -> Html:
    tested, found = study.tested, bands.auprc
    share = tested.positives / len(tested)
    bounds = f"95% interval {found.low:.3f} to {found.high:.3f}"
    says = f"Precision-recall curve. Average precision {found.value:.3f}, {bounds}."
    chart = Chart(says, Range("Recall (sensitivity)"), Range("Precision (PPV)"))
    chart.band(bands.precision.at, bands.precision.low, bands.precision.high, name="95% band")
    chart.reference([0, 1], [share, share], name="No skill")
    chart.line(bands.precision.x, bands.precision.y, name="This model")
    words = titled("Precision and recall.", " Average precision ", estimate(found), f"; no skill: {share:.3f}.")
    return figure(chart.drawing(), words, keys=chart.keys())


def _histogram(study: Study) -> Html:
    tested, threshold = study.tested, study.threshold
    edges = np.linspace(*span(tested.scores, pad=0.02), _BINS + 1)
    up, down = (np.histogram(tested.scores[tested.labels == label], edges)[0] for label in (1, 0))
    most = max(1, int(up.max()), int(down.max()))
    says = "Histogram of scores: positive bags upward, negative bags downward."
    counts = [int(tick) for tick in Range("", 0, most).marks(3) if tick == round(tick)]
    ticks = [*(-count for count in counts[:0:-1]), *counts]
    y = Range("", -most * 1.05, most * 1.05, ticks, [f"{abs(tick)}" for tick in ticks])
    chart = Chart(says, Range("Score", float(edges[0]), float(edges[-1])), y)
    for name, low, high in (("Positive bags", 0, y.high), ("Negative bags", y.low, 0)):
        chart.side(name, low, high)
    chart.bars(edges, up, color=1, name="Positive")
    chart.bars(edges, -down, color=0, name="Negative")
    if threshold is not None and edges[0] < threshold < edges[-1]:
        chart.rule(threshold, name="Validation threshold")
    caption = titled("Scores.", " Positive bags upward, negative ones downward. Where they overlap, bags are confused.")
    return figure(chart.drawing(), caption, keys=chart.keys())


def _trade(study: Study) -> Html:
    tested, threshold = study.tested, study.threshold
    says = "Sensitivity and specificity along the threshold on the score."
    places = np.append(np.unique(tested.scores), tested.scores.max() + 1e-9)
    chart = Chart(says, Range("Threshold on the score", *span(tested.scores, pad=0.02)), Range("Share of the class"))
    for label, color, name in ((1, 1, "Sensitivity"), (0, 0, "Specificity")):
        own = np.sort(tested.scores[tested.labels == label])
        below = np.searchsorted(own, places, side="left") / own.size
        x, y = np.append(chart.x.low, places), np.append(0.0, below)
        shares = 1 - y if label else y
        chart.line(np.append(x, chart.x.high), np.append(shares, shares[-1]), color=color, dash=1 - label, name=name)
    if threshold is not None and chart.x.low < threshold < chart.x.high:
        chart.rule(threshold, name="Validation threshold")
    caption = titled("Trade.", " What another threshold would have given here; do not choose one by it.")
    return figure(chart.drawing(), caption, keys=chart.keys())


def calibration(study: Study) -> Section:
    """Reliability curve and its numbers."""
    tested, summary, title = study.tested, study.summary, "Calibration: is 70% seventy of a hundred?"
    p = tested.probabilities
    if p is None:
        why = "No probabilities: there were no validation bags of both classes to calibrate scores on."
        return Section("calibration", title, paragraph(why))
    line = calibration_interval(tested.labels, p, groups=tested.groups)
    observed = proportion(tested.labels == 1, groups=tested.groups)
    share, mean = tested.positives / len(tested), float(p.mean())
    naive = share * (1 - share)
    scaled = None if naive == 0 else 1 - summary["brier"] / naive
    value, low, high = (bound / mean for bound in observed[:3]) if observed is not None else (1.0, 1.0, 1.0)
    ratio = Estimate(value, low, high, len(tested))
    rows = [
        ("Brier score (0 is perfect)", number(summary["brier"], key="brier")),
        ("Always guessing the share of positive bags", number(naive)),
        ("Scaled Brier score (1 is perfect, 0 is that guess)", number(scaled)),
        (
            "Calibration slope (1 is perfect, below: too extreme)",
            _recorded(line and line.slope, summary, "calibration_slope"),
        ),
        (
            "Calibration intercept (0 is perfect)",
            _recorded(line and line.intercept, summary, "calibration_intercept"),
        ),
        ("Observed over expected positive bags (1 is perfect)", estimate(ratio, form=".2f")),
    ]
    cautions = [
        "Probabilities come from Platt scaling on the validation bags, and hold for their share of positive bags."
    ]
    if study.validation is not None:
        before = study.validation.positives / len(study.validation)
        cautions.append(f"That share was {before:.1%}; here it is {share:.1%}.")
    if line is None:
        cautions.append(
            "No line: the probabilities tell all bags apart, which leaves slope and intercept without a value."
        )
    numbers = facts(rows, caption=f"Calibration of {tested.counts()}")
    body = join([pair(_reliability(study, p, line), numbers), paragraph(" ".join(cautions), note=True)])
    return Section("calibration", title, body)


def _recorded(found: Estimate | None, summary: Mapping[str, Any], key: str) -> Html:
    """A figure of the summary with an interval that was computed here, from scores of nine digits."""
    known = summary.get(key)
    return estimate(None if found is None or known is None else found._replace(value=known), form=".2f", key=key)


def _reliability(study: Study, p: NDArray[np.float64], line: Line | None) -> Html:
    tested = study.tested
    says = "Reliability curve: share of positive bags against their mean probability, in bins of equal size."
    y = Range("Observed share of positive bags", -0.16, 1, (0, 0.2, 0.4, 0.6, 0.8, 1))
    chart = Chart(says, Range("Predicted probability"), y)
    chart.reference([0, 1], [0, 1], name="Perfect")
    bins = reliability_bins(tested.labels, p, groups=tested.groups)
    for part in bins:
        seen = part.observed
        bounds = f"[{seen.low:.3f} to {seen.high:.3f}]"
        tip = f"predicted {part.probability:.3f}, observed {seen.value:.3f} {bounds}, n = {seen.bags}"
        chart.dot(part.probability, seen.value, tip=tip, y_bar=(seen.low, seen.high))
    chart.key("Bin, 95% interval", color=0)
    if line is not None:
        x = np.linspace(max(0.001, float(p.min())), min(0.999, float(p.max())), 101)
        chart.line(
            x,
            scipy.special.expit(line.slope.value * scipy.special.logit(x) + line.intercept.value),
            color=2,
            dash=1,
            name="Recalibration line",
        )
    edges = np.linspace(0, 1, 26)
    for label, color, name in ((1, 1, "Positive bags"), (0, 4, "Negative bags")):
        counts, _ = np.histogram(p[tested.labels == label], edges)
        heights = 0.065 * counts / max(1, counts.max())
        chart.bars(edges, heights if label else -heights, base=-0.085, color=color, name=name)
    sizes = sorted({part.observed.bags for part in bins})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    unit = "bin" if len(bins) == 1 else "bins"
    caption = titled("Reliability.", f" {len(bins)} {unit} of {each} bags. Below: where the probabilities lie.")
    return figure(chart.drawing(), caption, keys=chart.keys())


def usefulness(study: Study, bands: Bands) -> Section:
    """Decision curve: net benefit against treating all and none."""
    title, tested = "Usefulness: is acting on it better than not?", study.tested
    benefit, p = bands.benefit, tested.probabilities
    if benefit is None or p is None:
        return Section("usefulness", title, paragraph("Net benefit needs probabilities, and this run has none."))
    everyone = net_benefit_of_all(tested.labels, benefit.at)
    top = max(float(benefit.high.max()), float(everyone.max()))
    says = "Decision curve: net benefit against the threshold probability, beside acting on all bags and on none."
    chart = Chart(says, Range("Threshold probability"), Range("Net benefit", -0.35 * top, 1.08 * top), left=54)
    chart.band(benefit.at, benefit.low, benefit.high, name="95% band")
    shown = everyone >= chart.y.low
    chart.line(benefit.at[shown], everyone[shown], color=1, dash=1, name="Act on all")
    chart.reference([0, 1], [0, 0], name="Act on none")
    chart.line(benefit.at, benefit.y, name="This model")
    caption = titled("Decision curve.", f" n = {tested.counts()}.")
    mine, all_of = net_benefit(tested.labels, p, _SHOWN_BENEFIT), net_benefit_of_all(tested.labels, _SHOWN_BENEFIT)
    rows = [
        [f"{t:.0%}", number(a, key=f"net_benefit.{t:g}"), number(b), number(a - max(b, 0.0), form="+.3f")]
        for t, a, b in zip(_SHOWN_BENEFIT, mine.tolist(), all_of.tolist())
    ]
    heads = [Column(name, True) for name in ("act from", "model", "act on all", "model beyond the better of all, none")]
    words = (
        "Net benefit counts true positives a bag, less false positives at the exchange rate that the threshold "
        "probability stands for: who acts from 10% on takes nine false alarms for one case found. The model is "
        "worth using where its curve is above both others, over the thresholds that are reasonable for the decision "
        "at hand: those who decide must name them."
    )
    body = [
        paragraph(words),
        pair(figure(chart.drawing(), caption, keys=chart.keys()), table("Net benefit", heads, rows)),
    ]
    return Section("usefulness", title, join(body))
