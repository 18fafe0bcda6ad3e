"""Candidates of `auto`: methods by name, each scored on held-out bags and fitted on all."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from midam._version import __version__
from midam.compare.baselines import ModelBaseline
from midam.compare.methods import find_method
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.nn.ensemble import scorers_of
from midam.nn.scorer import BagScorer
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.settings.method import are_pixels
from midam.train.lockstep import Trial, train_trials
from midam.train.method_names import DEFAULT
from midam.train.trainer import Trainer

# In the order in which they are tried: what is cheap comes first, for a budget may leave out the rest.
VECTORS = ("bag-statistics-extratrees", "bag-statistics-logistic", DEFAULT)
PIXELS = ("patch-statistics-extratrees", "rgb-logistic", DEFAULT)
_FEW_EPOCHS = 5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method by its name: settings to train with, or a baseline that is fitted in one step."""

    name: str
    config: ResolvedSettings | None = None
    baseline: ModelBaseline | None = None

    @property
    def members(self) -> int:
        """Scorers M that are trained from different seeds."""
        return 1 if self.config is None else self.config.training.members

    def held_out(self, bags: Bags, trials: Sequence[Trial]) -> list[NDArray[np.float64]]:
        """Train M scorers a trial, as `fit` does: scores [M, n] in [0, 1] of the n bags that the trial is to score.

        NaN where a training diverged.
        """
        if self.baseline is None:
            return self._trained(bags, trials)
        models = (self.baseline.fit(bags.subset(trial.train), seed=trial.seed) for trial in trials)
        return [predict(model, bags.subset(trial.score))[None] for model, trial in zip(models, trials)]

    def fit(self, bags: Bags, *, seed: int) -> list[BagScorer]:
        """Train on all these bags: scorers of which the mean is the candidate's score."""
        if self.baseline is not None:
            return [self.baseline.fit(bags, seed=seed)]
        return scorers_of(Trainer(self._settings.replace(seed=seed), bags).fit().reported)

    def refit(self, folds: int) -> float:
        """Seconds of `fit` as a share of those of `held_out` for so many folds."""
        return 1.0 if self._together else 1 / (folds - 1)

    def digest(self, bags: Bags, *, seed: int) -> str:
        """Inputs of its held-out scores: the bags, the seed, its settings and the version of the library."""
        config = None if self.config is None else self.config.flat()
        said = json.dumps([__version__, bags.fingerprint(), seed, self.name, config], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def seconds(self, bags: Bags, trials: Sequence[Trial]) -> float:
        """Seconds that `held_out` and `fit` would take, by a few epochs or one fold of it."""
        few = trials if self._together else trials[:1]
        epochs = None
        if self.baseline is None:
            epochs = min(_FEW_EPOCHS, self._settings.training.epochs)
            self._trained(bags, few, epochs=1)  # the first training of a process is slower
        started = time.perf_counter()
        self.held_out(bags, few) if epochs is None else self._trained(bags, few, epochs=epochs)
        inner = (time.perf_counter() - started) * (1 if epochs is None else self._settings.training.epochs / epochs)
        return inner * len(trials) / len(few) * (1 + self.refit(len(trials)))

    def _trained(self, bags: Bags, trials: Sequence[Trial], *, epochs: int | None = None) -> list[NDArray[np.float64]]:
        config = self._settings if epochs is None else self._settings.replace(epochs=epochs)
        count = self.members
        seeded = [replace(trial, seed=member_seed(trial.seed, member)) for trial in trials for member in range(count)]
        found = [result.scores[-1] for result in train_trials(config.replace(members=1), bags, seeded)]
        return [np.stack(found[at : at + count]) for at in range(0, len(found), count)]

    @property
    def _settings(self) -> ResolvedSettings:
        if self.config is None:
            raise TypeError(f"{self.name} has no settings")
        return self.config

    @property
    def _together(self) -> bool:
        """Whether the trainings of all folds run in lockstep."""
        return self.config is not None and self.config.model.encoder == "mlp"


def usual_candidates(instance_shape: tuple[int, ...]) -> list[Candidate]:
    """The candidates for instances of a shape: those of feature vectors, or those of images and volumes."""
    names = PIXELS if are_pixels(instance_shape) else VECTORS
    return [make_candidate(name, instance_shape) for name in names]


def make_candidate(name: str, instance_shape: tuple[int, ...]) -> Candidate:
    """The candidate of a method's name; a `ConfigError` for a method that can be no model."""
    method = find_method(name)
    if method.baseline is None:
        return Candidate(name, config=Settings.from_flat(dict(method.settings)).resolve(instance_shape))
    if not isinstance(method.baseline, ModelBaseline):
        raise ConfigError(f"Expected a method that can be a model, got {name!r}: {method.baseline.lacks}.")
    return Candidate(name, baseline=method.baseline)
