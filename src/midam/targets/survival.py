"""Survival: the score is a risk; of two bags, the one with the earlier event gets the higher score."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.concordance import ipcw_pairs, ipcw_truncation
from midam.evaluate.decisions import RISKS, RiskGroups
from midam.evaluate.ranking import Pairs
from midam.evaluate.survival import kaplan_meier, log_rank, median_follow_up, median_time
from midam.reading import ColumnForm, as_written, one_of, positive_numbers
from midam.targets.base import CardWords, Decided, Groups, Scores
from midam.targets.cox import PartialLikelihood
from midam.targets.ranked import RankedTarget, describe_concordance

_LEAST_EVENTS = 2


class Survival(RankedTarget):
    """Survival: the score is a risk; of two bags, the one with the earlier event gets the higher score."""

    name = "survival"
    predicted = "risk"
    pairs = "survival"
    decided_by = RiskGroups
    objectives = ("pairwise", "cox")
    name_limits = (2, 2)
    decided_figure = "risk_groups"
    card = CardWords(
        "regression",
        "gives one score in [0, 1], the risk: the higher, the earlier the event",
        "a group of risk (low, middle or high)",
        (("C (IPCW)", "c_ipcw"), ("events", "events"), ("median follow-up", "median_follow_up")),
    )

    @property
    def predicted_names(self) -> tuple[str, ...]:
        """Names of the risk groups."""
        return RISKS

    def label_forms(self) -> dict[str, ColumnForm]:
        """Return the columns of time and event."""
        return {"time": as_written(positive_numbers), "event": one_of("0", "1")}

    def rests_on(self, summary: Mapping[str, Any]) -> str | None:
        """Describe the number of events."""
        return f"{summary['events']} events"

    incomparable = "no bag has its event before the time of another"

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return four strata: bags with and without an event, each in an earlier and a later half."""
        time, event = values[:, 0], values[:, 1].astype(np.int64)
        late = np.zeros(len(values), dtype=np.int64)
        for kind in (0, 1):
            inside = event == kind
            late[inside] = time[inside] > np.median(time[inside]) if inside.any() else 0
        return 2 * event + late

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return two strata, with and without an event, if events are the minority; else one stratum.

        Each pair needs an event.
        """
        event = values[:, 1].astype(np.int64)
        return event if 2 * event.sum() < len(event) else np.zeros_like(event)

    def check(self, bags: Bags) -> None:
        """Refuse bags with fewer than two events, or without a bag whose time is later than another's event."""
        values = self.values(bags)
        events = int(values[:, 1].sum())
        if events < _LEAST_EVENTS:
            got = "none: all are censored" if events == 0 else "one"
            raise BagDataError(
                f"Expected at least {_LEAST_EVENTS} training bags with the event, got {got} (in {bags.source}); check "
                "the column of events: 1 is an event, 0 is censored."
            )
        if not self.has_metric(values):
            raise BagDataError(
                f"Expected a training bag with a time after the event of another, got none to rank (in {bags.source}); "
                "check the column of times."
            )

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Return whether a pair can be compared."""
        time, event = values.T
        first = np.min(time[event == 1], initial=np.inf)
        outlived = (time > first) | ((time == first) & (event == 0))
        return bool(outlived.any())

    def comparable(self, values: NDArray[Any]) -> Pairs:
        """Return the pairs in which one bag has the event before the other's time."""
        return Pairs.of_times(*values.T)

    @property
    def stratum_names(self) -> tuple[Any, ...]:
        """No event, and event."""
        return ("no event", "event")

    linear = "Cox regression"

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Return log hazards of Cox regression (Breslow's ties), penalized by half the squared norm of the weights."""
        time, event = values.T
        likelihood = PartialLikelihood(x, time, event > 0)
        return scored @ likelihood.minimize(1 / event.sum(), np.zeros(x.shape[1]))

    def counted(self, values: NDArray[Any]) -> tuple[str, int]:
        """Return the events, and their number."""
        return "events", int(values[:, 1].sum())

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Return the follow-up, the C-index weighted for censoring, and, with a decision, the risk groups."""
        time, event = values.T
        truncation = ipcw_truncation(time, event)
        result: dict[str, Any] = {"events": int(event.sum()), "median_follow_up": median_follow_up(time, event)}
        result |= describe_concordance("c_ipcw", ipcw_pairs(time, event, truncation=truncation), scores, groups)
        result["c_ipcw_truncation"] = float(truncation) if np.isfinite(truncation) else None
        if decision is not None:
            risk, rows = decision.predict(scores), []
            for group in np.unique(risk):
                inside = risk == group
                row = {"group": int(group), "bags": int(inside.sum()), "events": int(event[inside].sum())}
                rows.append(row | {"median_time": median_time(kaplan_meier(time[inside], event[inside]))})
            result["risk_groups"] = rows
            result["log_rank_p"] = log_rank(time, event, risk, groups=groups) if len(rows) > 1 else None
        return result
