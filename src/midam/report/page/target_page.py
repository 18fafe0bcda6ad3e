"""Content of a page about a run or an evaluation, and the base class of the pages of each target."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.target_labels import CODED
from midam.errors import plural
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.decisions import Decision
from midam.evaluate.proportions import Estimate, estimate_of
from midam.evaluate.subgroups import Estimator, find_subgroups
from midam.report.page.render import Link, Number, Section, Table
from midam.report.plot_runs import Row
from midam.report.words import METRIC_NAMES, capitalized, metric_of_history
from midam.targets import Target
from midam.targets.base import clustered

# Subgroups that are shown by default.
BY_GROUP, BY_SIZE = "group", "instances per bag"
MOST_NAMES = 12  # with more classes, labels or grades, a click shows all
UNDECIDED = "This needs validation bags to fit predictions on, and the run has none."
# A validation with fewer bags of a class, or events, says little (Collins et al. 2016, Statistics in Medicine 35:214).
FEW = 100
WORST = 10  # bags in a table of errors
_ASKED = 4  # bags in the command `midam explain` on the page


Cells = Callable[[int], Sequence[Any]]
"""Function that returns the cells of a table for the bag at a position."""


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
    groups, sizes : array [N], or None
        Patient and number of instances of each bag; None if unknown.
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

    def counted(self, labels: str = "") -> str:
        """Return counts of bags and known groups, with labels between them: "100 bags, 50 sick, of 40 groups"."""
        groups = f", of {plural(len(np.unique(self.groups)), 'group')}" if self.groups is not None else ""
        return f"{plural(len(self), 'bag')}{labels}{groups}"

    def counts(self) -> str:
        """Return counts of bags of two classes, such as "100 bags, 50 positive, of 40 groups"."""
        return self.counted(f", {self.positives} positive")


@dataclass(frozen=True)
class Explained:
    """Explanations of bags: their page, and a picture of each bag."""

    page: str
    pictures: Mapping[str, str]


@dataclass(frozen=True)
class Baseline:
    """The baseline that was trained with the run, or the reason why there is none.

    Attributes
    ----------
    found : mapping, optional
        Entry of the baseline in summary.json.
    note : str, optional
        Reason why there is no baseline.
    model : mapping
        Entry of summary.json for the compared bags.
    scores : array, shape [N], optional
        Baseline scores of the tested bags; None if other bags were compared.
    caution, advice : str, optional
        Caution about the comparison; advice if the baseline is better.
    """

    found: Mapping[str, Any] | None = None
    note: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    scores: NDArray[np.float64] | None = None
    caution: str | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Content of a page about a run (`external` False), or about its evaluation on other data.

    Attributes
    ----------
    data, trained_on, method : str
        Names of the tested data, of the data that the run was trained on, and of its method.
    target : Target
        Target of the run, which gives the main metric and the names of the labels.
    classes : sequence of str, optional
        Names of the labels 0 and 1.
    external : bool
        Whether the tested bags come from other data than the run.
    part : str
        Part of the tested bags: "test", "val", "train" or "new".
    tested, validation : ScoredBags
        Reported bags; validation bags, on which threshold and calibration were fitted, or None.
    summary : mapping
        Figures of the tested bags, as in summary.json.
    parts : mapping of str to ScoredBags
        All parts of the run's data and of the evaluated data, in the order of the flow.
    left_out, cautions : sequence of str
        Notes and warnings from reading the tested data; reasons why the tested bags may be no test, or why classes and
        probabilities mean nothing.
    columns : mapping of str to array of str [N]
        Level of each tested bag, by name of the column.
    baseline : Baseline, optional
        Baseline of the run.
    covariates : mapping, optional
        The entry `covariates` of summary.json.
    explained, explain_command : Explained or None, str
        Explanations of tested bags, and the command that makes them.
    history, best_epoch, selected : sequence of mapping, int or None, mapping
        Rows of metrics.csv; the epoch with the best validation metric; epoch and kind of the reported weights.
    chosen : mapping, optional
        Methods that `auto` tried and its choice: its entry in summary.json.
    importance : mapping, optional
        Permutation importance of the features: its entry in summary.json.
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
    importance: Mapping[str, Any] | None = None
    thresholds: Thresholds | None = None
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
    def threshold(self) -> float | None:
        """Operating point of a run of two classes, chosen on validation bags."""
        at = self.summary.get("at_threshold")
        return None if at is None else float(at["threshold"])

    def figure(self, name: str) -> Estimate | None:
        """Return a metric of the summary with its interval, or None."""
        return estimate_of(self.summary.get(name), self.summary.get(f"{name}_ci95"), len(self.tested))


class ScoredPart(NamedTuple):
    """Bags of a part of a run for a plot of their scores: labels, scores, summary, decision and baseline."""

    values: NDArray[Any]
    scores: NDArray[np.float64]
    summary: Mapping[str, Any]
    decision: Decision | None
    title: str
    baseline: NDArray[np.float64] | None

    @property
    def fitted(self) -> Mapping[str, Any]:
        """Numbers of the decision; empty without a decision."""
        return {} if self.decision is None else self.decision.to_dict()

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments that the plots of all targets take."""
        return {"scores": self.scores, "summary": self.summary, "title": self.title}


class TargetPage:
    """Base class of the target pages, and the page of a target without its own class.

    Attributes
    ----------
    of_target : str
        Name of the target, by which the templates choose their words; empty for a target without its own class.
    missing : str
        Text in a forest plot for a level without the metric.
    always_errors : bool
        Whether wrong bags are listed even if nothing can be ranked.
    """

    of_target: ClassVar[str] = ""
    missing: ClassVar[str] = "nothing to rank"
    always_errors: ClassVar[bool] = False

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Plot how well scores agree with the labels into a run folder; nothing for a target without a page."""

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

    def counted(self) -> str:
        """Return the number of tested bags in words, with counts of their labels."""
        return self.tested.counted()

    def second(self) -> dict[str, Any] | None:
        """Return the facts of the second sentence of the page, which `words.html` says; None without one."""
        return None

    def key_figures(self) -> dict[str, Any]:
        """Return the key metrics that are not in the summary; `tiles.html` shows all."""
        return {}

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return facts about the labels of some bags, by their heads in the table of the flow of bags."""
        return {}

    def counts(self, values: NDArray[Any]) -> dict[str, int]:
        """Return the number of bags of each class or grade; empty for other labels."""
        if self.target.name not in CODED:
            return {}
        names, codes = self.target.names, values[:, 0].astype(np.int64)
        return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist()))

    def flow_by_name(self) -> Table | None:
        """Return a table of the bags of each class in each part."""
        return None

    def sections(self) -> list[Section]:
        """Return the sections on ranking and on predictions."""
        return []

    def errors(self) -> Section | None:
        """Return the section of the most wrong bags."""
        return None

    def rarest(self) -> tuple[int, str] | None:
        """Return the bags of the rarest class or grade, or the events, and a name; None if they are not few."""
        return None

    def subgroup_table(
        self, name: str, bags: ScoredBags, levels: NDArray[np.str_], *, caption: str, reference: str | None = None
    ) -> tuple[Table, list[Row]]:
        """Return the metrics of each level, the reference first, and rows of a forest plot."""
        figures = self.subgroup_figures()
        first, *others = figures
        compared = list(figures)[:2]  # these figures get a column of differences
        parts = find_subgroups(
            bags.values, bags.scores, levels, figures=figures, groups=bags.groups, reference=reference
        )
        several, rows = any(part.differences for part in parts), list[list[Any]]()
        for part in sorted(parts, key=lambda part: part.level != reference):
            cells: list[Any] = [part.level, part.bags, *self.level_cells(bags.values[levels == part.level])]
            is_reference = several and not part.differences and part.figures[first] is not None
            for figure in figures:
                cells.append(part.figures[figure])
                gap = part.differences.get(figure)
                if figure in compared:
                    cells.append("reference" if is_reference and figure == first else gap and Number(gap, "+.3f"))
            rows.append(cells)
        heads = [first, "difference"]
        for figure in others:
            heads += [figure, "difference "] if figure in compared else [figure]
        table = Table(caption, [name, "bags", *self.level_heads, *heads], rows, sorts=True)
        return table, [Row(f"{row[0]} (n = {row[1]})", row[2 + len(self.level_heads)]) for row in rows]

    level_heads: Sequence[str] = ()

    def level_cells(self, values: NDArray[Any]) -> list[Any]:  # noqa: ARG002
        """Return the cells under `level_heads` for the bags of a level with these labels."""
        return []

    def subgroup_figures(self) -> dict[str, Estimator]:
        """Return the metrics of subgroups by name; the first has a line in the forest plot."""
        return {self.study.metric_name: self.target.estimate}

    def error_table(
        self, title: str, order: NDArray[np.intp], heads: Sequence[str], cells: Cells, *, total: str | None = None
    ) -> dict[str, Any]:
        """Return a table of the first bags of `order`, the worst first, with `cells` under `heads`, out of `total`."""
        worst, every = order[:WORST].tolist(), len(self.tested)
        limit = f", the worst {len(worst)}" if len(worst) < len(order) and (total or len(order) < every) else ""
        caption = f"{len(order) if limit else len(worst)} of {total or plural(every, 'bag')}{limit}"
        table = self.bag_table(worst, heads, cells, caption=caption) if worst else None
        none = "None." if total is None else f"None of {total}."
        return {"title": title, "none": none, "table": table, "bags": self.tested.ids[worst].tolist()}

    @property
    def _pictures(self) -> Mapping[str, str]:
        """Pictures of the explained bags."""
        return {} if self.study.explained is None else self.study.explained.pictures

    def error_section(self, *tables: Mapping[str, Any], threshold: str | None = None) -> Section:
        """Return the section of the most wrong bags, with the command that explains their scores.

        `threshold` is the threshold of the run for two classes.
        """
        study = self.study
        bags = list(dict.fromkeys(bag for part in tables for bag in part["bags"]))
        content: dict[str, Any] = {"tables": tables, "threshold": threshold, "page": None, "command": None}
        if self.tested.scores.ndim == 1:  # the command explains one score per bag
            unexplained = [bag for bag in bags if bag not in self._pictures][:_ASKED]
            if study.explained is not None and any(bag in self._pictures for bag in bags):
                content["page"] = study.explained.page
            if unexplained:
                content["command"] = f"{study.explain_command} --bags {' '.join(map(shlex.quote, unexplained))}"
        content["target"] = self.of_target
        return Section("errors", "Errors: the most wrong bags", "common.html", content)

    def bag_table(self, index: Sequence[int], heads: Sequence[str], cells: Cells, *, caption: str) -> Table:
        """Return a table of the bags at these positions: name, cells, and instances, group and explanation if known."""
        pictures, names = self._pictures, self.tested.ids[index].tolist()
        links = [Link("explanation", pictures[bag]) if bag in pictures else None for bag in names]
        more = {"instances": self.tested.sizes, "group": self.tested.groups}
        columns = {name: column[index].tolist() for name, column in more.items() if column is not None}
        if any(links):
            columns["why"] = links
        rows = [[bag, *cells(i), *others] for bag, i, *others in zip(names, index, *columns.values())]
        return Table(caption, ["bag", *heads, *columns], rows, sorts=True)
