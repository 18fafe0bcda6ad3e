"""Complexity of MIDAM, measured: the cost of a step against the bag size, and the steps to a stationary point.

Theorem 1: with step sizes of order eps^2, MIDAM finds an eps-stationary point of Phi in
T = O(max(D+/S+, D-/S-) eps^-4 / B) steps; and a step costs O((S+ + S-) B), whatever the bags hold.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from midam.compare.workers import Group
from midam.methods.store import Row
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import figure_path, write_page
from studies.registry import as_study
from studies.theory import complexity_report as report
from studies.theory.complexity_report import Outcome, Sweep
from studies.theory.stationary import Cell, run_cell, theorem_rates
from studies.theory.step_cost import time_steps

NAME = "complexity"
POOLINGS = ("smoothed-max", "attention")


@dataclass(frozen=True)
class Plan:
    """Size of the study: sizes and rounds of the timing, number of seeds, and the sweeps."""

    sizes: tuple[int, ...]
    rounds: int
    seeds: int
    sweeps: tuple[Sweep, ...]


@as_study("cost of a step, and steps to a stationary point", store="complexity")
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure.

    Finished runs to a stationary point are kept in the cache; the steps are timed again in each call.
    """
    plan = make_plan(options)
    # First, because no other process of this study runs then.
    started = time.perf_counter()
    timings = time_steps(plan.sizes, rounds=plan.rounds)
    seconds = time.perf_counter() - started
    with Store(options.cache, NAME) as store:
        wanted = {c for s in plan.sweeps for cell in s.cells for p in POOLINGS for c in _seeds(cell, p, plan.seeds)}
        # The longest runs first, so that no process has a long run at the end; ties in a fixed order.
        cells = sorted(wanted, key=lambda cell: (theorem_rates(cell).eta * cell.eps2, str(cell)))
        groups = [Group([_name(cell)], [cell]) for cell in cells]
        complete(groups, _run, store=store, options=options, section=NAME)
        rows = {cell: row for cell, row in zip(cells, store.find([_name(cell) for cell in cells])) if row is not None}
        outcomes = [
            Outcome(pooling, sweep, [[rows[c] for c in _seeds(cell, pooling, plan.seeds)] for cell in sweep.cells])
            for pooling in POOLINGS
            for sweep in plan.sweeps
        ]
        report.draw(timings, outcomes, figure_path(options, NAME))
        write_page(
            options,
            NAME,
            title="Cost of a step, and steps to a stationary point",
            shows="Does a step of MIDAM cost the same at any bag size? Does it take no more steps than Theorem 1 says?",
            seeds=f"0 to {plan.seeds - 1}; each draws bags, weights and batches of its own",
            seconds=seconds + store.wall_time(NAME),
            store=store,
            body=report.body(timings, outcomes, figure=f"{NAME}.png"),
        )


def make_plan(options: StudyOptions) -> Plan:
    """Return the plan of the study: full, quick, or for seconds."""
    sizes = (10, 100, 1_000, 10_000, 100_000)
    if options.smaller:
        sweeps = make_sweeps(0.3, copies=(1, 2), batches=(2, 4), drawn=(2, 4), eps2s=(0.3, 0.25))
        return Plan((10, 100), 4, 2, sweeps)
    if options.quick:
        sweeps = make_sweeps(
            0.08, copies=(1, 2, 4, 8), batches=(1, 2, 4, 8), drawn=(1, 2, 4, 8), eps2s=(0.08, 0.056, 0.04)
        )
        return Plan(sizes, 200, 5, sweeps)
    sweeps = make_sweeps(
        0.04, copies=(1, 2, 4, 8, 16), batches=(1, 2, 4, 8), drawn=(1, 2, 4, 8, 16), eps2s=(0.08, 0.04, 0.02, 0.01)
    )
    return Plan(sizes, 1_000, 5, sweeps)


def make_sweeps(
    eps2: float, *, copies: Sequence[int], batches: Sequence[int], drawn: Sequence[int], eps2s: Sequence[float]
) -> tuple[Sweep, ...]:
    """Return the sweeps around one eps^2; their cells have one pooling and seed, as a template for all."""
    base = Cell(POOLINGS[0], eps2, copies=4, batch=4, instances=4, seed=0)

    def vary(name: str, values: Sequence[float], **held: Any) -> tuple[Cell, ...]:
        return tuple(replace(base, **held | {name: value}) for value in values)

    return (
        Sweep("D / S: more copies of each bag", "D / S", 1.0, vary("copies", copies)),
        Sweep("D / S: fewer bags a batch", "D / S", 1.0, vary("batch", batches, copies=2)),
        Sweep("B", "B", -1.0, vary("instances", drawn)),
        Sweep("B, gamma0 without B", "B", -1.0, vary("instances", drawn, rate_with_instances=False)),
        Sweep("eps", "eps", -4.0, vary("eps2", eps2s, copies=2)),
        Sweep("D / S: more copies, gradient at s^t", "D / S", 1.0, vary("copies", copies, lag=False)),
    )


def _name(cell: Cell) -> Row:
    return trial_name("complexity", **asdict(cell), **asdict(theorem_rates(cell)))


def _run(cell: Cell) -> list[Row]:
    return [run_cell(cell)]


def _seeds(cell: Cell, pooling: str, count: int) -> list[Cell]:
    return [replace(cell, pooling=pooling, seed=seed) for seed in range(count)]
