"""What labels with an order add to the page: grades, numbers, and times to an event."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.report import plot_scores
from midam.report.page.classes import decisions
from midam.report.page.render import Figure, Number, Part, Table
from midam.report.page.target_page import UNDECIDED, TargetPage, number_column
from midam.report.words import signed

_PARTS = 5


class GradesPage(TargetPage):
    """Grades, the lowest first."""

    of_target = "ordinal"
    claim = ": of two bags of different grades, the one with the higher grade had the higher score"
    pairs = "such pairs"
    validates = "cuts between grades"

    def figures(self) -> list[Figure]:
        """Return the scores of each grade."""
        figure = plot_scores.plot_grade_scores(self.target.names, self.codes, self.tested.scores)
        return [Figure(figure, "Score by grade.")]

    def tables(self) -> list[Any]:
        """Return tables of the predicted grades."""
        if self.tested.predicted is None or "confusion" not in self.summary:
            return [UNDECIDED]
        return [*decisions(self, self.tested.predicted, "grade")]

    def errors(self) -> list[Part]:
        """Return the bags whose grade is furthest from the predicted grade."""
        if self.tested.predicted is None:
            return []
        called, scores = self.tested.predicted.astype(np.int64), self.tested.scores
        columns = {"grade": self.names[self.codes], "predicted": self.names[called], "score": number_column(scores)}
        return _off_both_ways(self, self.codes - called, scores, columns)


class NumbersPage(TargetPage):
    """A number."""

    of_target = "continuous"
    claim = ": of two bags, the one with the larger number had the higher score"
    pairs = "pairs of different numbers"
    validates = "numbers for scores"

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The true numbers [N]."""
        return self.tested.values[:, 0]

    def figures(self) -> list[Figure]:
        """Return the scores against the numbers, with the predicted number of each score."""
        name, tested = self.target.names[0], self.tested
        figure = plot_scores.plot_number_scores(name, self.numbers, tested.scores, tested.predicted)
        return [Figure(figure, "Score and number.", "A dot is a bag.")]

    def checks(self) -> list[Part]:
        """Return how far predicted numbers are off, and the mean true numbers of bags with similar predictions."""
        predicted, title = self.tested.predicted, "Calibration: are predicted numbers right on average?"
        if predicted is None or "mae" not in self.summary:
            return [Part(title, [UNDECIDED])]
        edges = np.unique(np.quantile(predicted, np.arange(1, _PARTS) / _PARTS))
        place, rows = np.searchsorted(edges, predicted, side="left"), list[list[Any]]()
        for part in np.unique(place).tolist():
            inside = place == part
            true, guess = self.numbers[inside], predicted[inside]
            means = [Number(float(x.mean()), ".4g") for x in (guess, true, np.abs(guess - true))]
            ends = [signed(float(end)) for end in (guess.min(), guess.max())]
            rows.append([" to ".join(dict.fromkeys(ends)), int(inside.sum()), *means])
        half, most = np.quantile(np.abs(predicted - self.numbers), (0.5, 0.9)).tolist()
        heads = ["predicted", "bags", "mean predicted", "mean true", "mean error"]
        words = (
            f"Half of the bags are off by at most {half:.4g}, nine of ten by at most {most:.4g}. A non-decreasing step "
            "function, fitted on the validation bags, turns a score into a number of their range."
        )
        return [Part(title, [words, Table("Bags by the predicted number", heads, rows)])]

    def errors(self) -> list[Part]:
        """Return the bags with the largest errors."""
        predicted = self.tested.predicted
        if predicted is None:
            return []
        off, columns = predicted - self.numbers, {"true": number_column(self.numbers, ".4g")}
        columns |= {"predicted": number_column(predicted, ".4g"), "off by": number_column(off, "+.4g")}
        return _off_both_ways(self, -off, np.zeros_like(off), columns)


class SurvivalPage(TargetPage):
    """Time and event; a higher score means an earlier event."""

    of_target = "survival"
    claim = ": of two bags, the one with the earlier event had the higher risk"
    validates = "risk groups"

    @property
    def event(self) -> NDArray[np.bool_]:
        """Whether the event was seen [N]."""
        return np.asarray(self.tested.values[:, 1] == 1)

    def figures(self) -> list[Figure]:
        """Return the Kaplan-Meier curves of the risk groups."""
        predicted = self.tested.predicted
        if predicted is None:
            return []
        finite = np.isfinite(predicted)
        time, event = self.tested.values[finite].T
        curves = plot_scores.plot_survival(time, event, predicted[finite].astype(np.int64))
        caution = "; they take bags for independent" if self.tested.grouped else ""
        text = f"Bands are pointwise 95% intervals (Greenwood){caution}; ticks are censored bags."
        return [Figure(curves, "Kaplan-Meier curves.", text)]

    def tables(self) -> list[Any]:
        """Return a table of the risk groups."""
        if self.tested.predicted is None:
            return [UNDECIDED]
        rows = []
        for place, row in enumerate(self.summary["risk_groups"]):
            bags, events, median = (f"risk_groups.{place}.{quantity}" for quantity in ("bags", "events", "median_time"))
            counts = [Number(row["bags"], ".0f", bags), Number(row["events"], ".0f", events)]
            name = self.target.predicted_names[row["group"]]
            rows.append([name, *counts, Number(row["median_time"], ".4g", median)])
        caption = (
            "Risk groups, cut at the terciles of the validation bags; no median where more than half have no event"
        )
        return [Table(caption, ["risk", "bags", "events", "median time"], rows)]

    def errors(self) -> list[Part]:
        """Return early events at low risk and long times without an event at high risk."""
        predicted, names, time = self.tested.predicted, self.target.predicted_names, self.tested.values[:, 0]
        if predicted is None:
            return []
        columns: dict[str, Any] = {"risk": np.array(names)[np.nan_to_num(predicted).astype(np.int64)]}
        columns |= {"score": number_column(self.tested.scores), "time": number_column(time, ".4g")}
        lowest, highest = np.nanmin(predicted), np.nanmax(predicted)
        early = np.flatnonzero(self.event & (predicted == lowest))
        late = np.flatnonzero(~self.event & (predicted == highest))
        low, high = names[int(lowest)], names[int(highest)]
        early, late = early[np.argsort(time[early], kind="stable")], late[np.argsort(-time[late], kind="stable")]
        return [
            self.error_table(f"Event at {low} risk, the earliest first", early, columns),
            self.error_table(f"No event at {high} risk, the longest time first", late, columns),
        ]


def _off_both_ways(
    page: TargetPage, gaps: NDArray[Any], scores: NDArray[np.float64], columns: Mapping[str, Any]
) -> list[Part]:
    """Return the bags with the largest gaps [N], true minus predicted; of equal gaps, by the score."""
    tables = []
    for sign, title in ((1, "Predicted too low"), (-1, "Predicted too high")):
        wrong = np.flatnonzero(sign * gaps > 0)
        order = wrong[np.lexsort((sign * scores[wrong], -sign * gaps[wrong]))]
        tables.append(page.error_table(title, order, columns))
    return tables
