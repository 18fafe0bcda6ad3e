"""One training step: order of the writes, parameter groups, the optimizers of Algorithm 1."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.reference import naive
from tests.reference.cases import make_bags, make_model, make_objective, parameters, sampled_batch

from midam.data.batch import InstanceReader, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.errors import ConfigError
from midam.train.build import make_optimizer, parameter_groups
from midam.train.estimators import VarianceReduced
from midam.train.loop import train_step


def test_only_the_model_decays() -> None:
    model, objective = make_model("attention"), make_objective("minmax-auc")
    model.encoder.layers[0].bias.requires_grad_(False)
    decayed, kept = parameter_groups(model, objective, weight_decay=0.1)
    assert decayed["weight_decay"] == 0.1
    assert {id(p) for p in decayed["params"]} == {id(p) for p in model.parameters() if p.requires_grad}
    assert kept["weight_decay"] == 0.0
    assert [id(p) for p in kept["params"]] == [id(p) for p in objective.parameters()]
    assert len(parameter_groups(model, make_objective("bce"), weight_decay=0.1)) == 1


def test_sgd_is_the_momentum_style_of_algorithm_1() -> None:
    beta1, lr = 0.9, 0.1
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = make_optimizer("sgd", [{"params": [p], "weight_decay": 0.0}], lr=lr, momentum=beta1)
    w, v = p.detach().clone(), None
    for step in range(5):
        p.grad = torch.sin(p.detach() + step)
        g = torch.sin(w + step)
        v = g if v is None else beta1 * v + (1 - beta1) * g
        w = w - lr * v
        optimizer.step()
        assert torch.allclose(p.detach(), w, rtol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torch_s_bit_for_bit(momentum: float) -> None:
    results = []
    for make in (
        make_optimizer,
        lambda _, groups, **rates: torch.optim.SGD(groups, dampening=momentum, fused=True, **rates),
    ):
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(shape)) for shape in [(5, 3), (3,), ()]]
        groups = [{"params": weights[:2], "weight_decay": 0.1}, {"params": weights[2:], "weight_decay": 0.0}]
        optimizer = make("sgd", groups, lr=0.1, momentum=momentum)
        for _ in range(4):
            for p in weights:
                p.grad = torch.randn(p.shape)
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        results.append(weights)
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


def test_a_parameter_may_get_its_first_gradient_later() -> None:
    late, early = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    optimizer = make_optimizer("sgd", [{"params": [early, late], "weight_decay": 0.0}], lr=0.5, momentum=0.5)
    early.grad = torch.ones_like(early)
    optimizer.step()
    assert (early.tolist(), late.tolist()) == ([0.5] * 2, [1.0] * 2)
    early.grad, late.grad = torch.zeros_like(early), torch.ones_like(late)
    optimizer.step()
    # The older one goes on with half of its first gradient; the other begins with its own.
    assert (early.tolist(), late.tolist()) == ([0.25] * 2, [0.5] * 2)


def test_sgd_serves_parameters_of_several_types() -> None:
    weights = [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    optimizer = make_optimizer("sgd", [{"params": weights}], lr=0.5, momentum=0.0)
    for p in weights:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert [p.tolist() for p in weights] == [[0.5, 0.5]] * 2


def test_adam_is_torch_s_to_the_bit() -> None:
    def stepped(make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]) -> tuple[torch.Tensor, dict[str, Any]]:
        early, late = (torch.nn.Parameter(torch.linspace(-1, 1, 20)) for _ in range(2))
        optimizer = make([{"params": [early], "weight_decay": 0.01}, {"params": [late], "weight_decay": 0.0}])
        for step in range(5):
            early.grad, late.grad = torch.sin(early.detach() + step), None if step < 2 else torch.cos(late.detach())
            optimizer.step()
        return torch.cat([early, late]).detach(), optimizer.state_dict()

    found, state = stepped(lambda groups: make_optimizer("adam", groups, lr=0.1, momentum=0.9))
    wanted, expected = stepped(lambda groups: torch.optim.Adam(groups, lr=0.1, fused=True))
    assert torch.equal(found, wanted)
    torch.testing.assert_close(state, expected, rtol=0, atol=0)


def test_a_step_is_one_primal_step_then_one_dual_step_then_one_commit() -> None:
    bags = make_bags()
    model, objective = make_model("attention"), make_objective("minmax-auc")
    twin, twin_objective = make_model("attention"), make_objective("minmax-auc")
    estimator = VarianceReduced(6, 1, state_rate=0.5).double()
    batch = sampled_batch(bags, [[0, 1], [2, 0], [3, 1], [4, 4]], index=[0, 1, 3, 3])
    optimizer = torch.optim.SGD(parameters(model, objective), lr=0.1)
    loss, out = train_step(model, estimator, objective, optimizer, batch)

    reference = VarianceReduced(6, 1, state_rate=0.5).double()
    want_loss = twin_objective(reference(twin, batch), batch.labels)
    want_loss.backward()
    assert loss.item() == want_loss.item()
    assert not loss.requires_grad
    for p, q in zip(parameters(model, objective), parameters(twin, twin_objective), strict=True):
        assert torch.equal(p, q - 0.1 * q.grad)
    labels = batch.labels.tolist()
    assert objective.dual.item() == pytest.approx(naive.gap(out.score.tolist(), labels, 1.0), rel=1e-12)
    assert estimator.bag_state[:, 0].tolist() == [1, 1, 0, 1, 0, 0]


def test_a_step_without_a_finite_loss_leaves_the_state_and_the_dual_alone() -> None:
    bags = make_bags((4, 4), (1, 0))
    bags.instances[2] = float("nan")
    model, objective = make_model("attention"), make_objective("minmax-auc")
    estimator = VarianceReduced(2, 1).double()
    optimizer = torch.optim.SGD(parameters(model, objective), lr=0.0)
    loss, _ = train_step(model, estimator, objective, optimizer, sampled_batch(bags, [[1, 2], [0, 1]]))
    assert torch.isnan(loss)
    assert not estimator.bag_state.any()
    assert objective.dual.item() == pytest.approx(0.3)


def test_old_gradients_do_not_leak_into_a_step() -> None:
    bags = make_bags()
    results = []
    for dirty in (False, True):
        model, objective = make_model("mean"), make_objective("bce")
        if dirty:
            for p in model.parameters():
                p.grad = torch.ones_like(p)
        batch = sampled_batch(bags, [[0, 1], [3, 4]], index=[0, 3])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, VarianceReduced(6, 1), objective, optimizer, batch)
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)


def test_epochs_of_batches_hold_the_drawn_instances() -> None:
    bags = make_bags()
    reader, labels = InstanceReader(bags), torch.from_numpy(bags.labels)
    settings = {"num_positive": 2, "num_negative": 1, "seed": 5}
    plan = BagSampler(bags.labels, bags.sizes, num_instances=4, **settings).epoch()
    batches = list(sampled_batches(reader, BagSampler(bags.labels, bags.sizes, num_instances=4, **settings), labels))
    assert len(batches) == len(plan.bags) == 2
    for t, batch in enumerate(batches):
        assert batch.index.tolist() == plan.bags[t].tolist()
        assert batch.labels.tolist() == [1, 1, 0]
        assert batch.sizes.tolist() == bags.sizes[plan.bags[t].numpy()].tolist()
        x = batch.x.view(3, 4, -1)
        mask = torch.ones(3, 4, dtype=torch.bool) if batch.mask is None else batch.mask
        for k, i in enumerate(plan.bags[t].tolist()):
            for j in range(4):
                if mask[k, j]:
                    assert x[k, j].tolist() == bags[i][plan.slots[t, k, j]].tolist()
        assert mask.sum(dim=1).tolist() == [min(4, n) for n in batch.sizes.tolist()]
    whole = list(whole_batches(reader, BagSampler(bags.labels, bags.sizes, num_instances=None, **settings), labels))
    assert [b.index.tolist() for b in whole] == plan.bags.tolist()
    assert [b.labels.tolist() for b in whole] == [[1, 1, 0]] * 2


def test_sampled_batches_refuse_a_sampler_of_whole_bags() -> None:
    bags = make_bags()
    sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=None)
    with pytest.raises(ConfigError, match="num_instances"):
        next(sampled_batches(InstanceReader(bags), sampler, torch.from_numpy(bags.labels)))
