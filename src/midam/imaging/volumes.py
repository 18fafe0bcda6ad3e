"""One volume per file, as slices along an axis or as one three-dimensional instance; NIfTI files through nibabel."""

import gzip
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import FileReader
from midam.data.sources.formats.npy import NpyReader, NpzReader
from midam.data.sources.formats.open_file import Column, CutRows, OpenFile, cut_file, need, sound
from midam.data.sources.request import ImageOptions, Places, RunOptions, SizesError, file_suffix
from midam.errors import BagDataError, given
from midam.lazy_imports import torch
from midam.settings.data import VOLUMES

_DECIMALS = 3  # of a position in mm
_LARGEST, _SMALLEST = 1e37, 1e-30  # the largest intensity, and the smallest span, with which float32 still computes
_MM = {"meter": 1e3, "micron": 1e-3}  # in the units of NIfTI; without one, it is the millimeter
_TAIL = 64  # MiB that are read after the numbers of a packed file
_STEPS = 256  # of float32, that a scan must have between its lowest and highest intensity
_TILTED = 1.0  # degrees, below which a tilt is an error of rounding
_FAINT = 1e-3  # of the span of a volume: a slice that varies by no more is empty
# Directions of slices, rows and columns: rows to the feet or the back, columns to the left or the back, as in DICOM.
_CODES = (("R", "I", "P"), ("A", "I", "L"), ("S", "P", "L"))
PLANES = ("sagittal", "coronal", "axial")
_EDGES = ("APSI", "RLSI", "RLAP")  # sides of the patient at the left, right, upper and lower edge of such slices


Spacing = tuple[float, float, float]


@dataclass(frozen=True)
class Volume:
    """A volume, sliced along its first axis; or images of one kind without a position, such as X-rays."""

    data: NDArray[Any] | Sequence[NDArray[Any]]  # [D, H, W], or images [C, H, W]
    spacings: Sequence[Spacing | None] = (None,)  # mm between voxels, of the volume or of each image; None: unknown
    small: bool = False  # whether uint8 stays uint8; not for scans, whose types differ within a set
    doubt: str = ""  # possible fault of the volume
    slices: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # attributes of each slice, by name, [D]
    aside: int = 0  # images, such as scouts, that are not part of the volume
    flat: str = ""  # modality of images without a position
    tilt: float = 0.0  # degrees by which the gantry was tilted, so that each slice is shifted against the one before

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of its file."""
        slices = {name: list(values) for name, values in self.slices.items()}
        tilt = round(self.tilt) if self.tilt >= _TILTED else 0
        attributes = {"flat": self.flat, "doubt": self.doubt, "aside": self.aside, "tilt": tilt, "slices": slices}
        return {name: value for name, value in attributes.items() if value}

    def cut(self, options: ImageOptions, *, where: str, places: Places | None) -> tuple[Column, Places, dict[str, Any]]:
        """Return the instances, the numbers of their slices, and attributes: the size of pixels, and a replaced one.

        Intensities that are not finite, and a volume that shows nothing, are refused.
        """
        self._check(options, where)
        gray = not self.flat or len(self.data[0]) == 1
        least, spacings = 0.0, list(self.spacings)
        pads = options.spacing is not None or options.slice_size is not None or _sizes(options)[1]
        if places is None or pads:  # padding takes the lowest intensity
            kept, least = kept_slices(self.data, options, where=where)
            places = kept[:, None]
        if options.volume:
            images = [np.asarray(self.data)]
        else:
            numbers, spacings = places[:, 0].tolist(), spacings * (len(self.data) // len(spacings))
            images = [self.data[number] if self.flat else self.data[number][None] for number in numbers]
            spacings = [spacings[number] for number in numbers]
        least, kinds = least if gray else 0.0, {image.dtype for image in images}  # colors are padded with black
        small = (self.small or not gray) and options.window is None and kinds <= {np.dtype("u1"), np.dtype("?")}
        plan_of = cache(partial(Resampling, options, least=least, small=small))  # equal slices share a plan
        plans = [plan_of(spacing, image.shape) for spacing, image in zip(spacings, images)]
        shapes = {plan.shape for plan in plans}
        if len(shapes) > 1:
            sizes = sorted({f"{height} x {width}" for _, height, width in shapes})
            got, resize = f"{len(sizes)}: {', '.join(sizes[:3])} (in {where})", given(slice_size=64)
            raise SizesError(f"Expected images of one size, got {got}; resize them, such as with {resize}.")
        replaced = next((" x ".join(map(str, plan.replaced)) for plan in plans if plan.replaced is not None), None)
        facts = {"resized": replaced, "pixel_mm": next((plan.pixel for plan in plans if plan.pixel), None)}
        shape = (len(images), *((1,) if options.volume else ()), *plans[0].shape)
        rows = CutRows(shape, plans[0].dtype, lambda number: plans[number](images[number]))
        return rows, places, {name: value for name, value in facts.items() if value is not None}

    def _check(self, options: ImageOptions, where: str) -> None:
        if self.flat:
            self._check_flat(options, where)
        else:
            _require_volume(np.asanyarray(self.data), where)
        unknown = self.spacings.count(None)
        if options.spacing is not None and unknown:
            got = f"{unknown} images without" if self.flat else "an array"
            raise BagDataError(f"Expected a known spacing, got {got} (in {where}); leave out `spacing`, or use NIfTI.")

    def _check_flat(self, options: ImageOptions, where: str) -> None:
        for name in ("axis", "volume"):
            if getattr(options, name):
                got = f"images without one (in {where})"
                raise BagDataError(f"Expected slices with a position for `{name}`, got {got}; leave out `{name}`.")
        colored = sum(len(image) > 1 for image in self.data)
        if 0 < colored < len(self.data):
            got = f"{len(self.data) - colored} gray and {colored} color images (in {where})"
            raise BagDataError(f"Expected only gray or only color images, got {got}; choose one kind with `series`.")


def _require_volume(data: NDArray[Any], where: str) -> None:
    if data.ndim != 3 or data.dtype.kind not in "biuf" or 0 in data.shape:
        got = f"{data.dtype} {list(data.shape)} (in {where}); write a file for each sequence or time point"
        raise BagDataError(f"Expected a volume of three axes of real numbers, got {got}.")


def open_volume(
    path: Path,
    options: ImageOptions,
    read: Callable[[], Volume],
    *,
    held: int,
    attributes: dict[str, Any],
    places: Places | None = None,
) -> OpenFile:
    """Open a volume as its slices [n, 1, H, W] with their numbers [n, 1], or as one instance [1, 1, D, H, W].

    The volume is read on first use, and takes `held` bytes; reading adds its doubt and the facts of its slices to the
    `attributes` of the file.
    """
    attributes = dict(attributes)

    def made() -> tuple[Column, Column]:
        volume = read()
        attributes.update(volume.attributes)
        if options.volume:
            attributes.pop("slices", None)  # a volume is one instance
        features, numbers, facts = volume.cut(options, where=str(path), places=places)
        attributes.update(facts)
        return features, numbers

    kind: Literal["volume", "slices"] = "volume" if options.volume else "slices"
    return cut_file(kind, made, {"file": attributes}, held=held, handle=False)


def open_array(
    array: NDArray[Any], path: Path, options: ImageOptions, *, held: int, places: Places | None = None
) -> OpenFile:
    """Open a three-dimensional array as a volume."""
    axis = 0 if options.axis is None else options.axis
    volume = Volume(np.moveaxis(array, axis, 0), small=True)
    return open_volume(path, options, lambda: volume, held=held, attributes={"axis": axis}, places=places)


def along(data: NDArray[Any], affine: NDArray[np.float64], axis: int, *, where: str) -> Volume:
    """Slice a volume along an axis of the patient.

    Slices are numbered from left to right (0, sagittal), back to front (1, coronal) or feet to head (2, axial). An
    oblique axis counts as the nearest one; nothing is interpolated. `affine` [4, 4] maps voxel numbers to mm (RAS+).

    For each slice, `slice_index` is its number in the file, and `position_mm` the position of its center on the axis of
    the patient.
    """
    from nibabel import affines, orientations

    if not np.isfinite(affine).all() or np.linalg.matrix_rank(affine[:3, :3]) < 3:
        got = f"{np.round(affine[:3], 3).tolist()} (in {where})"
        raise BagDataError(f"Expected an affine of three directions, got {got}; correct the header.")
    turn = orientations.ornt_transform(orientations.io_orientation(affine), orientations.axcodes2ornt(_CODES[axis]))
    sizes = np.empty(3)
    sizes[turn[:, 0].astype(int)] = affines.voxel_sizes(affine)
    spacing = (float(sizes[0]), float(sizes[1]), float(sizes[2]))
    from_axis = int(np.flatnonzero(turn[:, 0] == 0)[0])
    index = np.arange(data.shape[from_axis])[:: int(turn[from_axis, 1])]
    centers = np.tile((np.array(data.shape[:3]) - 1) / 2, (len(index), 1))
    centers[:, from_axis] = index
    places = affines.apply_affine(affine, centers)[:, axis].round(_DECIMALS)
    slices = {"slice_index": index.tolist(), "position_mm": places.tolist()}
    return Volume(orientations.apply_orientation(data, turn), [spacing], slices=slices)


def seen(axis: int) -> dict[str, str]:
    """Return the plane of slices of `along`, and the sides of the patient at their edges."""
    return {"plane": PLANES[axis], "edges": _EDGES[axis]}


def kept_slices(
    data: Sequence[NDArray[Any]] | NDArray[Any], options: ImageOptions, *, where: str
) -> tuple[NDArray[np.int64], float]:
    """Return the numbers of the slices of a volume [D, H, W] that are instances, and its lowest intensity.

    With `drop_empty`, these are the slices whose intensities, after the window, differ by more than a thousandth of the
    span of the volume: traces of an interpolation do not keep a slice, and one voxel below the background does not keep
    the other slices.
    """
    low, high = (np.array([getattr(part, end)() for part in data], dtype=np.float64) for end in ("min", "max"))
    wrong = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
    if len(wrong):
        got = f"NaN or infinity in slice {wrong[0]} of {len(data)} (in {where})"
        raise BagDataError(f"Expected finite intensities, got {got}; convert the scan again, or leave it out.")
    refuse_coarse(float(low.min()), float(high.max()), where=where)
    least, seen, advice = float(low.min()), "", "leave it out"
    if options.window is not None:
        dark, bright = options.window
        low, high = (np.clip((ends - dark) / (bright - dark), 0, 1) for ends in (low, high))
        seen, advice = f" after the window {dark:g},{bright:g}", "choose another `window`, or leave it out"
    span = float(high.max() - low.min())
    kept = np.flatnonzero(high - low > _FAINT * span)
    if options.volume or not options.drop_empty:
        kept = np.arange(len(data))
    if span == 0 or not len(kept):
        constant = f"{low[0]:g} in every voxel" if span == 0 else "one intensity in each slice"
        raise BagDataError(f"Expected a volume with contrast, got {constant}{seen} (in {where}); {advice}.")
    return kept, least


def refuse_coarse(low: float, high: float, *, where: str) -> None:
    """Refuse intensities that float32, in which instances are read, cannot hold or distinguish."""
    largest, span = max(abs(low), abs(high)), high - low
    if largest > _LARGEST or 0 < span < _SMALLEST or 0 < span < _STEPS * np.spacing(np.float32(largest)):
        got = f"{low:g} to {high:g} (in {where})"
        raise BagDataError(f"Expected intensities that stay distinct in float32, got {got}; subtract an offset.")


def _sizes(options: ImageOptions) -> tuple[tuple[int | None, ...], bool]:
    """Return slices, rows and columns of an instance (None: unchanged), and whether these sizes are those of a run.

    The sizes of a run apply if the settings ask for none.
    """
    sizes = options.volume_size or (None, options.slice_size, options.slice_size)
    if isinstance(options, RunOptions) and not any(sizes):
        return (None, None, None, *options.matrix)[-3:], True
    return sizes, False


class Resampling:
    """Map of intensities of shape `stored`, with voxels of `spacing` [mm], to an instance; `least` is the padding.

    The instance is uint8 if `small`, else float32, and has the shape `shape`; `pixel` is the mean side of its pixels
    or voxels [mm]. `replaced` are the sizes that the settings alone would give, if those of a run replace them.
    """

    def __init__(
        self, options: ImageOptions, spacing: Spacing | None, stored: tuple[int, ...], *, least: float, small: bool
    ) -> None:
        self._window, self._least = options.window, least
        self.dtype = np.dtype(np.uint8 if small else np.float32)
        target, zoom = options.spacing, [1.0, 1.0, 1.0]  # new voxels per old voxel
        if target is not None and spacing is not None:
            zoom = [mm / target for mm in spacing] if options.volume else [1.0, *(mm / target for mm in spacing[1:])]
        spaced = tuple(max(1, round(old * new)) for old, new in zip(stored, zoom))
        sizes, of_run = _sizes(options)
        self.shape = tuple(old if new is None else new for old, new in zip(spaced, sizes))
        changed = self.shape != spaced
        self.replaced = tuple(old for old, new in zip(spaced, sizes) if new is not None) if of_run and changed else None
        # Without a spacing to keep, a slice fills its frame as far as its proportions allow.
        fills = target is None and not options.volume
        self._crop, self._zoomed = target is not None or fills, spaced
        if fills and any(sizes) and (changed or not of_run):
            pixel = (1.0, 1.0) if spacing is None else spacing[1:]
            sides = [old * mm for old, mm in zip(stored[1:], pixel)]  # lengths in the patient
            tight = int(np.argmax([side / new for side, new in zip(sides, self.shape[1:])]))
            fitted = (max(1, round(self.shape[1 + tight] * side / sides[tight])) for side in sides)
            self._zoomed = (stored[0], *fitted)
        drawn = self._zoomed if self._crop else self.shape
        lengths = [mm * old / new for mm, old, new in zip(spacing or (), stored, drawn)][0 if options.volume else 1 :]
        self.pixel = round(math.prod(lengths) ** (1 / len(lengths)), _DECIMALS) if lengths else None

    def __call__(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Resample the intensities."""
        values = self._windowed(np.ascontiguousarray(stored, dtype=self.dtype))
        if self.shape == self._zoomed == stored.shape:
            return values
        if self._crop:
            ground = float(self._windowed(np.array(self._least, dtype=self.dtype)))
            values = _fitted(resized(values, self._zoomed), self.shape, ground)
        else:
            values = resized(values, self.shape)
        return np.rint(values).astype(self.dtype) if self.dtype == np.uint8 else values

    def _windowed(self, values: NDArray[Any]) -> NDArray[Any]:
        if self._window is None:
            return values
        low, high = self._window
        return np.clip((values - np.float32(low)) / np.float32(high - low), 0, 1)


def resized(data: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Resize [D, H, W] linearly along each axis, with averages where it shrinks; return float32."""
    x = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))
    if shape[1:] != tuple(x.shape[1:]):
        x = _bilinear(x[:, None], shape[1:])[:, 0]
    if shape[0] != len(x):
        x = _bilinear(x.flatten(1)[None, None], (shape[0], math.prod(shape[1:])))[0, 0].reshape(shape)
    return x.numpy()


def _bilinear(x: "torch.Tensor", size: tuple[int, ...]) -> "torch.Tensor":
    return torch.nn.functional.interpolate(x, size=list(size), mode="bilinear", antialias=True)


def _fitted(data: NDArray[np.float32], shape: tuple[int, ...], ground: float) -> NDArray[np.float32]:
    """Crop and pad around the center; `ground` is the padding."""
    pads: list[int] = []  # torch begins with the last axis, and crops where they are negative
    for more in (new - old for old, new in zip(data.shape[::-1], shape[::-1])):
        pads += [int(more / 2), more - int(more / 2)]
    return torch.nn.functional.pad(torch.from_numpy(data), pads, value=ground).numpy()


class _ArrayReader(FileReader):
    """Base of the readers of arrays: one of three axes, without coordinates, is a volume."""

    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; refuse Python objects."""
        opened = super().open(path, options, places)  # type: ignore[safe-super]  # that of a reader of arrays
        array: Any = opened.features
        if array.ndim != 3 or opened.coords is not None:
            return opened
        return open_array(array, path, options, held=opened.held, places=places)


class NpyVolumeReader(_ArrayReader, NpyReader):
    """Reader of an array: one of three axes is a volume, others are instances [n, ...], as a memory map."""

    cut = staticmethod(open_array)


class NpzVolumeReader(_ArrayReader, NpzReader):
    """Reader of an archive of arrays: features of three axes, without coordinates, are a volume."""


class NiftiReader(FileReader):
    """Reader of a NIfTI file as slices along an axis of the patient (axial by default) or as a volume, rescaled."""

    what = "volumes"
    suffixes = (".nii", ".nii.gz")
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; needs the package nibabel."""
        nibabel = need("nibabel", "NIfTI", path, extra="medical")
        axis = 2 if options.axis is None else options.axis
        with _whole(path):
            image = nibabel.load(path)
            attributes: dict[str, Any] = {"axis": axis, "shape": [int(n) for n in image.shape]}
            stated = [bool(image.header[f"{name}_code"]) for name in ("sform", "qform")]
            with suppress(Exception):  # a damaged form is not used, or refused when it is read
                forms = (image.header.get_sform(), image.header.get_qform())
                ways = ["".join(map(str, nibabel.aff2axcodes(form))) for form in forms]
                alike = np.allclose(forms[0][:3, :3], forms[1][:3, :3], atol=1e-3 * np.abs(forms[0][:3, :3]).max())
                if all(stated) and not alike and ways[0] != ways[1]:
                    attributes["doubt"] = f"sform and qform differ in direction ({' and '.join(ways)}): sform is read"
            if not any(stated):
                attributes["doubt"] = "sform and qform give no directions: its axes are read as to left, front and head"
            else:
                attributes |= seen(axis)
            # nibabel maps a plain file whose numbers need no scaling.
            plain = (float(image.dataobj.slope), float(image.dataobj.inter)) == (1.0, 0.0)
            held = 0 if plain and file_suffix(path) == ".nii" else math.prod(attributes["shape"]) * 4
        return open_volume(
            path, options, lambda: read_volume(path, axis), held=held, attributes=attributes, places=places
        )


def read_volume(path: Path, axis: int) -> Volume:
    """Read a NIfTI file as a volume of slices along an axis of the patient."""
    with _whole(path):
        image, data, surplus = _data(path)
        mm = _MM.get(image.header.get_xyzt_units()[0], 1.0)
    if not isinstance(data, np.memmap) and data.dtype.kind in "biuf" and data.size:
        refuse_coarse(float(data.min()), float(data.max()), where=str(path))
        data = data.astype(np.float32, copy=False)
    while data.ndim > 3 and data.shape[-1] == 1:
        data = data[..., 0]
    _require_volume(data, str(path))
    volume = along(data, np.diag([mm, mm, mm, 1.0]) @ image.affine, axis, where=str(path))
    return replace(volume, doubt=f"it holds {surplus} bytes more than its header says") if surplus > 0 else volume


def _data(path: Path) -> tuple[Any, NDArray[Any], int]:
    """Return an image, its numbers, and how many bytes follow them."""
    image = need("nibabel", "NIfTI", path, extra="medical").load(path)
    if file_suffix(path) == ".nii":
        end = image.dataobj.offset + math.prod(image.shape) * image.dataobj.dtype.itemsize
        return image, np.asanyarray(image.dataobj), path.stat().st_size - end
    # nibabel stops at the last voxel, before the checksum, which is compared at the end of the stream.
    with gzip.open(path) as stream:
        image = type(image).from_file_map(type(image).make_file_map({"image": stream}))
        data = np.asanyarray(image.dataobj)
        surplus = sum(map(len, islice(iter(partial(stream.read, 1 << 20), b""), _TAIL)))
        if stream.read(1):
            got = f"more than {_TAIL} MiB after them (in {path})"
            raise BagDataError(f"Expected a file that ends after its numbers, got {got}; copy it again.")
        return image, data, surplus


def _whole(path: Path) -> AbstractContextManager[None]:
    return sound("a whole NIfTI file", path, advice="copy or convert the file again")
