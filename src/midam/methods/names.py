"""Names of methods: PREFIX-POOL from the two tables below, or any OBJECTIVE+ESTIMATOR+POOLING of the settings."""

from midam.errors import ConfigError, nearest, require
from midam.registry import BASELINES, ESTIMATORS, OBJECTIVES, POOLINGS

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
    require(name, str, "name", "give the name of a method, such as 'midam'")
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


def is_shorthand(name: str) -> bool:
    """Return whether `method_settings` may know a name."""
    return name in method_names() or "+" in name
