"""Baselines: methods that are no settings of this library. Each is trained on the training bags of a trial alone.

Those of feature vectors, from scikit-learn, are what a sceptic asks for: trees and logistic regression on bag
statistics, the set kernel, and instances with the label of their bag. What they choose, they choose by inner
cross-validation of five folds (fewer where a class is rare), stratified and disjoint by group, by the mean AUROC.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from midam.compare.folds import Positions, inner_folds
from midam.compare.setkernel import median_gamma, set_kernels
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.ranking import auroc
from midam.train.lockstep import Trial

Scores = NDArray[np.float64]

_TREES = 500
_LOGISTIC_C = 10.0 ** np.arange(-4, 3)
_KERNEL_C = 10.0 ** np.arange(-1, 4)
_GAMMAS = 2.0 ** np.arange(-2, 5)
_MAX_ITERATIONS = 5000
_MOST_NUMBERS = 2**27  # 1 GiB as float64


class Baseline(ABC):
    """A method of a comparison that trains and scores by itself.

    It is made before anything runs: its constructor raises a `ConfigError` where a package that it needs is missing.
    """

    uses_torch = False
    """Draws from torch's global random state: in threads of one process such methods take turns."""

    @abstractmethod
    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Train on the bags ``trial.train`` with the seed ``trial.seed``, and score the bags ``trial.score``.

        Only the labels of the training bags may be looked at. Returns a float64 score a bag, higher for positive ones.
        """


def bag_statistics(bags: Bags, index: Positions) -> Scores:
    """Mean, minimum, maximum and standard deviation [n, 4 D] of each feature over each bag.

    Examples
    --------
    >>> bag_statistics(Bags.from_list([[[1.0], [3.0]]]), np.array([0]))
    array([[2., 1., 3., 1.]])
    """
    return np.stack([np.concatenate([x.mean(0), x.min(0), x.max(0), x.std(0)]) for x in _flat_bags(bags, index)])


def standardized_tensors(bags: Bags, trial: Trial) -> list[list[torch.Tensor]]:
    """`standardized_bags` as float32 tensors."""
    return [[torch.from_numpy(x.astype(np.float32)) for x in part] for part in standardized_bags(bags, trial)]


def standardized_bags(bags: Bags, trial: Trial) -> tuple[list[Scores], list[Scores]]:
    """Training and scored bags as rows, by mean and deviation of the training instances."""
    if len(bags.instance_shape) > 1 and bags.num_instances * np.prod(bags.instance_shape) > _MOST_NUMBERS:
        raise ConfigError(
            f"Expected instances that fit into memory as rows, got {bags.num_instances} of shape "
            f"{list(bags.instance_shape)} (in {bags.source}); for images name rgb-logistic, rgb-trees or "
            "voxel-logistic."
        )
    train = list(_flat_bags(bags, trial.train))
    scaler = StandardScaler().fit(np.concatenate(train))
    return [scaler.transform(x) for x in train], [scaler.transform(x) for x in _flat_bags(bags, trial.score)]


class BagStatisticsTrees(Baseline):
    """`bag-statistics-extratrees`: 500 extremely randomized trees (Geurts et al. 2006), untuned.

    A subclass may take other statistics of bags.
    """

    statistics = staticmethod(bag_statistics)

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Scores of the trees."""
        forest = ExtraTreesClassifier(_TREES, random_state=trial.seed)
        forest.fit(self.statistics(bags, trial.train), bags.require_labels()[trial.train])
        return np.asarray(forest.predict_proba(self.statistics(bags, trial.score))[:, 1])


class BagStatisticsLogistic(Baseline):
    """`bag-statistics-logistic`; C is chosen. A subclass may take other statistics of bags."""

    statistics = staticmethod(bag_statistics)

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Scores of logistic regression."""
        x, y = self.statistics(bags, trial.train), bags.require_labels()[trial.train]
        folds = inner_folds(bags, trial.train, seed=trial.seed)

        def mean_auroc(c: float) -> float:
            areas = []
            for test in folds:
                inside = np.setdiff1d(np.arange(len(y)), test)
                areas.append(auroc(y[test], _logistic(c).fit(x[inside], y[inside]).decision_function(x[test])))
            return float(np.mean(areas))

        best = max(_LOGISTIC_C, key=mean_auroc) if folds else 1.0
        return np.asarray(_logistic(best).fit(x, y).decision_function(self.statistics(bags, trial.score)))


class SetKernelSVM(Baseline):
    """`mi-kernel-svm`; C and gamma, a multiple of 1 / median squared distance, are chosen."""

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Scores of the machine."""
        train, score = standardized_bags(bags, trial)
        y = bags.require_labels()[trial.train]
        gammas = median_gamma(np.concatenate(train), seed=trial.seed) * _GAMMAS
        kernels = set_kernels([*train, *score], train, gammas=gammas)
        folds = inner_folds(bags, trial.train, seed=trial.seed)
        best, best_area = (kernels[len(_GAMMAS) // 2], 1.0), -1.0
        for kernel in kernels:
            for c in _KERNEL_C if folds else []:
                area = float(np.mean([_kernel_auroc(kernel[: len(y)], y, test, c) for test in folds]))
                if area > best_area:
                    best, best_area = (kernel, float(c)), area
        kernel, c = best
        machine = SVC(C=c, kernel="precomputed").fit(kernel[: len(y)], y)
        return np.asarray(machine.decision_function(kernel[len(y) :]))


class InstanceLogisticMax(Baseline):
    """`instance-logistic-max`: logistic regression on instances, C = 1; a bag's score is its largest."""

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Largest score of an instance of each bag."""
        train, score = standardized_bags(bags, trial)
        labels = np.repeat(bags.require_labels()[trial.train], bags.sizes[trial.train])
        model = LogisticRegression(max_iter=_MAX_ITERATIONS).fit(np.concatenate(train), labels)
        return np.array([model.decision_function(x).max() for x in score])


def _flat_bags(bags: Bags, index: Positions) -> Iterator[Scores]:
    """Instances of each bag as float64 rows [n_i, D], a bag at a time."""
    for i in index:
        yield np.asarray(bags[i], dtype=np.float64).reshape(int(bags.sizes[i]), -1)


def _logistic(c: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=float(c), max_iter=_MAX_ITERATIONS))


def _kernel_auroc(kernel: Scores, y: NDArray[np.int64], test: Positions, c: float) -> float:
    inside = np.setdiff1d(np.arange(len(y)), test)
    machine = SVC(C=float(c), kernel="precomputed").fit(kernel[np.ix_(inside, inside)], y[inside])
    return auroc(y[test], machine.decision_function(kernel[np.ix_(test, inside)]))
