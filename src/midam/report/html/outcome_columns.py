"""What the page says of classes and of labels alike: a score each, its AUROC against the rest, its probability."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from midam.evaluate.metrics import FEW_BAGS
from midam.evaluate.proportions import Estimate
from midam.evaluate.reliability import reliability_bins
from midam.report.html.chart import Chart, Range
from midam.report.html.markup import (
    Cell,
    Column,
    Html,
    Section,
    estimate,
    figure,
    folded,
    join,
    number,
    pair,
    paragraph,
    table,
    titled,
)
from midam.report.html.outcome_kind import FEW, MOST_NAMES, Kind, Tile, joined, plural, tile
from midam.report.html.outcome_study import OutcomeBags
from midam.report.html.study import NAMES
from midam.report.html.subgroups import Row, forest

_CURVES, _FOREST = 10, 30  # classes up to which there are ROC curves, and lines of the forest plot
_COLORS = 8


class Columns(Kind):
    """What classes and labels have in common: a score column each, AUROC against the rest, probabilities."""

    one = "class"
    against = "the rest"
    sides = ("of it", "others")
    validates = "probabilities"

    def table(self, bags: OutcomeBags) -> NDArray[np.float64]:
        """Labels [N, C] of 0 and 1, NaN where one is not known."""
        return bags.values

    def each(self) -> dict[str, Any]:
        """Figures of each class or label, by name."""
        found: dict[str, Any] = self.summary["per_class"]
        return found

    def estimates(self) -> list[tuple[str, Estimate | None]]:
        """AUROC of each with its interval."""
        found = []
        for name, own in self.each().items():
            (low, high), count = own["auroc_ci95"] or (np.nan, np.nan), own["positives"] + own["negatives"]
            found.append((name, None if own["auroc"] is None else Estimate(own["auroc"], low, high, count)))
        return found

    def extreme(self, *, best: bool) -> Tile:
        """The tile of the class or label with the highest or the lowest AUROC."""
        known = [(name, found) for name, found in self.estimates() if found is not None]
        title = f"{'Highest' if best else 'Lowest'} AUROC of a {self.one}"
        if not known:
            return tile(title, None, key="")
        name, found = (max if best else min)(known, key=lambda entry: entry[1].value)
        return tile(title, found._replace(low=np.nan), name, key=f"per_class.{name}.auroc")

    def tiles(self) -> list[Tile]:
        """Macro and weighted AUROC, the best and the worst of the classes."""
        below = f"weighted by bags of the {self.one}"
        weighted = tile("Weighted AUROC", self.study.figure("auroc_weighted"), below, key="auroc_weighted")
        return [self.merit(), weighted, self.extreme(best=True), self.extreme(best=False)]

    def flow(self) -> list[Html]:
        """Bags of each class in each part."""
        parts = self.study.parts
        tables = {name: self.table(bags) for name, bags in parts.items()}
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.study.names):
            cells: list[Cell] = [name]
            for own in tables.values():
                has, known = int((own[:, at] == 1).sum()), int(np.isfinite(own[:, at]).sum())
                cells += [has, f"{has / known:.1%}" if known else None]
                cells += [len(own) - known] if self.gaps() else []
            rows.append(cells)
        heads = [Column(self.one)]
        for name in parts:
            heads += [Column(NAMES[name], True), Column("share", True)]
            heads += [Column("unknown", True)] if self.gaps() else []
        found = table(f"Bags of each {self.one} in each part", heads, rows, sorts=True)
        return [
            found if len(rows) <= MOST_NAMES else folded(f"Bags of each of the {plural(len(rows), self.one)}", found)
        ]

    def gaps(self) -> bool:
        """Whether some labels are not known."""
        return bool(np.isnan(joined(list(self.study.parts.values()))).any())

    def ranking(self) -> Section:
        """ROC curves, a forest plot, and a table of the classes."""
        drawn = [self._rocs()] if len(self.study.names) <= _CURVES else []
        found = self._table()
        if len(self.study.names) > _FOREST:
            found = folded(f"All {len(self.study.names)}", found)
        words = (
            f"Each {self.one} is ranked by a score of its own, against {self.against}. Interval of the mean: "
            f"{self.summary['auroc_macro_method']}."
        )
        body = [pair(*drawn, self._forest()), found, paragraph(words, note=True)]
        return Section("ranking", "Ranking: who is above whom", join(body))

    def _rocs(self) -> Html:
        says = f"ROC curve of each {self.one}: sensitivity against 1 minus specificity."
        chart = Chart(says, Range("1 \N{MINUS SIGN} specificity"), Range("Sensitivity"))
        chart.reference([0, 1], [0, 1], name="Chance")
        labels = self.table(self.tested)
        for at, name in enumerate(self.study.names):
            known = np.isfinite(labels[:, at])
            y, s = labels[known, at], self.tested.scores[known, at]
            if len(np.unique(y)) > 1:
                x, up, _ = roc_curve(y, s)
                chart.line(x, up, color=at % _COLORS, dash=(at + at // _COLORS) % _COLORS, name=name)
        words = titled("ROC.", f" A curve a {self.one}, against {self.against}.")
        return figure(chart.drawing(), words, keys=chart.keys())

    def _forest(self) -> Html:
        lines = self.estimates()
        if len(lines) > _FOREST:
            lines = sorted(lines, key=lambda entry: 1.0 if entry[1] is None else entry[1].value)[:_FOREST]
        rows = [Row(name, found) for name, found in lines]
        rows.append(Row("mean of all", self.study.figure("auroc_macro"), "diamond", 1))
        drawing = forest(rows, "AUROC", f"AUROC of each {self.one}, with 95% intervals.", missing="not defined here")
        rest = "" if len(lines) == len(self.study.names) else f" The lowest {_FOREST} of {len(self.study.names)}."
        return figure(drawing, titled(f"AUROC of each {self.one}.", f" Lines are 95% intervals.{rest}"))

    def _table(self) -> Html:
        rows = []
        for (name, own), (_, found) in zip(self.each().items(), self.estimates()):
            has, others = own["positives"], own["negatives"]
            share = has / (has + others) if has + others else None
            key = f"per_class.{name}"
            cells: list[Cell] = [name, has, others, estimate(found, key=f"{key}.auroc")]
            rows.append([*cells, number(own["ap"], key=f"{key}.ap"), number(share)])
        heads = [Column(self.one), *(Column(side, True) for side in self.sides), Column("AUROC")]
        heads += [Column("average precision", True), Column("no skill", True)]
        return table(f"Each {self.one}; no skill is the average precision of chance", heads, rows, sorts=True)

    def reliability(self, hits: NDArray[np.float64], p: NDArray[np.float64], units: Any, across: str, up: str) -> Html:
        """Reliability curve of some probabilities [K] and what came true of them [K]."""
        chart = Chart(f"Reliability curve: {up.lower()} against {across.lower()}.", Range(across), Range(up))
        chart.reference([0, 1], [0, 1], name="Perfect")
        bins = reliability_bins(hits, p, groups=units)
        for part in bins:
            seen = part.observed
            tip = f"told {part.probability:.3f}, came true {seen.value:.3f} [{seen.low:.3f} to {seen.high:.3f}], n = "
            chart.dot(part.probability, seen.value, tip=f"{tip}{seen.bags}", y_bar=(seen.low, seen.high))
        chart.key("Bin, 95% interval", color=0)
        return figure(chart.drawing(), titled("Reliability.", f" {plural(len(bins), 'bin')}."), keys=chart.keys())

    def few(self) -> list[str]:
        """A caution where a class is rare."""
        least = min(own["positives"] for own in self.each().values())
        words = (
            f"The rarest {self.one} has {plural(least, 'bag')}: its figures and all probabilities rest on few; a "
            f"hundred or more of each {self.one} are usually asked for."
        )
        return [*super().few(), *([words] if FEW_BAGS <= least < FEW else [])]
