"""What can be compared: methods trained here, baselines, and other libraries' models, all by name."""

from dataclasses import dataclass

from midam.compare.baselines import BASELINES, Runner
from midam.compare.peers import PEERS, check_peer
from midam.errors import ConfigError, nearest
from midam.train.config import FitConfig, from_dict, to_dict
from midam.train.method_names import method_names, method_settings

DEFAULT = "midam"


@dataclass(frozen=True)
class Method:
    """One method of a comparison.

    Attributes
    ----------
    name : str
        Its name.
    settings : dict of str, optional
        Pooling, estimator and objective of a method trained here; empty for the library's defaults.
    tuned : bool
        Learning rate, margin and epoch are chosen on validation bags.
    runner : callable, optional
        From bags and a trial to scores, for the others.
    """

    name: str
    settings: dict[str, str] | None = None
    tuned: bool = False
    runner: Runner | None = None

    @property
    def uses_torch(self) -> bool:
        """Draws from torch's global random state."""
        return self.name not in BASELINES

    def configs(self, base: FitConfig, *, lrs: list[float], margins: list[float]) -> list[FitConfig]:
        """Candidates of a method trained here: the grid, or the settings as they are."""
        values = {**to_dict(base), **(self.settings or {})}
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
    return [DEFAULT, *method_names(), *BASELINES, *PEERS]


def find_methods(names: list[str]) -> list[Method]:
    """Methods of these names, ready to run.

    Raises
    ------
    ConfigError
        For fewer than two, one twice, an unknown one (naming the nearest), or a library that is not installed.
    """
    known = known_methods()
    for name in names:
        if name not in known and "+" not in name:
            raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known)}")
        if names.count(name) > 1:
            raise ConfigError(f"Expected each method once, got {name} twice; drop one.")
    if len(names) < 2:
        raise ConfigError(f"Expected at least two methods, got {', '.join(names) or 'none'}; name one to compare with.")
    return [_find(name) for name in names]


def _find(name: str) -> Method:
    if name == DEFAULT:
        return Method(name, settings={})
    if name in BASELINES:
        return Method(name, runner=BASELINES[name])
    if name in PEERS:
        check_peer(name)
        return Method(name, runner=PEERS[name])
    return Method(name, settings=method_settings(name), tuned=True)
