"""The studies by name, or by the import path of another study; a study is imported only when it is requested."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from midam.errors import ConfigError
from midam.registry import Registry
from studies.engine import PACKED
from studies.options import StudyOptions

STUDIES = Registry(
    "study",
    {
        "table1": "studies.tabular.table1.run",
        "table2": "studies.tabular.table2.run",
        "table3": "studies.images.table3.run",
        "table3-paper": "studies.images.table3.run_long",
        "table3-mini-batches": "studies.images.table3.run_rest",
        "table3-state": "studies.images.table3.run_state",
        "table3-statistics": "studies.images.bag_statistics.run",
        "table3-features": "studies.images.features.run",
        "pretrained": "studies.images.features.run_default",
        "fine-tuning": "studies.images.fine_tuning.run",
        "figure-generalization": "studies.tabular.figure_generalization.run",
        "figure-instances": "studies.tabular.figure_instances.run",
        "figure-convergence": "studies.images.figure_convergence.run",
        "figure-budget": "studies.images.figure_budget.run",
        "figure-attention": "studies.images.figure_attention.run",
        "image-defaults": "studies.images.defaults.run",
        "image-changes": "studies.images.changes.run",
        "tracking": "studies.theory.tracking.run",
        "complexity": "studies.theory.complexity.run",
        "unit-tests": "studies.theory.unit_tests.run",
        "defaults": "studies.tabular.defaults.run",
        "calibration": "studies.tabular.calibration.run",
        "cross-validation": "studies.tabular.cross_validation.run",
        "small-sets": "studies.tabular.small_sets.run",
        "icmil": "studies.tabular.icmil.run",
        "league": "studies.tabular.league.run",
        "large-sets": "studies.tabular.large_sets.run",
        "candidates": "studies.tabular.candidates.run",
        "tracked": "studies.regime.tracked.run",
        "small-bags": "studies.regime.small_bags.run",
        "needle": "studies.regime.needle.run",
        "instances": "studies.instances.instances.run",
        "witness-search": "studies.regime.witnesses.run",
        "survival": "studies.targets.survival.run",
        "labels": "studies.targets.labels.run",
        "screening": "studies.screening.screening.run",
    },
)
_OPTIONAL = ("margin", "splits", "protocol", "size", "device")


@dataclass(frozen=True)
class Study:
    """A study: a call with `StudyOptions` runs it and writes its page."""

    run: Callable[[StudyOptions], None]  # Function that runs the study
    help: str  # One line for the command line
    takes: tuple[str, ...] = ()  # The optional settings of `StudyOptions` that it has
    # Stem of the file of its finished trials, which identifies published trials; empty if it keeps none
    store: str = ""

    def __call__(self, options: StudyOptions) -> None:
        """Run the study and write its page."""
        self.run(options)


def as_study(
    text: str, *, takes: tuple[str, ...] = (), store: str = ""
) -> Callable[[Callable[[StudyOptions], None]], Study]:
    """Make a function of `StudyOptions` a `Study`."""
    return lambda run: Study(run, text, takes, store)


def find_study(name: str) -> Study:
    """Return the study of this name.

    Examples
    --------
    >>> find_study("table2").takes
    ('margin', 'splits', 'protocol', 'device')
    """
    found = STUDIES.find(name)
    if not isinstance(found, Study):
        raise ConfigError(f"Expected a study, got {found!r} for {name!r}; make it one by `as_study`.")
    return found


def check_study(name: str, options: StudyOptions, *, trials: Path | None = None) -> Study:
    """Return the study of this name; raises an error if it does not accept the options or the file of published trials.

    Examples
    --------
    >>> check_study("table2", StudyOptions(splits=5), trials=Path("records/trials/table2.jsonl.gz")).store
    'table2'
    """
    study = find_study(name)
    for option in _OPTIONAL:
        if getattr(options, option) is not None and option not in study.takes:
            others = ", ".join(other for other in STUDIES.names() if option in find_study(other).takes)
            raise ConfigError(f"Expected no --{option} with the study {name}, got one; it belongs to {others}.")
    if trials is not None and not study.store:
        raise ConfigError(f"Expected no --trials with the study {name}, which keeps none; leave it out.")
    if trials is not None and trials.name != (own := f"{study.store}{PACKED}"):
        raise ConfigError(f"Expected the trials of the study {name}, {own}, got {trials}; name its own.")
    return study
