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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.ranking import auroc
from midam.methods.baselines import fill, median_gamma
from midam.methods.inner_folds import fold_numbers
from midam.methods.method import ModelBaseline
from midam.nn.encoders.mlp import GaussianKernel
from midam.nn.pooling.maximum import MaxPooling, SmoothedMaxPooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.settings import usual_chunk
from midam.train.members import distinct_sorted, fit_standardizers, random_instances

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_MARKS = 10  # in one bag
_LEAST_OF_BAG = 128  # instances of a larger bag that are searched
_DOUBT = 0.02  # weight of a bag whose highest instance is below the median of negative bags


@dataclass(frozen=True, eq=False)
class Marks:
    """Instances that are taken for witnesses.

    Attributes
    ----------
    rows, bag : int64 array [m]
        Numbers of the instances, and the bag of each.
    weight : float64 array [m]
        Weight of each in a training; the weights of a bag sum to at most 1.
    """

    rows: Integers
    bag: Integers
    weight: Numbers


@dataclass(frozen=True, eq=False)
class Layout:
    """Bags as the search needs them.

    Attributes
    ----------
    first, sizes : int64 array [N]
        Number of each bag's first instance, and its number of instances.
    positive : bool array [N]
        Whether a bag is positive.
    fold : int64 array [N]
        Fold of each bag: its instances are scored by the model of the bags of all other folds.
    """

    first: Integers
    sizes: Integers
    positive: NDArray[np.bool_]
    fold: Integers

    @property
    def folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    @property
    def bag(self) -> Integers:
        """Bag of each instance [M]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def ranks(self, scores: Numbers) -> Integers:
        """Return the rank [M] of each instance in its bag by the scores [M]: 0 for the first of the highest."""
        order, bag = np.lexsort((-scores, self.bag)), self.bag
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order)) - self.first[bag]  # the order keeps bag after bag
        return ranks

    def highest(self, scores: Numbers) -> Numbers:
        """Return the highest score [N] of each bag, from scores [M] of instances."""
        return np.asarray(np.maximum.reduceat(scores, self.first))


def next_marks(layout: Layout, scores: Numbers, novelty: Numbers, *, share: float, several: bool) -> Marks:
    """Return the marks of the next round, the instance of each positive bag with the highest merit.

    The merit is the score plus `share` times the novelty, both standardized within the positive bags of a fold. A bag
    whose highest score is below the median highest score of the negative bags of its fold gets little weight: its mark
    is probably wrong, or its label is. All comparisons are within a fold, whose bags one model has scored.

    Parameters
    ----------
    layout : Layout
        The bags.
    scores, novelty : float array [M]
        Scores of the instances by models of other folds, and their novelty; only those of positive bags count.
    share : float
        Weight of the novelty, at least 0.
    several : bool
        Also mark instances that score higher than any instance of the fold's negative bags, at most ten in a bag.

    Examples
    --------
    The second instance of bag 0 scores higher than the negative bag 1, and is marked:

    >>> layout = Layout(np.array([0, 2]), np.array([2, 1]), np.array([True, False]), np.array([0, 0]))
    >>> marks = next_marks(layout, np.array([0.1, 0.9, 0.5]), np.zeros(3), share=1.0, several=False)
    >>> marks.rows.tolist(), marks.weight.tolist()
    ([1], [1.0])
    """
    of_instance, positive, highest = layout.fold[layout.bag], layout.positive[layout.bag], layout.highest(scores)
    merit, above, trust = np.full(len(scores), -np.inf), np.zeros(len(scores), dtype=bool), np.ones(len(highest))
    for fold in range(layout.folds):
        inside, rows = layout.fold == fold, positive & (of_instance == fold)
        merit[rows] = _standardized(scores[rows]) + share * _standardized(novelty[rows])
        negative = highest[inside & ~layout.positive]
        if len(negative):
            trust[inside & (highest < np.median(negative))] = _DOUBT
            above[rows] = scores[rows] > negative.max()
    rows = top_marks(layout, merit).rows
    if several:
        order = scores.copy()
        above[rows], order[rows] = True, np.inf
        rows = np.flatnonzero(above & (layout.ranks(order) < MOST_MARKS))
    bag = layout.bag[rows]
    return Marks(rows, bag, (trust / np.maximum(np.bincount(bag, minlength=len(trust)), 1))[bag])


def top_marks(layout: Layout, merit: Numbers) -> Marks:
    """Mark the first instance of the highest merit [M] in each positive bag."""
    rows = np.flatnonzero(layout.positive[layout.bag] & (layout.ranks(merit) == 0))
    return Marks(rows, layout.bag[rows], np.ones(len(rows)))


def _standardized(values: Numbers) -> Numbers:
    spread = float(values.std()) if len(values) else 0.0
    return np.asarray((values - values.mean()) / spread) if spread > 0 else np.zeros(len(values))


def pooled(layout: Layout, scores: Numbers, temperature: float) -> Numbers:
    """Return the score [N] of each bag: the highest of its instances for temperature 0, else the smoothed maximum.

    The smoothed maximum is ``t log mean exp(s / t)``, close to the mean for a large temperature t.
    """
    highest = layout.highest(scores)
    if temperature == 0:
        return highest
    sums = np.add.reduceat(np.exp((scores - highest[layout.bag]) / temperature), layout.first)
    return np.asarray(highest + temperature * np.log(sums / layout.sizes))


_ROUNDS, _LOOK = 5, 2  # most rounds of marks, and those after which the scale is chosen
_RANDOM, _HARD = 2000, 1000  # negative instances of a training: at random, and those that score highest
_CLEARLY = 0.01  # gain of AUROC for which a bag may have several marks
_STRENGTH = 10.0  # C of the machine
_MOST_MARKS = 2000  # of a training, whose time grows with the square of the marks
_REFERENCE = 2**21  # numbers in the instances that novelty is measured from
_AT_ONCE = 1024  # instances on each side whose distances are computed together
_MEDIAN_ROWS = 500
_CLIP = 3.0
_TEMPERATURES = (0.0, 0.5, 2.0, 1e3)  # of the smoothed maximum, in deviations of the scores; the last is the mean


class WitnessSearch(ModelBaseline):
    """`witness-search`: support vector machine of marked witnesses; see `midam.methods.witness_search`.

    Held-out scores of the training bags choose the scale of the features (each on its own, or one for all), whether
    novelty takes part in later marks, whether a bag may have several marks, and how instance scores are pooled.

    Parameters
    ----------
    most
        Most numbers in the instances that are searched; of larger bags, as many random instances each as this allows,
        but no fewer than 128. Default: all instances are searched.
    """

    def __init__(self, *, most: float = math.inf) -> None:
        self.most = most

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Search the witnesses, and fit the model to the marks of all bags."""
        bags = _some_instances(bags, self.most, seed=seed)
        scales = len(bags.instance_shape) == 1 and bags.instance_shape[0] > 1  # that features could share
        spaces = [_space(bags, seed=seed, shared=shared) for shared in ((False, True) if scales else (False,))]
        search = _Search(bags, seed=seed)
        result = search.best(spaces)
        machine = search.final(result)
        scale, offset, temperature = _calibrated(search.layout, result.scores)
        numbers = {
            "encoder.centers": machine.support_vectors_,
            "encoder.gamma": np.array(result.space.gamma),
            "pooling.scorer.weight": scale * machine.dual_coef_,
            "pooling.scorer.bias": scale * machine.intercept_ + offset,
        }
        if temperature > 0:
            numbers["pooling.log_tau"] = np.array(math.log(scale * temperature))
        weights = {name: torch.from_numpy(x) for name, x in numbers.items()}
        model = self.empty(bags.instance_shape, weights)
        learned = {f"standardizer.{name}": x for name, x in result.space.standardizer.state_dict().items()}
        model.load_state_dict(weights | learned)
        return model

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:
        """Return a model to be filled."""
        count = len(weights["encoder.centers"])
        encoder = GaussianKernel(math.prod(instance_shape), count)
        pooling: MaxPooling | SmoothedMaxPooling = MaxPooling(count, squash=False)
        if "pooling.log_tau" in weights:
            pooling = SmoothedMaxPooling(count, squash=False, learn_temperature=True)
        return BagScorer(encoder, pooling.double(), standardizer=_standardizer(instance_shape))


def _some_instances(bags: Bags, most: float, *, seed: int) -> Bags:
    """Return bags of about `most` numbers in all, in memory: of larger bags equally many instances, at random."""
    limit = max(_LEAST_OF_BAG, most / (len(bags) * math.prod(bags.instance_shape)))
    if bags.sizes.max() <= limit:
        return bags
    random, sizes = np.random.default_rng(seed), np.minimum(bags.sizes, int(limit))
    places = [distinct_sorted(size, kept, random) for size, kept in zip(bags.sizes.tolist(), sizes.tolist())]
    rows = bags.gather(np.concatenate(list(map(np.add, bags.starts, places))))
    return Bags(rows, sizes=sizes, labels=bags.labels, groups=bags.groups, weights=bags.weights)


@dataclass(frozen=True, eq=False)
class _Space:
    """Where instances are compared."""

    standardizer: Standardizer
    gamma: float  # of the kernel

    def map(self, x: Tensor) -> Tensor:
        """Return raw instances x [m, ...] as standardized rows [m, D], float32."""
        return cast(Tensor, self.standardizer(x)).flatten(1)


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
        fold = fold_numbers(bags, seed=seed)
        fold = np.zeros(len(bags), dtype=np.int64) if fold is None else fold
        self.layout = Layout(first, bags.sizes, labels == 1, fold)
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
        best = _better([self._rounds(result, _LOOK, share=1.0) for result in results])
        best = _better([best, self._rounds(best, _ROUNDS - _LOOK, share=1.0)])
        novel = replace(best, marks=top_marks(self.layout, best.novelty))
        best = _better([best, self._rounds(novel, _LOOK, share=0.0)])
        several = self._rounds(best, 1, share=best.share, several=True)
        return several if several.area > best.area + _CLEARLY else best

    def final(self, result: _Result) -> SVC:
        """Fit the model of instances to all marks."""
        everyone, hard = np.full(len(self._labels), -1), np.unique(np.concatenate([self._random, *result.hard]))
        for _ in range(2):
            machine = self._fit(result.space, result.marks, hard)
            _, (harder,) = self._scan(result.space, [machine], everyone)
            hard = np.union1d(hard, harder)
        return self._fit(result.space, result.marks, hard)

    def _first(self, space: _Space) -> _Result:
        """Return marks by novelty."""
        novelty = self._novelty(space)
        marks = top_marks(self.layout, novelty)
        return _Result(space, marks, novelty, [np.empty(0, np.int64)] * self.layout.folds, -1.0, novelty)

    def _rounds(self, start: _Result, count: int, *, share: float, several: bool = False) -> _Result:
        """Mark at most so many times again, until no mark changes; return the best round."""
        layout, marks, hard = self.layout, start.marks, start.hard
        best = replace(start, area=-1.0)
        if not len(hard[0]):  # the first models only look for them
            _, hard = self.one_round(start.space, marks, hard)
        for _ in range(count):
            scores, hard = self.one_round(start.space, marks, hard)
            marked = next_marks(layout, scores, start.novelty, share=share, several=several)
            area = auroc(self._labels, layout.highest(scores))
            if area > best.area:
                best = _Result(start.space, marked, scores, hard, area, start.novelty, share)
            if np.array_equal(marked.rows, marks.rows):
                break
            marks = marked
        return best

    def one_round(self, space: _Space, marks: Marks, hard: Sequence[Integers]) -> tuple[Numbers, list[Integers]]:
        """Fit the model of each fold to marks and negatives of the other folds; return its `_scan`."""
        fold, machines = self.layout.fold, list[SVC]()
        for number in range(len(hard)):
            negatives = np.union1d(self._random, hard[number])
            kept, other = fold[marks.bag] != number, fold[self._bag[negatives]] != number
            some = Marks(marks.rows[kept], marks.bag[kept], marks.weight[kept])
            machines.append(self._fit(space, some, negatives[other]))
        return self._scan(space, machines, fold)

    def _fit(self, space: _Space, marks: Marks, negatives: Integers) -> SVC:
        """Fit a machine to marks and negative instances, both of the same total weight."""
        some = distinct_sorted(len(marks.rows), min(len(marks.rows), _MOST_MARKS), np.random.default_rng(0))
        x = space.map(self._rows(np.append(marks.rows[some], negatives))).double().numpy()
        y = np.arange(len(x)) < len(some)
        weights = self._weights[np.append(marks.bag[some], self._bag[negatives])]
        weights[y] *= marks.weight[some]
        for part in (y, ~y):
            weights[part] *= len(x) / 2 / weights[part].sum()
        return SVC(C=_STRENGTH, gamma=space.gamma).fit(x, y, weights)

    @torch.no_grad()
    def _scan(self, space: _Space, machines: Sequence[SVC], fold: Integers) -> tuple[Numbers, list[Integers]]:
        """Score all instances [M] by the model of their bag's `fold`; return also the hard negatives of each model.

        They are the negative instances of other folds that score highest.
        """
        models = [_float_model(space, machine) for machine in machines]
        bias = [float(machine.intercept_[0]) for machine in machines]
        scores, at = np.empty(len(self._bag)), 0
        high = torch.full((0, len(bias)), -torch.inf)
        rows = torch.empty(0, len(bias), dtype=torch.int64)
        of_bag, positive = torch.from_numpy(fold), torch.from_numpy(self.layout.positive)
        for segment, u in self._read(space, np.arange(len(fold))):
            number = torch.arange(at, at + len(segment))
            values = torch.stack([kernel(u) @ weight for kernel, weight in models], dim=1) + torch.tensor(bias)
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
        reference = space.map(self._rows(self._reference))
        pieces = [(near, near.square().sum(dim=1)) for near in torch.split(reference, _AT_ONCE)]
        distances = list[Tensor]()
        for _, u in self._read(space, np.flatnonzero(self.layout.positive)):
            for part in torch.split(u, _AT_ONCE):
                each = [torch.addmm(square, part, near.T, alpha=-2).amin(dim=1) for near, square in pieces]
                nearest = torch.stack(each).amin(dim=0)
                distances.append((nearest + part.square().sum(dim=1)).clamp(min=0).sqrt())
        novelty = np.zeros(len(self._bag))
        novelty[self.layout.positive[self._bag]] = torch.cat(distances).numpy()
        return novelty

    def _read(self, space: _Space, bags: Integers) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield chunks of the instances of some bags: the place in `bags` of the bag of each, and rows [m, D]."""
        with closing(WholeBatch.unlabeled(self._reader, torch.from_numpy(bags)).read(self._chunk)) as chunks:
            for _, segment, x in chunks:
                yield segment, space.map(x)

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


def _float_model(space: _Space, machine: SVC) -> tuple[GaussianKernel, Tensor]:
    """Return the similarities and weights of a model in float32, which is twice as fast."""
    kernel = GaussianKernel(*machine.support_vectors_.shape[::-1])
    fill(kernel.centers, machine.support_vectors_)
    fill(kernel.gamma, np.array(space.gamma))
    return kernel.float(), torch.from_numpy(machine.dual_coef_[0]).float()


def _space(bags: Bags, *, seed: int, shared: bool) -> _Space:
    """Return the standardizer, and 1 over the median squared distance of standardized instances as gamma."""
    standardizer = _standardizer(bags.instance_shape)
    fit_standardizers([standardizer], bags, seed=seed)
    if shared:
        known = standardizer.scale[standardizer.scale.isfinite()]
        if len(known):
            standardizer.scale[standardizer.scale.isfinite()] = known.max()
    rows = standardizer(random_instances(bags, _MEDIAN_ROWS, np.random.default_rng(seed))).flatten(1)
    return _Space(standardizer, median_gamma(rows.double().numpy(), seed=seed))


def _standardizer(instance_shape: tuple[int, ...]) -> Standardizer:
    return Standardizer(instance_shape, clip=_CLIP, scaling="linear")


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
