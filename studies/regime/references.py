"""Scorers of bags of digits beside the study of remembering: trained on each label, by novelty alone, and mi-SVM.

Each scores instances. A bag has the highest score of its instances, the mean of its highest twentieth, or the mean of
all, whichever ranks the training bags best.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from midam.evaluate.ranking import auroc
from studies.regime.tracked_sets import Split

_ROWS = 20_000  # training instances that a scorer sees, drawn from all
_FEATURES = 300  # of the kernel map
_ROUNDS = 10  # of mi-SVM
_HIGHEST = 0.05  # share of a bag

Score = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Training instances [M, F], the bag and the bag's label of each, and which are witnesses."""

    x: NDArray[np.float64]
    bag: NDArray[np.int64]
    label: NDArray[np.int64]
    witness: NDArray[np.bool_]


Fit = Callable[[Rows], Score]


def reference_aurocs(split: Split, seed: int) -> dict[str, float]:
    """Return the test AUROC of each reference on a split whose witnesses are known."""
    assert split.witness is not None, "bags of digits"
    bags, labels = split.bags, split.bags.require_labels()
    size = int(bags.sizes[0])
    rows = np.sort(np.random.default_rng(seed).permutation(len(split.train) * size)[:_ROWS])
    x, bag = np.asarray(bags.instances[rows], dtype=np.float64), rows // size
    given, found = Rows(x, bag, labels[bag], split.witness[rows]), {}
    for name, fit in REFERENCES.items():
        score = fit(given)
        instances = [score(np.asarray(bags[i], dtype=np.float64)) for i in np.append(split.train, split.score)]
        pooled = np.sort(np.stack(instances), axis=1)[:, ::-1]
        cut = len(split.train)
        ways = [pooled[:, : max(1, round(share * size))].mean(axis=1) for share in (0.0, _HIGHEST, 1.0)]
        best = max(ways, key=lambda way: auroc(labels[split.train], way[:cut]))
        found[name] = auroc(labels[split.score], best[cut:])
    return found


def _labeled_network(rows: Rows) -> Score:
    """Return the network of the study, trained on which instances are nines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network = MLPClassifier((64,), activation="tanh", max_iter=30, random_state=0).fit(rows.x, rows.witness)
    return lambda x: np.asarray(network.predict_proba(x)[:, 1])


def _labeled_kernel(rows: Rows) -> Score:
    machine = _machine().fit(rows.x, rows.witness)
    return lambda x: np.asarray(machine.decision_function(x))


def _novelty(rows: Rows) -> Score:
    """Return the distance to the nearest instance of a negative training bag, but itself."""
    known = NearestNeighbors(n_neighbors=2).fit(rows.x[rows.label == 0])

    def score(x: NDArray[np.float64]) -> NDArray[np.float64]:
        near = known.kneighbors(x)[0]
        return np.asarray(np.where(near[:, 0] > 0, near[:, 0], near[:, 1]))

    return score


def _mi_svm(rows: Rows) -> Score:
    """Return mi-SVM (Andrews et al. 2002): each positive bag keeps one positive instance at least."""
    machine, marked = _machine(), rows.label.astype(bool)
    for _ in range(_ROUNDS):
        score = machine.fit(rows.x, marked).decision_function(rows.x)
        new = (score > 0) & (rows.label == 1)
        for number in np.unique(rows.bag[rows.label == 1]):
            own = np.flatnonzero(rows.bag == number)
            if not new[own].any():
                new[own[np.argmax(score[own])]] = True
        if (new == marked).all():
            break
        marked = new
    return lambda x: np.asarray(machine.decision_function(x))


def _machine() -> Pipeline:
    return make_pipeline(Nystroem(gamma=1 / 64, n_components=_FEATURES, random_state=0), LinearSVC())


REFERENCES: Mapping[str, Fit] = {
    "each instance's label, the study's network": _labeled_network,
    "each instance's label, RBF-SVM": _labeled_kernel,
    "novelty": _novelty,
    "mi-SVM": _mi_svm,
}
