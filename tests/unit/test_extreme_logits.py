"""Extreme logits through every pooling, estimator and objective, in float32 and under bfloat16 autocast."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from tests.pairs import all_pairs
from tests.reference.cases import (
    ALL,
    OBJECTIVES,
    full_sample,
    gradient,
    make_model,
    make_objective,
    parameters,
    whole_batch,
)
from torch import Tensor, nn
from torch.testing import assert_close

from midam.data.bags import Bags
from midam.nn.scorer import BagScorer
from midam.train.estimators import AsPrinted, Estimator, MiniBatch, VarianceReduced
from midam.train.exact import Exact, ExactPoint

# Numbers that bfloat16 holds exactly, so that autocast sees the same logits: 9984 stands for 1e4.

LARGE = 9984.0
RAW = [
    [LARGE, LARGE],
    [-LARGE, -LARGE, -LARGE],
    [LARGE, -LARGE, 30.0, -30.0, 0.0],
    [0.0, 0.0, 0.0],
    [30.0, -30.0],
    [-30.0] * 4,
    [1.0, -2.0, 0.5, 0.0],
    [0.25, -1.0],
]
SWITCHES = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 0.0)]


def extreme_bags() -> Bags:
    """Instances (raw score, switch of the large attention logit, switch of the moderate one)."""
    switches = itertools.cycle(SWITCHES)
    rows = [[[raw, *(100 * s for s in next(switches))] for raw in bag] for bag in RAW]
    labels = [1, 0] * 4
    bags = Bags.from_list([torch.tensor(bag, dtype=torch.float64).numpy() for bag in rows], labels=labels)
    return bags


def extreme_model(pooling: str, objective: str, tau: float, dtype: torch.dtype) -> BagScorer:
    """Identity encoder; the score is the first feature, the attention logit +-LARGE +-30 by the switches."""
    options = {"temperature": tau} if pooling == "smoothed-max" else {}
    model = make_model(pooling, objective=objective, width=3, encoder=nn.Identity(), **options)
    with torch.no_grad():
        for name, p in model.pooling.named_parameters():
            if name == "scorer.weight":
                p.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
            elif name == "hidden.weight":
                p.copy_(torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]))
            elif name == "attention.weight":
                p.copy_(torch.tensor([[LARGE, 30.0, 0.0]]))
            elif name == "gate.bias":
                p.fill_(40.0)  # An open gate.
            elif name.endswith("bias") or name == "gate.weight":
                p.zero_()
    return model.to(dtype)


def extreme_results(
    pooling: str, objective: str, tau: float, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    bags = extreme_bags()
    model, loss_of = extreme_model(pooling, objective, tau, dtype), make_objective(objective, dtype=dtype)
    bags = Bags.from_list([bag.astype(str(dtype).removeprefix("torch.")) for bag in bags], labels=bags.labels)
    sampled, whole = full_sample(bags), whole_batch(bags)
    cases: list[tuple[Estimator, object]] = [
        (MiniBatch(), sampled),
        (Exact(chunk_size=4), whole),
        (Exact(chunk_size=1024), whole),
    ]
    if model.pooling.statistic.trackable:
        value_size = model.pooling.value_size
        tracked = [
            VarianceReduced(8, value_size, state_rate=0.5),
            AsPrinted(8, value_size, state_rate=0.5),
            AsPrinted(8, value_size, state_rate=0.5, lag=True),
        ]
        for estimator in tracked:
            estimator.bag_state[:, 0] = 1.0  # visited, with l = r = 0
        tracked[0].bag_state[:, 1] = -1e9  # relative to a level of 1e7, a difference of 1 is below float32
        cases += [
            *((estimator.to(dtype), replace(sampled, may_be_whole=False)) for estimator in tracked),
            (ExactPoint(num_instances=5, chunk_size=4), whole),
        ]
    for estimator, batch in cases:
        out = estimator(model, batch)
        loss = loss_of(out, batch.labels)
        name = estimator.name + ("-lag" if getattr(estimator, "lag", False) else "")
        yield name, loss.detach(), out.score.detach(), gradient(loss, parameters(model, loss_of))


@contextmanager
def precision(kind: str) -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
        yield


@pytest.mark.parametrize(
    ("smooth", "objective", "kind"),
    all_pairs([*((name, 0.1) for name in ALL), ("smoothed-max", 1e-3)], OBJECTIVES, ["float32", "autocast"]),
)
def test_extreme_logits_stay_finite_and_right(smooth: tuple[str, float], objective: str, kind: str) -> None:
    pooling, tau = smooth
    with precision(kind):
        results = list(extreme_results(pooling, objective, tau, torch.float32))
    truth = list(extreme_results(pooling, objective, tau, torch.float64))
    # A logit taken from a score is bounded by the dtype's resolution; where the scores saturate float64 knows more.
    bounded = objective == "bce" and pooling in {"noisy-and", "generalized-mean"}
    # z = phi / tau is known to 1000 eps (6e-5) at tau = 1e-3; autocast runs the linear layers backward in bfloat16.
    tolerance = 2e-2 if kind == "autocast" else 1e-3
    for (name, loss, score, grad), (_, want_loss, want_score, want_grad) in zip(results, truth, strict=True):
        assert torch.isfinite(loss), name
        assert torch.isfinite(grad).all(), name
        assert torch.isfinite(score).all(), name
        assert_close(score.double(), want_score, rtol=1e-4, atol=1e-6, msg=lambda m: f"{name}: {m}")  # noqa: B023
        if not bounded:
            assert loss.item() == pytest.approx(want_loss.item(), rel=1e-4, abs=1e-6), name
            assert (grad.double() - want_grad).norm() <= tolerance * want_grad.norm() + 1e-6, name
