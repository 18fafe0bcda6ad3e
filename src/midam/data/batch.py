"""Batches of bags: sampled ones (a few instances per bag, static shapes) and whole ones (read in chunks).

`BagDataset` and `BalancedBags` are for any torch loop.
"""

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data import Sampler as TorchSampler

from midam.data.bags import Bags
from midam.data.column_codes import refuse_columns
from midam.data.on_disk import Rows, on_disk, read_ahead, require_memory
from midam.data.sampling import BagSampler, EpochPlan, Sampler
from midam.data.validate import LARGEST, MOST, as_array, binary_labels, in_bag_order, refuse_other_order, row_chunks
from midam.errors import BagDataError, ConfigError, require_counts
from midam.functional import objectives
from midam.functional.objectives import ClassWeights
from midam.process_group import Ranks

# Types that torch has few or no operations for, and the type that holds the same numbers.
_WIDER = {"u2": np.int32, "u4": np.int64, "u8": np.int64, "f16": np.float64, "f12": np.float64}
Extra = TypeVar("Extra")

_WORKERS_ON_DISK = 2


class InstanceReader:
    """Reader of the instances of a `Bags` by flat position, as tensors on one device.

    Parameters
    ----------
    bags : Bags
        In memory or on disk.
    device : torch.device or str, default "cpu"
        Where the tensors go.
    resident : bool, optional
        Keep all instances on the device; raise a `ConfigError` if they do not fit. Default: on the CPU, keep instances
        that are in memory; on a CUDA device, keep instances that take less than half of its free memory.
    transform : callable, optional
        Function of the instances [M, ...]: applied once to resident instances, otherwise at each read.
    workers : int >= 0, optional
        Threads with which `stream` reads ahead instances that are not resident. Default: 2 for instances on disk, else
        0.

    Attributes
    ----------
    starts, sizes : Tensor [N], int64, CPU
        Flat position of each bag's first instance, as this reader counts, and number of instances of each bag.
    waited_s : float
        Seconds that callers have waited for instances that are not resident.
    transforms : bool
        Whether a `transform` was given.
    all : Tensor [M, ...] or None
        The resident tensor of all instances, if there is one.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0], [2.0], [3.0]], [[4.0]]])
    >>> reader = InstanceReader(bags, transform=lambda x: x / 2)
    >>> reader.starts.tolist(), reader.sizes.tolist()
    ([0, 3], [3, 1])
    >>> reader.rows(torch.tensor([3, 0])).tolist()
    [[2.0], [0.5]]
    """

    def __init__(
        self,
        bags: Bags,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
        workers: int | None = None,
    ) -> None:
        refuse_columns(bags, "a training or a model")
        self.device = torch.device(device)
        self._array = bags.instances
        self.transforms = transform is not None
        self._transform = transform or (lambda x: x)
        self.starts, self.sizes = torch.from_numpy(bags.starts), torch.from_numpy(bags.sizes)
        self.workers = (_WORKERS_ON_DISK if on_disk(self._array) else 0) if workers is None else workers
        self.waited_s = 0.0
        stored, on_gpu = on_disk(self._array), self.device.type == "cuda"
        # Of a store these bags alone are kept, since it may hold more; what a transform returns is float32 at least.
        number_bytes = max(self._array.itemsize, 4 if self.transforms else 1)
        needed = (bags.num_instances if stored else len(self._array)) * math.prod(bags.instance_shape) * number_bytes
        if resident is None:
            resident = 2 * needed < torch.cuda.mem_get_info(self.device)[0] if on_gpu else not stored
        elif resident and (stored or on_gpu):
            require_memory(needed, device=self.device, source=bags.source)
        self.all: Tensor | None = self._loaded(bags) if resident else None
        if resident and stored:
            self.starts = torch.cumsum(self.sizes, 0) - self.sizes

    def holds(self, bags: Bags) -> bool:
        """Return whether this reader keeps the instances of `bags` in memory."""
        return self.all is not None and bags.instances is self._array and not on_disk(self._array)

    def over(self, bags: Bags) -> "InstanceReader":
        """Return a reader of other bags whose instances this reader holds; both share them."""
        other = copy(self)
        other.starts, other.sizes, other.waited_s = torch.from_numpy(bags.starts), torch.from_numpy(bags.sizes), 0.0
        return other

    def rows(self, positions: Tensor) -> Tensor:
        """Return the instances [M, ...] at flat positions [M] (int64, CPU), on the device."""
        if self.all is not None:
            return self.all.index_select(0, positions.to(self.device))
        started = time.perf_counter()
        x = self._transform(self._fetch(positions).to(self.device, non_blocking=True))
        self.waited_s += time.perf_counter() - started
        return x

    def stream(self, jobs: Iterable[tuple[Tensor, Extra]]) -> Generator[tuple[Tensor, Extra, Tensor], None, None]:
        """Yield each job (flat positions [M], anything) with its instances [M, ...] on the device, in order.

        The workers read ahead instances that are not resident.
        """
        if self.all is not None:
            for positions, extra in jobs:
                yield positions, extra, self.rows(positions)
            return
        with closing(read_ahead(jobs, lambda job: self._fetch(job[0]), workers=self.workers)) as ahead:
            while True:
                started = time.perf_counter()
                item = next(ahead, None)
                self.waited_s += time.perf_counter() - started
                if item is None:
                    return
                (positions, extra), read = item
                x = self._transform(read.to(self.device, non_blocking=True))
                del item, read
                yield positions, extra, x
                del x

    def _fetch(self, positions: Tensor) -> Tensor:
        """Return the instances at flat positions on the CPU, pinned for a GPU; safe to call from any thread."""
        index = positions.numpy()
        # Both calls let other Python threads run meanwhile; indexing with brackets does not.
        values = self._array.take(index) if isinstance(self._array, Rows) else np.take(self._array, index, axis=0)
        x = instance_tensor(np.asarray(values))
        return x.pin_memory() if self.device.type == "cuda" else x

    @torch.no_grad()
    def _loaded(self, bags: Bags) -> Tensor | None:
        """Return all instances in memory, or those of these bags alone of a store, one after the other."""
        whole: Tensor | None = None
        filled, starts, sizes = 0, bags.starts, bags.sizes
        if not on_disk(self._array):
            if not self.transforms:
                return instance_tensor(np.asarray(self._array)).to(self.device)
            starts, sizes = np.array([0]), np.array([len(self._array)])
        for first, last in row_chunks(self._array, starts, sizes):
            part = self._transform(instance_tensor(np.array(self._array[first:last])).to(self.device))
            whole = part.new_empty((int(sizes.sum()), *part.shape[1:])) if whole is None else whole
            whole[filled : filled + len(part)] = part
            filled += len(part)
        return whole


@dataclass(frozen=True)
class Step:
    """All K bags of a step, of which each of several processes has a part."""

    index: Tensor  # int64 [K], positions of the bags in the training set, on the reader's device
    labels: Tensor  # [K] or [K, L]


@dataclass(frozen=True)
class SampledBatch:
    """K bags with B drawn instances each; with several processes, the bags of this process.

    Examples
    --------
    >>> from midam.data import BagSampler
    >>> bags = Bags.from_list([np.ones((5, 4)), np.zeros((3, 4)), np.zeros((9, 4))], labels=[1, 0, 0])
    >>> sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=2)
    >>> batch = next(sampled_batches(InstanceReader(bags), sampler, torch.tensor([1.0, 0.0, 0.0])))
    >>> batch.x.shape, batch.labels
    (torch.Size([4, 4]), tensor([1., 0.]))
    """

    x: Tensor  # [K * B, ...], drawn instances, bag after bag
    index: Tensor  # int64 [K], positions of the bags in the training set (rows of the bag state)
    labels: Tensor  # [K], 0 or 1, or [K, L] for another target
    sizes: Tensor  # [K], numbers of instances n_i of the whole bags
    mask: Tensor | None = None  # bool [K, B], True for slots that hold an instance; None: all do
    class_weights: ClassWeights | None = None  # in the dtype of the scores; None: the objective computes them
    may_be_whole: bool = True  # False: each bag is larger than its draw
    covariates: Tensor | None = None  # [K, P], encoded, on the reader's device
    step: Step | None = None  # with several processes


@dataclass(frozen=True)
class WholeBatch:
    """K whole bags, read chunk by chunk.

    Examples
    --------
    Two bags with 3 instances and 1, read in chunks of two instances:

    >>> bags = Bags.from_list([[[1.0], [2.0], [3.0]], [[4.0]]])
    >>> batch = WholeBatch.unlabeled(InstanceReader(bags), torch.tensor([0, 1]))
    >>> for _, bag, x in batch.read(2):
    ...     print(bag.tolist(), x.flatten().tolist())
    [0, 0] [1.0, 2.0]
    [0, 1] [3.0, 4.0]
    """

    reader: InstanceReader  # of the set that holds the bags
    index: Tensor  # int64 [K], CPU, positions of the bags in that set
    labels: Tensor  # [K] or [K, L], on the reader's device
    class_weights: ClassWeights | None = None  # as in `SampledBatch`
    covariates: Tensor | None = None  # as in `SampledBatch`
    step: Step | None = None  # as in `SampledBatch`

    @classmethod
    def unlabeled(cls, reader: InstanceReader, index: Tensor, covariates: Tensor | None = None) -> "WholeBatch":
        """Return the batch of a reader's bags at positions [K], to be scored; `covariates` [N, P] are of all bags."""
        batch_covariates = None if covariates is None else covariates[index.to(covariates.device)]
        return cls(reader, index, torch.zeros(len(index)), covariates=batch_covariates)

    @property
    def starts(self) -> Tensor:
        """First flat position of each bag [K]."""
        return self.reader.starts[self.index]

    @property
    def sizes(self) -> Tensor:
        """Number of instances of each bag [K]."""
        return self.reader.sizes[self.index]

    def chunks(self, chunk_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield flat positions [m] of the bags' instances, and the bag (0 to K-1) of each; m <= `chunk_size`."""
        ends = torch.cumsum(self.sizes, 0)
        shift = self.starts - ends + self.sizes
        total = int(ends[-1])
        for low in range(0, total, chunk_size):
            ordinal = torch.arange(low, min(low + chunk_size, total))
            segment = torch.searchsorted(ends, ordinal, right=True)
            yield shift[segment] + ordinal, segment

    def read(self, chunk_size: int) -> Generator[tuple[Tensor, Tensor, Tensor], None, None]:
        """Yield `chunks`, each with its instances [m, ...] on the reader's device."""
        return self.reader.stream(self.chunks(chunk_size))


def sampled_batches(
    reader: InstanceReader,
    sampler: Sampler,
    labels: Tensor,
    covariates: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    ranks: Ranks | None = None,
) -> Generator[SampledBatch, None, None]:
    """Yield one epoch of batches of the training set, from a sampler that was made with `num_instances`.

    `labels` [N] or [N, L], encoded `covariates` [N, P] and the `weights` [N] of the bags, relative to the mean of the
    class, if any, are on the reader's device. With several processes (`ranks`), each gets a part of the bags of each
    step and reads only the instances of its part.
    """
    plan, labels, covariates, class_weights, steps = _epoch(sampler, labels, covariates, weights=weights, ranks=ranks)
    if plan.slots is None or plan.mask is None:
        raise ConfigError("Expected a sampler of instances, got a sampler of whole bags; give it num_instances.")
    sizes, device = reader.sizes[plan.bags], reader.device
    positions = reader.starts[plan.bags].unsqueeze(-1) + plan.slots
    index, counts = plan.bags.to(device), sizes.to(device, labels.dtype)
    small = bool((sizes <= plan.slots.shape[-1]).any())
    optional = (None if plan.mask.all() else plan.mask.to(device), covariates)
    with closing(reader.stream(zip(positions.flatten(1).unbind(), range(len(plan))))) as read:
        for _, at, x in read:
            mask, values = (None if part is None else part[at] for part in optional)
            yield SampledBatch(x, index[at], labels[at], counts[at], mask, class_weights[at], small, values, steps[at])


def whole_batches(
    reader: InstanceReader,
    sampler: Sampler,
    labels: Tensor,
    covariates: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    ranks: Ranks | None = None,
) -> Generator[WholeBatch, None, None]:
    """Yield one epoch of whole batches, as `sampled_batches` with a sampler made without `num_instances`."""
    plan, labels, covariates, class_weights, steps = _epoch(sampler, labels, covariates, weights=weights, ranks=ranks)
    for at, bags in enumerate(plan.bags):
        values = None if covariates is None else covariates[at]
        yield WholeBatch(reader, bags, labels[at], class_weights[at], values, steps[at])


def _epoch(
    sampler: Sampler, labels: Tensor, covariates: Tensor | None, *, weights: Tensor | None, ranks: Ranks | None
) -> tuple[EpochPlan, Tensor, Tensor | None, Sequence[ClassWeights | None], Sequence[Step | None]]:
    """Draw an epoch of T steps of K bags; return this process's part of the plan, and what is known of its bags.

    These are labels [T, K] or [T, K, L], covariates [T, K, P], the class weights of each step, None for labels
    [N, L], and all its bags, None for a single process.
    """
    plan = sampler.epoch()
    index = plan.bags.to(labels.device)
    class_weights: Sequence[ClassWeights | None] = [None] * len(plan)
    if labels.ndim == 1:  # the steps have one layout
        alike = objectives.class_weights(labels[index[0]])._replace(both=None)
        class_weights = [alike] * len(plan) if weights is None else [alike.weighted(bags) for bags in weights[index]]
    steps: Sequence[Step | None] = [None] * len(plan)
    if ranks is not None:
        steps = [Step(*pair) for pair in zip(index.unbind(), labels[index].unbind())]
        plan = plan.part(lambda x: ranks.own(x, dim=1))
        index = plan.bags.to(labels.device)
    return plan, labels[index], None if covariates is None else covariates[index], class_weights, steps


def instance_tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor of the same numbers in native byte order; unsigned integers become wider signed ones.

    Examples
    --------
    >>> instance_tensor(np.array([1, 2**32 - 1], dtype=np.uint32))
    tensor([         1, 4294967295])
    """
    kind = _WIDER.get(f"{array.dtype.kind}{array.dtype.itemsize}", array.dtype.newbyteorder("="))
    if array.dtype == np.uint64 and array.size and array.max() > LARGEST:
        raise BagDataError(f"Expected whole numbers below 2^63, got {array.max()}; convert the features to float64.")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=kind))


class BagDataset(Dataset[tuple[Tensor, Tensor, int]]):
    """Dataset of items (x [B, ...], y, index): B instances drawn from a bag, its label and its position.

    Each access draws instances uniformly and without replacement, with torch's random numbers. In a `DataLoader` its
    generator determines them, in workers too. A bag of fewer than B instances gives all of them and repeats some, so
    that no mask is needed.

    Parameters
    ----------
    bags : sequence of arrays [n_i, ...], n_i >= 1
        Each bag has a length and returns rows at increasing positions: a numpy array, a memory map, a tensor or an h5py
        dataset. Only the drawn rows are read; float64 becomes torch's default dtype.
    labels : array [N] or [N, L]
        Numbers that the loss accepts, such as 0 and 1.
    num_instances : int
        B.
    sizes : array of int [N], optional
        Numbers of instances; default: each bag is asked for its length and shape, once.
    transform : callable, optional
        Function of the tensor x [B, ...]; returns a tensor.

    Attributes
    ----------
    sizes : array of int [N]
        Numbers of instances n_i.
    labels : Tensor [N] or [N, L]

    Examples
    --------
    >>> train = BagDataset([np.zeros((50, 3)), np.ones((2, 3))], [0, 1], num_instances=4)
    >>> x, y, index = train[1]
    >>> tuple(x.shape), y.item(), index
    ((4, 3), 1, 1)
    """

    def __init__(
        self,
        bags: Sequence[Any],
        labels: ArrayLike,
        *,
        num_instances: int = 8,
        sizes: ArrayLike | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        require_counts(num_instances=num_instances)
        self.bags, self.num_instances, self.transform = bags, num_instances, transform
        refuse_other_order(bags, labels, sizes)
        values = as_array(in_bag_order(labels, bags.ids, "label") if isinstance(bags, Bags) else labels)
        known = [(len(bag), getattr(bag, "shape", None)) for bag in bags] if sizes is None else []
        self.sizes = np.array([size for size, _ in known] if sizes is None else sizes, dtype=int).reshape(-1)
        if values.dtype.kind not in "biuf" or values.shape[:1] != self.sizes.shape:
            got = f"{values.dtype} {values.shape}; give numbers"
            raise BagDataError(f"Expected a label, or a row of labels, for each of {len(self.sizes)} bags, got {got}.")
        self.labels = instance_tensor(np.array(values))
        if self.sizes.min(initial=1) < 1:
            raise BagDataError(f"Expected instances in each bag, got none (in bag {self.sizes.argmin()}); drop it.")
        shapes = [tuple(shape[1:]) for _, shape in known if shape is not None]
        for odd in [i for i, shape in enumerate(shapes) if not shape or shape != shapes[0]][:1]:
            got = f"{list(shapes[0])} and {list(shapes[odd])} (in bag {odd})"
            raise BagDataError(f"Expected bags [n, ...] whose instances have one shape, got {got}; give one row each.")

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        size = int(self.sizes[index])
        rounds, rest = divmod(self.num_instances, size)
        rows = np.sort(rng.choice(size, rest, replace=False))
        x = self._read(index, np.arange(size) if rounds else rows)
        x = torch.cat([x] * rounds + [x[torch.from_numpy(rows)]]) if rounds else x
        return x if self.transform is None else self.transform(x), self.labels[index], index

    def chunks(self, index: int, size: int = 512) -> Iterator[Tensor]:
        """Yield all instances of a bag in order, transformed, `size` at a time; for `TrackedPooling.evaluate`."""
        for first in range(0, int(self.sizes[index]), size):
            x = self._read(index, slice(first, first + size))
            yield x if self.transform is None else self.transform(x)

    def _read(self, index: int, rows: Any) -> Tensor:
        bag, size = self.bags[index], self.sizes[index]
        if isinstance(bag, list | tuple) or hasattr(bag, "iloc") or getattr(bag, "shape", [size])[0] != size:
            got = f"{type(bag).__name__} of {len(bag)} (bag {index})"
            raise BagDataError(f"Expected an array of {size} rows, got {got}; convert it, or correct `sizes`.")
        instances = bag[rows]
        x = instances if isinstance(instances, Tensor) else instance_tensor(np.array(instances))
        if x.is_floating_point():
            for wrong in x[~(x.abs() <= MOST)].tolist()[:1]:  # not NaN either
                got = f"{wrong:g} (in bag {index})"
                raise BagDataError(f"Expected finite numbers of at most 2^64, got {got}; fill missing values.")
        return x.to(torch.get_default_dtype()) if x.dtype == torch.float64 else x


class BalancedBags(TorchSampler[list[int]]):
    """Batches of S+ positive and S- negative bags, distinct within a batch: the `batch_sampler` of a `DataLoader`.

    Each class runs through a random permutation of its bags, shuffled again when it is exhausted. An epoch has
    ceil(N / (S+ + S-)) batches. With several processes, each takes its part of every batch.

    Parameters
    ----------
    labels : array of int [N]
        0 or 1.
    num_positive, num_negative : int
        S+ and S-, over all processes together.
    seed : int >= 0
        The same in all processes.
    rank, num_ranks : int
        Number of this process, from 0, and number of processes. If `num_ranks` divides S+ and S-, each process gets
        equal shares of both classes.

    Examples
    --------
    >>> labels = np.array([0, 1, 0, 1, 0, 0])
    >>> [sorted(labels[batch].tolist()) for batch in BalancedBags(labels, num_positive=1, num_negative=2)]
    [[0, 0, 1], [0, 0, 1]]
    """

    def __init__(
        self,
        labels: ArrayLike,
        *,
        num_positive: int = 8,
        num_negative: int = 8,
        seed: int = 0,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        settings: dict[str, Any] = {"num_positive": num_positive, "num_negative": num_negative, "seed": seed}
        self._sampler = BagSampler(labels, np.ones(len(binary_labels(labels)), int), num_instances=None, **settings)
        self.batch_size, self.drop_last = self._sampler.num_positive + self._sampler.num_negative, False
        if not 0 <= rank < num_ranks or self.batch_size % num_ranks:
            wanted = f"a rank below num_ranks, and num_ranks a divisor of the {self.batch_size} bags of a batch"
            raise ConfigError(f"Expected {wanted}, got {rank} of {num_ranks}; change one of them.")
        self._rank, self._num_ranks, self._left = rank, num_ranks, 0

    def __len__(self) -> int:
        return self._sampler.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._sampler.epoch().bags
        try:
            for number, batch in enumerate(batches, 1):
                self._left = len(batches) - number
                yield batch[self._rank :: self._num_ranks].tolist()
        finally:
            self._left = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from, at the end of an epoch; warn where batches of the epoch are left."""
        if self._left:
            text = f"{self._left} batches of this epoch are left: who resumes from this state goes on with the next"
            warnings.warn(f"{text}; save at the end of an epoch", stacklevel=2)
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        self._sampler.load_state_dict(state)
