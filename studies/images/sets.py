"""The image sets of the studies: bags of patches or slices in a store, and each bag as one stacked volume."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.data.store import is_store, open_store, write_store
from studies.images.design import Design, Recipe, limited
from studies.sets import catalog
from studies.splits import Split, paper_splits

FOLDS = 5


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set in both views."""

    bags: Bags  # Patches or slices as instances [C, H, W]
    # The same bags, each of one instance [C, n, H, W]: patches one after the other, slices at their places
    stacked: Bags


def load_set(name: str, design: Design, *, cache: Path) -> ImageSet:
    """Return a set of the catalog, which is cut and decoded only once, into stores under `cache`."""
    folder = cache / "sets"
    places = [folder / f"{name}-{design.name}", folder / f"{name}-{design.name}-stacked"]
    if not all(is_store(place) for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        made = make_set(limited(catalog.load(name), design), volumes=name == "adrenal", halve=design.halve)
        for place, bags in zip(places, (made.bags, made.stacked)):
            if not is_store(place):
                write_store(bags, place)
    return ImageSet(*(open_store(place).replace(source=name) for place in places))


def make_set(bags: Bags, *, volumes: bool = False, halve: bool = False) -> ImageSet:
    """Return bags of images in both views, in memory.

    With `volumes` the instances are slices with coords that begin with their index: they are stacked at their places,
    and slices that were left out are zero. `halve` takes means of 2 x 2 x 2, then removes empty slices.

    Examples
    --------
    >>> found = make_set(Bags.from_list([np.ones((3, 1, 4, 4), np.uint8), np.ones((2, 1, 4, 4), np.uint8)], [0, 1]))
    >>> found.stacked.instance_shape, found.bags.sizes.tolist()
    ((1, 3, 4, 4), [3, 2])
    """
    depth = _depth(bags) if volumes else int(bags.sizes.max())
    whole = np.zeros((len(bags), bags.instance_shape[0], depth, *bags.instance_shape[1:]), bags.instances.dtype)
    for i in range(len(bags)):
        whole[i][:, _places(bags, i, volumes=volumes)] = np.moveaxis(np.asarray(bags[i]), 0, 1)
    if volumes and halve:
        whole = _halved(whole)
        bags = _filled_slices(whole, bags)
    one = np.ones(len(bags), dtype=np.int64)
    return ImageSet(bags, bags.replace(instances=whole, starts=np.arange(len(bags)), sizes=one, **_UNPLACED))


def image_splits(bags: Bags, recipe: Recipe) -> list[Split]:
    """Return the trials of a set: 5-fold cross-validation, disjoint by group.

    Fold f is the test. If a setting is chosen, fold f + 1 is for validation and the other three are for training; else
    the other four are for training. If the set has test bags, they are the test of all trials, and the other bags have
    the folds: fold f is for validation, or there is no validation. A recipe without groups has the paper's splits, see
    `paper_splits`.
    """
    if not recipe.by_group:
        return paper_splits(bags.require_labels(), splits=range(recipe.repeats), folds=recipe.folds)
    found = []
    for repeat in range(recipe.repeats):
        for fold, (train, val, test) in enumerate(_parts(bags, repeat, validates=recipe.validates)[: recipe.folds]):
            found.append(Split(repeat, fold, train, val, test))
    return found


def _parts(bags: Bags, repeat: int, *, validates: bool) -> list[tuple[NDArray[np.int64], ...]]:
    test = bags.where_split("test") if bags.splits is not None else np.zeros(0, np.int64)
    rest = np.setdiff1d(np.arange(len(bags)), test)
    groups = None if bags.groups is None else bags.groups[rest]
    numbers = stratified_folds(bags.require_labels()[rest], groups=groups, folds=FOLDS, seed=repeat)
    nothing = np.zeros(0, np.int64)
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for fold in range(FOLDS):
        own, following = rest[numbers == fold], rest[numbers == (fold + 1) % FOLDS]
        if len(test):
            val = own if validates else nothing
            parts.append((np.setdiff1d(rest, val), val, test))
        else:
            val = following if validates else nothing
            parts.append((np.setdiff1d(rest, [*own, *val]), val, own))
    return parts


_UNPLACED = {"coords": None, "digests": None, "attributes": None}


def _depth(bags: Bags) -> int:
    last: Sequence[int] = [int(_places(bags, i, volumes=True).max()) for i in range(len(bags))]
    # A volume is as deep as its slices are wide, if no slice has a higher index.
    return max(max(last) + 1, bags.instance_shape[-1])


def _places(bags: Bags, i: int, *, volumes: bool) -> NDArray[np.int64]:
    places = bags.places(i) if volumes else None
    if places is None:
        return np.arange(int(bags.sizes[i]))
    return np.asarray(places).reshape(len(places), -1)[:, 0].astype(np.int64)


def _halved(whole: NDArray[Any]) -> NDArray[Any]:
    n, c, d, h, w = whole.shape
    made = np.empty((n, c, d // 2, h // 2, w // 2), whole.dtype)
    for i in range(n):
        blocks = whole[i, :, : d // 2 * 2, : h // 2 * 2, : w // 2 * 2].reshape(c, d // 2, 2, h // 2, 2, w // 2, 2)
        made[i] = blocks.mean(axis=(2, 4, 6))
    return made


def _filled_slices(whole: NDArray[Any], bags: Bags) -> Bags:
    filled: NDArray[np.bool_] = (whole != 0).any(axis=(1, 3, 4))
    # A volume without any slice left keeps its middle slice, so that no bag is empty.
    filled[~filled.any(axis=1), whole.shape[2] // 2] = True
    sizes = filled.sum(axis=1)
    slices = np.moveaxis(whole, 2, 1)[filled]
    coords = np.nonzero(filled)[1][:, None]
    starts = np.cumsum(sizes) - sizes
    return bags.replace(**{**_UNPLACED, "instances": slices, "coords": coords, "starts": starts, "sizes": sizes})
