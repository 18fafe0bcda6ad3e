"""The paper's protocol on the tabular sets: settings, learning rates, epochs, and the results of a trial."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.ranking import auroc
from midam.methods.names import method_settings
from midam.methods.store import Row
from midam.settings import Settings
from midam.train.side import Trial, TrialResult, train_trials
from studies.engine import STATE_RATE
from studies.splits import Split

EPOCHS = 100
LRS = (0.1, 0.01, 0.001)
MARGIN = 1.0

# From the paper's text if it gives a value, else from the authors' code.
_SETTINGS: dict[str, Any] = {
    "decay_at": [0.5, 0.75],
    "momentum": 0.1,
    "weight_decay": 1e-4,
    "num_positive": 8,
    "num_negative": 8,
    "num_instances": 4,
    "dual_lr": 1.0,
    "objective_weight": "paper",
    "dual_domain": "nonnegative",
    "members": 1,
    "encoder": "mlp",
    "hidden": [],
    "dropout": 0.0,
    "standardize": True,
    "scaling": "linear",
    "clip": 10.0,
    "accelerator": "cpu",
}


def paper_config(
    method: str, *, lr: float, margin: float = MARGIN, epochs: int = EPOCHS, num_instances: int = 4
) -> Settings:
    """Return the paper's settings of a method: cross-entropy with Adam, the AUC objectives with the paper's momentum.

    Examples
    --------
    >>> config = paper_config("midam-printed-smx", lr=0.1)
    >>> config.method.temperature, config.method.state_rate, config.training.optimizer
    (0.1, 0.9, 'sgd')
    >>> paper_config("ce-att", lr=0.1).training.optimizer
    'adam'
    """
    named = method_settings(method)
    values = _SETTINGS | named | {"lr": lr, "epochs": epochs, "num_instances": num_instances}
    values["optimizer"] = "adam" if uses_no_margin(method) else "sgd"
    values |= {"state_rate": STATE_RATE} if named["estimator"] == "vrsp-printed" else {}
    values["temperature"] = 0.1 if named["pooling"] == "smoothed-max" else None
    return Settings(**values) if uses_no_margin(method) else Settings(**values, margin=margin)


def uses_no_margin(method: str) -> bool:
    """Return whether the method optimizes cross-entropy.

    Examples
    --------
    >>> uses_no_margin("ce-mb-att"), uses_no_margin("dam-att")
    (True, False)
    """
    return method_settings(method)["objective"] == "bce"


def steps(config: Settings, train: int) -> int:
    """Return the steps of a training on `train` bags.

    Examples
    --------
    >>> steps(Settings(epochs=100), 66)
    500
    """
    return config.training.epochs * -(-train // sum(config.training.batch[:2]))


def train_splits(config: Settings, bags: Bags, splits: Sequence[Split]) -> list[Row]:
    """Train one trial for each split, and return the values for the selection; scores of test bags choose nothing.

    Returns
    -------
    list of dict
        ``val_best``, ``best_epoch``, ``test_best`` at the epoch with the highest validation AUROC, the later epoch at a
        tie; ``val_last``, ``test_last``, ``train_last`` of the last epoch (the last over the points that the training
        used), None after a divergence; ``seconds`` and ``steps``.
    """
    trials = [Trial(split.train, split.score, split.seed) for split in splits]
    labels = bags.require_labels()
    return [
        _summary(result, labels, split, steps=steps(config, len(split.train)))
        for split, result in zip(splits, train_trials(config, bags, trials, after=range(1, config.training.epochs + 1)))
    ]


def epoch_aurocs(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the AUROC of each epoch [E] of scores [E, N]; NaN for an epoch with a score that is not finite.

    Examples
    --------
    >>> epoch_aurocs(np.array([0, 1]), np.array([[0.1, 0.2], [np.nan, 0.2]]))
    array([ 1., nan])
    """
    return np.array([auroc(labels, row) if np.isfinite(row).all() else np.nan for row in scores])


def part_aurocs(
    labels: NDArray[np.int64], parts: Sequence[NDArray[np.int64]], scores: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Return the AUROC of each epoch for each part of the bags, from the concatenated scores [E, N] of the parts."""
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    return [epoch_aurocs(labels[own], found) for own, found in zip(parts, np.split(scores, cuts, axis=1))]


def drop_margin(config: Settings) -> float | None:
    """Return the margin, or None for cross-entropy."""
    return None if config.method.objective == "bce" else config.method.margin


def with_lr(config: Settings, lr: float) -> Settings:
    """Return the settings at another learning rate."""
    return config.replace(lr=lr)


def _summary(result: TrialResult, labels: NDArray[np.int64], split: Split, *, steps: int) -> Row:
    count = len(split.val)
    val = epoch_aurocs(labels[split.val], result.scores[:, :count])
    test = epoch_aurocs(labels[split.test], result.scores[:, count:])
    finite = np.flatnonzero(np.isfinite(val) & np.isfinite(test))
    best = finite[np.flatnonzero(val[finite] == val[finite].max())[-1]] if len(finite) else None
    return {
        "best_epoch": None if best is None else int(best) + 1,
        "val_best": None if best is None else float(val[best]),
        "test_best": None if best is None else float(test[best]),
        "val_last": number(val[-1]),
        "test_last": number(test[-1]),
        "train_last": number(result.train_auroc[-1]),
        "seconds": result.seconds,
        "steps": steps,
    }


def number(value: float) -> float | None:
    """Return a value for JSON, or None if it is not finite."""
    return float(value) if np.isfinite(value) else None
