"""Content of a page about a run or an evaluation, and the base class of what each target adds to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.labeled_instances import FIGURES
from midam.evaluate.proportions import Estimate, estimate_of
from midam.evaluate.subgroups import Estimator, find_subgroups
from midam.report.figures import Row
from midam.report.page.render import Figure, Note, Number, Part, Table, interval
from midam.report.words import INSTANCE_NAMES, METRIC_NAMES, PART_NAMES, capitalized, metric_of_history
from midam.targets import Target
from midam.targets.base import clustered

# Subgroups that are shown by default.
BY_GROUP, BY_SIZE = "group", "instances per bag"
MOST_NAMES = 12  # with more classes, labels or grades, a click shows all
UNDECIDED = "This needs validation bags to fit predictions on, and the run has none."
WORST = 10  # bags in a table of errors
_SCALED = ("mae", "mae_constant", "median_follow_up")  # in the unit of the labels
_MEANS = {
    **{"auroc": "1 is perfect, 0.5 chance", "auroc_macro": "1 is perfect, 0.5 chance", "brier": "0 is perfect"},
    **{"c_index": "1 is perfect, 0.5 chance"},
    **{"auprc": "average precision", "quadratic_kappa": "1 is perfect, 0 chance; weighted by squared distance"},
    "spearman": "1 is perfect, 0 chance",
    "mae_constant": "the mean absolute error of a constant",
}


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
    def both_classes(self) -> bool:
        """Whether the bags hold both of two classes."""
        return 0 < self.positives < len(self)

    def counted(self) -> str:
        """Return counts of bags, of positive ones of two classes, and of known groups: "100 bags, 50 positive"."""
        positive = f", {self.positives} positive" if self.values.ndim == 1 else ""
        groups = f", of {plural(len(np.unique(self.groups)), 'group')}" if self.groups is not None else ""
        return f"{plural(len(self), 'bag')}{positive}{groups}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Content of a page about a run (`external` False), or about its evaluation on other data.

    Attributes
    ----------
    data, trained_on, method : str
        Names of the tested data, of the data that the run was trained on, and of its method.
    target : Target
        Target of the run, which gives the main metric and the names of the labels.
    external : bool
        Whether the tested bags come from other data than the run.
    part : str
        Part of the tested bags: "test", "out_of_fold", "val", "train" or "new".
    tested : ScoredBags
        Reported bags.
    summary : mapping
        Pair of the tested bags, as in summary.json.
    parts : mapping of str to ScoredBags
        All parts of the run's data and of the evaluated data, in the order of the flow.
    left_out, cautions : sequence of str
        Notes and warnings from reading the tested data; reasons why the tested bags may be no test, or why classes and
        probabilities mean nothing.
    columns : mapping of str to array of str [N]
        Level of each tested bag, by name of the column.
    about : mapping
        The entries of summary.json; empty if the run has none.
    baseline : array, shape [N], optional
        Scores of the tested bags by the run's baseline.
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
    external: bool
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
    baseline: NDArray[np.float64] | None = None
    thresholds: Thresholds | None = None
    instances: tuple[str, Mapping[str, Any]] | None = None
    pseudonyms: bool = False

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
    def compared(self) -> dict[str, Mapping[str, Any]]:
        """Baseline and covariates alone, if they were compared on bags of this page, by their keys in summary.json."""
        if self.external:
            return {}
        entries = {
            "baseline": self.about.get("baseline"),
            "covariates.alone": self.about.get("covariates", {}).get("alone"),
        }
        return {key: entry for key, entry in entries.items() if entry and entry["part"] in self.parts}

    @property
    def threshold(self) -> float | None:
        """Operating point of a run of two classes, chosen on validation bags."""
        at = self.summary.get("at_threshold")
        return None if at is None else float(at["threshold"])

    def figure(self, name: str) -> Estimate | None:
        """Return a metric of the summary with its interval, or None."""
        return estimate_of(self.summary.get(name), self.summary.get(f"{name}_ci95"), len(self.tested))


class TargetPage:
    """Base class of what a target adds to the page, and all that a target without its own class adds.

    Attributes
    ----------
    of_target : str
        Name of the target; empty for a target without its own class.
    claim, pairs : str
        What the share of the main metric is a share of, as "on 100 bags CLAIM in 80% of all PAIRS".
    validates : str
        What the validation bags are used for.
    """

    of_target: ClassVar[str] = ""
    claim: ClassVar[str] = ": of two bags the one with the higher label had the higher score"
    pairs: ClassVar[str] = "comparable pairs"
    validates: ClassVar[str] = "the model"

    def __init__(self, study: Study) -> None:
        self.study, self.tested, self.summary = study, study.tested, study.summary
        self.target = study.target

    @property
    def ranked(self) -> bool:
        """Whether the tested bags have a main metric."""
        return self.summary.get(self.study.metric) is not None

    @property
    def codes(self) -> NDArray[np.int64]:
        """Position of the class or grade of each tested bag [N]."""
        return self.tested.values[:, 0].astype(np.int64)

    @property
    def names(self) -> NDArray[np.object_]:
        """Names of the classes, labels or grades [C]."""
        return np.array(self.target.names, dtype=object)

    def second(self) -> str | None:
        """Return the second sentence of the page: what the predictions of the bags are worth."""
        return None

    def intervals(self) -> Mapping[str, Estimate | None]:
        """Return metrics of the summary with intervals that it does not hold, by their keys."""
        return {}

    def metrics(self) -> Table:
        """Return the table of the metrics that the target names, and of their intervals."""
        better, rows = self.intervals(), list[list[Any]]()
        for title, key in ((self.study.metric_name, self.study.metric), *self.target.card.figures):
            place, _, name = key.rpartition(".")
            part = (self.summary.get(place) or {}) if place else self.summary
            value = part.get(name)
            if value is not None:
                estimate = better.get(key) or estimate_of(value, part.get(f"{name}_ci95"), len(self.tested))
                form = ".0f" if isinstance(value, int) else ".4g" if name in _SCALED else ".3f"
                head = capitalized(title.removesuffix(" (95% CI)"))
                rows.append([head, Number(value, form, key), interval(estimate, form), _MEANS.get(name, "")])
        method = f"interval of the {self.study.metric_name}: {self.summary[f'{self.study.metric}_method']}"
        return Table(f"Metrics of {self.tested.counted()}; {method}", ["metric", "value", "95% interval", ""], rows)

    def figures(self) -> list[Figure]:
        """Return the figures on how well the scores rank the bags."""
        return []

    def tables(self) -> list[Any]:
        """Return further blocks on how well scores and predictions agree with the labels."""
        return []

    def checks(self) -> list[Part]:
        """Return the blocks on what else to know before relying on the model, such as its calibration."""
        return []

    def errors(self) -> list[Part]:
        """Return tables of the most wrong bags, see `error_table`."""
        return []

    def subgroup_table(
        self, name: str, bags: ScoredBags, levels: NDArray[np.str_], *, caption: str, reference: str | None = None
    ) -> tuple[Table, list[Row]]:
        """Return the metrics of each level, the reference first, and rows of a forest plot."""
        figures = self.subgroup_figures()
        first, compared = next(iter(figures)), list(figures)[:2]  # the compared ones get a column of differences
        known = {"groups": bags.groups, "folds": bags.folds if self.of_target == "binary" else None}
        parts = find_subgroups(bags.values, bags.scores, levels, figures=figures, **known, reference=reference)
        several, rows, lines = any(part.differences for part in parts), list[list[Any]](), list[Row]()
        for part in sorted(parts, key=lambda part: part.level != reference):
            row: list[Any] = [part.level, part.bags]
            is_reference = several and not part.differences and part.figures[first] is not None
            for figure, estimate in part.figures.items():
                gap = part.differences.get(figure)
                row.append(estimate)
                if figure in compared:
                    row.append("reference" if is_reference and figure == first else gap and Number(gap, "+.3f"))
            rows.append(row)
            lines.append(Row(f"{part.level} (n = {part.bags})", part.figures[first]))
        heads = [head for figure in figures for head in (figure, "difference")[: 1 + (figure in compared)]]
        return Table(caption, [name, "bags", *heads], rows, sorts=True), lines

    def subgroup_figures(self) -> dict[str, Estimator]:
        """Return the metrics of subgroups by name; the first has a line in the forest plot."""
        return {self.study.metric_name: self.target.estimate}

    def error_table(
        self, title: str, order: NDArray[np.intp], columns: Mapping[str, Any], *, total: int | None = None
    ) -> Part:
        """Return a table of the first bags of `order`, the worst first, with `columns` [N] by head, out of `total`."""
        every = plural(len(self.tested), "bag") if total is None else f"{total}"
        if not len(order):
            return Part(title, [f"None of {every}."])
        worst = order[:WORST].tolist()
        limit = f", the worst {len(worst)}" if len(worst) < len(order) else ""
        known = {"bag": self.tested.ids, **columns, "instances": self.tested.sizes, "group": self.tested.groups}
        known = {head: column for head, column in known.items() if column is not None}
        rows = [[column[i] for column in known.values()] for i in worst]
        return Part(title, [Table(f"{len(order)} of {every}{limit}", [*known], rows, sorts=True)])


def number_column(values: ArrayLike, form: str = ".3f") -> list[Number]:
    """Return numbers [N] as cells of a table."""
    return [Number(value, form) for value in np.asarray(values, dtype=np.float64).tolist()]


_TEXT = (
    "Some instances have known labels, which no training used. The contribution of an instance is the score of the bag "
    "minus its score without the instance, as `midam explain` shows it. In a bag: the mean over the bags that hold "
    "both labels. Pooled: all labeled instances on one scale. Intervals resample whole {units}."
)
_SEEN = "These bags trained the model. `--test-fraction 0.2` holds bags out."
_FEW = 20  # bags


def instances_parts(study: Study) -> list[Part]:
    """Return the block on labeled instances, if there are any, from the entries of `InstanceMetrics.entries`."""
    if study.instances is None:
        return []
    part, entry = study.instances
    rows, fewest = list[list[Any]](), _FEW
    for name in FIGURES:
        if entry[name] is not None:
            low, high = entry[f"{name}_ci95"]
            estimate = Estimate(entry[name], low, high, entry[f"{name}_bags"])
            chance = Number(entry["chance"][name])
            rows.append([capitalized(INSTANCE_NAMES[name]), Number(entry[name]), interval(estimate), chance])
            rows[-1].append(estimate.bags)
            fewest = min(fewest, estimate.bags)
    counts = f"{entry['instances']} labeled instances, {entry['positives']} positive, of {entry['bags']}"
    caption = f"Contributions of {counts} {PART_NAMES[part]} bags"
    table = Table(caption, ["metric", "value", "95% interval", "chance", "bags"], rows)
    blocks: list[Any] = [_TEXT.format(units="groups" if study.tested.grouped else "bags"), table]
    blocks += [Note(_SEEN)] if part == "train" else []
    if fewest < _FEW:
        blocks.append(Note(f"Fewer than {_FEW} bags: the intervals are wide, and approximate."))
    return [Part("Did the right instances decide?", blocks)]
