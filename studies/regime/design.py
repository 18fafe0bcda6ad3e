"""What the map crosses with what: rules, cells, budgets, and the settings of a training.

The budget of a cell is the cost of T steps of B instances from 16 bags; all rules but the ceiling spend at most that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midam.settings import Settings, usual_chunk
from studies.regime.bags import Counts
from studies.regime.budget import BACKWARD, FORWARD

BAGS = 16  # Of a step of the budget
_ADAM = {"optimizer": "adam", "lr": 0.01, "decay_at": [0.75, 0.9]}
_SGD = {"optimizer": "sgd", "lr": 0.5, "momentum": 0.1, "decay_at": [0.5, 0.75]}
_ANNEALED = {"anneal": 0.7}


@dataclass(frozen=True)
class Option:
    """Settings that a rule may be trained with, and the bags of its steps."""

    name: str
    bags: int
    settings: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Rule:
    """A way to spend a budget: draw rule and estimator, with the options to choose from."""

    name: str  # As the page calls it
    settings: Mapping[str, Any] = field(hash=False)
    options: tuple[Option, ...]

    @property
    def whole(self) -> bool:
        """Whether it trains on whole bags."""
        return bool(self.settings["estimator"] == "exact")

    @property
    def tracked(self) -> bool:
        """Whether it remembers the state of a bag."""
        return bool(self.settings["estimator"] == "vrsp")


_PLAIN = (
    Option("Adam 0.01, 16 bags", 16, _ADAM),
    Option("SGD 0.5, 16 bags", 16, _SGD),
    Option("Adam 0.01, 32 bags", 32, _ADAM),
)
_STATE = (*_PLAIN, Option("Adam 0.01, 16 bags, gamma0 0.3", 16, _ADAM | {"state_rate": 0.3}))
_WHOLE = (
    Option("Adam 0.01, 2 bags", 2, _ADAM),
    Option("SGD 0.5, 2 bags", 2, _SGD),
    Option("Adam 0.01, 2 bags, annealed", 2, _ADAM | _ANNEALED),
)
MINIBATCH = Rule("minibatch", {"estimator": "minibatch"}, _PLAIN)
VRSP = Rule("vrsp", {"estimator": "vrsp"}, _STATE)
TOP = Rule("top, minibatch", {"estimator": "minibatch", "draw": "top", **_ANNEALED}, _PLAIN)
TOP_VRSP = Rule("top, vrsp", {"estimator": "vrsp", "draw": "top", **_ANNEALED}, _STATE)
EXACT = Rule("exact", {"estimator": "exact"}, _WHOLE)
CEILING = Rule("exact, 100 epochs", {"estimator": "exact"}, _WHOLE[-1:])
# What the tracked state adds by itself: minibatch with the option of vrsp, whatever serves it best.
MATCHED = Rule("minibatch, as vrsp", {"estimator": "minibatch"}, ())
DRAWN = (MINIBATCH, VRSP, TOP, TOP_VRSP)
RULES = (*DRAWN, MATCHED, EXACT, CEILING)


@dataclass(frozen=True)
class Cell:
    """One comparison: bags, and the budget of T steps of B instances of 16 bags."""

    pooling: str  # Setting of `Settings`
    # Instances of a bag, witnesses of a positive one
    size: int
    witnesses: int
    # B, T
    instances: int
    steps: int

    @property
    def rate(self) -> float:
        """Share of witnesses in a positive bag."""
        return self.witnesses / self.size

    @property
    def budget(self) -> int:
        """Cost that a rule may spend, in forward passes of an instance; a backward pass counts 2."""
        return self.steps * BAGS * self.instances * (FORWARD + BACKWARD)


@dataclass(frozen=True)
class Block:
    """Cells that are crossed: poolings, one bag size, numbers of witnesses, and B with its T."""

    poolings: tuple[str, ...]
    size: int
    witnesses: tuple[int, ...]
    budgets: tuple[tuple[int, int], ...]  # B, T

    def cells(self) -> list[Cell]:
        """Return all of them."""
        return [
            Cell(pooling, self.size, count, instances, steps)
            for pooling in self.poolings
            for instances, steps in self.budgets
            for count in self.witnesses
        ]


@dataclass(frozen=True)
class Design:
    """What is run."""

    blocks: tuple[Block, ...]
    repeats: tuple[int, ...]  # Numbers of the repeats, which are their seeds
    # On which the option of each rule is chosen, a pooling at a time; their repeats are no others'
    choice: tuple[Block, ...]
    choice_repeats: tuple[int, ...]
    ceiling: int = 0  # Largest bags of which whole bags are trained without a budget
    ceiling_epochs: int = 100
    counts: Counts = field(default_factory=Counts)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All comparisons."""
        return tuple(cell for block in self.blocks for cell in block.cells())

    @property
    def choice_cells(self) -> tuple[Cell, ...]:
        """Cells on which options are chosen."""
        return tuple(cell for block in self.choice for cell in block.cells())

    def runs(self, cell: Cell, rule: Rule) -> bool:
        """Whether a rule can train in a cell at all."""
        if rule == CEILING:
            return cell.size <= self.ceiling
        if rule.whole:
            return self.epochs(cell, rule) > 0
        # The weight of a single instance is 1: attention gets no gradient.
        alone = cell.pooling == "attention" and cell.instances == 1
        return rule.tracked or not alone

    def epochs(self, cell: Cell, rule: Rule) -> int:
        """Whole epochs that the budget of a cell buys; whatever the bags of a step, an epoch draws from each bag."""
        if rule == CEILING:
            return self.ceiling_epochs
        drawn = cell.size if rule.whole else cell.instances
        epoch = self.counts.train * drawn * (FORWARD + BACKWARD)
        return int(cell.budget / (1 + _passes(cell, rule)) / epoch)

    def config(self, cell: Cell, rule: Rule, option: Option) -> Settings:
        """Return the settings of a training."""
        remembers = "draw" in rule.settings
        return Settings(
            **{
                "pooling": cell.pooling,
                **({} if rule.whole else {"num_instances": cell.instances}),
                "num_positive": option.bags // 2,
                "num_negative": option.bags // 2,
                "epochs": max(1, self.epochs(cell, rule)),
                "draw_args": {"pass_budget": _passes(cell, rule)} if remembers else {},
                "state_rate": 0.9,
                "state_floor": 0.0,
                "chunk_size": max(usual_chunk((1,)), option.bags * cell.size if rule.whole else 0),
                "members": 1,
                "center_start": 0.5,
                "hidden": [],
                "standardize": False,
                "scaling": "linear",
                "accelerator": "cpu",
                "threads": 1,
            }
            | dict(rule.settings)
            | dict(option.settings)
        )


def _passes(cell: Cell, rule: Rule) -> float:
    """Cost of the passes over all bags, at most, in costs of the steps."""
    if "draw" not in rule.settings:
        return 0.0
    return 0.1 if cell.size <= 500 else 0.8
