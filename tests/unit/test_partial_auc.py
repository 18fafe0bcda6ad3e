"""Objectives of the top of a ranking: the algorithms step by step, what their values are, limits, what is refused."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.metrics import average_precision_score
from tests.reference import naive, naive_screening
from torch import Tensor

from midam.errors import ConfigError
from midam.functional import partial_auc
from midam.functional.objectives import class_weights
from midam.nn import AveragePrecisionLoss, Objective, PartialAUCLoss
from midam.nn.pooling.base import Pooling
from midam.nn.scorer import BagOutput
from midam.settings import Settings

NUM_BAGS = 20
# The bags of each batch: 0 to 6 are positive, and some come back.
BATCHES = ([0, 1, 2, 9, 10, 11, 12], [2, 3, 9, 13, 14, 15, 16], [1, 0, 4, 17, 10, 18, 19], [0, 2, 1, 11, 12, 13, 9])
LABELS = [int(bag < 7) for bag in range(NUM_BAGS)]


class Value(Pooling):
    """Scores a bag by its value."""

    def score(self, l, r, n):  # noqa: E741
        return r.squeeze(-1)


def output(h: Tensor) -> BagOutput:
    return BagOutput(h, h.unsqueeze(1), torch.ones(len(h)), Value(1))


def scores(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64).requires_grad_()


CASES = [
    ({"fpr_temperature": 0.7}, lambda m, r: naive_screening.SoftPartialAUC(m, 0.7, r)),
    ({"fpr_temperature": 0.1}, lambda m, r: naive_screening.SoftPartialAUC(m, 0.1, r)),
    ({"fpr_temperature": 0.2, "tpr_temperature": 0.5}, lambda m, r: naive_screening.SoftPartialAUC(m, 0.2, r, 0.5)),
    ({"fpr_temperature": 0.5, "tpr_temperature": 0.1}, lambda m, r: naive_screening.SoftPartialAUC(m, 0.5, r, 0.1)),
    ({"max_fpr": 0.3}, lambda m, r: naive_screening.PartialAUC(m, 0.3, r)),
    (None, lambda m, r: naive_screening.AveragePrecision(m, r, NUM_BAGS)),
]


@pytest.mark.parametrize(("settings", "oracle"), CASES)
@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("margin", [0.4, 1.0])
def test_value_and_gradient_agree_with_the_loop_of_the_algorithm_at_each_step(settings, oracle, rate, margin) -> None:
    common = {"num_bags": NUM_BAGS, "margin": margin, "pair_rate": rate}
    ours = (AveragePrecisionLoss(**common) if settings is None else PartialAUCLoss(**common, **settings)).double()
    theirs = oracle(margin, rate)
    for number, bags in enumerate(BATCHES):
        h, labels = scores(len(bags), number), [LABELS[bag] for bag in bags]
        loss = ours(output(h), torch.tensor(labels), index=torch.tensor(bags))
        value, gradient = theirs.step(h.tolist(), labels, bags)
        assert loss.item() == pytest.approx(value, rel=1e-9)
        assert torch.autograd.grad(loss, h)[0].tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-15)
        if number == 1:  # A lost step is not remembered, and the same batch comes again.
            ours.commit(torch.tensor(torch.nan))
            ours(output(h), torch.tensor(labels), index=torch.tensor(bags))
        ours.commit(loss.detach())


def problem(seed: int = 5) -> tuple[Tensor, Tensor, list[int]]:
    labels = [1] * 4 + [0] * 12
    h = scores(16, seed)
    return h, partial_auc.pair_losses(h), labels


def new(count: int) -> Tensor:
    return torch.full((count,), -1.0, dtype=torch.float64)


def soft(losses: Tensor, labels: list[int], **temperatures: float) -> float:
    weights = class_weights(torch.tensor(labels), dtype=torch.float64)
    unseen = new(len(labels))
    return partial_auc.soft_partial_auc(
        losses, weights, log_u=unseen, log_v=unseen[0], rate=0.5, **temperatures
    ).loss.item()


@pytest.mark.parametrize("temperature", [0.05, 0.5, 2.0])
def test_the_soft_partial_auc_is_the_worst_mean_at_a_cost_of_its_divergence(temperature: float) -> None:
    _, losses, labels = problem()

    def worst(own: np.ndarray) -> float:
        """Largest sum p L - lam KL(p, uniform) over the simplex, by its softmax coordinates."""

        def minus(x: np.ndarray) -> float:
            p = np.exp(x - x.max())
            p /= p.sum()
            return float(-(p @ own - temperature * np.sum(p * np.log(p * len(own) + 1e-300))))

        return -minimize(minus, own / temperature * 0.8, method="BFGS", options={"gtol": 1e-9}).fun

    want = np.mean([worst(row) for row in losses.detach().numpy()[:4, 4:]])
    assert soft(losses, labels, fpr_temperature=temperature) == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("max_fpr", [0.25, 0.4, 1.0])
def test_the_thresholds_settle_at_the_mean_of_the_highest_losses(max_fpr: float) -> None:
    _, losses, labels = problem()
    weights = class_weights(torch.tensor(labels), dtype=torch.float64)
    s, rate = torch.zeros(16, dtype=torch.float64), 0.1
    for _ in range(4000):
        found = partial_auc.partial_auc(losses, weights, s=s, rate=rate, max_fpr=max_fpr)
        s, rate = found.rows, rate * 0.998
    own = losses.detach().numpy()[:4, 4:]

    def tail(row: np.ndarray) -> float:
        def value(s: float) -> float:
            return s + np.maximum(row - s, 0).mean() / max_fpr

        return minimize_scalar(value, bounds=(0, 4), method="bounded", options={"xatol": 1e-10}).fun

    want = np.mean([tail(row) for row in own])
    # The rate ends at 3e-5.
    assert found.loss.item() == pytest.approx(want, abs=1e-4)
    if max_fpr == 0.25:
        assert want == pytest.approx(np.sort(own, axis=1)[:, -3:].mean(), abs=1e-8)
    assert (s[4:] == 0).all()


def test_at_high_temperatures_the_soft_partial_auc_is_that_of_all_pairs_and_at_low_ones_that_of_the_worst() -> None:
    h, losses, labels = problem()
    mean = naive.pairwise(h.tolist(), labels, 1.0)
    own = losses.detach().numpy()[:4, 4:]
    assert soft(losses, labels, fpr_temperature=1e7) == pytest.approx(mean, rel=1e-6)
    assert soft(losses, labels, fpr_temperature=1e7, tpr_temperature=1e7) == pytest.approx(mean, rel=1e-6)
    assert soft(losses, labels, fpr_temperature=1e-4) == pytest.approx(own.max(axis=1).mean(), abs=1e-3)
    low = soft(losses, labels, fpr_temperature=1e-4, tpr_temperature=1e-4)
    assert low == pytest.approx(own.max(), abs=1e-3)
    two, one = (soft(losses, labels, fpr_temperature=0.3, tpr_temperature=t) for t in (1e9, 0.2))
    assert two == pytest.approx(soft(losses, labels, fpr_temperature=0.3), rel=1e-6)
    assert one > two


def test_low_temperatures_and_stale_memory_stay_finite_in_float32() -> None:
    h = torch.tensor([0.0, 0.9, 1.0, 0.2], requires_grad=True)
    weights = class_weights(torch.tensor([1, 1, 0, 0]))
    for old in (-1.0, 0.0, 4000.0):
        losses = partial_auc.pair_losses(h)
        found = partial_auc.soft_partial_auc(
            losses,
            weights,
            log_u=torch.full((4,), old),
            log_v=torch.tensor(old),
            rate=0.1,
            fpr_temperature=1e-3,
            tpr_temperature=1e-3,
        )
        assert all(torch.isfinite(x).all() for x in (*found, torch.autograd.grad(found.loss, h)[0]))


@pytest.mark.parametrize("seed", range(5))
def test_of_steps_the_average_precision_is_that_of_scikit_learn(seed: int) -> None:
    h, _, labels = problem(seed)
    steps = (h.unsqueeze(0) >= h.unsqueeze(1)).double()
    weights = class_weights(torch.tensor(labels), dtype=torch.float64)
    found = partial_auc.average_precision(
        steps, weights, u=torch.zeros(16, 2, dtype=torch.float64), rate=1.0, prevalence=torch.tensor(0.25).double()
    )
    assert 1 - found.loss.item() == pytest.approx(average_precision_score(labels, h.tolist()), rel=1e-9)


def test_the_precision_is_that_among_all_bags_however_few_negative_ones_a_batch_holds() -> None:
    h, _, labels = problem()
    rare = partial_auc.pair_losses(h)[:, :7][:7]
    weights = class_weights(torch.tensor(labels[:7]), dtype=torch.float64)
    u = torch.zeros(7, 2, dtype=torch.float64)

    def loss(share: float) -> float:
        return partial_auc.average_precision(
            rare, weights, u=u, rate=1.0, prevalence=torch.tensor(share).double()
        ).loss.item()

    assert loss(0.01) > loss(0.05) > loss(0.5)


def test_the_prevalence_is_counted_over_the_positive_bags_that_have_stood_in_a_batch() -> None:
    objective = AveragePrecisionLoss(num_bags=NUM_BAGS).double()
    found = []
    for number, bags in enumerate(BATCHES):
        labels, index = torch.tensor([LABELS[bag] for bag in bags]), torch.tensor(bags)
        found.append(objective._prevalence(labels, index, dtype=torch.float64).item())
        objective.commit(objective(output(scores(len(bags), number)), labels, index=index).detach())
    assert found == pytest.approx([3 / 20, 4 / 20, 5 / 20, 5 / 20])


@pytest.mark.parametrize("make", [PartialAUCLoss, AveragePrecisionLoss])
def test_only_positive_bags_of_the_batch_are_remembered(make: type[Objective]) -> None:
    objective = make(num_bags=NUM_BAGS)
    before = next(objective.buffers()).clone()
    bags = torch.tensor(BATCHES[0])
    loss = objective(output(scores(7, 0).float()), (bags < 7).long(), index=bags)
    objective.commit(loss.detach())
    changed = (next(objective.buffers()) != before).view(NUM_BAGS, -1).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_fpr": 0.0}, r"max_fpr in \(0, 1\], got 0.0"),
        ({"max_fpr": 1.5}, r"max_fpr in \(0, 1\], got 1.5"),
        ({"fpr_temperature": 0.0}, "fpr_temperature > 0"),
        ({"tpr_temperature": -1.0}, "tpr_temperature > 0, got -1.0"),
        ({"pair_rate": 0.0}, r"pair_rate in \(0, 1\]"),
        ({"margin": 0.0}, "margin > 0"),
        ({"max_fpr": 0.1, "tpr_temperature": 1.0}, "no tpr_temperature with max_fpr"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PartialAUCLoss(num_bags=3, **settings)


@pytest.mark.parametrize("name", ["max_fpr", "fpr_temperature", "tpr_temperature", "pair_rate"])
def test_the_settings_have_the_same_ranges(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings(**{name: 0.0})
    assert getattr(Settings(**{name: 0.5}).method, name) == 0.5
    assert math.isclose(PartialAUCLoss(num_bags=2).fpr_temperature, Settings().method.fpr_temperature)
