"""The picture of a bag: what its kind calls for, its top and bottom instances, and the test of the ranking."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import SubFigure

from midam.data.bag_files import BagFile, source_paths
from midam.data.bags import Bags
from midam.explain.backdrop import ImageFolder, read_backdrop, slide_facts
from midam.explain.charts import draw_bars, draw_curves
from midam.explain.explanation import Explanation
from midam.explain.overlay import PatchMap, draw_map
from midam.explain.panels import draw_sheet, sheet_height
from midam.explain.patches import Patches, SlideFacts, is_picture, patches_of
from midam.explain.strip import draw_strip, strip_height
from midam.report.figures import new_figure, save_figure
from midam.report.words import shortened

WIDTH = 10.0
_MAPS = 6
_HEADING, _BARS, _CURVES = 0.55, 3.4, 2.7

Block = tuple[float, Callable[[SubFigure], None]]  # height in inches, and what draws it


def draw_explanation(
    path: Path,
    found: Explanation,
    bags: Bags,
    *,
    drawn: Sequence[PatchMap] = (),
    top: int = 8,
    heading: str = "",
    form: str = ".3f",
) -> str:
    """Draw a bag to a PNG file, with `top` instances one by one from each end of the ranking; returns what was drawn.

    `drawn` are the maps of its patches that `maps_of` gives, of which six are shown: those of the slides that hold the
    instances of the highest ranks. `form` is that of the score in the title.

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
    line = f"Bag {shortened(found.bag, 70)}: score {found.score:{form}}"
    parts[0].text(0.012, 0.95, line, fontsize=13, fontweight="bold", va="top")
    parts[0].text(0.012, 0.3, heading, fontsize=9.5, color="#404040", va="top")
    for (_, draw), part in zip(blocks, parts[1:], strict=True):
        draw(part)
    save_figure(figure, path)
    return kind


def placed_patches(found: Explanation, bags: Bags, images: ImageFolder | None = None) -> list[Patches]:
    """Patches of each slide of a bag; its scale and bounds are those of the slide, where that is at hand."""
    count = len(source_paths(bags, found.index))

    def slide_of(file: BagFile | None) -> SlideFacts:
        own = SlideFacts() if file is None else slide_facts(file.path)
        return own if images is None or own != SlideFacts() else images.slide(found.bag, file, several=count > 1)

    return patches_of(bags, found.index, slide_of)


def maps_of(
    found: Explanation, bags: Bags, images: ImageFolder | None = None, *, patches: Sequence[Patches] | None = None
) -> list[PatchMap]:
    """Maps of the patches of a bag, one for each slide, on its image where that is at hand.

    What cannot be drawn is warned of, with the reason. `patches` are those of `placed_patches`.
    """
    several, maps = len(source_paths(bags, found.index)) > 1, list[PatchMap]()
    for own in placed_patches(found, bags, images) if patches is None else patches:
        said = bags.described(found.index) if own.file is None else own.file.attributes
        backdrop = None if images is None else images.read(found.bag, own, said, several=several)
        if backdrop is None and own.file is not None:
            backdrop = read_backdrop(own.file.path)
        if backdrop is not None or not is_picture(bags.instance_shape):
            maps.append(PatchMap(found, own, backdrop))
    return maps


def _blocks(found: Explanation, bags: Bags, top: int, drawn: Sequence[PatchMap]) -> tuple[str, list[Block]]:
    """Kind of the picture, and its parts between heading and curves."""
    pictures = is_picture(bags.instance_shape)
    bars: Block = (_BARS, lambda part: draw_bars(part, found, top=top))
    sheet: Block = (sheet_height(found, top), lambda part: draw_sheet(part, found, bags, top=top))
    if drawn:
        several = len(source_paths(bags, found.index)) > 1
        own = [_map_block(one, top, named=several) for one in _foremost(drawn)]
        kind = "map" if all(one.backdrop is None for one in drawn) else "overlay"
        return kind, [*own, sheet if pictures else bars]
    if not pictures:
        return "bars", [bars]
    if found.coords is not None and found.coords.shape[1] == 1 and len(found) > 1:
        height = strip_height(found, bags.instance_shape)
        return "strip", [(height, lambda part: draw_strip(part, found, bags, top=top))]
    return "sheet", [sheet]


def _map_block(drawn: PatchMap, top: int, *, named: bool) -> Block:
    return drawn.height(WIDTH), lambda part: draw_map(part, drawn, top=top, named=named)


def _foremost(drawn: Sequence[PatchMap]) -> list[PatchMap]:
    """The maps that are shown, in their order."""
    first = [int(one.patches.ranked(one.found.order)[0][0]) for one in drawn]
    chosen = sorted(range(len(drawn)), key=first.__getitem__)[:_MAPS]
    if len(drawn) > _MAPS:
        text = f"the picture shows the maps of {_MAPS} slides, those of the others are files of their own"
        warnings.warn(f"{text} ({len(drawn)} slides)", UserWarning, stacklevel=3)
    return [drawn[at] for at in sorted(chosen)]
