"""A draw rule: which instances of a bag a step encodes."""

import numpy as np
from numpy.typing import NDArray

from midam.data.draws import Draw, Drawn


class First(Draw):
    """The first B instances of each bag: for instances that are sorted, such as slices around a lesion.

    Biased on purpose, so no log-ratio corrects it.
    """

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:  # noqa: ARG002
        """Draw the instances of an epoch."""
        slots = np.arange(width)
        mask = slots < sizes[..., None]
        return Drawn(np.where(mask, slots, 0), mask)
