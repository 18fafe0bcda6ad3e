"""What the page says of bags with several labels, of which a bag has any: ranking and probabilities of each."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.report.html.making import Counts
from midam.report.html.markup import Cell, Column, Html, Section, join, number, pair, paragraph, table
from midam.report.html.outcome_columns import Columns
from midam.report.html.outcome_kind import UNDECIDED, joined, plural
from midam.report.html.outcome_study import OutcomeBags


class Labels(Columns):
    """Several labels, of which a bag has any."""

    one = "label"
    against = "bags without it"
    sides = ("with it", "without")
    label = "each label"
    claim = ", a bag with a label scored above a bag without it, by the score of that label,"
    pairs = "such pairs, averaged over the labels"

    def counted(self) -> str:
        """Bags and labels."""
        return f"{len(self.tested)} bags with {plural(len(self.study.names), 'label')}"

    def second(self) -> Html | None:
        """From the worst label to the best."""
        known = sorted((found.value, name) for name, found in self.estimates() if found is not None)
        if len(known) < 2:
            return None
        (low, last), (high, first) = known[0], known[-1]
        return Html(join(["The labels range from ", f"{low:.1%} ({last}) to {high:.1%} ({first})."]))

    def counts(self) -> Counts:
        """Labels a bag, and how many are unknown."""

        def lines(parts: Sequence[OutcomeBags]) -> list[str]:
            values = joined(parts)
            unknown = int(np.isnan(values).sum())
            has = f"{np.nansum(values) / len(values):.2f} labels a bag"
            return [has, *([f"{unknown:,} entries unknown"] if unknown else [])]

        def cells(bags: OutcomeBags) -> list[Cell]:
            unknown = int(np.isnan(bags.values).sum())
            return [f"{np.nansum(bags.values) / len(bags):.2f}", unknown]

        return Counts(lines, ("labels a bag", "entries unknown"), cells, self.validates)

    def sections(self) -> list[Section]:
        """Ranking and calibration."""
        return [self.ranking(), self._calibration()]

    def _calibration(self) -> Section:
        title, p, values = "Calibration: is 70% seventy of a hundred?", self.tested.told, self.tested.values
        if p is None:
            return Section("calibration", title, paragraph(UNDECIDED))
        known = np.isfinite(values) & np.isfinite(p)
        units = self.tested.ids if self.tested.groups is None else self.tested.groups
        of_entry = np.repeat(units[:, None], values.shape[1], axis=1)[known]
        drawn = self.reliability(values[known], p[known], of_entry, "Probability of a label", "Share that have it")
        rows: list[list[Cell]] = []
        for at, name in enumerate(self.study.names):
            own = known[:, at]
            means = [float(of[own, at].mean()) if own.any() else None for of in (p, values)]
            rows.append([name, *map(number, means)])
        heads = [Column("label"), Column("mean probability", True), Column("share of bags", True)]
        words = (
            "Probabilities come from Platt scaling of each label on the validation bags, and hold for their shares. "
            "The curve takes all labels together; its intervals know that those of a bag belong together."
        )
        body = [pair(drawn, table("Calibration in the large", heads, rows, sorts=True)), paragraph(words, note=True)]
        return Section("calibration", title, join(body))

    def errors(self) -> Section | None:
        """The entries that were the least probable."""
        p, values, names = self.tested.told, self.tested.values, self.study.names
        if p is None:
            return None
        tables = []
        for label, title in (
            (1, "Missed: with the label, least probable"),
            (0, "False alarms: without it, most probable"),
        ):
            # Of each bag the label that it has (or has not) and that was the furthest from that.
            off = np.where((values == label) & np.isfinite(p), np.abs(values - p), -np.inf)
            at, worst = off.argmax(axis=1), off.max(axis=1)
            order = np.argsort(-worst, kind="stable")

            def cells(i: int, at: NDArray[np.intp] = at) -> list[Cell]:
                return [names[at[i]], number(float(p[i, at[i]]))]

            heads = [Column("label"), Column("probability", True)]
            tables.append(self.worst(title, order[np.isfinite(worst[order])].tolist(), heads, cells))
        return self.section_of_errors("Of each bag, the label on which its probability was the furthest off.", *tables)

    def shift(self) -> list[str]:
        """Shares of the labels."""
        return ["Where labels have other shares, average precision and probabilities differ."]
