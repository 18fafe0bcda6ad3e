"""What can be compared, by name: methods trained here, and baselines, which include other libraries' models."""

from collections.abc import Sequence
from dataclasses import dataclass

from midam.compare.baselines import Baseline
from midam.errors import ConfigError, nearest
from midam.registry import BASELINES, build
from midam.train.config import FitConfig, from_dict, to_dict
from midam.train.names import method_names, method_settings

DEFAULT = "midam"


@dataclass(frozen=True)
class ComparedMethod:
    """One method of a comparison: a baseline, or settings that replace those of a method trained here.

    If it is `tuned`, learning rate, margin and epoch are chosen on validation bags.
    """

    name: str
    settings: dict[str, str]
    tuned: bool = False
    baseline: Baseline | None = None

    def configs(self, base: FitConfig, *, lrs: Sequence[float], margins: Sequence[float]) -> list[FitConfig]:
        """Candidates of a method trained here: the grid, or the settings as they are."""
        values = {**to_dict(base), **self.settings}
        if values["pooling"] != "smoothed-max":
            values["temperature"] = None
        if not self.tuned:
            return [from_dict(values)]
        # Cross-entropy knows no margin.
        grid = margins if values["objective"] != "bce" else [base.margin]
        return [from_dict({**values, "lr": lr, "margin": margin}) for lr in lrs for margin in grid]


def known_methods() -> list[str]:
    """Names of all methods.

    Examples
    --------
    >>> {"midam", "midam-att", "mi-kernel-svm", "torchmil-abmil"} <= set(known_methods())
    True
    """
    return [DEFAULT, *method_names(), *BASELINES.names()]


def find_methods(names: Sequence[str]) -> list[ComparedMethod]:
    """Methods of these names, ready to run; the class path of a `Baseline` is a name too.

    Raises
    ------
    ConfigError
        For fewer than two, one twice, an unknown one (naming the nearest), or a library that is not installed.
    """
    known = known_methods()
    for name in names:
        if name not in known and "." not in name:
            raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known)}")
        if list(names).count(name) > 1:
            raise ConfigError(f"Expected each method once, got {name} twice; drop one.")
    if len(names) < 2:
        raise ConfigError(f"Expected at least two methods, got {', '.join(names) or 'none'}; name one to compare with.")
    return [_find(name) for name in names]


def _find(name: str) -> ComparedMethod:
    if name == DEFAULT:
        return ComparedMethod(name, {})
    if name in method_names():
        return ComparedMethod(name, method_settings(name), tuned=True)
    made = build(BASELINES.find(name), what=f"the baseline {name!r}", offered={}, arguments={})
    return ComparedMethod(name, {}, baseline=made)
