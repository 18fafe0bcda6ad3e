"""Methods of a comparison by name: methods of this library, and baselines, including models of other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.methods.method import Baseline
from midam.methods.names import DEFAULT, check_known, is_shorthand, method_settings
from midam.registry import BASELINES, OBJECTIVES, build
from midam.runs.baseline import usual_baseline
from midam.targets import target_of

_WITHOUT_MARGIN = ("bce", "cross-entropy", "cox")


@dataclass(frozen=True)
class ComparedMethod:
    """A method of a comparison: a baseline, or a method of this library."""

    name: str
    settings: dict[str, str]  # replace settings of the comparison
    tuned: bool = False  # learning rate, margin and epoch are chosen on validation bags
    baseline: Baseline | None = None


def find_methods(names: Sequence[str]) -> list[ComparedMethod]:
    """Return methods of at least two different names, ready to run."""
    for name in names:
        check_known(name)
        if list(names).count(name) > 1:
            raise ConfigError(f"Expected each method once, got {name} twice; drop one.")
    if len(names) < 2:
        raise ConfigError(f"Expected at least two methods, got {', '.join(names) or 'none'}; name one to compare with.")
    return [find_method(name) for name in names]


def find_method(name: str) -> ComparedMethod:
    """Return the method of a name."""
    if name == DEFAULT:
        return ComparedMethod(name, {})
    if is_shorthand(name):
        return ComparedMethod(name, method_settings(name), tuned=True)
    made = build(BASELINES.find(name), part=f"the baseline {name!r}", offered={}, arguments={})
    return ComparedMethod(name, {}, baseline=made)


def check_methods(methods: Sequence[ComparedMethod], bags: Bags) -> None:
    """Refuse methods that do not serve the target of the bags, and name methods that do; refuse weights of bags.

    `midam` takes the target's objective.
    """
    if bags.weights is not None:
        raise ConfigError(
            f"Expected bags without weights, which not every method takes, got weights (in {bags.source}); leave them "
            "out of a comparison."
        )
    target, wrong = target_of(bags), []
    for method in methods:
        objective = method.settings.get("objective")
        if method.baseline is not None and target.pairs not in method.baseline.serves:
            wrong.append(method.name)
        elif objective is not None and target.pairs not in OBJECTIVES.find(objective).serves:
            wrong.append(f"{method.name}, whose objective is {objective}")
    if wrong:
        objectives = " or ".join(target.objectives)
        raise ConfigError(
            f"Expected methods that support the target {target.name!r}, got {'; '.join(wrong)}; name {DEFAULT}, "
            f"OBJECTIVE+ESTIMATOR+POOLING with {objectives}, such as {target.objectives[0]}+vrsp+attention, or "
            f"{', '.join(BASELINES.where(lambda baseline: target.pairs in baseline.serves))}."
        )


def usual_methods(bags: Bags) -> list[str]:
    """Return the default methods of a comparison: `midam`, and the baseline of a run."""
    return [DEFAULT, usual_baseline(bags.instance_shape, target_of(bags))]


def has_margin(objective: str) -> bool:
    """Return whether an objective has a margin to choose."""
    return objective not in _WITHOUT_MARGIN
