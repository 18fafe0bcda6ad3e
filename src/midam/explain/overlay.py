"""Patches on their image: drawn with the top patches framed and numbered, and written as files for slide viewers.

The files of each slide of a bag are polygons, and maps of contribution, weight and score.
"""

import json
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bag_files import files_of
from midam.data.bags import Bags
from midam.explain.backdrop import MAX_SIDE, Backdrop
from midam.explain.charts import Layer, layers_of
from midam.explain.explanation import Explanation
from midam.explain.patches import Patches, rasterize
from midam.files import write_bytes, write_text
from midam.report.figures import GRAY, ORANGE
from midam.report.words import shortened, signed
from midam.runs.instance_files import file_name, file_names, with_digest

_PANEL, _BELOW = 0.9, 1.0  # panels' share of the width; inches for title and scale
_HIGHEST = 5.5  # most inches of a panel
_PAPER = "#F2F2F2"
_NAME = 90  # most characters of a file name
_CONTOUR = 0.5  # share of the scale of contributions
_SMALLEST, _LARGEST = 5.5, 9.0  # points of a number; smaller numbers are unreadable
_COVERED = 0.4  # most of a patch that its number may hide
_TOUCH = 1e-6  # in pixels: patches of a grid share their sides
# Directions from the center of a patch, and distances of numbers from it in multiples of their height.
_CORNERS = np.array([(-1, -1), (1, -1), (-1, 1), (1, 1)])
_AROUND = np.array([(0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1)])
_AWAY = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
_OF_BAG = {"picture": ".png", "instances": ".h5", "table": ".csv"}
_POLYGONS = {"polygons": ".geojson"}
# For each slide, the image, and the maps on it, which are transparent where values are small.
_LAYERS = {"image": ".image.jpg", "added": ".added.png", "weight": ".weight.png", "score": ".score.png"}
_JPEG = 88
TOP, MOST = 1000, 100_000


@dataclass(frozen=True)
class PatchMap:
    """Content of a map: an explanation, the patches of one slide of its bag, and the slide's image if known."""

    explanation: Explanation
    patches: Patches
    backdrop: Backdrop | None

    @property
    def scale(self) -> float:
        """Pixels of the map for a pixel of level 0."""
        return min(MAX_SIDE / max(self.patches.extent), 1.0) if self.backdrop is None else self.backdrop.scale

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        if self.backdrop is not None:
            return self.backdrop.pixels.shape[0], self.backdrop.pixels.shape[1]
        right, low = self.patches.extent
        return max(1, round(low * self.scale)), max(1, round(right * self.scale))

    @cached_property
    def layers(self) -> list[Layer]:
        """Values of the maps."""
        return layers_of(self.explanation)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        count = len(self.layers) + (self.backdrop is not None)
        return (2, 2) if count == 4 else (1, count)

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and bottom of each patch, [n, 4], in pixels of the map."""
        return self.patches.sides * self.scale

    def raster(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the map of values [n] of all instances; NaN without a patch."""
        return rasterize(self.patches, self.patches.of(values), shape=self.shape, scale=self.scale)

    def height(self, width: float) -> float:
        """Return the height in inches at which panels of this total width have no gaps."""
        (rows, columns), (down, across) = self.shape, self.grid
        return down * (min(max(_PANEL * width / across * rows / columns, 1.5), _HIGHEST) + _BELOW)

    def points(self, width: float, height: float) -> float:
        """Return about how many points a pixel of the map has, if all panels together have this size in inches."""
        (rows, columns), (down, across) = self.shape, self.grid
        return 72 * min(_PANEL * width / across / columns, (height / down - _BELOW) / rows)


def draw_map(part: SubFigure, drawn: PatchMap, *, top: int, named: bool = False) -> None:
    """Plot the image with framed top patches, and maps of contribution, weight and score; title if `named`."""
    down, across = drawn.grid
    file = drawn.patches.file
    if named and file is not None:
        part.suptitle(shortened(file.name, _NAME), fontsize=11, fontweight="bold", x=0.012, ha="left")
    panels: NDArray[Any] = part.subplots(2 * down, across, squeeze=False, height_ratios=[1, 0.03] * down)
    pairs = list(zip(panels[::2].flat, panels[1::2].flat, strict=True))
    if drawn.backdrop is not None:
        (axes, below), pairs = pairs[0], pairs[1:]
        axes.imshow(drawn.backdrop.pixels)
        points = drawn.points(part.bbox.width / part.figure.dpi, part.bbox.height / part.figure.dpi)
        # imshow centers pixels at whole numbers: the first pixel is from -0.5 to 0.5.
        ranks, places = drawn.patches.ranked(drawn.explanation.order, top=top)
        draw_numbers(axes, drawn.sides[places] - 0.5, ranks.tolist(), shape=drawn.shape, points=points)
        total_text = f" of {min(top, len(drawn.explanation))}" if len(ranks) < min(top, len(drawn.explanation)) else ""
        axes.set_title(f"Image; the {len(ranks)}{total_text} top patches, by rank", fontsize=10, loc="left")
        below.set_axis_off()
        axes.set_axis_off()
    for (axes, bar), layer in zip(pairs, drawn.layers, strict=True):
        _panel(axes, bar, drawn, layer)
        axes.set_axis_off()


def _panel(axes: Axes, bar: Axes, drawn: PatchMap, layer: Layer) -> None:
    if drawn.backdrop is None:
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, color=_PAPER, zorder=0))
    else:
        gray = drawn.backdrop.pixels.mean(axis=-1)  # colors of the image would mix with colors of the map
        axes.imshow(gray, cmap="gray", vmin=0, vmax=255)
    axes.imshow(layer.on_image(drawn.raster, opaque=drawn.backdrop is None), interpolation="nearest")
    outlined = ""
    if layer.key == "added":
        values = np.nan_to_num(drawn.raster(layer.values))
        level = _CONTOUR * float(layer.scale.vmax or 0)
        if min(values.shape) > 1 and values.min() < level < values.max():
            axes.contour(values, levels=[level], colors=[ORANGE], linewidths=1.1)
            outlined = f"; outlined from {signed(level)}"
    axes.set_title(layer.name, fontsize=10, loc="left")
    colors = ScalarMappable(layer.scale, layer.colors)
    colorbar = axes.figure.colorbar(colors, cax=bar, orientation="horizontal", extend=layer.extend)
    bar.tick_params(labelsize=8.5)
    bar.xaxis.set_major_locator(MaxNLocator(4))
    low, high = layer.ends
    meaning = f"blue {low}, orange {high}\n" if low else ""
    colorbar.set_label(f"{meaning}{layer.here}{outlined}", fontsize=8.5, color=GRAY)


def draw_numbers(
    axes: Axes, patches: NDArray[np.float64], ranks: Sequence[int], *, shape: tuple[int, int], points: float
) -> None:
    """Frame and number patches (left, top, right and bottom, [k, 4], by rank, in pixels of the map).

    The map has `shape` rows and columns, its first pixel from -0.5 to 0.5 as in imshow, and `points` points for each
    pixel.
    """
    size = _font_size(patches, points)
    boxes = number_boxes(patches, ranks, shape=shape, points=points)
    # The top rank is drawn last, so that no frame covers its frame.
    for rank, patch, box in reversed(list(zip(ranks, patches, boxes, strict=True))):
        _frame(axes, patch, points)
        if box is not None:
            _number(axes, patch, box, rank, size)


def number_boxes(
    patches: NDArray[np.float64], ranks: Sequence[int], *, shape: tuple[int, int], points: float
) -> list[NDArray[np.float64] | None]:
    """Return left, top, right and bottom of the number of each patch; None if all places are taken.

    A number is placed in a corner of its patch, the top left first, or next to a patch that it would hide. It covers no
    other number, and as few frames as possible.
    """
    size = _font_size(patches, points) / points
    first, last = -0.5 - _TOUCH, np.array(shape)[::-1] - 0.5 + _TOUCH
    boxes = list[NDArray[np.float64] | None]()
    for place, (rank, patch) in enumerate(zip(ranks, patches, strict=True)):
        extent = np.array([0.72 * size * len(str(rank)) + 0.3 * size, 1.1 * size])
        side, center = patch[2:] - patch[:2], (patch[:2] + patch[2:]) / 2
        if (extent <= side).all() and extent.prod() <= _COVERED * side.prod():
            centers, frames = center + _CORNERS * (side - extent) / 2, np.delete(patches, place, axis=0)
        else:
            rings = [_AROUND * (side / 2 + extent / 2 + away * extent[1]) for away in _AWAY]
            centers, frames = center + np.concatenate(rings), patches
        places = np.concatenate([centers - extent / 2, centers + extent / 2], axis=1)
        occupied = [box for box in boxes if box is not None]
        free = [box for box in places if (box[:2] >= first).all() and (box[2:] <= last).all()]
        free = [box for box in free if not _overlaps(box, occupied)]
        boxes.append(min(free, key=lambda box: _overlaps(box, frames), default=None))
    return boxes


def _overlaps(box: NDArray[np.float64], others: Iterable[NDArray[np.float64]]) -> int:
    """Return how many other boxes a box overlaps."""
    return sum(bool((box[:2] < other[2:] - _TOUCH).all() and (other[:2] < box[2:] - _TOUCH).all()) for other in others)


def _font_size(patches: NDArray[np.float64], points: float) -> float:
    return float(np.clip(0.4 * _side(patches[0], points), _SMALLEST, _LARGEST)) if len(patches) else _SMALLEST


def _side(patch: NDArray[np.float64], points: float) -> float:
    return float((patch[2:] - patch[:2]).min()) * points


def _frame(axes: Axes, patch: NDArray[np.float64], points: float) -> None:
    """Plot a frame inside its patch, so that frames of neighbors do not overlap."""
    side = _side(patch, points)
    width = float(np.clip(side / 8, 1.2, 3.0))
    inset = min(width / 2, side / 4) / points
    for color, part in (("white", 1.0), ("black", 0.5)):
        size = patch[2:] - patch[:2] - 2 * inset
        axes.add_patch(Rectangle(tuple(patch[:2] + inset), *size, fill=False, edgecolor=color, linewidth=part * width))


def _number(axes: Axes, patch: NDArray[np.float64], box: NDArray[np.float64], rank: int, size: float) -> None:
    """Plot a number in its box, and a line from the patch to a box outside."""
    center = (box[:2] + box[2:]) / 2
    start = np.clip(center, patch[:2], patch[2:])
    outside = bool((start != center).any())
    if outside:
        for color, width in (("white", 2.2), ("black", 0.9)):
            axes.plot(*np.stack([start, center], axis=1), color=color, linewidth=width, scalex=False, scaley=False)
    edge = {"linewidth": 0.6, "edgecolor": "black"} if outside else {"linewidth": 0}
    axes.add_patch(Rectangle(tuple(box[:2]), *(box[2:] - box[:2]), facecolor="white", zorder=3, **edge))
    text = axes.text(center[0], center[1], str(rank), ha="center", va="center_baseline", fontsize=size, zorder=4)
    text.set_fontweight("bold")


class BagNames(NamedTuple):
    """File names without suffix of a bag, and of each of its slides."""

    bag: str
    slides: tuple[str, ...]

    def of_bag(self) -> dict[str, str]:
        """Return the files of the bag by kind."""
        return {kind: self.bag + suffix for kind, suffix in _OF_BAG.items()}

    def every(self) -> Iterator[str]:
        """Yield all files that may be written."""
        yield from self.of_bag().values()
        yield from (stem + suffix for stem in self.slides for suffix in (_POLYGONS | _LAYERS).values())


def bag_names(bags: Bags, index: Sequence[int]) -> list[BagNames]:
    """Return unique file names of bags, also if case is ignored; a slide is named by the bag and its file.

    If files of two bags would have the same name, as for `a` and `a.score`, the names get a digest.
    """
    every, names = file_names(bags), list[BagNames]()
    for i in index:
        files = files_of(bags, i)
        stems = [file_name(f"{bags.ids[i]}.{file.stem}") for file in files] if len(files) > 1 else [every[i]]
        twice = Counter(stem.lower() for stem in stems)
        slides = (with_digest(stem, str(at)) if twice[stem.lower()] > 1 else stem for at, stem in enumerate(stems))
        names.append(BagNames(every[i], tuple(slides)))
    counts = Counter(name.lower() for entry in names for name in entry.every())
    for at, (i, entry) in enumerate(zip(index, names)):
        if any(counts[name.lower()] > 1 for name in entry.every()):
            bag = str(bags.ids[i])
            names[at] = BagNames(with_digest(entry.bag, bag), tuple(with_digest(one, bag) for one in entry.slides))
    return names


def slide_stem(names: BagNames, bags: Bags, patches: Patches, index: int) -> str:
    """Return the file name without suffix of one slide."""
    files = files_of(bags, index)
    return names.slides[0 if patches.file is None or len(files) < 2 else files.index(patches.file)]


def write_slide(
    folder: Path, stem: str, explanation: Explanation, patches: Patches, drawn: PatchMap | None, *, limit: int
) -> dict[str, Any]:
    """Write the polygons of a slide, if coordinates are in pixels, and its map; returns its entry in explain.json."""
    entry: dict[str, Any] = {} if patches.file is None else {"file": patches.file.name}
    files = dict[str, str]()
    if patches.in_pixels:
        files["polygons"] = stem + _POLYGONS["polygons"]
        entry["polygons"] = min(limit, len(patches.corners))
        write_text(folder / files["polygons"], geojson_text(explanation, patches, limit=limit))
    if drawn is not None:
        files |= _write_layers(drawn, folder, stem)
        entry["layers"] = [
            {"key": layer.key, "name": layer.name, "here": layer.here, "ends": layer.ends}
            | {"low": layer.scale.vmin, "high": layer.scale.vmax}
            for layer in drawn.layers
        ]
    return entry | {"files": files}


def _write_layers(drawn: PatchMap, folder: Path, stem: str) -> dict[str, str]:
    """Write the image, if any, and the maps on it."""
    from PIL import Image

    pictures = {layer.key: layer.on_image(drawn.raster, opaque=drawn.backdrop is None) for layer in drawn.layers}
    if drawn.backdrop is not None:
        pictures["image"] = drawn.backdrop.pixels
    files = {}
    for key, pixels in pictures.items():
        files[key], content = stem + _LAYERS[key], BytesIO()
        Image.fromarray(pixels).save(content, "JPEG" if key == "image" else "PNG", quality=_JPEG, optimize=True)
        write_bytes(folder / files[key], content.getvalue())
    return files


def geojson_text(explanation: Explanation, patches: Patches, *, limit: int = TOP) -> str:
    """Return the top patches of a bag as GeoJSON for QuPath (0.4 and later): at most `limit` polygons, one per line.

    Each patch is an annotation with the measurements `contribution` (to the score of the bag; it sets the color),
    `score`, `weight`, `relative weight` (in multiples of 1/n) and `percentile` (100 for the top patch). For other
    programs, these are also properties. If a bag has several slides, ranks are ranks in the whole bag.

    If the slide states the bounds of its scanned area, coordinates start at the corner of this area, as in QuPath.
    """
    features = ",\n".join(json.dumps(feature, allow_nan=False) for feature in _features(explanation, patches, limit))
    return f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'


def _features(explanation: Explanation, patches: Patches, limit: int) -> Iterator[dict[str, Any]]:
    ranks, places = (part[:limit] for part in patches.ranked(explanation.order))
    instances, percentile, added = explanation.order[ranks - 1], explanation.percentile, layers_of(explanation)[0]
    sides = (patches.sides - np.array([*patches.corner, *patches.corner]))[places]
    colors = (255 * added.colors(np.asarray(added.scale(added.values[instances])))[:, :3]).astype(int).tolist()
    for at, (rank, i) in enumerate(zip(ranks.tolist(), instances.tolist())):
        left, top, right, bottom = sides[at].tolist()
        ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        values = {
            "contribution": float(explanation.contribution[i]),
            "score": float(explanation.instances.score[i]),
            "weight": float(explanation.instances.weight[i]),
            "percentile": float(percentile[i]),
        }
        yield {
            "type": "Feature",
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"midam:{explanation.bag}:{i}")),
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": {
                "objectType": "annotation",
                "name": f"#{i}, rank {rank}",
                "color": colors[at],
                "classification": {"name": f"top {10 ** math.ceil(math.log10(rank) - 1e-12)}", "color": colors[0]},
                "measurements": {**values, "relative weight": float(explanation.relative_weight[i])},
                **values,
                "instance": i,
                **({} if patches.file is None else {"file": patches.file.name}),
            },
        }
