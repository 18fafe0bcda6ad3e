"""What can be compared, by name: methods trained here, and baselines, which include other libraries' models."""

from collections.abc import Sequence
from dataclasses import dataclass

from midam.compare.baselines import Baseline
from midam.errors import ConfigError, nearest
from midam.registry import BASELINES, build
from midam.train.method_names import DEFAULT, is_shorthand, known_methods, method_settings

__all__ = ["DEFAULT", "ComparedMethod", "find_method", "find_methods", "known_methods"]


@dataclass(frozen=True)
class ComparedMethod:
    """One method of a comparison: a baseline, or a method trained here."""

    name: str
    settings: dict[str, str]  # that replace those of the comparison
    tuned: bool = False  # learning rate, margin and epoch are chosen on validation bags
    baseline: Baseline | None = None


def find_methods(names: Sequence[str]) -> list[ComparedMethod]:
    """Methods of at least two different names, ready to run; the class path of a `Baseline` is a name too."""
    known = known_methods()
    for name in names:
        if name not in known and "." not in name and "+" not in name:
            raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known)}")
        if list(names).count(name) > 1:
            raise ConfigError(f"Expected each method once, got {name} twice; drop one.")
    if len(names) < 2:
        raise ConfigError(f"Expected at least two methods, got {', '.join(names) or 'none'}; name one to compare with.")
    return [find_method(name) for name in names]


def find_method(name: str) -> ComparedMethod:
    """The method of a name, or of the class path of a `Baseline`."""
    if name == DEFAULT:
        return ComparedMethod(name, {})
    if is_shorthand(name):
        return ComparedMethod(name, method_settings(name), tuned=True)
    made = build(BASELINES.find(name), what=f"the baseline {name!r}", offered={}, arguments={})
    return ComparedMethod(name, {}, baseline=made)
