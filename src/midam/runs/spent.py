"""Seconds that a training has taken, and those in which it waited for instances."""

import warnings
from typing import NamedTuple

_WAITED, _TRAINED_S = 0.2, 5.0


class Spent(NamedTuple):
    """Seconds of a training so far, all sessions together, and of these those that it waited for instances."""

    seconds: float
    waited: float


NOTHING = Spent(0.0, 0.0)


def tell_waiting(waited_s: float, trained_s: float) -> bool:
    """Warn of a training that waits for its data for more than a fifth of some seconds; returns whether it did."""
    if trained_s < _TRAINED_S or waited_s <= _WAITED * trained_s:
        return False
    warnings.warn(
        f"{waited_s / trained_s:.0%} of the training time so far went by waiting for instances; read ahead with more "
        "`workers`, import the data into a store with `midam data import`, or keep them in memory by `resident=True`",
        UserWarning,
        stacklevel=2,
    )
    return True
