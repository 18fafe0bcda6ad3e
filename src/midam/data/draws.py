"""Draws of a step: its bags, from queues by class or site, and the instances of a bag, by one of several rules.

Instances are drawn uniformly, or by the last remembered score of each.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.data.score_memory import ScoreMemory, first_largest
from midam.data.validate import check_length, other_data
from midam.errors import ConfigError

_STEP_COST = 3  # cost of an instance in a step (forward and backward), in forward passes
_CONTEST = 256  # at most so many instances compete
_LATE_CONTEST = 128  # the same once the contest is whole, next to the candidates of the last pass
_VALUES_AT_A_TIME = 2**22
_WEIGHED = 2**13
_NEVER = np.float32(1e5)  # beyond any remembered logit


class ClassQueue:
    """Endless queue of the bags of one class in random order."""

    def __init__(self, members: NDArray[np.int64], *, seed: int, purpose: tuple[int, ...]) -> None:
        self._members, self._queue = members, members[:0]
        self._seed, self._purpose, self._shuffles = seed, purpose, 0

    def __len__(self) -> int:
        return len(self._members)

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as the class has."""
        taken, self._queue = self._queue[:count], self._queue[count:]
        missing = count - len(taken)
        if missing:
            fresh = generator(self._seed, self._shuffles, *self._purpose).permutation(self._members)
            self._shuffles += 1
            # Bags of this batch that come early in the new permutation keep their turn: they head the queue.
            unused = np.flatnonzero(~np.isin(fresh, taken))[:missing]
            taken = np.concatenate([taken, fresh[unused]])
            self._queue = np.delete(fresh, unused)
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"shuffles": self._shuffles, "queue": torch.from_numpy(self._queue.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        queue = np.array(state["queue"].numpy(), dtype=np.int64)
        if not np.isin(queue, self._members).all():
            raise other_data("a sampler state of these bags", "one of other bags")
        self._queue, self._shuffles = queue, int(state["shuffles"])


class Turns:
    """Endless queue that takes from several queues in turn; messages call these queues `kind`."""

    def __init__(self, queues: "Sequence[Queue]", kind: str) -> None:
        self._queues, self._kind, self._turn = queues, kind, 0

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as there are.

        A queue with fewer bags than its turns gives all of them; the others give the rest.
        """
        remaining = np.array([len(queue) for queue in self._queues])
        counts = np.zeros_like(remaining)
        while counts.sum() < count:
            number = self._turn % len(remaining)
            self._turn += 1
            if remaining[number]:
                remaining[number] -= 1
                counts[number] += 1
        return np.concatenate([queue.take(share) for queue, share in zip(self._queues, counts.tolist()) if share])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"turn": self._turn, "queues": [queue.state_dict() for queue in self._queues]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        if len(state["queues"]) != len(self._queues):
            raise other_data(f"a sampler state of {len(self._queues)} {self._kind}", len(state["queues"]))
        for queue, queue_state in zip(self._queues, state["queues"]):
            queue.load_state_dict(queue_state)
        self._turn = int(state["turn"])


class Classes:
    """Queue of the bags of two classes; a step takes the positive bags first."""

    def __init__(self, positive: "Queue", negative: "Queue", num_positive: int) -> None:
        self._queues, self._num_positive = {"positive": positive, "negative": negative}, num_positive

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags."""
        counts = (self._num_positive, count - self._num_positive)
        return np.concatenate([queue.take(share) for queue, share in zip(self._queues.values(), counts)])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {name: queue.state_dict() for name, queue in self._queues.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        for name, queue in self._queues.items():
            queue.load_state_dict(state[name])


Queue = ClassQueue | Turns


def queue_of(members: NDArray[np.int64], sites: NDArray[np.int64] | None, *, seed: int, purpose: int) -> Queue:
    """Return the queue of the bags of a class; with `sites` [N] of all bags, the sites take turns."""
    if sites is None:
        return ClassQueue(members, seed=seed, purpose=(purpose,))
    site_of = sites[members]
    # numpy ignores a 0 at the end of a seed: sites count from 1.
    numbers = np.unique(site_of).tolist()
    queues = [ClassQueue(members[site_of == at], seed=seed, purpose=(purpose, at + 1)) for at in numbers]
    return Turns(queues, "sites of a class")


def site_codes(sites: ArrayLike | None, count: int) -> NDArray[np.int64] | None:
    """Return the sites of `count` bags as numbers from 0; None without sites."""
    if sites is None:
        return None
    codes = np.unique(np.asarray(sites), return_inverse=True)[1]
    check_length(codes, count, "site", "memory")
    return codes


def generator(seed: int, counter: int, *purpose: int) -> np.random.Generator:
    """Return the random generator of a seed, a counter (an epoch or a shuffle) and a purpose."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, counter, *purpose])))


class Drawn(NamedTuple):
    """Instances drawn from bags, B per bag.

    `log_ratio` is ``log(n q_j)`` for draws with replacement from probabilities q, see
    `midam.functional.logmean.importance_logits`; None for uniform draws, which need no correction.

    Examples
    --------
    >>> drawn = Uniform().draw(np.array([0, 1]), np.array([9, 2]), width=3, rng=np.random.default_rng(0))
    >>> drawn.slots.shape, drawn.mask.tolist()
    ((2, 3), [[True, True, True], [True, True, False]])
    """

    slots: NDArray[np.int64]  # [..., B], positions inside the bag, in [0, n); 0 where masked
    mask: NDArray[np.bool_]  # [..., B], True where an instance was drawn; at least one per bag
    log_ratio: NDArray[np.float32] | None = None  # [..., B]


class Draw:
    """Base of the draw rules.

    A rule that is made by name gets the arguments that its constructor names: ``num_instances`` (B), ``num_bags``,
    ``sizes`` (int64 [N], instances of each bag), ``seed``, and any other setting.

    Attributes
    ----------
    remembers : bool
        Whether the rule depends on the last scores of the instances, which its `memory` holds.
    memory : ScoreMemory or None
        Training writes the logit of each instance that a step has encoded here, and fills the memory again when
        `pass_due` says so.

    Examples
    --------
    A custom rule, the first B instances of each bag:

    >>> class First(Draw):
    ...     def draw(self, bags, sizes, *, width, rng):
    ...         mask = np.arange(width) < sizes[..., None]
    ...         return Drawn(np.where(mask, np.arange(width), 0), mask)
    >>> from midam.data import BagSampler
    >>> sampler = BagSampler([1, 0], [5, 2], num_positive=1, num_negative=1, num_instances=3, draw=First())
    >>> sampler.epoch().slots.tolist()
    [[[0, 1, 2], [0, 1, 0]]]
    """

    remembers: ClassVar[bool] = False
    memory: ScoreMemory | None = None

    def pass_due(self, epoch: int) -> bool:  # noqa: ARG002
        """Return whether epoch `epoch` (from 0) begins with a pass over all bags that fills the memory."""
        return False

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for the draws of epoch `epoch` (from 0)."""

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:
        """Draw the instances of an epoch.

        `bags` and `sizes` [T, K] are the positions of each step's bags in the training set and their numbers of
        instances, `width` is B, at most the largest size; `rng` is the same for the same seed and epoch.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from besides seed and epoch: tensors, numbers, strings, lists and dictionaries."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""

    def diagnose(self, bags: NDArray[np.int64], drawn: Drawn) -> dict[str, float]:  # noqa: ARG002
        """Return metrics of an epoch's draws by name (NaN: none), the columns of metrics.csv; called after `draw`."""
        return {}


class Uniform(Draw):
    """Draw rule: min(n, B) distinct instances, uniformly."""

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:  # noqa: ARG002
        """Draw the instances of an epoch."""
        return Drawn(*uniform_slots(sizes, width, rng))


def uniform_slots(
    sizes: ArrayLike, num_instances: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw min(n, B) distinct positions of each bag of n >= 1 instances (`sizes` [...]), uniformly.

    Returns slots [..., B], ascending and 0 where masked, and a mask [..., B], True for the first min(n, B). Floyd's
    algorithm (Bentley and Floyd, CACM 30(9), 1987) over all bags at once takes B rounds of random numbers.
    """
    shape = np.shape(sizes)
    size = np.asarray(sizes, dtype=np.int64).reshape(-1)
    counts = np.minimum(size, num_instances)
    short = bool((counts < num_instances).any())
    # An undrawn place holds the largest int64: it matches no position and sorts last.
    slots = np.full((len(size), num_instances), np.iinfo(np.int64).max)
    lasts = np.maximum(size - counts + np.arange(num_instances)[:, None], 0)
    candidates = rng.integers(0, lasts, endpoint=True)
    for number, (last, candidate) in enumerate(zip(lasts, candidates)):
        repeated = (slots[:, :number] == candidate[:, None]).any(axis=1)
        slot = np.where(repeated, last, candidate)
        slots[:, number] = np.where(number < counts, slot, slots[:, number]) if short else slot
    slots.sort(axis=1)
    mask = np.arange(num_instances) < counts[:, None]
    if short:
        slots[~mask] = 0
    return slots.reshape(*shape, num_instances), mask.reshape(*shape, num_instances)


class Top(Draw):
    """Draw rule: a share of the draw wins a contest by remembered logits, the rest is uniform; biased on purpose.

    In a contest, m instances of the bag compete, and those with the highest remembered logits are drawn. At first only
    as many compete as are drawn, so that the draw is uniform; over the fraction `grow` of the epochs, the contest grows
    geometrically to the whole bag (at most 256 instances). From then on, in bags of more than 128 instances, the 64
    highest of the last pass, if there was one, compete with 128 instances of the bag. A bag of at most B instances is
    taken whole.

    Parameters
    ----------
    sizes : int64 array [N]
        Instances of each bag.
    num_instances : int
        B.
    epochs : int
        Epochs of the training.
    share : float
        Share of the draw that comes from the contest, in (0, 1].
    grow : float
        Fraction of the epochs, in [0, 1], over which the contest grows; 0: it is whole from the start.
    refresh : int, optional
        Epochs from one pass over all bags, which fills the memory again, to the next; the first epoch begins with a
        pass. Default: pass when the logits have moved by more than `stale` and `pass_budget` allows the cost.
    stale : float
        Movement of the logits of the last draws, in their standard deviations, above which the memory is stale.
    pass_budget : float
        Highest cost of all passes, as a fraction of the cost of all steps so far, counted in encoded instances; a
        backward pass counts as two. 0: no passes, so that the memory holds only logits of the steps.
    """

    remembers = True
    memory: ScoreMemory

    def __init__(
        self,
        *,
        sizes: NDArray[np.int64],
        num_instances: int,
        epochs: int,
        share: float = 0.9,
        grow: float = 0.7,
        refresh: int | None = None,
        stale: float = 0.1,
        pass_budget: float = 0.25,
    ) -> None:
        if refresh is not None and refresh < 1:
            raise ConfigError(f"Expected refresh of at least 1 epoch, got {refresh}; leave it out to use pass_budget.")
        for name, value in {"stale": stale, "pass_budget": pass_budget}.items():
            if not value >= 0:
                raise ConfigError(f"Expected {name} of at least 0, got {value}; choose another.")
        if not 0 < share <= 1:
            raise ConfigError(f"Expected share in (0, 1], a fraction of the sample, got {share}; choose another.")
        if not 0 <= grow <= 1:
            raise ConfigError(f"Expected grow in [0, 1], a fraction of the epochs, got {grow}; choose another.")
        self.memory = ScoreMemory(sizes)
        self.refresh, self.stale, self.pass_budget = refresh, stale, pass_budget
        self.share, self._grown_at = share, grow * epochs
        self._num_instances, self._passes, self._passed_at = num_instances, 0, 0
        self._epoch = 0
        self._needed = bool((self.memory.sizes > num_instances).any())

    def pass_due(self, epoch: int) -> bool:
        """Return whether epoch `epoch` begins with a pass; see `refresh`."""
        if not self._needed:
            return False
        if self.refresh is not None:
            return epoch % self.refresh == 0
        num_drawn = np.minimum(self.memory.sizes, self._num_instances).sum()
        cost = (self.memory.passes + 1) * int(self.memory.sizes.sum())
        affordable = cost <= self.pass_budget * _STEP_COST * int(num_drawn) * epoch
        return self.memory.drift > self.stale and bool(affordable)

    def begin_epoch(self, epoch: int) -> None:
        """Note a new pass."""
        if self._passes < self.memory.passes:
            self._passes, self._passed_at = self.memory.passes, epoch
        self._epoch = epoch

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:
        """Draw the instances of an epoch."""
        slots, mask = uniform_slots(sizes, width, rng)
        larger = sizes > width
        if larger.any():
            count = max(1, round(self.share * width))
            parts = [self._mined(bags[larger], count, rng), uniform_slots(sizes[larger], width - count, rng)[0]]
            slots[larger] = np.sort(np.concatenate(parts, axis=1), axis=1)
        return Drawn(slots, mask)

    def _mined(self, bags: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        per_bag = _CONTEST + self.memory.candidates.shape[1]
        parts = np.array_split(bags, -(-len(bags) * per_bag // _VALUES_AT_A_TIME))
        return np.concatenate([self._contest(part, count, rng) for part in parts])

    def _contest(self, bags: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the `count` highest remembered instances of each bag's contest, [V, count]."""
        sizes = self.memory.sizes[bags]
        grown = 1.0 if self._epoch >= self._grown_at else self._epoch / self._grown_at
        late = grown == 1 and self.memory.passes > 0
        entries = np.rint(count * (sizes / count) ** grown).astype(np.int64)
        entries = np.clip(entries, count, np.minimum(sizes, max(count, _LATE_CONTEST if late else _CONTEST)))
        slots, valid = _spread(sizes, entries, rng)
        joined = entries < sizes  # in other bags all instances compete already
        if late and joined.any():
            best = self.memory.candidates[bags].astype(np.int64)
            # A candidate that was drawn into the contest by chance competes once.
            place = -(-(best + 1) * entries[:, None] // sizes[:, None]) - 1
            twice = (np.take_along_axis(slots, place, axis=1) == best) & joined[:, None]
            valid[np.nonzero(twice)[0], place[twice]] = False
            joins = np.broadcast_to(joined[:, None], best.shape)
            slots, valid = np.concatenate([slots, best], axis=1), np.concatenate([valid, joins], axis=1)
        values = self.memory.at(bags, slots)
        # Instances that were never seen come last, in any order.
        values = np.where(values > -np.inf, values, -_NEVER * (1 + rng.random(values.shape, dtype=np.float32)))
        values[~valid] = -np.inf
        return np.take_along_axis(slots, first_largest(values, count), axis=1)

    def diagnose(self, bags: NDArray[np.int64], drawn: Drawn) -> dict[str, float]:
        """Return the share of a bag's weight in a draw, the epochs since the last pass, and the memory's drift.

        The share is a mean over the first draws of the epoch, whose bags hold 8192 instances together.
        """
        flat_bags = bags.reshape(-1)
        few = max(1, int(np.searchsorted(np.cumsum(self.memory.sizes[flat_bags]), _WEIGHED)))
        draws = zip(flat_bags[:few].tolist(), _rows(drawn.slots), _rows(drawn.mask))
        shares = [self._share(bag, np.unique(slots[mask])) for bag, slots, mask in draws]
        age = float(self._epoch - self._passed_at) if self.memory.passes else float("nan")
        return {"drawn_weight": float(np.mean(shares)), "memory_age": age, "memory_drift": self.memory.drift}

    def _share(self, bag: int, slots: NDArray[np.int64]) -> float:
        log_sum = self.memory.bag_log_sum(bag)
        weights = np.exp(self.memory.at(np.array([bag]), slots[None]) - log_sum) if log_sum > -np.inf else np.zeros(1)
        return float(weights.sum())

    def state_dict(self) -> dict[str, Any]:
        """Return the memory, and the epoch of the last pass."""
        return {"memory": self.memory.state_dict(), "passed_at": self._passed_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.memory.load_state_dict(state["memory"])
        self._passes, self._passed_at = self.memory.passes, int(state["passed_at"])


def _spread(
    sizes: NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw `counts` distinct positions of each bag, one from each of as many equal parts: [V, S], and their mask."""
    column = np.arange(int(counts.max()))
    valid = column < counts[:, None]
    edges = np.arange(len(column) + 1) * sizes[:, None] // counts[:, None]
    low, high = edges[:, :-1], edges[:, 1:]
    slots = low + (rng.random(low.shape) * (high - low)).astype(np.int64)
    return np.where(valid, slots, 0), valid


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1, array.shape[-1])
