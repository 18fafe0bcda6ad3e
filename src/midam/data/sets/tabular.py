"""The sets of feature vectors, drawn, fetched or put there by hand; the digest of bags and instances in any order."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sets.download import parse_archive
from midam.data.sources.npz import read_npz, write_npz
from midam.data.sources.request import ImageOptions, OnFile, refuse_unused
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TabularSet:
    """A set of feature vectors, and its numbers; `member` and `form` as in `midam.data.sets.download.parse_archive`.

    Targets other than two classes have the `names` of `TargetLabels` and `counts`: bags of each class or with each
    label, or with the event; none of numbers.
    """

    name: str
    description: str
    license: str
    citation: str
    bags: int
    instances: int
    features: int
    digest: str  # of the content
    target: str = "binary"
    positives: int | None = None  # of two classes
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    url: str | None = None  # of a public archive or, of a set with `obtain`, where it comes from; None: bundled
    obtain: str = ""  # how to obtain a set that has no public archive
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
        return (f"{'tabular' if self.target == 'binary' else 'targets'}/{self.name}.npz", f"{self.name}.npz")

    @property
    def file(self) -> str:
        """Name of the file in the cache."""
        return f"{self.name}.npz"

    def read(self, name: str, path: Path, options: ImageOptions, on_file: OnFile | None) -> Bags:  # noqa: ARG002
        """Read the set where it lies, verified; of its file, the keys X, bag and y, or time and event (1: it came)."""
        refuse_unused(options, (), what="features", where=name)
        advice = self.obtain or "fetch it again"
        bags = read_npz(path, target=self.target, positive="1" if self.target == "survival" else None)
        return canonical(bags, name=name, digest=self.digest, advice=advice, names=self.names)

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


class _Part(NamedTuple):
    digest: bytes
    rows: NDArray[np.float32]  # instances in lexicographic order
    bag: int


def content_digest(bags: Bags) -> str:
    """SHA-256 of labels or outcome and instances (float32, rounded to 5 decimals), in whatever order these are."""
    return _join(_digested(bags))


def canonical(bags: Bags, *, name: str, digest: str, advice: str, names: Sequence[str] = ()) -> Bags:
    """Bags of the expected `content_digest`, as float32 in canonical order, with ids ``name-0000``, ...

    `advice` is what to do about others, once their file is removed; `names` are those of the outcome, of which the
    digest does not know.
    """
    parts = sorted(_digested(bags), key=lambda part: part.digest)
    actual = _join(parts)
    if actual != digest:
        raise BagDataError(
            f"Expected the content of {name} (digest {digest[:12]}), got {len(bags)} bags of digest {actual[:12]} "
            f"(in {bags.source}); remove the file and {advice}."
        )
    order, outcome = [part.bag for part in parts], bags.outcome
    if outcome is not None:
        outcome = TargetLabels.of(outcome.target, _rounded(outcome.values[order]), names=names)
    return Bags.from_list(
        [part.rows for part in parts],
        None if bags.labels is None else bags.labels[order],
        outcome=outcome,
        ids=[f"{name}-{number:04d}" for number in range(len(parts))],
        source=name,
    )


def _digested(bags: Bags) -> list[_Part]:
    parts = []
    for number, label in enumerate(_label_bytes(bags)):
        rows = bags[number].reshape(int(bags.sizes[number]), -1).astype(np.float32)
        rounded = _rounded(rows).astype("<f4")
        order = np.lexsort(rounded.T[::-1])
        parts.append(_Part(hashlib.sha256(label + rounded[order].tobytes()).digest(), rows[order], number))
    return parts


def _label_bytes(bags: Bags) -> list[bytes]:
    """Label of each bag as bytes: one of 0 or 1, or the target and its numbers."""
    if bags.outcome is None:
        return [bytes([label]) for label in bags.require_labels().tolist()]
    head = f"{bags.outcome.target}:".encode()
    return [head + row.tobytes() for row in _rounded(bags.outcome.values).astype("<f4")]


def _rounded(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Numbers to 5 decimals: of a file of float32 those of the float64 that it was made of."""
    rounded = np.round(values.astype(np.float32).astype(np.float64), 5) + 0.0  # -0 becomes 0
    return np.where(np.isnan(rounded), np.nan, rounded)


def _join(parts: Sequence[_Part]) -> str:
    return hashlib.sha256(b"".join(sorted(part.digest for part in parts))).hexdigest()
