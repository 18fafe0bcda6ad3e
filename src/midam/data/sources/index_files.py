"""Places that stand beside the features: `SLIDE.index.npz` or `.npy`, as Slideflow writes them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.sources.formats.npy import PARSING, read_archive
from midam.data.sources.formats.open_file import COORDS, OpenFile, sound
from midam.errors import BagDataError
from midam.reading import parse_json, read_bytes

_SUFFIXES = (".index.npz", ".index.npy")
_ONLY = "arr_0"  # how numpy.savez calls an array without a name
_MOST_BYTES = 1 << 20  # of a configuration
_WIDEST = 1_000_000  # micrometers: no slide is wider than a meter
_CONFIG = "bags_config.json"  # of Slideflow: how the slides were cut


def without_indexes(paths: Sequence[Path]) -> list[Path]:
    """Files without those that hold the places of the features of another file beside them."""
    homes = {path.with_suffix("") for path in paths if not path.name.lower().endswith(_SUFFIXES)}
    return [path for path in paths if not (path.name.lower().endswith(_SUFFIXES) and _home(path) in homes)]


def _home(index: Path) -> Path:
    return index.with_suffix("").with_suffix("")


def with_index(opened: OpenFile, path: Path) -> OpenFile:
    """An open file with the places beside it, where it has none of its own."""
    beside = next((file for file in (path.with_suffix(suffix) for suffix in _SUFFIXES) if file.is_file()), None)
    if opened.coords is not None or opened.cut or beside is None:
        return opened
    if beside.suffix.lower() == ".npz":
        arrays, _ = read_archive(beside, (_ONLY, COORDS))
        found = arrays.get(COORDS, next(iter(arrays.values()), None))
    else:
        with sound("a whole .npy file of plain numbers", beside), PARSING:
            found = np.load(beside, allow_pickle=False)
    if found is None:
        raise BagDataError(f"Expected places under {_ONLY} or {COORDS}, got none (in {beside}); write them again.")
    # Slideflow notes the centers of its tiles.
    said = dict(opened.attributes)
    said[COORDS] = {**said.get(COORDS, {}), "place": "center", **_tile_size(path.parent / _CONFIG)}
    return replace(opened, coords=found, attributes=said, held=opened.held + found.nbytes)


def _tile_size(config: Path) -> dict[str, Any]:
    """Side of a tile in micrometers as Slideflow notes it; nothing where it notes a magnification, or none."""
    if not config.is_file():
        return {}
    with sound("a JSON object", config):
        said = parse_json(read_bytes(config, error=BagDataError, most=_MOST_BYTES))
    side = said.get("tile_um") if isinstance(said, dict) else None
    if not isinstance(side, int | float):
        return {}
    if isinstance(side, bool) or not 0 < side < _WIDEST:
        raise BagDataError(
            f"Expected tile_um in micrometers, between 0 and {_WIDEST}, got {side} (in {config}); correct or remove it."
        )
    return {"tile_um": float(side)}
