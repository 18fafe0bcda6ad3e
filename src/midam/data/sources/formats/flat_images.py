"""Images of a scan without a place in the patient, such as X-rays: each is an instance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.volumes import Cut, Resampling, kept_slices
from midam.data.sources.request import ImageOptions, Places
from midam.errors import BagDataError, given


@dataclass(frozen=True)
class FlatImages:
    """Images [C, H, W] of one kind, in the order of their files; `spacings` are mm between rows and columns."""

    data: Sequence[NDArray[Any]]
    spacings: Sequence[tuple[float, float] | None]
    modality: str = ""
    aside: int = 0  # images that are no part of them
    doubt: str = ""
    slices: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # attributes of each, by name

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of their file."""
        attributes = {
            "flat": self.modality or "no modality",
            "aside": self.aside,
            "doubt": self.doubt,
            "slices": self.slices,
        }
        return {name: value for name, value in attributes.items() if value}

    def cut(self, options: ImageOptions, *, where: str, places: Places | None) -> Cut:
        """Cut them into instances: each is one, unless it shows nothing."""
        for name in ("axis", "volume"):
            if getattr(options, name):
                raise BagDataError(
                    f"Expected slices with a place where `{name}` is asked for, got images without one (in {where}); "
                    f"leave out `{name}`, or move the images elsewhere."
                )
        if options.spacing is not None and None in self.spacings:
            raise BagDataError(
                f"Expected images that say their spacing, got {self.spacings.count(None)} without (in {where}); leave "
                "out `spacing`."
            )
        channels = sorted({len(image) for image in self.data})
        if len(channels) > 1:
            count = sum(len(image) == 1 for image in self.data)
            raise BagDataError(
                f"Expected gray images or colored ones, got {count} gray and {len(self.data) - count} colored ones (in "
                f"{where}); choose one kind with `series`, or move the others elsewhere."
            )
        gray = channels == [1]
        plans = [
            Resampling(options, None if spacing is None else (1.0, *spacing), small=not gray)
            for spacing in self.spacings
        ]
        least = 0.0
        if places is None or plans[0].pads:
            kept, least = kept_slices(self.data, options, where=where)
            places = kept[:, None]
        numbers = places[:, 0].tolist()
        chosen, plans = [self.data[number] for number in numbers], [plans[number] for number in numbers]
        for plan in plans:
            plan.least = least if gray else 0.0  # colors are padded with black
        shapes = [plan.shape(image.shape) for plan, image in zip(plans, chosen)]
        if len(set(shapes)) > 1:
            sizes = sorted({f"{height} x {width}" for _, height, width in shapes})
            raise BagDataError(
                f"Expected images of one size, got {len(sizes)}: {', '.join(sizes[:3])} (in {where}); resize them, "
                f"such as with {given(slice_size=64)}."
            )
        replaced = (plan.replaced(image.shape) for plan, image in zip(plans, chosen))
        return Cut(_Rows(chosen, plans), places, next((size for size in replaced if size is not None), None))


class _Rows:
    """Images as instances [n, C, H, W], resampled when they are read."""

    def __init__(self, images: Sequence[NDArray[Any]], plans: Sequence[Resampling]) -> None:
        self._images, self._plans = images, plans
        self.shape = (len(images), *plans[0].shape(images[0].shape))
        self.dtype = plans[0].dtype(images[0].dtype)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        numbers = np.arange(len(self._images))[index].tolist()
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in enumerate(numbers):
            rows[place] = self._plans[number](self._images[number])
        return rows
