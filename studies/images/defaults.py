"""`python -m studies image-defaults`: optimizer and learning rate for images, by validation bags, leave-one-set-out."""

import dataclasses
from collections.abc import Mapping
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
METHOD = "midam-att"
SETS = ("breast", "colon", "adrenal")
# Fixed before the first run: each optimizer's default in midam, then or now, has two rates around it.
CANDIDATES: tuple[tuple[Literal["sgd", "adam"], float], ...] = (
    ("sgd", 0.003),
    ("sgd", 0.01),
    ("sgd", 0.05),
    ("sgd", 0.2),
    ("adam", 0.0001),
    ("adam", 0.0003),
    ("adam", 0.001),
    ("adam", 0.003),
)
_SHOWS = (
    "Validation AUROC of MIDAM (att) with ResNet20 at the end of a short training, for optimizers and learning rates. "
    "Test bags are not looked at. The choice of some sets is the highest mean of their ranks, equals to the higher "
    "mean AUROC. The rule, named before the first run: the library's default changes if the choice of all sets is "
    "ahead of it in the mean by more than 0.02, and behind by more than 0.02 on no set."
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
    fixed: dict[str, Any] = {"lrs": (0.05,), "search": 1.0}
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
    arms = {name: [_arm(own[name], *candidate) for candidate in CANDIDATES] for name in sets}
    curves = find_curves(arms, sets, store=store, options=options, section=section)
    aurocs = {name: {arm.label: _end(curves[name, arm.label]) for arm in arms[name]} for name in sets}
    chosen = [[name, choose({other: each for other, each in aurocs.items() if other != name})] for name in sets]
    rows = [[name, *(f"{each[name]:.3f}" for each in aurocs.values())] for name in map(name_of, *zip(*CANDIDATES))]
    write_page(
        options,
        NAME,
        title="Optimizer and learning rate for images",
        shows=_SHOWS,
        seeds="0, 1, ... of weights and sampling, one a fold",
        seconds=store.wall_time(section),
        store=store,
        body=[
            *table(["optimizer, rate", *sets], rows),
            "",
            *table(["set", "choice of the other sets"], chosen),
            "",
            f"Choice of all sets: **{choose(aurocs)}**.",
            "",
            "Each figure is the mean of one training a fold; folds that were run: "
            f"{', '.join(f'{name} {own[name].folds}' for name in sets)}. Differences of a few hundredths are noise; "
            "what the table tells apart are settings that fail.",
            "",
        ],
        made=[
            f"- Size: {size}; "
            + ", ".join(
                f"{name}: {own[name].epochs} epochs, B = {own[name].instances}, "
                f"{own[name].folds * len(CANDIDATES)} trainings"
                for name in sets
            )
        ],
    )


def _arm(recipe: Recipe, optimizer: Literal["sgd", "adam"], lr: float) -> ImageArm:
    return ImageArm(name_of(optimizer, lr), METHOD, dataclasses.replace(recipe, optimizer=optimizer, lrs=(lr,)))


def _end(curve: ImageCurve) -> float:
    return float(np.nan_to_num(curve.val[:, -1], nan=-1.0).mean())
