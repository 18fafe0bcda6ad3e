"""Page of times to an event: the score is a risk, and risk groups have survival curves."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.ranking import FEW_BAGS, Pairs
from midam.evaluate.survival import bags_at_risk, median_follow_up
from midam.report.figures import evenly
from midam.report.page.render import Number, Section, Table
from midam.report.page.target_page import FEW, UNDECIDED, ScoredPart, TargetPage
from midam.report.plot_order import plot_risk, plot_survival
from midam.report.words import signed
from midam.targets import Target


class SurvivalPage(TargetPage):
    """Page of time and event; a higher score means an earlier event."""

    of_target = "survival"

    @classmethod
    def draw(cls, folder: Path, target: Target, part: ScoredPart) -> None:  # noqa: ARG003
        """Plot the survival of each risk group."""
        if part.decision is not None:
            time, event = part.values.T
            groups = part.decision.predict(part.scores)
            plot_survival(folder / "scores.png", time=time, event=event, groups=groups, title=part.title)

    @property
    def time(self) -> NDArray[np.float64]:
        """Times [N] of the event or of censoring."""
        return self.tested.values[:, 0]

    @property
    def event(self) -> NDArray[np.bool_]:
        """Whether the event was seen [N]."""
        return np.asarray(self.tested.values[:, 1] == 1)

    def counted(self) -> str:
        """Return the counts of bags and events."""
        return self.tested.counted(f", {int(self.event.sum())} with the event")

    def second(self) -> dict[str, Any] | None:
        """Return the events in the risk groups."""
        rows = self.summary.get("risk_groups")
        return {"rows": rows, "names": self.target.predicted_names} if rows else None

    def facts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return events, follow-up and longest time."""
        time, event = values.T
        median = median_follow_up(time, event)
        return {
            "events": int(event.sum()),
            "share": Number(float(event.mean()), ".1%"),
            "median follow-up": "not reached" if median is None else signed(median, ".4g"),
            "longest time": Number(float(time.max()), ".4g"),
        }

    def sections(self) -> list[Section]:
        """Return the sections on ranking and risk groups."""
        predicted, title = self.tested.predicted, "Risk groups: who stays without the event"
        content = {"missing": UNDECIDED} if predicted is None else self._groups(predicted)
        first = Section("ranking", "Ranking: who has the event first", "survival.html", self._ranking())
        return [first, Section("operating", title, "survival.html", content)]

    def _ranking(self) -> dict[str, Any]:
        tested = self.tested
        return {
            "figure": plot_risk(self.target.names[0], self.time, self.event, tested.scores, tested.ids),
            "pairs": Pairs.of_times(self.time, self.event).total,
            **{name: self.study.figure(name) for name in ("c_index", "c_ipcw")},
            **{"until": self.summary["c_ipcw_truncation"], "method": self.summary["c_index_method"]},
            **{"shown": len(evenly(self.time)), "count": len(tested)},
        }

    def _groups(self, predicted: NDArray[np.float64]) -> dict[str, Any]:
        finite = np.isfinite(predicted)
        groups, names = predicted[finite].astype(np.int64), self.target.predicted_names
        time, event = self.time[finite], self.event[finite]
        risks = [f"{name.capitalize()} risk" for name in names]
        figure = plot_survival(time=time, event=event, groups=groups, names=risks)
        ticks = [float(tick) for tick in figure.axes[0].get_xticks()]
        present = np.unique(groups).tolist()
        rows: list[list[Any]] = [[names[group], *bags_at_risk(time[groups == group], ticks)] for group in present]
        caption = f"Bags at risk: still without the event, and followed, at this {self.target.names[0]}"
        at_risk, p = Table(caption, ["risk", *(f"{tick:g}" for tick in ticks)], rows), self.summary.get("log_rank_p")
        return {"missing": None, "curves": figure, "at_risk": at_risk, "groups": self._table(), "p": Number(p, "p")}

    def _table(self) -> Table:
        rows = []
        for place, row in enumerate(self.summary["risk_groups"]):
            bags, events, median = (f"risk_groups.{place}.{quantity}" for quantity in ("bags", "events", "median_time"))
            counts = [Number(row["bags"], ".0f", bags), Number(row["events"], ".0f", events)]
            share = Number(row["events"] / row["bags"], ".0%")
            name = self.target.predicted_names[row["group"]]
            rows.append([name, *counts, share, Number(row["median_time"], ".4g", median)])
        caption = "Risk groups; no median where more than half stay without the event"
        return Table(caption, ["risk", "bags", "events", "share", "median time"], rows)

    def errors(self) -> Section | None:
        """Return the section of early events at low risk and long times without an event at high risk."""
        predicted, names, time = self.tested.predicted, self.target.predicted_names, self.time
        if predicted is None:
            return None

        def cells(i: int) -> list[Any]:
            return [names[int(predicted[i])], Number(float(self.tested.scores[i])), Number(float(time[i]), ".4g")]

        lowest, highest = np.nanmin(predicted), np.nanmax(predicted)
        early = np.flatnonzero(self.event & (predicted == lowest))
        late = np.flatnonzero(~self.event & (predicted == highest))
        low, high = names[int(lowest)], names[int(highest)]
        early, late = early[np.argsort(time[early], kind="stable")], late[np.argsort(-time[late], kind="stable")]
        heads = ["risk", "score", "time"]
        return self.error_section(
            self.error_table(f"Event at {low} risk, the earliest first", early, heads, cells),
            self.error_table(f"No event at {high} risk, the longest time first", late, heads, cells),
        )

    def rarest(self) -> tuple[int, str] | None:
        """Return the number of events."""
        events = int(self.event.sum())
        return (events, "event") if FEW_BAGS <= events < FEW else None
