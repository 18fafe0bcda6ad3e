"""What a page about a run or an evaluation is made of: scored bags, and what is known of how they came about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PartBags:
    """Bags of one part, whatever their labels: name, group and instances of each, None where unknown."""

    ids: NDArray[np.str_]
    groups: NDArray[np.str_] | None
    sizes: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def grouped(self) -> bool:
        """Whether some group holds several bags."""
        return self.groups is not None and len(np.unique(self.groups)) < len(self)

    def of_groups(self) -> str:
        """Their groups in words, such as ", of 40 groups"; nothing where none are known."""
        return f", of {len(np.unique(self.groups))} groups" if self.groups is not None else ""


@dataclass(frozen=True)
class ScoredBags(PartBags):
    """Bags of one part with their scores.

    Attributes
    ----------
    ids, labels, scores : array, shape [N]
        Names, labels 0 or 1, scores.
    probabilities, groups, sizes : array, shape [N], or None
        Calibrated probabilities, patients, instances of each bag; None where unknown.
    """

    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None = None
    groups: NDArray[np.str_] | None = None
    sizes: NDArray[np.int64] | None = None

    @property
    def positives(self) -> int:
        """Number of positive bags."""
        return int(self.labels.sum())

    @property
    def both_classes(self) -> bool:
        """Whether there are bags of both classes."""
        return 0 < self.positives < len(self)

    def counts(self) -> str:
        """Their numbers in words, such as "100 bags, 50 positive, of 40 groups"."""
        return f"{len(self)} bags, {self.positives} positive{self.of_groups()}"


@dataclass(frozen=True)
class Explained:
    """Explanations of bags: the page of all, and a picture of each."""

    page: str
    pictures: Mapping[str, str]


@dataclass(frozen=True)
class Baseline:
    """The baseline that was trained beside the run, or why there is none.

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
class Report:
    """What the pages of all targets say of a run (`external` False) or of an evaluation of it on other data.

    Attributes
    ----------
    data, trained_on, method : str
        Names of the tested data, of the data that the run was trained on, and of its method.
    external : bool
        Whether the tested bags come from other data than the run.
    part : str
        What the tested bags are: "test", "val", "train" or "new".
    tested, validation : PartBags
        The bags that are reported; those that thresholds, calibration and the like come from, None where there are
        none.
    summary : mapping
        Of the tested bags, as in summary.json.
    parts : mapping of str to PartBags
        All parts of the run's data, and of the evaluated data, in the order of the flow.
    left_out, cautions : sequence of str
        What reading the tested data left out, or warned of; why the tested bags may be no test, or the classes and
        probabilities mean nothing.
    columns : mapping of str to array of str [N]
        Level of each tested bag, by the name of the subgroups.
    baseline : Baseline, optional
        Of the run's own test bags.
    covariates : mapping, optional
        What the run takes beside the instances, and how that does alone: its entry in summary.json.
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
    external: bool
    part: str
    tested: PartBags
    validation: PartBags | None
    summary: Mapping[str, Any]
    parts: Mapping[str, PartBags]
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


@dataclass(frozen=True, kw_only=True)
class Study(Report):
    """What the page of bags of two classes says beside that.

    Attributes
    ----------
    classes : sequence of str, optional
        What the labels 0 and 1 are called.
    """

    tested: ScoredBags
    validation: ScoredBags | None
    parts: Mapping[str, ScoredBags]
    classes: Sequence[object] | None = None

    @property
    def threshold(self) -> float | None:
        """The operating point of the run, chosen on validation bags."""
        at = self.summary.get("at_threshold")
        return None if at is None else float(at["threshold"])


NAMES = {"test": "test", "val": "validation", "train": "training", "new": "new"}
# What the tested bags were to the training.
ROLES = {
    "test": "that played no part in training",
    "new": "of other data than the run's",
    "val": "which chose threshold and calibration, so that this is no test",
    "train": "which the model was fitted to, so that this is no test",
}
# Subgroups that nobody has to ask for.
BY_GROUP, BY_SIZE = "group", "instances a bag"
