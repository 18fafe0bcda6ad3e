"""LibAUC 2.0.1's MIDAM loss and optimizer against ours, with one network; and where its raw space breaks."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tests.reference.cases import make_bags, make_model, relative, sampled_batch
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import SampledBatch
from midam.functional.logmean import moving_average, reduce
from midam.functional.objectives import class_weights, minmax_auc
from midam.nn.objectives import MinMaxAUCLoss
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagScorer
from midam.nn.tracked import TrackedPooling, commit
from midam.train.estimators import AsPrinted
from studies.peers import load_libauc

pytestmark = pytest.mark.libauc

TAU, MARGIN = 0.1, 1.0
POOLINGS = ["smoothed-max", "attention"]
SIZES, LABELS = (7, 3, 12, 5), (1, 1, 0, 0)


@pytest.fixture(scope="module")
def libauc() -> SimpleNamespace:
    return load_libauc()


def its_loss(libauc: SimpleNamespace, pooling: str, gamma: float) -> nn.Module:
    options = {"mode": "softmax", "tau": TAU} if pooling == "smoothed-max" else {"mode": "attention"}
    return libauc.mil.MIDAMLoss(data_len=4, margin=MARGIN, gamma=gamma, device=torch.device("cpu"), **options)


def of_its_loss(loss: nn.Module, prediction: Tensor | tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    return loss(y_pred=prediction, y_true=labels.view(-1, 1), index=torch.arange(len(labels)))


def our_estimator(pooling: str, gamma: float) -> AsPrinted:
    """Start where it starts: s = 0 for smoothed-max, (1, 1) for attention; no first visit."""
    estimator = AsPrinted(4, int(pooling == "attention"), state_rate=gamma)
    estimator.bag_state[:, 0] = 1.0
    if pooling == "smoothed-max":
        estimator.bag_state[:, 1] = -math.inf
    else:
        estimator.bag_state[:, 2] = 1.0
    return estimator


def raw_prediction(model: BagScorer, x: Tensor, bags: int) -> Tensor | tuple[Tensor, Tensor]:
    """What its own network hands to its loss: the sample's means in raw space."""
    z, v = model.instances(x)
    weight = torch.exp(z).view(bags, -1)
    if v.shape[1] == 0:
        return weight.mean(dim=1, keepdim=True)
    return (weight * v.view(bags, -1)).mean(dim=1, keepdim=True), weight.mean(dim=1, keepdim=True)


def slots(step: int) -> list[list[int]]:
    return [[(3 * step + j * j + i) % n for j in range(3)] for i, n in enumerate(SIZES)]


@pytest.mark.parametrize("gamma", [0.9, 0.1])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_loss_gradients_agree_over_several_steps(libauc: SimpleNamespace, pooling: str, gamma: float) -> None:
    bags = make_bags(SIZES, LABELS, dtype="float32")
    model = make_model(pooling, dtype=torch.float32)
    theirs, ours = (
        its_loss(libauc, pooling, gamma),
        MinMaxAUCLoss(center_start=0.0, margin=MARGIN),
    )
    estimator = our_estimator(pooling, gamma)
    optimizer = libauc.midam.MIDAM(model.parameters(), loss_fn=theirs, lr=0.1, momentum=0.1)
    its_centers = [theirs.a, theirs.b]
    differences = []
    for step in range(6):
        with torch.no_grad():
            ours.positive_center.copy_(theirs.a[0])
            ours.negative_center.copy_(theirs.b[0])
            ours.dual.copy_(theirs.alpha[0])
        batch = replace(sampled_batch(bags, slots(step)), may_be_whole=False)
        loss = ours(estimator(model, batch), batch.labels)
        our_params = [*model.parameters(), ours.positive_center, ours.negative_center]
        got = torch.cat([g.flatten() for g in torch.autograd.grad(loss, our_params)])
        estimator.commit(loss.detach())

        optimizer.zero_grad()
        of_its_loss(theirs, raw_prediction(model, batch.x, 4), batch.labels).backward()
        want = torch.cat([p.grad.flatten() for p in [*model.parameters(), *its_centers]])
        differences.append(relative(got, want))
        # Its state, seen in log space, is ours.
        inner = theirs.loss_fn
        s = inner.s if pooling == "smoothed-max" else inner.sd
        assert torch.allclose(estimator.bag_state[:, 1], torch.log(s.flatten()), rtol=1e-5, atol=1e-5)
        optimizer.step()
    assert theirs.alpha.item() > 0.1
    assert max(differences) < 1e-5


def test_torch_s_sgd_follows_the_path_of_its_optimizer(libauc: SimpleNamespace) -> None:
    beta1, lr = 0.1, 0.05
    start = [torch.randn(3, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    theirs, ours = ([nn.Parameter(x.clone()) for x in start] for _ in range(2))
    loss_fn = its_loss(libauc, "attention", 0.9)
    its_params = [*theirs, loss_fn.a, loss_fn.b]
    our_params = [*ours, nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    its_optimizer = libauc.midam.MIDAM(theirs, loss_fn=loss_fn, lr=lr, momentum=beta1, weight_decay=1e-2)
    our_optimizer = torch.optim.SGD(our_params, lr=lr, momentum=beta1, dampening=beta1, weight_decay=1e-2)
    for step in range(8):
        for p, q in zip(its_params, our_params, strict=True):
            p.grad, q.grad = torch.sin(p.detach() + step), torch.sin(q.detach() + step)
        its_optimizer.step()
        our_optimizer.step()
        for p, q in zip(its_params, our_params, strict=True):
            assert torch.allclose(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)


# Where raw space breaks. One feature per instance; the raw score or the attention logit is that number itself.


def scalar_model(pooling: str) -> BagScorer:
    options = {"temperature": TAU, "squash": False} if pooling == "smoothed-max" else {}
    model = BagScorer(nn.Identity(), make_pooling(pooling, 2, **options))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.pooling.scorer.weight[0, 0] = 1.0
        if pooling == "attention":
            # g = 400 tanh(x_2), delta = x_1.
            model.pooling.hidden.weight[0, 1] = 1.0
            model.pooling.attention.weight[0, 0] = 400.0
    return model


def our_loss(pooling: str, model: BagScorer, batch: SampledBatch) -> Tensor:
    """The first step's loss. Its smoothed-max pools raw scores here, which is our logit."""
    dtype = batch.x.dtype
    out = our_estimator(pooling, 0.9).to(dtype)(model, batch)
    h = out.logit if pooling == "smoothed-max" else out.score
    start = torch.zeros((), dtype=dtype)
    weights = class_weights(batch.labels, dtype=dtype)
    return minmax_auc(h, weights, a=start, b=start, alpha=start, margin=MARGIN).loss


def step_of_both(
    libauc: SimpleNamespace, pooling: str, instances: list[list[list[float]]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss and gradient of LibAUC's loss and of ours, the first step from its initial state."""
    bags = Bags.from_list([torch.tensor(bag).numpy() for bag in instances], labels=list(LABELS))
    batch = replace(sampled_batch(bags, [range(2)] * 4), may_be_whole=False)
    model = scalar_model(pooling)
    its = of_its_loss(its_loss(libauc, pooling, 0.9), raw_prediction(model, batch.x, 4), batch.labels)
    its_gradient = torch.cat([g.flatten() for g in torch.autograd.grad(its, list(model.parameters()))])
    ours = our_loss(pooling, model, batch)
    our_gradient = torch.cat([g.flatten() for g in torch.autograd.grad(ours, list(model.parameters()))])
    return its.detach(), its_gradient, ours.detach(), our_gradient


def truth(pooling: str, instances: list[list[list[float]]]) -> Tensor:
    """Our gradient in float64."""
    bags = Bags.from_list([torch.tensor(bag, dtype=torch.float64).numpy() for bag in instances], labels=list(LABELS))
    model, batch = scalar_model(pooling).double(), sampled_batch(bags, [range(2)] * 4)
    batch = replace(batch, may_be_whole=False)
    loss = our_loss(pooling, model, batch)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def bags_with(value: float) -> list[list[list[float]]]:
    return [[[value, 0.0], [0.5, 0.0]], [[0.2, 0.0], [0.4, 0.0]], [[0.1, 0.0], [0.3, 0.0]], [[0.0, 0.0], [0.2, 0.0]]]


def test_a_raw_score_of_nine_at_tau_one_tenth_overflows_there_and_not_here(libauc: SimpleNamespace) -> None:
    # exp(8.8 / 0.1) = e^88 is the last to fit float32; e^90 does not.
    fits, breaks = bags_with(8.8), bags_with(9.0)
    its, its_gradient, ours, our_gradient = step_of_both(libauc, "smoothed-max", fits)
    assert torch.isfinite(its)
    assert relative(our_gradient, its_gradient) < 1e-5
    its, its_gradient, ours, our_gradient = step_of_both(libauc, "smoothed-max", breaks)
    assert not (torch.isfinite(its) and torch.isfinite(its_gradient).all())
    assert torch.isfinite(ours)
    assert relative(our_gradient.double(), truth("smoothed-max", breaks)) < 1e-4


@pytest.mark.parametrize(("logit", "breaks"), [(40.0, ""), (-100.0, ""), (50.0, "silently"), (100.0, "loudly")])
def test_an_attention_logit_of_one_hundred_breaks_there_and_not_here(
    libauc: SimpleNamespace, logit: float, breaks: str
) -> None:
    # g = 400 tanh(x_2). Beyond e^44 the square of its denominator overflows and half of its gradient is dropped.
    instances = [[[1.5, math.atanh(logit / 400)], [0.5, 0.0]], *bags_with(0.0)[1:]]
    its, its_gradient, ours, our_gradient = step_of_both(libauc, "attention", instances)
    exact = truth("attention", instances)
    assert torch.isfinite(ours)
    assert relative(our_gradient.double(), exact) < 1e-4
    finite = bool(torch.isfinite(its) and torch.isfinite(its_gradient).all())
    assert finite == (breaks != "loudly")
    if finite:
        assert (relative(its_gradient.double(), exact) > 0.1) == (breaks == "silently")


def test_attention_logits_far_below_zero_leave_its_denominator_at_its_floor(libauc: SimpleNamespace) -> None:
    # All logits at -100: its sd falls to its floor of 1e-8 and the ratio is lost. In log space it is not.
    z, v = torch.full((1, 2), -100.0), torch.tensor([[[0.2], [0.6]]])
    loss = its_loss(libauc, "attention", 0.9)
    sample = reduce(z, v)
    level, r = torch.zeros(1), torch.ones(1, 1)
    for _ in range(40):
        weight = torch.exp(z)
        pair = (weight * v[..., 0]).mean(dim=1, keepdim=True), weight.mean(dim=1, keepdim=True)
        pair = tuple(x.expand(2, 1) for x in pair)
        of_its_loss(loss, pair, torch.tensor([1, 0]))
        level, r = moving_average(level, r, sample.l, sample.r, gamma0=torch.tensor([0.9]))
    inner = loss.loss_fn
    ratio = inner.sn[0] / inner.sd[0].clamp(min=1e-8)
    assert ratio.item() < 0.01
    # (0.1)^40 of the old state is e^-92, still above e^-100: the truth is 1 + (0.4 - 1) e^-100 / (e^-92 + e^-100).
    old, new = 40 * math.log(0.1), -100.0
    share = 1 / (1 + math.exp(old - new))
    assert r.item() == pytest.approx((1 - share) * 1.0 + share * 0.4, rel=1e-3)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_modules_follow_its_loss_in_a_bare_loop(libauc: SimpleNamespace, pooling: str) -> None:
    """The page "coming from LibAUC": its loss on raw means, ours on logits and values, for the same draws."""
    gamma, labels, index = 0.9, torch.tensor(LABELS), torch.arange(4)
    theirs, ours = its_loss(libauc, pooling, gamma), MinMaxAUCLoss(center_start=0.0, margin=MARGIN)
    pool = TrackedPooling(pooling, num_bags=4, state_rate=gamma, relative=False)
    pool.bag_state.copy_(our_estimator(pooling, gamma).bag_state)
    layer = nn.Linear(3, 2)
    for step in range(5):
        x = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(step))
        with torch.no_grad():
            ours.positive_center.copy_(theirs.a[0])
            ours.negative_center.copy_(theirs.b[0])
            ours.dual.copy_(theirs.alpha[0])
        z, v = layer(x).unbind(dim=-1)
        got = torch.autograd.grad(ours(pool(z, v, index), labels), list(layer.parameters()))
        commit(pool, ours)
        z, v = layer(x).unbind(dim=-1)
        if pooling == "attention":
            raw = (z.exp() * v).mean(dim=1, keepdim=True), z.exp().mean(dim=1, keepdim=True)
        else:
            raw = torch.exp(torch.sigmoid(v) / TAU).mean(dim=1, keepdim=True)
        want = torch.autograd.grad(of_its_loss(theirs, raw, labels), list(layer.parameters()))
        assert relative(torch.cat([g.flatten() for g in got]), torch.cat([g.flatten() for g in want])) < 1e-5
        theirs.a.data += 0.1
        theirs.alpha.data += 0.2
        with torch.no_grad():
            layer.weight += 0.1


def test_its_loss_moves_a_constant_on_all_logits_which_no_score_depends_on(libauc: SimpleNamespace) -> None:
    index, labels, shift = torch.arange(4), torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.zeros((), requires_grad=True)
    theirs = its_loss(libauc, "attention", 0.9)
    pools = {kept: TrackedPooling("attention", num_bags=4, state_rate=0.9, relative=kept) for kept in (True, False)}
    losses = {kept: MinMaxAUCLoss() for kept in pools}
    pulls: dict[object, float] = {}
    torch.manual_seed(0)
    for _ in range(3):
        z, v = torch.randn(2, 4, 3)
        weight = torch.exp(z + shift)
        prediction = (weight * v).mean(dim=1, keepdim=True), weight.mean(dim=1, keepdim=True)
        pulls["LibAUC"] = torch.autograd.grad(of_its_loss(theirs, prediction, labels), shift)[0].item()
        for kept, pool in pools.items():
            pulls[kept] = torch.autograd.grad(losses[kept](pool(z + shift, v, index), labels), shift)[0].item()
            commit(pool, losses[kept])
    assert abs(pulls[True]) < 1e-7
    assert abs(pulls[False]) > 1e-3
    assert abs(pulls["LibAUC"]) > 1e-3
