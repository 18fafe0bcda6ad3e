"""Turn bags of images, patches or slices into bags of vectors: each instance passes once through a frozen network."""

import hashlib
import json
import re
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.digests import bag_digests
from midam.data.on_disk import Rows
from midam.data.sources.file_rows import FileRows, source_paths
from midam.data.store import is_store, open_store, write_store
from midam.data.store.write import plan_digest, stamp
from midam.errors import BagDataError, CheckpointError, ConfigError, Note, RunStoppedError, plural
from midam.imaging.network import Network, assembled, intensities, passed, standardized
from midam.imaging.networks import load_network
from midam.imaging.pixels import check_pixels, pixel_facts
from midam.nn.standardizer import DEPTHS
from midam.reading import parse_json, read_bytes

Dtype = Literal["float16", "float32"]

# Keys of `Bags.cut` for vectors, in addition to keys on how their images were cut.
RECIPE = ("network", "weights", "layer", "way", "shape", "size", "mean", "std", "dtype", "resample", "pixels", "bits")
_KEYS = "files.json"  # in a store of vectors: a key that identifies each bag
_CELLS = 1024  # of an image in one pass: 32 x 32
_NUMBERS = 16 * 3 * 224 * 224  # of patches or slices in one pass
_LARGEST_SIDE = 2048
_WAYS = {"cells": "whole images", "patches": "patches of images or slides", "slices": "slices of scans"}
_LOSS = 0.01  # of a number, and of the numbers of a block: what float16 may change
_LONG = 4096  # instances of a bag that is too large to have two in memory


class EmbeddedRows(Rows):
    """Vectors [M, D] of the instances of bags, computed block by block when they are read.

    Blocks depend only on the bags, not on the positions that are read, so that each vector always has the same bits. A
    block holds complete rows of cells of one image, or patches or slices of one bag.
    """

    chunk_bytes = 1 << 18  # a few blocks

    def __init__(self, bags: Bags, network: Network, *, recipe: Mapping[str, Any]) -> None:
        self.shape, self.dtype = (len(bags.instances), network.width), np.dtype(recipe["dtype"])
        self._raw, self._bags = bags.instances, bags
        self._network, self._turn = network, threading.Lock()
        self._recipe, self._cells = recipe, recipe["way"] == "cells"
        # Images of a bag of several files pass one at a time.
        files = self._raw.files.offsets if isinstance(self._raw, FileRows) else bags.starts
        self._bounds = np.unique([*files, *bags.starts, *(bags.starts + bags.sizes)])
        if isinstance(self._raw, Rows):
            self.paths, self.plan = self._raw.paths, f"{self._raw.plan} {json.dumps(dict(recipe), sort_keys=True)}"
        if not self.paths:
            self.plan, self.origin = json.dumps(dict(recipe), sort_keys=True), tuple(bag_digests(bags))
        self._local = threading.local()  # for each thread: the last block, the open file
        self._kept: tuple[NDArray[Any] | Rows, NDArray[np.int64]] | None = None

    def take_kept(self, bags: Bags, place: str | Path) -> NDArray[np.bool_]:
        """Take the vectors of known bags from the store at `place`; return the mask [N] of these among the `bags`."""
        reused, places = np.zeros(len(bags), np.bool_), np.full(len(self), -1, np.int64)
        with suppress(OSError, TypeError, ValueError):  # the store is missing, damaged, or of older form
            keys, store = parse_json(read_bytes(Path(place) / _KEYS, error=BagDataError)), open_store(place)
            number = {str(key): i for i, key in enumerate(keys if len(keys) == len(store) else ())}
            for i, key in enumerate(_bag_keys(bags)):
                reused[i] = bool(key) and key in number
                if reused[i]:
                    rows = np.arange(bags.sizes[i])
                    places[bags.starts[i] + rows] = store.starts[number[key]] + rows
            self._kept = store.instances, places
        return reused

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Compute the vectors at `positions` [m], except those already stored."""
        vectors = np.empty((len(positions), self.shape[1]), self.dtype)
        order = np.argsort(positions, kind="stable")
        if self._kept is not None:
            store, places = self._kept[0], self._kept[1][positions]
            vectors[places >= 0] = store[places[places >= 0]]
            order = order[places[order] < 0]
        ascending, at = positions[order], 0
        while at < len(order):
            low, high, columns = self._block(int(ascending[at]))
            end = int(np.searchsorted(ascending, high))
            vectors[order[at:end]] = self._vectors(low, high, columns)[ascending[at:end] - low]
            at = end
        return vectors

    @property
    def _images(self) -> NDArray[Any] | Rows:
        """Instances for the current thread, which keeps its current file open."""
        if not isinstance(self._raw, FileRows):
            return self._raw
        if not hasattr(self._local, "images"):
            self._local.images = FileRows(self._raw.files.once())
        images: FileRows = self._local.images
        return images

    def _block(self, position: int) -> tuple[int, int, int]:
        """Return first and last instance of the block of a position, and its cells in a row, or 1."""
        part = int(np.searchsorted(self._bounds, position, side="right"))
        begin, end = int(self._bounds[part - 1]), int(self._bounds[part])
        columns = self._columns(begin, end) if self._cells else 1
        numbers = int(3 * np.prod(self._recipe["size"] or self._raw.shape[-2:]))
        step = max(_CELLS // columns if self._cells else _NUMBERS // numbers, 1) * columns
        low = begin + (position - begin) // step * step
        return low, min(low + step, end), columns

    def _columns(self, begin: int, end: int) -> int:
        """Return the cells in a row of an image; refuse an image with missing cells."""
        places = None if self._bags.coords is None else np.asarray(self._bags.coords[begin:end])
        columns = 0 if places is None else len(np.unique(places[:, 0]))
        if places is None or columns * len(np.unique(places[:, 1])) != end - begin:
            got = f"only some (in {self._bags.source})"
            raise BagDataError(f"Expected all cells of each image, got {got}; cut patches with another `patch_size`.")
        return columns

    def _vectors(self, low: int, high: int, columns: int) -> NDArray[Any]:
        block: tuple[int, NDArray[Any]] = getattr(self._local, "block", (-1, np.empty(0)))
        if block[0] == low:
            return block[1]
        images = np.asarray(self._images[low:high])
        y = self._passed(assembled(images, columns) if self._cells else images, low, cells=self._cells)
        vectors = (y.flatten(2)[0].T if self._cells else y).float().cpu().numpy()
        if vectors.shape != (high - low, self.shape[1]):
            got = f"{list(vectors.shape)} (of {self._recipe['network']}); use another network"
            raise ConfigError(f"Expected {high - low} vectors of {self.shape[1]} numbers, got {got}.")
        self._local.block = low, self._in_type(vectors)
        return self._local.block[1]

    def vectors_of(self, pictures: NDArray[Any], position: int) -> NDArray[np.float32]:
        """Return the vectors [m, D] of changed pictures [m, C, H, W] of the patch or slice at a position."""
        return self._passed(pictures, position, cells=False).float().cpu().numpy()

    def _passed(self, images: NDArray[Any], low: int, *, cells: bool) -> torch.Tensor:
        """Pass images, the first of which is the instance `low`, through the network: its feature map, or vectors."""
        network = self._network
        x = torch.from_numpy(intensities(images, self._span(low))).to(device_of(network))
        del images
        with torch.inference_mode(), self._turn:
            return passed(network.maps if cells else network.vectors, standardized(x, self._recipe), network.name)

    def _in_type(self, vectors: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            kept = vectors.astype(self.dtype)
        lost = np.abs(kept - vectors) > _LOSS * np.abs(vectors)
        if lost.mean() > _LOSS or not np.isfinite(kept).all():
            example = np.abs(vectors[lost]).max(initial=0)
            got = f"{lost.sum()} of {lost.size} changed by over 1%, such as {example:.3g}"
            name = self._recipe["network"]
            raise ConfigError(f"Expected numbers that {self.dtype} holds, got {got} (of {name}); use `dtype` float32.")
        return kept

    def _span(self, low: int) -> tuple[float, float]:
        """Return the intensities that become 0 and 1: the range of the bits, or the percentiles 0.5 and 99.5."""
        if self._raw.dtype.kind in "bu":
            return 0.0, 2.0 ** self._recipe["bits"] - 1
        if (self._bags.cut or {}).get("window") is not None:
            return 0.0, 1.0
        part = int(np.searchsorted(self._bounds, low, side="right"))
        begin, end = int(self._bounds[part - 1]), int(self._bounds[part])
        some = np.unique(np.linspace(begin, end - 1, min(end - begin, 64)).astype(np.int64))
        first, last = np.percentile(np.asarray(self._images[some]), [0.5, 99.5])
        return float(first), float(last)


def way_of(bags: Bags, network: Network) -> str:
    """Return the kind of the instances: "cells" of whole images, "slices" of volumes, or "patches"."""
    cut = bags.cut or {}
    if len(bags.instance_shape) != 3 or bags.instance_shape[0] not in (1, 3):
        got = f"instances of shape {list(bags.instance_shape)} (in {bags.source})"
        raise BagDataError(f"Expected images, patches or slices with one channel or three, got {got}; give such files.")
    if "slice_size" in cut:
        return "slices"
    plain = not cut.get("tissue") and cut.get("magnification") is None and bags.coords is not None
    step = network.stride
    return "cells" if plain and step and cut.get("patch_size") == cut.get("stride") == step else "patches"


def make_recipe(bags: Bags, network: Network, *, dtype: Dtype = "float16", size: int | None = None) -> dict[str, Any]:
    """Return the recipe by which the instances of bags are embedded: `RECIPE`, without the `pixel_facts`."""
    way = way_of(bags, network)
    if size is not None and (way == "cells" or not 1 <= size <= _LARGEST_SIDE):
        wanted = f"`size` from 1 to {_LARGEST_SIDE} for patches or slices"
        raise ConfigError(f"Expected {wanted}, got {size} for {way}; leave it out.")
    if dtype not in get_args(Dtype):
        raise ConfigError(f"Expected `dtype` float16 or float32, got {dtype!r}; choose one of them.")
    side = None if way == "cells" else network.side(bags.instance_shape) if size is None else size
    shape, square = list(bags.instance_shape), None if side is None else [side, side]
    of_network = (network.name, network.weights, network.layer)
    values = (*of_network, way, shape, square, network.mean, network.std, dtype, network.resample)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in zip(RECIPE[:-2], values, strict=True)}


def described(recipe: Mapping[str, Any]) -> str:
    """Return a line on the instances and on how they are embedded."""
    side = "{} x {}".format(*recipe["shape"][1:])
    size = "" if recipe["size"] is None else f", resized to {recipe['size'][0]} x {recipe['size'][1]}"
    if recipe["way"] == "cells":
        return f"cells: each image passes whole through {recipe['network']}, a vector for each {side} pixels"
    return f"{recipe['way']} of {side}{size}: one vector each by {recipe['network']}"


def embedded(bags: Bags, network: Network, recipe: Mapping[str, Any], *, accelerator: str = "auto") -> Bags:
    """Return bags of vectors that are computed when they are read; their `cut` holds the recipe."""
    recipe = recipe if "bits" in recipe else {**recipe, **pixel_facts(bags)}
    gpu = torch.cuda.is_available() and accelerator != "cpu"
    if accelerator == "cuda" and not gpu:
        raise ConfigError("Expected a CUDA device for the accelerator 'cuda', got none; use 'auto' or 'cpu'.")
    rows = EmbeddedRows(bags, network.to("cuda" if gpu else "cpu"), recipe=recipe)
    return bags.replace(instances=rows, cut={**(bags.cut or {}), **recipe}, digests=None)


def device_of(network: Network) -> torch.device:
    """Return the device of a network's weights; the CPU if it has none."""
    return next((weights.device for weights in network.parameters()), torch.device("cpu"))


def embed_bags(
    bags: Bags,
    encoder: str | Network,
    out: str | Path,
    *,
    dtype: Dtype = "float16",
    size: int | None = None,
    accelerator: str = "auto",
    on_bag: Callable[[int], None] | None = None,
) -> Bags:
    """Pass each instance of bags once through a frozen network, and write the vectors into a store.

    If `bags` were read with a `patch_size` equal to the network's stride, each image passes as a whole, and each cell
    of the network's last feature map is an instance. Otherwise each patch or slice gives a vector. Coordinates, labels,
    groups and covariates are kept. A stopped call continues when it is repeated, and gives the same bytes. Memory holds
    a few blocks of one bag.

    Parameters
    ----------
    bags : Bags
        Images, patches or slices, as `midam.read_bags` returns them.
    encoder : str or Network
        The network, or its name, see `midam.imaging.load_network`.
    out : str or Path
        Folder of the store.
    dtype : {"float16", "float32"}
        Type of the vectors in the store.
    size : int, optional
        Side of the square to which patches or slices are resized; default: by the network.
    accelerator : {"auto", "cpu", "cuda"}
        Device of the network.
    on_bag : callable, optional
        Called with the position of each finished bag.

    Returns
    -------
    Bags
        The bags of the store. Their `cut` holds the recipe: network, SHA-256 of its weights, layer, preprocessing.
    """
    network = encoder if isinstance(encoder, Network) else load_network(encoder)
    recipe = make_recipe(bags, network, dtype=dtype, size=size)
    made = embedded(bags, network, recipe, accelerator=accelerator)
    return open_store(_write(made, Path(out), jobs=_jobs(made), on_bag=on_bag))


def cached_store(
    bags: Bags,
    network: Network,
    recipe: Mapping[str, Any],
    folder: Path,
    *,
    name: str,
    accelerator: str = "auto",
    on_bag: Callable[[int], None] | None = None,
) -> tuple[Path, bool]:
    """Return the store of the vectors of bags in a folder, and whether this call made it.

    The name of the store depends on paths, sizes and times of the files, metadata of the bags, and the recipe.
    """
    lazy = embedded(bags, network, recipe, accelerator=accelerator)
    directory = re.sub(r"[^\w.-]+", "-", network.name)[-80:]
    store = folder / f"{directory}-{plan_digest(lazy)[:12]}" / name
    return (store, False) if is_store(store) else (_write(lazy, store, jobs=_jobs(lazy), on_bag=on_bag), True)


def _write(bags: Bags, out: Path, **options: Any) -> Path:
    """Write vectors into a store, with the keys of the bags."""
    # The keys come before the files are read: a file that changes meanwhile gets another key.
    return write_store(bags, out, texts={_KEYS: json.dumps(_bag_keys(bags))}, **options)


def _bag_keys(bags: Bags) -> list[str]:
    """Return a digest per bag of the recipe, the coordinates, and path, size and time of its files.

    The digest is empty if the files are unknown.
    """
    keys, recipe = [], json.dumps(bags.cut, sort_keys=True)
    for i, size in enumerate(bags.sizes.tolist()):
        paths, places = [path.resolve() for path in source_paths(bags, i)], bags.places(i)
        sound = bool(paths) and all(path.exists() for path in paths)
        digest = hashlib.sha256(json.dumps([recipe, size, [stamp(path) for path in paths if sound]]).encode())
        digest.update(b"" if places is None else np.ascontiguousarray(places).data)
        keys.append(digest.hexdigest() if sound else "")
    return keys


def _jobs(bags: Bags) -> int:
    """Return the number of threads: two, one to read while the other computes, or one if bags are large."""
    return 1 if bags.sizes.max() > _LONG else 2


def embed_like(
    bags: Bags,
    cut: Mapping[str, Any],
    *,
    run: str,
    place: str,
    only: Sequence[int],
    accelerator: str = "auto",
    on_bag: Callable[[int], None] | None = None,
) -> Bags:
    """Embed the bags at positions `only` by the recipe `cut` of a run, into a temporary store.

    Vectors of files that have not changed since are taken from the store at `place`, on which the run was trained.
    """
    _require_recipe(cut, run)
    network = load_network(cut["network"])
    recipe = make_recipe(bags, network, dtype=cut["dtype"], size=(cut["size"] or [None])[0])
    recipe |= {name: cut[name] for name in RECIPE[-2:]}
    check_recipe(cut, recipe, run=run, data=bags.source)
    check_pixels(bags.subset(only), cut, run=run)
    lazy = embedded(bags, network, recipe, accelerator=accelerator).subset(only)
    rows: Any = lazy.instances
    count = int(rows.take_kept(lazy, place).sum())
    texts = [f"vectors of {plural(count, 'bag')}, whose files have not changed, taken from {place}"] if count else []
    rest = f"{plural(len(lazy) - count, 'bag')} embedded by {network.name} first; `midam embed` keeps vectors for later"
    texts += [rest] if count < len(lazy) else []
    warnings.warn(f"{'; '.join(texts)} (in {bags.source})", Note, stacklevel=3)
    home = Path(tempfile.mkdtemp(prefix="midam-"))
    try:
        stored = open_store(write_store(lazy, home / "vectors", jobs=_jobs(lazy), on_bag=on_bag))
    except BaseException as error:
        shutil.rmtree(home, ignore_errors=True)
        if isinstance(error, RunStoppedError):
            raise RunStoppedError("stopped; `midam embed` keeps vectors for later") from None
        raise
    weakref.finalize(stored.instances, shutil.rmtree, home, ignore_errors=True)
    return stored.replace(source=bags.source)


def check_recipe(expected: Mapping[str, Any], recipe: Mapping[str, Any], *, run: str, data: str) -> None:
    """Refuse vectors whose recipe differs from the run's; the error names the first difference."""
    for name in RECIPE:
        stored, given = expected.get(name), recipe.get(name)
        if name == "network" and all(str(value).startswith("hf:") for value in (stored, given)):
            continue  # their paths may differ between machines; their weights are compared
        if name == "shape" and expected.get("size") is not None:  # the sides are resized
            stored, given = (f"{shape[0]} channels" if isinstance(shape, list) else shape for shape in (stored, given))
        if stored != given:
            kind = "" if name in ("way", "shape") else f"{name} "
            wanted, got = f"{kind}{_short(stored)}, on which {run} was trained", f"{_short(given)} (in {data})"
            raise BagDataError(f"Expected vectors of {wanted}, got {got}; give raw files of the same kind.")


def _require_recipe(cut: Mapping[str, Any], run: str) -> None:
    """Refuse the incomplete recipe of a damaged or forged run."""
    names, size = ("network", "weights", "dtype"), cut.get("size")
    sound = all(isinstance(cut.get(name), str) for name in names) and {*RECIPE} <= {*cut} and cut["bits"] in DEPTHS
    if not sound or not (size is None or (isinstance(size, list) and len(size) == 2 and type(size[0]) is int)):
        raise CheckpointError(f"Expected complete embedding settings, got a part or none (in {run}); train again.")


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else _WAYS.get(text, text)
