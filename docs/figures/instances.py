"""Draw `instances.jpg`: what becomes an instance of an image, a slide and a volume.

Run `MIDAM_DATA=FOLDER python docs/figures/instances.py` from the repository's root. The folder holds the sets `breast`
and `adrenal` of the catalog, and OpenSlide's test slide CMU-1-Small-Region as `wsi/cmu-1-small-region.svs`.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from PIL import Image

from midam.data.sources.probe import open_file
from midam.data.sources.request import ImageOptions
from midam.imaging.images import read_pixels
from midam.imaging.pyramid import open_pyramid
from midam.report.figures import BLUE, new_figure, save_figure
from studies.sets import catalog

ROOT = Path(os.environ["MIDAM_DATA"])
SLIDE = ROOT / "wsi" / "cmu-1-small-region.svs"


def main() -> None:
    """Write the figure beside this file."""
    figure = new_figure((10.0, 3.9))
    image, slide, volume = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1.25, 0.8, 1.1]})
    _draw_image(image)
    _draw_slide(slide)
    _draw_volume(volume)
    for axes in (image, slide, volume):
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    with tempfile.TemporaryDirectory() as folder:
        save_figure(figure, Path(folder) / "figure.png")
        with Image.open(Path(folder) / "figure.png") as drawn:
            drawn.convert("RGB").save(Path(__file__).with_suffix(".jpg"), quality=72)


def _draw_image(axes: Axes) -> None:
    bags = catalog.load("breast")
    axes.imshow(read_pixels(Path(bags.sources[1])).transpose(1, 2, 0))
    _outline(axes, bags.places(1), 32)
    axes.set_title(f"an image: {bags.sizes[1]} patches of 32x32", fontsize=10)


def _draw_slide(axes: Axes) -> None:
    opened = open_file(SLIDE, ImageOptions(patch_size=64, magnification=10))
    said, n = opened.attributes["coords"], opened.coords.shape[0]
    axes.imshow(open_pyramid(SLIDE).thumbnail(1000), extent=(0, said["level0_width"], said["level0_height"], 0))
    _outline(axes, opened.coords[:n], said["patch_size_level0"])
    axes.set_title(f"a slide at 10x: {n} patches\nof 64x64 with tissue", fontsize=10)


def _draw_volume(axes: Axes) -> None:
    bags = catalog.load("adrenal")
    slices, places = bags[3][:, 0], bags.places(3)[:, 0]
    columns = 6
    sheet = np.full((-(-len(slices) // columns) * 66, columns * 66), 90, dtype=np.uint8)
    for number, part in enumerate(slices):
        row, column = divmod(number, columns)
        sheet[row * 66 + 1 : row * 66 + 65, column * 66 + 1 : column * 66 + 65] = part
        axes.text(column * 66 + 4, row * 66 + 14, str(places[number]), color="white", fontsize=7)
    axes.imshow(sheet, cmap="gray", vmin=0, vmax=255)
    axes.set_title(f"a volume: its {len(slices)} slices that are not empty", fontsize=10)


def _outline(axes: Axes, places: np.ndarray, side: int) -> None:
    axes.autoscale(enable=False)
    squares = [Rectangle((x, y), side, side) for x, y in places]
    axes.add_collection(PatchCollection(squares, facecolor="none", edgecolor=BLUE, linewidth=0.5))


if __name__ == "__main__":
    main()
