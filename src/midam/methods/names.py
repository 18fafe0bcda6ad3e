"""Names of methods: shorthands for settings, and methods that are fitted in one step and take few settings.

A shorthand is PREFIX-POOL from the two tables below, or any OBJECTIVE+ESTIMATOR+POOLING of the settings.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from midam.errors import ConfigError, nearest
from midam.registry import BASELINES, ESTIMATORS, OBJECTIVES, POOLINGS, build
from midam.settings import Settings
from midam.settings.group import AUTO
from midam.settings.method import are_pixels

if TYPE_CHECKING:
    from midam.data.bags import Bags

DEFAULT = "midam"  # the settings unchanged

_POOLINGS = {
    "mean": "mean",
    "max": "max",
    "smx": "smoothed-max",
    "att": "attention",
    "gated": "gated-attention",
    "emb": "embedding-attention",
    "gm": "generalized-mean",
    "nor": "noisy-or",
    "nand": "noisy-and",
}
_PREFIXES = {
    "ce": ("exact", "bce"),
    "dam": ("exact", "minmax-auc"),
    "ce-mb": ("minibatch", "bce"),
    "dam-mb": ("minibatch", "minmax-auc"),
    "ce-vrsp": ("vrsp", "bce"),
    "midam": ("vrsp", "minmax-auc"),
    "midam-printed": ("vrsp-printed", "minmax-auc"),
    "ce-point": ("exact-point", "bce"),
    "dam-point": ("exact-point", "minmax-auc"),
}


def method_settings(name: str) -> dict[str, str]:
    """Return the settings ``pooling``, ``estimator`` and ``objective`` of a method's name.

    The name is one of `method_names`, or of the form ``"bce+vrsp+smoothed-max"``. A `ConfigError` for another name
    suggests the nearest.

    Examples
    --------
    >>> method_settings("dam-mb-smx")
    {'pooling': 'smoothed-max', 'estimator': 'minibatch', 'objective': 'minmax-auc'}
    """
    if name.count("+") == 2:
        objective, estimator, pooling = name.split("+")
        for registry, part in ((OBJECTIVES, objective), (ESTIMATORS, estimator), (POOLINGS, pooling)):
            registry.check(part)
        return {"pooling": pooling, "estimator": estimator, "objective": objective}
    known = method_names()
    if name not in known:
        raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known)}")
    prefix, _, pool = name.rpartition("-")
    estimator, objective = _PREFIXES[prefix]
    return {"pooling": _POOLINGS[pool], "estimator": estimator, "objective": objective}


def method_names() -> list[str]:
    """Return all names PREFIX-POOL, without the combinations of max with an estimator that needs a smooth pooling."""
    return [
        f"{prefix}-{pool}"
        for prefix, (estimator, _) in _PREFIXES.items()
        for pool, pooling in _POOLINGS.items()
        if POOLINGS.find(pooling).statistic.trackable or not ESTIMATORS.find(estimator).needs_trackable
    ]


def known_methods() -> list[str]:
    """Return the names of all methods: `DEFAULT`, those of `method_names`, and the baselines of `midam.compare`."""
    return [DEFAULT, *method_names(), *BASELINES.names()]


def check_known(name: str) -> None:
    """Refuse a name that is no method or shorthand."""
    if name not in known_methods() and "+" not in name:
        raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known_methods())}")


def is_shorthand(name: str) -> bool:
    """Return whether `method_settings` may know a name."""
    return name in method_names() or "+" in name


_OF_RUN = (
    *("seed", "folds", "val_fraction", "test_fraction", "threshold"),
    *("allow_leakage", "chunk_size", "reads", "threads"),
)
TAKEN = (*_OF_RUN, *Settings.names("data", "cut"))
_MOST_NUMBERS, _MOST_STATISTICS = 2**31, 2**28  # numbers in all instances, and in the statistics of all bags


def choose_method(name: str | None, settings: Settings) -> tuple[Settings, str | None]:
    """Return the settings for a method, and the method's name if it is fitted in one step, else None.

    Parameters
    ----------
    name : str, optional
        A name in `midam.compare.known_methods`.
    settings : Settings
        All other settings.

    Raises
    ------
    ConfigError
        If the method is unknown or cannot be a model, or if a setting that it does not take differs from its default.
    """
    if name is None or name == DEFAULT:
        return settings, None
    defaults = Settings().flat()
    refuse_settings(name, {key: value for key, value in settings.flat().items() if value != defaults[key]})
    if is_shorthand(name):
        return settings.replace(**method_settings(name)), None
    make_method(name)
    if settings.data.covariates:
        raise ConfigError(
            f"Expected no `covariates` with the method {name!r}, which uses only instances, got "
            f"{', '.join(settings.data.covariates)}; leave them out, or train {DEFAULT}."
        )
    return settings, name


def usual_method(bags: "Bags", settings: Settings) -> str | None:
    """Return the default method of a run: "auto" for feature vectors with two classes, else None, for the settings.

    It is also None with settings that "auto" does not take, with covariates, which "auto" does not use, and for bags of
    more than 2 billion numbers, because "auto" reads all instances about twenty times.
    """
    defaults = Settings().flat()
    if any(value != defaults[key] for key, value in settings.flat().items() if key not in TAKEN):
        return None
    if bags.outcome is not None or bags.covariates is not None or are_pixels(bags.instance_shape):
        return None
    numbers, statistics = (count * math.prod(bags.instance_shape) for count in (bags.num_instances, 4 * len(bags)))
    return AUTO if numbers <= _MOST_NUMBERS and statistics <= _MOST_STATISTICS else None


def refuse_settings(name: str, values: Mapping[str, Any]) -> None:
    """Refuse settings that a method does not take; `values` maps the names of the given settings to their values."""
    if name == DEFAULT:
        return
    if is_shorthand(name):
        meant = method_settings(name)
        wrong = [key for key in meant if values.get(key, meant[key]) != meant[key]]
        why = "its name sets {}".format(", ".join(f"`{key}` {value}" for key, value in meant.items()))
    else:
        wrong = [key for key in values if key not in TAKEN]
        why = f"leave it out: only settings of the data and {', '.join(f'`{key}`' for key in _OF_RUN)} apply"
    for key in wrong[:1]:
        raise ConfigError(f"Expected no `{key}` with the method {name!r}, got {values[key]!r}; {why}.")


def make_method(name: str, **options: Any) -> Any:
    """Return the `midam.methods.method.Method` of a name; raise a `ConfigError` if it cannot be a model.

    `options` are arguments that its constructor takes if it has parameters of these names: `auto` takes
    `journal`, see `midam.methods.auto.search.search`.
    """
    check_known(name)
    kind = BASELINES.find(name)
    if kind.lacks is not None:
        able = ", ".join(BASELINES.where(lambda method: method.lacks is None))
        raise ConfigError(
            f"Expected a method that can be a model, got {name!r}: {kind.lacks}; choose one of {able}, or a method "
            f"that midam trains, such as {DEFAULT}."
        )
    method = build(kind, part=f"the baseline {name!r}", offered=options, arguments={})
    method.name = name
    return method


def taken_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that a method of one step takes, in the form of `Settings.flat`."""
    values = settings.flat()
    return {name: values[name] for name in values if name in TAKEN}


def method_title(method: str | None, settings: Settings, *, sign: str = "\N{MULTIPLICATION SIGN}") -> str:
    """Return the name of a run's method for pages."""
    parts = settings.method
    words = [parts.pooling, parts.estimator, *([] if parts.objective == AUTO else [parts.objective])]
    return method or f" {sign} ".join(words)
