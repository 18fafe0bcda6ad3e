"""`python -m studies figure-attention`: a positive and a negative image, with scores and weights of their patches."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.pooled import PooledBags
from midam.evaluate.predict import cpu_threads, predict
from midam.evaluate.ranking import auroc
from midam.explain.explanation import Explanation, explain_bag
from midam.explain.patches import Patches, patches_of, rasterize
from midam.nn.scorer import BagEnsemble, BagScorer
from midam.report.figures import new_figure
from studies.drawing import save_figure
from studies.images.deletion import Deletion, measure_deletion
from studies.images.design import Recipe, choose_design, fixed_settings, image_config
from studies.images.sets import image_splits, load_set
from studies.images.trials import make_trainer
from studies.options import StudyOptions
from studies.page import figure_path, table, write_page
from studies.registry import as_study
from studies.splits import Split

NAME = "figure-attention"
METHOD = "midam-printed-att"
SET = "breast"
_SHOWS = (
    "Two test images of the breast set, malignant and benign, under MIDAM with attention: the score that each patch "
    "would have alone, and its weight in the image, as a multiple of the uniform weight 1/n. The paper shows that "
    "lesions get large scores and weights, and that in a benign image the attention rests on a blank patch. Which "
    "images are shown is a rule, not a choice: those with the median score of their class."
)
_COLUMNS = ("Image", "Score of the patch alone", "Weight, in multiples of uniform (1/n)")


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """An image of the figure: its title, the places and pixels of its patches, and their contributions."""

    title: str
    patches: Patches
    pixels: NDArray[np.uint8]
    found: Explanation


def recipe_of(options: StudyOptions) -> Recipe:
    """Return the recipe in the size of the options."""
    size = choose_design(options).name
    if size in ("quick", "smaller"):
        return Recipe((METHOD,), (), epochs=1, instances=4, lrs=(0.01,), margins=(0.1,), bags=2)
    return Recipe((METHOD,), (), **fixed_settings("breast", epochs=30 if size == "small" else 100, instances=16))


@as_study("a positive and a negative image with the scores and weights of their patches", takes=("size", "device"))
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    # Whole images in every size of the study: a part of the patches gives no picture.
    design = choose_design(options)
    design = dataclasses.replace(design, name=f"{design.name}-whole", instances=None) if design.instances else design
    study(options, load_set(SET, design, cache=options.cache).bags)


def study(options: StudyOptions, bags: Bags) -> None:
    """Run the study on these bags, whose instances are patches with places."""
    started = time.perf_counter()
    recipe, size = recipe_of(options), choose_design(options).name
    split = image_splits(bags, recipe)[0]
    area, found = _explained(bags, split, recipe, cuda=options.use_cuda())
    tested = bags.subset(split.test)
    shown = [_shown(tested, one.found, f"{one.name}, score {one.found.score:.3f}") for one in found]
    path = figure_path(options, NAME)
    draw(path, shown)
    write_page(
        options,
        NAME,
        title="What decides an image: scores and weights of patches",
        shows=_SHOWS,
        seeds="0",
        seconds=time.perf_counter() - started,
        body=[
            f"![Images, scores and weights of their patches]({path.name})",
            "",
            f"Trained for {recipe.epochs} epochs on {len(split.train)} images, learning rate {recipe.lrs[0]:g}, "
            f"margin {recipe.margins[0]:g}, B = {recipe.instances}; nothing was chosen. Test AUROC on the "
            f"{len(tested)} images of the fold, which share no group with those: {area:.3f}. `midam "
            "explain` draws any image of a run.",
            "",
            *_table(found),
            "",
            "Image: UCSB Bio-Segmentation Benchmark, Gelasca et al., 'Evaluation and benchmark for biological image "
            "segmentation', ICIP 2008.",
            "",
        ],
        made=[f"- Size: {size}"],
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Explained:
    """The explanation of an image of a class, and deletion tests of its patches by weight and by contribution."""

    name: str
    found: Explanation
    by_weight: Deletion | None
    by_contribution: Deletion | None


def _explained(bags: Bags, split: Split, recipe: Recipe, *, cuda: bool) -> tuple[float, list[_Explained]]:
    """Train, and explain the test images with the median score of their class; returns the test AUROC too."""
    config = image_config(METHOD, recipe, lr=recipe.lrs[0], margin=recipe.margins[0], epochs=recipe.epochs, cuda=cuda)
    tested = bags.subset(split.test)
    labels = tested.require_labels()
    with cpu_threads(1):
        trainer = make_trainer(config, bags, split).fit()
        scores = predict(trainer.model, tested)
        found = []
        for value, name in ((1, "Positive"), (0, "Negative")):
            one = explain_bag(trainer.model, tested, _median_of(scores, labels == value))
            found.append(_Explained(name, one, *_tested(trainer.model, tested, one)))
    return auroc(labels, scores), found


def _tested(model: BagScorer | BagEnsemble, bags: Bags, found: Explanation) -> list[Deletion | None]:
    """Return the deletion tests of a bag: by the weights of its instances, and by what they add."""
    by_weight = np.argsort(-found.weight, kind="stable")
    bag = PooledBags(model, bags.subset([found.index]))
    return [measure_deletion(bag, order) for order in (by_weight, found.order)]


def draw(path: Path, shown: list[Shown]) -> None:
    """Draw a row for each image: image, map of scores, map of weights; one color scale for each column."""
    heights = [max(3.3 * one.pixels.shape[0] / one.pixels.shape[1], 1.6) for one in shown]
    figure = new_figure((10.6, sum(heights) + 1.3))
    grid: Any = figure.subplots(len(shown), 3, squeeze=False)
    scores = np.concatenate([one.found.alone for one in shown])
    weights = np.concatenate([one.found.relative_weight for one in shown])
    scales = (Normalize(float(scores.min()), float(scores.max())), _weight_range(weights))
    for row, one in zip(grid, shown):
        row[0].imshow(one.pixels)
        for axes, values, scale in zip(row[1:], (one.found.alone, one.found.relative_weight), scales):
            raster = rasterize(one.patches, values, shape=one.pixels.shape[:2], scale=1.0)
            axes.imshow(np.ma.masked_invalid(raster), cmap="viridis", norm=scale, interpolation="nearest")
        row[0].set_ylabel(one.title, fontsize=10, fontweight="bold")
        for axes in row:
            axes.set_xticks([])
            axes.set_yticks([])
    for axes, title in zip(grid[0], _COLUMNS):
        axes.set_title(title, loc="left", fontsize=10)
    for column in (1, 2):
        # Values outside the scale have its last color; the pointed end shows this.
        beyond = float(weights.max()) > float(scales[1].vmax or 0) * (1 + 1e-6) if column == 2 else False
        image = grid[0, column].images[0]
        bar = figure.colorbar(image, ax=list(grid[:, column]), location="bottom", shrink=0.85, aspect=30)
        bar.ax.tick_params(labelsize=8)
        if beyond:
            bar.set_label(f"greatest: {weights.max():.3g}", fontsize=8)
    save_figure(figure, path, grid=False)


def _median_of(scores: NDArray[np.float64], among: NDArray[np.bool_]) -> int:
    """Return the position of the median score among some bags, the lower one for an even number."""
    positions = np.flatnonzero(among)
    return int(positions[np.argsort(scores[positions], kind="stable")[(len(positions) - 1) // 2]])


def _shown(bags: Bags, found: Explanation, title: str) -> Shown:
    patches = next(iter(patches_of(bags, found.index)), None)
    if patches is None:
        raise BagDataError(
            f"Expected patches with the pixels where they lie, got none (in {bags.source}, bag {found.bag}); cut the "
            "images into patches."
        )
    return Shown(title, patches, _mosaic(np.asarray(bags[found.index]), patches), found)


def _mosaic(instances: NDArray[Any], patches: Patches) -> NDArray[np.uint8]:
    """Put the patches at their places: the scorer's view of the image, white without a patch."""
    width, height = (round(side) for side in patches.extent)
    pixels = np.full((height, width, 3), 255, np.uint8)
    rows, columns = instances.shape[-2:]
    for patch, (x, y) in zip(instances, patches.corners.astype(int)):
        pixels[y : y + rows, x : x + columns] = np.moveaxis(np.broadcast_to(patch, (3, rows, columns)), 0, -1)
    return pixels


def _table(explained: list[_Explained]) -> list[str]:
    rows = []
    for one in explained:
        weight = np.sort(one.found.weight)[::-1]
        half = int(np.searchsorted(np.cumsum(weight), 0.5)) + 1
        tests = [test.verdict if test else "-" for test in (one.by_weight, one.by_contribution)]
        count = len(one.found)
        rows.append(
            [one.found.bag, f"{one.found.score:.3f}", str(count), f"{weight[0] * count:.1f}", str(half), *tests]
        )
    head = [
        "image",
        "score",
        "patches",
        "largest weight, x 1/n",
        "patches with half the weight",
        "removing the largest weights first",
        "removing what adds most first",
    ]
    return [
        *table(head, rows),
        "",
        "Last columns: whether the score falls ('lowers') or rises ('raises') faster than in any of 20 random orders "
        "when patches are removed, those with the largest weights first, or those that add most to the score first, "
        "which is how [an explanation](../docs/explain.md) ranks them. Where removing the largest weights does not "
        "lower the score, they do not mark what makes an image positive.",
    ]


def _weight_range(relative: NDArray[np.floating[Any]]) -> Normalize:
    """Return the scale of relative weights: from 0 to their 99th percentile, at least 2."""
    high = float(np.percentile(relative, 99))
    return Normalize(0.0, max(high if high >= 1 else float(relative.max()), 2.0))
