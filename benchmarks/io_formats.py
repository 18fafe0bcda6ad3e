"""Formats that `io.py` compares: make their files, and read a batch from them."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import zarr
from benchmarks.shared import forget
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.on_disk import ReadsName, RowFile, Rows
from midam.data.sampling import BagSampler
from midam.data.store import open_store, write_store

BATCH_BAGS, DRAWN = 16, 64

Draws = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
Run = Callable[[int], None]


@dataclass(frozen=True)
class Shape:
    """Number of bags, of rows in a bag, and of features in a row."""

    bags: int = 72
    rows: int = 5000
    width: int = 1536


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    """The drawn batches, read from one format; item k is batch k, [1024, width].

    Subclasses read rows, and open their files in the process that reads.
    """

    def __init__(self, folder: Path, draws: Draws, *, cold: bool) -> None:
        self.folder = folder
        self.draws = draws
        self.cold = cold

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, number: int) -> torch.Tensor:
        bags, slots = self.draws[number % len(self.draws)]
        if self.cold:
            self.drop(bags)
        return torch.from_numpy(self.read(bags, slots))

    def drop(self, bags: NDArray[np.int64]) -> None:
        """Drop the files of some bags from the page cache."""
        forget(itertools.chain.from_iterable(self.files(bag) for bag in bags.tolist()))

    def files(self, bag: int) -> list[Path]:
        """Return the files that contain a bag."""
        raise NotImplementedError

    def read(self, bags: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows `slots` [K, B] of `bags` [K]."""
        return np.concatenate([self.read_bag(bag, own) for bag, own in zip(bags.tolist(), slots)])

    def read_bag(self, bag: int, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows `slots` [B] of one bag."""
        raise NotImplementedError


class MemmapBatches(Batches):
    """Batches from a memory map of the store's file, without a store."""

    mapped: NDArray[Any] | None = None

    def __init__(self, folder: Path, draws: Draws, *, cold: bool) -> None:
        super().__init__(folder, draws, cold=cold)
        self.bags = open_store(folder)

    def files(self, bag: int) -> list[Path]:  # noqa: ARG002
        """Return the only file."""
        return [self.folder / "instances.npy"]

    def drop(self, bags: NDArray[np.int64]) -> None:
        """Unmap the file, and drop it from the page cache."""
        self.mapped = None
        forget(self.files(int(bags[0])))

    def read(self, bags: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of several bags by one index."""
        if self.mapped is None:
            self.mapped = np.memmap(
                self.files(0)[0], np.float16, "r", shape=(self.bags.num_instances, *self.bags.instance_shape)
            )
        return np.asarray(self.mapped[(self.bags.starts[bags][:, None] + slots).reshape(-1)])


class Hdf5Batches(Batches):
    """Batches from HDF5, with a file for each bag."""

    def files(self, bag: int) -> list[Path]:
        """Return the file of the bag."""
        return [self.folder / f"{bag:04d}.h5"]

    def read_bag(self, bag: int, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows by h5py's index."""
        return np.asarray(_dataset(self.files(bag)[0])[slots])


class ZarrBatches(Batches):
    """Batches from Zarr, with an array for each bag."""

    def files(self, bag: int) -> list[Path]:
        """Return the chunks of the bag."""
        return _chunk_files(self.folder / f"{bag:04d}.zarr")

    def read_bag(self, bag: int, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows by Zarr's orthogonal index."""
        return np.asarray(_zarr_array(self.folder / f"{bag:04d}.zarr").oindex[slots, :])


@lru_cache(maxsize=1024)
def _dataset(path: Path) -> Any:
    return h5py.File(path, "r")["features"]


@lru_cache(maxsize=1024)
def _zarr_array(path: Path) -> Any:
    return zarr.open_array(path, mode="r")


@lru_cache(maxsize=1024)
def _chunk_files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


class ColdRows(Rows):
    """A file of rows that is dropped from the page cache before each gather; each gather opens it again."""

    def __init__(self, rows: RowFile) -> None:
        self.shape, self.dtype, self._rows = rows.shape, rows.dtype, rows

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Return the instances at positions [m]."""
        forget(self._rows.paths)
        return self._fresh().gather(positions)

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Return the instances low, ..., high - 1."""
        forget(self._rows.paths)
        return self._fresh().read(low, high)

    def close(self) -> None:
        """Close the open file."""
        self._rows.close()

    def _fresh(self) -> RowFile:
        rows = self._rows
        return RowFile(rows.path, shape=rows.shape, dtype=rows.dtype, reads=rows.reads)


def make_files(folder: Path, shape: Shape) -> dict[str, Path]:
    """Write the same rows in every format, and return the folder of each format."""
    places = {
        name: folder / name for name in ("store", "hdf5-contiguous", "hdf5-row-chunks", "hdf5-auto-chunks", "zarr")
    }
    for name, place in places.items():
        if name != "store":
            place.mkdir(parents=True)
    raw = folder / "rows"
    rng = np.random.default_rng(0)
    with raw.open("wb") as file:
        for bag in range(shape.bags):
            rows = rng.standard_normal((shape.rows, shape.width), dtype=np.float32).astype(np.float16)
            rows.tofile(file)
            for name, chunks in (("contiguous", None), ("row-chunks", (1, shape.width)), ("auto-chunks", True)):
                with h5py.File(places[f"hdf5-{name}"] / f"{bag:04d}.h5", "w") as h5:
                    h5.create_dataset("features", data=rows, chunks=chunks)
            zarr.create_array(places["zarr"] / f"{bag:04d}.zarr", data=rows)
    total = shape.bags * shape.rows
    bags = Bags(
        RowFile(raw, shape=(total, shape.width), dtype="<f2"),
        starts=np.arange(shape.bags) * shape.rows,
        sizes=np.full(shape.bags, shape.rows),
        labels=np.arange(shape.bags) % 2,
    )
    write_store(bags, places["store"])
    raw.unlink()
    return {**places, "memmap": places["store"], "store-pread": places["store"]}


def draw(shape: Shape, *, epochs: int = 40) -> Draws:
    """Return the bags [16] and slots [16, 64] of the batches of some epochs."""
    labels = np.arange(shape.bags) % 2
    sampler = BagSampler(labels, np.full(shape.bags, shape.rows), num_instances=DRAWN)
    plans = [sampler.epoch() for _ in range(epochs)]
    return [pair for plan in plans if plan.slots is not None for pair in zip(plan.bags.numpy(), plan.slots.numpy())]


FORMATS: dict[str, type[Batches]] = {
    "memmap": MemmapBatches,
    "hdf5-contiguous": Hdf5Batches,
    "hdf5-row-chunks": Hdf5Batches,
    "hdf5-auto-chunks": Hdf5Batches,
    "zarr": ZarrBatches,
}
MEMBERS = ("store", "store-pread", *FORMATS)


def store_run(
    folder: Path,
    draws: Draws,
    *,
    reads: ReadsName,
    cold: bool,
    workers: int,
    on_batch: Callable[[torch.Tensor], None] | None = None,
) -> Run:
    """Return a run of the trainer's reader on the store."""
    bags = open_store(folder, reads=reads)
    if cold:
        rows = bags.instances
        assert isinstance(rows, RowFile)
        bags = Bags(ColdRows(rows), starts=bags.starts, sizes=bags.sizes)
    reader = InstanceReader(bags, workers=workers)
    positions = [torch.from_numpy((bags.starts[index][:, None] + slots).reshape(-1)) for index, slots in draws]

    def run(count: int) -> None:
        jobs = ((positions[k % len(positions)], None) for k in range(count))
        for _, _, x in reader.stream(jobs):
            if on_batch is not None:
                on_batch(x)

    return run


class _First(torch.utils.data.Sampler[int]):
    """Sampler of the first batches, as many as the run needs."""

    count = 0

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


def other_run(batches: Batches, *, workers: int) -> Run:
    """Return a run of a loop over the batches, or of torch's DataLoader with processes that persist between runs."""
    if not workers:

        def run(count: int) -> None:
            for number in range(count):
                batches[number]

        return run
    first = _First()
    # The DataLoader warns about more processes than cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    loader = torch.utils.data.DataLoader(
        batches, batch_size=None, sampler=first, num_workers=workers, persistent_workers=True
    )

    def run_loader(count: int) -> None:
        first.count = count
        for _ in loader:
            pass

    return run_loader
