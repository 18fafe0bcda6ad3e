"""The study `icmil`: the fixed splits of three image sets that evaluate ICMIL, a network fitted to synthetic bags.

ICMIL (Möllers et al. 2026, arXiv 2606.06458) labels the bags of a new task in one pass, without training. Its
repository has these splits: one stratified 5-fold cross-validation for each set, with 25 features from a principal
component analysis, and bags that are padded to 13 instances with repeated instances.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from midam.compare.plan import single_threaded
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.methods.auto.method import Auto
from midam.methods.method import Baseline
from midam.methods.store import Row
from midam.registry import BASELINES
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.differences import over_sets, paired
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.peers import installed_peers
from studies.registry import as_study

NAME, FILE = "icmil", "icmil/andrews_mil_benchmark.h5"
SETS = ("elephant", "fox", "tiger")
AUTO, DEFAULT = "auto", "midam"
_PEERS = {"libauc-midam-att": "LibAUC", "torchmil-abmil": "torchmil"}
METHODS = {
    AUTO: "`auto`",
    DEFAULT: "`midam`",
    "bag-statistics-extratrees": "ExtraTrees",
    "bag-statistics-logistic": "logistic",
    **_PEERS,
}
_SEED = 0
_NEAR = -0.01
Splits = Sequence[tuple[Bags, Trial]]


@dataclass(frozen=True, eq=False)
class Fit:
    """A method on one split of a set."""

    data: str
    split: int
    bags: Bags
    trial: Trial
    method: str
    epochs: int | None  # epochs of `midam` instead of its default

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        named = {"set": self.data, "split": self.split, "method": self.method, "seed": self.trial.seed}
        return Group([trial_name(NAME, **named, epochs=self.epochs)], [self])


@as_study("`auto`, `midam` and others on the splits on which ICMIL is judged", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    study(options, read_splits())


def read_splits() -> dict[str, Splits]:
    """Return the bags of each split of each set, with the training bags first, and the trial of the split."""
    path = Path(os.environ.get("MIDAM_DATA", "data")).expanduser() / FILE
    if not path.is_file():
        raise DataNotFoundError(
            f"Expected the splits of ICMIL, got no file {path}; take datasets/andrews_mil_benchmark.h5 from "
            f"github.com/injurise/ICMIL, put it there as {FILE}, and name the folder in MIDAM_DATA."
        )
    with h5py.File(path) as file:
        return {name: [split_of(file[name][f"split_{k}"]) for k in range(len(file[name]))] for name in SETS}


def split_of(group: Mapping[str, NDArray[np.float32]]) -> tuple[Bags, Trial]:
    """Return the bags of a split, and the trial that trains on its first bags and scores the others."""
    parts = [np.asarray(group[f"X_{part}"]) for part in ("train", "test")]
    labels = np.concatenate([np.asarray(group[f"y_{part}"]) for part in ("train", "test")])
    every, count = np.arange(len(labels)), len(parts[0])
    return Bags.from_list(list(np.concatenate(parts)), labels), Trial(every[:count], every[count:], _SEED)


def study(options: StudyOptions, sets: Mapping[str, Splits]) -> None:
    """Run the study on these splits."""
    names = list(METHODS)[:3] if options.smaller else [*list(METHODS)[:4], *installed_peers(tuple(_PEERS))]
    epochs = 2 if options.smaller else None
    if options.quick:
        sets = {data: splits[:2] for data, splits in sets.items()}
    with Store(options.cache, NAME) as store:
        fits = {
            (data, name): [Fit(data, k, *split, name, epochs) for k, split in enumerate(splits)]
            for data, splits in sets.items()
            for name in names
        }
        complete(
            [fit.group() for own in fits.values() for fit in own], train_fit, store=store, options=options, section=NAME
        )
        areas = {key: np.array([_area(store, fit) for fit in own]) for key, own in fits.items()}
        write_page(
            options,
            NAME,
            title="The splits of ICMIL",
            shows="ICMIL is a network that was fitted to synthetic bags and labels the bags of a new task in one pass, "
            "without training (Möllers et al. 2026, [arXiv 2606.06458](https://arxiv.org/abs/2606.06458)). Its authors "
            "ship [the frozen splits](https://github.com/injurise/ICMIL) on which they judge it by the AUROC. Here "
            "are the methods of this library, untuned, and other libraries on these very splits.",
            seeds=f"{_SEED}, of weights and sampling; the splits are those of the file",
            seconds=store.wall_time(),
            store=store,
            body=[*_question(), *_results(areas, list(sets), names), *_published()],
        )


def train_fit(fit: Fit) -> list[Row]:
    """Return the scores of the test bags."""
    with single_threaded():
        if fit.method == AUTO:
            scores = Auto().score(fit.bags, fit.trial)
        elif fit.method == DEFAULT:
            own = {} if fit.epochs is None else {"epochs": fit.epochs}
            scores = train_trials(Settings(**own, accelerator="cpu"), fit.bags, [fit.trial])[0].scores[-1]
        else:
            method: Baseline = BASELINES.find(fit.method)()
            scores = method.score(fit.bags, fit.trial)
    return [{"scores": np.asarray(scores, dtype=np.float64).tolist()}]


def _question() -> list[str]:
    return section(
        "The question, and the rule",
        "Written before the run. Does `auto`, what `midam fit` does with vectors, rank test bags as well as the best "
        "other method here, whichever that is? The methods take their defaults, which were chosen [on other versions "
        "of these sets too](defaults.md), and see the training bags of a split alone. Two methods differ where the 95% "
        "interval of their mean difference over the sets leaves out 0; else they cannot be told apart. Wanted: `auto` "
        f"minus the best other method, chosen afterwards by its mean over the sets, {_NEAR:+.2f} or more.",
        "The file is taken as it is: 25 principal components of the 230 features, each bag padded to 13 instances by "
        "repeated ones. Means and deviations of a bag, and draws from it, count the repeated instances again.",
    )


def _results(
    areas: Mapping[tuple[str, str], NDArray[np.float64]], sets: Sequence[str], names: Sequence[str]
) -> list[str]:
    means = {name: float(np.mean([areas[data, name].mean() for data in sets])) for name in names}
    rows = [[data, *(f"{areas[data, name].mean():.3f}" for name in names)] for data in sets]
    rows.append(["mean", *(f"{means[name]:.3f}" for name in names)])
    gaps = {name: [areas[data, AUTO] - areas[data, name] for data in sets] for name in names if name != AUTO}
    ratio = 1 / (len(next(iter(areas.values()))) - 1)
    lines = [
        [METHODS[name], *(paired(gap, ratio=ratio) for gap in own), str(over_sets(own, ratio=ratio))]
        for name, own in gaps.items()
    ]
    best = max(gaps, key=lambda name: means[name])
    gap = means[AUTO] - means[best]
    absent = [title for name, title in _PEERS.items() if name not in names]
    return [
        *section(
            "AUROC",
            "Of the test bags, mean over the 5 splits." + (f" Not run: {', '.join(absent)}." if absent else ""),
            table(["set", *(METHODS[name] for name in names)], rows),
        ),
        *section(
            "`auto` minus the others",
            "Paired by split, with the Nadeau-Bengio corrected 95% interval; that of the mean takes the sets for "
            "independent.",
            table(["method", *sets, "mean"], lines),
            f"- `auto` minus {METHODS[best]}, the best other method: {gap:+.3f} (wanted: {_NEAR:+.2f} or more).",
        ),
    ]


def _published() -> list[str]:
    return section(
        "What is published of ICMIL",
        "A mean AUROC over twelve sets, of which these are three: 84.17% of ICMIL, 79.97% of attention pooling (ABMIL) "
        "as its authors train it. A mean over other sets cannot be set against the means above, and accuracies of "
        "other papers are no AUROC; ICMIL itself was not run here.",
    )


def _area(store: Store, fit: Fit) -> float:
    (row,) = store.find(fit.group().names)
    if row is None:
        raise KeyError(f"{fit.data}, {fit.method}")
    return auroc(fit.bags.require_labels()[fit.trial.score], row["scores"])
