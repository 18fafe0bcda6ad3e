"""The sets of feature vectors: digits, MUSK, and the Corel images."""

from dataclasses import dataclass
from pathlib import Path

from midam.data.bags import Bags
from midam.data.sets.canonical import canonical
from midam.data.sets.digits import digit_bags
from midam.data.sets.download import parse_archive
from midam.data.sources.imageoptions import ImageOptions, refuse_unused
from midam.data.sources.npz import read_npz, write_npz
from midam.data.sources.reader import OnFile

_UCI = "https://archive.ics.uci.edu/static/public"
_ANDREWS = "http://www.cs.columbia.edu/~andrews/mil/data/MIL-Data-2002-Musk-Corel-Trec9.tgz"


@dataclass(frozen=True)
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
    url: str | None  # of a public archive; None: no download is needed
    member: str
    form: str
    digest: str  # of the content
    reached: bool  # whether the digest is of what the url gave, or of a copy of the data
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


def _musk(version: int, bags: int, positives: int, instances: int, digest: str) -> TabularSet:
    return TabularSet(
        name=f"musk{version}",
        description=f"MUSK version {version}: molecules (bags) by their shapes (instances); musk or not",
        license="CC BY 4.0",
        citation="Dietterich, Lathrop, Lozano-Perez: Solving the multiple instance problem, Artif. Intell. 89, 1997",
        bags=bags,
        positives=positives,
        instances=instances,
        features=166,
        url=f"{_UCI}/{73 + version}/musk+version+{version}.zip",
        member=rf"(^|/)clean{version}\.data(\.Z|\.gz)?$",
        form="musk",
        digest=digest,
        reached=False,
    )


def _corel(name: str, instances: int, digest: str) -> TabularSet:
    return TabularSet(
        name=name,
        description=f"Corel images (bags) by their regions (instances): {name} or another animal",
        license="research use",
        citation="Andrews, Tsochantaridis, Hofmann: Support vector machines for multiple-instance learning, NIPS 2002",
        bags=200,
        positives=100,
        instances=instances,
        features=230,
        url=_ANDREWS,
        member=rf"(^|/){name}(/data)?_?[^/]*100x100[^/]*\.svm(\.gz)?$",
        form="svm",
        digest=digest,
        reached=False,
    )


TABULAR_SETS = (
    TabularSet(
        name="digits",
        description="bags of 5 to 15 real handwritten digits (8x8); positive when 1 to 3 of them are nines",
        license="CC BY 4.0",
        citation="Alpaydin, Kaynak: Optical recognition of handwritten digits, UCI 1998",
        bags=360,
        positives=180,
        instances=3667,
        features=64,
        url=None,
        member="",
        form="",
        digest="f2edc9baff01863c5cd99abae2bdb2cd96399db028da15887539207a2f9f4309",
        reached=True,
    ),
    _musk(1, 92, 47, 476, "bb2ea4c66b2b6b234027ce256215cf201612e2eb691c64837c43f2c2e3963f70"),
    _musk(2, 102, 39, 6598, "9bce3e039510159ceb933c5295069772d0b1ad47e273429e7117a0e0caef7fd2"),
    _corel("elephant", 1391, "f175ab13366e523e1151181348705970077fb8850a3607fefe11a93ba8c7188f"),
    _corel("fox", 1320, "8216c43b706093160b46304fc445d09d1cf3f80762f4f2d081ae9f2bae413f2e"),
    _corel("tiger", 1220, "ceefe3bef9ea87af5c1d236703154afc08e61214f9951282ae588ff26271da86"),
)
