"""The numbers of trials that hold scores of bags, whose labels the data hold: MIDAM, trees, `auto`, volumes."""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, logit
from sklearn.model_selection import StratifiedKFold
from tests.outside.published_trials import Values, auroc, data_root, t_interval, trials, where


@cache
def _labels(name: str) -> NDArray[np.int64]:
    """Labels of a set of vectors in the order of the trials: bags sorted by the hash of their label and instances."""
    with np.load(data_root() / "tabular" / f"{name}.npz", allow_pickle=False) as archive:
        x, bag, y = archive["X"], archive["bag"], archive["y"]
    rounded = np.round(x.astype(np.float32).astype(np.float64), 5) + 0.0
    keys = []
    for number, label in enumerate(y.tolist()):
        rows = rounded[bag == number].astype("<f4")
        rows = rows[np.lexsort(rows.T[::-1])]
        keys.append(hashlib.sha256(bytes([label]) + rows.tobytes()).digest())
    return y[sorted(range(len(y)), key=keys.__getitem__)]


def _folds(name: str, method: str, labels: NDArray[np.int64]) -> Values:
    """AUROC in each of the folds of the first repeat, of the mean of a method's scorers, trained to the last epoch."""
    rows = where(trials("defaults"), set=name, method=method, repeat=0)
    rows = rows[[value is True for value in rows["nested"]]]
    (parts,) = rows["scores"]
    folds = StratifiedKFold(5 if len(labels) > 1000 else 10, shuffle=True, random_state=0)
    tests = [test for _, test in folds.split(labels, labels)]
    return np.array([auroc(labels[t], np.mean(own[-1], axis=0)) for t, own in zip(tests, parts, strict=True)])


_MIDAM, _TREES = "midam", "bag-statistics-extratrees"
_REAL = ("musk1", "musk2", "elephant", "fox", "tiger", "mutagenesis1", "newsgroups1", "physionet2012_icu")


def alone_and_trees() -> list[str]:
    """Mean AUROC over nine sets of MIDAM alone and of extra trees."""
    labels = {name: _labels(name) for name in (*_REAL, "colon_nuclei")}
    return [
        f"{np.mean([_folds(name, method, own).mean() for name, own in labels.items()]):.3f}"
        for method in (_MIDAM, _TREES)
    ]


def one_instance_decides() -> list[str]:
    """AUROC of MIDAM and extra trees on the made-up bags whose labels take turns."""
    return [f"{_folds('sparse', method, np.arange(120) % 2).mean():.3f}" for method in (_MIDAM, _TREES)]


# `auto`: the methods that it tries, weighed on inner folds, with the weights that they have on other kinds of bags.
_KINDS = (
    ("musk1", "musk2"),
    ("elephant", "fox", "tiger"),
    ("mutagenesis1",),
    ("newsgroups1",),
    ("physionet2012_icu",),
    ("colon_nuclei",),
    ("witness", "shift", "pair", "sparse"),
)
_TRIED = (_MIDAM, _TREES, "bag-statistics-logistic", "mean-map-svm")


class Fold(NamedTuple):
    """Labels of the inner folds' bags and of the test bags, and the logits [scorers, bags] that methods gave them."""

    inner: list[NDArray[np.int64]]
    test: NDArray[np.int64]
    held: dict[str, list[Values]]
    scored: dict[str, Values]


@cache
def _tried(name: str) -> list[Fold]:
    """Return the outer folds of a set with what `auto` sees of each."""
    labels = np.arange(120) % 2 if name in _KINDS[-1] else _labels(name)
    rows = where(trials("defaults"), set=name, repeat=0)
    nested = {_MIDAM: "epochs"}
    scores = {}
    for method in _TRIED:
        own = where(rows, method=method)
        own = own[[value == nested.get(method, True) and value is not False for value in own["nested"]]]
        if len(own):
            (scores[method],) = own["scores"]
    found, outer = [], StratifiedKFold(5 if len(labels) > 1000 else 10, shuffle=True, random_state=0)
    for number, (train, test) in enumerate(outer.split(labels, labels)):
        y = labels[train]
        parts = [y[part] for _, part in StratifiedKFold(5, shuffle=True, random_state=0).split(y, y)]
        parts = parts[: 3 if len(train) > 500 else None]
        logits = {
            method: [logit(1e-6 + (1 - 2e-6) * np.array(part)) for part in own[number]]
            for method, own in scores.items()
        }
        held = {method: own[: len(parts)] for method, own in logits.items()}
        found.append(Fold(parts, labels[test], held, {method: own[-1] for method, own in logits.items()}))
    return found


def _line(x: Values, y: NDArray[np.int64]) -> tuple[float, float] | None:
    """Fit Platt's slope and intercept; None where the slope is not above 0."""
    positives, negatives = int(y.sum()), int((1 - y).sum())
    targets = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    center, scale = x.mean(), x.std()
    design, line = np.stack([(x - center) / scale, np.ones_like(x)], axis=1), np.zeros(2)

    def loss(at: Values) -> float:
        return float(np.sum(np.logaddexp(0, design @ at) - targets * (design @ at)))

    for _ in range(100):  # Newton's method, with steps halved until they descend
        p = expit(design @ line)
        step = np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]), design.T @ (p - targets))
        while loss(line - step) > loss(line) + 1e-12:
            step = step / 2
        line = line - step
        if np.abs(step).max() < 1e-12:
            break
    return (line[0] / scale, line[1] - line[0] * center / scale) if line[0] > 1e-8 else None


def _same_auroc(y: NDArray[np.int64], one: Values, other: Values) -> float:
    """Return the p-value of DeLong's test that two scores have the same AUROC."""
    wins = [(s[y == 1][:, None] > s[y == 0]) + (s[y == 1][:, None] == s[y == 0]) / 2 for s in (one, other)]
    gap = wins[0] - wins[1]
    if max(np.abs(gap.mean(axis=1)).max(), np.abs(gap.mean(axis=0)).max()) < 1e-12:
        return 1.0
    variance = gap.mean(axis=1).var(ddof=1) / gap.shape[0] + gap.mean(axis=0).var(ddof=1) / gap.shape[1]
    return float(2 * stats.norm.sf(np.abs(gap.mean()) / np.sqrt(variance)))


def _mixed(fold: Fold, prior: Mapping[str, float]) -> tuple[dict[str, float], Values]:
    """Return the weight of each method, and the scores of the test bags by their mixture."""
    y, lines, areas, held = np.concatenate(fold.inner), {}, {}, {}
    for method, parts in fold.held.items():
        x = np.concatenate(parts, axis=1)
        areas[method] = np.mean([auroc(own, part.mean(axis=0)) for own, part in zip(fold.inner, parts)])
        line = _line(x.ravel(), np.tile(y, len(x)))
        if line is not None:
            lines[method], held[method] = line, expit(line[0] * x + line[1]).mean(axis=0)
    best = max(lines, key=areas.__getitem__)
    weights = {method: prior[method] * _same_auroc(y, held[best], own) for method, own in held.items()}
    weights = {method: own if own >= 0.03 * sum(weights.values()) else 0.0 for method, own in weights.items()}
    whole = sum(weights.values())
    tested = {method: expit(lines[method][0] * fold.scored[method] + lines[method][1]).mean(axis=0) for method in lines}
    scores = np.sum([weights[method] / whole * tested[method] for method in lines], axis=0)
    return {method: weights.get(method, 0.0) / whole for method in fold.held}, scores


@cache
def _usual_weights(name: str) -> dict[str, float]:
    """Return the mean weight of each method over the folds of a set, all being equal before."""
    found = pd.DataFrame([_mixed(fold, dict.fromkeys(_TRIED, 1.0))[0] for fold in _tried(name)])
    return {str(method): float(own) for method, own in found.mean().items()}


@cache
def _auto() -> dict[str, Values]:
    """AUROC of `auto` in each fold of the real sets."""
    found = {}
    for kind in _KINDS[:-1]:
        others = [pd.DataFrame([_usual_weights(name) for name in other]).mean() for other in _KINDS if other != kind]
        prior = pd.DataFrame(others).mean()
        for name in kind:
            found[name] = np.array([auroc(f.test, _mixed(f, prior / prior.sum())[1]) for f in _tried(name)])
    return found


def auto() -> list[str]:
    """Mean AUROC of `auto` over the real sets."""
    return [f"{np.mean([own.mean() for own in _auto().values()]):.3f}"]


def auto_minus_better() -> list[str]:
    """The same, and its difference to the better of MIDAM and trees on each set, whose variances add up."""
    gaps = []
    for name, own in _auto().items():
        better = max((_folds(name, method, _labels(name)) for method in (_MIDAM, _TREES)), key=np.mean)
        gaps.append(own - better)
    halves = [t_interval(gap, overlap=1 / (len(gap) - 1))[2] - gap.mean() for gap in gaps]
    mean, half = float(np.mean([gap.mean() for gap in gaps])), float(np.sqrt(np.sum(np.square(halves)))) / len(gaps)
    return [*auto(), f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"]


def _on_volumes(study: str, name: str, method: str, **values: object) -> float:
    """Mean AUROC over the trainings on a CPU, each tested on the published test volumes."""
    with np.load(data_root() / VOLUMES, allow_pickle=False) as archive:
        labels = archive["test_labels"].reshape(-1).astype(np.int64)
    rows = where(trials(study, "images"), set=name, method=method, device="CPU", **values)
    if rows["settings"].nunique() != 1:
        raise ValueError(f"Expected one settings of {method} on {name}, got {rows['settings'].nunique()}; name them.")
    return float(np.mean([auroc(labels, np.array(scores)) for scores in rows["test_best"]]))


VOLUMES = "volumes/adrenalmnist3d_64.npz"
_SAMPLED = ("midam-att", "dam-mb-att")


def trained_on() -> list[str]:
    """Test AUROC of a network trained on for six epochs, on volumes: MIDAM and mini-batches."""
    return [f"{_on_volumes('fine-tuning', 'adrenal, fine-tuned', own, epochs=6):.3f}" for own in _SAMPLED]


def auto_on_vectors_of_volumes() -> list[str]:
    """Test AUROC of `auto` on vectors of a pretrained network, on volumes."""
    return [f"{_on_volumes('features', 'adrenal-plain', 'auto'):.3f}"]
