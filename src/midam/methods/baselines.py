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
from operator import itemgetter
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.statistics import bag_statistics, color_statistics, flat_bags, voxel_counts
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.inner_folds import Positions, inner_folds
from midam.methods.method import Baseline, ModelBaseline, Scores
from midam.methods.statistics_models import (
    cox_scores,
    fill,
    fill_linear,
    fit_trees,
    forest_scorer,
    logistic_scores,
    ridge_scores,
    summary_rows,
    summary_scorer,
    tree_offset,
    tree_scores,
    unscaled,
)
from midam.nn.pooling.maximum import MaxPooling
from midam.nn.pooling.summary import (
    ChannelSummary,
    FeatureSummary,
    Forest,
    FourierSummary,
    Linear,
    PatchSummary,
    SummaryPooling,
    VoxelSummary,
    Widened,
)
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.targets import target_of
from midam.train.members import fit_standardizers, random_instances
from midam.train.side import Trial

_LOGISTIC_C = 10.0 ** np.arange(-4, 3)
_KERNEL_C = 10.0 ** np.arange(-1, 4)
_GAMMAS = 2.0 ** np.arange(-2, 5)
_MAP_GAMMAS = np.array([0.125, 0.5, 1.0, 2.0, 8.0])
_CLIP = 3.0
MOST_BAGS = 2000  # limit of kernel machines, which compare all pairs
_MAX_ITERATIONS = 5000
_LEAST_SPREAD = 1e-6  # of scores; below, they differ by rounding
_MOST_NUMBERS = 2**27  # 1 GiB as float64
_CHUNK_ENTRIES = 4_000_000
_MEDIAN_ROWS = 500


def standardized_tensors(bags: Bags, trial: Trial) -> list[list[torch.Tensor]]:
    """Return `standardized_bags` as float32 tensors."""
    return [[torch.from_numpy(x.astype(np.float32)) for x in part] for part in standardized_bags(bags, trial)]


def standardized_bags(bags: Bags, trial: Trial) -> tuple[list[Scores], list[Scores]]:
    """Return training and scored bags as rows, standardized by the training instances."""
    train, scaler = _standardized(bags, trial.train)
    return train, [scaler.transform(x) for x in flat_bags(bags, trial.score)]


def _standardized(bags: Bags, index: Positions) -> tuple[list[Scores], StandardScaler]:
    """Return bags as standardized rows, and the scaler for other bags."""
    if len(bags.instance_shape) > 1 and bags.num_instances * np.prod(bags.instance_shape) > _MOST_NUMBERS:
        raise ConfigError(
            f"Expected instances that fit into memory as rows, got {bags.num_instances} of shape "
            f"{list(bags.instance_shape)} (in {bags.source}); for images use rgb-logistic, rgb-trees, "
            "patch-statistics-extratrees or voxel-logistic."
        )
    rows = list(flat_bags(bags, index))
    scaler = StandardScaler().fit(np.concatenate(rows))
    return [scaler.transform(x) for x in rows], scaler


class _OfStatistics(ModelBaseline):
    """Base of baselines on `statistics` of bags, which are computed once for all folds."""

    statistics: Callable[[Bags, Positions], Scores] = staticmethod(bag_statistics)
    summary: type[SummaryPooling] = FeatureSummary

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Fit the baseline as a model."""
        return self._fit_rows(bags, self.statistics(bags, np.arange(len(bags))), seed=seed)

    def held_out(self, bags: Bags, trials: Sequence[Trial]) -> Iterator[Scores]:
        """Yield the scores of the bags that each trial holds out, by a model of its training bags."""
        rows = self.statistics(bags, np.arange(len(bags)))
        for trial in trials:
            yield self._scores(bags.subset(trial.train), rows[trial.train], rows[trial.score], seed=trial.seed)

    @abstractmethod
    def _fit_rows(self, bags: Bags, rows: Scores, *, seed: int) -> BagScorer:
        """Return a model fitted to these bags; `rows` [n, D] are their statistics."""

    def _scores(self, bags: Bags, rows: Scores, scored: Scores, *, seed: int) -> Scores:
        """Return the scores of bags with the statistics `scored` [m, D] by the model of `_fit_rows`."""
        head = cast(nn.Module, self._fit_rows(bags, rows, seed=seed).pooling.head)
        return np.asarray(head(torch.from_numpy(scored)))


class BagStatisticsTrees(_OfStatistics):
    """`bag-statistics-extratrees`: 500 extremely randomized trees (Geurts et al. 2006) on `statistics`, untuned."""

    serves = frozenset({"binary", "classes", "labels", "order", "survival"})

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the trees."""
        rows, scored = (self.statistics(bags, part) for part in (trial.train, trial.score))
        return self._scores(bags.subset(trial.train), rows, scored, seed=trial.seed)

    def _fit_rows(self, bags: Bags, rows: Scores, *, seed: int) -> BagScorer:
        offset = tree_offset(rows)
        trees = fit_trees(rows if offset is None else rows - offset, bags.require_labels(), bags.weights, seed=seed)
        return forest_scorer(self.summary, bags.instance_shape, list(trees), offset)

    def _scores(self, bags: Bags, rows: Scores, scored: Scores, *, seed: int) -> Scores:
        return tree_scores(target_of(bags), rows, target_of(bags).values(bags), scored, bags.weights, seed=seed)

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

    serves = frozenset({"binary", "classes", "labels"})

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of logistic regression."""
        if target_of(bags).pairs != "binary":
            return logistic_scores(self.statistics, bags, trial, _LOGISTIC_C)
        fitted = self._fitted(bags, trial.train, self.statistics(bags, trial.train), seed=trial.seed)
        return np.asarray(fitted.decision_function(self.statistics(bags, trial.score)))

    def _fit_rows(self, bags: Bags, rows: Scores, *, seed: int) -> BagScorer:
        fitted = self._fitted(bags, np.arange(len(bags)), rows, seed=seed)
        model = summary_scorer(self.summary, bags.instance_shape, Linear)
        fill_linear(model.pooling.head, *unscaled(fitted["logisticregression"], fitted["standardscaler"]))
        return model

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:  # noqa: ARG002
        """Return a model to be filled."""
        return summary_scorer(self.summary, instance_shape, Linear)

    def _fitted(self, bags: Bags, train: Positions, x: Scores, *, seed: int) -> Any:
        y, weights = bags.require_labels()[train], None if bags.weights is None else bags.weights[train]
        models = [LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS) for strength in _LOGISTIC_C]
        regression, _, spread = _best(models, folds := inner_folds(bags, train, seed=seed), x, y, weights)
        fitted = make_pipeline(StandardScaler(), regression).fit(x, y, logisticregression__sample_weight=weights)
        if folds:
            regression.coef_, regression.intercept_ = regression.coef_ / spread, np.zeros(1)
        return fitted


class BagStatisticsRidge(Baseline):
    """`bag-statistics-ridge`: ridge regression of grade or number on bag statistics; inner folds choose the penalty."""

    serves = frozenset({"order"})

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return predicted grades or numbers."""
        return ridge_scores(bag_statistics, bags, trial)


class BagStatisticsCox(Baseline):
    """`bag-statistics-cox`: Cox regression on bag statistics; inner folds choose the ridge penalty."""

    serves = frozenset({"survival"})

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return log hazards."""
        return cox_scores(bag_statistics, bags, trial)


class ColorLogistic(BagStatisticsLogistic):
    """`rgb-logistic`: logistic regression on color statistics."""

    statistics = staticmethod(color_statistics)
    summary, pixels = ChannelSummary, True


class ColorTrees(BagStatisticsTrees):
    """`rgb-trees`: extremely randomized trees on color statistics."""

    statistics = staticmethod(color_statistics)
    summary, pixels = ChannelSummary, True


class PatchStatisticsTrees(BagStatisticsTrees):
    """`patch-statistics-extratrees`: extremely randomized trees on statistics of patches."""

    statistics = staticmethod(partial(summary_rows, PatchSummary))
    summary, pixels = PatchSummary, True


class VoxelLogistic(BagStatisticsLogistic):
    """`voxel-logistic`: logistic regression on voxel counts."""

    statistics = staticmethod(voxel_counts)
    summary, pixels = VoxelSummary, True


class SetKernelSVM(Baseline):
    """`mi-kernel-svm`: a support vector machine on `set_kernels`; inner folds choose C and gamma."""

    lacks = "to score a bag, it compares its instances with those of all training bags, which it keeps"

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the machine."""
        train, score = standardized_bags(bags, trial)
        y = bags.require_labels()[trial.train]
        folds, rows = inner_folds(bags, trial.train, seed=trial.seed), len(y)
        gamma, tried = median_gamma(np.concatenate(train), seed=trial.seed), _GAMMAS if folds else np.median(_GAMMAS)
        kernels = set_kernels([*train, *score], train, gammas=gamma * tried)
        searches = [(*_best(_kernel_machines(), folds, each[:rows], y), each) for each in kernels]
        machine, *_, kernel = max(searches, key=itemgetter(1))
        return np.asarray(machine.fit(kernel[:rows], y).decision_function(kernel[rows:]))


class MeanMapSVM(ModelBaseline):
    """`mean-map-svm`: a support vector machine on the `FourierSummary`.

    Inner folds choose C, and gamma as a multiple of 1 / median squared distance.
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
        searches = [
            (*_best(_kernel_machines(), folds, rows @ rows.T, y, bags.weights), rows, scale)
            for rows, scale in zip(np.split(predict(model, bags), len(scales), axis=1), scales)
        ]
        machine, _, spread, rows, scale = max(searches, key=itemgetter(1))
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


def _kernel_machines() -> list[SVC]:
    """Return support vector machines of all strengths, on a kernel."""
    return [SVC(kernel="precomputed", C=strength) for strength in _KERNEL_C]


def _mean_map(
    instance_shape: tuple[int, ...], make_head: Callable[[int], nn.Module], *, scales: int = 1
) -> tuple[BagScorer, FourierSummary]:
    """Return an unfitted scorer by a head on the mean map of standardized instances, and its pooling."""
    encoder, size = FourierSummary.reading(instance_shape)
    pooling = FourierSummary(size, make_head, scales)
    standardizer = Standardizer(instance_shape, clip=_CLIP, scaling="auto")
    return BagScorer(encoder, pooling, standardizer=standardizer), pooling


class InstanceLogisticMax(ModelBaseline):
    """`instance-logistic-max`: logistic regression on instances with C = 1; a bag has the maximum score."""

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the largest instance score of each bag."""
        train, score = standardized_bags(bags, trial)
        labels = np.repeat(bags.require_labels()[trial.train], bags.sizes[trial.train])
        model = LogisticRegression(max_iter=_MAX_ITERATIONS).fit(np.concatenate(train), labels)
        return np.array([model.decision_function(x).max() for x in score])

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:  # noqa: ARG002
        """Fit the regression as a model: the maximum of instance scores."""
        rows, scaler = _standardized(bags, np.arange(len(bags)))
        labels, weights = np.repeat(bags.require_labels(), bags.sizes), None
        if bags.weights is not None:
            weights = np.repeat(bags.weights, bags.sizes)
        fitted = LogisticRegression(max_iter=_MAX_ITERATIONS).fit(np.concatenate(rows), labels, weights)
        model = self.empty(bags.instance_shape, {})
        fill_linear(cast(MaxPooling, model.pooling).scorer, *unscaled(fitted, scaler))
        return model

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:  # noqa: ARG002
        """Return a model to be filled."""
        return BagScorer(Widened(), MaxPooling(math.prod(instance_shape), squash=False).double())


def _best(
    models: Sequence[Any], folds: Sequence[Positions], x: Scores, y: NDArray[np.int64], weights: Scores | None = None
) -> tuple[Any, float, float]:
    """Return the first model of the best mean AUROC over inner folds, this AUROC, and the spread of its scores.

    The model is to be fitted to all bags; without folds, it has C = 1, and the spread is 1. The spread is the standard
    deviation of the scores of the bags that a fold holds out: those of bags that a model has seen are too far apart.

    `x` is the kernel [N, N] of support vector machines, or rows [N, D], which each fold standardizes.
    """
    if not folds:
        return next(model for model in models if model.C == 1), 0.0, 1.0
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


def set_kernels(left: Sequence[Scores], right: Sequence[Scores], *, gammas: ArrayLike) -> Scores:
    """Return the kernel [G, len(left), len(right)] of each bag in `left` with each in `right`, for G gammas.

    The normalized set kernel (Gartner, Flach, Kowalczyk and Smola 2002, Multi-instance kernels, ICML):
    `k(X, Z) = sum_x sum_z exp(-gamma |x - z|^2)`, over `sqrt(k(X, X) k(Z, Z))`.
    """
    widths = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    columns = np.concatenate(right)
    starts = np.cumsum([0, *(len(bag) for bag in right[:-1])])
    kernel = np.zeros((len(widths), len(left), len(right)))
    for i, bag in enumerate(left):
        for distances in _distances(bag, columns):
            for g, gamma in enumerate(widths):
                kernel[g, i] += np.add.reduceat(np.exp(-gamma * distances).sum(axis=0), starts)
    self_kernels = [np.zeros((len(widths), len(bags))) for bags in (left, right)]
    for sums, bags in zip(self_kernels, (left, right)):
        for i, bag in enumerate(bags):
            for distances in _distances(bag, bag):
                sums[:, i] += [float(np.exp(-gamma * distances).sum()) for gamma in widths]
    return np.asarray(kernel / np.sqrt(self_kernels[0][:, :, None] * self_kernels[1][:, None, :]))


def _distances(bag: Scores, columns: Scores) -> Iterator[Scores]:
    """Yield squared distances of chunks of the rows of a bag to the columns."""
    step = max(1, _CHUNK_ENTRIES // len(columns))
    for low in range(0, len(bag), step):
        yield cdist(bag[low : low + step], columns, "sqeuclidean")
