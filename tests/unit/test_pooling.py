"""Every pooling: the head against the oracle, its bounds, its misuse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import naive
from tests.reference.cases import COLUMNED, POOLINGS, columns_alone, make_columns
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.functional import poolings as f
from midam.nn.pooling import (
    GeneralizedMeanPooling,
    NoisyAndPooling,
    NoisyOrPooling,
    Pooling,
    SmoothedMaxPooling,
    make_pooling,
)
from midam.nn.scorer import BagScorer

SIZES = [5, 1, 3]
WIDTH = 3


def affine(layer: nn.Linear, e: list[float]) -> list[float]:
    rows = zip(layer.weight.double().tolist(), layer.bias.double().tolist(), strict=True)
    return [math.fsum(w * x for w, x in zip(row, e, strict=True)) + bias for row, bias in rows]


def attention_logit(head: Pooling, e: list[float]) -> float:
    hidden = [math.tanh(x) for x in affine(head.hidden, e)]
    if head.gate is not None:
        hidden = [h * naive.sigmoid(x) for h, x in zip(hidden, affine(head.gate, e), strict=True)]
    return affine(head.attention, hidden)[0]


def number(x: Tensor | float) -> float:
    return x.item() if isinstance(x, Tensor) else x


def oracle(head: Pooling, bag: list[list[float]]) -> tuple[float, float]:
    """Score and logit of one bag, from the encodings of its instances, by loops."""
    name = head.name
    if "attention" in name:
        g = [attention_logit(head, e) for e in bag]
        if name == "embedding-attention":
            pooled = naive.attention_embedding(g, bag)
            first, _, last = head.head
            out = affine(last, [max(0.0, x) for x in affine(first, pooled)])[0]
        else:
            out = naive.attention(g, [affine(head.scorer, e)[0] for e in bag])
        return naive.sigmoid(out), out
    raw = [affine(head.scorer, e)[0] for e in bag]
    squashed = getattr(head, "squash", True)
    phi = [naive.sigmoid(x) for x in raw] if squashed else raw
    pool = {
        "mean": naive.mean,
        "max": max,
        "smoothed-max": lambda phi: naive.smoothed_max(phi, number(head.tau)),
        "generalized-mean": lambda phi: naive.generalized_mean(phi, number(head.p)),
        "noisy-or": naive.noisy_or,
        "noisy-and": lambda phi: naive.noisy_and(phi, head.a.item(), naive.sigmoid(head.b_logit.item())),
    }
    h = pool[name](phi)
    return (h, naive.logit(h)) if squashed else (naive.sigmoid(h), h)


CASES = [(name, squash, {}) for name in POOLINGS for squash in (True, False)]
CASES += [("smoothed-max", True, {"temperature": 0.7, "learn_temperature": True})]
CASES += [("generalized-mean", True, {"exponent": 2.5, "learn_exponent": True})]
CASES += [
    ("attention", True, {"hidden": 2}),
    ("embedding-attention", True, {"gated": True, "hidden": 5, "head_hidden": 4}),
]


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("name", "squash", "options"), CASES)
def test_head_agrees_with_the_oracle(name: str, squash: bool, options: dict, dtype: torch.dtype, rel: float) -> None:
    torch.manual_seed(0)
    head = make_pooling(name, WIDTH, squash=squash, **options).to(dtype)
    e = torch.randn(sum(SIZES), WIDTH, dtype=torch.float64).to(dtype)
    out = BagScorer(nn.Identity(), head)(e, torch.tensor(SIZES))
    for i, bag in enumerate(e.double().split(SIZES)):
        score, logit = oracle(head, bag.tolist())
        assert out.score[i].item() == pytest.approx(score, rel=rel)
        assert out.logit[i].item() == pytest.approx(logit, rel=rel, abs=rel)
    assert out.score.dtype == dtype


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize(("name", "options"), COLUMNED)
def test_each_score_column_agrees_with_the_oracle_of_it_alone(name: str, squash: bool, options: dict) -> None:
    options = {"objective": "minmax-auc" if squash else "bce", "width": WIDTH, **options}
    model = make_columns(name, encoder=nn.Identity(), **options)
    e = torch.randn(sum(SIZES), WIDTH, dtype=torch.float64)
    out = model(e, torch.tensor(SIZES))
    assert out.score.shape == out.logit.shape == (len(SIZES), 3)
    for column, alone in enumerate(columns_alone(model, name, **options)):
        for i, bag in enumerate(e.split(SIZES)):
            score, logit = oracle(alone.pooling, bag.tolist())
            assert out.score[i, column].item() == pytest.approx(score, rel=1e-9)
            assert out.logit[i, column].item() == pytest.approx(logit, rel=1e-9, abs=1e-9)


@given(
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    tau=st.floats(1e-3, 10),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_smoothed_max_lies_between_the_maximum_and_tau_log_n_below_it(
    scores: list, tau: float, dtype: torch.dtype
) -> None:
    phi = torch.tensor(scores, dtype=dtype)
    l = torch.logsumexp(phi / tau, 0) - math.log(len(scores))  # noqa: E741
    h = SmoothedMaxPooling(1, temperature=tau).pooled(l, torch.empty(0)).item()
    slack = 8 * torch.finfo(dtype).eps * max(1.0, tau)
    assert phi.max().item() - tau * math.log(len(scores)) - slack <= h <= phi.max().item() + slack


@pytest.mark.parametrize("x", [-700.0, -30.0, -1.0, -0.7, -math.log(2), -0.69, -0.1, -1e-8, -1e-30])
def test_log1mexp_is_right_to_full_precision_in_value_and_gradient(x: float) -> None:
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = f.log1mexp(point)
    (gradient,) = torch.autograd.grad(value, point)
    # Both forms are the same function; each is exact on its side of log 1/2.
    expected = math.log(-math.expm1(x)) if x > -0.5 else math.log1p(-math.exp(x))
    assert value.item() == pytest.approx(expected, rel=1e-14, abs=1e-300)
    assert gradient.item() == pytest.approx(-math.exp(x) / -math.expm1(x), rel=1e-14)


def test_log1mexp_gradcheck_across_the_switch_and_near_zero() -> None:
    half = -math.log(2)
    x = torch.tensor([half - 1e-3, half - 1e-5, half + 1e-5, half + 1e-3, -0.05, -0.01], dtype=torch.float64)
    assert torch.autograd.gradcheck(f.log1mexp, (x.requires_grad_(),))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (f.noisy_or_log_miss, (torch.tensor([[-0.5], [-2.0]]), torch.tensor([3.0, 5.0]))),
        (
            lambda r, a, b: f.noisy_and(r, a=a, b=b),
            (torch.tensor([[0.2], [0.7]]), torch.tensor(8.0), torch.tensor(0.4)),
        ),
        (f.logit, (torch.tensor([0.2, 0.9]),)),
    ],
)
def test_outer_functions_pass_gradcheck(function: object, args: tuple[Tensor, ...]) -> None:
    assert torch.autograd.gradcheck(function, tuple(x.double().requires_grad_() for x in args))


def test_log_probabilities_keep_their_digits_where_the_probability_underflows() -> None:
    phi, miss = GeneralizedMeanPooling(1, exponent=1.0).without_layers(), NoisyOrPooling(1).without_layers()
    assert phi.term(torch.tensor([[-1e4]])).item() == -1e4
    assert miss.term(torch.tensor([[1e4]])).item() == -1e4
    assert miss.term(torch.tensor([[-30.0]])).item() == pytest.approx(-math.exp(-30), rel=1e-5)


def test_noisy_or_logit_of_rare_instances_is_the_score_plus_log_n() -> None:
    head = NoisyOrPooling(1).without_layers()
    _, v = head(torch.full((1, 1), -30.0))
    assert head.logit(torch.zeros(1), v, torch.tensor([4.0])).item() == pytest.approx(-30 + math.log(4), rel=1e-6)


def test_logit_of_a_saturated_score_is_bounded() -> None:
    bound = math.log(2**23)
    assert f.logit(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([-bound, bound], rel=1e-3)


def test_noisy_or_warns_about_large_bags_alone() -> None:
    NoisyOrPooling(3).check_sizes(1000)
    with pytest.warns(UserWarning, match="prefer smoothed-max"):
        NoisyOrPooling(3).check_sizes(1001)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_pooling("attension", 3), "Expected a known pooling, got 'attension'; did you mean 'attention'"),
        (lambda: SmoothedMaxPooling(3, temperature=0.0), "temperature > 0, got 0.0"),
        (lambda: GeneralizedMeanPooling(3, exponent=-1.0), "exponent > 0, got -1.0"),
        (lambda: NoisyAndPooling(3, slope=0.0), "slope > 0"),
        (lambda: NoisyAndPooling(3, threshold=1.0), r"threshold in \(0, 1\), got 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(build: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_learnable_settings_start_at_their_values() -> None:
    assert SmoothedMaxPooling(2, temperature=0.25, learn_temperature=True).tau.item() == pytest.approx(0.25)
    assert GeneralizedMeanPooling(2, exponent=3.0, learn_exponent=True).p.item() == pytest.approx(3.0)
    assert torch.sigmoid(NoisyAndPooling(2, threshold=0.2).b_logit).item() == pytest.approx(0.2)


def test_max_pooling_sends_the_gradient_to_the_first_maximum() -> None:
    head = make_pooling("max", 1)
    e = torch.tensor([[0.0], [2.0], [2.0]], requires_grad=True)
    with torch.no_grad():
        head.scorer.weight.fill_(1.0)
    BagScorer(nn.Identity(), head)(e, torch.tensor([3])).score.sum().backward()
    assert (e.grad != 0).flatten().tolist() == [False, True, False]


def test_half_precision_encodings_are_pooled_in_float32() -> None:
    for name in POOLINGS:
        z, v = make_pooling(name, 2).to(torch.bfloat16)(torch.zeros(3, 2, dtype=torch.bfloat16))
        assert z.dtype == torch.float32
        assert v.dtype == torch.float32 or v.shape[1] == 0
