"""Objectives over columns, comparable pairs and survival: oracles, gradients, what is missing, what is refused."""

import math
import warnings

import pytest
import torch
from tests.reference import naive, naive_outcomes
from torch import Tensor

from midam.errors import ConfigError
from midam.functional import columns, objectives, pairs
from midam.functional.objectives import class_weights, minmax_auc
from midam.nn import BCELoss, CoxLoss, CrossEntropyLoss, MinMaxAUCLoss, Objective
from midam.nn.pooling.base import Pooling
from midam.nn.scorer import BagOutput
from midam.registry import OBJECTIVES

NAN = math.nan
# Column 0 has both classes, 1 has unknown entries, 2 lacks the negatives, 3 knows nothing.
LABELS = [[1, NAN, 1, NAN], [0, 1, NAN, NAN], [0, 0, 1, NAN], [1, 1, 1, NAN], [0, 0, NAN, NAN]]
A, B, ALPHA = [0.7, 0.5, 0.6, 0.4], [0.2, 0.1, 0.3, 0.2], [0.3, 0.0, 0.5, 0.1]
TIMES = [[2.0, 1], [2.0, 0], [2.0, 1], [5.0, 1], [5.0, 0], [1.0, 0], [9.0, 1]]


class Column(Pooling):
    """Scores a bag by its values."""

    def score(self, l, r, n):  # noqa: E741
        return r.squeeze(-1)

    logit = score


def output(h: Tensor) -> BagOutput:
    return BagOutput(h[:, 0], h, torch.ones(len(h)), Column(1))


def double(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def scores(width: int, count: int = 5, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, width, generator=generator, dtype=torch.float64).requires_grad_()


def close(got: Tensor, want: object, *, rel: float = 1e-9) -> None:
    torch.testing.assert_close(got, double(want), rtol=rel, atol=1e-15)


@pytest.mark.parametrize("weight", ["paper", "pairwise"])
@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_minmax_of_columns_and_its_gradients_agree_with_the_loop(weight: str, margin: float) -> None:
    h, a, b = scores(4), double(A).requires_grad_(), double(B).requires_grad_()
    weights = class_weights(double(LABELS), dtype=torch.float64)
    found = columns.minmax_auc(h, weights, a=a, b=b, alpha=double(ALPHA), margin=margin, weight=weight)
    value, by_h, (by_a, by_b), gaps = naive_outcomes.minmax(
        h.tolist(), LABELS, A, B, ALPHA, margin, weight == "pairwise"
    )
    grads = torch.autograd.grad(found.loss, (h, a, b))
    close(found.loss, value)
    for got, want in zip(grads, (by_h, by_a, by_b), strict=True):
        close(got, want)
    assert gaps[2:] == [None, None]
    close(found.gap, [gap or 0.0 for gap in gaps])
    assert not found.gap.requires_grad


def above_of(labels: list[list[float]]) -> list[list[list[bool]]]:
    over = naive_outcomes.is_positive_over_negative
    return [[[over(one[c], other[c]) for other in labels] for one in labels] for c in range(len(labels[0]))]


@pytest.mark.parametrize(
    ("kind", "labels", "above"),
    [
        ("labels", LABELS, above_of(LABELS)),
        ("classes", [[1, 0], [0, 1], [0, 1]], above_of([[1, 0], [0, 1], [0, 1]])),
        ("order", [[3], [1], [3], [NAN], [2]], [[[a > b for b in (3, 1, 3, NAN, 2)] for a in (3, 1, 3, NAN, 2)]]),
        ("survival", TIMES, [[[naive_outcomes.is_earlier(a, b) for b in TIMES] for a in TIMES]]),
    ],
)
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_pairwise_over_comparable_pairs_and_its_gradient_agree_with_the_loop(
    kind: pairs.Pairs, labels: list[list[float]], above: list[list[list[bool]]], margin: float
) -> None:
    h = scores(len(above), len(labels))
    found = pairs.comparable(double(labels), pairs=kind)
    assert found.permute(2, 0, 1).tolist() == above
    loss = pairs.squared_hinge(h, found, margin=margin)
    value, by_h = naive_outcomes.pairwise(h.tolist(), above, margin)
    assert value > 0
    close(loss, value)
    close(torch.autograd.grad(loss, h)[0], by_h)


def test_of_two_bags_of_one_time_the_event_is_the_earlier_and_two_events_are_not_comparable() -> None:
    found = pairs.comparable(double([[4, 1], [4, 0], [4, 1], [3, 0]]), pairs="survival").squeeze(-1)
    assert found.nonzero().tolist() == [[0, 1], [2, 1]]


def test_pairs_of_two_classes_are_those_of_a_positive_and_a_negative() -> None:
    labels = torch.tensor([1, 0, 1, 0])
    h = scores(1, 4)
    loss = pairs.squared_hinge(h, pairs.comparable(labels, pairs="binary"), margin=0.8)
    assert loss.item() == pytest.approx(naive.pairwise(h[:, 0].tolist(), labels.tolist(), 0.8), rel=1e-9)


def test_cross_entropies_agree_with_the_loops_and_unknown_entries_take_no_part() -> None:
    logits = 4 * scores(4).detach() - 2
    assert columns.bce(logits, double(LABELS)).item() == pytest.approx(naive_outcomes.bce(logits.tolist(), LABELS))
    codes = [0, 3, 3, 1, 2]
    y = columns.column_labels(double(codes).unsqueeze(1), columns=4)
    want = naive_outcomes.cross_entropy(logits.tolist(), codes)
    assert columns.cross_entropy(logits, y).item() == pytest.approx(want, rel=1e-9)
    more = columns.column_labels(double([*codes, NAN]).unsqueeze(1), columns=4)
    assert more[-1].isnan().all()
    padded = torch.cat([logits, logits[:1]])
    assert columns.cross_entropy(padded, more).item() == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("rows", [TIMES, TIMES[:2], [[3.0, 1], [3.0, 1], [3.0, 1]], [[1.0, 1], [2.0, 0]]])
def test_cox_and_its_gradient_agree_with_the_loop(rows: list[list[float]]) -> None:
    risk = (6 * scores(1, len(rows))[:, 0] - 3).detach().requires_grad_()
    time, event = double(rows).T
    loss = objectives.cox(risk, time, event)
    value, gradient = naive_outcomes.cox(risk.tolist(), time.tolist(), event.tolist())
    assert value > 0
    close(loss, value)
    close(torch.autograd.grad(loss, risk)[0], gradient)


@pytest.mark.filterwarnings("ignore:Starting with pandas version 4")
def test_cox_is_that_of_lifelines_where_no_events_are_tied() -> None:
    lifelines, pd = pytest.importorskip("lifelines"), pytest.importorskip("pandas")
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(60, generator=rng, dtype=torch.float64)
    time, event = torch.rand(60, generator=rng, dtype=torch.float64), torch.rand(60, generator=rng) < 0.6
    table = pd.DataFrame({"x": x.numpy(), "time": time.numpy(), "event": event.numpy()})
    fitted = lifelines.CoxPHFitter().fit(table, "time", "event")
    slope = double(fitted.params_["x"]).requires_grad_()
    loss = objectives.cox(slope * x, time, event)
    assert loss.item() * event.sum().item() == pytest.approx(-fitted.log_likelihood_, rel=1e-6)
    # At its own maximum of the likelihood, which its Newton steps reach to 1e-7.
    assert torch.autograd.grad(loss, slope)[0].item() == pytest.approx(0, abs=1e-6)


def test_cox_of_a_batch_without_an_event_is_zero_and_of_one_bag_it_warns_once() -> None:
    h = scores(1, 3)
    objective = CoxLoss(pairs="survival")
    loss = objective(output(h), double([[1, 0], [2, 0], [3, 0]]))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, h)[0].abs().sum() == 0
    one = scores(1, 1)
    with pytest.warns(UserWarning, match="'cox' on a batch of one bag is 0"):
        loss = objective(output(one), double([[1, 1]]))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, one)[0].item() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective(output(one), double([[1, 1]]))


def test_cox_stays_finite_for_risks_far_apart() -> None:
    risk = torch.tensor([-400.0, 400.0, 0.0], requires_grad=True)
    loss = objectives.cox(risk, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 1, 0]))
    assert loss.item() == pytest.approx(400)
    assert torch.isfinite(torch.autograd.grad(loss, risk)[0]).all()


def train(objective: Objective, h: Tensor, labels: Tensor, *, lr: float, steps: int = 4) -> list[float]:
    """Losses of plain gradient steps on scores h and on what the objective learns."""
    losses = []
    for _ in range(steps):
        loss = objective(output(h), labels)
        learned = [h, *objective.parameters()]
        grads = torch.autograd.grad(loss, learned)
        with torch.no_grad():
            for parameter, gradient in zip(learned, grads, strict=True):
                parameter.sub_(lr * gradient)
        objective.commit(loss.detach())
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["minmax-auc", "pairwise", "bce"])
@pytest.mark.parametrize("kind", ["labels", "classes"])
def test_columns_with_the_same_labels_are_trained_as_one(name: str, kind: pairs.Pairs) -> None:
    given = {"center_start": 0.1, "dual_lr": 0.5} if name == "minmax-auc" else {}
    make = OBJECTIVES.find(name)
    labels = torch.tensor([1, 0, 0, 1, 0])
    one = scores(1, seed=3)
    two = one.detach().repeat(1, 2)
    if kind == "classes":  # the other class of two is ranked the other way round
        two[:, 1] = -two[:, 0] if name == "bce" else 1 - two[:, 0]
    two.requires_grad_()
    both = double([[y, y] for y in labels.tolist()]) if kind == "labels" else (1 - labels).double().unsqueeze(1)
    single, double_ = make(**given).double(), make(columns=2, pairs=kind, **given).double()
    # The loss is the sum over the columns: each takes the steps of its own.
    a, b = train(single, one, labels, lr=0.05), train(double_, two, both, lr=0.05)
    if name == "minmax-auc":
        assert double_.dual.shape == double_.positive_center.shape == (2,)
    if kind == "labels" or name != "minmax-auc":
        assert b == pytest.approx([2 * loss for loss in a] if isinstance(a, list) else 2 * a, rel=1e-9)
        close(two[:, :1], one.tolist())
    if kind == "labels" and name == "minmax-auc":
        close(double_.dual, [single.dual.item()] * 2)
        close(double_.negative_center.detach(), [single.negative_center.item()] * 2)


def test_a_column_that_lacks_a_class_takes_no_dual_step_and_a_loss_of_nan_leaves_all() -> None:
    objective = MinMaxAUCLoss(columns=4, pairs="labels", center_start=0.2).double()
    objective.dual.copy_(double(ALPHA))
    h = scores(4)
    loss = objective(output(h), double(LABELS))
    grads = torch.autograd.grad(loss, [h, *objective.parameters()])
    assert all(torch.isfinite(g).all() for g in grads)
    assert all((g[..., 2:] == 0).all() for g in grads)
    objective.commit(torch.tensor(torch.nan))
    close(objective.dual, ALPHA)
    objective(output(h), double(LABELS))
    objective.commit(loss.detach())
    *_, gaps = naive_outcomes.minmax(h.tolist(), LABELS, A, B, ALPHA, 1.0, False)
    close(objective.dual, [max(0.0, gaps[0]), max(0.0, gaps[1]), *ALPHA[2:]])


def test_one_column_with_unknown_labels_is_the_objective_on_the_others() -> None:
    objective = MinMaxAUCLoss(pairs="labels", center_start=0.2).double()
    assert objective.dual.shape == ()
    h = scores(1, 4)
    loss = objective(output(h), double([[1], [NAN], [0], [0]]))
    rest = h[[0, 2, 3], 0]
    zero, start = double(0.0), double(0.2)
    want = minmax_auc(rest, class_weights(double([1, 0, 0]), dtype=torch.float64), a=start, b=start, alpha=zero)
    close(loss, want.loss.item(), rel=1e-6)  # the centers start at 0.2 in float32
    objective.commit(loss.detach())
    close(objective.dual, max(0.0, want.gap.item()))


@pytest.mark.parametrize("kind", ["binary", "classes", "labels", "order", "survival"])
def test_an_objective_that_does_not_serve_a_kind_of_labels_is_refused_and_another_named(kind: str) -> None:
    for name in OBJECTIVES.names():
        found = OBJECTIVES.find(name)
        if kind in found.serves:
            found.check_pairs(kind)
            continue
        with pytest.raises(ConfigError, match=f"Expected an objective for bags .* got '{name}'; use one of .*pairwise"):
            found.check_pairs(kind)


def test_whose_loss_is_for_two_classes_alone_serves_no_others() -> None:
    class Own(Objective):
        def loss(self, h, labels, /, **_):
            return (h * labels).sum(), {}

    assert Own().pairs == "binary"
    with pytest.raises(ConfigError, match="for bags with a time and an event, got 'Own'; use one of pairwise, cox"):
        Own.check_pairs("survival")
    with pytest.raises(ConfigError, match="got 'cox'"):
        CoxLoss(pairs="binary")
    with pytest.raises(ConfigError, match="got 'cross-entropy'"):
        CrossEntropyLoss(columns=3, pairs="labels")


def test_cross_entropy_and_bce_read_the_logits() -> None:
    assert not CrossEntropyLoss.squash
    assert not BCELoss.squash
    assert not CoxLoss.squash
    h = scores(3, 4)
    labels = double([[0], [2], [1], [2]])
    loss = CrossEntropyLoss(columns=3, pairs="classes")(output(h), labels)
    assert loss.item() == pytest.approx(naive_outcomes.cross_entropy(h.tolist(), [0, 2, 1, 2]), rel=1e-9)
