"""Scorers of instances beside the studies on digits: bounds, novelty alone, mi-SVM, and ways that label instances.

Each scores instances. A bag has the highest score of its instances, the mean of its highest twentieth, or the mean of
all, whichever ranks the training bags best.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from torch import Tensor, nn

from midam.evaluate.ranking import auroc
from studies.regime.tracked_sets import Split

_ROWS = 20_000  # training instances that a scorer sees, drawn from all
_FEATURES = 300  # of the kernel map
_ROUNDS = 10  # of mi-SVM
_CROSS_ROUNDS = 5  # of mi-SVM with cross-fitting
_EPOCHS, _BATCH = 30, 256  # of a network that is not told the labels
_EPOCHS_A_ROUND = 2  # until its labels are set again
_HIGHEST = 0.05  # share of a bag

Score = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Training instances [M, F], the bag and the bag's label of each, and which are witnesses."""

    x: NDArray[np.float64]
    bag: NDArray[np.int64]
    label: NDArray[np.int64]
    witness: NDArray[np.bool_]
    rate: float  # of Adam, of the networks among `LABELERS`


Fit = Callable[[Rows], Score]


def reference_aurocs(
    split: Split, seed: int, *, names: Iterable[str] | None = None, rows: int = _ROWS, rate: float = 0.001
) -> dict[str, float]:
    """Return the test AUROC of each reference on a split whose witnesses are known.

    `rows` is the number of training instances that a scorer sees, `rate` that of the networks of `LABELERS`. Default
    of `names`: all references but `LABELERS`.
    """
    assert split.witness is not None, "bags of digits"
    bags, labels = split.bags, split.bags.require_labels()
    size = int(bags.sizes[0])
    at = np.sort(np.random.default_rng(seed).permutation(len(split.train) * size)[:rows])
    x, bag = np.asarray(bags.instances[at], dtype=np.float64), at // size
    given, found = Rows(x, bag, labels[bag], split.witness[at], rate), {}
    for name in [name for name in REFERENCES if name not in LABELERS] if names is None else names:
        score = REFERENCES[name](given)
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
    kernel = _kernel(rows)
    machine = LinearSVC().fit(kernel.transform(rows.x), rows.witness)
    return lambda x: np.asarray(machine.decision_function(kernel.transform(x)))


def _novelty(rows: Rows) -> Score:
    """Return the distance to the nearest instance of a negative training bag, but itself."""
    known = NearestNeighbors(n_neighbors=2).fit(rows.x[rows.label == 0])

    def score(x: NDArray[np.float64]) -> NDArray[np.float64]:
        near = known.kneighbors(x)[0]
        return np.asarray(np.where(near[:, 0] > 0, near[:, 0], near[:, 1]))

    return score


def _mi_svm(rows: Rows) -> Score:
    """Return mi-SVM (Andrews et al. 2002): each positive bag keeps one positive instance at least."""
    kernel, marked = _kernel(rows), rows.label.astype(bool)
    x = kernel.transform(rows.x)
    for _ in range(_ROUNDS):
        machine = LinearSVC().fit(x, marked)
        score = machine.decision_function(x)
        new = (score > 0) & (rows.label == 1)
        for number in np.unique(rows.bag[rows.label == 1]):
            own = np.flatnonzero(rows.bag == number)
            if not new[own].any():
                new[own[np.argmax(score[own])]] = True
        if (new == marked).all():
            break
        marked = new
    return lambda own: np.asarray(machine.decision_function(kernel.transform(own)))


def _positive_unlabeled(rows: Rows) -> Score:
    """Return the network of the non-negative risk (Kiryo et al. 2017), in which positive bags are not labeled.

    It is told the share of witnesses in a positive bag.
    """
    negative = torch.from_numpy(rows.label == 0)
    share = float(rows.witness[rows.label == 1].mean())

    def loss(z: Tensor, at: Tensor) -> Tensor:
        known = negative[at]
        as_positive, as_negative = nn.functional.softplus(-z), nn.functional.softplus(z)
        positive = as_positive[~known].mean() - (1 - share) * as_positive[known].mean()
        return positive.clamp(min=0) + (1 - share) * as_negative[known].mean()

    return _fit_network(rows, loss, lambda _: None)


def _bag_constraint(rows: Rows) -> Score:
    """Return the network of labels that sum to one in a positive bag: expectation maximization."""
    bag, positive = torch.from_numpy(rows.bag), torch.from_numpy(rows.label == 1)
    count = int(bag.max()) + 1
    target = positive / torch.bincount(bag, minlength=count)[bag]

    def label(z: Tensor) -> None:
        highest = torch.full((count,), -torch.inf).scatter_reduce_(0, bag, z, "amax")
        odds = (z - highest[bag]).exp()
        target.copy_(positive * odds / torch.zeros(count).index_add_(0, bag, odds)[bag])

    def loss(z: Tensor, at: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(z, target[at])

    return _fit_network(rows, loss, label)


def _fit_network(rows: Rows, loss: Callable[[Tensor, Tensor], Tensor], label: Callable[[Tensor], None]) -> Score:
    """Train one tanh layer by the loss of logits and their rows; `label` sees all logits after every other epoch."""
    x = torch.from_numpy(rows.x).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(x.shape[1], 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
        optimizer = torch.optim.Adam(network.parameters(), lr=rows.rate)
        for epoch in range(_EPOCHS):
            for at in torch.split(torch.randperm(len(x)), _BATCH):
                optimizer.zero_grad()
                torch.autograd.backward(loss(network(x[at]), at))
                optimizer.step()
            if epoch % _EPOCHS_A_ROUND == _EPOCHS_A_ROUND - 1:
                with torch.no_grad():
                    label(network(x))

    @torch.no_grad()
    def score(own: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(network(torch.from_numpy(own).float()).double().numpy())

    return score


def _cross_fitted(rows: Rows) -> Score:
    """Return an RBF-SVM of one witness in each positive bag.

    At first that is the most novel instance, then the one that an SVM of the other half of the bags scores highest.
    """
    kernel = _kernel(rows)
    x, half = kernel.transform(rows.x), rows.bag // 2 % 2
    score, marked = _novelty(rows)(rows.x), np.zeros(len(rows.x), dtype=bool)
    for _ in range(_CROSS_ROUNDS):
        new = np.zeros_like(marked)
        for number in np.unique(rows.bag[rows.label == 1]):
            own = np.flatnonzero(rows.bag == number)
            new[own[np.argmax(score[own])]] = True
        if (new == marked).all():
            break
        marked = new
        for part in (0, 1):
            score[half == part] = (
                LinearSVC().fit(x[half != part], marked[half != part]).decision_function(x[half == part])
            )
    machine = LinearSVC().fit(x, marked)
    return lambda own: np.asarray(machine.decision_function(kernel.transform(own)))


def _kernel(rows: Rows) -> Nystroem:
    return Nystroem(gamma=1 / 64, n_components=_FEATURES, random_state=0).fit(rows.x)


BOUNDS = ("each instance's label, the study's network", "each instance's label, RBF-SVM")
NETWORKS = ("positive-unlabelled risk", "labels by bag constraint")
LABELERS: Mapping[str, Fit] = {
    NETWORKS[0]: _positive_unlabeled,
    NETWORKS[1]: _bag_constraint,
    "mi-SVM, cross-fitted from novelty": _cross_fitted,
}
REFERENCES: Mapping[str, Fit] = {
    BOUNDS[0]: _labeled_network,
    BOUNDS[1]: _labeled_kernel,
    "novelty": _novelty,
    "mi-SVM": _mi_svm,
    **LABELERS,
}
