"""Candidates of `auto`: methods by name, which are scored on held-out bags and then fitted on all bags."""

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from midam._version import __version__
from midam.data.bags import Bags
from midam.methods.inner_folds import MANY, MOST_NUMBERS
from midam.methods.method import Folds, ModelBaseline
from midam.methods.names import DEFAULT, is_shorthand, make_method, method_settings
from midam.methods.witness_search import WitnessSearch
from midam.nn.scorer import BagScorer, scorers_of
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.settings.method import are_pixels
from midam.train.side import Prepare, Trial, fit_side, train_side, train_trial, trains_side
from midam.train.trainer import Trainer

# In the order of the trials: cheap methods first.
VECTORS = ("bag-statistics-extratrees", "bag-statistics-logistic", "mean-map-svm", "embedding-networks", DEFAULT)
PIXELS = ("patch-statistics-extratrees", "rgb-logistic", DEFAULT)
SEARCH = "witness-search"  # of few bags with many instances, which no other candidate ranks well
# Mean weight of each method over real kinds of data when only inner folds decide (`python -m studies candidates`).
PRIOR = {
    "bag-statistics-extratrees": 0.34,
    "bag-statistics-logistic": 0.15,
    "mean-map-svm": 0.17,
    "embedding-networks": 0.21,
    DEFAULT: 0.13,
}
_SLOW_TREES = 10_000  # for more bags, trees are slower than networks, whose draws are limited
_MOST_DRAWS = 48_000  # bags drawn in a training, 3000 steps of 16
_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)  # shares of the epochs from which the number of epochs is chosen
_MANY_INSTANCES, _MOST_SEARCHED = 100, 2**23  # of a bag on average; numbers that the search reads
_PERFECT, _GOOD = 0.998, 0.9  # AUROC of another candidate from which a candidate is not tried
_LARGE = 2**28  # numbers in all instances; of more, held-out bags are scored after the last epoch alone


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method by name: settings for training, at `most` for a share of its epochs, or a baseline in one step.

    The number of epochs is chosen from the `shares` of those of the settings. It is not tried if the AUROC of one
    before it is at least `enough`.
    """

    name: str
    config: ResolvedSettings | None = None
    baseline: ModelBaseline | None = None
    most: float = 1.0
    shares: tuple[float, ...] = _SHARES
    enough: float = math.inf

    def held_out(
        self, bags: Bags, trials: Sequence[Trial], *, prepare: Prepare | None = None
    ) -> Iterator[NDArray[np.float64]]:
        """Train one scorer in each trial, and yield scores [A, n] in [0, 1] of the n bags that the trial holds out.

        A method that is trained in epochs scores after each of A numbers of `epochs`; NaN if a training diverged.
        `prepare` returns the bags with columns that are coded, and gaps that are filled, by the training bags of a
        trial alone; default: `bags` need none of this.
        """
        if self.baseline is None:
            return self.paths(bags, trials, prepare=prepare)
        return map(np.atleast_2d, Folds(trials, prepare).scores(bags, self.baseline.held_out))

    def paths(
        self, bags: Bags, trials: Sequence[Trial], *, member: int = 0, prepare: Prepare | None = None
    ) -> Iterator[NDArray[np.float64]]:
        """Train a scorer in each trial, and yield the scores [A, n] of its n bags after each of the `epochs`.

        Trials of up to 500 bags are trained side by side, if their instances take little memory. Of more bags, the
        first trials may show that the candidate is not worth the others.
        """
        alone, after = self._settings.replace(members=1), self.epochs
        seeded = [replace(trial, seed=member_seed(trial.seed, member)) for trial in trials]
        parts = ((some, trial) for some, part in Folds(seeded, prepare).parts(bags) for trial in part)
        numbers = len(trials) * bags.num_instances * int(np.prod(bags.instance_shape))
        side = trains_side(alone, bags) and len(bags) <= MANY and numbers <= MOST_NUMBERS
        for some in [parts] if side else ([part] for part in parts):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*a batch now holds")  # the training on all bags warns once
                one_by_one = (train_trial(alone, *part, after=after).scores for part in some)
                scores = train_side(alone, some, after=after) if side else list(one_by_one)
            yield from scores

    @property
    def epochs(self) -> list[int]:
        """Numbers of epochs to choose from, ascending."""
        return sorted({max(1, round(min(share, self.most) * self._settings.training.epochs)) for share in self.shares})

    def fit(self, bags: Bags, *, seed: int, epochs: int | None = None) -> list[BagScorer]:
        """Train on all these bags for `epochs`; the candidate's score is the mean of the returned scorers.

        Raise a `DivergedError` if a training diverges, or has climbed at a state that its bags no longer have.
        """
        if self.baseline is not None:
            return self.baseline.scorers(bags, seed=seed)
        trainer, side = Trainer(self._settings.replace(seed=seed), bags), trains_side(self._settings, bags)
        trainer = fit_side(trainer, epochs=epochs) if side else trainer.fit(epochs=epochs)
        if not trainer.states:  # as after fewer epochs than those of the settings
            trainer.check_states()
        return scorers_of(trainer.model)

    def digest(self, bags: Bags, *, seed: int) -> str:
        """Return the digest of what held-out scores depend on: bags, seed, settings and version of the library."""
        config = self.config and self.config.flat()
        inputs = json.dumps([__version__, bags.fingerprint(), seed, self.name, config], sort_keys=True)
        return hashlib.sha256(inputs.encode()).hexdigest()

    @property
    def _settings(self) -> ResolvedSettings:
        if self.config is None:
            raise TypeError(f"{self.name} has no settings")
        return self.config


def limited(config: ResolvedSettings, count: int) -> ResolvedSettings:
    """Limit the epochs of settings, for `count` bags, so that a training draws at most 48 000 bags."""
    return config.replace(epochs=min(config.training.epochs, max(1, round(_MOST_DRAWS / max(count, 1)))))


def usual_candidates(instance_shape: tuple[int, ...], count: int, instances: int = 0) -> list[Candidate]:
    """Return the candidates for `count` bags of feature vectors, or of images and volumes, with so many `instances`.

    Where a bag has hundreds of instances, a few of them may decide, which none of the usual candidates finds. The
    search for them is slow: it is tried last, and only if no other candidate ranks well.
    """
    pixels, few = are_pixels(instance_shape), count <= _SLOW_TREES
    names = PIXELS if pixels else VECTORS if few else (*VECTORS[1:], VECTORS[0])
    shares = _SHARES if instances * math.prod(instance_shape) <= _LARGE else _SHARES[-1:]
    enough = _PERFECT if count > MANY else math.inf
    made = [replace(make_candidate(name, instance_shape, count), shares=shares, enough=enough) for name in names]
    if pixels or count > MANY or instances < _MANY_INSTANCES * count:
        return made
    return [*made, Candidate(SEARCH, baseline=WitnessSearch(most=_MOST_SEARCHED), enough=_GOOD)]


def make_candidate(name: str, instance_shape: tuple[int, ...], count: int = 0) -> Candidate:
    """Return the candidate of a method for `count` bags; with 0, its epochs are not limited.

    Raises a `ConfigError` for a method that cannot be a model.
    """
    if name == DEFAULT or is_shorthand(name):
        config = Settings.from_flat({} if name == DEFAULT else dict(method_settings(name))).resolve(instance_shape)
        # Few vectors: after half of the epochs, where the learning rate falls, the scores hardly change.
        whole = name != DEFAULT or are_pixels(instance_shape) or count * config.training.epochs > _MOST_DRAWS
        return Candidate(name, config=limited(config, count), most=1.0 if whole else 0.5)
    return Candidate(name, baseline=make_method(name))
