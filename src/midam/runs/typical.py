"""Ordinary values of the features of a run, with which the values of an instance, or of other bags, are compared."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder
from midam.data.missing import place_name
from midam.data.validate import FEATURES_SHOWN
from midam.errors import listed

_MOST_FEATURES, _MOST_ROWS = 512, 10_000
_EXTENT = (0.01, 0.05, 0.95, 0.99)
_MOST_NUMBERS = 1 << 24  # of instances of very many features
_BAGS, _ROWS = 256, 2000  # of other data, whose values are compared with the extent
_BEYOND, _NARROW, _SURE, _PART = 3, 50, 20, 0.1  # see `warn_of_units`


def ordinary_values(train: Bags, columns: str | None = None) -> dict[str, Any]:
    """Return the entries "typical", "ordinary", "extent" of a run's data, from up to 10 000 instances of training bags.

    The instances of the first two are those of negative bags, which hold no witness, or those of all bags if there are
    not two classes. Nothing but these numbers is kept of them.

    Parameters
    ----------
    train : Bags
        The training bags, encoded, without missing values.
    columns : str, optional
        The JSON text of the `ColumnCoder` that encoded columns as features.

    Returns
    -------
    dict
        "typical": the median of each feature [D]; of the features of a category, that of the most frequent category is
        1. "ordinary": "bags" ("negative" or "all"), "instances", and of each feature "means" [D] (of a category the
        share of the instances that have it) and "middle" [2][D], the quartiles. Both are None for images and for more
        than 512 features. "extent": the 1st, 5th, 95th and 99th percentile of each feature in all training bags,
        [4][D]; None for images.
    """
    vectors = len(train.instance_shape) == 1 and len(train)
    extent = np.quantile(_sampled(train, _MOST_ROWS), _EXTENT, axis=0).tolist() if vectors else None
    negative = train.labels is not None and bool((train.labels == 0).any())
    bags = train.subset(np.flatnonzero(train.labels == 0)) if negative else train
    if not vectors or bags.instance_shape[0] > _MOST_FEATURES:
        return {"typical": None, "ordinary": None, "extent": extent}
    x = _sampled(bags, _MOST_ROWS)
    typical = np.median(x, axis=0)
    for features, known in _categories(columns):
        typical[features] = np.arange(features.stop - features.start) == x[:, known].sum(axis=0).argmax()
    ordinary = {"bags": "negative" if negative else "all", "instances": len(x), "means": x.mean(axis=0).tolist()}
    ordinary["middle"] = np.quantile(x, (0.25, 0.75), axis=0).tolist()
    return {"typical": typical.tolist(), "ordinary": ordinary, "extent": extent}


def warn_of_units(bags: Bags, known: Mapping[str, Any], *, run: str) -> None:
    """Warn of features with values far outside of the "extent" of a run's data `known`, or far narrower.

    Far outside: half of the instances lie beyond it by three times its width, in 20 instances or in a tenth of the
    features, of which there must be two. Outliers are no reason for that, nor is a shift by two standard deviations.
    Far narrower: 20 different values of 20 bags within a fiftieth of the middle 90%. Features that are mostly equal in
    training, such as rare categories, are not compared.

    Parameters
    ----------
    bags : Bags
        Bags with the features of the run, without missing values.
    known, run : mapping, str
        Entry "data" of the run, and its name in the message.
    """
    if known.get("extent") is None or not len(bags):
        return
    low, near, wide, high = np.array(known["extent"])
    some = np.unique(np.linspace(0, len(bags) - 1, _BAGS).round().astype(int))
    x, varied, margin = _sampled(bags.subset(some), _ROWS), wide > near, _BEYOND * (high - low)
    outside = ((x < low - margin) | (x > high + margin)).sum(axis=0)
    far = varied & (2 * outside >= len(x))
    far &= (outside >= _SURE) | (far.sum() >= max(2, _PART * varied.sum()))
    narrow = varied & (np.ptp(x, axis=0) * _NARROW < wide - near)
    # Within a bag, values such as times differ little: only those of several bags can be too narrow.
    narrow[narrow] = [len(some) >= _SURE and len(np.unique(column)) >= _SURE for column in x.T[narrow]]
    places = np.argwhere(far | narrow)
    if len(places):
        at, names = places[0, 0], [place_name(bags, place) for place in places]
        (first, last), usual = np.quantile(x[:, at], _EXTENT[1:3]), f"{near[at]:.4g} to {wide[at]:.4g}"
        text = f"values of {listed(names, most=FEATURES_SHOWN)} are far from those of the training of {run}: {names[0]}"
        text += f" {first:.4g} to {last:.4g}, not {usual} (in {bags.source}); if units differ, scores are wrong"
        warnings.warn(text, stacklevel=3)


def _sampled(bags: Bags, limit: int) -> NDArray[np.float64]:
    """Return all instances of bags, or `limit` of them at random, fewer of very many features, [M, D]."""
    from midam.train.members import random_instances  # imports torch

    limit = min(limit, max(_ROWS // 10, _MOST_NUMBERS // bags.instance_shape[0]))
    return np.asarray(random_instances(bags, limit, np.random.default_rng(0)), dtype=np.float64)


def _categories(columns: str | None) -> Iterator[tuple[slice, slice]]:
    """Yield the places of the features of each category, and of those that mark no missing value."""
    first = 0
    for code in () if columns is None else ColumnCoder.from_json(columns).codes:
        last = first + len(code.features)
        if code.kind == "category" and code.features:
            yield slice(first, last), slice(first, last - code.missing)
        first = last
