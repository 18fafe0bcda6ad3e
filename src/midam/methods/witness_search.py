"""`witness-search`: marks the instance that makes a positive bag positive, and fits a model of instances to the marks.

The first mark of a positive bag is its most novel instance, the farthest from instances of negative bags. The next mark
is the instance that a model scores highest which was trained on the marks of *other* bags: bags are split into folds,
disjoint by group, so a bag's mark never takes part in the choice of its next mark. This is repeated until no mark
changes. The idea of marks that alternate with a model is that of mi-SVM and MI-SVM (Andrews, Tsochantaridis and Hofmann
2002, Support vector machines for multiple-instance learning, NIPS), which start from all instances and mark with a
model that has seen the marks.

Each pass reads all instances once, a chunk at a time, so the time grows linearly with their number.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from scipy.special import logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.baselines import median_gamma
from midam.methods.inner_folds import units_of_bags
from midam.methods.method import ModelBaseline, Scores
from midam.methods.statistics_models import fill, fill_linear
from midam.methods.witness_marks import Integers, Layout, Marks, Numbers, next_marks, novel_marks, pooled
from midam.nn.encoders.fourier import FourierFeatures
from midam.nn.pooling.maximum import MaxPooling, SmoothedMaxPooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.settings import usual_chunk
from midam.targets import target_of
from midam.train.inputs import distinct_sorted, fit_standardizers, random_instances
from midam.train.trials import Trial

_FEATURES = 1024
_FOLDS, _ROUNDS = 5, 5
_RANDOM, _HARD = 2000, 1000  # negative instances of a training
_STRENGTH = 10.0  # C of the regression
_REFERENCE = 2**21  # numbers in the instances that novelty is measured from
_AT_ONCE = 1024  # instances on each side whose distances are computed together
_MEDIAN_ROWS = 500
_CLIP = 3.0
_TEMPERATURES = (0.0, 0.5, 2.0, 1e3)  # of the smoothed maximum, in deviations of the scores; the last is the mean


class WitnessSearch(ModelBaseline):
    """`witness-search`: logistic regression on random features of marked witnesses; see `midam.methods.witness_search`.

    Held-out scores of the training bags choose the scale of the features (each on its own, or one for all), whether
    novelty takes part in later marks, whether a bag may have several marks, and how instance scores are pooled.
    """

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the logits of the model."""
        return logit(predict(self.scorer(bags.subset(trial.train), seed=trial.seed), bags.subset(trial.score)))

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Search the witnesses, and fit the model to the marks of all bags."""
        spaces = [
            _space(bags, seed=seed, shared=shared) for shared in ((False, True) if _has_scales(bags) else (False,))
        ]
        search = _Search(bags, seed=seed)
        result = search.best(spaces)
        weight, bias = search.final(result)
        scale, offset, temperature = _calibrated(search.layout, result.scores)
        model = _empty(bags.instance_shape, shared=result.space.shared, smooth=temperature > 0)
        cast(Standardizer, model.standardizer).load_state_dict(result.space.standardizer.state_dict())
        model.encoder.load_state_dict(result.space.features.state_dict())
        pooling = cast(MaxPooling, model.pooling)
        fill_linear(pooling.scorer, scale * weight, np.array([scale * bias + offset]))
        if isinstance(pooling, SmoothedMaxPooling):
            fill(cast(Tensor, pooling.log_tau), np.array(math.log(scale * temperature)))
        return model

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:
        """Return a model to be filled."""
        shared = len(instance_shape) == 1 and "standardizer.knots" not in weights
        return _empty(instance_shape, shared=shared, smooth="pooling.log_tau" in weights)


@dataclass(frozen=True, eq=False)
class _Space:
    """Features of instances."""

    standardizer: Standardizer
    features: FourierFeatures  # float32
    shared: bool  # one scale for all features

    def map(self, x: Tensor) -> Tensor:
        """Return the features [m, F] of raw instances x [m, ...]."""
        return cast(Tensor, self.features(self.standardizer(x)))


@dataclass(frozen=True, eq=False)
class _Result:
    """Marks, and the scores from which they were made."""

    space: _Space
    marks: Marks
    scores: Numbers  # [M], of all instances by models of other folds
    hard: Sequence[Integers]  # negative instances that score high, of each fold's model
    area: float  # AUROC of the bags by the highest of these scores
    novelty: Numbers  # [M]
    share: float = 0.0


class _Search:
    """Marks the witnesses of bags."""

    def __init__(self, bags: Bags, *, seed: int) -> None:
        labels = bags.require_labels()
        first = np.cumsum(bags.sizes) - bags.sizes
        self.layout = Layout(first, bags.sizes, labels == 1, _folds(bags, seed=seed))
        self._reader, self._labels = InstanceReader(bags), labels
        self._weights = np.ones(len(bags)) if bags.weights is None else bags.weights / bags.weights.mean()
        self._chunk = 2 * usual_chunk(bags.instance_shape)
        self._bag, random = self.layout.bag, np.random.default_rng(seed)
        self._random = self._negatives(_RANDOM, random)
        self._reference = self._negatives(_REFERENCE // math.prod(bags.instance_shape), random)

    def best(self, spaces: Sequence[_Space]) -> _Result:
        """Return the result whose held-out scores rank the training bags best."""
        results = [self._first(space) for space in spaces]
        if self.layout.folds == 1:
            return results[0]
        best = _better([self._rounds(result, share=1.0) for result in results])
        best = _better([best, self._rounds(best, share=0.0, marks=novel_marks(self.layout, best.novelty))])
        return _better([best, self._rounds(best, share=best.share, several=True)])

    def final(self, result: _Result) -> tuple[Numbers, float]:
        """Fit the model of instances to all marks; return its weights [F] and its bias."""
        machine, everyone = _machine(), np.full(len(self._labels), -1)
        hard = np.unique(np.concatenate([self._random, *result.hard]))
        for _ in range(2):
            weight, bias = self._fit(machine, result.space, result.marks, hard)
            _, (harder,) = self._scan(result.space, weight[None], np.array([bias]), everyone)
            hard = np.union1d(hard, harder)
        return self._fit(machine, result.space, result.marks, hard)

    def _first(self, space: _Space) -> _Result:
        """Return the marks by novelty."""
        novelty = self._novelty(space)
        marks = novel_marks(self.layout, novelty)
        return _Result(space, marks, novelty, [np.empty(0, np.int64)] * self.layout.folds, -1.0, novelty)

    def _rounds(self, start: _Result, *, share: float, several: bool = False, marks: Marks | None = None) -> _Result:
        """Mark again and again, until no mark changes; return the best round."""
        layout, marks, hard = self.layout, marks or start.marks, start.hard
        best, machines = replace(start, area=-1.0), [_machine() for _ in hard]
        # Without hard negatives, the first models only look for them.
        for _ in range(_ROUNDS + (not len(hard[0]))):
            lines = []
            for fold, machine in enumerate(machines):
                negatives = np.union1d(self._random, hard[fold])
                other = layout.fold[self._bag[negatives]] != fold
                kept = layout.fold[marks.bag] != fold
                some = Marks(marks.rows[kept], marks.bag[kept], marks.weight[kept])
                lines.append(self._fit(machine, start.space, some, negatives[other]))
            searched = len(hard[0]) > 0
            scores, hard = self._scan(
                start.space,
                np.stack([weight for weight, _ in lines]),
                np.array([bias for _, bias in lines]),
                layout.fold,
            )
            if not searched:
                continue
            marked = next_marks(layout, scores, start.novelty, share=share, several=several)
            area = auroc(self._labels, layout.highest(scores))
            if area > best.area:
                best = _Result(start.space, marked, scores, hard, area, start.novelty, share)
            if marked.same(marks):
                break
            marks = marked
        return best

    def _fit(
        self, machine: LogisticRegression, space: _Space, marks: Marks, negatives: Integers
    ) -> tuple[Numbers, float]:
        """Fit a regression to marks and negative instances, both of the same total weight."""
        x = space.map(self._rows(np.append(marks.rows, negatives))).numpy()
        y = np.arange(len(x)) < len(marks.rows)
        weights = self._weights[np.append(marks.bag, self._bag[negatives])]
        weights[y] *= marks.weight
        for part in (y, ~y):
            weights[part] *= len(x) / 2 / weights[part].sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the marks change more than the last steps would
            machine.fit(x, y, weights.astype(np.float32))
        return machine.coef_[0].astype(np.float64), float(machine.intercept_[0])

    @torch.no_grad()
    def _scan(self, space: _Space, weight: Numbers, bias: Numbers, fold: Integers) -> tuple[Numbers, list[Integers]]:
        """Score all instances [M] by the model of their bag's `fold`; return also the hard negatives of each model.

        They are the negative instances of other folds with the highest scores. `weight` [K, F] and `bias` [K] are of
        the models.
        """
        w, b = torch.from_numpy(weight.T.astype(np.float32)), torch.from_numpy(bias.astype(np.float32))
        scores, at = np.empty(len(self._bag)), 0
        high = torch.full((0, len(bias)), -torch.inf)
        rows = torch.empty(0, len(bias), dtype=torch.int64)
        of_bag, positive = torch.from_numpy(fold), torch.from_numpy(self.layout.positive)
        with closing(self._batch().read(self._chunk)) as chunks:
            for _, segment, x in chunks:
                values, number = torch.addmm(b, space.map(x), w), torch.arange(at, at + len(segment))
                known = of_bag[segment]
                scores[at : at + len(segment)] = values.gather(1, known.clamp(min=0).unsqueeze(1)).squeeze(1).numpy()
                values[positive[segment]] = -torch.inf
                values[known.unsqueeze(1) == torch.arange(len(bias))] = -torch.inf
                every, numbers = torch.cat([high, values]), torch.cat([rows, number.unsqueeze(1).expand_as(values)])
                high, place = every.topk(min(_HARD, len(every)), dim=0)
                rows, at = numbers.gather(0, place), at + len(segment)
        return scores, [rows[:, k][high[:, k] > -torch.inf].sort().values.numpy() for k in range(len(bias))]

    @torch.no_grad()
    def _novelty(self, space: _Space) -> Numbers:
        """Return the distance [M] of each instance of a positive bag to the nearest of the reference; 0 for others."""
        reference = space.standardizer(self._rows(self._reference)).flatten(1)
        pieces = [(near, near.square().sum(dim=1)) for near in reference.split(_AT_ONCE)]
        bags = np.flatnonzero(self.layout.positive)
        distances = list[Tensor]()
        with closing(self._batch(bags).read(self._chunk)) as chunks:
            for _, _, x in chunks:
                for part in space.standardizer(x).flatten(1).split(_AT_ONCE):
                    each = [torch.addmm(square, part, near.T, alpha=-2).amin(dim=1) for near, square in pieces]
                    nearest = torch.stack(each).amin(dim=0)
                    distances.append((nearest + part.square().sum(dim=1)).clamp(min=0).sqrt())
        novelty = np.zeros(len(self._bag))
        novelty[self.layout.positive[self._bag]] = torch.cat(distances).numpy()
        return novelty

    def _batch(self, bags: Integers | None = None) -> WholeBatch:
        index = np.arange(len(self._labels)) if bags is None else bags
        return WholeBatch.unlabeled(self._reader, torch.from_numpy(index))

    def _rows(self, numbers: Integers) -> Tensor:
        """Return the raw instances of these numbers."""
        bag = self._bag[numbers]
        return self._reader.rows(self._reader.starts[bag] + torch.from_numpy(numbers - self.layout.first[bag]))

    def _negatives(self, most: int, random: np.random.Generator) -> Integers:
        """Draw at most so many instances of negative bags, without replacement."""
        rows = np.flatnonzero(~self.layout.positive[self._bag])
        return rows[distinct_sorted(len(rows), min(len(rows), max(most, 1)), random)]


def _better(results: Sequence[_Result]) -> _Result:
    """Return the first result with the greatest AUROC."""
    return max(results, key=lambda result: result.area)


def _machine() -> LogisticRegression:
    return LogisticRegression(C=_STRENGTH, max_iter=60, tol=1e-3, warm_start=True)


def _folds(bags: Bags, *, seed: int) -> Integers:
    """Return the fold of each bag, disjoint by group; 0 for all if two folds are impossible."""
    target = target_of(bags)
    values = target.values(bags)
    count = min(_FOLDS, target.most_folds(values, units_of_bags(bags)))
    if count < 2:
        return np.zeros(len(bags), dtype=np.int64)
    return target.folds(values, groups=bags.groups, folds=count, seed=seed)


def _has_scales(bags: Bags) -> bool:
    """Return whether features could share a scale."""
    return len(bags.instance_shape) == 1 and bags.instance_shape[0] > 1


def _space(bags: Bags, *, seed: int, shared: bool) -> _Space:
    """Return random features with gamma 1 over the median squared distance, of standardized instances."""
    standardizer = _standardizer(bags.instance_shape, shared=shared)
    fit_standardizers([standardizer], bags, seed=seed)
    if shared:
        known = standardizer.scale[standardizer.scale.isfinite()]
        if len(known):
            standardizer.scale[standardizer.scale.isfinite()] = known.square().mean().sqrt()
    random, size = np.random.default_rng(seed), math.prod(bags.instance_shape)
    rows = standardizer(random_instances(bags, _MEDIAN_ROWS, random)).flatten(1)
    gamma = median_gamma(rows.double().numpy(), seed=seed)
    features = FourierFeatures(size, _FEATURES)
    fill(features.directions, math.sqrt(2 * gamma) * random.standard_normal((size, _FEATURES)))
    fill(features.phases, random.uniform(0, 2 * np.pi, _FEATURES))
    return _Space(standardizer, features.float(), shared)


def _standardizer(instance_shape: tuple[int, ...], *, shared: bool) -> Standardizer:
    return Standardizer(instance_shape, clip=_CLIP, scaling="linear" if shared else "auto")


def _calibrated(layout: Layout, scores: Numbers) -> tuple[float, float, float]:
    """Return scale, offset and temperature that make a probability of held-out instance scores [M].

    The temperature is 0 for the maximum.
    """
    spread = float(scores.std()) or 1.0
    ways = [(pooled(layout, scores, t * spread), t * spread) for t in _TEMPERATURES]
    bags, temperature = max(ways, key=lambda way: auroc(layout.positive.astype(np.int64), way[0]))
    width = float(bags.std()) or 1.0
    line = LogisticRegression().fit((bags[:, None] - bags.mean()) / width, layout.positive)
    scale = max(float(line.coef_[0, 0]), 0.1) / width
    return scale, float(line.intercept_[0]) - scale * float(bags.mean()), temperature


def _empty(instance_shape: tuple[int, ...], *, shared: bool, smooth: bool) -> BagScorer:
    """Return a model to be filled."""
    encoder = FourierFeatures(math.prod(instance_shape), _FEATURES)
    pooling = (
        SmoothedMaxPooling(_FEATURES, learn_temperature=True, squash=False).double()
        if smooth
        else MaxPooling(_FEATURES, squash=False).double()
    )
    return BagScorer(encoder, pooling, standardizer=_standardizer(instance_shape, shared=shared))
