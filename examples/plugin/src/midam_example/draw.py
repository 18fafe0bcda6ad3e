"""A draw rule: it decides which instances of a bag a step encodes."""

import numpy as np
from numpy.typing import NDArray

from midam.data.draws import Draw, Drawn


class First(Draw):
    """Draw the first B instances of each bag: for sorted instances, such as slices around a lesion.

    The bias is intended, so no log-ratio corrects it.
    """

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:  # noqa: ARG002
        """Draw the instances of an epoch."""
        slots = np.arange(width)
        mask = slots < sizes[..., None]
        return Drawn(np.where(mask, slots, 0), mask)
