"""What the page says of numbers: one score that follows their order, and the number that it is told as."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.outcomes.pairs import Pairs
from midam.report.html.chart import Chart, Range, span
from midam.report.html.making import Counts
from midam.report.html.markup import (
    Cell,
    Column,
    Html,
    Section,
    facts,
    figure,
    join,
    number,
    pair,
    paragraph,
    table,
    titled,
)
from midam.report.html.outcome_grades import evenly
from midam.report.html.outcome_kind import UNDECIDED, Kind, Tile, joined, tile
from midam.report.html.outcome_study import OutcomeBags
from midam.report.words import signed

_MOST_DOTS = 1000
_PARTS = 5


class Numbers(Kind):
    """Any number."""

    label = "the number"
    claim = ": of two bags, the one with the larger number had the higher score"
    pairs = "pairs of different numbers"
    validates = "numbers for scores"

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The true numbers [N]."""
        return self.tested.values[:, 0]

    def second(self) -> Html | None:
        """How far off the told number is."""
        error, constant = self.summary.get("mae"), self.summary.get("mae_constant")
        if error is None or constant is None:
            return None
        return join(
            [
                f"The told {self.study.names[0]} was off by {signed(error)} on average; with the median told of all "
                f"bags, it would be {signed(constant)}."
            ]
        )

    def tiles(self) -> list[Tile]:
        """C-index, rank correlations, mean error."""
        constant = self.summary.get("mae_constant")
        beside = None if constant is None else f"{signed(constant)} by a constant"
        return [
            self.merit(),
            tile("Spearman's rho", self.study.figure("spearman"), "1 is perfect, 0 chance", key="spearman"),
            tile("Kendall's tau-b", self.study.figure("kendall_tau"), "0 is chance", key="kendall_tau"),
            tile("Mean absolute error", self.study.figure("mae"), beside, key="mae", form=".3g"),
        ]

    def counts(self) -> Counts:
        """Median and range."""

        def lines(parts: Sequence[OutcomeBags]) -> list[str]:
            low, middle, high = np.quantile(joined(parts), (0, 0.5, 1)).tolist()
            return [f"median {signed(middle)}", f"{signed(low)} to {signed(high)}"]

        def cells(bags: OutcomeBags) -> list[Cell]:
            return [signed(value) for value in np.quantile(bags.values, (0, 0.25, 0.5, 0.75, 1)).tolist()]

        return Counts(lines, ("lowest", "quarter", "median", "three quarters", "highest"), cells, self.validates)

    def sections(self) -> list[Section]:
        """Ranking, and what is told."""
        return [self._ranking(), *self._told()]

    def _ranking(self) -> Section:
        scores = self.tested.scores
        name = self.study.names[0]
        axes = Range(name, *span(self.numbers)), Range("Score", *span(scores))
        chart = Chart(f"Score against {name}.", *axes, left=58)
        shown = self._dots(chart, self.numbers, scores)
        drawn = figure(chart.drawing(), titled("Score and number.", shown))
        rows = [
            ("C-index (1 is perfect, 0.5 chance)", number(self.summary["c_index"])),
            ("Pairs of different numbers", f"{self._pairs():,.0f}"),
            ("Kendall's tau-b, which corrects for ties", number(self.summary["kendall_tau"])),
            ("Spearman's rank correlation", number(self.summary["spearman"])),
        ]
        words = f"Interval of the C-index: {self.summary['c_index_method']}."
        body = join([pair(drawn, facts(rows, caption="Ranking")), paragraph(words, note=True)])
        return Section("ranking", "Ranking: who is above whom", body)

    def _pairs(self) -> float:
        return Pairs.of_numbers(self.numbers).total

    def _dots(self, chart: Chart, x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
        """Draw a dot a bag; says of which, where they are too many."""
        shown = evenly(self.numbers, _MOST_DOTS)
        for at in shown.tolist():
            chart.dot(float(x[at]), float(y[at]), radius=3, tip=f"{self.tested.ids[at]}: {x[at]:.4g}, {y[at]:.4g}")
        if len(shown) == len(x):
            return f" A dot is a bag, n = {len(x)}."
        return f" A dot is a bag: {len(shown)} of {len(x)}, evenly by number."

    def _told(self) -> list[Section]:
        title, told, name = "Decisions: which number is told", self.tested.told, self.study.names[0]
        if told is None or "mae" not in self.summary:
            return [Section("operating", title, paragraph(UNDECIDED))]
        bounds = span(np.append(self.numbers, told))
        axes = Range(f"True {name}", *bounds), Range(f"Told {name}", *bounds)
        chart = Chart(f"Told against true {name}.", *axes, left=58)
        chart.reference(bounds, bounds, name="Perfect")
        shown = self._dots(chart, self.numbers, told)
        drawn = figure(chart.drawing(), titled("Told and true.", shown), keys=chart.keys())
        error, off = float(self.summary["mae"]), np.abs(told - self.numbers)
        constant = float(self.summary["mae_constant"])
        rows = [
            ("Mean absolute error (MAE)", number(error, key="mae", form=".4g")),
            ("The same of a constant, the median of these bags", number(constant, key="mae_constant", form=".4g")),
            ("Share of that error which is spared", number(None if constant == 0 else 1 - error / constant)),
            ("Half of the bags are off by at most", number(float(np.quantile(off, 0.5)), form=".4g")),
            ("Nine of ten are off by at most", number(float(np.quantile(off, 0.9)), form=".4g")),
        ]
        words = (
            "A score is told as a number by the steps, never falling, that are nearest to the validation bags. No "
            "number outside theirs is ever told."
        )
        numbers = facts(rows, caption=f"Errors of the told {name}")
        body = join([paragraph(words), pair(drawn, numbers)])
        return [Section("operating", title, body), self._calibration(told)]

    def _calibration(self, told: NDArray[np.float64]) -> Section:
        """Means of the true numbers where similar ones are told."""
        edges = np.unique(np.quantile(told, np.arange(1, _PARTS) / _PARTS))
        place, rows, dots = np.searchsorted(edges, told, side="left"), list[list[Cell]](), []
        for part in np.unique(place).tolist():
            own = place == part
            true, said = self.numbers[own], told[own]
            dots.append((float(said.mean()), float(true.mean()), *np.quantile(true, (0.1, 0.9)).tolist()))
            off = float(np.abs(said - true).mean())
            ends = [signed(float(end)) for end in (said.min(), said.max())]
            rows.append(
                [
                    " to ".join(dict.fromkeys(ends)),
                    int(own.sum()),
                    *(number(x, form=".4g") for x in (*dots[-1][:2], off)),
                ]
            )
        low, high = span([x for dot in dots for x in dot])
        says = "Mean of the true numbers against the mean of those that are told."
        chart = Chart(says, Range("Told, mean", low, high), Range("True, mean", low, high), left=58)
        chart.reference([low, high], [low, high], name="Perfect")
        for said, true, *bar in dots:
            chart.dot(said, true, y_bar=(bar[0], bar[1]), tip=f"told {said:.4g}, true {true:.4g}")
        chart.key("A fifth of the bags, and where 80% of them lie", color=0)
        drawn = figure(chart.drawing(), titled("Reliability."), keys=chart.keys())
        heads = [Column("told"), *(Column(head, True) for head in ("bags", "mean told", "mean true", "mean error"))]
        numbers = table("Bags by the number that is told", heads, rows)
        return Section("calibration", "Calibration: told ten, is it ten?", pair(drawn, numbers))

    def errors(self) -> Section | None:
        """The bags that are the furthest off."""
        told = self.tested.told
        if told is None:
            return None
        off = told - self.numbers

        def cells(i: int) -> list[Cell]:
            said = ((self.numbers[i], ".4g"), (told[i], ".4g"), (off[i], "+.4g"))
            return [number(float(value), form=form) for value, form in said]

        heads, tables = [Column(head, True) for head in ("true", "told", "off by")], []
        for sign, title in ((-1, "Told too low"), (1, "Told too high")):
            wrong = np.flatnonzero(sign * off > 0)
            order = wrong[np.argsort(-np.abs(off[wrong]), kind="stable")]
            tables.append(self.worst(title, order.tolist(), heads, cells))
        return self.section_of_errors("The bags whose told number is the furthest off.", *tables)

    def shift(self) -> list[str]:
        """Spread of the numbers."""
        return [
            "Where the numbers of bags are more alike, the C-index is lower. The told numbers are pulled towards those "
            "of the validation bags."
        ]
