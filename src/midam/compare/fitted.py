"""Models of scikit-learn as scorers of this library: their numbers in its modules, without a pickle."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from midam.compare.folds import Positions
from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.statistics import coarse
from midam.evaluate.predict import predict
from midam.nn.fitted import Forest
from midam.nn.pooling.summary import SummaryPooling
from midam.nn.scorer import BagScorer

Numbers = NDArray[np.float64]


def summary_scorer(
    summary: type[SummaryPooling], instance_shape: tuple[int, ...], make_head: Callable[[int], nn.Module]
) -> BagScorer:
    """A scorer of bags by a head, which `make_head` makes of its width, on a summary of instances of this shape."""
    encoder, size = summary.reading(instance_shape)
    return BagScorer(encoder, summary(size, make_head))


def summary_rows(summary: type[SummaryPooling], bags: Bags, index: Positions) -> Numbers:
    """Rows [n, W] that a head on a summary reads, of the bags at the positions `index`; streamed as a model is."""
    model, own = summary_scorer(summary, bags.instance_shape, nn.Identity), bags.subset(index)
    # The head changes nothing, so that the score of a bag is its row.
    return predict(model, own, reader=InstanceReader(own, workers=0))


def forest_scorer(
    summary: type[SummaryPooling],
    instance_shape: tuple[int, ...],
    forest: ExtraTreesClassifier,
    offset: Numbers | None = None,
) -> BagScorer:
    """A scorer of bags by a fitted forest of the classes 0 and 1, whose probability of class 1 is the score.

    The rows that it was fitted to were less by the `offset` [W], if any.
    """
    trees = [estimator.tree_ for estimator in forest.estimators_]
    counts = [tree.node_count for tree in trees]
    model = summary_scorer(
        summary, instance_shape, partial(Forest, trees=len(trees), nodes=sum(counts), shifted=offset is not None)
    )
    first = np.cumsum([0, *counts[:-1]])
    columns = [_nodes(tree, low) for tree, low in zip(trees, first)]
    children, feature, threshold, value = (np.concatenate(column) for column in zip(*columns))
    state = {"roots": first, "branches": children, "feature": feature, "threshold": threshold, "value": value}
    state |= {} if offset is None else {"offset": offset}
    _head(model).load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    return model


def empty_forest_scorer(
    summary: type[SummaryPooling], instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]
) -> BagScorer:
    """A scorer as `forest_scorer` makes it, to be filled with these weights, which are checked.

    A `ValueError` or `KeyError` where these are no forest.
    """
    parts = {name.rpartition(".")[2]: value for name, value in weights.items()}
    trees, nodes = parts["roots"].numel(), parts["feature"].numel()
    model = summary_scorer(
        summary, instance_shape, partial(Forest, trees=trees, nodes=nodes, shifted="offset" in parts)
    )
    model.load_state_dict(dict(weights))
    _head(model).check()
    return model


def tree_offset(rows: Numbers) -> Numbers | None:
    """Offset of rows [N, W] before trees, which use float32: the middle of columns that need it."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    fine = coarse(low, high)
    return np.where(fine, low + (high - low) / 2, 0.0) if fine.any() else None


def unscaled(model: LogisticRegression, scaler: StandardScaler) -> tuple[Numbers, Numbers]:
    """Weights [D] and bias [1] of a regression on standardized features, for the features as they are."""
    weight = model.coef_[0] / scaler.scale_
    return weight, model.intercept_ - weight @ scaler.mean_


@torch.no_grad()
def fill_linear(head: Any, weight: Numbers, bias: Numbers) -> None:
    """Give a linear head these numbers."""
    head.weight.copy_(torch.from_numpy(weight))
    head.bias.copy_(torch.from_numpy(bias))


def _head(model: BagScorer) -> Any:
    return model.pooling.head


def _nodes(tree: Any, first: int) -> tuple[NDArray[Any], ...]:
    """Children, feature, threshold and value of the nodes of a tree, of which the first gets the number `first`."""
    children = np.stack([tree.children_left, tree.children_right], axis=1).astype(np.int64)
    leaf, own = tree.children_left < 0, np.arange(tree.node_count)
    children[leaf] = own[leaf, None]
    counts = tree.value[:, 0, :]
    return children + first, np.where(leaf, 0, tree.feature), tree.threshold, counts[:, 1] / counts.sum(axis=1)
