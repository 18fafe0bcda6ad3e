"""Whether the slices of a DICOM series are one whole scan: one at each place, evenly apart, of one time and echo."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.dicom_frames import Frame
from midam.errors import BagDataError

_GAP = 1.5  # of the narrowest distance of slices, or of the one that the file states, from which one is missing
_SAME_MM = 1e-3
# Attributes that separate the times, echoes and weightings of a scan; acquisitions may be parts of one as well.
_PHASES = (
    *("TemporalPositionIdentifier", "TemporalPositionIndex", "EchoNumbers", "EchoTime", "EffectiveEchoTime"),
    *("DiffusionBValue", "NominalCardiacTriggerDelayTime"),
)
_ACQUISITIONS = ("AcquisitionNumber", "FrameAcquisitionNumber")


def refuse_phases(frames: Sequence[Frame], heights: NDArray[np.float64], where: str) -> None:
    """Refuse slices of several times, echoes or weightings that lie at or between the places of each other."""
    for name in _PHASES:
        values = np.array([frame.text(name) for frame in frames])
        if _overlap(values, heights):
            raise BagDataError(
                f"Expected one image of each place, got {_counts(values)} by {name} (in {where}): several times, "
                "echoes or weightings; move each to a folder of its own."
            )


def _overlap(values: NDArray[np.str_], heights: NDArray[np.float64]) -> bool:
    """Whether slices of several values lie at or between the places of each other."""
    ends = sorted((heights[values == value].min(), heights[values == value].max()) for value in set(values.tolist()))
    return any(low <= high_before + _SAME_MM for (_, high_before), (low, _) in pairwise(ends))


def _counts(values: NDArray[np.str_]) -> str:
    kinds, counts = np.unique(values, return_counts=True)
    return f"{len(kinds)} kinds ({', '.join(f'{n} of {kind or chr(34) * 2}' for kind, n in zip(kinds[:3], counts))})"


def slice_distance(heights: NDArray[np.float64], frames: Sequence[Frame], where: str, aside: int) -> float:
    """Millimeters between slices, 1 of a single one; doubles and gaps are refused.

    Gaps are compared with the narrowest one: in a short series those that miss a slice may be the most.
    """
    if len(heights) == 1:
        return 1.0
    gaps = np.diff(heights)
    double = np.flatnonzero(gaps < _SAME_MM)
    if len(double):
        one, other = frames[double[0]], frames[double[0] + 1]
        raise BagDataError(
            f"Expected one slice at each place, got {len(double)} doubles, the first {one} and {other} (in {where}); "
            "remove doubles, or part what is several series."
        )
    least = float(gaps.min())
    wide = np.flatnonzero(gaps > _GAP * least)
    if len(wide):
        scouts = f", {aside} localizers or single slices of another kind are set aside" if aside else ""
        raise BagDataError(
            f"Expected slices {least:.2f} mm apart, as they are at the narrowest place, got a gap of "
            f"{gaps[wide[0]]:.2f} mm after {frames[wide[0]]} (in {where}, {len(wide)} in all{scouts}): slices are "
            "missing; copy the series again, or leave it out. If two distances are meant, convert it to NIfTI."
        )
    return float(np.median(gaps))


def doubt_of(frames: Sequence[Frame], heights: NDArray[np.float64], distance: float) -> str:
    """Signs of missing slices where the positions are even: a wider gap than is stated, holes in the numbers.

    Holes count for nothing where the stated distance is met: the echoes or times of one scan may be numbered in turn.
    """
    stated, thickness = frames[0].number("SpacingBetweenSlices"), frames[0].number("SliceThickness")
    # Some devices state the room between slices rather than the distance of their centers; a gap is then below this.
    if distance > _GAP * max(stated, thickness) > 0:
        name = "SpacingBetweenSlices" if stated >= thickness else "SliceThickness"
        return f"slices may be missing, they lie {distance:.2f} mm apart with a {name} of {max(stated, thickness):g} mm"
    numbers = {int(frame.number("InstanceNumber")) for frame in frames}
    holes = max(numbers) - min(numbers) + 1 - len(frames)
    if len(numbers) == len(frames) and holes and not np.isclose(distance, stated, rtol=0.1):
        return f"slices may be missing, InstanceNumber leaves out {holes} of {min(numbers)} to {max(numbers)}"
    for name in _ACQUISITIONS:
        values = np.array([frame.text(name) for frame in frames])
        if _overlap(values, heights):
            return f"slices of {_counts(values)} by {name} lie between each other, they may be several times"
    return mixed_depths(frames)


def mixed_depths(frames: Sequence[Frame]) -> str:
    """Doubt of images of several depths that state no intensities."""
    depths = sorted({int(frame.number("BitsStored")) for frame in frames if not frame.text("RescaleSlope")})
    if len(depths) < 2:
        return ""
    return f"images of {' and '.join(map(str, depths))} bits state no RescaleSlope, their intensities may differ"
