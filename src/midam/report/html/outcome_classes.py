"""What the page says of bags of several classes, of which a bag has one: ranking, confusion, probabilities."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.outcomes.classes import one_against_rest
from midam.report.html.making import Counts
from midam.report.html.markup import Cell, Column, Html, Section, join, number, pair, paragraph, table
from midam.report.html.outcome_columns import Columns
from midam.report.html.outcome_confusion import confusion, each
from midam.report.html.outcome_kind import UNDECIDED, Tile, joined, named_counts, plural, tile
from midam.report.html.outcome_study import OutcomeBags


class Classes(Columns):
    """Several classes, of which a bag has one."""

    label = "each class"
    claim = ", a bag of a class scored above a bag of another, by the score of that class,"
    pairs = "such pairs, averaged over the classes"

    def table(self, bags: OutcomeBags) -> NDArray[np.float64]:
        """1 in the column of the bag's own class."""
        return one_against_rest(bags.values[:, 0], len(self.study.names))

    def counted(self) -> str:
        """Bags and classes."""
        here = len(np.unique(self.tested.values))
        return f"{len(self.tested)} bags of {plural(here, 'class')}"

    def called(self) -> NDArray[np.intp]:
        """Position of the class that each tested bag is called."""
        shown = self.tested.scores if self.tested.told is None else self.tested.told
        found: NDArray[np.intp] = shown.argmax(axis=1)
        return found

    def second(self) -> Html:
        """How many bags are called right."""
        right, by = np.trace(self.summary["confusion"]), "score" if self.tested.told is None else "probability"
        return Html(f"Called the class of the largest {by}, {right} of {len(self.tested)} bags got their own.")

    def tiles(self) -> list[Tile]:
        """With the accuracy."""
        chance = f"{1 / len(self.study.names):.3f} by chance"
        balanced = tile("Balanced accuracy", self.study.figure("balanced_accuracy"), chance, key="balanced_accuracy")
        merit, weighted, *extremes = super().tiles()
        return [merit, weighted, tile("Accuracy", self.study.figure("accuracy"), key="accuracy"), balanced, *extremes]

    def counts(self) -> Counts:
        """The classes."""

        def lines(parts: Sequence[OutcomeBags]) -> list[str]:
            return named_counts(joined(parts)[:, 0], self.study.names, self.one)

        return Counts(lines, (), lambda _: (), self.validates)

    def sections(self) -> list[Section]:
        """Ranking, confusion, calibration."""
        how = "probability" if self.tested.told is not None else "score (the run has no probabilities)"
        codes, groups, names = self.tested.values[:, 0], self.tested.groups, self.study.names
        body = [
            paragraph(f"A bag is called the class of its largest {how}."),
            confusion(self.summary["confusion"], names, what="class"),
            each(codes, self.called(), names, what="class", groups=groups),
        ]
        return [self.ranking(), Section("operating", "Decisions: which class is told", join(body)), self._calibration()]

    def _calibration(self) -> Section:
        title, p = "Calibration: is 70% seventy of a hundred?", self.tested.told
        if p is None:
            return Section("calibration", title, paragraph(UNDECIDED))
        top, right = p.max(axis=1), (self.called() == self.tested.values[:, 0]).astype(np.float64)
        drawn = self.reliability(right, top, self.tested.groups, "Largest probability", "Share called right")
        rows = []
        for at, name in enumerate(self.study.names):
            share, mean = float((self.tested.values[:, 0] == at).mean()), float(p[:, at].mean())
            rows.append([name, number(mean), number(share)])
        heads = [Column("class"), Column("mean probability", True), Column("share of bags", True)]
        words = (
            "Probabilities come from temperature scaling with an offset of each class on the validation bags, and hold "
            "for their shares of the classes."
        )
        body = [pair(drawn, table("Calibration in the large", heads, rows, sorts=True)), paragraph(words, note=True)]
        return Section("calibration", title, join(body))

    def errors(self) -> Section:
        """The bags whose own class was the least probable."""
        found = self.tested.scores if self.tested.told is None else self.tested.told
        codes, called, names = self.tested.values[:, 0].astype(np.int64), self.called(), self.study.names
        own = found[np.arange(len(codes)), codes]
        wrong = np.flatnonzero(called != codes)
        what = "score" if self.tested.told is None else "probability"

        def cells(i: int) -> list[Cell]:
            return [names[codes[i]], names[called[i]], number(float(own[i])), number(float(found[i, called[i]]))]

        heads = [Column("class"), Column("called"), Column(f"{what} of its own", True), Column("of the called", True)]
        order = wrong[np.argsort(own[wrong] - found[wrong, called[wrong]], kind="stable")].tolist()
        return self.section_of_errors(
            f"Bags that were called another class, those first whose own had the least {what}.",
            self.worst("Called another class", order, heads, cells),
        )

    def shift(self) -> list[str]:
        """Shares of the classes."""
        return [
            "Where the classes have other shares, accuracy, average precision and probabilities differ; where other "
            "classes are among the rest, every AUROC does."
        ]
