"""What the page says of times to an event: the score is a risk, and groups of risk have curves of survival."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.metrics import FEW_BAGS
from midam.evaluate.outcomes.pairs import Pairs
from midam.evaluate.outcomes.survival import bags_at_risk, kaplan_meier, median_follow_up
from midam.report.html.chart import Chart, Range, span
from midam.report.html.making import Counts
from midam.report.html.markup import (
    DASH,
    Cell,
    Column,
    Html,
    Section,
    estimate,
    facts,
    figure,
    join,
    number,
    pair,
    paragraph,
    table,
    titled,
)
from midam.report.html.outcome_grades import evenly
from midam.report.html.outcome_kind import FEW, UNDECIDED, Kind, Tile, joined, p_value, plural, tile
from midam.report.html.outcome_study import OutcomeBags
from midam.report.words import signed

_MOST_DOTS = 1000
_COLORS = (2, 0, 1)  # of low, middle and high risk


class Times(Kind):
    """Time and event; the higher the score, the earlier the event."""

    label = "the event, and when time begins,"
    claim = ": of two bags of which one had the event first, the higher risk was given to that one"
    pairs = "comparable pairs"
    validates = "groups of risk"

    @property
    def time(self) -> NDArray[np.float64]:
        """Times [N] of the event, or until which none was seen."""
        return self.tested.values[:, 0]

    @property
    def event(self) -> NDArray[np.bool_]:
        """Whether the event came [N]."""
        found: NDArray[np.bool_] = self.tested.values[:, 1] == 1
        return found

    def counted(self) -> str:
        """Bags and events."""
        return f"{len(self.tested)} bags, {int(self.event.sum())} with the event"

    def second(self) -> Html | None:
        """Events of the groups of risk."""
        rows = self.summary.get("risk_groups")
        if not rows:
            return None
        names = self.study.told_names
        said = [f"{row['events']} of {row['bags']} bags of {names[row['group']]} risk" for row in rows]
        return Html(f"The event was seen in {', '.join(said[:-1])}{' and ' if said[:-1] else ''}{said[-1]}.")

    def tiles(self) -> list[Tile]:
        """C-index, its weighted form, events, follow-up, log-rank test."""
        until = self.summary["c_ipcw_truncation"]
        share = f"{self.event.mean():.0%} of the bags"
        tested = "log_rank_p" in self.summary
        return [
            self.merit(),
            tile(
                "C (IPCW)", self.study.figure("c_ipcw"), None if until is None else f"up to {until:.4g}", key="c_ipcw"
            ),
            tile("Events", self.study.figure("events"), share, key="events", form=".0f"),
            tile("Median follow-up", self.study.figure("median_follow_up"), "", key="median_follow_up", form=".4g"),
            ("Log-rank p", p_value(self.summary["log_rank_p"], key="log_rank_p") if tested else DASH, "groups of risk"),
        ]

    def counts(self) -> Counts:
        """Events and follow-up."""

        def lines(parts: Sequence[OutcomeBags]) -> list[str]:
            time, event = joined(parts).T
            return [
                f"{int(event.sum()):,} events ({event.mean():.1%})",
                f"median follow-up {_follow(time, event)}",
            ]

        def cells(bags: OutcomeBags) -> list[Cell]:
            time, event = bags.values.T
            return [int(event.sum()), f"{event.mean():.1%}", _follow(time, event), f"{time.max():.4g}"]

        return Counts(lines, ("events", "share", "median follow-up", "longest time"), cells, self.validates)

    def sections(self) -> list[Section]:
        """Ranking, and the groups of risk."""
        return [self._ranking(), self._groups()]

    def _ranking(self) -> Section:
        name, scores = self.study.names[0], self.tested.scores
        chart = Chart(
            "Risk of each bag along its time.", Range(name, 0, self._end()), Range("Risk (score)", *span(scores))
        )
        shown = evenly(self.time, _MOST_DOTS)
        for at in shown.tolist():
            seen = bool(self.event[at])
            what = "event" if seen else "none seen until"
            tip = f"{self.tested.ids[at]}: {what} {self.time[at]:.4g}, risk {scores[at]:.3f}"
            place = float(self.time[at]), float(scores[at])
            chart.dot(*place, color=1 if seen else 0, shape="circle" if seen else "open", radius=3.5, tip=tip)
        chart.key("Event", color=1)
        chart.key("None seen until then", color=0, shape="open")
        rest = "" if len(shown) == len(scores) else f" {len(shown)} of {len(scores)} bags, evenly by time."
        words = f" Who has the event early should stand high.{rest}"
        drawn = figure(chart.drawing(), titled("Risk and time.", words), keys=chart.keys())
        until = self.summary["c_ipcw_truncation"]
        rows = [
            ("C-index (1 is perfect, 0.5 chance)", estimate(self.study.figure("c_index"))),
            ("Comparable pairs", f"{Pairs.of_times(self.time, self.event).total:,.0f}"),
            ("C, weighted against censoring (IPCW)", estimate(self.study.figure("c_ipcw"))),
            ("Events that it counts", "all" if until is None else f"those before {until:.4g}"),
        ]
        words = (
            "A pair is comparable where the earlier of two times is that of an event. The C-index depends on how long "
            "bags were followed; Uno's C weighs events by the share of bags that were still followed, and depends less "
            f"on it. Interval of the C-index: {self.summary['c_index_method']}."
        )
        body = join([pair(drawn, facts(rows, caption="Ranking")), paragraph(words, note=True)])
        return Section("ranking", "Ranking: who has the event first", body)

    def _groups(self) -> Section:
        title, told = "Groups of risk: who stays without the event", self.tested.told
        if told is None:
            return Section("operating", title, paragraph(UNDECIDED))
        ticks = [tick for tick in Range("", 0, self._end()).marks(6) if tick <= self.time.max()]
        says = "Kaplan-Meier curves: share of bags without the event along the time, by group of risk."
        time, share = Range(self.study.names[0], 0, self._end(), ticks), Range("Share without the event")
        chart = Chart(says, time, share, size=(540, 340))
        rows: list[list[Cell]] = []
        for group in np.unique(told[np.isfinite(told)]).astype(int).tolist():
            own, name = told == group, self.study.told_names[group]
            self._curve(chart, own, group, name)
            rows.append([name, *bags_at_risk(self.time[own], ticks)])
        words = titled(
            "Kaplan-Meier curves.", " Bands are pointwise 95% intervals (Greenwood); strokes are bags last seen."
        )
        drawn = figure(chart.drawing(), words, keys=chart.keys(), kind="tall")
        heads = [Column("risk"), *(Column(f"{tick:g}", True) for tick in ticks)]
        at_risk = table(
            f"Bags at risk: still without the event, and followed, at this {self.study.names[0]}", heads, rows
        )
        opening = (
            "Groups are cut at the thirds of the risk of the validation bags, and no test bag has moved a cut. A group "
            "of risk is a rank, no probability: how many have the event in a given time is read off its curve."
        )
        return Section("operating", title, join([paragraph(opening), drawn, at_risk, self._table()]))

    def _curve(self, chart: Chart, own: NDArray[np.bool_], group: int, name: str) -> None:
        """Curve of the bags of a group, from 1 at 0 to their last time."""
        found, color = kaplan_meier(self.time[own], self.event[own]), _COLORS[group % len(_COLORS)]
        at = np.append(0.0, found.time)
        low, share, high = (np.append(1.0, part) for part in (found.low, found.survival, found.high))
        steps = [np.repeat(at, 2)[1:], *(np.repeat(part, 2)[:-1] for part in (low, high))]
        chart.band(*steps, color=color)
        chart.line(at, share, color=color, dash=group, steps=True, name=f"{name.capitalize()} risk")
        lost = np.unique(self.time[own & ~self.event])
        chart.strokes(lost, share[np.searchsorted(at, lost, side="right") - 1], color=color)

    def _table(self) -> Html:
        rows: list[list[Cell]] = []
        for place, row in enumerate(self.summary["risk_groups"]):
            keys = [f"risk_groups.{place}.{what}" for what in ("bags", "events", "median_time")]
            middle = number(row["median_time"], form=".4g", key=keys[2])
            cells = [number(row[what], form=".0f", key=key) for what, key in zip(("bags", "events"), keys)]
            share = f"{row['events'] / row['bags']:.0%}"
            rows.append([self.study.told_names[row["group"]], *cells, share, middle])
        heads = [Column("risk"), *(Column(head, True) for head in ("bags", "events", "share", "median time"))]
        found = table("Groups of risk; no median where more than half stay without the event", heads, rows)
        words = [
            "Log-rank test of one curve for all groups: p ",
            p_value(self.summary["log_rank_p"]),
            ". It takes bags as independent, and says that curves differ, not how much.",
        ]
        return join([found, paragraph(*words, note=True)])

    def errors(self) -> Section | None:
        """Early events at low risk, and long times without one at high risk."""
        told, names = self.tested.told, self.study.told_names
        if told is None:
            return None

        def cells(i: int) -> list[Cell]:
            return [names[int(told[i])], number(float(self.tested.scores[i])), number(float(self.time[i]), form=".4g")]

        heads = [Column("risk"), Column("score", True), Column("time", True)]
        ends = np.nanmin(told), np.nanmax(told)
        early = np.flatnonzero(self.event & (told == ends[0]))
        late = np.flatnonzero(~self.event & (told == ends[1]))
        low, high = (names[int(end)] for end in ends)
        tables = [
            self.worst(f"The event, at {low} risk: the earliest", _sorted(early, self.time), heads, cells),
            self.worst(f"None seen, at {high} risk: the longest", _sorted(late, -self.time), heads, cells),
        ]
        return self.section_of_errors("Bags whose time is the most at odds with their group of risk.", *tables)

    def few(self) -> list[str]:
        """A caution where events are few."""
        events = int(self.event.sum())
        words = f"{plural(events, 'event')}: groups of risk rest on few; a hundred or more are usually asked for."
        return [*super().few(), *([words] if FEW_BAGS <= events < FEW else [])]

    def shift(self) -> list[str]:
        """Follow-up and other events."""
        return [
            "The C-index depends on how long bags were followed, and on which were lost: both differ elsewhere.",
            "Censoring is taken to say nothing of the risk. Where it does, or where another event, such as death from "
            "other causes, was counted as none seen, curves and figures are biased.",
        ]

    def _end(self) -> float:
        return float(self.time.max()) * 1.02


def _follow(time: NDArray[np.float64], event: NDArray[np.float64]) -> str:
    """Median follow-up in words."""
    found = median_follow_up(time, event)
    return "not reached" if found is None else signed(found, ".4g")


def _sorted(index: NDArray[np.intp], by: NDArray[np.float64]) -> list[int]:
    return list(index[np.argsort(by[index], kind="stable")].tolist())
