"""The data sets of ``catalog.yaml``: `names`, `describe`, `load`, `fetch`.

``digits``, ``digits-classes`` and ``digits-labels`` are made from the digits in scikit-learn. The other sets are looked
up in ``$MIDAM_DATA``, then in the cache; sets with a public archive are otherwise downloaded, and for the rest an error
says how to obtain them. The content is verified, and bags and instances are put into one canonical order, so that a
seed gives the same result everywhere.
"""

import hashlib
import os
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.sources.request import DEFAULTS, ImageOptions, refuse_unused
from midam.errors import BagDataError, ConfigError, DataNotFoundError, nearest
from midam.settings.data import PATCHES, VOLUMES
from studies.sets.digits import DRAWN
from studies.sets.layouts import LAYOUTS
from studies.sets.tabular import CatalogSet, Progress, TabularSet, download


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ImageSet(CatalogSet):
    """An image set of the paper, with its counts under the default settings.

    Only ``adrenal`` is a single public file; the others are downloaded by hand or private. The digest is the MD5 of the
    only file, else the SHA-256 of names, sizes, labels and groups; empty if unknown.
    """

    positives: int
    features: str
    kind: str  # of its files: images, arrays or volumes
    places: tuple[str, ...]  # names under MIDAM_DATA or the cache
    strict: bool = True  # another digest is an error; else a warning, since other copies of the set are known
    archive: str | None = None  # address of its only file

    @property
    def file(self) -> str:
        """Name of its only file in the cache."""
        return Path(str(self.archive).partition("?")[0]).name

    def read(self, name: str, path: Path, options: ImageOptions) -> Bags:
        """Read the set at a path, and verify it if its digest is known."""
        refuse_unused(options, PATCHES if self.kind == "images" else VOLUMES, kind=self.kind, where=name)
        part = name.partition(":")[2] or self.part
        if path.is_file():
            self._verify(path, _md5(path))
        bags = LAYOUTS[self.name](path, part, options)
        if path.is_dir() and self.digest:
            self._verify(path, listing_digest(bags))
        return bags.replace(source=name)

    def keep(self, archive: Path, target: Path) -> None:
        """Verify the downloaded file, and move it into the cache."""
        self._verify(archive, _md5(archive))
        archive.replace(target)

    def offline(self, target: Path) -> str:  # noqa: ARG002
        """Return how to get the set without a connection."""
        return self.obtain

    def _verify(self, path: Path, digest: str) -> None:
        if digest == self.digest or not self.digest:
            return
        text = f"the files of {self.name} (digest {self.digest[:12]}), got others (digest {digest[:12]}) (in {path})"
        if self.strict:
            raise BagDataError(f"Expected {text}; {self.obtain}.")
        warnings.warn(f"expected {text}: counts and results may differ from the published ones", stacklevel=5)


def listing_digest(bags: Bags) -> str:
    """Return the SHA-256 of names, labels, groups and file sizes of bags of one file each, in any order."""
    labels, groups, sources = bags.require_labels(), bags.groups, bags.sources
    names = [""] * len(bags) if groups is None else groups.tolist()
    sizes = [0] * len(bags) if sources is None else [Path(path).stat().st_size for path in sources]
    lines = [f"{bag} {label} {group} {size}" for bag, label, group, size in zip(bags.ids, labels, names, sizes)]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


_KINDS: dict[str, type[TabularSet] | type[ImageSet]] = {"tabular": TabularSet, "images": ImageSet}
CATALOG = {
    name: _KINDS[kind](name=name, **options)
    for kind, sets in yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8")).items()
    for name, options in sets.items()
}


def names() -> list[str]:
    """Return the names of the catalog.

    Examples
    --------
    >>> names()[:12]  # doctest: +NORMALIZE_WHITESPACE
    ['digits', 'digits-classes', 'digits-labels', 'musk1', 'musk2', 'elephant', 'fox', 'tiger',
     'mutagenesis1', 'newsgroups1', 'physionet2012_icu', 'colon_nuclei']
    >>> names()[12:]  # doctest: +NORMALIZE_WHITESPACE
    ['japanese_vowels', 'enzymes', 'digits_points', 'miml_scene', 'miml_reuters', 'esol_atoms', 'cmapss_rul',
     'pbc2_landmark2y', 'heart_valve_landmark2y', 'breast', 'colon', 'adrenal', 'pdgm', 'oct']
    """
    return list(CATALOG)


def is_name(text: str) -> bool:
    """Return whether a text is a name of the catalog, with or without a part (``pdgm:T1``); ``c:/data`` is not."""
    name, colon, _ = text.partition(":")
    entry = CATALOG.get(name)
    return entry is not None and (not colon or entry.part is not None)


def describe(name: str) -> dict[str, Any]:
    """Return the fields of an entry, with its ``target``, ``archive`` and ``location``.

    ``archive`` is an address or None; ``location`` is a path, ``"bundled"`` or None.
    """
    entry, path = _entry(name), _find(name, None)
    location = "bundled" if _bundled(entry) else None if path is None else str(path)
    return {"target": "binary", **asdict(entry), "archive": entry.archive, "location": location}


def load(
    name: str,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    images: ImageOptions = DEFAULTS,
) -> Bags:
    """Load a data set from ``$MIDAM_DATA``, the `cache` folder (default: `cache_folder`) or its public address.

    `progress` is called with the bytes downloaded so far and in total (None: unknown); `images` says how an image set
    is cut. Sets of feature vectors are float32, with ids such as ``musk1-0007``; bags of an image set are named by
    their files. An address that does not answer, or a missing set without an address, raises a `DataNotFoundError` that
    says what to do; other content raises a `BagDataError`.

    Examples
    --------
    >>> load("digits").ids[0]
    np.str_('train-0000')
    """
    entry, path = _entry(name), _find(name, cache)
    if path is None and _bundled(entry):
        refuse_unused(images, (), kind="features", where=name)
        return DRAWN[name]()
    return entry.read(name, path or fetch(name, cache=cache, progress=progress), images)


def fetch(
    name: str, *, cache: str | Path | None = None, url: str | None = None, progress: Progress | None = None
) -> Path:
    """Download a data set from its public address into the cache, verify it, and return the file.

    `cache` and `progress` are as in `load`; `url` is another address of the same archive, for instance
    ``file:///downloads/archive.zip``. A set without an archive, an address that does not answer for a minute and a
    cache that cannot be written raise a `DataNotFoundError`; other content raises a `BagDataError` and leaves the cache
    as it was; a bundled set raises a `ConfigError`.
    """
    entry = _entry(name)
    if _bundled(entry):
        raise ConfigError(f"Expected a set to download, got {name}, which is bundled; load it.")
    if entry.archive is None:
        described = "" if entry.url is None else f" It is described at {entry.url} (license: {entry.license})."
        raise DataNotFoundError(
            f"Expected {entry.name} in MIDAM_DATA, got none of {', '.join(entry.places)}; {entry.obtain}.{described}"
        )
    folder = cache_folder() if cache is None else Path(cache)
    target = folder / entry.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
            archive = Path(temporary) / "archive"
            download(url or entry.archive, archive, progress=progress)
            entry.keep(archive, target)
    except DataNotFoundError as error:
        raise DataNotFoundError(f"{error} To use {name} offline, {entry.offline(target)}.") from error
    except OSError as error:
        raise DataNotFoundError(
            f"Expected a cache folder to write to, got {error} (in {folder}); set MIDAM_CACHE to another folder."
        ) from error
    return target


def cache_folder() -> Path:
    """Return the folder of downloaded data: ``$MIDAM_CACHE``, or ``midam`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if folder := os.environ.get("MIDAM_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midam"


def _entry(name: str) -> TabularSet | ImageSet:
    if not is_name(name):
        raise ConfigError(f"Expected a name of the catalog, got {name!r}; {nearest(name, CATALOG, count=3)}")
    return CATALOG[name.partition(":")[0]]


def _bundled(entry: TabularSet | ImageSet) -> bool:
    return entry.archive is None and not entry.obtain


def _find(name: str, cache: str | Path | None) -> Path | None:
    """Return the path of a set that is here already; None otherwise."""
    roots = [Path(data).expanduser()] if (data := os.environ.get("MIDAM_DATA")) else []
    roots.append(cache_folder() if cache is None else Path(cache))
    places = (root / place for root in roots for place in _entry(name).places)
    return next((place for place in places if place.exists()), None)
