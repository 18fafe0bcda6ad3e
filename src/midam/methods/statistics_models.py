"""Trees on statistics of bags, for any target, and as a head without a pickle."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.tree import ExtraTreeRegressor as Tree
from sklearn.utils import check_array

from midam.data.statistics import coarse
from midam.evaluate.survival import kaplan_meier
from midam.nn.pooling.summary import Forest
from midam.targets import Target

Scores = NDArray[np.float64]
_TREES = 500
_FEW = 0.4  # share of the trees that score the bags of a fold


def forest_head(width: int, forest: Sequence[Tree], offset: Scores | None = None) -> Forest:
    """Return the trees of `fit_trees` as a head for rows of a `width`; a score is the mean of what they predict.

    They were fitted to rows minus the `offset` [W], if any.
    """
    trees = [tree.tree_ for tree in forest]
    counts = [tree.node_count for tree in trees]
    first = np.cumsum([0, *counts[:-1]])
    branches, feature, threshold, value = map(np.concatenate, zip(*map(_nodes, trees, first)))
    state = {"roots": first, "branches": branches, "feature": feature, "threshold": threshold, "value": value}
    if offset is not None:
        state["offset"] = offset
    head = Forest(width, trees=len(trees), nodes=sum(counts), shifted=offset is not None)
    head.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    return head


def _nodes(tree: Any, first: int) -> tuple[NDArray[Any], ...]:
    """Return children, feature, threshold and value of the nodes of a tree, numbered from `first`."""
    children = np.stack([tree.children_left, tree.children_right], axis=1).astype(np.int64)
    leaf, numbers = tree.children_left < 0, np.arange(tree.node_count)
    children[leaf] = numbers[leaf, None]
    return children + first, np.where(leaf, 0, tree.feature), tree.threshold, tree.value[:, 0, 0].clip(0, 1)


def tree_offset(rows: Scores) -> Scores | None:
    """Return the offset of rows [N, W] for trees, which use float32: the middle of columns that are too fine for it."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    fine = coarse(low, high)
    return np.where(fine, low + (high - low) / 2, 0.0) if fine.any() else None


def tree_scores(
    target: Target, x: Scores, values: Any, new: Scores, weights: Scores | None = None, *, seed: int, few: bool = False
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
    new : array, shape [n, D]
        Statistics of the bags to score.
    seed : int
        Seed of the trees.
    few : bool
        Whether 200 trees suffice, for scores that are compared.
    """
    offset, seed, count = tree_offset(x), seed % 2**32, max(1, round(_FEW * _TREES)) if few else _TREES
    x, new = (x, new) if offset is None else (x - offset, new - offset)
    if target.pairs == "binary":
        return trees_mean(fit_trees(x, values, weights, seed=seed), new, count)
    if target.pairs == "classes":
        forest = ExtraTreesClassifier(count, random_state=seed).fit(x, values[:, 0].astype(np.int64))
        shares = np.zeros((len(new), target.count))
        shares[:, forest.classes_] = forest.predict_proba(new)
        return shares
    if target.pairs == "labels":
        return np.stack([_label_scores(x, column, new, count, seed=seed) for column in values.T], axis=1)
    numbers = _residuals(values) if target.pairs == "survival" else values[:, 0]
    predicted = ExtraTreesRegressor(count, random_state=seed).fit(x, numbers).predict(new)
    return np.asarray(predicted, dtype=np.float64)


def fit_trees(x: Scores, labels: NDArray[Any], weights: Scores | None = None, *, seed: int) -> Iterator[Tree]:
    """Yield 500 extremely randomized trees of rows [N, D] and labels 0 and 1; each predicts the share of class 1.

    They are the trees of scikit-learn's `ExtraTreesClassifier`, because the Gini impurity is twice the variance of such
    labels, in less than half of its time: it checks the labels of each tree, and copies it from another.
    """
    random, rows = np.random.RandomState(seed % 2**32), check_array(x, dtype=np.float32, order="C")
    for _ in range(_TREES):
        tree = Tree(max_features="sqrt", random_state=random.randint(2**31 - 1))
        yield tree.fit(rows, labels.astype(np.float64), weights, check_input=False)


def trees_mean(trees: Iterable[Tree], x: Scores, count: int | None = None) -> Scores:
    """Return the mean prediction [n] of the trees of `fit_trees`, or of the first of them, for rows; none is kept."""
    rows, count = check_array(x, dtype=np.float32, order="C"), count or _TREES
    return np.asarray(sum(tree.predict(rows, check_input=False) for _, tree in zip(range(count), trees)) / count)


def _label_scores(x: Scores, label: Scores, new: Scores, count: int, *, seed: int) -> Scores:
    labeled = np.isfinite(label)
    if np.unique(label[labeled]).size == 2:
        return trees_mean(fit_trees(x[labeled], label[labeled], seed=seed), new, count)
    return np.full(len(new), label[labeled][0] if labeled.any() else 0.0)


def _residuals(values: Scores) -> Scores:
    """Return martingale residuals [n] of times and events [n, 2] by the Nelson-Aalen estimator, without covariates."""
    time, event = values.T
    curve = kaplan_meier(time, event)
    hazard = np.cumsum(curve.events / curve.at_risk)
    return event - hazard[np.searchsorted(curve.time, time)]
