"""NIfTI files through nibabel."""

import gzip
import math
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import FileReader
from midam.data.sources.formats.open_file import OpenFile, need, sound
from midam.data.sources.formats.volumes import Volume, along, open_volume, refuse_coarse, seen
from midam.data.sources.request import ImageOptions, Places, file_suffix
from midam.errors import BagDataError
from midam.settings.data import VOLUMES

_TAIL = 64  # MiB behind the numbers of a packed file that are read


class NiftiReader(FileReader):
    """A NIfTI file as slices along an axis of the patient (axial by default) or as a whole, scaled as it says."""

    what = "volumes"
    suffixes = (".nii", ".nii.gz")
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; needs the package nibabel."""
        nibabel = _nibabel(path)
        axis = 2 if options.axis is None else options.axis
        with _whole(path):
            image = nibabel.load(path)
            attributes: dict[str, Any] = {"axis": axis, "shape": [int(n) for n in image.shape]}
            if not int(image.header["sform_code"]) and not int(image.header["qform_code"]):
                attributes["doubt"] = (
                    "neither sform nor qform says where its axes go, they are taken for left, front and head"
                )
            else:
                attributes |= seen(axis)
            # nibabel maps a plain file whose numbers need no scaling.
            plain = (float(image.dataobj.slope), float(image.dataobj.inter)) == (1.0, 0.0)
            mapped = plain and file_suffix(path) == ".nii"
            held = 0 if mapped else math.prod(attributes["shape"]) * 4
        return open_volume(path, options, lambda: _read(path, axis), held=held, attributes=attributes, places=places)


def _nibabel(path: Path) -> Any:
    return need("nibabel", "NIfTI", path, extra="medical")


def _read(path: Path, axis: int) -> Volume:
    with _whole(path):
        image, data, rest = _data(path)
    if not isinstance(data, np.memmap) and data.dtype.kind in "biuf" and data.size:
        refuse_coarse(float(data.min()), float(data.max()), where=str(path))
        data = data.astype(np.float32, copy=False)
    while data.ndim > 3 and data.shape[-1] == 1:
        data = data[..., 0]
    if data.ndim != 3:
        raise BagDataError(
            f"Expected a volume of three axes, got {list(data.shape)} (in {path}); write one file for each sequence or "
            "time."
        )
    volume = along(data, image.affine, axis, where=str(path))
    return replace(volume, doubt=f"it holds {rest} bytes more than its header says") if rest > 0 else volume


def _data(path: Path) -> tuple[Any, NDArray[Any], int]:
    """A file, its numbers, and how many bytes follow them."""
    image = _nibabel(path).load(path)
    if file_suffix(path) == ".nii":
        end = image.dataobj.offset + math.prod(image.shape) * image.dataobj.dtype.itemsize
        return image, np.asanyarray(image.dataobj), path.stat().st_size - end
    # nibabel stops at the last voxel, before the checksum, which is compared at the end of the stream.
    with gzip.open(path) as stream:
        image = type(image).from_file_map(type(image).make_file_map({"image": stream}))
        data = np.asanyarray(image.dataobj)
        rest = sum(map(len, islice(iter(partial(stream.read, 1 << 20), b""), _TAIL)))
        if stream.read(1):
            raise BagDataError(
                f"Expected a file that ends behind its numbers, got more than {_TAIL} MiB behind them (in {path}); "
                "copy or convert the file again."
            )
        return image, data, rest


def _whole(path: Path) -> AbstractContextManager[None]:
    return sound("a whole NIfTI file", path, advice="copy or convert the file again")
