"""What the trials of the map say: kinds of cells, paired differences, winners, and what the budget costs against all.

Repeats are independent; cells of one repeat share images. So an interval is a t interval over repeats, of a cell's
values or of the means over cells. A mean over cells is over informative ones, by a rule fixed before the first run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.engine import Store
from studies.regime.budget import BACKWARD, FORWARD
from studies.regime.design import CEILING, DRAWN, EXACT, MATCHED, MINIBATCH, RULES, Cell, Design, Rule
from studies.regime.trials import Chosen, outcomes
from studies.split_statistics import Estimate, mean_interval

CHANCE = 0.5
SATURATED = 0.98
Where = Callable[[Cell], bool]
Kind = Literal["informative", "saturated", "at chance"]


class Tally(NamedTuple):
    """Cells in which the interval of a difference lies above zero, below it, or holds it."""

    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, eq=False)
class Results:
    """Validation and test AUROC [cells, repeats] by rule, NaN where a rule does not run or diverged."""

    design: Design
    chosen: Chosen
    val: dict[str, NDArray[np.float64]]
    test: dict[str, NDArray[np.float64]]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, as the rows of `val` and `test`."""
        return self.design.cells

    def kind(self, cell: Cell) -> Kind:
        """Whether a cell can tell rules apart.

        Of the rules that draw: saturated where the mean test AUROC of each is at least 0.98; at chance where no rule's
        interval lies above 0.5.
        """
        areas = [area for rule in DRAWN for area in [self.area(rule, cell)] if area is not None]
        if not any(area.low > CHANCE for area in areas):
            return "at chance"
        return "saturated" if min(area.mean for area in areas) >= SATURATED else "informative"

    def informative(self, where: Where | None = None) -> list[Cell]:
        """Informative cells, of those `where`."""
        return [cell for cell in self.cells if (where is None or where(cell)) and self.kind(cell) == "informative"]

    def area(self, rule: Rule, cell: Cell) -> Estimate | None:
        """Return the test AUROC of a cell, None where fewer than two repeats have one."""
        return _interval(self.test[rule.name][self.cells.index(cell)])

    def difference(self, rule: Rule, other: Rule, cell: Cell) -> Estimate | None:
        """Return the paired difference in test AUROC of a cell."""
        row = self.cells.index(cell)
        return _interval(self.test[rule.name][row] - self.test[other.name][row], low=-1.0)

    def mean_difference(self, rule: Rule, other: Rule, cells: list[Cell]) -> Estimate | None:
        """Return the paired difference in test AUROC, averaged over the cells in which both run."""
        rows = [self.cells.index(cell) for cell in cells]
        return _interval(_over_cells(self.test[rule.name][rows] - self.test[other.name][rows]), low=-1.0)

    def mean_over_better(self, rule: Rule, others: tuple[Rule, ...], cells: list[Cell]) -> Estimate | None:
        """Return the mean difference to that of `others` which has the higher mean test AUROC, cell by cell."""
        gaps = []
        for row in map(self.cells.index, cells):
            best = max((self.test[other.name][row] for other in others), key=lambda test: float(np.mean(test)))
            gaps.append(self.test[rule.name][row] - best)
        return _interval(_over_cells(np.array(gaps)), low=-1.0) if gaps else None

    def mean_area(self, rule: Rule, cells: list[Cell]) -> Estimate | None:
        """Return the test AUROC averaged over the cells in which a rule runs."""
        rows = [self.cells.index(cell) for cell in cells]
        return _interval(_over_cells(self.test[rule.name][rows]))

    def counts(self, rule: Rule, other: Rule, cells: list[Cell]) -> Tally:
        """Return in how many cells a rule wins, loses, and cannot be told from another."""
        found = [difference for cell in cells for difference in [self.difference(rule, other, cell)] if difference]
        wins, losses = sum(own.low > 0 for own in found), sum(own.high < 0 for own in found)
        return Tally(wins, losses, len(found) - wins - losses)

    def best(self, cells: list[Cell]) -> Rule | None:
        """Return the rule that draws with the highest mean validation AUROC over cells in which all run."""
        rows = [self.cells.index(c) for c in cells if all(self.design.runs(c, rule) for rule in DRAWN)]
        means = [float(np.nanmean(self.val[rule.name][rows])) if rows else -1.0 for rule in DRAWN]
        return DRAWN[int(np.argmax(means))] if rows else None

    def tracked_ahead(self, cell: Cell) -> list[Rule]:
        """Rules with a tracked state that are ahead of minibatch, with its option and vrsp's, and of exact."""
        against = [own for own in (MINIBATCH, MATCHED, EXACT) if self.area(own, cell) is not None]
        found = []
        for rule in DRAWN:
            differences = [self.difference(rule, other, cell) for other in against]
            if rule.tracked and against and all(own is not None and own.low > 0 for own in differences):
                found.append(rule)
        return found

    def below_ceiling(self) -> list[tuple[Cell, Rule, Estimate, float]]:
        """Of cells whose ceiling is above 0.9: best rule by validation, its difference, its share of that cost."""
        found = []
        for cell in self.cells:
            top, rule = self.area(CEILING, cell), self.best([cell])
            if top is not None and top.mean > 0.9 and rule is not None:
                difference = self.difference(rule, CEILING, cell)
                cost = self.design.epochs(cell, CEILING) * self.design.counts.train * cell.size * (FORWARD + BACKWARD)
                if difference is not None:
                    found.append((cell, rule, difference, cell.budget / cost))
        return found


def collect(design: Design, store: Store, chosen: Chosen) -> Results:
    """Return the results of a design, each rule with its chosen option."""
    shape = len(design.cells), len(design.repeats)
    val, test = ({rule.name: np.full(shape, np.nan) for rule in RULES} for _ in range(2))
    for i, cell in enumerate(design.cells):
        for rule in RULES:
            option = chosen[rule.name, cell.pooling]
            val[rule.name][i], test[rule.name][i] = outcomes(design, store, cell, rule, option, repeats=design.repeats)
    return Results(design, chosen, val, test)


def _over_cells(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over cells [repeats] of [cells, repeats]; cells that not every repeat has are left out."""
    complete = values[np.isfinite(values).all(axis=1)]
    return complete.mean(axis=0) if len(complete) else np.full(values.shape[1], np.nan)


def _interval(values: NDArray[np.float64], *, low: float = 0.0) -> Estimate | None:
    known = values[np.isfinite(values)]
    return mean_interval(known.tolist(), bounds=(low, 1.0)) if len(known) > 1 else None
