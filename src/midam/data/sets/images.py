"""The image sets of the paper; only ``adrenal`` is a single public file, others are fetched by hand or are private."""

import hashlib
import warnings
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sets.layouts import LAYOUTS
from midam.data.sources.imageoptions import PATCHES, VOLUMES, ImageOptions, refuse_unused
from midam.data.sources.request import OnFile
from midam.errors import BagDataError


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ImageSet:
    """An image set of the catalog, with its numbers by the default settings."""

    name: str
    description: str
    license: str
    citation: str
    bags: int
    positives: int
    instances: int
    features: str
    kind: str  # of its files: images, arrays or volumes
    obtain: str
    places: tuple[str, ...]  # names under MIDAM_DATA or the cache
    url: str | None = None
    digest: str = ""  # MD5 of its only file, else SHA-256 of names, sizes, labels and groups; empty: not known
    strict: bool = True  # another digest is an error; else, where other copies of the set are known, a warning
    archive: str | None = None  # address of its only file
    part: str | None = None  # read where the name has none, as in pdgm:FLAIR; None: the set has no parts

    @property
    def file(self) -> str:
        """Name of its only file in the cache."""
        return Path(str(self.archive).partition("?")[0]).name

    def read(self, name: str, path: Path, options: ImageOptions, on_file: OnFile | None) -> Bags:
        """Read a set that lies here, verified as far as its digest is known."""
        refuse_unused(options, PATCHES if self.kind == "images" else VOLUMES, what=self.kind, where=name)
        part = name.partition(":")[2] or self.part
        if path.is_file():
            self._verify(path, _md5(path))
        bags = LAYOUTS[self.name](path, part, options, on_file)
        if path.is_dir() and self.digest:
            self._verify(path, listing_digest(bags))
        return bags.replace(source=name)

    def keep(self, archive: Path, target: Path) -> None:
        """Put the file that was fetched into the cache, verified."""
        self._verify(archive, _md5(archive))
        archive.replace(target)

    def offline(self, target: Path) -> str:  # noqa: ARG002
        """How to get the set without a connection."""
        return self.obtain

    def _verify(self, path: Path, digest: str) -> None:
        if digest == self.digest or not self.digest:
            return
        text = f"the files of {self.name} (digest {self.digest[:12]}), got others (digest {digest[:12]}) (in {path})"
        if self.strict:
            raise BagDataError(f"Expected {text}; {self.obtain}.")
        warnings.warn(f"expected {text}: counts and results may differ from the published ones", stacklevel=5)


def listing_digest(bags: Bags) -> str:
    """SHA-256 of the names, labels, groups and file sizes of bags of one file each, whatever their order."""
    labels, groups, sources = bags.require_labels(), bags.groups, bags.sources
    lines = [
        f"{bags.ids[i]} {labels[i]} {'' if groups is None else groups[i]} "
        f"{0 if sources is None else Path(sources[i]).stat().st_size}"
        for i in range(len(bags))
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
