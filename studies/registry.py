"""The studies by name. A study is a function of `StudyOptions` that writes its page."""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from midam.errors import ConfigError
from studies.options import StudyOptions
from studies.store import PACKED


@dataclass(frozen=True)
class Study:
    """A study.

    Parameters
    ----------
    help : str
        One line for the command line.
    target : str
        ``module:function``; imported when the study runs, so that a list of studies costs nothing.
    takes : tuple of str
        The optional settings of `StudyOptions` that it understands.
    store : str
        Stem of the file of its finished trials, by which published ones are known; empty where it keeps none.
    """

    help: str
    target: str
    takes: tuple[str, ...] = ()
    store: str = ""


STUDIES: dict[str, Study] = {
    "table1": Study("the data sets as loaded, beside the paper's Table 1", "studies.tabular.table1:run"),
    "table2": Study(
        "test AUROC on the tabular sets, beside the paper's Table 2",
        "studies.tabular.table2:run",
        takes=("margin", "splits", "protocol"),
        store="table2",
    ),
    "table3": Study(
        "test AUROC on the image sets, beside the paper's Table 3",
        "studies.images.table3:run",
        takes=("size", "device"),
        store="images",
    ),
    "figure-generalization": Study(
        "training and test AUROC along the epochs, MIDAM and DAM",
        "studies.tabular.figure_generalization:run",
        takes=("margin",),
        store="curves",
    ),
    "figure-instances": Study(
        "MIDAM with 1, 2, 4, 8 or all instances a bag",
        "studies.tabular.figure_instances:run",
        takes=("margin",),
        store="curves",
    ),
    "figure-convergence": Study(
        "validation and test AUROC along the epochs on images, MIDAM and DAM (MB)",
        "studies.images.figure_convergence:run",
        takes=("size", "device"),
        store="image-curves",
    ),
    "figure-budget": Study(
        "MIDAM on images at one budget of patches a step: few bags with many, or many bags with few",
        "studies.images.figure_budget:run",
        takes=("size", "device"),
        store="image-curves",
    ),
    "figure-attention": Study(
        "a positive and a negative image with the scores and weights of their patches",
        "studies.images.figure_attention:run",
        takes=("size", "device"),
    ),
    "image-defaults": Study(
        "optimizer and learning rate for images, by validation bags",
        "studies.images.defaults:run",
        takes=("size", "device"),
        store="image-curves",
    ),
    "tracking": Study(
        "error of the tracked state as the step sizes shrink", "studies.theory.tracking:run", store="tracking"
    ),
    "complexity": Study(
        "cost of a step, and steps to a stationary point", "studies.theory.complexity:run", store="complexity"
    ),
    "unit-tests": Study(
        "three tests of the MIL assumption for every pooling and estimator",
        "studies.theory.unit_tests:run",
        store="unit-tests",
    ),
    "defaults": Study(
        "the defaults, chosen leave-one-set-out, beside bag statistics",
        "studies.tabular.defaults:run",
        store="defaults",
    ),
    "regime": Study(
        "which estimator to take: bag size, witness rate, instances, steps", "studies.regime.regime:run", store="regime"
    ),
}
_OPTIONAL = ("margin", "splits", "protocol", "size", "device")


def run_study(name: str, options: StudyOptions) -> None:
    """Run a study and write its page.

    Parameters
    ----------
    name : str
        A key of `STUDIES`.
    options : StudyOptions
        How much of it, and where.

    Raises
    ------
    ConfigError
        If there is no such study, or it does not take an option that was given.
    """
    study = check_study(name, options)
    module, _, function = study.target.partition(":")
    run = cast(Callable[[StudyOptions], None], getattr(importlib.import_module(module), function))
    run(options)


def check_study(name: str, options: StudyOptions, *, trials: Path | None = None) -> Study:
    """Return the study of this name, if it takes the options and the file of published trials.

    Raises
    ------
    ConfigError
        If there is no such study, or it does not take an option that was given, or the trials are another study's.

    Examples
    --------
    >>> check_study("table2", StudyOptions(splits=5), trials=Path("docs/results/trials/table2.jsonl.gz")).store
    'table2'
    """
    study = find_study(name)
    for option in _OPTIONAL:
        if getattr(options, option) is not None and option not in study.takes:
            others = ", ".join(key for key, other in STUDIES.items() if option in other.takes)
            raise ConfigError(f"Expected no --{option} with the study {name}, got one; it belongs to {others}.")
    if trials is not None and not study.store:
        raise ConfigError(f"Expected no --trials with the study {name}, which keeps none; leave it out.")
    if trials is not None and trials.name != (own := f"{study.store}{PACKED}"):
        raise ConfigError(f"Expected the trials of the study {name}, {own}, got {trials}; name its own.")
    return study


def find_study(name: str) -> Study:
    """Return the study of this name.

    Raises
    ------
    ConfigError
        If there is none; the message names the nearest.

    Examples
    --------
    >>> find_study("table2").takes
    ('margin', 'splits', 'protocol')
    """
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(STUDIES)}."
        raise ConfigError(f"Expected the name of a study, got {name!r}; {hint}")
    return STUDIES[name]
