"""Content of a page about a run or an evaluation: scored bags, and how they came about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.report.words import METRIC_NAMES
from midam.targets import Target

# Subgroups that are shown by default.
BY_GROUP, BY_SIZE = "group", "instances a bag"


@dataclass(frozen=True)
class ScoredBags:
    """Bags of one part with their scores.

    Attributes
    ----------
    ids : array of str [N]
        Names.
    values : array [N], or [N, L]
        Labels 0 or 1; of other targets as `midam.data.target_labels.TargetLabels` has them.
    scores : array of float64 [N], or [N, C] of classes and labels
        Scores.
    predicted : array of float64 or None
        What the scores mean: probabilities [N], or [N, C] of classes and labels, NaN of a label that has none; the
        position of the grade, the number, or the position of the risk group [N]. None where nothing was decided.
    groups, sizes : array [N], or None
        Patients, instances of each bag; None where unknown.
    """

    ids: NDArray[np.str_]
    values: NDArray[Any]
    scores: NDArray[np.float64]
    predicted: NDArray[np.float64] | None = None
    groups: NDArray[np.str_] | None = None
    sizes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def grouped(self) -> bool:
        """Whether some group holds several bags."""
        return self.groups is not None and len(np.unique(self.groups)) < len(self)

    @property
    def positives(self) -> int:
        """Number of positive bags, of two classes."""
        return int(self.values.sum())

    @property
    def both_classes(self) -> bool:
        """Whether there are bags of both of two classes."""
        return 0 < self.positives < len(self)

    def of_groups(self) -> str:
        """Their groups in words, such as ", of 40 groups"; nothing where none are known."""
        return f", of {len(np.unique(self.groups))} groups" if self.groups is not None else ""

    def counts(self) -> str:
        """Bags of two classes in words, such as "100 bags, 50 positive, of 40 groups"."""
        return f"{len(self)} bags, {self.positives} positive{self.of_groups()}"


@dataclass(frozen=True)
class Explained:
    """Explanations of bags: the page of all, and a picture of each."""

    page: str
    pictures: Mapping[str, str]


@dataclass(frozen=True)
class Baseline:
    """The baseline that was trained with the run, or why there is none.

    Attributes
    ----------
    found : mapping, optional
        Its entry in summary.json.
    note : str, optional
        Why there is none.
    model : mapping
        Entry of summary.json of the bags that both were compared on.
    scores : array, shape [N], optional
        Its scores of the tested bags; None where it was compared on others.
    caution, advice : str, optional
        What the comparison hides; what to do where the baseline is ahead.
    """

    found: Mapping[str, Any] | None = None
    note: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    scores: NDArray[np.float64] | None = None
    caution: str | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that a page shows of a run (`external` False) or of an evaluation of it on other data.

    Attributes
    ----------
    data, trained_on, method : str
        Names of the tested data, of the data that the run was trained on, and of its method.
    target : Target
        Its metric is that of the summary; its names are those of the labels.
    classes : sequence of str, optional
        Names of the labels 0 and 1.
    external : bool
        Whether the tested bags come from other data than the run.
    part : str
        What the tested bags are: "test", "val", "train" or "new".
    tested, validation : ScoredBags
        The bags that are reported; those that thresholds, calibration and the like come from, None without any.
    summary : mapping
        Of the tested bags, as in summary.json.
    parts : mapping of str to ScoredBags
        All parts of the run's data, and of the evaluated data, in the order of the flow.
    left_out, cautions : sequence of str
        What reading the tested data left out, or warned of; why the tested bags may be no test, or the classes and
        probabilities mean nothing.
    columns : mapping of str to array of str [N]
        Level of each tested bag, by the name of the subgroups.
    baseline : Baseline, optional
        Of the run's own test bags.
    covariates : mapping, optional
        The entry `covariates` of summary.json.
    explained, explain_command : Explained or None, str
        Where explanations of tested bags are, and how to make them.
    history, best_epoch, selected : sequence of mapping, int or None, mapping
        Rows of metrics.csv; the epoch with the best validation bags; whose weights are reported.
    chosen : mapping, optional
        What `auto` tried, and why it took what it took: its entry in summary.json.
    changed, settings : sequence
        Settings that differ from their defaults (name, value, default), and all of them (name, value).
    facts : sequence of (str, str)
        Versions, hashes, command and the like.
    pseudonyms : bool, default False
        Whether names are those of `midam.report.pseudonyms`.
    """

    data: str
    trained_on: str
    method: str
    target: Target
    classes: Sequence[object] | None = None
    external: bool
    part: str
    tested: ScoredBags
    validation: ScoredBags | None
    summary: Mapping[str, Any]
    parts: Mapping[str, ScoredBags]
    explain_command: str
    history: Sequence[Mapping[str, float | None]]
    best_epoch: int | None
    selected: Mapping[str, Any]
    changed: Sequence[tuple[str, str, str]]
    settings: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    left_out: Sequence[str] = ()
    cautions: Sequence[str] = ()
    columns: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    baseline: Baseline | None = None
    covariates: Mapping[str, Any] | None = None
    explained: Explained | None = None
    chosen: Mapping[str, Any] | None = None
    pseudonyms: bool = False

    @property
    def metric(self) -> str:
        """Key of the main metric in the summary."""
        return self.target.metric

    @property
    def metric_name(self) -> str:
        """Main metric, as people know it; begins with a capital."""
        name = METRIC_NAMES.get(self.metric, self.metric)
        return f"{name[:1].upper()}{name[1:]}"

    @property
    def threshold(self) -> float | None:
        """The operating point of a run of two classes, chosen on validation bags."""
        at = self.summary.get("at_threshold")
        return None if at is None else float(at["threshold"])

    def figure(self, name: str) -> Estimate | None:
        """A figure of the summary with its interval; None where there is none."""
        value, (low, high) = self.summary.get(name), self.summary.get(f"{name}_ci95") or (np.nan, np.nan)
        return None if value is None else Estimate(value, low, high, len(self.tested))
