"""Baselines on instances, which compare each with all others or take the label of their bag, for Table 2's folds."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from midam.data.bags import Bags
from midam.methods.baselines import best_model, kernel_machines, median_gamma
from midam.methods.inner_folds import inner_folds
from midam.methods.method import Baseline, Scores
from midam.registry import BASELINES
from midam.train.side import Trial

_GAMMAS = 2.0 ** np.arange(-2, 5)
_MAX_ITERATIONS = 5000
_CHUNK_ENTRIES = 4_000_000


def standardized_tensors(bags: Bags, trial: Trial) -> list[list[torch.Tensor]]:
    """Return `standardized_bags` as float32 tensors."""
    return [[torch.from_numpy(x.astype(np.float32)) for x in part] for part in standardized_bags(bags, trial)]


def standardized_bags(bags: Bags, trial: Trial) -> tuple[list[Scores], list[Scores]]:
    """Return training and scored bags as rows, standardized by the training instances."""
    rows = _flat_bags(bags, trial.train)
    scaler = StandardScaler().fit(np.concatenate(rows))
    return [scaler.transform(x) for x in rows], [scaler.transform(x) for x in _flat_bags(bags, trial.score)]


def _flat_bags(bags: Bags, index: NDArray[np.int64]) -> list[Scores]:
    """Return the instances of each bag as float64 rows [n_i, D]."""
    return [np.asarray(bags[i], dtype=np.float64).reshape(int(bags.sizes[i]), -1) for i in index]


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
        searches = [(*best_model(kernel_machines(), folds, each[:rows], y), each) for each in kernels]
        machine, *_, kernel = max(searches, key=itemgetter(1))
        return np.asarray(machine.fit(kernel[:rows], y).decision_function(kernel[rows:]))


class InstanceLogisticMax(Baseline):
    """`instance-logistic-max`: logistic regression on instances with C = 1; a bag has the maximum score."""

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the largest instance score of each bag."""
        train, score = standardized_bags(bags, trial)
        labels = np.repeat(bags.require_labels()[trial.train], bags.sizes[trial.train])
        model = LogisticRegression(max_iter=_MAX_ITERATIONS).fit(np.concatenate(train), labels)
        return np.array([model.decision_function(x).max() for x in score])


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


NAMES = ("mi-kernel-svm", "instance-logistic-max")
for _name, _method in zip(NAMES, (SetKernelSVM, InstanceLogisticMax)):
    BASELINES.add(_name, _method)
