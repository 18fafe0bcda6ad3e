"""NIfTI files through nibabel."""

import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.sources.formats.open_file import OpenFile, need, sound
from midam.data.sources.formats.volumes import Volume, along, open_volume
from midam.data.sources.imageoptions import VOLUMES, ImageOptions, Places
from midam.data.sources.reader import FileReader, file_suffix
from midam.errors import BagDataError


class NiftiReader(FileReader):
    """A NIfTI file as slices along an axis of the patient (axial by default) or as a whole, scaled as it says."""

    what = "volumes"
    suffixes = (".nii", ".nii.gz")
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; needs the package nibabel."""
        image = _load(path)
        axis = 2 if options.axis is None else options.axis
        said: dict[str, Any] = {"axis": axis, "shape": [int(n) for n in image.shape]}
        if not int(image.header["sform_code"]) and not int(image.header["qform_code"]):
            said["doubt"] = "neither sform nor qform says where its axes go, they are taken for left, front and head"
        # nibabel maps a plain file whose numbers need no scaling.
        plain = (float(image.dataobj.slope), float(image.dataobj.inter)) == (1.0, 0.0)
        mapped = plain and file_suffix(path) == ".nii"
        held = 0 if mapped else int(np.prod(image.shape)) * 4
        return open_volume(path, options, lambda: _read(path, axis), held=held, said=said, places=places)


def _load(path: Path) -> Any:
    nibabel = need("nibabel", "NIfTI", path, extra="medical")
    with _whole(path, nibabel.filebasedimages.ImageFileError):
        return nibabel.load(path)


def _read(path: Path, axis: int) -> Volume:
    image = _load(path)
    with _whole(path):
        data = np.asanyarray(image.dataobj)
    if not isinstance(data, np.memmap) and data.dtype.kind in "biuf":
        data = data.astype(np.float32, copy=False)
    while data.ndim > 3 and data.shape[-1] == 1:
        data = data[..., 0]
    if data.ndim != 3:
        raise BagDataError(
            f"Expected a volume of three axes, got {list(data.shape)} (in {path}); write one file for each sequence or "
            "time."
        )
    return along(data, image.affine, axis, where=str(path))


def _whole(path: Path, *damage: type[Exception]) -> AbstractContextManager[None]:
    damage = (*damage, OSError, EOFError, ValueError, zlib.error)
    return sound("a whole NIfTI file", path, *damage, advice="copy or convert the file anew")
