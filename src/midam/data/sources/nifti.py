"""NIfTI files through nibabel."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.sources.file_names import file_suffix
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.open_file import OpenFile
from midam.data.sources.orientation import along
from midam.data.sources.volumes import Volume, open_volume
from midam.errors import BagDataError, MidamError

NIFTI_SUFFIXES = (".nii", ".nii.gz")


def open_nifti(path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
    """Open a NIfTI file as slices, axial ones by default, or as a whole; see `midam.data.sources.volumes.open_volume`.

    The axes are those of the patient, whatever the order and direction in which the file stores them
    (`midam.data.sources.orientation.along`). The file's slope and intercept are applied.

    Raises
    ------
    MidamError
        If the package nibabel is missing.
    BagDataError
        If the file is damaged, or holds no volume of three axes; when it is read, if intensities are not finite.
    """
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
    try:
        import nibabel  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the package nibabel to read NIfTI, got none (in {path}); install midam[medical]."
        ) from error
    try:
        return nibabel.load(path)
    except (OSError, EOFError, ValueError, zlib.error, nibabel.filebasedimages.ImageFileError) as error:
        raise _damaged(path, error) from error


def _read(path: Path, axis: int) -> Volume:
    image = _load(path)
    try:
        data = np.asanyarray(image.dataobj)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _damaged(path, error) from error
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


def _damaged(path: Path, error: Exception) -> BagDataError:
    return BagDataError(f"Expected a whole NIfTI file, got: {error} (in {path}); copy or convert the file anew.")
