"""Pictures of instances that are vectors: the raw files that were embedded, whole and in part."""

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from midam.data.bags import Bags
from midam.data.sources.file_rows import SEPARATOR, BagFile, FileRows, FileSet, files_of, source_paths
from midam.data.sources.probe import FileFacts
from midam.data.sources.request import RunOptions
from midam.errors import MidamError
from midam.explain.explanation import Parts
from midam.explain.picture import Pictures
from midam.imaging.embedding import RECIPE, embedded
from midam.imaging.network import Network
from midam.imaging.networks import load_network
from midam.imaging.volumes import resized
from midam.settings.data import CutSettings

_CONTEXT = 3  # cells across the picture of a cell: it shows what surrounds the cell
_COARSE, _FILTER = 32, (9, 9)  # pixels along a side in which the background is found, and of the median filter
_NUMBERS = 1 << 20  # of the pictures that pass at a time
_SAME = 0.005  # relative: float16 changes vectors by less, another file by more


class RawFiles:
    """The files from which bags were embedded.

    Parameters
    ----------
    bags : Bags
        Bags of vectors that `midam.imaging.embedding` made, or other bags, which have no raw files.
    folder : Path, optional
        Folder to which the files were moved, with the same subfolders. Default: where they were embedded.
    """

    def __init__(self, bags: Bags, folder: Path | None = None) -> None:
        self._bags, self._folder, self._cut = bags, folder, bags.cut or {}

    def pictures(self, index: int) -> Pictures | None:
        """Return the pictures of the instances of a bag; None, with a warning where it was embedded, without files."""
        files, places = files_of(self._bags, index), self._bags.places(index)
        if not {*RECIPE} <= {*self._cut} or not files or places is None:
            return None
        moved = self._folder  # None: the files are where they were embedded
        paths = [moved / file.path.absolute().relative_to(self._root) if moved else file.path for file in files]
        if missing := [path for path in paths if not path.exists()]:
            text = "the files that were embedded are not there any more; name their folder with --images"
            warnings.warn(f"no pictures of the instances: {text} ({missing[0]})", stacklevel=2)
            return None
        try:
            pictures = self._opened(index, files, paths, np.asarray(places, dtype=np.int64))
            pictures.bag.instances[:1]  # whether it can be read
            return pictures
        except (MidamError, OSError) as error:
            warnings.warn(f"no pictures of the instances: a file cannot be read ({error})", stacklevel=2)
            return None

    def parts(self, pictures: Pictures, index: int) -> Parts | None:
        """Return a function from an instance and windows to the vectors [1 + w, D] of its picture, and without each.

        The windows are those of `covered`. The function returns None for a picture that is not the one that was
        embedded. None for cells, which see more than their picture, and without the network.
        """
        if self._cut["way"] == "cells" or self._network is None:
            return None
        rows: Any = embedded(pictures.bag, self._network, self._cut).instances
        vectors, size = self._bags[index], math.prod(pictures.bag.instance_shape)

        def parts(instance: int, windows: NDArray[np.float64]) -> NDArray[Any] | None:
            (picture,) = pictures.bag.gather([instance])
            views, vector = covered(picture, windows), np.asarray(vectors[instance], dtype=np.float32)
            batches = iter(lambda: [*islice(views, max(1, _NUMBERS // size))], [])
            made = np.concatenate([rows.vectors_of(np.stack(batch), instance) for batch in batches])
            return made if np.abs(made[0] - vector).max() <= _SAME * max(np.abs(vector).max(), 1e-6) else None

        return parts

    @cached_property
    def _network(self) -> Network | None:
        try:
            network = load_network(self._cut["network"])
        except MidamError as error:
            warnings.warn(f"no maps within the pictures: {error}", stacklevel=2)
            return None
        return network if network.weights == self._cut["weights"] else None

    @cached_property
    def _root(self) -> Path:
        """Folder that held all files of the bags."""
        paths = {path.parent.absolute() for i in range(len(self._bags)) for path in source_paths(self._bags, i)}
        return Path(os.path.commonpath(paths))

    def _opened(self, index: int, files: list[BagFile], paths: list[Path], places: NDArray[np.int64]) -> Pictures:
        cut, kind = self._cut, "slices" if "slice_size" in self._cut else "patches"
        options = {name: cut[name] for name in CutSettings.model_fields if cut.get(name) is not None}
        shape, boxes = cut["shape"], None
        if cut["way"] == "cells":
            places, boxes, side = _around(places, files, cell=shape[-1])
            shape, options["patch_size"] = [shape[0], side, side], side
        reading = RunOptions(**options, matrix=tuple(shape[1:]))
        facts = [_facts(file, shape, cut["pixels"], kind, places) for file in files]
        bag = Bags(
            FileRows(FileSet(paths, facts, reading, None)),
            sizes=[len(places)],
            coords=places,
            sources=[SEPARATOR.join(map(str, paths))],
            attributes=None if self._bags.attributes is None else self._bags.attributes[index : index + 1],
            cut={name: value for name, value in cut.items() if name not in RECIPE},
        )
        return Pictures(bag, boxes)


def covered(picture: NDArray[Any], windows: NDArray[np.float64]) -> Iterator[NDArray[Any]]:
    """Yield a picture [C, H, W], and then the same without each window.

    The `windows` [w, 2, 2] have their first and last row and column in sides of the picture, from 0 to 1. A window
    shows its background: the picture after a median filter, which keeps large edges and no spot.
    """
    yield picture
    coarse = median_filter(resized(picture, (len(picture), _COARSE, _COARSE)), size=(1, *_FILTER))
    background = resized(coarse, picture.shape).astype(picture.dtype)
    for low, high in np.rint(windows * picture.shape[1:]).astype(int):
        shown, window = picture.copy(), (slice(None), *map(slice, low, high))
        shown[window] = background[window]
        yield shown


def _facts(file: BagFile, shape: list[int], pixels: str, kind: str, places: NDArray[np.int64]) -> FileFacts:
    part, width = places[file.rows.start : file.rows.stop], places.shape[1]
    dtype = np.dtype(np.float32 if pixels.startswith("float") else pixels)
    return FileFacts(len(part), tuple(shape), dtype, width, part.dtype, file.attributes, kind, part)


def _around(
    places: NDArray[np.int64], files: list[BagFile], *, cell: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the corners of larger squares around cells, inside their images, the cells in them, and their side."""
    facts: list[Mapping[str, Any]] = [file.attributes.get("coords", {}) for file in files]
    sizes = np.array([[int(fact.get(f"level0_{side}", 0)) for side in ("width", "height")] for fact in facts])
    sizes = sizes.repeat([len(file.rows) for file in files], axis=0)
    side = max(min(_CONTEXT * cell, int(sizes.min())), cell)
    corners = np.clip(places - (side - cell) // 2, 0, np.maximum(sizes - side, places if side == cell else 0))
    return corners, np.concatenate([places - corners, np.full_like(places, cell)], axis=1), side
