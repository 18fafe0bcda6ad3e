"""Short names of methods, PREFIX-POOL, as the paper's tables have them: `dam-mb-smx` is DAM (MB-smx)."""

from midam.errors import ConfigError, nearest
from midam.methods.names import is_shorthand
from midam.methods.names import method_settings as settings_of_parts
from midam.registry import ESTIMATORS, POOLINGS

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


def method_names() -> list[str]:
    """Return all names PREFIX-POOL, without the combinations of max with an estimator that needs a smooth pooling."""
    return [
        f"{prefix}-{pool}"
        for prefix, (estimator, _) in _PREFIXES.items()
        for pool, pooling in _POOLINGS.items()
        if POOLINGS.find(pooling).statistic.trackable or not ESTIMATORS.find(estimator).needs_trackable
    ]


def method_settings(name: str) -> dict[str, str]:
    """Return the settings of a short name, or of OBJECTIVE+ESTIMATOR+POOLING.

    Examples
    --------
    >>> method_settings("dam-mb-smx")
    {'pooling': 'smoothed-max', 'estimator': 'minibatch', 'objective': 'minmax-auc'}
    """
    return settings_of_parts(name if is_shorthand(name) else full_name(name))


def full_name(name: str) -> str:
    """Return OBJECTIVE+ESTIMATOR+POOLING, which `midam compare` takes, for a short name.

    Examples
    --------
    >>> full_name("midam-att")
    'minmax-auc+vrsp+attention'
    """
    known = method_names()
    if name not in known:
        raise ConfigError(f"Expected a known method, got {name!r}; {nearest(name, known)}")
    prefix, _, pool = name.rpartition("-")
    estimator, objective = _PREFIXES[prefix]
    return f"{objective}+{estimator}+{_POOLINGS[pool]}"
