"""Digests of what bags hold, by which a bag is known whatever its id."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from midam.data.on_disk import Rows
from midam.data.outcome import Outcome
from midam.data.validate import row_chunks

if TYPE_CHECKING:
    from midam.data.bags import Bags


def bag_digests(bags: "Bags") -> list[str]:
    """SHA-256 of the content of each bag (dtype, shape, instances in order), whatever its id.

    Digests that are not known yet take one read of all instances by chunks; the bags keep them.
    """
    if bags.digests is not None:
        return [str(digest) for digest in bags.digests]
    found = []
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        digest = content_hash(bags.instances.dtype, bags.instance_shape)
        hash_rows(bags.instances, start, size, digest)
        found.append(digest.hexdigest())
    vars(bags)["digests"] = np.array(found)
    return found


def fingerprint(bags: "Bags") -> str:
    """SHA-256 (hex) of bags, see `Bags.fingerprint`."""
    head = {
        "ids": bags.ids.tolist(),
        "sizes": bags.sizes.tolist(),
        "labels": None if bags.labels is None else bags.labels.tolist(),
        "dtype": bags.instances.dtype.str,
        "shape": [bags.num_instances, *bags.instance_shape],
        "bags": bag_digests(bags),
    }
    if bags.outcome is not None:
        head["outcome"] = described(bags.outcome)
    if bags.covariates is not None:
        head["covariates"] = bags.covariates.values()
    if bags.sites is not None:
        head["sites"] = bags.sites.tolist()
    return hashlib.sha256(json.dumps(head).encode()).hexdigest()


def described(outcome: Outcome) -> list[Any]:
    """Target, names and values of an outcome, for JSON: NaN is the only value that it writes as no number."""
    return [outcome.target, list(outcome.names), outcome.values.tolist()]


def content_hash(dtype: "np.dtype[Any]", instance_shape: tuple[int, ...]) -> "hashlib._Hash":
    """Hash of a bag's content, to be updated with its instances in order."""
    return hashlib.sha256(json.dumps([dtype.str, *instance_shape]).encode())


def hash_rows(rows: NDArray[Any] | Rows, start: int, size: int, digest: "hashlib._Hash") -> None:
    """Update a hash with the rows of a bag, a chunk at a time."""
    for first, last in row_chunks(rows, np.array([start]), np.array([size])):
        digest.update(np.ascontiguousarray(rows[first:last]).data)
