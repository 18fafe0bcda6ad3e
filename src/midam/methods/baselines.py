"""Baselines: methods that are not settings of this library, for feature vectors from scikit-learn.

They choose hyperparameters by the mean AUROC of an inner cross-validation with five folds (fewer if a class is rare),
stratified and disjoint by group; ties go to the first candidate. The scores of a linear model so chosen are divided by
their spread in the bags that these folds hold out, and have the mean 0 in training: their scale does not depend on the
choice.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.statistics import bag_statistics
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.inner_folds import Positions, inner_folds
from midam.methods.method import Baseline, ModelBaseline, Scores
from midam.methods.statistics_models import fit_trees, forest_head, tree_offset, tree_scores
from midam.nn.pooling.summary import (
    ChannelSummary,
    FeatureSummary,
    Forest,
    FourierSummary,
    Linear,
    PatchSummary,
    SummaryPooling,
)
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.targets import target_of
from midam.targets.survival import choose_cox
from midam.train.members import distinct_sorted, fit_standardizers, random_instances
from midam.train.side import Trial

_LOGISTIC_C = 10.0 ** np.arange(-4, 3)
_KERNEL_C, _MIDDLE_C = 10.0 ** np.arange(-1, 4), 10.0
_MAP_GAMMAS = np.array([0.125, 0.5, 1.0, 2.0, 8.0])
_CLIP = 3.0
MOST_BAGS = 2000  # limit of kernel machines, which compare all pairs
_MAX_ITERATIONS = 5000
_LEAST_SPREAD = 1e-6  # of scores; below, they differ by rounding
_MEDIAN_ROWS = 500
_MAP_INSTANCES, _MAP_BAGS = 512, 64  # instances of a bag that its mean map is computed from, of bags at a time


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


class _OfStatistics(ModelBaseline):
    """Base of baselines on `statistics` of bags, which are computed once for all folds."""

    statistics: Callable[[Bags, Positions], Scores] = staticmethod(bag_statistics)
    summary: type[SummaryPooling] = FeatureSummary

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the bags that the trial holds out."""
        return next(self.held_out(bags, [trial], few=False))

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Fit the head to the statistics of all these bags."""
        head = self._head(bags, self.statistics(bags, np.arange(len(bags))), seed=seed)
        return summary_scorer(self.summary, bags.instance_shape, lambda _: head)

    def held_out(self, bags: Bags, trials: Sequence[Trial], *, few: bool = True) -> Iterator[Scores]:
        """Yield the scores of the bags that each trial holds out, by a model of its training bags, or of 200 trees."""
        rows = self.statistics(bags, np.arange(len(bags)))
        for trial in trials:
            yield self._scores(bags.subset(trial.train), rows[trial.train], rows[trial.score], few, seed=trial.seed)

    @abstractmethod
    def _head(self, bags: Bags, rows: Scores, *, seed: int) -> nn.Module:
        """Return a head fitted to these bags; `rows` [n, W] are their statistics."""

    def _scores(self, bags: Bags, rows: Scores, new: Scores, few: bool, *, seed: int) -> Scores:  # noqa: ARG002
        """Return the scores of bags with the statistics `new` [m, W], by the head of bags with these `rows`."""
        return np.asarray(self._head(bags, rows, seed=seed)(torch.from_numpy(new)))


class BagStatisticsTrees(_OfStatistics):
    """`bag-statistics-extratrees`: 500 extremely randomized trees (Geurts et al. 2006) on `statistics`, untuned."""

    serves = frozenset({"binary", "classes", "labels", "order", "survival"})

    def _head(self, bags: Bags, rows: Scores, *, seed: int) -> nn.Module:
        offset = tree_offset(rows)
        trees = fit_trees(rows if offset is None else rows - offset, bags.require_labels(), bags.weights, seed=seed)
        return forest_head(rows.shape[1], list(trees), offset)

    def _scores(self, bags: Bags, rows: Scores, new: Scores, few: bool, *, seed: int) -> Scores:
        return tree_scores(target_of(bags), rows, target_of(bags).values(bags), new, bags.weights, seed=seed, few=few)

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:
        """Return a model with these weights; refuse those that are no trees."""
        parts = {name.rpartition(".")[2]: value for name, value in weights.items()}
        head = partial(Forest, trees=parts["roots"].numel(), nodes=parts["feature"].numel(), shifted="offset" in parts)
        model = summary_scorer(self.summary, instance_shape, head)
        model.load_state_dict(dict(weights))
        cast(Forest, model.pooling.head).check()
        return model


class BagStatisticsLogistic(_OfStatistics):
    """`bag-statistics-logistic`: logistic regression on `statistics`; C is chosen by inner folds."""

    def _head(self, bags: Bags, rows: Scores, *, seed: int) -> nn.Module:
        y, folds = bags.require_labels(), inner_folds(bags, np.arange(len(bags)), seed=seed)
        models = [LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS) for strength in _LOGISTIC_C]
        model, _, spread = best_model(models, folds, rows, y, bags.weights)
        scaler = StandardScaler().fit(rows)
        model.fit(scaler.transform(rows), y, bags.weights)
        weight = model.coef_[0] / spread / scaler.scale_  # for rows that are not standardized
        head, intercept = Linear(rows.shape[1]), np.zeros(1) if folds else model.intercept_
        fill_linear(head, weight, intercept - weight @ scaler.mean_)
        return head

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:  # noqa: ARG002
        """Return a model to be filled."""
        return summary_scorer(self.summary, instance_shape, Linear)


class BagStatisticsCox(Baseline):
    """`bag-statistics-cox`: Cox regression on bag statistics; inner folds choose the ridge penalty."""

    serves = frozenset({"survival"})

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return log hazards, see `choose_cox`."""
        train = bags.subset(trial.train)
        time, event = target_of(train).values(train).T
        model = choose_cox(bag_statistics(bags, trial.train), time, event, groups=train.groups, seed=trial.seed)
        return model.predict(bag_statistics(bags, trial.score))


class ColorLogistic(BagStatisticsLogistic):
    """`rgb-logistic`: logistic regression on the mean and deviation of each channel over all pixels."""

    statistics = staticmethod(partial(summary_rows, ChannelSummary))
    summary, pixels = ChannelSummary, True


class ColorTrees(BagStatisticsTrees):
    """`rgb-trees`: extremely randomized trees on the mean and deviation of each channel over all pixels."""

    statistics = staticmethod(partial(summary_rows, ChannelSummary))
    summary, pixels = ChannelSummary, True


class PatchStatisticsTrees(BagStatisticsTrees):
    """`patch-statistics-extratrees`: extremely randomized trees on statistics of patches."""

    statistics = staticmethod(partial(summary_rows, PatchSummary))
    summary, pixels = PatchSummary, True


class MeanMapSVM(ModelBaseline):
    """`mean-map-svm`: a support vector machine on the `FourierSummary`.

    Inner folds choose gamma, a multiple of 1 / median squared distance, with C = 10, and then C. It is fitted to 512
    random instances of larger bags, whose mean cosines have an error of about 0.03, and scores a bag by all of its
    instances.
    """

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Fit the machine as a linear model, whose weights sum up the support vectors."""
        if len(bags) > MOST_BAGS:
            raise ConfigError(
                f"Expected at most {MOST_BAGS} training bags for mean-map-svm, got {len(bags)} (in {bags.source}); "
                "name another method, such as bag-statistics-extratrees."
            )
        y, folds = bags.require_labels(), inner_folds(bags, np.arange(len(bags)), seed=seed)
        gammas = _MAP_GAMMAS if folds else np.ones(1)
        model, pooling = _mean_map(bags.instance_shape, nn.Identity, scales=len(gammas))
        fit_standardizers([model.standardizer], bags, seed=seed)
        random = np.random.default_rng(seed)
        some = random_instances(bags, _MEDIAN_ROWS, random)
        scales = np.sqrt(2 * gammas * median_gamma(model.encoder(model.standardized(some)).numpy(), seed=seed))
        fill(pooling.scales, scales)
        fill(pooling.directions, random.standard_normal(tuple(pooling.directions.shape)))
        fill(pooling.phases, random.uniform(0, 2 * np.pi, len(pooling.phases)))
        of_scales = np.split(_of_some(model, bags, random), len(scales), axis=1)
        areas = [best_model(kernel_machines(_MIDDLE_C), folds, rows @ rows.T, y, bags.weights)[1] for rows in of_scales]
        at = int(np.argmax(areas))
        rows, scale = of_scales[at], scales[at]
        machine, _, spread = best_model(kernel_machines(), folds, rows @ rows.T, y, bags.weights)
        machine.fit(rows @ rows.T, y, bags.weights)
        filled, filled_pooling = _mean_map(bags.instance_shape, Linear)
        filled.load_state_dict({key: x for key, x in model.state_dict().items() if "scales" not in key}, strict=False)
        fill(filled_pooling.scales, np.array([scale]))
        center, weight = rows.mean(axis=0, keepdims=True), machine.dual_coef_[0] @ rows[machine.support_] / spread
        fill_linear(filled_pooling.head, weight, -center @ weight if folds else machine.intercept_)
        return filled

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:  # noqa: ARG002
        """Return a model to be filled."""
        return _mean_map(instance_shape, Linear)[0]


def _of_some(model: BagScorer, bags: Bags, random: np.random.Generator) -> Scores:
    """Return the output of a model for each bag, from at most 512 of its instances, drawn without replacement."""
    if int(bags.sizes.max()) <= _MAP_INSTANCES:
        return predict(model, bags)
    places = [distinct_sorted(size, min(size, _MAP_INSTANCES), random) for size in bags.sizes.tolist()]
    drawn = list(map(np.add, bags.starts, places))
    groups = (drawn[low : low + _MAP_BAGS] for low in range(0, len(drawn), _MAP_BAGS))
    return np.concatenate([predict(model, Bags.from_list([*map(bags.gather, group)])) for group in groups])


def kernel_machines(*strengths: float) -> list[SVC]:
    """Return support vector machines of these strengths, or of all, on a kernel."""
    return [SVC(kernel="precomputed", C=strength) for strength in strengths or _KERNEL_C]


def _mean_map(
    instance_shape: tuple[int, ...], make_head: Callable[[int], nn.Module], *, scales: int = 1
) -> tuple[BagScorer, FourierSummary]:
    """Return an unfitted scorer by a head on the mean map of standardized instances, and its pooling."""
    encoder, size = FourierSummary.reading(instance_shape)
    pooling = FourierSummary(size, make_head, scales)
    standardizer = Standardizer(instance_shape, clip=_CLIP, scaling="auto")
    return BagScorer(encoder, pooling, standardizer=standardizer), pooling


def best_model(
    models: Sequence[Any], folds: Sequence[Positions], x: Scores, y: NDArray[np.int64], weights: Scores | None = None
) -> tuple[Any, float, float]:
    """Return the first model of the best mean AUROC over inner folds, this AUROC, and the spread of its scores.

    The model is to be fitted to all bags; without folds, it has C = 1 if one has, and the spread is 1. The spread is
    the standard deviation of the scores of the bags that a fold holds out: those of bags that a model has seen are too
    far apart.

    `x` is the kernel [N, N] of support vector machines, or rows [N, D], which each fold standardizes.
    """
    if not folds:
        return next((model for model in models if model.C == 1), models[0]), 0.0, 1.0
    of_folds = []
    for test in folds:
        train = np.setdiff1d(np.arange(len(y)), test)
        if isinstance(models[0], SVC):
            rows, held_out = x[np.ix_(train, train)], x[np.ix_(test, train)]
        else:
            scaler = StandardScaler().fit(x[train])
            rows, held_out = scaler.transform(x[train]), scaler.transform(x[test])
        given = None if weights is None else weights[train]
        scores = [model.fit(rows, y[train], given).decision_function(held_out) for model in models]
        of_folds.append([(auroc(y[test], each), each.var(ddof=1)) for each in scores])
    best, (area, variance) = max(zip(models, np.mean(of_folds, axis=0).tolist()), key=lambda each: each[1][0])
    return best, area, max(math.sqrt(variance), _LEAST_SPREAD)


def median_gamma(rows: Scores, *, seed: int) -> float:
    """Return 1 / median squared distance of up to 500 random rows; 1 if the median is zero."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_MEDIAN_ROWS]
    distances = pdist(rows[chosen], "sqeuclidean")
    median = float(np.median(distances)) if len(distances) else 0.0
    return 1 / median if median > 0 else 1.0


def fill_linear(head: Any, weight: Scores, bias: Scores) -> None:
    """Set weight and bias of a linear head."""
    fill(head.weight, weight)
    fill(head.bias, bias)


@torch.no_grad()
def fill(parameter: Tensor, values: Any) -> None:
    """Set a parameter to these values."""
    parameter.copy_(torch.from_numpy(values))
