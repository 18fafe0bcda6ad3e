"""Ordinary values of the features of a run, with which the values of an instance are compared."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Shares of the ordinary instances below the quantiles that a run keeps."""
_MOST_FEATURES, _MOST_ROWS = 512, 10_000


def ordinary_values(train: Bags, columns: str | None = None) -> dict[str, Any]:
    """Return the entries "typical" and "ordinary" of a run's data, from up to 10 000 instances of training bags.

    The instances are those of negative bags, which hold no witness, or those of all bags if there are not two classes.
    Nothing but these numbers is kept of them.

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
        share of the instances that have it) and "quantiles" [7][D] at `LEVELS`. Both are None for images and for more
        than 512 features.
    """
    negative = train.labels is not None and bool((train.labels == 0).any())
    bags = train.subset(np.flatnonzero(train.labels == 0)) if negative else train
    if len(bags.instance_shape) != 1 or bags.instance_shape[0] > _MOST_FEATURES or not len(bags):
        return {"typical": None, "ordinary": None}
    from midam.train.inputs import random_instances

    x = random_instances(bags, _MOST_ROWS, np.random.default_rng(0)).numpy().astype(np.float64)
    typical = np.median(x, axis=0)
    for features, known in _categories(columns):
        typical[features] = np.arange(features.stop - features.start) == x[:, known].sum(axis=0).argmax()
    ordinary = {"bags": "negative" if negative else "all", "instances": len(x), "means": x.mean(axis=0).tolist()}
    quantiles = np.quantile(x, LEVELS, axis=0).tolist()
    return {"typical": typical.tolist(), "ordinary": {**ordinary, "quantiles": quantiles}}


def percentiles(values: NDArray[np.float64], quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the percentage of ordinary instances below each value, [T], within 1 and 99.

    Parameters
    ----------
    values : float64 array [T]
        Values of one feature.
    quantiles : float64 array [7]
        Its quantiles at `LEVELS`; between them, the share is interpolated.

    Examples
    --------
    >>> percentiles(np.array([-5.0, 2.0, 3.5, 90.0]), np.array([0.0, 1.0, 2.0, 2.0, 5.0, 8.0, 9.0])).round(1).tolist()
    [1.0, 37.5, 62.5, 99.0]
    """
    levels = np.array(LEVELS)
    # Of equal quantiles, `interp` takes the last level; mirrored, the first. The middle is that of ranks of ties.
    first = 1 - np.interp(-values, -quantiles[::-1], 1 - levels[::-1])
    return 50 * (np.interp(values, quantiles, levels) + first)


def _categories(columns: str | None) -> Iterator[tuple[slice, slice]]:
    """Yield the places of the features of each category, and of those that mark no missing value."""
    first = 0
    for code in () if columns is None else ColumnCoder.from_json(columns).codes:
        last = first + len(code.features)
        if code.kind == "category" and code.features:
            yield slice(first, last), slice(first, last - code.missing)
        first = last
