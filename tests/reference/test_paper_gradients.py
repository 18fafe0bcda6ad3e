"""The estimators against G1, G2 and G3 as the paper prints them, with explicit Jacobians of f1 and hand-made f2'."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.reference import naive
from tests.reference.cases import gradient, make_bags, make_model, make_objective, parameters, relative, sampled_batch
from torch import Tensor
from torch.func import functional_call

from midam.nn.objectives import MinMaxAUCLoss
from midam.nn.scorer import BagScorer
from midam.train.estimators import AsPrinted

TAU, GAMMA0 = 0.3, 0.6
SLOTS = [[0, 4, 2], [1, 0, 2], [11, 3, 5], [4, 0, 1]]


def flat(model: BagScorer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def unflatten(model: BagScorer, w: Tensor) -> dict[str, Tensor]:
    shapes = {name: p.shape for name, p in model.named_parameters()}
    parts = w.split([s.numel() for s in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


class Scores(torch.nn.Module):
    """phi, or (g, delta), of instances: the network alone, no pooling."""

    def __init__(self, model: BagScorer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        head, e = self.model.pooling, self.model.encoder(x)
        if head.name == "smoothed-max":
            phi = torch.sigmoid(head.scorer(e)).squeeze(-1)
            return phi, phi
        g = torch.tanh(head.hidden(e)) @ head.attention.weight[0] + head.attention.bias
        return g, head.scorer(e).squeeze(-1)


def inner(model: BagScorer, x: Tensor) -> Callable[[Tensor], Tensor]:
    """f1 of one sample as a function of the flat parameters: eq. sm or eq. ab."""

    def f1(w: Tensor) -> Tensor:
        params = {f"model.{name}": p for name, p in unflatten(model, w).items()}
        first, second = functional_call(Scores(model), params, (x,))
        if model.pooling.name == "smoothed-max":
            return torch.exp(first / TAU).mean()[None]
        return torch.stack([(torch.exp(first) * second).mean(), torch.exp(first).mean()])

    return f1


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
def test_vrsp_gradients_are_g1_g2_g3_of_the_paper_over_several_steps(pooling: str, lag: bool) -> None:
    bags = make_bags(sizes=(7, 3, 12, 5), labels=(1, 1, 0, 0))
    options = {"temperature": TAU} if pooling == "smoothed-max" else {}
    model, objective = make_model(pooling, **options), make_objective("minmax-auc")
    assert isinstance(objective, MinMaxAUCLoss)
    estimator = AsPrinted(4, model.pooling.value_size, state_rate=GAMMA0, lag=lag).double()
    f2 = naive.f2_attention if pooling == "attention" else (lambda s: naive.f2_smoothed_max(s, TAU))
    state: list[Tensor | None] = [None] * 4
    for step in range(3):
        slots = [[(j + step) % n for j in row] for row, n in zip(SLOTS, (7, 3, 12, 5), strict=True)]
        batch = replace(sampled_batch(bags, slots), may_be_whole=False)  # the paper has no rule for whole bags
        samples = [inner(model, x) for x in batch.x.split(3)]
        w = flat(model)
        fresh = [f1(w) for f1 in samples]
        new = [
            s if old is None else torch.tensor(naive.moving_average(old.tolist(), s.tolist(), GAMMA0), dtype=s.dtype)
            for old, s in zip(state, fresh, strict=True)
        ]
        # At the first visit there is no s^{t-1}; both forms then take the sample itself.
        point = [n if old is None or not lag else old for n, old in zip(new, state, strict=True)]
        a, b, alpha = (x.item() for x in (objective.positive_center, objective.negative_center, objective.dual))
        g_w, g_a, g_b = naive.midam_gradients(samples, w, point, f2, batch.labels.tolist(), a=a, b=b, alpha=alpha)
        expected = torch.cat([g_w, g_a[None], g_b[None]])

        loss = objective(estimator(model, batch), batch.labels)
        assert relative(gradient(loss, parameters(model, objective)), expected) < 1e-9

        estimator.commit(loss.detach())
        state = new
        for i, s in enumerate(new):
            level, r = naive.from_raw(s.tolist())
            assert estimator.bag_state[i, 1].item() == pytest.approx(level, rel=1e-9, abs=1e-12)
            assert estimator.bag_state[i, 2:].tolist() == pytest.approx(r, rel=1e-9)
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.3 * torch.sin(p))
    assert estimator.clips.item() == 0
