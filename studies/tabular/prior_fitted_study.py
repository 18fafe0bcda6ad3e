"""The study `prior-fitted`: a network fitted to made-up bags, alone and among the methods that `auto` tries."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.errors import DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.train.trials import Trial
from studies.differences import over_sets, paired
from studies.engine import PACKED, Store, complete, take_published, trial_name
from studies.options import OUT, StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.split_statistics import mean_interval
from studies.synthetic import synthetic_sets
from studies.tabular.defaults_page import prior_of
from studies.tabular.defaults_trials import (
    CHOSEN,
    DEFAULT,
    KERNEL,
    KINDS,
    LINEAR,
    SYNTHETIC,
    TREES,
    Areas,
    outer_folds,
    trials_of,
)
from studies.tabular.icmil import read_splits
from studies.tabular.prior_fitted import PriorFitted, load, predict

NAME, METHOD = "prior-fitted", "prior-fitted"
_ICMIL = "icmil"
_SHOWN = {
    METHOD: "network",
    TREES: "ExtraTrees",
    LINEAR: "logistic",
    KERNEL: "mean map",
    DEFAULT: "`midam`",
    "auto": "`auto` with it",
}
RULE = (
    "Written before the network was fitted: it becomes a method that `auto` tries if `auto` with it, minus `auto`, has "
    "a mean over the six kinds of real sets with a 95% interval (t, over kinds) above 0. The prior weights of `auto`, "
    "that of the network among them, come from the other kinds. Nothing of the network was chosen by a real set. When it was fitted, and seen "
    "on one fold of three sets, its views were made smaller, so that it scores 100 bags in the time that `auto` may take."
)


@dataclass(frozen=True, eq=False)
class Fit:
    """The network on the trials of a fold: it is given the labels of `train` and scores the other bags of a trial."""

    data: str
    fold: int
    bags: Bags
    trials: list[Trial]
    weights: Path
    views: int

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        return Group([trial_name(NAME, set=self.data, fold=self.fold, views=self.views)], [self])


@as_study("a network fitted to made-up bags, alone and in `auto`", takes=("device",), store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    real = [name for kind, names in KINDS.items() if kind != SYNTHETIC for name in names]
    study(options, {name: catalog.load(name) for name in real}, synthetic_sets())


def study(options: StudyOptions, real: Mapping[str, Bags], synthetic: Mapping[str, Bags]) -> None:
    """Run the study on these sets, and on the splits of ICMIL."""
    options.use_cuda()
    views, weights = (2 if options.smaller else 4), options.cache / "prior-fitted.pt"
    sets = {**real, **synthetic}
    splits = {} if options.smaller else read_splits()
    with Store(options.cache, NAME) as store:
        fits = {
            (data, number): Fit(data, number, bags, trials_of(bags, fold), weights, views)
            for data, bags in sets.items()
            for number, fold in enumerate(outer_folds(bags, 0))
        }
        fits |= {
            (f"{_ICMIL} {data}", number): Fit(f"{_ICMIL} {data}", number, bags, [trial], weights, views)
            for data, own in splits.items()
            for number, (bags, trial) in enumerate(own)
        }
        groups = [fit.group() for fit in fits.values()]
        if store.missing(groups) and not weights.is_file():
            raise DataNotFoundError(
                f"Expected the network, got no file {weights}; fit it with python -m studies.tabular.prior_fitted "
                f"{weights}, or take the scores with --trials {OUT}/trials/{NAME}{PACKED}."
            )
        complete(groups, score_fit, store=store, options=options, section=NAME)
        rows = {key: store.find(fit.group().names)[0] for key, fit in fits.items()}
        body = [*_judged(options, sets, rows), *_icmil(splits, rows)]
        write_page(
            options,
            NAME,
            title="A network fitted to made-up bags",
            shows="Networks that are fitted once to made-up tasks, and then label the bags of a new task in one pass, "
            "are the newest rival ([ICMIL](icmil.md)). This is one of our own: attention over instances, features and "
            "bags in turn, fitted to bags with witnesses, shifts, pairs and other rules "
            "(`studies/tabular/prior_fitted.py`). It had one trial, on one GPU.",
            seeds="0 for folds, for the views of a task and for the fit",
            seconds=store.wall_time(),
            store=store,
            body=body,
        )


def score_fit(fit: Fit) -> list[Row]:
    """Return the scores [1, n] of the bags that each trial holds out."""
    network = load(fit.weights)
    network.to("cuda" if torch.cuda.is_available() else "cpu")
    return [{"scores": [_scores(network, fit, trial) for trial in fit.trials]}]


def _scores(network: PriorFitted, fit: Fit, trial: Trial) -> list[list[float]]:
    labels = fit.bags.require_labels()[trial.train]
    found = predict(
        network,
        torch.as_tensor(np.asarray(fit.bags.instances), dtype=torch.float32),
        torch.as_tensor(fit.bags.starts),
        torch.as_tensor(fit.bags.sizes),
        labels=torch.as_tensor(np.stack([trial.train, labels], axis=1)),
        test=torch.as_tensor(trial.score),
        seed=0,
        views=fit.views,
    )
    return [[round(value, 6) for value in found.tolist()]]


def _judged(options: StudyOptions, sets: Mapping[str, Bags], rows: Mapping[tuple[str, int], Any]) -> list[str]:
    """Return the table of all sets, with the decision."""
    kinds = {kind: [name for name in names if name in sets] for kind, names in KINDS.items()}
    kinds = {kind: names for kind, names in kinds.items() if names}
    take_published(OUT / "trials" / f"defaults{PACKED}", options.cache)
    lines, gaps, by_kind, over_trees = [], [], dict[str, float](), list[NDArray[np.float64]]()

    def scores(data: str, repeat: int) -> Any:
        return [rows[data, number]["scores"] for number in range(len(outer_folds(sets[data], repeat)))]

    with Store(options.cache, "defaults") as store:
        usual, more = Areas(store, epochs=None), Areas(store, epochs=None, others={METHOD: scores})
        for kind, names in kinds.items():
            found = {}
            for data in names:
                without, with_it = (
                    areas.nested(
                        data,
                        sets[data],
                        CHOSEN,
                        prior_of(areas, sets, kinds, CHOSEN, without=kind, repeats=range(1)),
                        repeats=range(1),
                    )
                    for areas in (usual, more)
                )
                gap = with_it["auto"] - without["auto"]
                found[data] = float(gap.mean())
                cells = [f"{with_it[method].mean():.3f}" for method in _SHOWN]
                lines.append([data, *cells, f"{without['auto'].mean():.3f}", paired(gap)])
                if kind != SYNTHETIC:
                    gaps.append(gap)
                    over_trees.append(with_it[METHOD] - with_it[TREES])
            by_kind[kind] = float(np.mean(list(found.values())))
    real = [value for kind, value in by_kind.items() if kind != SYNTHETIC]
    decided = mean_interval(real, bounds=(-1.0, 1.0)) if len(real) > 1 else None
    taken = decided is not None and decided.low > 0
    return section(
        "Alone and in `auto`",
        RULE,
        "Test AUROC, mean over the folds of [the defaults](defaults.md), whose scores of the other methods are used "
        "again; `midam` is the method alone. The last column is `auto` with the network minus `auto`, with the "
        "Nadeau-Bengio corrected 95% interval.",
        table(["set", *_SHOWN.values(), "`auto`", "difference"], lines),
        f"- `auto` with it minus `auto`, mean over {len(real)} kinds: {decided:+}."
        f" **{'Taken' if taken else 'Not taken'}.**\n"
        f"- The same over the sets: {over_sets(gaps)}.\n"
        f"- The network alone minus ExtraTrees, mean over the real sets: {over_sets(over_trees)}.",
    )


def _icmil(splits: Mapping[str, Any], rows: Mapping[tuple[str, int], Any]) -> list[str]:
    """Return the table of the splits on which ICMIL is judged."""
    if not splits:
        return []
    found = {
        data: np.mean(
            [
                auroc(bags.require_labels()[trial.score], np.array(rows[f"{_ICMIL} {data}", number]["scores"][0][0]))
                for number, (bags, trial) in enumerate(own)
            ]
        )
        for data, own in splits.items()
    }
    cells = [f"{area:.3f}" for area in (*found.values(), np.mean(list(found.values())))]
    return section(
        "On the splits of ICMIL",
        "Test AUROC of the network alone, mean over five splits; other methods are in [their page](icmil.md).",
        table(["", *found, "mean"], [["network", *cells]]),
    )
