"""Known witnesses: which instances they are, how many a bag holds, and how many of them the draws have found."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import other_data
from midam.errors import CheckpointError
from midam.lazy_imports import torch  # opening a store does not need it

if TYPE_CHECKING:
    from midam.data.draws import Drawn


def marks_of(bags: Bags) -> NDArray[np.bool_] | None:
    """Return which instances are witnesses, bag after bag [num_instances]; None if unknown."""
    return None if bags.witnesses is None else bags.witnesses[bags.rows()]


def counts_of(bags: Bags) -> NDArray[np.int64]:
    """Return the number of known witnesses of each bag, int64 [N]; 0 for negative bags and if none is known."""
    marks = marks_of(bags)
    if marks is None:
        return np.zeros(len(bags), dtype=np.int64)
    counts: NDArray[np.int64] = np.add.reduceat(marks, np.cumsum(bags.sizes) - bags.sizes, dtype=np.int64)
    return counts if bags.labels is None else counts * bags.labels


class WitnessLog:
    """Counter of the witnesses in positive bags that the draws of a training find; only for its curves.

    Parameters
    ----------
    bags : Bags
        The training bags, with witnesses.
    counts : int64 array [N]
        Result of `counts_of`, with some counts above 0.

    Examples
    --------
    The first instance of the positive bag is its witness; instances 0 and 2 are drawn:

    >>> from midam.data.draws import Drawn
    >>> bags = Bags(np.zeros((4, 1)), sizes=[3, 1], labels=[1, 0], witnesses=[True, False, False, False])
    >>> log = WitnessLog.of(bags)
    >>> log.note(np.array([[0]]), Drawn(np.array([[[0, 2]]]), np.array([[[True, True]]])))
    {'drawn_witnesses': 1.0, 'found_witnesses': 1.0}
    """

    def __init__(self, bags: Bags, counts: NDArray[np.int64]) -> None:
        self._known, self._starts = counts > 0, np.cumsum(bags.sizes) - bags.sizes
        self._marked = np.repeat(self._known, bags.sizes) & np.asarray(marks_of(bags))
        self._places = np.flatnonzero(self._marked)
        self._drawn = np.zeros(len(self._places), dtype=np.bool_)

    @classmethod
    def of(cls, bags: Bags) -> Self | None:
        """Return the log of training bags; None if no witness of a positive bag is known."""
        counts = counts_of(bags)
        return cls(bags, counts) if counts.any() else None

    def __len__(self) -> int:
        return len(self._places)

    def note(self, bags: NDArray[np.int64], drawn: "Drawn") -> dict[str, float]:
        """Note the draws [T, K, B] of an epoch, of the bags [T, K].

        Return ``drawn_witnesses``, the share of these draws that hold a witness, among positive bags with known
        witnesses, and ``found_witnesses``, the share of their witnesses that were drawn so far.
        """
        places = self._starts[bags][..., None] + drawn.slots
        hits = self._marked[places] & drawn.mask
        self._drawn[np.searchsorted(self._places, places[hits])] = True
        held = hits.any(axis=-1)[self._known[bags]]
        share = float(held.mean()) if len(held) else float("nan")
        return {"drawn_witnesses": share, "found_witnesses": float(self._drawn.mean())}

    def state_dict(self) -> dict[str, Any]:
        """Return which witnesses were drawn so far."""
        return {"places": torch.from_numpy(self._places.copy()), "drawn": torch.from_numpy(self._drawn.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other witnesses raises a `CheckpointError`."""
        if not np.array_equal(state["places"].numpy(), self._places):
            raise _other_witnesses(len(state["places"]), len(self._places))
        self._drawn[:] = state["drawn"].numpy()


def load_log(log: WitnessLog | None, state: Mapping[str, Any] | None) -> None:
    """Continue a log from a state; a log without a state or a state without a log raises a `CheckpointError`."""
    if log is not None and state is not None:
        log.load_state_dict(state)
    elif log is not None or state is not None:
        raise _other_witnesses(0 if state is None else len(state["places"]), 0 if log is None else len(log))


def _other_witnesses(expected: int, got: int) -> CheckpointError:
    return other_data(f"the known witnesses of the run ({expected})", f"others ({got})")
