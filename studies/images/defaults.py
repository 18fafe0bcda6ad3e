"""`python -m studies image-defaults`: optimizer, rate and gamma0 for images, by validation bags, leave-one-set-out."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from midam.data.bags import Bags
from studies.engine import Store
from studies.images.curves import ImageArm, ImageCurve, find_curves
from studies.images.design import Recipe, choose_design
from studies.images.sets import load_set
from studies.options import StudyOptions
from studies.page import table, write_page
from studies.registry import as_study

NAME = "image-defaults"
METHOD = "midam-printed-att"
SETS = ("breast", "colon", "adrenal")
# Fixed before the first run: the old default between two other rates, and Adam's usual rate between two other rates.
CANDIDATES: tuple[tuple[Literal["sgd", "adam"], float], ...] = (
    ("sgd", 0.01),
    ("sgd", 0.05),
    ("sgd", 0.2),
    ("adam", 0.0003),
    ("adam", 0.001),
    ("adam", 0.003),
)
# Also fixed before the first run: the value of the mlp, the value of the paper, and a value with almost no memory.
STATE_RATES = (0.5, 0.9, 0.99)
SAMPLED = "dam-mb-att"
_SHOWS = (
    "Validation AUROC of MIDAM (att) with ResNet20 at the end of a short training, for optimizers and learning rates, "
    "then for gamma0, the weight of the new sample in the tracked pooling of a bag. Test bags are not looked at. A set "
    "is studied elsewhere with the choice of the other two sets: the highest mean of their ranks, equals to the higher "
    "mean AUROC."
)


def name_of(optimizer: str, lr: float) -> str:
    """Return the name of a candidate.

    Examples
    --------
    >>> name_of("adam", 0.001)
    'adam 0.001'
    """
    return f"{optimizer} {lr:g}"


def recipes(options: StudyOptions) -> dict[str, Recipe]:
    """Return the recipe of each set in the size of the options; candidates replace optimizer and rate."""
    size = choose_design(options).name
    fixed: dict[str, Any] = {"lrs": (0.05,), "search": 1.0, "state_rate": STATE_RATES[0]}
    if size in ("quick", "smaller"):
        return dict.fromkeys(SETS, Recipe((METHOD,), (), 1, 4, folds=1, bags=2, score_every=1, **fixed))
    if size == "small":
        return {
            "breast": Recipe((METHOD,), (), 15, 16, folds=2, score_every=15, **fixed),
            "colon": Recipe((METHOD,), (), 12, 4, folds=1, score_every=12, **fixed),
            "adrenal": Recipe((METHOD,), (), 8, 4, folds=1, score_every=8, **fixed),
        }
    return {
        "breast": Recipe((METHOD,), (), 60, 16, score_every=60, **fixed),
        "colon": Recipe((METHOD,), (), 60, 4, score_every=60, **fixed),
        "adrenal": Recipe((METHOD,), (), 20, 4, score_every=20, **fixed),
    }


def choose(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the candidate with the highest mean rank over sets, at a tie with the higher mean AUROC.

    Examples
    --------
    >>> choose({"a": {"x": 0.6, "y": 0.7, "z": 0.5}, "b": {"x": 0.9, "y": 0.8, "z": 0.1}})
    'x'
    """
    names = list(next(iter(found.values())))

    def metric(name: str) -> tuple[float, float]:
        ranks = [
            np.mean([own[name] > v for v in own.values()]) + np.mean([own[name] >= v for v in own.values()])
            for own in found.values()
        ]
        return float(np.mean(ranks)), float(np.mean([own[name] for own in found.values()]))

    return max(names, key=metric)


@as_study("optimizer and learning rate for images, by validation bags", takes=("size", "device"), store="image-curves")
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    design = choose_design(options)
    study(options, {name: load_set(name, design, cache=options.cache).bags for name in SETS})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    with Store(options.cache, "image-curves") as store:
        _study(options, sets, store)


def _study(options: StudyOptions, sets: Mapping[str, Bags], store: Store) -> None:
    own, size = recipes(options), choose_design(options).name
    section = f"{NAME}, {size}"

    def ends(arms: Mapping[str, Sequence[ImageArm]]) -> dict[str, dict[str, float]]:
        curves = find_curves(arms, sets, store=store, options=options, section=section)
        return {name: {arm.label: _end(curves[name, arm.label]) for arm in arms[name]} for name in sets}

    rates = ends({name: [_arm(own[name], *candidate) for candidate in CANDIDATES] for name in sets})
    best = next(candidate for candidate in CANDIDATES if name_of(*candidate) == choose(rates))
    states = ends({name: [_arm(own[name], *best, state_rate=rate) for rate in STATE_RATES] for name in sets})
    sampled = ends({name: [dataclasses.replace(_arm(own[name], *best), method=SAMPLED)] for name in sets})
    trainings = {name: own[name].folds * (len(CANDIDATES) + len(STATE_RATES)) for name in sets}
    write_page(
        options,
        NAME,
        title="Optimizer, learning rate and gamma0 for images",
        shows=_SHOWS,
        seeds="0, 1, ... of weights and sampling, one a fold",
        seconds=store.wall_time(section),
        store=store,
        body=[
            "## Optimizer and learning rate",
            "",
            f"With gamma0 = {STATE_RATES[0]:g}.",
            "",
            *_tables("optimizer, rate", rates),
            "",
            "## gamma0",
            "",
            f"With {name_of(*best)}. The last row is DAM (MB-att): the sample alone, gamma0 = 1, for comparison.",
            "",
            *_tables("gamma0", states, below={name: found[name_of(*best)] for name, found in sampled.items()}),
            "",
            "Each figure is the mean of one training a fold; folds that were run: "
            f"{', '.join(f'{name} {own[name].folds}' for name in sets)}. Differences of a few hundredths are noise; "
            "what the tables tell apart are settings that fail.",
            "",
        ],
        made=[
            f"- Size: {size}; "
            + ", ".join(
                f"{name}: {own[name].epochs} epochs, B = {own[name].instances}, {trainings[name]} trainings"
                for name in sets
            )
        ],
    )


def _arm(recipe: Recipe, optimizer: Literal["sgd", "adam"], lr: float, *, state_rate: float | None = None) -> ImageArm:
    """Return a candidate of the first stage, or with a gamma0 a candidate of the second stage, named by it."""
    label = name_of(optimizer, lr) if state_rate is None else f"{state_rate:g}"
    rate = recipe.state_rate if state_rate is None else state_rate
    return ImageArm(label, METHOD, dataclasses.replace(recipe, optimizer=optimizer, lrs=(lr,), state_rate=rate))


def _tables(
    head: str, found: Mapping[str, Mapping[str, float]], *, below: Mapping[str, float] | None = None
) -> list[str]:
    """Return tables of the AUROC of each candidate on each set, and of the choices by the other sets and by all."""
    candidates = list(next(iter(found.values())))
    rows = [[c, *(f"{own[c]:.3f}" for own in found.values())] for c in candidates]
    rows += [["DAM (MB-att)", *(f"{below[name]:.3f}" for name in found)]] if below is not None else []
    chosen = [[name, choose({other: own for other, own in found.items() if other != name})] for name in found]
    return [
        *table([head, *found], rows),
        "",
        *table(["set", f"{head}: choice of the other sets"], chosen),
        "",
        f"Choice of all sets: **{choose(found)}**.",
    ]


def _end(curve: ImageCurve) -> float:
    return float(np.nan_to_num(curve.val[:, -1], nan=-1.0).mean())
