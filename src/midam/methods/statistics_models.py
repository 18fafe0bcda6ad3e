"""Trees and Cox regression on statistics of bags for any target, and the form of models as scorers without a pickle."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import ExtraTreeRegressor as Tree
from sklearn.utils import check_array
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.statistics import coarse
from midam.evaluate.predict import predict
from midam.evaluate.survival import kaplan_meier
from midam.methods.inner_folds import Positions
from midam.nn.pooling.summary import Forest, SummaryPooling
from midam.nn.scorer import BagScorer
from midam.targets import Target, target_of
from midam.targets.survival import choose_cox
from midam.train.side import Trial

Scores = NDArray[np.float64]
Statistics = Callable[[Bags, Positions], Scores]
_TREES = 500


def summary_scorer(
    summary: type[SummaryPooling], instance_shape: tuple[int, ...], make_head: Callable[[int], nn.Module]
) -> BagScorer:
    """Return a scorer by a head on a summary of instances of this shape; `make_head` takes the head's width."""
    encoder, size = summary.reading(instance_shape)
    return BagScorer(encoder, summary(size, make_head))


def summary_rows(summary: type[SummaryPooling], bags: Bags, index: Positions) -> Scores:
    """Return the summaries [n, W] of the bags at the positions `index`, streamed as for a model."""
    model, subset = summary_scorer(summary, bags.instance_shape, nn.Identity), bags.subset(index)
    # The head is the identity, so the score of a bag is its summary.
    return predict(model, subset, reader=InstanceReader(subset, workers=0))


def forest_scorer(
    summary: type[SummaryPooling], instance_shape: tuple[int, ...], forest: Sequence[Tree], offset: Scores | None = None
) -> BagScorer:
    """Return a scorer by the trees of `fit_trees`; the score is the mean of what they predict.

    They were fitted to rows minus the `offset` [W], if any.
    """
    trees = [tree.tree_ for tree in forest]
    counts = [tree.node_count for tree in trees]
    head = partial(Forest, trees=len(trees), nodes=sum(counts), shifted=offset is not None)
    model = summary_scorer(summary, instance_shape, head)
    first = np.cumsum([0, *counts[:-1]])
    columns = [_nodes(tree, low) for tree, low in zip(trees, first)]
    children, feature, threshold, value = (np.concatenate(column) for column in zip(*columns))
    state = {"roots": first, "branches": children, "feature": feature, "threshold": threshold, "value": value}
    if offset is not None:
        state["offset"] = offset
    model.pooling.load_state_dict({f"head.{name}": torch.from_numpy(np.array(array)) for name, array in state.items()})
    return model


def tree_offset(rows: Scores) -> Scores | None:
    """Return the offset of rows [N, W] for trees, which use float32: the middle of columns that are too fine for it."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    fine = coarse(low, high)
    return np.where(fine, low + (high - low) / 2, 0.0) if fine.any() else None


def unscaled(model: LogisticRegression, scaler: StandardScaler) -> tuple[Scores, Scores]:
    """Convert a regression on standardized features to weights [D] and bias [1] for raw features."""
    weight = model.coef_[0] / scaler.scale_
    return weight, model.intercept_ - weight @ scaler.mean_


def fill_linear(head: Any, weight: Scores, bias: Scores) -> None:
    """Set weight and bias of a linear head."""
    fill(head.weight, weight)
    fill(head.bias, bias)


@torch.no_grad()
def fill(parameter: Tensor, values: Any) -> None:
    """Set a parameter to these values."""
    parameter.copy_(torch.from_numpy(values))


def _nodes(tree: Any, first: int) -> tuple[NDArray[Any], ...]:
    """Return children, feature, threshold and value of the nodes of a tree, numbered from `first`."""
    children = np.stack([tree.children_left, tree.children_right], axis=1).astype(np.int64)
    leaf, numbers = tree.children_left < 0, np.arange(tree.node_count)
    children[leaf] = numbers[leaf, None]
    return children + first, np.where(leaf, 0, tree.feature), tree.threshold, tree.value[:, 0, 0].clip(0, 1)


def tree_scores(
    target: Target, x: Scores, values: NDArray[Any], scored: Scores, weights: Scores | None = None, *, seed: int
) -> Scores:
    """Return scores [n] or [n, C] of 500 extremely randomized trees (Geurts et al. 2006) on statistics of bags.

    For classes and labels, scores are probabilities. Each label has its own forest, fitted to the bags with a known
    label. A class without training bags scores 0; a label with one value in training scores this value. For grades and
    numbers, scores are the predictions of the trees. For survival, the trees predict the martingale residuals of the
    training bags: the event minus the cumulative hazard at the bag's time, which is above 0 for early events (Therneau,
    Grambsch and Fleming 1990, Biometrika 77:147).

    Parameters
    ----------
    target : Target
        Target of the bags.
    x, values, weights : array, shape [N, D], [N] or [N, L], and [N]
        Statistics of the training bags, their labels by `Target.values`, and their weights, for two classes only.
    scored : array, shape [n, D]
        Statistics of the bags to score.
    seed : int
        Seed of the trees.
    """
    offset = tree_offset(x)
    if offset is not None:
        x, scored = x - offset, scored - offset
    if target.pairs == "binary":
        return trees_mean(fit_trees(x, values, weights, seed=seed), scored)
    if target.pairs == "classes":
        forest = ExtraTreesClassifier(_TREES, random_state=seed % 2**32).fit(x, values[:, 0].astype(np.int64))
        shares = np.zeros((len(scored), target.count))
        shares[:, forest.classes_] = forest.predict_proba(scored)
        return shares
    if target.pairs == "labels":
        return np.stack([_label_scores(x, column, scored, seed=seed) for column in values.T], axis=1)
    numbers = _residuals(values) if target.pairs == "survival" else values[:, 0]
    return np.asarray(
        ExtraTreesRegressor(_TREES, random_state=seed % 2**32).fit(x, numbers).predict(scored), dtype=np.float64
    )


def fit_trees(x: Scores, labels: NDArray[Any], weights: Scores | None = None, *, seed: int) -> Iterator[Tree]:
    """Yield 500 extremely randomized trees of rows [N, D] and labels 0 and 1; each predicts the share of class 1.

    They are the trees of scikit-learn's `ExtraTreesClassifier`, because the Gini impurity is twice the variance of such
    labels, in less than half of its time: it checks the labels of each tree, and copies it from another.
    """
    random, rows = np.random.RandomState(seed % 2**32), check_array(x, dtype=np.float32, order="C")
    for _ in range(_TREES):
        tree = Tree(max_features="sqrt", random_state=random.randint(2**31 - 1))
        yield tree.fit(rows, labels.astype(np.float64), weights, check_input=False)


def trees_mean(trees: Iterable[Tree], x: Scores) -> Scores:
    """Return the mean prediction [n] of the trees of `fit_trees` for rows [n, D]; none is kept."""
    rows = check_array(x, dtype=np.float32, order="C")
    return np.asarray(sum(tree.predict(rows, check_input=False) for tree in trees) / _TREES)


def _label_scores(x: Scores, label: Scores, scored: Scores, *, seed: int) -> Scores:
    labeled = np.isfinite(label)
    if np.unique(label[labeled]).size == 2:
        return trees_mean(fit_trees(x[labeled], label[labeled], seed=seed), scored)
    return np.full(len(scored), label[labeled][0] if labeled.any() else 0.0)


def cox_scores(statistics: Statistics, bags: Bags, trial: Trial) -> Scores:
    """Return log hazards [n] of Cox regression, see `choose_cox`."""
    time, event = target_of(bags).values(bags)[trial.train].T
    groups = None if bags.groups is None else bags.groups[trial.train]
    model = choose_cox(statistics(bags, trial.train), time, event, groups=groups, seed=trial.seed)
    return model.predict(statistics(bags, trial.score))


def _residuals(values: Scores) -> Scores:
    """Return martingale residuals [n] of times and events [n, 2] by the Nelson-Aalen estimator, without covariates."""
    time, event = values.T
    curve = kaplan_meier(time, event)
    hazard = np.cumsum(curve.events / curve.at_risk)
    return event - hazard[np.searchsorted(curve.time, time)]
