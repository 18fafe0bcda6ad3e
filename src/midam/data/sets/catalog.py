"""The built-in data sets of ``catalog.yaml``: `names`, `describe`, `load`, `fetch`.

``digits`` is drawn from digits that scikit-learn carries. The others are looked for in ``$MIDAM_DATA``, then in the
cache; those with a public archive are otherwise fetched. The content is verified, and bags and instances are put into
one canonical order, so that a seed gives the same result everywhere.
"""

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from midam.data.bags import Bags
from midam.data.sets.download import Progress, download
from midam.data.sets.images import ImageSet
from midam.data.sets.tabular import TabularSet
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions
from midam.data.sources.reader import OnFile
from midam.errors import ConfigError, DataNotFoundError, nearest
from midam.settings import read_yaml

_KINDS: dict[str, type[TabularSet] | type[ImageSet]] = {"tabular": TabularSet, "images": ImageSet}
CATALOG = {
    name: _KINDS[kind](name=name, **said)
    for kind, sets in read_yaml(Path(__file__).with_name("catalog.yaml")).items()
    for name, said in sets.items()
}


def names() -> list[str]:
    """Names of the catalog.

    Examples
    --------
    >>> names()
    ['digits', 'musk1', 'musk2', 'elephant', 'fox', 'tiger', 'breast', 'colon', 'adrenal', 'pdgm', 'oct']
    """
    return list(CATALOG)


def is_name(text: str) -> bool:
    """Whether this is a name of the catalog, perhaps with a part as in ``pdgm:T1``; ``c:/data`` is none."""
    name, colon, _ = text.partition(":")
    entry = CATALOG.get(name)
    return entry is not None and (not colon or entry.part is not None)


def describe(name: str) -> dict[str, Any]:
    """Fields of an entry, and its ``location``: a path, ``"bundled"``, or None if the set would have to be fetched."""
    entry, found = _entry(name), _find(name, None)
    location = "bundled" if _bundled(entry) else None if found is None else str(found)
    return {**asdict(entry), "location": location}


def load(
    name: str,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    images: ImageOptions = DEFAULTS,
    on_file: OnFile | None = None,
) -> Bags:
    """Load a data set from ``$MIDAM_DATA``, from the `cache` folder (default: `cache_folder`), or from its public home.

    `progress` is called with the bytes fetched and in all (None: unknown); `images` says how an image set is cut, and
    `on_file` is called with the number of its files looked at and of all. The bags are float32, with ids such as
    ``musk1-0007``; those of an image set are named by their files. A home that does not answer raises a
    `DataNotFoundError` that says what to do, other content a `BagDataError`.

    Examples
    --------
    >>> load("digits").ids[0]
    np.str_('train-0000')
    """
    entry, path = _entry(name), _find(name, cache)
    if path is None and entry.archive is not None:
        path = fetch(name, cache=cache, progress=progress)
    return entry.read(name, path, images, on_file)


def fetch(
    name: str, *, cache: str | Path | None = None, url: str | None = None, progress: Progress | None = None
) -> Path:
    """Fetch a data set from its public home into the cache, verified; returns the file.

    `cache` and `progress` are as in `load`; `url` is another address of the same archive, for instance
    ``file:///downloads/archive.zip``. An address that does not answer for a minute and a cache that cannot be written
    raise a `DataNotFoundError`; other content raises a `BagDataError` and leaves the cache as it was; a bundled set
    raises a `ConfigError`.
    """
    entry = _entry(name)
    if _bundled(entry):
        raise ConfigError(f"Expected a set to download, got {name}, which is bundled; load it.")
    folder = cache_folder() if cache is None else Path(cache)
    target = folder / entry.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
            archive = Path(temporary) / "archive"
            download(url or str(entry.archive), archive, progress=progress)
            entry.keep(archive, target)
    except DataNotFoundError as error:
        raise DataNotFoundError(f"{error} To use {name} offline, {entry.offline(target)}.") from error
    except OSError as error:
        raise DataNotFoundError(
            f"Expected a cache folder to write to, got {error} (in {folder}); set MIDAM_CACHE to another folder."
        ) from error
    return target


def cache_folder() -> Path:
    """Folder of fetched data: ``$MIDAM_CACHE``, or ``midam`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("MIDAM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midam"


def _entry(name: str) -> TabularSet | ImageSet:
    if not is_name(name):
        raise ConfigError(f"Expected a name of the catalog, got {name!r}; {nearest(name, CATALOG, count=3)}")
    return CATALOG[name.partition(":")[0]]


def _bundled(entry: TabularSet | ImageSet) -> bool:
    return isinstance(entry, TabularSet) and entry.archive is None


def _find(name: str, cache: str | Path | None) -> Path | None:
    """Path of a set that lies here already."""
    roots = [Path(data).expanduser()] if (data := os.environ.get("MIDAM_DATA")) else []
    roots.append(cache_folder() if cache is None else Path(cache))
    places = (root / place for root in roots for place in _entry(name).places)
    return next((place for place in places if place.exists()), None)
