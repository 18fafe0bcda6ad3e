"""Content of a page about a run, or about its evaluation on other data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.metrics import auprc_estimate
from midam.evaluate.proportions import Estimate, estimate_of
from midam.report.words import METRIC_NAMES, capitalized, metric_of_history
from midam.targets import Target
from midam.targets.base import clustered

# Subgroups that are shown by default.
BY_GROUP, BY_SIZE = "group", "instances per bag"
UNDECIDED = "This needs validation bags to fit predictions on, and the run has none."


@dataclass(frozen=True)
class ScoredBags:
    """Bags of one part with their scores.

    Attributes
    ----------
    ids : array of str [N]
        Names.
    values : array [N], or [N, L]
        Labels 0 or 1; for other targets, the values of `midam.data.target_labels.TargetLabels`.
    scores : array of float64 [N], or [N, C] of classes and labels
        Scores.
    predicted : array of float64 or None
        Predictions: probabilities [N], or [N, C] of classes and labels, with NaN for a label without a probability; or
        the position of the grade, the number, or the position of the risk group [N]. None without a decision.
    groups, sizes, folds : array [N], or None
        Patient, number of instances and fold of each bag; None if unknown.
    """

    ids: NDArray[np.str_]
    values: NDArray[Any]
    scores: NDArray[np.float64]
    predicted: NDArray[np.float64] | None = None
    groups: NDArray[np.str_] | None = None
    sizes: NDArray[np.int64] | None = None
    folds: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def grouped(self) -> bool:
        """Whether any group holds several bags."""
        return clustered(self.groups)

    @property
    def positives(self) -> int:
        """Number of positive bags, for two classes."""
        return int(self.values.sum())

    @property
    def codes(self) -> NDArray[np.int64]:
        """Position of the class or grade of each bag [N]."""
        return self.values[:, 0].astype(np.int64)

    def counted(self) -> str:
        """Return counts of bags, of positive ones of two classes, and of known groups: "100 bags, 50 positive"."""
        positive = f", {self.positives} positive" if self.values.ndim == 1 else ""
        groups = f", of {plural(len(np.unique(self.groups)), 'group')}" if self.groups is not None else ""
        return f"{plural(len(self), 'bag')}{positive}{groups}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Content of a page about a run, or about its evaluation on other data.

    Attributes
    ----------
    data, trained_on, method : str
        Names of the tested data, of the data that the run was trained on, and of its method.
    target : Target
        Target of the run, which gives the main metric and the names of the labels.
    part : str
        Part of the tested bags: "test", "out_of_fold", "val", "train", or "new" of other data.
    tested : ScoredBags
        Reported bags.
    summary : mapping
        Pair of the tested bags, as in summary.json.
    parts : mapping of str to ScoredBags
        All parts of the run's data and of the evaluated data, in the order of the flow.
    left_out, cautions : sequence of str
        Notes and warnings from reading the tested data; reasons why the tested bags may be no test.
    columns : mapping of str to array of str [N]
        Level of each tested bag, by name of the column.
    about : mapping
        The entries of summary.json; empty if the run has none.
    instances : (str, mapping), optional
        Part of the bags with labeled instances, and the metrics of their contributions, if there are such.
    explain_command : str
        The command that explains bags, without their names.
    history : sequence of mapping
        Rows of metrics.csv.
    thresholds : Thresholds, optional
        For two classes, the choice of the threshold, and thresholds of other rules; None if unknown.
    changed, settings : sequence
        Settings that differ from their defaults (name, value, default), and all settings (name, value).
    facts : sequence of (str, str)
        Facts such as versions, hashes and command.
    pseudonyms : bool, default False
        Whether names are pseudonyms of `midam.report.pseudonyms`.
    """

    data: str
    trained_on: str
    method: str
    target: Target
    part: str
    tested: ScoredBags
    summary: Mapping[str, Any]
    parts: Mapping[str, ScoredBags]
    explain_command: str
    history: Sequence[Mapping[str, float | None]]
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    left_out: Sequence[str] = ()
    cautions: Sequence[str] = ()
    columns: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Thresholds | None = None
    instances: tuple[str, Mapping[str, Any]] | None = None
    pseudonyms: bool = False

    @property
    def external(self) -> bool:
        """Whether the tested bags come from other data than the run."""
        return self.part == "new"

    @property
    def metric(self) -> str:
        """Key of the main metric in the summary."""
        return self.target.metric

    @property
    def metric_name(self) -> str:
        """Common name of the main metric, with a capital letter."""
        return capitalized(METRIC_NAMES.get(self.metric, self.metric))

    @property
    def training_metric(self) -> str:
        """Common name of the metric in the history."""
        return METRIC_NAMES[metric_of_history(self.history)]

    @property
    def folds(self) -> int:
        """Number of folds that scored the tested bags; 0 if they were not cross-validated."""
        return int(self.about.get("folds", 0)) if self.part == "out_of_fold" else 0

    @property
    def fitted_on(self) -> str:
        """The bags on which predictions were fitted, in words."""
        kind = self.thresholds.kind if self.thresholds else "out-of-fold" if self.about.get("folds") else "validation"
        return f"the {kind} bags" if self.tested.folds is None else "the other folds"

    @property
    def threshold(self) -> float | None:
        """Operating point of a run of two classes, chosen on validation bags."""
        at = self.summary.get("at_threshold")
        return None if at is None else float(at["threshold"])

    def figure(self, name: str) -> Estimate | None:
        """Return a metric of the summary with its interval, or None; a dot in the name leads into an entry."""
        if name == "auprc":
            return auprc_estimate(self.tested.values, self.tested.scores, groups=self.tested.groups)
        place, _, key = name.rpartition(".")
        part = (self.summary.get(place) or {}) if place else self.summary
        return estimate_of(part.get(key), part.get(f"{key}_ci95"), len(self.tested))
