"""What two classes, one of them positive, add to the page: curves, calibration, operating points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate import calibrate
from midam.evaluate.metrics import auprc_estimate
from midam.evaluate.proportions import Estimate, OperatingPoint, proportion
from midam.evaluate.subgroups import Estimator, binary_figures
from midam.report import plot_scores
from midam.report.page.assumption import assumption_part
from midam.report.page.render import Figure, Note, Number, Pair, Part, Table
from midam.report.page.target_page import TargetPage, number_column
from midam.report.words import form_apart

_UNDECIDED = "This needs validation bags of both classes, and the run has none."
_KINDS = ((1, "Missed: positive bags called negative"), (0, "False alarms: negative bags called positive"))


class BinaryPage(TargetPage):
    """Two classes, one of them positive."""

    of_target = "binary"
    claim, pairs = ", a positive bag scored above a negative one", "pairs"
    validates = "threshold and calibration"

    @property
    def ranked(self) -> bool:
        """Whether the tested bags hold both classes."""
        return self.tested.both_classes

    def second(self) -> str | None:
        """Return how many bags of each class are classified correctly."""
        at, choice = self.summary.get("at_threshold"), self.study.thresholds
        if at is None or choice is None:
            return None
        positives, negatives = self.tested.positives, len(self.tested) - self.tested.positives
        detected, cleared = round(at["sensitivity"] * positives), round(at["specificity"] * negatives)
        return (
            f"At the threshold chosen on {choice.bags} {choice.kind} bags it found {detected} of {positives} positive "
            f"bags and cleared {cleared} of {negatives} negative ones."
        )

    def intervals(self) -> dict[str, Estimate | None]:
        """Return the average precision with its interval."""
        return {"auprc": auprc_estimate(self.tested.values, self.tested.scores, groups=self.tested.groups)}

    def figures(self) -> list[Figure]:
        """Return the curves, and the scores of both classes."""
        study, tested = self.study, self.tested
        roc = plot_scores.plot_roc(
            tested.values, tested.scores, self.summary, baseline=study.baseline, folds=tested.folds
        )
        precision = plot_scores.plot_precision(tested.values, tested.scores)
        histogram = plot_scores.plot_histogram(tested.values, tested.scores, threshold=study.threshold)
        mean = "" if tested.folds is None else "Mean over the folds, weighted by their pairs."
        return [
            Figure(roc, "ROC curve.", mean),
            Figure(precision, "Precision and recall."),
            Figure(histogram, "Scores.", "Where they overlap, bags are misclassified."),
        ]

    def tables(self) -> list[Any]:
        """Return which class is positive."""
        classes = self.study.about.get("data", {}).get("classes")
        return [Note(f"Positive is {classes[1]}, negative {classes[0]}.")] if classes else []

    def checks(self) -> list[Part]:
        """Return calibration, usefulness and operating points."""
        changed = None if self.study.external else self.study.about.get("assumption")
        return [
            *([assumption_part(changed, key="assumption")] if changed else []),
            Part("Calibration: do probabilities come true?", self._calibration()),
            Part("Usefulness: is acting on it better than not?", self._usefulness()),
            Part("Operating points", self._operating()),
        ]

    def _calibration(self) -> list[Any]:
        tested, summary, p = self.tested, self.summary, self.tested.predicted
        if p is None:
            return [_UNDECIDED]
        line = calibrate.calibration_interval(tested.values, p, groups=tested.groups)
        rate = proportion(tested.values == 1, groups=tested.groups)
        share, mean = tested.positives / len(tested), float(p.mean())
        naive = share * (1 - share)
        expected = rate and rate._replace(value=rate.value / mean, low=rate.low / mean, high=rate.high / mean)
        rows = [
            ["Brier score (0 is perfect)", Number(summary["brier"], key="brier")],
            ["Brier score of a constant, the share of positive bags", Number(naive)],
            ["Scaled Brier score (1 is perfect, 0 is this constant)", Number(1 - summary["brier"] / naive)],
            ["Observed over expected positive bags (1 is perfect)", Number(expected, ".2f")],
        ]
        for name, estimate in zip(("slope", "intercept"), line or (None, None)):
            # Of the summary; predictions.csv, from which the interval is computed, holds rounded scores.
            value = estimate and estimate._replace(value=summary[f"calibration_{name}"])
            title = f"Calibration {name} ({'1 is perfect, below: too extreme' if name == 'slope' else '0 is perfect'})"
            rows.append([title, Number(value, ".2f", f"calibration_{name}")])
        bins = calibrate.reliability_bins(tested.values, p, groups=tested.groups)
        curve = plot_scores.plot_reliability(bins, "Predicted probability", "Observed share of positive bags", line)
        text = f"{plural(len(bins), 'bin')} of equal numbers of bags."
        known = self.study.thresholds
        on = f"the {'validation' if known is None else known.kind} bags" if tested.folds is None else "the other folds"
        then = "" if known is None else f" That share was {known.positives / known.bags:.1%}; here it is {share:.1%}."
        return [
            Pair([Figure(curve, "Reliability.", text), Table(f"Calibration of {tested.counted()}", (), rows)]),
            Note(f"Probabilities come from Platt scaling on {on}, and apply to their share of positive bags.{then}"),
        ]

    def _usefulness(self) -> list[Any]:
        tested, p = self.tested, self.tested.predicted
        if p is None:
            return ["Net benefit needs probabilities, and this run has none."]
        curve = plot_scores.plot_decision_curve(tested.values, p)
        return [
            "Net benefit is the true positives per bag minus the false positives per bag, weighted by the odds of the "
            "threshold probability: at 10%, nine false alarms weigh as much as one case found. The model is worth "
            "using where its curve is above both others, at thresholds that clinicians name for the decision.",
            Pair([Figure(curve, "Decision curve.", f"n = {tested.counted()}.")]),
        ]

    def _operating(self) -> list[Any]:
        tested, choice = self.tested, self.study.thresholds
        if choice is None:
            return [_UNDECIDED]
        rows = []
        for number, point in enumerate(choice.points):
            place, cut = "" if number else "at_threshold", point.threshold
            name = f"{point.rule}{'' if number else ' (the threshold of the run)'}{'' if point.note is None else ' *'}"
            called = tested.scores >= (cut if number == 0 or tested.folds is None else self._cuts(point))
            keys = [f"{place}.{rate}" if place else None for rate in ("threshold", "sensitivity", "specificity")]
            hits = [proportion(called == tested.values, groups=tested.groups, among=tested.values == y) for y in (1, 0)]
            rates = [Number(hit, key=key) for hit, key in zip(hits, keys[1:])]
            values = [proportion(called == tested.values, groups=tested.groups, among=called == one) for one in (1, 0)]
            form = form_apart(tested.scores, cut, least=3)
            rows.append([name, Number(cut, form, keys[0]), *rates, *values, f"{int(called.sum())} of {len(tested)}"])
        heads = ["chosen for", "threshold", "sensitivity", "specificity", "PPV", "NPV", "called positive"]
        unit = "Wilson intervals, with bags counted by their groups" if tested.grouped else "Wilson intervals"
        then = "then applied once"
        if self.study.part == "train":
            then = "these are training bags, so the results are no test"
        if tested.folds is not None:
            then = "the bags of a fold are called by what the other folds choose, new bags by the threshold shown"
        pooled = f"; {choice.out_of_fold} of them are training bags, scored by models of inner folds"
        pooled = pooled if 0 < choice.out_of_fold < choice.bags else ""
        return [
            f"Each threshold was chosen on {choice.bags} {choice.kind} bags ({choice.positives} positive"
            f"{pooled}); {then}. Here a rule may miss its goal. PPV and NPV apply to a "
            f"share of {tested.positives / len(tested):.1%} positive bags.",
            Table(f"Operating points on {tested.counted()}. 95% {unit}.", heads, rows),
            *(Note(f"* {point.note}") for point in choice.points if point.note),
        ]

    def _cuts(self, point: OperatingPoint) -> NDArray[np.float64]:
        """Return the threshold [N] of each cross-validated bag, which the other folds have chosen by the rule."""
        folds = np.asarray(self.tested.folds)
        numbers = np.unique(folds if "sites" in self.study.about else folds.astype(int), return_inverse=True)[1]
        return np.array(point.by_fold)[numbers]

    def errors(self) -> list[Part]:
        """Return the bags that are furthest on the wrong side of the threshold."""
        tested, threshold = self.tested, self.study.threshold
        if threshold is None:
            return [Part("Wrong bags", [_UNDECIDED])]
        called, parts, form = tested.scores >= threshold, list[Part](), form_apart(tested.scores, threshold, least=3)
        p = np.full(len(tested), np.nan) if tested.predicted is None else tested.predicted
        columns = {"score": number_column(tested.scores, form), "probability": number_column(p)}
        for label, name in _KINDS:
            wrong = np.flatnonzero((tested.values == label) & (called != bool(label)))
            order = wrong[np.argsort(tested.scores[wrong] * (1 if label else -1), kind="stable")]
            total = int((tested.values == label).sum())
            title = f"{name}, at the threshold {threshold:{form}}"
            parts.append(self.error_table(title, order, columns, total=total))
        return parts

    def subgroup_figures(self) -> dict[str, Estimator]:
        """Return AUROC, and sensitivity and specificity at the run's threshold."""
        return dict(zip(("AUROC", "sensitivity", "specificity"), binary_figures(self.study.threshold).values()))
