"""What the page says of grades: one score that follows their order, and the grade that cuts of it call."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.intervals import auroc_interval
from midam.evaluate.proportions import Estimate
from midam.evaluate.ranking import auroc
from midam.report.html.chart import Chart, Range, span
from midam.report.html.making import Counts
from midam.report.html.markup import (
    Cell,
    Column,
    Html,
    Section,
    estimate,
    figure,
    join,
    number,
    pair,
    paragraph,
    table,
    titled,
)
from midam.report.html.outcome_confusion import confusion, each
from midam.report.html.outcome_kind import FEW, UNDECIDED, Kind, Tile, joined, named_counts, plural, tile
from midam.report.html.outcome_study import OutcomeBags

_MOST_DOTS = 1000


class Grades(Kind):
    """Grades, the lowest first."""

    label = "each grade"
    claim = ": of two bags of different grades, the one with the higher grade had the higher score"
    pairs = "such pairs"
    validates = "cuts between grades"

    @property
    def codes(self) -> NDArray[np.int64]:
        """Position of the grade of each tested bag."""
        return self.tested.values[:, 0].astype(np.int64)

    def counted(self) -> str:
        """Bags and grades."""
        return f"{len(self.tested)} bags of {len(np.unique(self.tested.values))} grades"

    def second(self) -> Html | None:
        """How many bags get their grade, and how many a neighbor of it."""
        if "confusion" not in self.summary:
            return None
        found = np.asarray(self.summary["confusion"])
        near = sum(int(np.trace(found, offset)) for offset in (-1, 0, 1))
        return Html(
            f"By cuts that were chosen on validation bags, {np.trace(found)} of {len(self.tested)} bags got their own "
            f"grade, and {near} their own or one beside it."
        )

    def tiles(self) -> list[Tile]:
        """C-index, kappa, accuracy, tau."""
        kappa = self.study.figure("quadratic_kappa")
        tau = self.study.figure("kendall_tau")
        return [
            self.merit(),
            tile("Kappa (quadratic)", kappa, "1 is perfect, 0 chance", key="quadratic_kappa"),
            tile("Accuracy", self.study.figure("accuracy"), key="accuracy"),
            tile("Kendall's tau-b", tau, "0 is chance", key="kendall_tau"),
        ]

    def counts(self) -> Counts:
        """The grades."""
        names = self.study.names

        def lines(parts: Sequence[OutcomeBags]) -> list[str]:
            return named_counts(joined(parts)[:, 0], names, "grade")

        def cells(bags: OutcomeBags) -> list[Cell]:
            return list(np.bincount(bags.values[:, 0].astype(np.int64), minlength=len(names)).tolist())

        return Counts(lines, names, cells, self.validates)

    def sections(self) -> list[Section]:
        """Ranking, and what is told."""
        drawn = pair(self._strips(), self._cuts())
        words = f"Interval of the C-index: {self.summary['c_index_method']}."
        ranking = Section("ranking", "Ranking: who is above whom", join([drawn, paragraph(words, note=True)]))
        title, told = "Decisions: which grade is told", self.tested.told
        if told is None or "confusion" not in self.summary:
            return [ranking, Section("operating", title, paragraph(UNDECIDED))]
        body = [
            paragraph(
                "The score is cut between grades where the quadratic kappa of the validation bags is the largest; a "
                "bag gets the grade of the last cut that its score has reached. Kappa counts a miss by two grades four "
                "times as much as one by one."
            ),
            confusion(self.summary["confusion"], self.study.names, what="grade"),
            each(self.codes, told, self.study.names, what="grade", groups=self.tested.groups),
        ]
        return [ranking, Section("operating", title, join(body))]

    def _strips(self) -> Html:
        """Scores of the bags of each grade, and their median."""
        scores, names = self.tested.scores, self.study.names
        shown = evenly(scores, _MOST_DOTS)
        low, high = span(scores, pad=0.03)
        chart = Chart.of_rows("Score of each bag, by grade.", Range("Score", low, high), names, height=44)
        for at in shown.tolist():
            grade, place = int(self.codes[at]), 0.56 * ((at * 0.618034) % 1 - 0.5)
            tip = f"{self.tested.ids[at]}: {names[grade]}, score {scores[at]:.3f}"
            chart.dot(float(scores[at]), grade + place, radius=3, tip=tip)
        for grade in range(len(names)):
            own = scores[self.codes == grade]
            if own.size:
                middle = float(np.median(own))
                tip = f"median of {names[grade]}: {middle:.3f}"
                chart.dot(middle, grade, color=1, shape="diamond", radius=5.5, tip=tip)
        chart.key("A bag", color=0)
        chart.key("Median", color=1, shape="diamond")
        rest = "" if len(shown) == len(scores) else f" {len(shown)} of {len(scores)} bags, evenly by score."
        return figure(chart.drawing(), titled("Score by grade.", rest), keys=chart.keys())

    def _cuts(self) -> Html:
        """AUROC of each grade and those above it against those below."""
        rows: list[list[Cell]] = []
        for grade, name in list(enumerate(self.study.names))[1:]:
            above = self.codes >= grade
            found = None
            if above.any() and not above.all():
                interval = auroc_interval(above, self.tested.scores, groups=self.tested.groups, resamples=1000)
                found = Estimate(auroc(above, self.tested.scores), interval.low, interval.high, above.size)
            rows.append([f"{name} or higher", int(above.sum()), int((~above).sum()), estimate(found)])
        heads = [Column("against lower ones"), Column("bags", True), Column("lower", True), Column("AUROC")]
        return table("Ranking at each step of the grades", heads, rows)

    def errors(self) -> Section | None:
        """The bags whose grade is the furthest from the told one."""
        told = self.tested.told
        if told is None:
            return None
        names, called = self.study.names, told.astype(np.int64)

        def cells(i: int) -> list[Cell]:
            return [names[self.codes[i]], names[called[i]], number(float(self.tested.scores[i]))]

        heads, tables = [Column("grade"), Column("told"), Column("score", True)], []
        for sign, title in ((1, "Told too low"), (-1, "Told too high")):
            gap = sign * (self.codes - called)
            wrong = np.flatnonzero(gap > 0)
            order = wrong[np.lexsort((sign * self.tested.scores[wrong], -gap[wrong]))]
            tables.append(self.worst(title, order.tolist(), heads, cells))
        return self.section_of_errors(
            "Bags that are told another grade, those first that are the most grades off.", *tables
        )

    def few(self) -> list[str]:
        """A caution where a grade is rare, which the summary does not warn of."""
        counts = np.bincount(self.codes, minlength=len(self.study.names))
        least, name = int(counts.min()), self.study.names[int(counts.argmin())]
        words = (
            f"The rarest grade, {name}, has {plural(least, 'bag')}: what is said of it and its neighbors rests on few."
        )
        return [*super().few(), *([words] if least < FEW else [])]

    def shift(self) -> list[str]:
        """Shares of the grades."""
        return [
            "Kappa, accuracy and C-index depend on the shares of the grades: neighboring grades are harder to "
            "tell apart than distant ones."
        ]


def evenly(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Positions of at most so many values, spread evenly along their order."""
    order = np.argsort(values, kind="stable")
    return order if order.size <= most else order[np.linspace(0, order.size - 1, most).round().astype(np.intp)]
