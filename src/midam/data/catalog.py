"""The built-in data sets: `names`, `describe`, `load`, `fetch`.

``digits`` is drawn from digits that scikit-learn carries. The five classical sets are looked for in ``$MIDAM_DATA``,
then in the cache, and are otherwise fetched from their public homes. Wherever a set comes from, its content is
verified, and its bags and instances are put into one canonical order, so that a seed gives the same result everywhere.
"""

import difflib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from midam.data.bags import Bags
from midam.data.content import canonical
from midam.data.digits import digit_bags
from midam.data.fetch import Progress, download, parse_archive
from midam.data.sources.npz import read_npz, write_npz
from midam.errors import ConfigError, DataNotFoundError

_UCI = "https://archive.ics.uci.edu/static/public"
_ANDREWS = "http://www.cs.columbia.edu/~andrews/mil/data/MIL-Data-2002-Musk-Corel-Trec9.tgz"


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue.

    Attributes
    ----------
    name, description, licence, citation : str
        What it is, and to whom it is owed.
    bags, positives, instances, features : int
        Its numbers.
    url : str or None
        Public archive. None: no download is needed.
    member : str
        Regular expression that finds the table in the archive.
    form : {"", "musk", "svm"}
        Format of the table, see `midam.data.fetch.parse_archive`.
    digest : str
        `midam.data.content.content_digest` of the bags.
    reached : bool
        Whether ``url`` was reached when the digest was computed. False: the digest comes from a copy of the data.
    """

    name: str
    description: str
    licence: str
    citation: str
    bags: int
    positives: int
    instances: int
    features: int
    url: str | None
    member: str
    form: str
    digest: str
    reached: bool


def _musk(version: int, bags: int, positives: int, instances: int, digest: str) -> Entry:
    return Entry(
        name=f"musk{version}",
        description=f"MUSK version {version}: molecules (bags) by their shapes (instances); musk or not",
        licence="CC BY 4.0",
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


def _corel(name: str, instances: int, digest: str) -> Entry:
    return Entry(
        name=name,
        description=f"Corel images (bags) by their regions (instances): {name} or another animal",
        licence="research use",
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


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="digits",
            description="bags of 5 to 15 real handwritten digits (8x8); positive when 1 to 3 of them are nines",
            licence="CC BY 4.0",
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
}


def names() -> list[str]:
    """Names of the catalogue.

    Examples
    --------
    >>> names()
    ['digits', 'musk1', 'musk2', 'elephant', 'fox', 'tiger']
    """
    return list(CATALOG)


def describe(name: str, *, cache: str | Path | None = None) -> dict[str, Any]:
    """Describe an entry: the fields of `Entry`, and where it lies here.

    Parameters
    ----------
    name : str
        Catalogue name.
    cache : str or Path, optional
        Cache folder. Default: `cache_folder`.

    Returns
    -------
    dict
        The fields, and ``location``: a path, ``"bundled"``, or None if the set would have to be fetched.

    Raises
    ------
    ConfigError
        If there is no such entry.

    Examples
    --------
    >>> describe("digits")["location"]
    'bundled'
    """
    entry = _entry(name)
    found = _find(name, cache)
    location = "bundled" if entry.url is None else None if found is None else str(found)
    return {**asdict(entry), "location": location}


def load(name: str, *, cache: str | Path | None = None, progress: Progress | None = None) -> Bags:
    """Load a data set: from ``$MIDAM_DATA``, from the cache, or from its public home.

    Parameters
    ----------
    name : str
        Catalogue name.
    cache : str or Path, optional
        Cache folder. Default: `cache_folder`.
    progress : callable, optional
        See `midam.data.fetch.download`.

    Returns
    -------
    Bags
        Verified bags, float32, in canonical order, with ids such as ``musk1-0007``.

    Raises
    ------
    DataNotFoundError
        If the set has to be fetched and its home does not answer; the message says what to do.
    BagDataError
        If the content is not what it should be.
    ConfigError
        If there is no such entry.

    Examples
    --------
    >>> load("digits").ids[0]
    np.str_('train-0000')
    """
    entry = _entry(name)
    if entry.url is None:
        return digit_bags()
    path = _find(name, cache)
    if path is None:
        path = fetch(name, cache=cache, progress=progress)
    return canonical(read_npz(path), name=name, digest=entry.digest)


def fetch(
    name: str,
    *,
    cache: str | Path | None = None,
    url: str | None = None,
    timeout: float = 60.0,
    progress: Progress | None = None,
) -> Path:
    """Fetch a data set from its public home into the cache, verified.

    Parameters
    ----------
    name : str
        Catalogue name.
    cache : str or Path, optional
        Cache folder. Default: `cache_folder`.
    url : str, optional
        Another address of the same archive, for instance ``file:///downloads/archive.zip``.
    timeout : float, default 60
        Seconds without an answer.
    progress : callable, optional
        See `midam.data.fetch.download`.

    Returns
    -------
    Path
        The file in the cache.

    Raises
    ------
    DataNotFoundError
        If the address does not answer, or the cache cannot be written.
    BagDataError
        If the content is not what it should be. The cache is then left as it was.
    ConfigError
        If there is no such entry, or it needs no download.
    """
    entry = _entry(name)
    if entry.url is None:
        raise ConfigError(f"Expected a set to download, got {name}, which is bundled; load it.")
    folder = cache_folder() if cache is None else Path(cache)
    target = folder / f"{name}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
            archive = Path(temporary) / "archive"
            download(url or entry.url, archive, timeout=timeout, progress=progress)
            bags = parse_archive(archive, member=entry.member, form=entry.form, features=entry.features)
            write_npz(canonical(bags, name=name, digest=entry.digest), target)
    except DataNotFoundError as error:
        raise DataNotFoundError(
            f"{error} To use {name} offline, set MIDAM_DATA to a folder that holds {name}.npz or tabular/{name}.npz "
            f"(keys X, bag, y), or put the file at {target}."
        ) from error
    except OSError as error:
        raise DataNotFoundError(
            f"Expected a cache folder to write to, got {error} (in {folder}); set MIDAM_CACHE to another folder."
        ) from error
    return target


def cache_folder() -> Path:
    """Folder of fetched data: ``$MIDAM_CACHE``, or ``midam`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Examples
    --------
    >>> os.environ["MIDAM_CACHE"] = "somewhere"
    >>> cache_folder().name
    'somewhere'
    >>> del os.environ["MIDAM_CACHE"]
    """
    own = os.environ.get("MIDAM_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midam"


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        near = difflib.get_close_matches(name, CATALOG, n=3, cutoff=0.5) or list(CATALOG)
        raise ConfigError(f"Expected a catalogue name, got {name!r}; names in the catalogue: {', '.join(near)}.")
    return CATALOG[name]


def _find(name: str, cache: str | Path | None) -> Path | None:
    """Path of a set that lies here already."""
    folder = cache_folder() if cache is None else Path(cache)
    places = [folder / f"{name}.npz"]
    if data := os.environ.get("MIDAM_DATA"):
        root = Path(data).expanduser()
        places = [root / "tabular" / f"{name}.npz", root / f"{name}.npz", *places]
    return next((place for place in places if place.is_file()), None)
