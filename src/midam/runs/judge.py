"""How the scores of a run are judged: decision, predictions, figures of merit and pictures, by its target."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.metrics import operating_point, summarize
from midam.evaluate.ranking import auroc
from midam.runs.beside import COMPARED, Beside, train_beside
from midam.runs.data import SplitBags
from midam.runs.folder import SPLITS, RunFolder, csv_text
from midam.runs.outcomes import OutcomeJudge
from midam.targets import target_of

NO_DECISION = (
    "The scores ranked the validation bags no better than chance: class and probability of a bag mean nothing."
)


class Judge(Protocol):
    """Judges the scores of all bags of a run."""

    def made(self) -> dict[str, Any]:
        """What the model file keeps of the decision, by parameters of `midam.runs.results.model_content`."""

    def predictions(self) -> str:
        """Text of predictions.csv."""

    def beside(self, *, seed: int) -> Beside:
        """Train the baseline, and compare it with the scores."""

    def summarize(self) -> dict[str, Any]:
        """Entries of summary.json of each split."""

    def about(self) -> dict[str, Any]:
        """What summary.json tells of the target."""

    def merits(self, scores: NDArray[np.float64]) -> dict[str, float | None]:
        """Figure of merit of each split under other weights."""

    def draw(self, folder: RunFolder, summary: Mapping[str, Any], data: str, beside: Beside) -> None:
        """Draw the picture of the test bags, or of those that come nearest."""


def judge_of(parts: SplitBags, scores: NDArray[np.float64], *, classes: Sequence[Any] | None) -> Judge:
    """Judge of the scores [N] or [N, C] of all bags; `classes` are the names of labels 0 and 1."""
    if parts.bags.outcome is None:
        return BinaryJudge(parts, scores, classes=classes)
    return OutcomeJudge(parts, target_of(parts.bags), scores)


class BinaryJudge:
    """Judges scores [N] of bags of two classes."""

    def __init__(self, parts: SplitBags, scores: NDArray[np.float64], *, classes: Sequence[Any] | None) -> None:
        self._parts, self._scores, self._classes = parts, scores, classes
        self._labels = parts.bags.require_labels()
        held = parts.splits == "val"
        self._calibrator, self._threshold = fit_decision(self._labels[held], scores[held])
        self._probabilities = None if self._calibrator is None else self._calibrator.predict(scores)

    def made(self) -> dict[str, Any]:
        """Calibrator and operating point."""
        return {"calibrator": self._calibrator, "threshold": self._threshold}

    def predictions(self) -> str:
        """Text of predictions.csv."""
        called: dict[str, Any] = {
            "probabilities": self._probabilities,
            "threshold": self._threshold,
            "classes": self._classes,
        }
        return predictions_text(self._parts.bags, self._scores, splits=self._parts.splits, **called)

    def beside(self, *, seed: int) -> Beside:
        """Train the baseline, and compare it with the scores."""
        return train_beside(self._parts, self._scores, seed=seed)

    def summarize(self) -> dict[str, Any]:
        """Entries of summary.json of each split."""
        told: dict[str, Any] = {"threshold": self._threshold, "probabilities": self._probabilities}
        told["notes"] = decision_notes(self._calibrator)
        return summarize_parts(self._parts.bags, self._parts.splits, self._scores, names=SPLITS, **told)

    def about(self) -> dict[str, Any]:
        """Nothing: two classes are what a summary is of where it says nothing."""
        return {}

    def merits(self, scores: NDArray[np.float64]) -> dict[str, float | None]:
        """AUROC of each split; None where it lacks a class."""
        parts = {name: self._parts.splits == name for name in SPLITS}
        found = {name: (self._labels[of], scores[of]) for name, of in parts.items()}
        return {f"{name}_auroc": auroc(*part) if _both(part[0]) else None for name, part in found.items()}

    def draw(self, folder: RunFolder, summary: Mapping[str, Any], data: str, beside: Beside) -> None:
        """Draw the ROC curve, and that of the baseline."""
        from midam.report.figures import plot_roc

        drawn = next((name for name in COMPARED if summary.get(name, {}).get("auroc") is not None), None)
        if drawn is None:
            return
        inside, title = self._parts.splits == drawn, f"{data}: {drawn} bags"
        held = {"labels": self._labels[inside], "scores": self._scores[inside], "summary": summary[drawn]}
        plot_roc(folder.roc, **held, title=title, threshold=self._threshold, baseline=beside.scores)


def summarize_parts(
    bags: Bags,
    parts: NDArray[np.str_],
    scores: NDArray[np.float64],
    *,
    names: Sequence[str],
    threshold: float | None,
    probabilities: NDArray[np.float64] | None,
    notes: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Entries of `midam.evaluate.metrics.summarize` of each part of labeled bags that has some, and these notes."""
    optional = {"groups": bags.groups, "probabilities": probabilities}
    labels, found = bags.require_labels(), {}
    for name in names:
        inside = parts == name
        if inside.any():
            own: dict[str, Any] = {key: None if values is None else values[inside] for key, values in optional.items()}
            found[name] = summarize(labels[inside], scores[inside], **own, threshold=threshold, metrics=metrics)
            found[name]["warnings"] += notes
    return found


def predictions_text(
    bags: Bags,
    scores: NDArray[np.float64],
    *,
    splits: NDArray[np.str_] | None = None,
    probabilities: NDArray[np.float64] | None,
    threshold: float | None,
    classes: Sequence[Any] | None,
    header: bool = True,
) -> str:
    """Predictions as CSV, a row a bag: bag, label, split, score, probability, class, instances, group.

    The class is what the score is called at the threshold, by its name in `classes` (of label 0 and 1) where they have
    names. Label, split and group have columns where they are known, instances where the splits are; what is not known
    of a bag is empty.
    """
    names = (0, 1) if classes is None else classes
    columns: dict[str, Sequence[Any] | None] = {
        "bag": bags.ids.tolist(),
        "label": None if bags.labels is None else bags.labels.tolist(),
        "split": None if splits is None else splits.tolist(),
        "score": scores.tolist(),
        "probability": [None] * len(bags) if probabilities is None else probabilities.tolist(),
        "class": [None if threshold is None else names[int(score >= threshold)] for score in scores],
        "instances": None if splits is None else bags.sizes.tolist(),
        "group": None if bags.groups is None else bags.groups.tolist(),
    }
    known = {name: values for name, values in columns.items() if values is not None}
    return csv_text(list(known), (dict(zip(known, row)) for row in zip(*known.values(), strict=True)), header=header)


def fit_decision(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> tuple[PlattCalibrator | None, float | None]:
    """Calibrator and operating point of the validation bags; None where these lack a class."""
    return (PlattCalibrator().fit(scores, labels), operating_point(labels, scores)) if _both(labels) else (None, None)


def decision_notes(calibrator: PlattCalibrator | None) -> list[str]:
    """What to say of classes and probabilities that mean nothing; nothing where they mean something, or are none."""
    return [] if calibrator is None or calibrator.ranks else [NO_DECISION]


def _both(labels: NDArray[np.int64]) -> bool:
    return len(np.unique(labels)) == 2
