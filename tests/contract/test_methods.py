"""What every pooling, estimator and objective keep with each other: they learn, copy, move, resume, evaluate purely."""

import copy
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.pairs import all_pairs
from tests.reference.cases import OBJECTIVES, POOLINGS, make_bags, make_model, new_objective, whole_batch
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.errors import ConfigError
from midam.evaluate.predict import stream_bags
from midam.nn.objectives import Objective
from midam.nn.scorer import BagScorer
from midam.train.build import make_optimizer, parameter_groups
from midam.train.estimators import Estimator, MiniBatch, VarianceReduced
from midam.train.exact import Exact, ExactPoint
from midam.train.loop import train_step

ESTIMATORS = ("minibatch", "vrsp", "exact", "exact-point")
SIZES, LABELS = (6, 3, 9, 5, 2, 4), (1, 1, 1, 0, 0, 0)
SENSELESS = {("max", "vrsp"), ("max", "exact-point")}
METHODS = all_pairs(POOLINGS, ESTIMATORS, OBJECTIVES, sensible=lambda *method: method[:2] not in SENSELESS)
method = pytest.mark.parametrize(("pooling", "estimator", "objective"), METHODS)


def separable_bags() -> Bags:
    """Bags whose positive ones hold one shifted instance."""
    bags = make_bags(SIZES, LABELS, dtype="float32")
    for i, label in enumerate(LABELS):
        if label:
            bags.instances[bags.starts[i]] += 3.0
    return bags


def make_estimator(name: str, model: BagScorer) -> Estimator:
    return {
        "minibatch": MiniBatch,
        "vrsp": lambda: VarianceReduced(len(SIZES), model.pooling.value_size, state_rate=0.5),
        "exact": lambda: Exact(chunk_size=7),
        "exact-point": lambda: ExactPoint(num_instances=2, chunk_size=7, seed=1),
    }[name]()


@dataclass
class Method:
    model: BagScorer
    estimator: Estimator
    objective: Objective
    optimizer: torch.optim.Optimizer

    @property
    def parts(self) -> dict[str, Any]:
        return vars(self)

    def state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def train(self, batches: list[SampledBatch] | list[WholeBatch]) -> list[float]:
        losses = []
        for batch in batches:
            losses.append(train_step(self.model, self.estimator, self.objective, self.optimizer, batch)[0].item())
        return losses


def make_method(pooling: str, estimator: str, objective: str, *, seed: int = 0) -> Method:
    model = make_model(pooling, objective=objective, dtype=torch.float32, seed=seed)
    loss, point = new_objective(objective), make_estimator(estimator, model)
    point.check(model)
    groups = parameter_groups(model, loss, weight_decay=1e-4)
    return Method(model, point, loss, make_optimizer("sgd", groups, lr=0.1, momentum=0.5))


def make_batches(estimator: Estimator, epochs: int) -> list[Any]:
    bags = separable_bags()
    reader, labels = InstanceReader(bags), torch.from_numpy(bags.labels)
    width = None if estimator.whole else 3
    sampler = BagSampler(bags.labels, bags.sizes, num_positive=2, num_negative=2, num_instances=width, seed=7)
    epoch = whole_batches if estimator.whole else sampled_batches
    return [batch for _ in range(epochs) for batch in epoch(reader, sampler, labels)]


def flat(states: dict[str, Any]) -> Iterator[Tensor]:
    for value in states.values():
        if isinstance(value, dict):
            yield from flat(value)
        elif isinstance(value, Tensor):
            yield value


def identical(first: dict[str, Any], second: dict[str, Any]) -> bool:
    pairs = list(zip(flat(first), flat(second), strict=True))
    return bool(pairs) and all(torch.equal(a, b) for a, b in pairs)


def whole_loss(run: Method) -> float:
    """Pairwise loss on whole bags: one yardstick for all objectives."""
    batch = whole_batch(separable_bags())
    with torch.no_grad():
        out = stream_bags(run.model, batch, chunk_size=7)
        return new_objective("pairwise")(out, batch.labels).item()


@method
def test_training_lowers_the_loss_and_everything_stays_finite(pooling: str, estimator: str, objective: str) -> None:
    run = make_method(pooling, estimator, objective)
    start = whole_loss(run)
    losses = run.train(make_batches(run.estimator, 12))
    assert all(torch.isfinite(x).all() for x in flat(run.state()) if x.is_floating_point())
    assert all(abs(x) < 1e3 for x in losses)
    assert whole_loss(run) < start


@method
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(pooling: str, estimator: str, objective: str) -> None:
    whole = make_method(pooling, estimator, objective)
    batches = make_batches(whole.estimator, 2)
    losses = whole.train(batches)

    first = make_method(pooling, estimator, objective)
    half = len(batches) // 2
    begun = first.train(batches[:half])
    file = io.BytesIO()
    torch.save(first.state(), file)
    file.seek(0)
    second = make_method(pooling, estimator, objective, seed=99)
    second.load(torch.load(file, weights_only=True))
    assert begun + second.train(batches[half:]) == losses
    assert identical(second.state(), whole.state())


@method
def test_copies_and_pickles_go_on_alike_and_apart(pooling: str, estimator: str, objective: str) -> None:
    run = make_method(pooling, estimator, objective)
    batches = make_batches(run.estimator, 1)
    run.train(batches[:1])
    before = copy.deepcopy(run.state())
    # The parts share tensors, so they are copied together.
    copied, pickled = copy.deepcopy(run), pickle.loads(pickle.dumps(run))
    for other in (copied, pickled):
        assert identical(other.state(), before)
        other.train(batches[1:])
        assert not identical(other.state(), before)
        assert identical(run.state(), before)
    assert identical(copied.state(), pickled.state())
    run.train(batches[1:])
    assert identical(run.state(), copied.state())


@method
def test_modules_move_to_float64(pooling: str, estimator: str, objective: str) -> None:
    run = make_method(pooling, estimator, objective)
    single = run.train(make_batches(run.estimator, 1))
    moved = make_method(pooling, estimator, objective)
    modules = nn.ModuleList([moved.model, moved.estimator, moved.objective]).to(torch.float64)
    assert all(
        x.dtype == torch.float64
        for x in modules.state_dict().values()
        if isinstance(x, Tensor) and x.is_floating_point()
    )
    bags = separable_bags()
    wide = Bags.from_list([bag.astype(float) for bag in bags], labels=bags.labels)
    reader, labels = InstanceReader(wide), torch.from_numpy(wide.labels)
    width = None if moved.estimator.whole else 3
    sampler = BagSampler(wide.labels, wide.sizes, num_positive=2, num_negative=2, num_instances=width, seed=7)
    batches = list((whole_batches if moved.estimator.whole else sampled_batches)(reader, sampler, labels))
    assert moved.train(batches) == pytest.approx(single, rel=1e-4)
    assert all(p.dtype == torch.float64 for p in modules.parameters())


@method
def test_evaluation_changes_no_state_and_draws_no_random_number(pooling: str, estimator: str, objective: str) -> None:
    run = make_method(pooling, estimator, objective)
    run.train(make_batches(run.estimator, 1))
    before = copy.deepcopy(run.state())
    generator = torch.get_rng_state()
    batch = whole_batch(separable_bags())
    streamed = stream_bags(run.model.eval(), batch, chunk_size=5)
    plain = run.model(batch.reader.all, batch.sizes)
    assert torch.allclose(streamed.score, plain.score, rtol=1e-5, atol=1e-6)
    assert torch.allclose(streamed.logit, plain.logit, rtol=1e-4, atol=1e-5)
    assert identical(run.state(), before)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(("pooling", "estimator"), sorted(SENSELESS))
def test_combinations_without_sense_are_refused_with_a_way_out(pooling: str, estimator: str) -> None:
    model = make_model(pooling, dtype=torch.float32)
    message = rf"Expected a smooth pooling for the estimator '{estimator}', got '{pooling}'; .*'exact'"
    with pytest.raises(ConfigError, match=message):
        make_estimator(estimator, model).check(model)
