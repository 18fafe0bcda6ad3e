"""The sets of feature vectors, drawn, fetched or put there by hand; the digest of bags and instances in any order."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sets.download import parse_archive
from midam.data.sources.imageoptions import ImageOptions, refuse_unused
from midam.data.sources.npz import read_npz, write_npz
from midam.data.sources.reader import OnFile
from midam.errors import BagDataError


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TabularSet:
    """A set of feature vectors, and its numbers; `member` and `form` as in `midam.data.sets.download.parse_archive`."""

    name: str
    description: str
    license: str
    citation: str
    bags: int
    positives: int
    instances: int
    features: int
    digest: str  # of the content
    url: str | None = None  # of a public archive or, of a set with `obtain`, where it comes from; None: bundled
    obtain: str = ""  # how one comes by a set that has no public archive
    member: str = ""
    form: str = ""
    part: None = None

    @property
    def archive(self) -> str | None:
        """Where it is fetched from."""
        return None if self.obtain else self.url

    @property
    def places(self) -> tuple[str, ...]:
        """Files under ``$MIDAM_DATA`` or the cache where it is looked for."""
        return (f"tabular/{self.name}.npz", f"{self.name}.npz")

    @property
    def file(self) -> str:
        """What it is called in the cache."""
        return f"{self.name}.npz"

    def read(self, name: str, path: Path, options: ImageOptions, on_file: OnFile | None) -> Bags:  # noqa: ARG002
        """Read the set where it lies, verified; of its file, the keys X, bag and y."""
        refuse_unused(options, (), what="features", where=name)
        advice = self.obtain or "fetch it again"
        return canonical(read_npz(path), name=name, digest=self.digest, advice=advice)

    def keep(self, archive: Path, target: Path) -> None:
        """Put what was fetched into the cache, verified."""
        bags = parse_archive(archive, member=self.member, form=self.form, features=self.features)
        write_npz(canonical(bags, name=self.name, digest=self.digest, advice="fetch it again"), target)

    def offline(self, target: Path) -> str:
        """How to get the set without a connection."""
        return (
            f"set MIDAM_DATA to a folder that holds {self.file} or tabular/{self.file} (keys X, bag, y), or put the "
            f"file at {target}"
        )


def content_digest(bags: Bags) -> str:
    """SHA-256 of labels and instances (float32, rounded to 5 decimals), whatever the order of bags and instances."""
    return _join([digest for digest, _, _ in _digested(bags)])


def canonical(bags: Bags, *, name: str, digest: str, advice: str) -> Bags:
    """Bags of the expected `content_digest`, as float32 in canonical order, with ids ``name-0000``, ...

    `advice` is what to do about others, once their file is removed.
    """
    parts = sorted(_digested(bags), key=lambda part: part[0])
    found = _join([part[0] for part in parts])
    if found != digest:
        raise BagDataError(
            f"Expected the content of {name} (digest {digest[:12]}), got {len(bags)} bags of digest {found[:12]} "
            f"(in {bags.source}); remove the file and {advice}."
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
