"""What the study of regimes crosses with what: methods, cells, and the settings of a training."""

from dataclasses import dataclass, field
from typing import Literal

from midam.settings import Settings, usual_chunk
from studies.regime.bags import Counts, witnesses
from studies.regime.budget import affordable_steps


@dataclass(frozen=True)
class EstimatorRule:
    """An estimator and, for vrsp, its rule for gamma0."""

    name: str  # As the page calls it
    # Settings of `Settings`
    estimator: str
    state_rate: float = 1.0
    schedule: Literal["constant", "warmup"] = "constant"


MINIBATCH = EstimatorRule("minibatch", "minibatch")
CONSTANT = tuple(EstimatorRule(f"constant {rate:g}", "vrsp", rate) for rate in (0.9, 0.5, 0.1))
WARMUP = tuple(EstimatorRule(f"warm-up {rate:g}", "vrsp", rate, "warmup") for rate in (0.1, 0.02))
EXACT_POINT = EstimatorRule("exact-point", "exact-point")
EXACT = EstimatorRule("exact", "exact")
METHODS = (MINIBATCH, *CONSTANT, *WARMUP, EXACT_POINT, EXACT)


@dataclass(frozen=True)
class Cell:
    """One comparison: bags, and the budget of T steps of B instances a bag."""

    pooling: str  # Setting of `Settings`
    # Instances of a bag, nines of a positive one
    size: int
    witnesses: int
    # B, T
    instances: int
    steps: int

    @property
    def rate(self) -> float:
        """Witness rate in force."""
        return self.witnesses / self.size


@dataclass(frozen=True)
class Design:
    """What is run."""

    poolings: tuple[str, ...]  # Settings of `Settings`
    # Bag sizes n and witness rates; rates that ask for the same number of witnesses are one
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    # B and T
    instances: tuple[int, ...]
    steps: tuple[int, ...]
    lrs: tuple[float, ...]  # Learning rates to choose from
    repeats: tuple[int, ...]  # Numbers of the repeats, which are their seeds
    # Bags of a repeat; ``counts.train`` is a multiple of the `bags` of a step, T of the steps of an epoch
    counts: Counts = field(default_factory=Counts)
    bags: int = 16  # Bags of a step, K, half of them positive

    def cells(self) -> list[Cell]:
        """Return all comparisons."""
        return [
            Cell(pooling, size, count, instances, steps)
            for pooling in self.poolings
            for size in self.sizes
            for count in self.witness_counts(size)
            for instances in self.instances
            for steps in self.steps
        ]

    def witness_counts(self, size: int) -> list[int]:
        """Return the distinct numbers of witnesses of a bag size."""
        return sorted({witnesses(size, rate) for rate in self.rates})

    def config(self, cell: Cell, method: EstimatorRule, lr: float) -> Settings:
        """Return the settings of a training; those of a sampling estimator are for exactly T steps."""
        return Settings(
            pooling=cell.pooling,
            estimator=method.estimator,
            objective="minmax-auc",
            members=1,
            epochs=cell.steps * self.bags // self.counts.train,
            lr=lr,
            decay_at=[0.5, 0.75],
            optimizer="sgd",
            momentum=0.1,
            num_positive=self.bags // 2,
            num_negative=self.bags // 2,
            num_instances=cell.instances,
            state_rate=method.state_rate,
            state_schedule=method.schedule,
            margin=1.0,
            dual_lr=1.0,
            weight_decay=1e-4,
            hidden=[],
            standardize=False,
            scaling="linear",
            clip=10.0,
            accelerator="cpu",
        )

    def steps_of(self, cell: Cell, method: EstimatorRule) -> int:
        """Return the steps of a method that the budget of a cell buys."""
        return affordable_steps(
            method.estimator,
            size=cell.size,
            instances=cell.instances,
            steps=cell.steps,
            bags=self.bags,
            chunk_size=usual_chunk((1,)),
        )
