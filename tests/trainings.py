"""Small scorers and trainings, and what tests ask of them."""

import numpy as np
import torch

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.nn.scorer import BagEnsemble
from midam.settings import Settings
from midam.train.build import build_method


def make_scorers(pooling, members=1, *, shape=(4,), columns=1, **settings):
    """An ensemble of untrained scorers, one a seed."""
    how = {"pooling": pooling, "estimator": "exact", "standardize": False, **settings}
    configs = [Settings(**how, seed=seed) for seed in range(members)]
    what = {"instance_shape": shape, "num_bags": 1, "columns": columns}
    what |= {} if columns == 1 else {"pairs": "labels"}
    return BagEnsemble([build_method(config, **what).model for config in configs])


def witness_bags(number=24, *, seed=0, width=5, largest=9, shift=2.0, ids=None):
    """Bags of 2 to `largest` - 1 instances, of which the first of a positive bag is shifted."""
    rng = np.random.default_rng(seed)
    labels = np.arange(number) % 2
    parts = []
    for label in labels:
        part = rng.normal(size=(int(rng.integers(2, largest)), width)).astype(np.float32)
        part[0] += shift * label
        parts.append(part)
    return Bags.from_list(parts, labels, ids=ids)


def covariate_bags(count, *, seed=0, missing=0.0, **more):
    """Bags of noise, and a covariate that ranks them with an AUROC of .75: a Gaussian shift of 0.954 deviations."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    age = 60 + 10 * (rng.normal(size=count) + 0.9538725524 * labels)
    age[rng.random(count) < missing] = np.nan
    parts = [rng.normal(size=(int(rng.integers(2, 6)), 3)).astype(np.float32) for _ in range(count)]
    return Bags.from_list(parts, labels, covariates={"age": age, **more})


def outcome_bags(target, number=60, *, seed=0, groups=None):
    """Bags of 2 to 5 instances, whose first feature follows what the bag is ranked by."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=number)
    parts = [rng.normal(size=(int(rng.integers(2, 6)), 3)) * 0.5 + [level, 0, 0] for level in latent]
    values, names = np.digitize(latent, [-0.5, 0.5]), ["low", "mid", "high"]
    if target == "multilabel":
        values, names = np.stack([latent > 0, latent < -0.3], axis=1).astype(float), ["p", "q"]
        values[::7, 0] = np.nan
    elif target == "continuous":
        values, names = latent, ["size"]
    elif target == "survival":
        time, names = rng.exponential(np.exp(-2 * latent)) + 1e-3, ["time", "event"]
        values = np.stack([time, rng.random(number) < 0.7], axis=1)
    outcome = TargetLabels.of(target, values, names=names)
    return Bags.from_list([part.astype(np.float32) for part in parts], outcome=outcome, groups=groups)


def bags_with(target, values, names):
    """Bags of one instance with these values."""
    return Bags.from_list(
        [[[float(i)]] for i in range(len(values))], outcome=TargetLabels.of(target, values, names=names)
    )


def train(trainer, epochs=None):
    """Train to the end, or so many epochs; returns the trainer."""
    while not trainer.finished and trainer.epoch != epochs:
        trainer.train_epoch()
    return trainer


def weights(trainer):
    """All parameters in one vector."""
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
