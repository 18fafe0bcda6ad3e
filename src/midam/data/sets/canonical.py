"""The content of bags whatever their order: its digest, and one canonical order."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError


def content_digest(bags: Bags) -> str:
    """SHA-256 of labels and instances (float32, rounded to 5 decimals), whatever the order of bags and instances."""
    return _join([digest for digest, _, _ in _digested(bags)])


def canonical(bags: Bags, *, name: str, digest: str) -> Bags:
    """Bags of the expected `content_digest`, as float32 in canonical order, with ids ``name-0000``, ..."""
    parts = sorted(_digested(bags), key=lambda part: part[0])
    found = _join([part[0] for part in parts])
    if found != digest:
        raise BagDataError(
            f"Expected the content of {name} (digest {digest[:12]}), got {len(bags)} bags of digest {found[:12]} "
            f"(in {bags.source}); remove the file and fetch it again."
        )
    return Bags.from_list(
        [rows for _, rows, _ in parts],
        [label for _, _, label in parts],
        ids=[f"{name}-{number:04d}" for number in range(len(parts))],
        source=name,
    )


def _digested(bags: Bags) -> list[tuple[bytes, NDArray[np.float32], int]]:
    """Digest, instances in lexicographic order, and label of each bag."""
    parts = []
    for number, label in enumerate(bags.require_labels().tolist()):
        rows = bags[number].reshape(int(bags.sizes[number]), -1).astype(np.float32)
        # float32 first: a file of float32 has the digest of the float64 that it was made of.
        rounded = np.round(rows.astype(np.float64), 5).astype("<f4") + np.float32(0)  # -0 becomes 0
        order = np.lexsort(rounded.T[::-1])
        parts.append((hashlib.sha256(bytes([label]) + rounded[order].tobytes()).digest(), rows[order], label))
    return parts


def _join(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()
