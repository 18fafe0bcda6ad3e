"""Bags for any torch loop: a dataset that draws instances, and batches that hold both classes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from midam.data.batch import instance_tensor
from midam.data.sampling import BagSampler
from midam.data.validate import MOST, as_array, binary_labels
from midam.errors import BagDataError, ConfigError, first_line, require_counts


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
        values = as_array(labels)
        try:
            known = [(len(bag), getattr(bag, "shape", None)) for bag in bags] if sizes is None else []
            self.sizes = np.array([size for size, _ in known] if sizes is None else sizes, dtype=int).reshape(-1)
        except (TypeError, ValueError, OverflowError) as error:
            raise BagDataError(f"Expected a list of arrays, one per bag ({first_line(error)}); give one.") from None
        if values.dtype.kind not in "biuf" or values.shape[:1] != self.sizes.shape:
            raise BagDataError(
                f"Expected one label, or one row of labels, for each of {len(self.sizes)} bags, got {values.dtype} "
                f"{values.shape}; give numbers, one entry per bag."
            )
        self.labels = torch.as_tensor(values)
        if self.sizes.min(initial=1) < 1:
            raise BagDataError(f"Expected instances in each bag, got none (in bag {self.sizes.argmin()}); drop it.")
        shapes = [tuple(shape[1:]) for _, shape in known if shape is not None]
        odd = next((i for i, shape in enumerate(shapes) if not shape or shape != shapes[0]), None)
        if odd is not None:
            raise BagDataError(
                f"Expected bags [n, ...] whose instances have one shape, got {list(shapes[0])} and "
                f"{list(shapes[odd])} (in bag {odd}); give all instances the same shape, one row each."
            )

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
        instances = self.bags[index][rows]
        x = instances if isinstance(instances, Tensor) else instance_tensor(np.array(instances))
        if x.is_floating_point():
            known = x.abs() <= MOST  # not NaN either
            if not known.all():
                raise BagDataError(
                    f"Expected finite numbers of at most 2^64, got {x[~known][0].item():g} (in bag {index}); fill or "
                    "drop marks of missing values."
                )
            x = x.to(torch.get_default_dtype()) if x.dtype == torch.float64 else x
        return x


class BalancedBags(Sampler[list[int]]):
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
        labels = binary_labels(labels)
        settings: dict[str, Any] = {"num_positive": num_positive, "num_negative": num_negative, "seed": seed}
        self._sampler = BagSampler(labels, np.ones(labels.shape, dtype=int), num_instances=None, **settings)
        self.batch_size, self.drop_last = self._sampler.num_positive + self._sampler.num_negative, False
        if not 0 <= rank < num_ranks or self.batch_size % num_ranks:
            raise ConfigError(
                f"Expected a rank from 0 to num_ranks - 1, and num_ranks a divisor of the {self.batch_size} bags of a "
                f"batch, got {rank} of {num_ranks}; change the rank, num_positive or num_negative."
            )
        self._rank, self._num_ranks = rank, num_ranks

    def __len__(self) -> int:
        return self._sampler.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._sampler.epoch().bags:
            yield batch[self._rank :: self._num_ranks].tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from, at the end of an epoch."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        self._sampler.load_state_dict(state)
