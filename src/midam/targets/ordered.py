"""One score that follows an order: of grades, of numbers, of who has the event first."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.outcomes import Decision
from midam.evaluate.outcomes.decide import RISKS
from midam.targets.base import Target

_BINS = 5  # of numbers, for splits with like shares of low and high ones
_LEAST_EVENTS = 2


class Ordinal(Target):
    """Grades: of two bags that with the higher grade has the higher score."""

    name = "ordinal"
    pairs = "order"
    objectives = ("pairwise",)
    metric = "c_index"

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """The grade."""
        return {"grade": _named(self.names, scores, decision)}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The grades."""
        return values[:, 0].astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse bags of one grade."""
        if not self.judged(self.values(bags)):
            raise BagDataError(
                f"Expected training bags of at least two grades, got one alone (in {bags.source}); add bags of others."
            )

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether there are two grades."""
        return len(np.unique(values)) > 1


class Continuous(Target):
    """Numbers: of two bags that with the larger number has the higher score."""

    name = "continuous"
    pairs = "order"
    objectives = ("pairwise",)
    metric = "c_index"

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """The number that the score stands for."""
        return {"number": [None] * len(scores) if decision is None else decision.predict(scores).tolist()}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Fifths of the numbers."""
        numbers = values[:, 0]
        return np.searchsorted(np.quantile(numbers, np.arange(1, _BINS) / _BINS), numbers, side="right")

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """All alike."""
        return np.zeros(len(values), dtype=np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse bags of one number."""
        if not self.judged(self.values(bags)):
            raise BagDataError(
                f"Expected training bags of different numbers, got one alone (in {bags.source}); nothing can be ranked."
            )

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether there are two numbers."""
        return len(np.unique(values)) > 1


class Survival(Target):
    """Time and event: the score is a risk; who has the event first has the higher one."""

    name = "survival"
    pairs = "survival"
    objectives = ("pairwise", "cox")
    metric = "c_index"

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """The group of risk."""
        return {"risk": _named(RISKS, scores, decision)}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Event or none, each in an earlier and a later half."""
        time, event = values[:, 0], values[:, 1].astype(np.int64)
        late = np.zeros(len(values), dtype=np.int64)
        for kind in (0, 1):
            own = event == kind
            late[own] = time[own] > np.median(time[own]) if own.any() else 0
        return 2 * event + late

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Event or none where events are the fewer, for each pair needs one; else all alike."""
        event = values[:, 1].astype(np.int64)
        return event if 2 * event.sum() < len(event) else np.zeros_like(event)

    def check(self, bags: Bags) -> None:
        """Refuse bags of which none, or but one, has the event, or none of which outlives another's."""
        values = self.values(bags)
        events = int(values[:, 1].sum())
        if events < _LEAST_EVENTS:
            got = "none: all are censored" if events == 0 else "one"
            raise BagDataError(
                f"Expected at least {_LEAST_EVENTS} training bags with the event, got {got} (in {bags.source}); check "
                "the column of events: 1 is an event, 0 none yet."
            )
        if not self.judged(values):
            raise BagDataError(
                f"Expected a training bag that outlives another's event, got none (in {bags.source}); nothing can be "
                "ranked: check the column of times."
            )

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether a pair can be compared."""
        time, event = values.T
        first = np.min(time[event == 1], initial=np.inf)
        outlived = (time > first) | ((time == first) & (event == 0))
        return bool(outlived.any())


def _named(names: Sequence[str], scores: NDArray[Any], decision: Decision | None) -> list[Any]:
    return [None] * len(scores) if decision is None else [names[code] for code in decision.predict(scores).tolist()]
