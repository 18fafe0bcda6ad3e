"""Small bags, models and batches that several tests share."""

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from midam import registry
from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch
from midam.nn.encoders import MLP
from midam.nn.objectives import Objective
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagScorer

WIDTH = 4
SIZES = (7, 3, 12, 5, 1, 4)
LABELS = (1, 1, 1, 0, 0, 0)
POOLINGS = {name: registry.POOLINGS.find(name) for name in registry.POOLINGS.names()}
# Those of bags of two classes.
OBJECTIVES = {
    name: found
    for name, found in ((name, registry.OBJECTIVES.find(name)) for name in registry.OBJECTIVES.names())
    if "binary" in found.serves
}
SMOOTH = tuple(name for name, head in POOLINGS.items() if head.statistic.trackable)
ALL = tuple(POOLINGS)
ATTENTION = tuple(name for name in ALL if "attention" in name)
# Poolings of three score columns, and how their weights go by column where there is a choice.
COLUMNED = [(name, {}) for name in ALL] + [(name, {"attention": "per-class"}) for name in ATTENTION]
LEARNABLE = {"smoothed-max": {"learn_temperature": True}, "generalized-mean": {"learn_exponent": True}}


def make_bags(
    sizes: Sequence[int] = SIZES,
    labels: Sequence[int] = LABELS,
    *,
    width: int = WIDTH,
    seed: int = 0,
    dtype: Any = float,
) -> Bags:
    rng = np.random.default_rng(seed)
    return Bags.from_list([rng.normal(size=(n, width)).astype(dtype) for n in sizes], labels=list(labels))


def whole_batch(bags: Bags, index: Sequence[int] | None = None) -> WholeBatch:
    rows = torch.arange(len(bags)) if index is None else torch.as_tensor(index)
    return WholeBatch(InstanceReader(bags), rows, torch.from_numpy(np.asarray(bags.labels))[rows])


def sampled_batch(bags: Bags, slots: Sequence[Sequence[int]], *, index: Sequence[int] | None = None) -> SampledBatch:
    """Batch that draws the given positions of each bag; shorter rows are padded by the bag's first instance."""
    whole = whole_batch(bags, index)
    width = max(len(row) for row in slots)
    mask = torch.tensor([[j < len(row) for j in range(width)] for row in slots])
    padded = torch.tensor([[*row, *([0] * (width - len(row)))] for row in slots])
    positions = whole.starts.unsqueeze(1) + padded
    x = whole.reader.rows(positions.flatten())
    return SampledBatch(x, whole.index, whole.labels, whole.sizes, None if bool(mask.all()) else mask)


def full_sample(bags: Bags) -> SampledBatch:
    """Sampled batch that holds every bag whole."""
    return sampled_batch(bags, [range(n) for n in bags.sizes])


def make_model(
    pooling: str,
    *,
    objective: str = "minmax-auc",
    width: int = WIDTH,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    encoder: nn.Module | None = None,
    **options: Any,
) -> BagScorer:
    torch.manual_seed(seed)
    squash = OBJECTIVES[objective].squash
    model = BagScorer(encoder or MLP(width), make_pooling(pooling, width, squash=squash, **options))
    return model.to(dtype)


def make_columns(pooling: str, *, columns: int = 3, **options: Any) -> BagScorer:
    """Scorer of several columns, of which no two are alike in any weight."""
    model = make_model(pooling, columns=columns, **LEARNABLE.get(pooling, {}), **options)
    with torch.no_grad():
        for p in model.pooling.parameters():
            p.add_(torch.linspace(-0.4, 0.4, p.numel(), dtype=p.dtype).view(p.shape))
    return model


def columns_alone(model: BagScorer, pooling: str, **options: Any) -> list[BagScorer]:
    """Of each column of `make_columns` a scorer of its own, with copies of the weights."""
    found = []
    for column in range(model.pooling.columns):
        encoder = copy.deepcopy(model.encoder)
        alone = make_model(pooling, encoder=encoder, **LEARNABLE.get(pooling, {}), **options)
        own = {name: _part(model.state_dict()[name], x, column) for name, x in alone.state_dict().items()}
        alone.load_state_dict(own)
        found.append(alone)
    return found


def _part(x: Tensor, like: Tensor, column: int) -> Tensor:
    return x if x.shape == like.shape else x[column].view(like.shape)


def joined_gradient(model: BagScorer, parts: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """Flat gradient of a scorer of several columns, of the gradients of `columns_alone` by name."""
    found = []
    for name, p in model.named_parameters():
        own = torch.stack([part[name] for part in parts])
        found.append((own.sum(dim=0) if own[0].shape == p.shape else own).flatten())
    return torch.cat(found)


def new_objective(name: str, **settings: Any) -> Objective:
    """Objective as the paper starts it."""
    objective: Objective = registry.build(
        OBJECTIVES[name], part=name, offered={"center_start": 0.0, "num_bags": 64}, arguments=settings
    )
    return objective


def make_objective(name: str, *, dtype: torch.dtype = torch.float64) -> Objective:
    """Objective off its initial point, so that every term of its gradient counts."""
    objective = new_objective(name).to(dtype)
    if name == "minmax-auc":
        with torch.no_grad():
            objective.get_parameter("positive_center").fill_(0.7)
            objective.get_parameter("negative_center").fill_(0.2)
            objective.get_buffer("dual").fill_(0.3)
    return objective


def parameters(*modules: nn.Module) -> list[nn.Parameter]:
    return [p for m in modules for p in m.parameters()]


def gradient(loss: Tensor, params: Iterable[nn.Parameter]) -> Tensor:
    """Flat gradient; a parameter that the loss does not reach counts as zeros."""
    params = list(params)
    grads = torch.autograd.grad(loss, params, allow_unused=True)
    return torch.cat(
        [torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in zip(params, grads, strict=True)]
    )


def exact_gradient(model: BagScorer, objective: Objective, bags: Bags) -> tuple[Tensor, Tensor]:
    """Loss and flat gradient of the objective on whole bags, by plain autograd."""
    batch = whole_batch(bags)
    x = batch.reader.rows(torch.cat([torch.arange(s, s + n) for s, n in zip(bags.starts, bags.sizes, strict=True)]))
    loss = objective(model(x, batch.sizes), batch.labels)
    return loss.detach(), gradient(loss, parameters(model, objective))


def relative(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what is expected."""
    return ((actual - expected).norm() / expected.norm()).item()


def subsets(n: int, size: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(n), size))


def tuples(n: int, size: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(n), repeat=size))
