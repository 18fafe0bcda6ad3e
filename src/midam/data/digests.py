"""Digests of the content of bags, which identify a bag whatever its id."""

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.on_disk import Rows, on_disk
from midam.data.validate import row_chunks

_AT_ONCE = 1 << 16  # instances that are hashed together
_LARGE = 2.0**20  # numbers, such as times in seconds, of which float32 keeps no more than eighths
_MIX = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))


Content = Any  # `midam.data.bags.Bags`, whose module imports this one


def bag_digests(bags: Content) -> list[str]:
    """Return the SHA-256 (hex) of the content of each bag (dtype, shape, instances in order), independent of its id.

    Digests that are not known yet need one read of all instances by chunks; the bags keep them.
    """
    if bags.digests is not None:
        return [digest.tobytes().hex() for digest in bags.digests]
    digests, begun = bytearray(), content_hash(bags.instances.dtype, bags.instance_shape)
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        digest = begun.copy()
        hash_rows(bags.instances, start, size, digest)
        digests += digest.digest()
    bags.__dict__["digests"] = np.frombuffer(bytes(digests), np.uint8).reshape(-1, 32)
    return bag_digests(bags)


def _joined(hashes: NDArray[np.uint64], x: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return hashes [M], each joined with the numbers of a row of x [M, D]."""
    for column in x.view(np.uint32).T:
        hashes = (hashes ^ column) * _MIX[0]
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _hashes(instances: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each instance, mixed at the end as in SplitMix64, since hashes are added."""
    x = np.asfortranarray(instances, dtype=np.float32) + np.float32(0)  # which has one zero
    hashes = _joined(np.zeros(len(x), dtype=np.uint64), x)
    if not np.can_cast(instances.dtype, np.float32):
        lost, exact = instances - x, (np.abs(x) >= _LARGE) | (instances == np.round(instances))
        rows = np.flatnonzero(lost.any(axis=1) & exact.all(axis=1))
        hashes[rows] = _joined(hashes[rows], lost[rows].astype(np.float32))
    for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * factor
    return np.asarray(hashes ^ (hashes >> np.uint64(31)))


def instance_hashes(bags: Content) -> NDArray[np.uint64] | None:
    """Return a hash of each instance as float32, bag after bag [m]; None for images, and for instances on disk."""
    if len(bags.instance_shape) > 1 or on_disk(bags.instances):
        return None
    parts = np.split(bags.rows(), range(_AT_ONCE, bags.num_instances, _AT_ONCE))
    return np.concatenate([_hashes(bags.instances[part]) for part in parts])


def set_digests(bags: Content) -> list[str]:
    """Return a digest of the content of each bag that depends neither on the order nor on the type of its instances.

    It is the sum of 64-bit hashes of the instances as float32, so that a file of float32 and its text are the same. An
    instance of whole and of large numbers alone is hashed as it is, since float32 could make it equal to others. Bags
    on disk, and images, have their `bag_digests`.

    Examples
    --------
    >>> from midam import Bags
    >>> one, other = Bags.from_list([[[1.0, 2.0], [3.0, 4.0]]]), Bags.from_list([[[3, 4], [1, 2]]])
    >>> set_digests(one) == set_digests(other), bag_digests(one) == bag_digests(other)
    (True, False)
    """
    hashes = instance_hashes(bags)
    if hashes is None:
        return bag_digests(bags)
    sums = np.add.reduceat(hashes, np.cumsum(bags.sizes) - bags.sizes)
    return [f"{total:016x}-{size}" for total, size in zip(sums.tolist(), bags.sizes.tolist())]


def facts_of(bags: Content, content: list[Any]) -> dict[str, Any]:
    """Return what tells bags from others, for JSON; `content` stands for their instances."""
    facts: dict[str, Any] = {
        "ids": bags.ids.tolist(),
        "sizes": bags.sizes.tolist(),
        "labels": None if bags.labels is None else bags.labels.tolist(),
        "dtype": bags.instances.dtype.str,
        "shape": [bags.num_instances, *bags.instance_shape],
        "bags": content,
    }
    if bags.outcome is not None:
        facts["outcome"] = [bags.outcome.target, bags.outcome.names, bags.outcome.values.tolist()]
    if bags.covariates is not None:
        facts["covariates"] = bags.covariates.values()
    if bags.columns is not None:
        facts["columns"] = bags.columns
    for name in ("groups", "splits", "sites", "weights"):
        if (column := getattr(bags, name)) is not None:
            facts[name] = column.tolist()
    return facts


def content_hash(dtype: "np.dtype[Any]", instance_shape: tuple[int, ...]) -> "hashlib._Hash":
    """Begin the hash of a bag's content, to be updated with its instances in order."""
    return hashlib.sha256(json.dumps([dtype.str, *instance_shape]).encode())


def hash_rows(rows: NDArray[Any] | Rows, start: int, size: int, digest: "hashlib._Hash") -> None:
    """Update a hash with the rows of a bag, those on disk a chunk at a time."""
    # To plan chunks takes longer than to hash a small bag.
    for first, last in row_chunks(rows, *np.array([[start], [size]])) if on_disk(rows) else [(start, start + size)]:
        digest.update(np.ascontiguousarray(rows[first:last]).data)
