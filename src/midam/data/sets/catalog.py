"""The built-in data sets of ``catalog.yaml``: `names`, `describe`, `load`, `fetch`.

``digits``, ``digits-classes`` and ``digits-labels`` are drawn from digits that scikit-learn carries. The others are
looked for in ``$MIDAM_DATA``, then in the cache; those with a public archive are otherwise fetched, and of those
without one an error tells how to obtain them. The content is verified, and bags and instances are put into one
canonical order, so that a seed gives the same result everywhere.
"""

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from midam.data.bags import Bags
from midam.data.sets.digits import DRAWN
from midam.data.sets.download import Progress, download
from midam.data.sets.images import ImageSet
from midam.data.sets.tabular import TabularSet
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, refuse_unused
from midam.data.sources.request import OnFile
from midam.errors import ConfigError, DataNotFoundError, nearest
from midam.settings import read_yaml

_KINDS: dict[str, type[TabularSet] | type[ImageSet]] = {"tabular": TabularSet, "images": ImageSet}
CATALOG = {
    name: _KINDS[kind](name=name, **options)
    for kind, sets in read_yaml(Path(__file__).with_name("catalog.yaml")).items()
    for name, options in sets.items()
}


def names() -> list[str]:
    """Names of the catalog.

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
    """Whether this is a name of the catalog, perhaps with a part as in ``pdgm:T1``; ``c:/data`` is none."""
    name, colon, _ = text.partition(":")
    entry = CATALOG.get(name)
    return entry is not None and (not colon or entry.part is not None)


def describe(name: str) -> dict[str, Any]:
    """Fields of an entry, with its ``target``; the address of its ``archive``, or None; its ``location``.

    That is a path, ``"bundled"``, or None.
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
    on_file: OnFile | None = None,
) -> Bags:
    """Load a data set from ``$MIDAM_DATA``, from the `cache` folder (default: `cache_folder`), or from its public home.

    `progress` is called with the bytes fetched and in all (None: unknown); `images` says how an image set is cut, and
    `on_file` is called with the number of its files looked at and of all. The bags are float32, with ids such as
    ``musk1-0007``; those of an image set are named by their files. A home that does not answer raises a
    `DataNotFoundError` that says what to do, as does a set that is not here and has none; other content is a
    `BagDataError`.

    Examples
    --------
    >>> load("digits").ids[0]
    np.str_('train-0000')
    """
    entry, path = _entry(name), _find(name, cache)
    if path is None and _bundled(entry):
        refuse_unused(images, (), what="features", where=name)
        return DRAWN[name]()
    return entry.read(name, path or fetch(name, cache=cache, progress=progress), images, on_file)


def fetch(
    name: str, *, cache: str | Path | None = None, url: str | None = None, progress: Progress | None = None
) -> Path:
    """Fetch a data set from its public home into the cache, verified; returns the file.

    `cache` and `progress` are as in `load`; `url` is another address of the same archive, for instance
    ``file:///downloads/archive.zip``. A set without an archive, an address that does not answer for a minute and a
    cache that cannot be written raise a `DataNotFoundError`; other content raises a `BagDataError` and leaves the cache
    as it was; a bundled set raises a `ConfigError`.
    """
    entry = _entry(name)
    if _bundled(entry):
        raise ConfigError(f"Expected a set to download, got {name}, which is bundled; load it.")
    if entry.archive is None:
        raise DataNotFoundError(_how_to_get(entry))
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
    """Folder of fetched data: ``$MIDAM_CACHE``, or ``midam`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("MIDAM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midam"


def _entry(name: str) -> TabularSet | ImageSet:
    if not is_name(name):
        raise ConfigError(f"Expected a name of the catalog, got {name!r}; {nearest(name, CATALOG, count=3)}")
    return CATALOG[name.partition(":")[0]]


def _bundled(entry: TabularSet | ImageSet) -> bool:
    return entry.archive is None and not entry.obtain


def _how_to_get(entry: TabularSet | ImageSet) -> str:
    """Message about a set that is not here and cannot be fetched: how to obtain it."""
    where = "" if entry.url is None else f" It is described at {entry.url} (license: {entry.license})."
    return f"Expected {entry.name} in MIDAM_DATA, got none of {', '.join(entry.places)}; {entry.obtain}.{where}"


def _find(name: str, cache: str | Path | None) -> Path | None:
    """Path of a set that lies here already."""
    roots = [Path(data).expanduser()] if (data := os.environ.get("MIDAM_DATA")) else []
    roots.append(cache_folder() if cache is None else Path(cache))
    places = (root / place for root in roots for place in _entry(name).places)
    return next((place for place in places if place.exists()), None)
