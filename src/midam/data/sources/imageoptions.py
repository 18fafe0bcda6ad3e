"""How images, slides and volumes are cut into instances: the settings that their readers share."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from midam.errors import ConfigError
from midam.settings.cut import PATCHES, VOLUMES, CutSettings

__all__ = ["DEFAULTS", "PATCHES", "VOLUMES", "ImageOptions", "Places", "RunOptions", "refuse_unused"]

Places = NDArray[np.int64]  # [n, 2] x and y of patches, or [n, 1] numbers of slices

ImageOptions = CutSettings
DEFAULTS = ImageOptions()


class RunOptions(CutSettings):
    """The settings with which a run was trained, and the size of its slices.

    Attributes
    ----------
    matrix
        Rows and columns of slices, or slices, rows and columns of volumes: those of another size are resized, slices in
        their proportions, and padded; with `spacing`, cropped or padded alone.
    """

    matrix: tuple[int, ...]


def refuse_unused(options: ImageOptions, allowed: Collection[str], *, what: str, where: str) -> None:
    """Refuse settings that do not apply to data of this kind, with a `ConfigError` that names the first one."""
    for name, setting in CutSettings.model_fields.items():
        value = getattr(options, name)
        if name not in allowed and value != setting.default:
            raise ConfigError(f"Expected no `{name}` with {what}, got {value!r} for {where}; leave it out.")
