"""A small chart as SVG that takes its colors from the page, so that it is right in light, in dark and on paper."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from midam.report.html.markup import Html, join, tag
from midam.report.words import shortened, signed

DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "6 2 2 2 2 2", "1 3")
_MOST_POINTS = 500
_LETTER, _WIDEST = 6.4, 190  # width of a letter of a tick, and the most that names of rows take


class Range(NamedTuple):
    """Range and name of an axis; `ticks` are computed where none are given, and may have names."""

    name: str
    low: float = 0.0
    high: float = 1.0
    ticks: Sequence[float] | None = None
    names: Sequence[str] | None = None

    def marks(self, most: int) -> list[float]:
        """Places of the ticks."""
        if self.ticks is not None:
            return list(self.ticks)
        found = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        slack = 1e-9 * (self.high - self.low)
        return [float(tick) for tick in found if self.low - slack <= tick <= self.high + slack]


class Chart:
    """A chart with two axes, on which lines, bands, dots and bars are drawn in the order of the calls.

    `description` is read to those who cannot see it. Colors are numbers 0 to 7 of the page's palette. `lines` names the
    axes whose ticks have a line across.
    """

    def __init__(
        self,
        description: str,
        x: Range,
        y: Range,
        *,
        size: tuple[int, int] = (400, 320),
        left: int = 50,
        lines: str = "xy",
    ) -> None:
        self.x, self.y, self._lines = x, y, lines
        self._description, self._size = description, size
        self._box = (left, 12, size[0] - 14, size[1] - 46)
        self._marks: list[Html] = []
        self._keys: list[tuple[str, Html]] = []
        self._references: list[tuple[str, Html]] = []
        self._bands: list[tuple[str, Html]] = []

    @classmethod
    def of_rows(cls, description: str, x: Range, names: Sequence[str], *, height: int) -> Self:
        """A chart of rows, so many pixels each, the first on top: row k lies at k of y."""
        left = min(_WIDEST, 16 + 7 * max(map(len, names)))
        short = [shortened(name, int((left - 10) / _LETTER)) for name in names]
        rows = Range("", len(names) - 0.5, -0.5, range(len(names)), short)
        size = (max(400, left + 250), 66 + height * len(names))
        return cls(description, x, rows, size=size, left=left, lines="x")

    @classmethod
    def of_cells(cls, description: str, axes: tuple[str, str], names: Sequence[str]) -> Self:
        """A chart of cells between rows and columns of the same names; `axes` are what the columns and rows are."""
        left, count = min(_WIDEST, 38 + 7 * max(map(len, names))), len(names)
        cell = max(46, (386 - left) // count)
        places, rooms = range(count), (int(cell / _LETTER), int((left - 34) / _LETTER))
        columns, rows = ([shortened(name, room) for name in names] for room in rooms)
        across, down = (
            Range(axes[0], -0.5, count - 0.5, places, columns),
            Range(axes[1], count - 0.5, -0.5, places, rows),
        )
        size = (left + 14 + cell * count, 58 + min(cell * 7 // 10, 46) * count)
        return cls(description, across, down, size=size, left=left, lines="")

    def across(self, value: ArrayLike) -> NDArray[np.float64]:
        """Places on the page of values of x."""
        left, _, right, _ = self._box
        return left + (np.asarray(value, dtype=np.float64) - self.x.low) / (self.x.high - self.x.low) * (right - left)

    def up(self, value: ArrayLike) -> NDArray[np.float64]:
        """Places on the page of values of y."""
        _, top, _, bottom = self._box
        share = (np.asarray(value, dtype=np.float64) - self.y.low) / (self.y.high - self.y.low)
        return bottom - share * (bottom - top)

    def line(
        self, x: ArrayLike, y: ArrayLike, *, color: int = 0, dash: int = 0, steps: bool = False, name: str | None = None
    ) -> None:
        """Draw a line; `steps` keeps the last value until the next point."""
        a, b = _thinned(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        if steps:
            a, b = np.repeat(a, 2)[1:], np.repeat(b, 2)[:-1]
        style = {"class_": f"line s{color}", "stroke_dasharray": DASHES[dash] or None}
        self._marks.append(tag("path", d=_path(self.across(a), self.up(b)), **style))
        if name is not None:
            self._keys.append((name, tag("path", d="M1 6H35", **style)))

    def reference(self, x: ArrayLike, y: ArrayLike, *, name: str | None = None) -> None:
        """Draw a line to compare with, thin and dashed."""
        self._marks.append(tag("path", d=_path(self.across(x), self.up(y)), class_="ref"))
        if name is not None:
            self._references.append((name, tag("path", d="M1 6H35", class_="ref")))

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, *, color: int = 0, name: str | None = None) -> None:
        """Fill between two lines."""
        bounds = (np.clip(side, self.y.low, self.y.high) for side in (low, high))
        below, above = bounds
        a = np.asarray(x, dtype=np.float64)
        outline = _path(self.across(np.append(a, a[::-1])), self.up(np.append(above, below[::-1])))
        self._marks.append(tag("path", d=f"{outline}Z", class_=f"band f{color}"))
        if name is not None:
            self._bands.append((name, tag("rect", x="1", y="1", width="34", height="10", class_=f"band f{color}")))

    def dot(
        self,
        x: float,
        y: float,
        *,
        color: int = 0,
        tip: str = "",
        x_bar: tuple[float, float] | None = None,
        y_bar: tuple[float, float] | None = None,
        radius: float = 4.5,
        shape: str = "circle",
    ) -> None:
        """Draw a dot with its bars; `tip` shows where the pointer rests. The shape is circle, open or diamond."""
        a, b = float(self.across(x)), float(self.up(y))
        bars = []
        if x_bar is not None:
            ends = self.across(x_bar)
            bars.append(f"M{ends[0]:.1f} {b:.1f}H{ends[1]:.1f}")
        if y_bar is not None:
            ends = self.up(y_bar)
            bars.append(f"M{a:.1f} {ends[0]:.1f}V{ends[1]:.1f}")
        if bars:
            self._marks.append(tag("path", d="".join(bars), class_=f"bar s{color}"))
        self._marks.append(_dot(a, b, radius=radius, color=color, shape=shape, tip=tip))

    def bars(
        self, edges: ArrayLike, heights: ArrayLike, *, base: float = 0.0, color: int = 0, name: str | None = None
    ) -> None:
        """Draw a histogram on a base line; a negative height hangs below it."""
        places, zero = self.across(edges), float(self.up(base))
        for left, right, top in zip(places, places[1:], self.up(base + np.asarray(heights))):
            y, height = min(top, zero), abs(top - zero)
            if height > 0:
                box = {"x": f"{left + 0.5:.1f}", "width": f"{max(right - left - 1, 0.5):.1f}"}
                self._marks.append(tag("rect", **box, y=f"{y:.1f}", height=f"{height:.1f}", class_=f"f{color}"))
        if name is not None:
            self.swatch(name, color=color)

    def block(self, low: float, high: float, y: float, *, color: int, faint: bool = False, tip: str = "") -> None:
        """Fill a row from one place to another."""
        (left, right), (top, bottom) = self.across([low, high]), self.up([y - 0.4, y + 0.4])
        box = {"x": f"{left:.1f}", "width": f"{right - left:.1f}", "y": f"{top:.1f}", "height": f"{bottom - top:.1f}"}
        title = tag("title", tip) if tip else ""
        self._marks.append(tag("rect", title, **box, class_=f"{'band ' * faint}f{color}"))

    def cell(self, column: int, row: int, share: float, words: str, *, color: int = 0, tip: str = "") -> None:
        """Fill a cell the more, the larger a share of 0 to 1 is, and write into it."""
        (left, right), (top, bottom) = self.across([column - 0.5, column + 0.5]), self.up([row - 0.5, row + 0.5])
        box = {"x": f"{left + 1:.1f}", "width": f"{right - left - 2:.1f}", "y": f"{top + 1:.1f}"}
        box |= {"height": f"{bottom - top - 2:.1f}", "fill_opacity": f"{0.04 + 0.46 * share:.2f}"}
        self._marks.append(tag("rect", tag("title", tip), **box, class_=f"f{color}"))
        place = {"x": f"{(left + right) / 2:.1f}", "y": f"{(top + bottom) / 2 + 4.5:.1f}", "text_anchor": "middle"}
        self._marks.append(tag("text", words, **place, class_="strong" if column == row else None))

    def strokes(self, x: ArrayLike, y: ArrayLike, *, color: int = 0) -> None:
        """Draw short upright strokes, such as those where a curve loses bags."""
        places = zip(*_thinned(self.across(x), self.up(y)))
        path = "".join(f"M{a:.1f} {b - 4.5:.1f}v9" for a, b in places)
        self._marks.append(tag("path", d=path, class_=f"bar s{color}"))

    def swatch(self, name: str, *, color: int, faint: bool = False) -> None:
        """Add a block to the legend."""
        style = f"{'band ' * faint}f{color}"
        self._keys.append((name, tag("rect", x="8", y="1", width="18", height="10", class_=style)))

    def rule(self, x: float, *, name: str | None = None) -> None:
        """Draw a vertical line to compare with."""
        self.reference([x, x], [self.y.low, self.y.high], name=name)

    def write(self, x: float, y: float, words: str) -> None:
        """Write around a place of the axes."""
        place = {"x": f"{float(self.across(x)):.1f}", "y": f"{float(self.up(y)):.1f}"}
        self._marks.append(tag("text", words, **place, text_anchor="middle", class_="small"))

    def side(self, words: str, low: float, high: float) -> None:
        """Name a part of the y axis."""
        self._marks.append(self._turned(words, float(self.up((low + high) / 2))))

    def key(self, name: str, *, color: int, shape: str = "circle") -> None:
        """Add a dot to the legend."""
        self._keys.append((name, _dot(18, 6, radius=5, color=color, shape=shape)))

    def keys(self) -> Html:
        """The legend: what is drawn, then what it is compared with, then bands."""
        found = (
            tag("li", tag("svg", mark, viewBox="0 0 36 12", aria_hidden="true"), name)
            for name, mark in self._keys + self._references + self._bands
        )
        return tag("ul", *found, class_="keys")

    def drawing(self) -> Html:
        """The chart."""
        (left, top, right, bottom), (width, height) = self._box, self._size
        parts = []
        for tick, shown in _named(self.x):
            place = f"{float(self.across(tick)):.1f}"
            if "x" in self._lines:
                parts.append(tag("path", d=f"M{place} {top}V{bottom}", class_="grid"))
            parts.append(tag("text", shown, x=place, y=f"{bottom + 17}", text_anchor="middle", class_="tick"))
        for tick, shown in _named(self.y):
            height_of = float(self.up(tick))
            if "y" in self._lines:
                parts.append(tag("path", d=f"M{left} {height_of:.1f}H{right}", class_="grid"))
            parts.append(
                tag("text", shown, x=f"{left - 7}", y=f"{height_of + 4:.1f}", text_anchor="end", class_="tick")
            )
        parts.append(tag("path", d=f"M{left} {bottom}H{right}", class_="axis"))
        middle = f"{(left + right) / 2:.0f}"
        parts.append(tag("text", self.x.name, x=middle, y=f"{height - 8}", text_anchor="middle"))
        if self.y.name:
            parts.append(self._turned(self.y.name, (top + bottom) / 2))
        inside = join([*parts, *self._marks])
        return tag("svg", inside, viewBox=f"0 0 {width} {height}", role="img", aria_label=self._description)

    def _turned(self, words: str, center: float) -> Html:
        """A name beside the y axis, read from below."""
        place = {"transform": f"rotate(-90 14 {center:.0f})", "x": "14", "y": f"{center:.0f}"}
        return tag("text", words, **place, text_anchor="middle")


def span(values: Iterable[float], *, pad: float = 0.06) -> tuple[float, float]:
    """Range of an axis that holds all values, with some room; a range of one where they are equal."""
    found = np.array([value for value in values if np.isfinite(value)])
    low, high = (0.0, 1.0) if not found.size else (float(found.min()), float(found.max()))
    room = pad * (high - low) or 0.5
    return low - room, high + room


def _dot(x: float, y: float, *, radius: float, color: int, shape: str, tip: str = "") -> Html:
    """A dot at a place of the page: circle, open or diamond."""
    title = tag("title", tip) if tip else ""
    if shape == "diamond":
        r = radius + 1
        outline = f"M{x:.1f} {y - r:.1f}l{r} {r}l-{r} {r}l-{r} -{r}Z"
        return tag("path", title, d=outline, class_=f"dot f{color}")
    style = f"open s{color}" if shape == "open" else f"dot f{color}"
    return tag("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius}", class_=style)


def _named(axis: Range) -> list[tuple[float, str]]:
    """Places of the ticks of an axis, and what stands there."""
    ticks = axis.marks(5)
    shown = axis.names or [signed(tick, "g") for tick in ticks]
    return list(zip(ticks, shown, strict=True))


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y))


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most 500 points, the ends among them; a page shows no more."""
    if x.size <= _MOST_POINTS:
        return x, y
    kept = np.unique(np.linspace(0, x.size - 1, _MOST_POINTS).round().astype(np.int64))
    return x[kept], y[kept]
