"""How images, slides and volumes are cut into instances: the settings that their readers share."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from midam.errors import ConfigError
from midam.settings.cut import PATCHES, VOLUMES, CutSettings

Places = NDArray[np.int64]  # [n, 2] x and y of patches, or [n, 1] numbers of slices
Kind = Literal["features", "arrays", "images", "slides", "volumes"]

_APPLY: dict[Kind, tuple[str, ...]] = {
    "features": (),
    "arrays": VOLUMES,
    "images": PATCHES,
    "slides": (*PATCHES, "magnification"),
    "volumes": VOLUMES,
}


# How images, slides and volumes become instances: the settings of a run that say so.
ImageOptions = CutSettings
DEFAULTS = ImageOptions()


def refuse_unused(options: ImageOptions, kinds: Iterable[Kind], *, where: str) -> None:
    """Refuse settings that do not apply to any of these kinds of files.

    Raises
    ------
    ConfigError
        Naming the first one.

    Examples
    --------
    >>> refuse_unused(ImageOptions(window=(0, 1)), ["volumes"], where="scans")
    """
    kinds = set(kinds)
    allowed = {name for kind in kinds for name in _APPLY[kind]}
    for name, setting in CutSettings.model_fields.items():
        if name not in allowed and getattr(options, name) != setting.default:
            what = f" with {' and '.join(sorted(kinds))}" if kinds else ""
            raise ConfigError(f"Expected no --{name.replace('_', '-')}{what}, got some for {where}; leave it out.")
