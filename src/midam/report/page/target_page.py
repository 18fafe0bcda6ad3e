"""Content of a page about a run or an evaluation, and the base of its parts that depend on the target."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.calibrate import Thresholds
from midam.evaluate.decisions import Decision
from midam.evaluate.proportions import Estimate
from midam.evaluate.subgroups import Estimator, find_subgroups
from midam.report.page.render import Link, Number, Section, Table, Tile, interval
from midam.report.plot_runs import Row
from midam.report.words import METRIC_NAMES
from midam.targets import Target

# Subgroups that are shown by default.
BY_GROUP, BY_SIZE = "group", "instances a bag"
MOST_NAMES = 12  # classes, labels or grades up to which all are shown without a click
UNDECIDED = "This needs validation bags to fit predictions on, and the run has none."
# Bags of a class, or events, below which a validation says little (Collins et al. 2016, Statistics in Medicine 35:214).
FEW = 100
WORST = 10  # bags shown of a kind
_ASKED = 4  # bags named in the command that explains them


Cells = Callable[[int], Sequence[Any]]
"""Cells of a table about the bag at a position."""


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

    def counted(self, labels: str = "") -> str:
        """Count bags, and groups if they are known, around words on their labels: "100 bags, 50 sick, of 40 groups"."""
        groups = f", of {plural(len(np.unique(self.groups)), 'group')}" if self.groups is not None else ""
        return f"{plural(len(self), 'bag')}{labels}{groups}"

    def counts(self) -> str:
        """Bags of two classes in words, such as "100 bags, 50 positive, of 40 groups"."""
        return self.counted(f", {self.positives} positive")


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
    importance : mapping, optional
        Permutation importance of the features: its entry in summary.json.
    thresholds : Thresholds, optional
        Of two classes, how the threshold was chosen, and those of other rules; None of runs of earlier versions.
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
    importance: Mapping[str, Any] | None = None
    thresholds: Thresholds | None = None
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


class ScoredPart(NamedTuple):
    """Bags of a part of a run, to draw their scores: labels, scores, their summary, decision and baseline."""

    values: NDArray[Any]
    scores: NDArray[np.float64]
    summary: Mapping[str, Any]
    decision: Decision | None
    title: str
    baseline: NDArray[np.float64] | None

    @property
    def fitted(self) -> Mapping[str, Any]:
        """Numbers of the decision; empty without one."""
        return {} if self.decision is None else self.decision.to_dict()

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments that the figures of all targets have."""
        return {"scores": self.scores, "summary": self.summary, "title": self.title}


class TargetPage:
    """Base of the target pages, and the page of a target that has none of its own.

    Attributes
    ----------
    label : str
        What the authors of a study have to define.
    claim, pairs : str
        The sentence on ranking, which follows "On N bags, that played no part in training"; the pairs it counts.
    validates, val_role : str
        What validation bags are for, and so why they are no test.
    missing : str
        What stands in a forest plot where a level has no figure.
    without : str
        Why a section is missing.
    always_errors : bool
        Whether wrong bags are listed also where nothing can be ranked.
    """

    of_target: ClassVar[str] = ""
    """Name of the target."""
    label: ClassVar[str] = "the label"
    claim: ClassVar[str] = ": of two bags the one with the higher label had the higher score"
    pairs: ClassVar[str] = "comparable pairs"
    validates: ClassVar[str] = "helps to choose the model"
    val_role: ClassVar[str] = "which helped to choose the model, so that this is no test"
    missing: ClassVar[str] = "nothing to rank"
    without: ClassVar[str] = "the page has no such section for this kind of label"
    always_errors: ClassVar[bool] = False
    shift: Sequence[str] = ()
    """Cautions about data with other shares of labels."""

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:
        """Draw how well scores follow the labels into the folder of a run; nothing for a target without a page."""

    def __init__(self, study: Study) -> None:
        self.study, self.tested, self.summary = study, study.tested, study.summary
        self.target = study.target

    @property
    def ranked(self) -> bool:
        """Whether the tested bags have a main metric."""
        return self.summary.get(self.study.metric) is not None

    @property
    def codes(self) -> NDArray[np.int64]:
        """Position of the class or grade of each tested bag."""
        return self.tested.values[:, 0].astype(np.int64)

    def counted(self) -> str:
        """Number of the tested bags in words, with what matters of their labels."""
        return self.tested.counted()

    def second(self) -> str | None:
        """Return the second sentence of the page."""
        return None

    def tiles(self) -> list[Tile]:
        """Key figures."""
        return [self.metric_tile()]

    def tiles_note(self) -> str:
        """Explain the key figures."""
        return f"n = {self.counted()}. Brackets are 95% intervals."

    def card_lines(self, parts: Sequence[ScoredBags]) -> list[str]:  # noqa: ARG002
        """Lines on the labels of these parts, on their card in the flow of bags."""
        return []

    flow_heads: Sequence[str] = ()

    def flow_cells(self, bags: ScoredBags) -> list[Any]:  # noqa: ARG002
        """Cells of `flow_heads`, of a part."""
        return []

    def flow_by_name(self) -> Table | None:
        """Return a table of the bags of each class in each part."""
        return None

    def sections(self) -> list[Section]:
        """Sections on ranking and on what is predicted."""
        return []

    def errors(self) -> Section | None:
        """Return the section of the most wrong bags."""
        return None

    def few(self) -> list[str]:
        """Cautions about figures that rest on few bags."""
        return list(self.summary.get("warnings", []))

    def subgroup_table(
        self, name: str, bags: ScoredBags, levels: NDArray[np.str_], *, caption: str, reference: str | None = None
    ) -> tuple[Table, list[Row]]:
        """Figures of the bags of each level, the reference first, and rows of a forest plot."""
        figures = self.subgroup_figures()
        first, *others = figures
        compared = list(figures)[:2]  # those with a column of differences
        given: dict[str, Any] = {"figures": figures, "groups": bags.groups, "reference": reference}
        parts = find_subgroups(bags.values, bags.scores, levels, **given)
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
        """Cells of `level_heads`, of the bags of a level with these labels."""
        return []

    def subgroup_figures(self) -> dict[str, Estimator]:
        """Figures of subgroups by name; the first has a difference and a line in the forest plot."""
        return {self.study.metric_name: self.target.estimate}

    def metric_tile(self) -> Tile:
        """Tile of the main metric."""
        return self.tile(self.study.metric_name, self.study.metric)

    def tile(self, name: str, key: str, below: Any = None, *, form: str = ".3f") -> Tile:
        """Tile of a figure of the summary; below it stands its interval, where it has one, and what is given."""
        estimate = self.study.figure(key)
        if estimate is None:
            return Tile(name, None, below)
        bounds = interval(estimate, form) if np.isfinite(estimate.low) else None
        lines: list[Any] = [part for part in (bounds, below) if part]
        return Tile(name, Number(estimate.value, form, key), lines or Markup(""))

    def error_table(
        self, title: str, order: NDArray[np.intp], heads: Sequence[str], cells: Cells, *, total: str | None = None
    ) -> dict[str, Any]:
        """Describe the first bags of `order`, the worst first, with `cells` under `heads`, out of `total`."""
        shown, every = order[:WORST].tolist(), len(self.tested)
        rest = f", the worst {len(shown)}" if len(shown) < len(order) and (total or len(order) < every) else ""
        caption = f"{len(order) if rest else len(shown)} of {total or plural(every, 'bag')}{rest}"
        table = self.bag_table(shown, heads, cells, caption=caption) if shown else None
        none = "None." if total is None else f"None of {total}."
        return {"title": title, "none": none, "table": table, "bags": self.tested.ids[shown].tolist()}

    @property
    def _pictures(self) -> Mapping[str, str]:
        """Pictures of the bags that are explained."""
        return {} if self.study.explained is None else self.study.explained.pictures

    def error_section(self, opening: str, *tables: Mapping[str, Any]) -> Section:
        """Return the section of the most wrong bags, and how to see why they scored as they did."""
        study = self.study
        bags = list(dict.fromkeys(bag for part in tables for bag in part["bags"]))
        content: dict[str, Any] = {"opening": opening, "tables": tables, "page": None, "command": None}
        if self.tested.scores.ndim == 1:  # the command explains one score a bag
            unexplained = [bag for bag in bags if bag not in self._pictures][:_ASKED]
            if study.explained is not None and any(bag in self._pictures for bag in bags):
                content["page"] = study.explained.page
            if unexplained:
                content["command"] = f"{study.explain_command} --bags {' '.join(map(shlex.quote, unexplained))}"
        return Section("errors", "Errors: the most wrong bags", "common.html", content)

    def bag_table(self, index: Sequence[int], heads: Sequence[str], cells: Cells, *, caption: str) -> Table:
        """Bags at these positions: name, cells, instances and group where known, explanation where there is one."""
        known, names = self._pictures, self.tested.ids[index].tolist()
        links = [Link("explanation", known[bag]) if bag in known else None for bag in names]
        more = {"instances": self.tested.sizes, "group": self.tested.groups}
        columns = {name: column[index].tolist() for name, column in more.items() if column is not None}
        columns |= {"why": links} if any(links) else {}
        rows = [[bag, *cells(i), *others] for bag, i, *others in zip(names, index, *columns.values())]
        return Table(caption, ["bag", *heads, *columns], rows, sorts=True)


def joined(parts: Sequence[ScoredBags]) -> NDArray[np.float64]:
    """Values of the bags of some parts."""
    return np.concatenate([part.values for part in parts])


def named_counts(codes: NDArray[np.float64], names: Sequence[str], unit: str) -> list[str]:
    """How many bags have each class or grade; their range where they are many."""
    counts = np.bincount(codes.astype(np.int64), minlength=len(names))
    if len(names) <= 4:
        return [f"{name}: {count:,}" for name, count in zip(names, counts.tolist())]
    low, high = f"{counts.min():,}", f"{counts.max():,}"
    return [unit, f"{low if low == high else f'{low} to {high}'} bags of each"]
