"""Pictures of instances that are vectors: the raw files that were embedded, whole and in part."""

import os
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from midam.data.bags import Bags
from midam.data.sources.file_rows import SEPARATOR, BagFile, FileRows, FileSet, files_of, source_paths
from midam.data.sources.probe import FileFacts
from midam.data.sources.request import ImageOptions, RunOptions
from midam.errors import MidamError
from midam.explain.explanation import Parts
from midam.explain.tiles import Pictures
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
        self._known = {*RECIPE} <= {*self._cut}

    def pictures(self, index: int) -> Pictures | None:
        """Return the pictures of the instances of a bag; None, with a warning where it was embedded, without files."""
        files, places = files_of(self._bags, index), self._bags.places(index)
        if not self._known or not files or places is None:
            return None
        paths = [self._located(file.path) for file in files]
        if missing := [path for path in paths if not path.exists()]:
            text = "the files that were embedded are not there any more; name their folder with --images"
            warnings.warn(f"no pictures of the instances: {text} ({missing[0]})", stacklevel=2)
            return None
        try:
            pictures = self._opened(index, files, paths, np.asarray(places, dtype=np.int64))
            pictures.bags.instances[:1]  # whether it can be read
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
        rows: Any = embedded(pictures.bags, self._network, self._cut).instances
        vectors = self._bags[index]

        def parts(instance: int, windows: NDArray[np.float64]) -> NDArray[Any] | None:
            views, vector = covered(pictures, instance, windows), np.asarray(vectors[instance], dtype=np.float32)
            batches = np.array_split(np.arange(1 + len(windows)), -(-len(windows) * views(0).size // _NUMBERS))
            made = np.concatenate([rows.vectors_of(np.stack([*map(views, batch)]), instance) for batch in batches])
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

    def _located(self, path: Path) -> Path:
        """Return where a file is now."""
        return path if self._folder is None else self._folder / path.absolute().relative_to(self._root)

    def _opened(self, index: int, files: list[BagFile], paths: list[Path], places: NDArray[np.int64]) -> Pictures:
        cut, side, boxes = self._cut, self._cut["shape"], None
        kind = "slices" if "slice_size" in cut else "patches"
        options = {name: cut[name] for name in CutSettings.model_fields if cut.get(name) is not None}
        if kind == "slices" and not cut.get("slice_size"):
            reading: ImageOptions = RunOptions(**options, matrix=tuple(side[1:]))
        else:
            reading = ImageOptions(**options)
        if cut["way"] == "cells":
            corners = places
            places, width = _around(places, files, cell=side[-1])
            reading, side = reading.model_copy(update={"patch_size": width}), [side[0], width, width]
            boxes = np.concatenate([corners - places, np.full((len(places), 2), cut["shape"][-1])], axis=1)
        facts = [_facts(file, side, cut["pixels"], kind, places) for file in files]
        bags = self._bags.subset([index]).replace(
            instances=FileRows(FileSet(paths, facts, reading, None)),
            **{"starts": [0], "sizes": [len(places)], "coords": places},
            **dict.fromkeys(("digests", "instance_labels", "feature_names", "columns")),
            sources=[SEPARATOR.join(map(str, paths))],
            cut={name: value for name, value in cut.items() if name not in RECIPE},
        )
        return Pictures(bags, 0, boxes)


def covered(pictures: Pictures, instance: int, windows: NDArray[np.float64]) -> Callable[[int], NDArray[Any]]:
    """Return a function from a number to the picture [C, H, W] of an instance: whole (0), or without a window (1, ...).

    The `windows` [w, 2, 2] have their first and last row and column in sides of the picture, from 0 to 1. A window
    shows its background: the picture after a median filter, which keeps large edges and no spot.
    """
    (picture,) = pictures.bags.gather(pictures.bags.starts[pictures.bag] + np.array([instance]))
    coarse = median_filter(resized(picture, (len(picture), _COARSE, _COARSE)), size=(1, *_FILTER))
    background = resized(coarse, picture.shape).astype(picture.dtype)

    def view(number: int) -> NDArray[Any]:
        if number == 0:
            return picture
        shown, (low, high) = picture.copy(), np.rint(windows[number - 1] * picture.shape[1:]).astype(int)
        window = (slice(None), *map(slice, low, high))
        shown[window] = background[window]
        return shown

    return view


def _facts(file: BagFile, shape: list[int], pixels: str, kind: str, places: NDArray[np.int64]) -> FileFacts:
    part, width = places[file.rows.start : file.rows.stop], places.shape[1]
    dtype = np.dtype(np.float32 if pixels.startswith("float") else pixels)
    return FileFacts(len(part), tuple(shape), dtype, width, part.dtype, file.attributes, kind, part)


def _around(places: NDArray[np.int64], files: list[BagFile], *, cell: int) -> tuple[NDArray[np.int64], int]:
    """Return the corners of larger squares around cells, inside their images, and the side of these squares."""
    facts: list[Mapping[str, Any]] = [file.attributes.get("coords", {}) for file in files]
    sizes = [[int(fact.get("level0_width", 0)), int(fact.get("level0_height", 0))] for fact in facts]
    width = max(min(_CONTEXT * cell, *(min(size) for size in sizes)), cell)
    most = np.concatenate([np.tile(size, (len(file.rows), 1)) for size, file in zip(sizes, files)]) - width
    return np.clip(places - (width - cell) // 2, 0, np.maximum(most, places if width == cell else 0)), width
