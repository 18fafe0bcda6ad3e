"""The sets of feature vectors: digits, MUSK, and the Corel images."""

from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sets.canonical import canonical
from midam.data.sets.digits import digit_bags
from midam.data.sets.download import parse_archive
from midam.data.sources.imageoptions import ImageOptions, refuse_unused
from midam.data.sources.npz import read_npz, write_npz
from midam.data.sources.reader import OnFile


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
    url: str | None = None  # of a public archive; None: no download is needed
    member: str = ""
    form: str = ""
    part: None = None

    @property
    def archive(self) -> str | None:
        """Where it is fetched from."""
        return self.url

    @property
    def places(self) -> tuple[str, ...]:
        """Files under ``$MIDAM_DATA`` or the cache where it is looked for."""
        return (f"tabular/{self.name}.npz", f"{self.name}.npz")

    @property
    def file(self) -> str:
        """What it is called in the cache."""
        return f"{self.name}.npz"

    def read(self, name: str, path: Path | None, options: ImageOptions, on_file: OnFile | None) -> Bags:  # noqa: ARG002
        """Read the set where it lies, or draw it; verified."""
        refuse_unused(options, (), what="features", where=name)
        return digit_bags() if path is None else canonical(read_npz(path), name=name, digest=self.digest)

    def keep(self, archive: Path, target: Path) -> None:
        """Put what was fetched into the cache, verified."""
        bags = parse_archive(archive, member=self.member, form=self.form, features=self.features)
        write_npz(canonical(bags, name=self.name, digest=self.digest), target)

    def offline(self, target: Path) -> str:
        """How to get the set without a connection."""
        return (
            f"set MIDAM_DATA to a folder that holds {self.file} or tabular/{self.file} (keys X, bag, y), or put the "
            f"file at {target}"
        )
