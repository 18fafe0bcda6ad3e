"""Volumes with a place in the patient: which axis is sliced, and which way up slices stand."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.volumes import Volume
from midam.errors import BagDataError

# Where slices, rows and columns go: rows to the feet or the back, columns to the left or the back, as DICOM shows them.
_CODES = (("R", "I", "P"), ("A", "I", "L"), ("S", "P", "L"))


def along(data: NDArray[Any], affine: NDArray[np.float64], axis: int, *, where: str) -> Volume:
    """Slice a volume along an axis of the patient.

    Slices are numbered from left to right (0, sagittal), back to front (1, coronal) or feet to head (2, axial). Oblique
    axes count as the nearest ones; nothing is interpolated. `affine` [4, 4] leads from voxel numbers to mm (RAS+).
    """
    from nibabel import affines, orientations  # noqa: PLC0415

    if not np.isfinite(affine).all() or np.linalg.matrix_rank(affine[:3, :3]) < 3:
        raise BagDataError(
            f"Expected an affine of three directions, got {np.round(affine[:3], 3).tolist()} (in {where}); correct the "
            "header."
        )
    turn = orientations.ornt_transform(orientations.io_orientation(affine), orientations.axcodes2ornt(_CODES[axis]))
    sizes = np.empty(3)
    sizes[turn[:, 0].astype(int)] = affines.voxel_sizes(affine)
    spacing = (float(sizes[0]), float(sizes[1]), float(sizes[2]))
    return Volume(orientations.apply_orientation(data, turn), spacing)
