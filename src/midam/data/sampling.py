"""Samplers: they select the bags of a batch (S+, S-) and draw the instances of a bag (B).

Draws come from Philox, keyed by (seed, epoch, purpose): a resume needs only the queue of each class.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from midam.data.draws import Classes, Queue, Turns, generator, queue_of, site_codes, uniform_slots
from midam.data.validate import as_array, check_length, int_array, other_data, require_both
from midam.errors import BagDataError, require_counts, require_counts_if_given

_PURPOSE_NEGATIVE, _PURPOSE_POSITIVE, _PURPOSE_SLOTS, _PURPOSE_STRATA = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """All draws of one epoch: T steps of K bags, positive ones first and distinct within a step, B instances each.

    Examples
    --------
    Two steps of one positive and one negative bag, 3 instances each; one bag holds only 2 instances:

    >>> sampler = BagSampler([1, 1, 0, 0], [5, 5, 5, 2], num_positive=1, num_negative=1, num_instances=3)
    >>> plan = sampler.epoch()
    >>> len(plan), plan.bags.shape, plan.slots.shape, int(plan.mask.sum())
    (2, torch.Size([2, 2]), torch.Size([2, 2, 3]), 11)
    """

    bags: torch.Tensor  # int64 [T, K], positions of the bags
    slots: torch.Tensor | None  # int64 [T, K, B], ascending positions in the bag, 0 where masked; None: whole bags
    mask: torch.Tensor | None  # bool [T, K, B], True where an instance was drawn; None: whole bags
    num_positive: int  # of a step

    def __len__(self) -> int:
        return len(self.bags)

    def part(self, select: Callable[[torch.Tensor], torch.Tensor]) -> "EpochPlan":
        """Return the plan of some bags of each step: `select` takes their values from those of all, [T, K, ...]."""
        columns = {name: getattr(self, name) for name in ("bags", "slots", "mask")}
        parts: dict[str, Any] = {name: None if x is None else select(x).contiguous() for name, x in columns.items()}
        return replace(self, **parts)


class Sampler:
    """Base of the samplers: draws B instances, uniformly, from each bag that a subclass selects for a step.

    Attributes
    ----------
    num_positive, num_negative, steps_per_epoch : int
        S+, S- and T in force; a step has S+ + S- bags.
    """

    num_positive: int
    num_negative: int
    _bags: Queue | Classes  # a step takes S+ + S- bags from it

    def __init__(self, sizes: ArrayLike, *, num_instances: int | None, seed: int = 0) -> None:
        self._sizes = int_array(sizes, "sizes", "memory")
        if self._sizes.min(initial=1) < 1:
            raise BagDataError(f"Expected bags of at least one instance, got a size of {self._sizes.min()}; drop it.")
        require_counts_if_given(num_instances=num_instances)
        self._seed = seed
        self._width = None if num_instances is None else min(num_instances, int(self._sizes.max(initial=1)))
        self._epoch = 0

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps T: an epoch draws at least as many bags as there are."""
        return -(-len(self._sizes) // (self.num_positive + self.num_negative))

    def epoch(self) -> EpochPlan:
        """Draw the next epoch."""
        count = self.num_positive + self.num_negative
        bags = np.array([self._bags.take(count) for _ in range(self.steps_per_epoch)], dtype=np.int64)
        slots = mask = None
        if self._width is not None:
            rng = generator(self._seed, self._epoch, _PURPOSE_SLOTS)
            slots, mask = map(torch.from_numpy, uniform_slots(self._sizes[bags], self._width, rng))
        self._epoch += 1
        return EpochPlan(torch.from_numpy(bags), slots, mask, self.num_positive)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from: epoch, and queue and number of shuffles of each class."""
        return {"epoch": self._epoch, "num_bags": len(self._sizes), **self._bags.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        if state["num_bags"] != len(self._sizes):
            raise other_data(f"the sampler state of {len(self._sizes)} bags", f"one of {state['num_bags']}")
        self._bags.load_state_dict(state)
        self._epoch = int(state["epoch"])


class BagSampler(Sampler):
    """Draw batches of S+ positive and S- negative bags, and B instances of each bag.

    An epoch has T = ceil(N / (S+ + S-)) steps. Each class runs through a random permutation, shuffled again when it is
    exhausted, so the visits of two bags of a class differ by at most one.

    Parameters
    ----------
    labels, sizes : array of int, shape [N]
        Label 0 or 1, and number of instances, of each bag.
    num_positive, num_negative : int, default 8
        Positive (S+) and negative (S-) bags of a step; a smaller class gives all its bags, with one warning.
    num_instances : int or None
        Instances drawn from a bag of n (B): min(n, B) distinct ones, uniformly. None: whole bags.
    seed : int >= 0, default 0
        Seed of the draws.
    sites : array [N], optional
        Site of each bag: the sites of a class then take turns, each with its bags in random order, so that bags of
        small sites are drawn more often. A site with fewer bags than its turns in a step gives all of them; the others
        give the rest. Default: no turns.

    Attributes
    ----------
    num_positive, num_negative, steps_per_epoch : int
        S+, S- and T in force.

    Raises
    ------
    OneClassError, ConfigError
        If a class is missing, or a number is out of range.

    Examples
    --------
    >>> sampler = BagSampler([1, 1, 0, 0, 0], [9, 9, 9, 9, 2], num_positive=1, num_negative=2, num_instances=3)
    >>> plan = sampler.epoch()
    >>> tuple(plan.bags.shape), tuple(plan.slots.shape)
    ((2, 3), (2, 3, 3))
    """

    def __init__(
        self,
        labels: ArrayLike,
        sizes: ArrayLike,
        *,
        num_positive: int = 8,
        num_negative: int = 8,
        num_instances: int | None,
        seed: int = 0,
        sites: ArrayLike | None = None,
    ) -> None:
        require_counts(num_positive=num_positive, num_negative=num_negative)
        super().__init__(sizes, num_instances=num_instances, seed=seed)
        labels = as_array(labels)
        check_length(labels, len(self._sizes), "label", "memory")
        codes = site_codes(sites, len(labels))
        positive = queue_of(np.flatnonzero(labels == 1), codes, seed=seed, purpose=_PURPOSE_POSITIVE)
        negative = queue_of(np.flatnonzero(labels == 0), codes, seed=seed, purpose=_PURPOSE_NEGATIVE)
        self.num_positive, self.num_negative = _fit_counts(len(positive), len(negative), num_positive, num_negative)
        self._bags = Classes(positive, negative, self.num_positive)


class StrataSampler(Sampler):
    """Draw batches of S = S+ + S- bags in which strata of bags take turns, and B instances of each bag.

    A stratum with fewer bags than its turns in a step gives all of them; the others give the rest. Each stratum runs
    through a random permutation of its bags, shuffled again when it is exhausted.

    Parameters
    ----------
    strata : array of int, shape [N]
        Stratum of each bag, such as its class; with a single stratum, all bags share one permutation.
    sizes, num_instances, seed, sites
        As in `BagSampler`, with strata instead of classes.
    num_positive, num_negative : int, default 8
        Their sum is S, at most N.

    Examples
    --------
    >>> sampler = StrataSampler([0, 0, 0, 0, 1, 2], [9] * 6, num_positive=1, num_negative=2, num_instances=3)
    >>> strata = np.array([0, 0, 0, 0, 1, 2])[sampler.epoch().bags]
    >>> np.sort(strata, axis=1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """

    def __init__(
        self,
        strata: ArrayLike,
        sizes: ArrayLike,
        *,
        num_positive: int = 8,
        num_negative: int = 8,
        num_instances: int | None,
        seed: int = 0,
        sites: ArrayLike | None = None,
    ) -> None:
        require_counts(num_positive=num_positive, num_negative=num_negative)
        super().__init__(sizes, num_instances=num_instances, seed=seed)
        codes, stratum_of = np.unique(as_array(strata), return_inverse=True)
        check_length(stratum_of, len(self._sizes), "stratum", "memory")
        members = [np.flatnonzero(stratum_of == code) for code in range(len(codes))]
        site_of = site_codes(sites, len(stratum_of))
        queues = [queue_of(bags, site_of, seed=seed, purpose=_PURPOSE_STRATA + at) for at, bags in enumerate(members)]
        self._bags = Turns(queues, "strata")
        self.num_positive = min(num_positive, max(len(stratum_of) - 1, 1))
        self.num_negative = min(num_negative, max(len(stratum_of) - self.num_positive, 1))


def _fit_counts(positives: int, negatives: int, num_positive: int, num_negative: int) -> tuple[int, int]:
    """Return the numbers of positive and negative bags of a step, at most those of the classes."""
    require_both(positives, negatives, "memory")
    fitted = min(num_positive, positives), min(num_negative, negatives)
    if fitted != (num_positive, num_negative):
        warnings.warn(
            f"Expected at least {num_positive} positive and {num_negative} negative bags, got {positives} and "
            f"{negatives}; a batch now holds {fitted[0]} positive and {fitted[1]} negative bags.",
            stacklevel=4,
        )
    return fitted
