"""Error of the tracked state along the training, for smaller step sizes (the second claim of Theorem 1).

With step sizes beta1, gamma0, eta, eta' of order eps^2, and T ~ eps^-4 steps, the squared error of the tracked
state, |s_i^t - f_1(w^t; X_i)|^2, averaged over the steps, is O(eps^2).

The theorem is about the state as printed. The state that `midam fit` keeps, relative to the level of the step, is
measured beside it, at the same step sizes: what it holds of a bag is its row plus the level of the measured step.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches
from midam.data.digits import digit_bags
from midam.data.sampling import BagSampler
from midam.errors import DataNotFoundError
from midam.evaluate.predict import stream_bags
from midam.methods.store import Row
from midam.nn.scorer import BagOutput
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.build import MethodParts, build_method, build_optimizer
from midam.train.estimators import AsPrinted, encoded_sample
from midam.train.loop import train_step
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import figure_path, write_page
from studies.protocol import paper_config
from studies.registry import as_study
from studies.sets import catalog
from studies.theory import tracking_report as report

NAME = "tracking"
ARMS = {
    "smoothed-max, printed": "midam-printed-smx",
    "smoothed-max, relative": "midam-smx",
    "attention, printed": "midam-printed-att",
    "attention, relative": "midam-att",
}
_POINTS = 64
_POINT_STREAM = 11
# The paper's configuration has the scale 1; there the weight of the new gradient is 0.9.
_LR, _STATE_RATE, _DUAL_LR, _NEW_GRADIENT = 0.1, 0.9, 1.0, 0.9
_STEPS = 64


@dataclass(frozen=True)
class Cell:
    """One run."""

    data: str  # Name of the set in the catalog
    arm: str  # the pooling and the state, of ARMS
    scale: float  # eps^2 in units of the paper's configuration, in (0, 1]: all step sizes are multiplied by it
    seed: int  # Seed of the weights and the draws
    steps: int  # T, in proportion to 1 / scale^2


@as_study("error of the tracked state as the step sizes shrink", store="tracking")
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""
    data, bags = _bags(smaller=options.smaller)
    halvings, seeds, first = (2, 2, 4) if options.smaller else (4, 5, _STEPS) if options.quick else (6, 5, _STEPS)
    scales = [0.5**i for i in range(halvings)]
    cells = [
        Cell(data, arm, scale, seed, round(first / scale**2))
        for arm in ARMS
        for scale in scales
        for seed in range(seeds)
    ]
    names = [trial_name("tracking", **asdict(cell)) for cell in cells]
    groups = [Group([name], [cell]) for name, cell in zip(names, cells)]
    with Store(options.cache, NAME) as store:
        longest_first = sorted(groups, key=lambda group: -group.tasks[0].steps)
        complete(longest_first, _run, store=store, options=options, section=NAME)
        rows = [row for row in store.find(names) if row is not None]
        found = {
            arm: [[row for row in rows if (row["arm"], row["scale"]) == (arm, scale)] for scale in scales]
            for arm in ARMS
        }
        report.draw(found, scales, figure_path(options, NAME))
        write_page(
            options,
            NAME,
            title="Error of the tracked state as the step sizes shrink",
            shows="Does the tracked state of a bag approach the bag's own statistic as the step sizes go to zero?",
            seeds=f"0 to {seeds - 1}, of the weights and the draws",
            seconds=store.wall_time(NAME),
            store=store,
            body=report.body(found, scales, data=data, bags=bags, figure=f"{NAME}.png"),
        )


def run_cell(cell: Cell, bags: Bags) -> dict[str, Any]:
    """Train for T steps and measure the tracked state at 64 of them, one drawn from each 64th part of the run.

    Step t is measured between its forward pass and its update: the state s^t includes the sample of step t, and the
    exact statistic of the bag is for the weights w^t. A bag without a visit has the state 0, as in Algorithm 1.

    Returns
    -------
    dict
        The cell; `step`: the measured steps; and at each of them, means over all bags: `error` |s - f_1|^2, `size`
        |f_1|^2, `score` (h(s) - h(f_1))^2 over the visited bags.
    """
    torch.set_num_threads(1)
    bags = _standardized(bags)
    config = make_config(cell).resolve(bags.instance_shape)
    method = build_method(config, instance_shape=bags.instance_shape, num_bags=len(bags))
    optimizer = build_optimizer(config, method.model, method.objective)
    labels = bags.require_labels()
    sampler = BagSampler(labels, bags.sizes, num_instances=config.training.batch[2], seed=config.run.seed)
    reader, targets = InstanceReader(bags), torch.from_numpy(labels).float()
    whole = WholeBatch(reader, torch.arange(len(bags)), targets)
    measured, step = measured_steps(cell), 0
    found = []
    while step < cell.steps:
        for batch in sampled_batches(reader, sampler, targets):
            step += 1
            if step in measured:
                exact = stream_bags(method.model, whole, chunk_size=config.run.chunk_size)
                level = level_of(method, batch)
            train_step(method.model, method.estimator, method.objective, optimizer, batch)
            if step in measured:
                found.append(errors(method, exact, level))
            if step == cell.steps:
                break
    error, size, score = np.array(found).T.tolist()
    return asdict(cell) | {"step": sorted(measured), "error": error, "size": size, "score": score}


def make_config(cell: Cell) -> Settings:
    """Return the paper's settings with all step sizes times the scale, without decay, for standardized bags."""
    return paper_config(ARMS[cell.arm], lr=_LR * cell.scale).replace(
        seed=cell.seed,
        decay_at=[],
        state_rate=_STATE_RATE * cell.scale,
        dual_lr=_DUAL_LR * cell.scale,
        momentum=1 - _NEW_GRADIENT * cell.scale,
        standardize=False,
    )


def _standardized(bags: Bags) -> Bags:
    """Return the bags as a training has them in memory: standardized once, by their own instances."""
    usual = paper_config("midam-printed-smx", lr=_LR).resolve(bags.instance_shape).model
    standardizer = Standardizer(bags.instance_shape, clip=usual.clip, scaling=usual.scaling)
    x = torch.from_numpy(np.asarray(bags.instances))
    return bags.replace(instances=standardizer.fit(x)(x).numpy(), digests=None)


def measured_steps(cell: Cell) -> set[int]:
    """Return the measured steps: one drawn from each of 64 equal parts of steps 1 to T, or all of a short run."""
    if cell.steps <= _POINTS:
        return set(range(1, cell.steps + 1))
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([cell.seed, _POINT_STREAM])))
    drawn = (np.arange(_POINTS) + rng.random(_POINTS)) * cell.steps / _POINTS
    return {int(step) + 1 for step in drawn}


@torch.no_grad()
def level_of(method: MethodParts, batch: SampledBatch) -> torch.Tensor:
    """Return the level [1 + V] of a step: 0 for the printed state, else the means of l and r of the samples."""
    if isinstance(method.estimator, AsPrinted):
        return torch.zeros(method.estimator.get_buffer("bag_state").shape[1] - 1, dtype=torch.float64)
    sample = method.model.pooling.statistic.sample(*encoded_sample(method.model, batch), mask=batch.mask)
    return torch.cat([sample.l.unsqueeze(1), sample.r], dim=1).double().mean(dim=0)


@torch.no_grad()
def errors(method: MethodParts, exact: BagOutput, level: torch.Tensor) -> tuple[float, float, float]:
    """Return the means of |s - f_1|^2 and |f_1|^2 over all bags, and of (h(s) - h(f_1))^2 over the visited bags."""
    state = method.estimator.get_buffer("bag_state").double()
    visited = state[:, 0] > 0
    l, r = state[visited, 1] + level[0], state[visited, 2:] + level[1:]  # noqa: E741
    want = _raw(exact.l.double(), exact.r.double())
    got = torch.zeros_like(want)
    got[visited] = _raw(l, r)
    pooling = method.model.pooling
    h = pooling.score(l, r, exact.n[visited].double())
    target = pooling.score(exact.l[visited].double(), exact.r[visited].double(), exact.n[visited].double())
    means = [((got - want) ** 2).sum(dim=1).mean(), (want**2).sum(dim=1).mean(), ((h - target) ** 2).mean()]
    error, size, score = (float(mean) for mean in means)
    return error, size, score


def _raw(l: torch.Tensor, r: torch.Tensor) -> torch.Tensor:  # noqa: E741
    """Return the paper's s: exp(l), after exp(l) r if the pooling has values; [N, 1 + V]."""
    weight = l.exp().unsqueeze(1)
    return torch.cat([weight * r, weight], dim=1)


def _bags(*, smaller: bool) -> tuple[str, Bags]:
    if smaller:
        return "digits", digit_bags()
    try:
        return "musk2", catalog.load("musk2")
    except DataNotFoundError:
        return "digits", digit_bags()


def _run(cell: Cell) -> list[Row]:
    return [run_cell(cell, catalog.load(cell.data))]
