"""How images, slides and volumes are cut into instances: the settings that their readers share."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import ConfigError

Places = NDArray[np.int64]  # [n, 2] x and y of patches, or [n, 1] numbers of slices
# The settings that apply to images (and slides), and to volumes.
PATCHES = ("patch_size", "stride", "tissue")
VOLUMES = ("axis", "spacing", "window", "drop_empty", "slice_size", "volume", "volume_size")


@dataclass(frozen=True)
class ImageOptions:
    """How images, slides and volumes become instances; the defaults suit each kind.

    Parameters
    ----------
    patch_size : int, default 32
        Side of a patch in pixels, at the magnification that is read. Pixels that fill no whole patch are left out.
    stride : int, optional
        Pixels from one patch to the next; default: `patch_size`.
    magnification : float, optional
        Of slides, such as 20; default: the pixels of level 0, whatever their size.
    tissue : float, optional
        Least part of a patch that is tissue, in [0, 1]; default: 0.5 on slides, no limit on images.
    axis : {0, 1, 2}, optional
        Axis along which a volume is sliced. NIfTI and DICOM: 0 sagittal, 1 coronal, 2 axial slices; default: axial ones
        of NIfTI, those that were acquired of DICOM. Arrays: the axis itself, default 0.
    spacing : float, optional
        Millimeters between pixels, to which slices (or whole volumes) are resampled.
    window : (float, float), optional
        Intensities that become 0 and 1; what lies outside is cut off. Default: intensities as they are.
    drop_empty : bool, default True
        Leave out slices that show nothing: whose intensities, after the window, differ by no more than a thousandth of
        the span of their volume.
    slice_size : int, optional
        Side of the square that slices are resized to; with `spacing`, cropped or padded to.
    volume : bool, default False
        Take a volume as one instance [1, D, H, W] rather than as slices [1, H, W].
    volume_size : (int, int, int), optional
        D, H, W that volumes are resized to; with `spacing`, cropped or padded to.

    Raises
    ------
    ConfigError
        If a value is out of its range, or the values do not go together.

    Examples
    --------
    >>> ImageOptions(patch_size=64).step
    64
    """

    patch_size: int = 32
    stride: int | None = None
    magnification: float | None = None
    tissue: float | None = None
    axis: int | None = None
    spacing: float | None = None
    window: tuple[float, float] | None = None
    drop_empty: bool = True
    slice_size: int | None = None
    volume: bool = False
    volume_size: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("patch_size", "stride", "slice_size"):
            self._require(name, lambda value: value >= 1, ">= 1")
        for name in ("magnification", "spacing"):
            self._require(name, lambda value: 0 < value < math.inf, "> 0")
        self._require("tissue", lambda value: 0 <= value <= 1, "in [0, 1]")
        self._require("axis", lambda value: value in (0, 1, 2), "0, 1 or 2")
        self._require(
            "window",
            lambda value: len(value) == 2 and -math.inf < value[0] < value[1] < math.inf,
            "as two ascending intensities, such as [0, 400]",
        )
        self._require(
            "volume_size", lambda value: len(value) == 3 and min(value) >= 1, "as three sizes, such as [32, 64, 64]"
        )
        if self.volume and self.slice_size is not None:
            raise ConfigError("Expected `volume_size` with whole volumes, got `slice_size`; leave one of the two out.")
        if self.volume_size is not None and not self.volume:
            raise ConfigError("Expected `volume=True` with `volume_size`, got slices; add it.")

    @property
    def step(self) -> int:
        """Pixels from one patch to the next."""
        return self.patch_size if self.stride is None else self.stride

    def cut(self, kind: str) -> dict[str, Any]:
        """What was done to make instances of this kind: "patches", "slices" or "volume"; defaults spelled out."""
        names = (*PATCHES[:2], "magnification", "tissue") if kind == "patches" else VOLUMES
        found = {name: self.step if name == "stride" else getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def _require(self, name: str, fits: Callable[[Any], bool], text: str) -> None:
        value = getattr(self, name)
        if value is not None and not fits(value):
            raise ConfigError(f"Expected `{name}` {text}, got {value}; choose another value.")


DEFAULTS = ImageOptions()


def refuse_unused(options: ImageOptions, allowed: Collection[str], *, what: str, where: str) -> None:
    """Refuse settings that do not apply to data of this kind, with a `ConfigError` that names the first one."""
    for setting in fields(options):
        value = getattr(options, setting.name)
        if setting.name not in allowed and value != setting.default:
            raise ConfigError(f"Expected no `{setting.name}` with {what}, got {value!r} for {where}; leave it out.")
