"""What the trials of the study of regimes say: chosen learning rates, paired differences, rules, winners.

Repeats are independent; cells of one repeat share images. So an interval is a t interval over repeats, of a cell's
values or of the means over cells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.engine import Store
from studies.regime.design import (
    CONSTANT,
    EXACT,
    EXACT_POINT,
    METHODS,
    MINIBATCH,
    WARMUP,
    Cell,
    Design,
    EstimatorRule,
)
from studies.regime.trials import select
from studies.split_statistics import Estimate, mean_interval

CHANCE = 0.5
Kind = Callable[[Cell], bool]


class Winner(NamedTuple):
    """Best estimator of a cell."""

    method: EstimatorRule  # Highest mean test AUROC, of three decimals; vrsp of equals
    area: Estimate  # Its AUROC over repeats
    equals: tuple[EstimatorRule, ...]  # Others whose paired difference to it cannot be told from zero
    learns: bool  # The interval of a method's AUROC lies above 0.5, of any of them


class Tally(NamedTuple):
    """Cells in which the interval of a difference lies above zero, below it, or holds it."""

    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, eq=False)
class Results:
    """Validation and test AUROC [cells, repeats] by method, NaN where a method cannot take a step or diverged."""

    design: Design
    cells: tuple[Cell, ...]
    val: dict[str, NDArray[np.float64]]
    test: dict[str, NDArray[np.float64]]

    @property
    def constant(self) -> EstimatorRule:
        """The constant gamma0 with the highest mean validation AUROC."""
        return self.best_rule(CONSTANT)

    @property
    def warmup(self) -> EstimatorRule:
        """The warm-up with the highest mean validation AUROC."""
        return self.best_rule(WARMUP)

    @property
    def rule(self) -> EstimatorRule:
        """The rule of vrsp with the highest mean validation AUROC."""
        return self.best_rule((*CONSTANT, *WARMUP))

    @property
    def estimators(self) -> tuple[EstimatorRule, ...]:
        """The four estimators, vrsp with its best rule."""
        return MINIBATCH, self.rule, EXACT_POINT, EXACT

    def best_rule(self, rules: Sequence[EstimatorRule]) -> EstimatorRule:
        """Return the rule with the highest validation AUROC, averaged over cells and repeats; the first of equals."""
        return max(rules, key=lambda rule: float(np.nanmean(self.val[rule.name])))

    def area(self, method: EstimatorRule, cell: Cell) -> Estimate | None:
        """Return the test AUROC of a cell, None where fewer than two repeats have one."""
        return _interval(self.test[method.name][self.cells.index(cell)])

    def difference(self, method: EstimatorRule, other: EstimatorRule, cell: Cell) -> Estimate | None:
        """Return the paired difference in test AUROC of a cell."""
        row = self.cells.index(cell)
        return _interval(self.test[method.name][row] - self.test[other.name][row], low=-1.0)

    def mean_area(self, method: EstimatorRule, where: Kind | None = None, *, val: bool = False) -> Estimate | None:
        """Return the AUROC averaged over the cells of a kind, over repeats."""
        return _interval(_over_cells((self.val if val else self.test)[method.name][self._rows(where)]))

    def mean_difference(
        self, method: EstimatorRule, other: EstimatorRule, where: Kind | None = None, *, val: bool = False
    ) -> Estimate | None:
        """Return the paired difference in AUROC averaged over the cells of a kind, over repeats."""
        rows, of = self._rows(where), self.val if val else self.test
        return _interval(_over_cells(of[method.name][rows] - of[other.name][rows]), low=-1.0)

    def mean_gain(self, method: EstimatorRule, field: Literal["steps", "instances"]) -> tuple[float, Estimate] | None:
        """Return what the largest T or B, all else equal, adds to the smallest: the ratio, and the mean gain."""
        sizes = getattr(self.design, field)
        if len(sizes) < 2:
            return None
        least, most = min(sizes), max(sizes)
        low = [cell for cell in self.cells if getattr(cell, field) == least]
        rows = [[self.cells.index(replace(cell, **{field: count})) for cell in low] for count in (least, most)]
        test = self.test[method.name]
        gain = _interval(_over_cells(test[rows[1]] - test[rows[0]]), low=-1.0)
        return None if gain is None else (most / least, gain)

    def counts(self, method: EstimatorRule, other: EstimatorRule, where: Kind | None = None) -> Tally:
        """Return in how many cells of a kind a method wins, loses, and cannot be told from another."""
        found = [self.difference(method, other, cell) for cell in self.cells if where is None or where(cell)]
        known = [difference for difference in found if difference is not None]
        wins = sum(difference.low > 0 for difference in known)
        losses = sum(difference.high < 0 for difference in known)
        return Tally(wins, losses, len(known) - wins - losses)

    def winner(self, cell: Cell) -> Winner | None:
        """Return the best of the four estimators in a cell, by mean test AUROC as it is printed."""
        areas = [(method, self.area(method, cell)) for method in self.estimators]
        known = [(method, area) for method, area in areas if area is not None]
        if not known:
            return None
        best, area = max(known, key=lambda pair: (round(pair[1].mean, 3), pair[0] is self.rule))
        equals = []
        for method, _ in known:
            difference = self.difference(best, method, cell)
            if method is not best and difference is not None and difference.low <= 0:
                equals.append(method)
        every = [self.area(method, cell) for method in METHODS]
        return Winner(best, area, tuple(equals), any(found is not None and found.low > CHANCE for found in every))

    def _rows(self, where: Kind | None) -> list[int]:
        return [i for i, cell in enumerate(self.cells) if where is None or where(cell)]


def collect(design: Design, store: Store) -> Results:
    """Return the results of a design: of each method, cell and repeat the AUROC at the chosen learning rate."""
    cells = tuple(design.cells())
    shape = len(cells), len(design.repeats)
    val = {method.name: np.full(shape, np.nan) for method in METHODS}
    test = {method.name: np.full(shape, np.nan) for method in METHODS}
    for i, cell in enumerate(cells):
        for method in METHODS:
            for repeat, row in select(store, design, cell, method).items():
                place = design.repeats.index(repeat)
                val[method.name][i, place] = row["val"]
                test[method.name][i, place] = row["test"]
    return Results(design, cells, val, test)


def _over_cells(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over cells [repeats] of [cells, repeats]; cells that not every repeat has are left out."""
    complete = values[np.isfinite(values).all(axis=1)]
    return complete.mean(axis=0) if len(complete) else np.full(values.shape[1], np.nan)


def _interval(values: NDArray[np.float64], *, low: float = 0.0) -> Estimate | None:
    known = values[np.isfinite(values)]
    return mean_interval(known.tolist(), bounds=(low, 1.0)) if len(known) > 1 else None
