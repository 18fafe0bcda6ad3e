"""Page of two classes: ranking with bands, calibration, usefulness, operating points, errors."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate import calibrate
from midam.evaluate.bands import Bands, curve_bands, net_benefit, net_benefit_of_all
from midam.evaluate.proportions import Estimate, called_right, proportion
from midam.evaluate.ranking import FEW_BAGS, auroc
from midam.evaluate.subgroups import Estimator, binary_figures
from midam.report import plot_scores
from midam.report.page.render import Number, Section, Table
from midam.report.page.target_page import FEW, WORST, ScoredBags, ScoredPart, TargetPage
from midam.report.words import form_apart
from midam.targets import Target

_NO_INTERVAL = "no interval: every resample has the same"
_SHOWN_BENEFIT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_ERRORS = (0.05, 0.10, 0.20)
_KINDS = ((1, "Missed: positive bags called negative"), (0, "False alarms: negative bags called positive"))


class BinaryPage(TargetPage):
    """Page of two classes, one of them positive."""

    of_target = "binary"
    missing = "one class only"
    always_errors = True

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:  # noqa: ARG003
        """Plot the ROC curves of the model and the baseline."""
        marks: dict[str, Any] = {"threshold": part.fitted.get("threshold"), "baseline": part.baseline}
        plot_scores.plot_roc(folder / "roc.png", labels=part.values, **part.shown, **marks)

    @cached_property
    def _bands(self) -> Bands:
        """Bands of the curves, which need bags of both classes."""
        bags = self.tested
        return curve_bands(bags.values, bags.scores, groups=bags.groups, probabilities=bags.predicted)

    @property
    def ranked(self) -> bool:
        """Whether the tested bags hold both classes."""
        return self.tested.both_classes

    @property
    def _validation(self) -> ScoredBags | None:
        validation = self.study.validation
        return validation if validation is not None and validation.both_classes else None

    def counted(self) -> str:
        """Return the counts of bags and positive bags."""
        return self.tested.counts()

    def second(self) -> dict[str, Any] | None:
        """Return how many bags of each class are classified correctly."""
        at, choice = self.summary.get("at_threshold"), self._thresholds
        if at is None or choice is None:
            return None
        positives, negatives = self.tested.positives, len(self.tested) - self.tested.positives
        detected, cleared = round(at["sensitivity"] * positives), round(at["specificity"] * negatives)
        return {"choice": choice, "detected": detected, "cleared": cleared, "negatives": negatives}

    def key_figures(self) -> dict[str, Any]:
        """Return average precision, sensitivity and specificity with their intervals."""
        threshold, precision = self.study.threshold, self._bands.auprc if self.ranked else None
        rates = {name: self._rate(label, threshold) for name, label in (("sensitivity", 1), ("specificity", 0))}
        return {"precision": precision, "rates": rates, "no_interval": _NO_INTERVAL}

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return positive bags and their share."""
        positives = int(values.sum())
        return {"positive": positives, "share": Number(positives / len(values) if len(values) else None, ".1%")}

    def sections(self) -> list[Section]:
        """Return the sections from ranking to operating points."""
        return [
            Section("ranking", "Ranking: do positive bags score above negative ones?", "binary.html", self._ranking()),
            Section("calibration", "Calibration: do probabilities come true?", "binary.html", self._calibration()),
            Section("usefulness", "Usefulness: is acting on it better than not?", "binary.html", self._usefulness()),
            Section("operating", "Operating points", "binary.html", self._operating()),
        ]

    def _rate(self, label: int, threshold: float | None) -> Estimate | None:
        """Return the share of a class that is classified correctly."""
        bags = self.tested
        return called_right(bags.values, bags.scores, threshold=threshold, label=label, groups=bags.groups)

    def _ranking(self) -> dict[str, Any]:
        study, tested, summary, bands = self.study, self.tested, self.summary, self._bands
        threshold, share = study.threshold, tested.positives / len(tested)
        baseline = None if study.baseline is None else study.baseline.scores
        bags: dict[str, Any] = {"labels": tested.values, "scores": tested.scores}
        return {
            "roc": plot_scores.plot_roc(
                **bags, summary=summary, threshold=threshold, baseline=baseline, band=bands.roc
            ),
            "precision": plot_scores.plot_precision(bands, share=share),
            "histogram": plot_scores.plot_histogram(**bags, threshold=threshold),
            "trade": plot_scores.plot_thresholds(**bags, threshold=threshold),
            "baseline": None if baseline is None else auroc(tested.values, baseline),
            "no_interval": None if np.isfinite(bands.auprc.low) else _NO_INTERVAL,
            **{"summary": summary, "bands": bands, "share": share, "tested": tested},
        }

    def _calibration(self) -> dict[str, Any]:
        tested, summary, p = self.tested, self.summary, self.tested.predicted
        if p is None:
            return {}
        line = calibrate.calibration_interval(tested.values, p, groups=tested.groups)
        rate = proportion(tested.values == 1, groups=tested.groups)
        share, mean = tested.positives / len(tested), float(p.mean())
        naive = share * (1 - share)
        scaled = 1 - summary["brier"] / naive
        expected = rate and rate._replace(value=rate.value / mean, low=rate.low / mean, high=rate.high / mean)
        slope, intercept = line or (None, None)
        bins = calibrate.reliability_bins(tested.values, p, groups=tested.groups)
        return {
            "curve": plot_scores.plot_reliability(
                bins, up="Observed share of positive bags", line=line, labels=tested.values, probabilities=p
            ),
            "bins": plural(len(bins), "bin"),
            "sizes": sorted({part.observed.bags for part in bins}),
            "slope": _recorded(slope, summary, "calibration_slope"),
            "intercept": _recorded(intercept, summary, "calibration_intercept"),
            **{"line": line, "brier": summary["brier"], "naive": naive, "scaled": scaled, "expected": expected},
            **{"tested": tested, "share": share, "thresholds": self._thresholds},
        }

    def _usefulness(self) -> dict[str, Any]:
        tested, p, benefit = self.tested, self.tested.predicted, self._bands.benefit
        if benefit is None or p is None:
            return {}
        curve = plot_scores.plot_decision_curve(benefit, net_benefit_of_all(tested.values, benefit.at))
        model = net_benefit(tested.values, p, _SHOWN_BENEFIT)
        everyone = net_benefit_of_all(tested.values, _SHOWN_BENEFIT)
        rows = [
            [Number(t, ".0%"), Number(a, key=f"net_benefit.{t:g}"), Number(b), Number(a - max(b, 0.0), "+.3f")]
            for t, a, b in zip(_SHOWN_BENEFIT, model.tolist(), everyone.tolist())
        ]
        heads = ["act from", "model", "act on all", "model minus the better of all and none"]
        return {"curve": curve, "counts": tested.counts(), "table": Table("Net benefit", heads, rows)}

    @cached_property
    def _thresholds(self) -> calibrate.Thresholds | None:
        """Choice of the run's threshold; of one without its choice, made again from the validation bags."""
        thresholds, validation, threshold = self.study.thresholds, self._validation, self.study.threshold
        if thresholds is not None or threshold is None or validation is None:
            return thresholds
        return calibrate.Thresholds.choose(validation.values, validation.scores)

    def _operating(self) -> dict[str, Any]:
        tested, choice = self.tested, self._thresholds
        if choice is None:
            return {}
        rows = []
        for number, point in enumerate(choice.points):
            place, cut = "" if number else "at_threshold", point.threshold
            name = f"{point.rule}{'' if number else ' (the threshold of the run)'}{'' if point.note is None else ' *'}"
            called = tested.scores >= cut
            rates = [self._rate(label, cut) for label in (1, 0)]
            values = [proportion(called == tested.values, groups=tested.groups, among=called == one) for one in (1, 0)]
            keys = [f"{place}.{rate}" if place else None for rate in ("threshold", "sensitivity", "specificity")]
            form = form_apart(tested.scores, cut, least=3)
            cells = [Number(rate, key=key) for rate, key in zip(rates, keys[1:])]
            positive = f"{int(called.sum())} of {len(tested)}"
            rows.append([name, Number(cut, form, keys[0]), *cells, *values, positive])
        unit = "Wilson intervals, with bags counted by their groups" if tested.grouped else "Wilson intervals"
        heads = ["chosen for", "threshold", "sensitivity", "specificity", "PPV", "NPV", "called positive"]
        table = Table(f"Operating points on {tested.counts()}. 95% {unit}.", heads, rows)
        share = f"{tested.positives / len(tested):.1%}"
        notes = [point.note for point in choice.points if point.note]
        content = {"table": table, "known": choice, "share": share, "notes": notes}
        return {**content, "trained": self.study.part == "train"}

    def errors(self) -> Section:
        """Return the section of the bags that are furthest on the wrong side of the threshold."""
        tested, threshold = self.tested, self.study.threshold
        if threshold is None:
            return self.error_section()
        called, parts, worst = tested.scores >= threshold, list[dict[str, Any]](), list[float]()

        def cells(i: int) -> list[Number]:
            score = float(tested.scores[i])
            p = None if tested.predicted is None else float(tested.predicted[i])
            return [Number(score, form_apart(score, threshold, least=3)), Number(p)]

        for label, name in _KINDS:
            wrong = np.flatnonzero((tested.values == label) & (called != bool(label)))
            order = wrong[np.argsort(tested.scores[wrong] * (1 if label else -1), kind="stable")]
            total, worst = str((tested.values == label).sum()), [*worst, *tested.scores[order[:WORST]]]
            parts.append(self.error_table(name, order, ["score", "probability"], cells, total=total))
        threshold_text = f"{threshold:{form_apart(worst, threshold, least=3)}}"
        return self.error_section(*parts, threshold=threshold_text)

    def rarest(self) -> tuple[int, str] | None:
        """Return how many bags the rarer class has."""
        few = min(self.tested.positives, len(self.tested) - self.tested.positives)
        return (few, "very rare" if few < FEW_BAGS else "rare") if few < FEW else None

    level_heads = ("positive",)

    def level_cells(self, values: NDArray[Any]) -> list[Any]:
        """Return the number of positive bags."""
        return [int(values.sum())]

    def subgroup_figures(self) -> dict[str, Estimator]:
        """Return AUROC, and sensitivity and specificity at the run's threshold."""
        return dict(zip(("AUROC", "sensitivity", "specificity"), binary_figures(self.study.threshold).values()))


def _recorded(estimate: Estimate | None, summary: Mapping[str, Any], key: str) -> Number:
    """Return a metric of the summary with an interval computed here from the rounded scores in predictions.csv."""
    value = summary.get(key)
    return Number(None if estimate is None or value is None else estimate._replace(value=value), ".2f", key)
