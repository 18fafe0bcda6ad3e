"""Labels 0 and 1: each positive bag is compared with each negative bag."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from midam.data.bags import Bags, both_classes
from midam.data.splits import class_counts, most_parts, split_strata, stratified_folds
from midam.evaluate.calibrate import NO_DECISION, BinaryDecision, Thresholds, one_scale, score_logits
from midam.evaluate.decisions import Decision
from midam.evaluate.intervals import paired_delong
from midam.evaluate.metrics import summarize
from midam.evaluate.proportions import APART, Estimate, auroc_estimate, cut_below
from midam.evaluate.ranking import FEW_BAGS, auroc
from midam.names import name_of
from midam.targets.base import (
    CardWords,
    CrossValidated,
    Decided,
    Difference,
    FoldDecision,
    Groups,
    OutOfFold,
    Scores,
    Target,
    clustered,
    logistic_shares,
    read_numbers,
)


class Binary(Target):
    """Two classes, one of them positive; `names` are the names of labels 0 and 1, these by default."""

    name = "binary"
    pairs = "binary"
    objectives = ("minmax-auc", "pairwise", "bce")
    metric = "auroc"
    ordered = "of both classes"
    given = ("threshold", "probabilities", "groups")
    decided_figure = "brier"
    card = CardWords(
        "classification",
        "gives one score in [0, 1] that ranks bags, positive ones above negative ones",
        "a probability of the positive class and, at a threshold, the class",
        (
            ("positive", "positives"),
            ("AUPRC", "auprc"),
            ("sensitivity (95% CI)", "at_threshold.sensitivity"),
            ("specificity (95% CI)", "at_threshold.specificity"),
            ("Brier score", "brier"),
        ),
    )

    def __init__(self, names: tuple[Any, ...] = ()) -> None:
        super().__init__(names or ("0", "1"))
        self.positive = name_of(self.names[1])

    @property
    def description(self) -> dict[str, Any]:
        """Empty: a summary or record without a target has two classes."""
        return {}

    def values(self, bags: Bags) -> NDArray[np.int64]:
        """Return labels [N]."""
        return bags.require_labels()

    def read_labels(self, table: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
        """Return labels [N]: 1 where the label is the positive class."""
        return (np.asarray(table["label"]) == np.asarray(table["positive"])).astype(np.int64)

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Read the probabilities [N] of the positive class."""
        probabilities = read_numbers(table["probability"])
        return None if np.isnan(probabilities).any() else probabilities

    def split(
        self, values: NDArray[Any], *, groups: Groups = None, fractions: Sequence[float], seed: int
    ) -> NDArray[np.str_]:
        """Return the splits, with both classes in each; raise a `BagDataError` with the reason if impossible."""
        return split_strata(values, groups=groups, fractions=fractions, seed=seed, binary=True)

    def folds(self, values: NDArray[Any], *, groups: Groups = None, folds: int, seed: int) -> NDArray[np.int64]:
        """Return the folds, with both classes in each; raise a `BagDataError` with the reason if impossible."""
        return stratified_folds(values, groups=groups, folds=folds, seed=seed)

    def most_folds(self, values: NDArray[Any], units: NDArray[np.str_]) -> int:
        """Return the maximum number of folds that can each hold both classes."""
        return most_parts(class_counts(values, units))

    def sides(self, values: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return the positive bags and the negative bags."""
        return [(values == 1, values == 0)]

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return the probability of the positive class by logistic regression."""
        return logistic_shares(x, values, scored)[:, 1]

    def check(self, bags: Bags) -> None:
        """Refuse bags of one class."""
        both_classes(bags)

    def check_rule(self, rule: str) -> None:
        """Accept any rule."""

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Return whether both classes are present."""
        return bool(len(values)) and bool(values.min() < values.max())

    def metric_value(self, values: NDArray[Any], scores: NDArray[Any]) -> float | None:
        """Return the AUROC; None with one class."""
        return auroc(values, scores) if self.has_metric(values) else None

    def estimate(self, values: NDArray[Any], scores: NDArray[Any], *, groups: Groups = None) -> Estimate | None:
        """Return the AUROC with its interval; None with one class."""
        return auroc_estimate(values, scores, groups=groups)

    def difference(
        self,
        values: NDArray[Any],
        scores: NDArray[Any],
        other: NDArray[Any],
        *,
        groups: Groups = None,
        folds: NDArray[np.int64] | None = None,
    ) -> Difference:
        """Return the AUROC of `scores` minus that of `other` scores (DeLong 1988; with groups, Obuchowski 1997)."""
        figures = paired_delong(values, scores, other, groups=groups, folds=folds)
        return Difference(*figures, "paired obuchowski (groups)" if clustered(groups) else "paired delong")

    def decide(
        self, values: NDArray[Any], scores: NDArray[Any], *, rule: str = "youden", out_of_fold: OutOfFold | None = None
    ) -> BinaryDecision | None:
        """Fit the calibrator and the operating point; None if the bags lack a class.

        With fewer than 20 positive validation bags, the training bags that were scored `out_of_fold` are used too, on
        the scale of the validation bags, see `midam.evaluate.calibrate.one_scale`.
        """
        more = 0
        if out_of_fold is not None and values.sum() < FEW_BAGS:
            more, model = len(out_of_fold.values), int(out_of_fold.folds.max()) + 1
            models = np.append(np.full(len(scores), model), out_of_fold.folds)
            values, groups = np.append(values, out_of_fold.values), out_of_fold.groups
            groups = None if groups is None else np.append(np.arange(len(scores)).astype(str), groups)
            scores = one_scale(np.append(scores, out_of_fold.scores), models, like=model, groups=groups)
        if not self.has_metric(values):
            return None
        return BinaryDecision.fit(scores, values, rule=rule, out_of_fold=more)

    def cross_decide(self, scored: OutOfFold, *, rule: str = "youden", alike: bool = True) -> CrossValidated:
        """Decide as every target, and name the bags of the threshold as held out."""
        made = super().cross_decide(scored, rule=rule, alike=alike)
        if not isinstance(made.decision, BinaryDecision) or made.decision.thresholds is None:
            return made
        known = made.decision.thresholds.model_copy(update={"out_of_fold": len(scored.values)})
        return made._replace(decision=made.decision.model_copy(update={"thresholds": known}))

    def aligned(
        self, scored: OutOfFold, by_fold: Mapping[int, Decision], final: Decision
    ) -> tuple[Scores, BinaryDecision]:
        """Return scores of which the threshold for new bags calls positive what that of each fold did.

        The scores of a fold move together, on the logit, and with them the thresholds of other rules.
        """
        decided, scores = cast(BinaryDecision, final), scored.scores.copy()
        one, known = decided.threshold, cast(Thresholds, decided.thresholds)
        cuts: dict[str, list[float]] = {point.rule: [] for point in known.points}
        for fold, decision in by_fold.items():
            of_fold = cast(BinaryDecision, decision)
            inside, cut = scored.folds == fold, of_fold.threshold
            above = scores[inside] >= cut
            moved = expit(score_logits(scores[inside]) + score_logits([one]) - score_logits([cut]))
            low, high = np.nextafter(one - APART * abs(one), -1), one + APART * abs(one)
            before, scores[inside] = scores[inside], np.where(above, np.maximum(moved, high), np.minimum(moved, low))
            for point in cast(Thresholds, of_fold.thresholds).points:
                below = int((before < point.threshold).sum())
                cuts[point.rule].append(cut_below(np.sort(scores[inside]), below))
        points = [point.model_copy(update={"by_fold": cuts[point.rule]}) for point in known.points]
        return scores, decided.model_copy(update={"thresholds": known.model_copy(update={"points": points})})

    def saved(self, decision: Decided) -> dict[str, Any]:
        """Return the entries of a model file that hold the decision."""
        return {"calibrator": None, "threshold": None} if decision is None else decision.to_dict()

    def decision(self, saved: Mapping[str, Any]) -> BinaryDecision | None:
        """Return the decision in the entries of a model file."""
        return None if saved["calibrator"] is None else BinaryDecision.from_dict(saved)

    def notes(self, decision: Decided) -> list[str]:
        """Return a warning if the scores did not rank the validation bags."""
        return [NO_DECISION] if decision is not None and not _final(decision).calibrator.ranks else []

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """Return the probability of the positive class, and the class by its name."""
        if decision is None:
            return {name: [None] * len(scores) for name in ("probability", "class")}
        called = [self.names[code] for code in _final(decision).call(scores).tolist()]
        return {"probability": decision.predict(scores).tolist(), "class": called}

    def summarize(
        self,
        values: NDArray[Any],
        scores: NDArray[Any],
        *,
        groups: Groups = None,
        folds: NDArray[np.int64] | None = None,
        decision: Decided = None,
        metrics: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the metrics of `midam.evaluate.metrics.summarize`, with a warning if the decision means nothing."""
        summary = summarize(
            values,
            scores,
            groups=groups,
            folds=folds,
            threshold=None if decision is None else _final(decision).threshold,
            probabilities=None if decision is None else decision.predict(scores),
            metrics=metrics,
        )
        summary["warnings"] += self.notes(decision)
        return summary


def _final(decision: Decision) -> BinaryDecision:
    """Return the decision for new bags."""
    return cast(BinaryDecision, decision.final if isinstance(decision, FoldDecision) else decision)
