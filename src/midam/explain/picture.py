"""The picture of a bag: what its kind calls for, its top and bottom instances, and the test of the ranking."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import SubFigure

from midam.data.bags import Bags
from midam.explain.backdrop import ImageFolder, read_backdrop
from midam.explain.charts import draw_bars, draw_curves
from midam.explain.explanation import Explanation
from midam.explain.overlay import PatchMap, draw_map
from midam.explain.panels import draw_sheet, sheet_height
from midam.explain.patches import files_of, is_picture, patches_of
from midam.explain.strip import draw_strip, strip_height
from midam.report.figures import new_figure, save_figure
from midam.report.words import shortened

WIDTH = 10.0
_HEADING, _BARS, _CURVES = 0.55, 3.4, 2.7

Block = tuple[float, Callable[[SubFigure], None]]  # height in inches, and what draws it


def draw_explanation(
    path: Path,
    found: Explanation,
    bags: Bags,
    *,
    drawn: PatchMap | None,
    top: int = 8,
    heading: str = "",
) -> str:
    """Draw a bag to a PNG file, with `top` instances one by one from each end of the ranking; returns what was drawn.

    `drawn` is the map of its patches that `map_of` gives.

    "overlay": patches on their image; "map": patches alone, where the image is not at hand; "strip": slices of a
    volume; "sheet": instances that are pictures; "bars": instances that are not.
    """
    kind, blocks = _blocks(found, bags, top, drawn)
    if found.faithfulness is not None:
        curves = found.faithfulness
        blocks.append((_CURVES, lambda part: draw_curves(part, curves)))
    heights = [_HEADING, *(height for height, _ in blocks)]
    figure = new_figure((WIDTH, sum(heights)))
    parts: list[SubFigure] = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).flat)
    line = f"Bag {shortened(found.bag, 70)}: score {found.score:.3f}"
    parts[0].text(0.012, 0.95, line, fontsize=13, fontweight="bold", va="top")
    parts[0].text(0.012, 0.3, heading, fontsize=9.5, color="#404040", va="top")
    for (_, draw), part in zip(blocks, parts[1:], strict=True):
        draw(part)
    save_figure(figure, path)
    return kind


def map_of(found: Explanation, bags: Bags, images: ImageFolder | None = None) -> PatchMap | None:
    """Map of the patches of a bag, on their image where it is at hand; None for a bag that has none."""
    patches = patches_of(bags, found.index)
    if patches is None:
        return None
    backdrop = None if images is None else images.read(bags, found.index, patches)
    files = files_of(bags, found.index)
    if backdrop is None and files:
        backdrop = read_backdrop(files[0])
    return None if backdrop is None and is_picture(bags.instance_shape) else PatchMap(found, patches, backdrop)


def _blocks(found: Explanation, bags: Bags, top: int, drawn: PatchMap | None) -> tuple[str, list[Block]]:
    """Kind of the picture, and its parts between heading and curves."""
    pictures = is_picture(bags.instance_shape)
    bars: Block = (_BARS, lambda part: draw_bars(part, found, top=top))
    sheet: Block = (sheet_height(found, top), lambda part: draw_sheet(part, found, bags, top=top))
    if drawn is not None:
        own: Block = (drawn.height(WIDTH), lambda part: draw_map(part, drawn, top=top))
        return ("map" if drawn.backdrop is None else "overlay"), [own, sheet if pictures else bars]
    if not pictures:
        return "bars", [bars]
    if found.coords is not None and found.coords.shape[1] == 1 and len(found) > 1:
        height = strip_height(found, bags.instance_shape)
        return "strip", [(height, lambda part: draw_strip(part, found, bags, top=top))]
    return "sheet", [sheet]
