"""Several score columns of one encoder against one scorer a column: scores, gradients and the tracked state."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.reference.cases import (
    COLUMNED,
    SIZES,
    columns_alone,
    gradient,
    joined_gradient,
    make_bags,
    make_columns,
    relative,
    sampled_batch,
    whole_batch,
)
from torch import Tensor

from midam.data.batch import SampledBatch, WholeBatch
from midam.nn.scorer import BagOutput, BagScorer
from midam.train.estimators import AsPrinted, Estimator, MiniBatch, VarianceReduced
from midam.train.exact import Exact

CHUNK = 7
TARGETS = torch.linspace(0.1, 0.9, 3 * len(SIZES), dtype=torch.float64).view(len(SIZES), 3)
SMOOTH = [case for case in COLUMNED if case[0] != "max"]
# Each bag has its own number of drawn instances; the fourth is drawn whole.
SLOTS = [[0, 4, 2, 6], [1, 0], [11, 3, 5], [4, 0, 1, 2, 3], [0], [3, 1, 0]]


def losses(out: BagOutput, index: Tensor) -> Tensor:
    """A loss of each column, [C], in which scores and logits count."""
    score, logit = (x.view(len(index), -1) for x in (out.score, out.logit))
    targets = TARGETS[index, : score.shape[1]]
    return ((score - targets) ** 2).sum(dim=0) + 0.01 * (logit**2).mean(dim=0)


def column_loss(out: BagOutput, index: Tensor, column: int) -> Tensor:
    return ((out.score - TARGETS[index, column]) ** 2).sum() + 0.01 * (out.logit**2).mean()


def check(
    model: BagScorer,
    alone: Sequence[BagScorer],
    batch: SampledBatch | WholeBatch,
    estimate: Callable[[BagScorer], BagOutput],
    estimates: Sequence[Callable[[BagScorer], BagOutput]],
) -> None:
    """Scores, logits and gradients of a batch are those of the scorers alone."""
    out = estimate(model)
    got = gradient(losses(out, batch.index).sum(), model.parameters())
    parts = []
    for column, (own, estimate_own) in enumerate(zip(alone, estimates, strict=True)):
        want = estimate_own(own)
        assert out.score.shape == (len(batch.index), 3)
        torch.testing.assert_close(out.score[:, column], want.score, rtol=1e-10, atol=0)
        torch.testing.assert_close(out.logit[:, column], want.logit, rtol=1e-10, atol=1e-12)
        loss = column_loss(want, batch.index, column)
        grads = torch.autograd.grad(loss, list(own.parameters()), allow_unused=True)
        names = [name for name, _ in own.named_parameters()]
        parts.append(
            {n: torch.zeros_like(p) if g is None else g for n, p, g in zip(names, own.parameters(), grads, strict=True)}
        )
    assert relative(got, joined_gradient(model, parts)) < 1e-10


@pytest.mark.parametrize(("pooling", "options"), COLUMNED)
def test_minibatch(pooling: str, options: dict[str, Any]) -> None:
    bags, model = make_bags(), make_columns(pooling, **options)
    batch = sampled_batch(bags, SLOTS)
    assert batch.mask is not None
    run = lambda scorer: MiniBatch()(scorer, batch)  # noqa: E731
    check(model, columns_alone(model, pooling, **options), batch, run, [run] * 3)


VARIANTS = {
    "plain": {"state_rate": 0.4},
    "auto": {},
    "printed": {"state_rate": 0.4},
    "lag": {"state_rate": 0.4, "lag": True},
}


def own_state(estimator: VarianceReduced, model: BagScorer, column: int) -> Tensor:
    """Rows of the state that a scorer of this column alone would have."""
    branches = model.pooling.branches
    rows = estimator.bag_state.view(len(SIZES), branches, -1)[:, column if branches > 1 else 0]
    values = rows[:, 2:]
    one_each = branches == 1 and model.pooling.name != "embedding-attention"
    return torch.cat([rows[:, :2], values[:, column : column + 1] if one_each else values], dim=1)


# Each pooling with the state of midam and with that of the paper, in turn by either of two ways.
STEPS = [(*case, list(VARIANTS)[at % 2 + paper]) for at, case in enumerate(SMOOTH) for paper in (0, 2)]


@pytest.mark.parametrize(("pooling", "options", "variant"), STEPS)
def test_vrsp_over_several_steps(pooling: str, options: dict[str, Any], variant: str) -> None:
    bags, model = make_bags(), make_columns(pooling, **options)
    head, settings = model.pooling, VARIANTS[variant]
    make = AsPrinted if variant in ("printed", "lag") else VarianceReduced
    several = make(len(bags), head.value_size, branches=head.branches, **settings).double()
    alone = columns_alone(model, pooling, **options)
    own = [make(len(bags), scorer.pooling.value_size, **settings).double() for scorer in alone]
    assert several.bag_state.shape == (6 * head.branches, 2 + head.value_size)
    # Two bags are not of each batch, and the last step draws as many of each: no mask.
    for step, index in enumerate([[0, 1, 2, 3, 4, 5], [5, 3, 0, 1], [2, 0, 4, 1], [0, 2, 3, 5]]):
        slots = [[(j + step) % SIZES[i] for j in (SLOTS[i] if step < 3 else [0, 1, 2])] for i in index]
        batch = sampled_batch(bags, slots, index=index)
        several.start_epoch()
        alone = columns_alone(model, pooling, **options)
        check(
            model,
            alone,
            batch,
            lambda scorer, batch=batch: several(scorer, batch),
            [lambda scorer, one=one, batch=batch: one(scorer, batch) for one in own],
        )
        for estimator in (several, *own):
            estimator.commit(torch.tensor(1.0))
        for column, one in enumerate(own):
            torch.testing.assert_close(own_state(several, model, column), one.bag_state, rtol=1e-10, atol=1e-12)
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.3 * torch.sin(p))
    if isinstance(several, AsPrinted):
        assert several.clips == (own[0].clips if head.branches == 1 else sum(one.clips for one in own))


# Each pooling in chunks, of one instance or of seven, and in one.
CHUNKS = [(*case, size) for at, case in enumerate(COLUMNED) for size in ((1, CHUNK)[at % 2], 1000)]


@pytest.mark.parametrize(("pooling", "options", "chunk_size"), CHUNKS)
def test_exact_in_chunks(pooling: str, options: dict[str, Any], chunk_size: int) -> None:
    bags, model = make_bags(), make_columns(pooling, **options)
    batch = whole_batch(bags, [4, 0, 2, 3, 1])
    estimator: Estimator = Exact(chunk_size=chunk_size)
    run = lambda scorer: estimator(scorer, batch)  # noqa: E731
    check(model, columns_alone(model, pooling, **options), batch, run, [run] * 3)
    positions, _ = next(batch.chunks(1000))
    plain = lambda scorer: scorer(batch.reader.rows(positions), batch.sizes)  # noqa: E731
    got, want = (gradient(losses(f(model), batch.index).sum(), model.parameters()) for f in (run, plain))
    assert relative(got, want) < 1e-10


@pytest.mark.parametrize("carriers", [False, True])
@pytest.mark.parametrize("size", [2, 40])
def test_the_maxima_of_columns_are_found_whether_or_not_they_outnumber_the_instances(size: int, carriers: bool) -> None:
    model, bags = make_columns("max"), make_bags((size, 3, size), (1, 0, 0))
    batch = whole_batch(bags)
    run = lambda scorer: scorer(batch.reader.all, batch.sizes, carriers=carriers)  # noqa: E731
    alone = columns_alone(model, "max")
    encoded: list[int] = []
    model.encoder.register_forward_hook(lambda module, inputs, e: encoded.append(len(e)))
    check(model, alone, batch, run, [run] * 3)
    rows = 2 * size + 3
    assert encoded == [rows, 9] if carriers and rows >= 9 else encoded == [rows]
