"""Names of methods, which are data that is read here into settings.

| name | objective x estimator |
|---|---|
| `ce-POOL`, `dam-POOL` | cross-entropy, min-max AUC x whole bags (exact) |
| `ce-mb-POOL`, `dam-mb-POOL` | the same x a sample's own pooling (minibatch) |
| `ce-vrsp-POOL`, `midam-POOL` | the same x tracked state (vrsp) |
| `ce-point-POOL`, `dam-point-POOL` | the same x the whole bag's point, a sample's gradient (exact-point) |
| `OBJECTIVE+ESTIMATOR+POOLING` | any three, by the names or class paths of the settings |

POOL is mean, max, smx, att, gated, emb, gm, nor or nand.
"""

from midam.errors import ConfigError, nearest
from midam.registry import ESTIMATORS, OBJECTIVES, POOLINGS

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
    "ce-point": ("exact-point", "bce"),
    "dam-point": ("exact-point", "minmax-auc"),
}


def method_settings(name: str) -> dict[str, str]:
    """Settings ``pooling``, ``estimator`` and ``objective`` that a method's name stands for.

    Parameters
    ----------
    name : str
        Such as ``"midam-att"``, see `method_names`, or ``"bce+vrsp+mypackage.MyPooling"``.

    Raises
    ------
    ConfigError
        For another name; the message gives the nearest one.

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
    """All names that `method_settings` knows but those of three settings.

    Examples
    --------
    >>> "midam-att" in method_names(), "midam-max" in method_names()
    (True, False)
    """
    return [
        f"{prefix}-{pool}"
        for prefix, (estimator, _) in _PREFIXES.items()
        for pool, pooling in _POOLINGS.items()
        if POOLINGS.find(pooling).statistic.trackable or not ESTIMATORS.find(estimator).needs_trackable
    ]
