"""Instances that are pictures: a contact sheet of both ends of the ranking, and slices in order with their weights."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_name
from midam.data.sources.file_rows import FileRows
from midam.explain.charts import mark_uniform
from midam.explain.explanation import Explanation
from midam.explain.patches import as_rgb, files_of
from midam.report.figures import BLUE, GRAY, ORANGE

COLUMNS = 8
_ROW = 1.62
_MOST = 32
SLICES = 12
_TITLE = 10  # characters above a slice
_LINE = 110  # characters beside each other over the weights


def sheet_height(found: Explanation, top: int) -> float:
    """Height of the sheet in inches."""
    high, low = shown(found, top)
    return _ROW * (_rows(len(high)) + _rows(len(low)))


def shown(found: Explanation, top: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instances of the sheet: the top ones, and as many from the bottom, lowest last; none twice, at most 32 each."""
    high = found.order[: min(top, _MOST)]
    low = found.order[max(len(high), len(found) - min(top, _MOST)) :]
    return high, low


def pictures_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
    """Instances of a bag as [H, W, 3], of a three-dimensional one the middle slice.

    All are stretched alike; colors of uint8 stay as they are.
    """
    pixels = bags.gather(int(bags.starts[index]) + instances)
    if pixels.ndim == 3:  # [m, H, W]
        pixels = pixels[:, None]
    if pixels.ndim == 5:  # [m, C, D, H, W]
        pixels = pixels[:, :, pixels.shape[2] // 2]
    if pixels.dtype == np.uint8 and pixels.shape[1] == 3:
        return [as_rgb(one) for one in pixels]
    low, high = float(pixels.min()), float(pixels.max())
    return [as_rgb(one, low=low, high=high) for one in pixels]


def draw_sheet(part: SubFigure, found: Explanation, bags: Bags, *, top: int) -> None:
    """Draw the top instances, below them the bottom ones."""
    high, low = shown(found, top)
    rows = _rows(len(high)) + _rows(len(low))
    panels: NDArray[Any] = part.subplots(rows, COLUMNS, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    _fill(panels[: _rows(len(high))], high, found, bags, name="Top by", color=ORANGE)
    _fill(panels[_rows(len(high)) :], low, found, bags, name="Bottom by", color=BLUE)


def caption(found: Explanation, instance: int) -> str:
    """Number of an instance, its weight in multiples of uniform (where weights differ) and its score."""
    weight = f"  {found.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}" if found.ranked_by == "weight" else ""
    return f"#{instance}{weight}\nscore {found.instances.score[instance]:.3f}"


def _fill(
    panels: NDArray[Any], instances: NDArray[np.int64], found: Explanation, bags: Bags, *, name: str, color: str
) -> None:
    if not len(instances):
        return
    for axes, instance, picture in zip(panels.flat, instances, pictures_of(bags, found.index, instances)):
        axes.imshow(picture)
        axes.set_title(caption(found, int(instance)), fontsize=8, color="#303030", pad=3)
    note = panels[0, 0].annotate(f"{name} {found.ranked_by}", (0, 0.5), (-6, 0), "axes fraction", "offset points")
    note.set(rotation=90, ha="right", va="center", fontsize=8.5, fontweight="bold", color=color)


def _rows(count: int) -> int:
    return math.ceil(count / COLUMNS)


@dataclass(frozen=True)
class Scans:
    """The scans of a bag, one after the other."""

    begins: list[int]  # position of the first slice of each
    names: list[str]  # of their files; empty where there is one scan, or the names cannot be told apart

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.begins) > 1

    def name(self, instance: int) -> str:
        """Name of the scan of a slice, or nothing."""
        return self.names[int(np.searchsorted(self.begins, instance, side="right")) - 1] if self.names else ""


def scans_of(found: Explanation, bags: Bags) -> Scans:
    """Where the scans of a bag begin: at its files, or, in a store, where the numbers of the slices begin anew."""
    files, count = files_of(bags, found.index), len(found)
    if len(files) < 2:
        return Scans([0], [])
    if isinstance(bags.instances, FileRows):
        begins = bags.instances.files.offsets - bags.starts[found.index]
        begins = begins[(begins >= 0) & (begins < count)]
    else:
        begins = np.flatnonzero(np.append(True, np.diff(_places(found)) <= 0))
    names = [file_name(path) for path in files]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}/{name}" for path, name in zip(files, names)]
    return Scans(begins.tolist(), names if len(names) == len(begins) else [])


def strip_instances(found: Explanation, top: int, *, several: bool = False) -> NDArray[np.int64]:
    """Slices that are shown, in order: up to half of the 12 the top ones, the rest spread over the bag.

    The order is that of their numbers, or that of the bag where there are several scans.
    """
    ordered = np.arange(len(found)) if several else np.argsort(_places(found), kind="stable")
    chosen = {int(i) for i in found.order[: min(top, SLICES // 2)]}
    for position in np.linspace(0, len(found) - 1, min(len(found), SLICES)).round().astype(int):
        if len(chosen) < SLICES:
            chosen.add(int(ordered[position]))
    return ordered[np.isin(ordered, list(chosen))]


def draw_strip(part: SubFigure, found: Explanation, bags: Bags, *, top: int) -> None:
    """Draw the strip and the weights (or scores) of all slices; the top ones are marked in both."""
    scans, ranks = scans_of(found, bags), {int(i): r for r, i in enumerate(found.order[:top], start=1)}
    instances, places = strip_instances(found, top, several=scans.several), _places(found)
    above, below = part.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.25]).flat
    panels: NDArray[Any] = above.subplots(1, SLICES, squeeze=False)[0]
    for axes in panels:
        axes.set_axis_off()
    for axes, i, picture in zip(panels, instances, pictures_of(bags, found.index, instances)):
        axes.imshow(picture)
        marked, scan = int(i) in ranks, scans.name(int(i))
        name = f"{_short(scan, _TITLE)}:\n" if scan else ""
        name += f"slice {places[i]:g}" + (f"\nrank {ranks[int(i)]}" if marked else "\n")
        axes.set_title(name, fontsize=8, color=ORANGE if marked else "#303030", pad=3)
        if marked:
            frame = Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, edgecolor=ORANGE, linewidth=3)
            axes.add_patch(frame)
    _draw_weights(below.subplots(), found, scans, list(ranks))


def _draw_weights(axes: Axes, found: Explanation, scans: Scans, top: list[int]) -> None:
    by_weight, places, values = found.ranked_by == "weight", _places(found), found.ranking
    colors = np.where(np.isin(np.arange(len(found)), top), ORANGE, BLUE)
    across = np.arange(len(found)) if scans.several else places
    gaps = np.diff(np.unique(across))
    axes.bar(across, values, width=0.85 * (gaps.min() if len(gaps) else 1), color=colors)
    axes.margins(x=0.01)
    if by_weight:
        mark_uniform(axes)
    if scans.several:
        _part_scans(axes, places, scans)
    axes.set_ylabel("Weight \N{MULTIPLICATION SIGN} n" if by_weight else "Score", fontsize=9)
    of = f" of {len(scans.begins)} scans" if scans.several else ""
    axes.set_xlabel(f"Slice (all {len(found)}{of}; orange: the {len(top)} top ones)", fontsize=9)


def _part_scans(axes: Axes, places: NDArray[np.float64], scans: Scans) -> None:
    """Name the scans over their slices, draw a line between them, and number each slice as in its scan."""
    ends = [*scans.begins[1:], len(places)]
    for begin in scans.begins[1:]:
        axes.axvline(begin - 0.5, color=GRAY, linewidth=1.2)
    for begin, end, name in zip(scans.begins, ends, scans.names):
        short = _short(name, int(_LINE * (end - begin) / len(places)))
        axes.annotate(short, (begin - 0.4, 1.02), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{places[int(x)]:g}" if 0 <= x < len(places) else ""))


def _short(name: str, limit: int) -> str:
    """Name without its middle: files of one patient often differ at the end. Nothing where there is no room."""
    if len(name) <= limit:
        return name
    return f"{name[: limit // 2 - 1]}\N{HORIZONTAL ELLIPSIS}{name[-(limit - limit // 2) :]}" if limit > 3 else ""


def _places(found: Explanation) -> NDArray[np.float64]:
    coords = np.arange(len(found))[:, None] if found.coords is None else found.coords
    return np.asarray(coords[:, 0], dtype=np.float64)
