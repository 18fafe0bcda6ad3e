"""The objectives and the dual step: oracles, gradients, equivalences, batches that lack a class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import naive
from tests.reference.cases import OBJECTIVES, make_bags, make_model, make_objective
from torch import Tensor

from midam.errors import ConfigError
from midam.functional import objectives as f
from midam.nn.objectives import BCELoss, MinMaxAUCLoss, PairwiseAUCLoss

LABELS = [1, 1, 0, 0, 0]
DTYPES = [(torch.float64, 1e-9), (torch.float32, 1e-5)]


def scores(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([0.9, 0.35, 0.1, 0.6, 0.45], dtype=torch.float64).to(dtype)


def scalar(x: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(x, dtype=dtype)


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
@pytest.mark.parametrize("weight", ["paper", "pairwise"])
@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_minmax_agrees_with_the_oracle(dtype: torch.dtype, rel: float, weight: str, margin: float) -> None:
    h = scores(dtype)
    weights = f.class_weights(torch.tensor(LABELS), dtype=dtype)
    a, b, alpha = (scalar(x, dtype) for x in (0.7, 0.2, 0.3))
    got = f.minmax_auc(h, weights, a=a, b=b, alpha=alpha, margin=margin, weight=weight)
    exact = [x.item() for x in (a, b, alpha)]
    want = naive.minmax(h.tolist(), LABELS, *exact, margin, weight == "pairwise")
    assert got.loss.item() == pytest.approx(want, rel=rel)
    assert got.gap.item() == pytest.approx(naive.gap(h.tolist(), LABELS, margin), rel=rel)
    assert not got.gap.requires_grad


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_pairwise_and_bce_agree_with_the_oracle(dtype: torch.dtype, rel: float, margin: float) -> None:
    h, labels = scores(dtype), torch.tensor(LABELS)
    got = f.pairwise_squared_hinge(h, f.class_weights(labels, dtype=dtype), margin=margin)
    assert got.item() == pytest.approx(naive.pairwise(h.tolist(), LABELS, margin), rel=rel)
    logits = 8 * (h - 0.5)
    assert f.bce(logits, labels).item() == pytest.approx(naive.bce(logits.tolist(), LABELS), rel=rel)


@pytest.mark.parametrize("weight", ["paper", "pairwise"])
def test_minmax_gradcheck(weight: str) -> None:
    weights = f.class_weights(torch.tensor(LABELS), dtype=torch.float64)

    def loss(h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return f.minmax_auc(h, weights, a=a, b=b, alpha=scalar(0.3), margin=0.5, weight=weight).loss

    inputs = [x.requires_grad_() for x in (scores(), scalar(0.7), scalar(0.2))]
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradcheck(lambda h: f.pairwise_squared_hinge(h, weights, margin=0.5), (inputs[0],))
    assert torch.autograd.gradcheck(lambda h: f.bce(h, torch.tensor(LABELS)), (inputs[0],))


bags = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=0, max_size=6)


@given(rows=bags, positive=st.floats(0, 1), negative=st.floats(0, 1), margin=st.floats(0.1, 2))
def test_the_doubled_saddle_value_is_the_pairwise_square_loss(
    rows: list, positive: float, negative: float, margin: float
) -> None:
    h, labels = zip(*rows, (positive, 1), (negative, 0), strict=True)
    tensor = torch.tensor(h, dtype=torch.float64)
    weights = f.class_weights(torch.tensor(labels), dtype=torch.float64)
    # The inner problems have closed solutions: a and b are the class means, alpha the gap.
    a, b = weights.positive @ tensor, weights.negative @ tensor
    gap = margin + b - a
    values = [
        f.minmax_auc(tensor, weights, a=a, b=b, alpha=gap, margin=margin, weight=w).loss.item()
        for w in ("paper", "pairwise")
    ]
    assert values[1] == pytest.approx(naive.pairwise_square(h, labels, margin), rel=1e-9, abs=1e-12)
    assert values[1] - values[0] == pytest.approx(gap.item() ** 2 / 2, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("domain", ["nonnegative", "real"])
@pytest.mark.parametrize("gap", [0.6, -0.4])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_dual_step_agrees_with_the_oracle(domain: str, gap: float, rate: float) -> None:
    got = f.dual_step(scalar(0.1), scalar(gap), dual_lr=rate, domain=domain)
    assert got.item() == pytest.approx(naive.dual_step(0.1, gap, rate, domain == "nonnegative"), rel=1e-9)
    assert f.dual_step(scalar(0.1), scalar(gap), dual_lr=rate, both=scalar(0.0)).item() == 0.1


@given(gap=st.floats(-1, 2), rate=st.floats(0.01, 1), start=st.floats(0, 2))
def test_dual_steps_converge_to_the_projected_gap(gap: float, rate: float, start: float) -> None:
    alpha = scalar(start)
    steps = 1 if rate == 1 else 40
    for _ in range(steps):
        alpha = f.dual_step(alpha, scalar(gap), dual_lr=rate)
    distance = abs(start - max(gap, 0.0)) * (1 - rate) ** steps
    assert abs(alpha.item() - max(gap, 0.0)) <= distance + 1e-9


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("label", [0, 1])
def test_a_batch_of_one_class_has_a_finite_loss_and_gradient_and_no_dual_step(name: str, label: int) -> None:
    objective = make_objective(name)
    model = make_model("attention", objective=name)
    x = torch.from_numpy(make_bags((3, 2), (1, 0)).instances)
    loss = objective(model(x, torch.tensor([3, 2])), torch.full((2,), label))
    loss.backward()
    objective.commit(loss.detach())
    assert torch.isfinite(loss)
    assert all(
        torch.isfinite(p.grad).all() for p in [*model.parameters(), *objective.parameters()] if p.grad is not None
    )
    if name == "minmax-auc":
        assert objective.dual.item() == pytest.approx(0.3)
    if name == "pairwise":
        assert loss.item() == 0


def test_only_the_dual_step_writes_alpha_and_a_loss_of_nan_does_not() -> None:
    objective = make_objective("minmax-auc")
    model = make_model("mean")
    x, sizes, labels = torch.from_numpy(make_bags((3, 2), (1, 0)).instances), torch.tensor([3, 2]), torch.tensor([1, 0])
    out = model(x, sizes)
    loss = objective(out, labels)
    assert objective.dual.item() == pytest.approx(0.3)
    objective.commit(torch.tensor(torch.nan))
    objective.commit(loss)  # Nothing is proposed any more.
    assert objective.dual.item() == pytest.approx(0.3)
    objective.commit(objective(out, labels))
    assert objective.dual.item() == pytest.approx(naive.gap(out.score.tolist(), [1, 0], 1.0), rel=1e-9)
    assert not any(name == "dual" for name, _ in objective.named_parameters())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MinMaxAUCLoss(center_start=0.0, margin=0.0), "margin > 0, got 0.0"),
        (lambda: PairwiseAUCLoss(margin=-1.0), "margin > 0"),
        (lambda: MinMaxAUCLoss(center_start=0.0, dual_lr=0.0), r"dual_lr in \(0, 1\]"),
        (lambda: MinMaxAUCLoss(center_start=0.0, dual_lr=1.5), "got 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(build: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_sums_over_bags_stay_in_float32_under_autocast() -> None:
    h, labels = scores(torch.float32), torch.tensor(LABELS)
    weights = f.class_weights(labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = f.pairwise_squared_hinge(h, weights)
        value = f.minmax_auc(h, weights, a=scalar(0.7), b=scalar(0.2), alpha=scalar(0.3))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(naive.pairwise(h.tolist(), LABELS, 1.0), rel=1e-5)
    assert value.gap.item() == pytest.approx(naive.gap(h.tolist(), LABELS, 1.0), rel=1e-5)


def test_bce_reads_the_logit_of_the_output() -> None:
    model = make_model("mean", objective="bce")
    out = model(torch.from_numpy(make_bags((3, 2), (1, 0)).instances), torch.tensor([3, 2]))
    labels = torch.tensor([1, 0])
    assert BCELoss()(out, labels).item() == pytest.approx(naive.bce(out.logit.tolist(), [1, 0]), rel=1e-9)


def test_logits_given_to_a_loss_on_scores_are_named_once() -> None:
    logits, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 0, 1])
    for build in (MinMaxAUCLoss, PairwiseAUCLoss):
        loss_fn = build()
        with pytest.warns(UserWarning, match=f"scores in .0, 1. for '{loss_fn.name}', got others, perhaps logits"):
            loss_fn(logits, labels)
        loss_fn.commit(torch.tensor(0.0))
        loss_fn(logits, labels)  # warnings are errors
    BCELoss()(logits, labels)
    MinMaxAUCLoss()(torch.sigmoid(logits), labels)
