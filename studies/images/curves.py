"""AUROC of validation and test images along a training, with one curve for each method and batch."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.predict import cpu_threads
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.report.figures import new_figure
from midam.settings import Settings
from studies.drawing import COLORS, DASHES, MARKERS, add_legend, save_figure
from studies.engine import Store, complete, settings_hash, short_digest, trial_name
from studies.images.design import Recipe, choose_design, image_config
from studies.images.sets import image_splits, load_set
from studies.images.trials import bags_digest, score_epochs, train_scored
from studies.options import StudyOptions
from studies.page import table, write_page
from studies.splits import Split

PARTS = ("val", "test")


@dataclass(frozen=True)
class ImageArm:
    """A curve."""

    label: str  # In the legend
    method: str  # A name of `midam.methods.names`
    recipe: Recipe  # Epochs, batch, learning rates to choose from, folds; its first margin is used


@dataclass(frozen=True, eq=False)
class ImageCurve:
    """A curve at the learning rate that validation bags chose."""

    lr: float  # The rate
    # Times of the scoring of bags: epochs, and number of encoded training instances [E]
    epochs: NDArray[np.int64]
    instances: NDArray[np.int64]
    # AUROC; of training bags at the points of the training. NaN after a divergence [folds, E]
    train: NDArray[np.float64]
    val: NDArray[np.float64]
    test: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _CurveJob:
    name: str
    arm: ImageArm
    lr: float
    bags: Bags
    split: Split
    cuda: bool

    @property
    def config(self) -> Settings:
        """Return the settings of the training."""
        margin, epochs = self.arm.recipe.margins[0], self.arm.recipe.epochs
        return image_config(self.arm.method, self.arm.recipe, lr=self.lr, margin=margin, epochs=epochs, cuda=self.cuda)

    @property
    def trial(self) -> Row:
        """Return the name of the trial."""
        recipe = self.arm.recipe
        content = [bags_digest(self.bags), settings_hash(self.config), recipe.margins[0], recipe.score_every]
        place = {"split": self.split.split, "fold": self.split.fold}
        settings = short_digest(content)
        return trial_name("image-curves", set=self.name, method=self.arm.method, lr=self.lr, settings=settings, **place)


def load_bags(names: Sequence[str], options: StudyOptions) -> dict[str, Bags]:
    """Return the bags of image sets by name, in the size of the options."""
    design = choose_design(options)
    return {name: load_set(name, design, cache=options.cache).bags for name in names}


def write_curve_page(
    options: StudyOptions,
    study: str,
    arms: Mapping[str, Sequence[ImageArm]],
    sets: Mapping[str, Bags],
    *,
    title: str,
    shows: str,
    body: Callable[[Mapping[tuple[str, str], ImageCurve]], list[str]],
) -> None:
    """Train the missing curves of a study, and write its page; `body` draws the curves and returns the lines."""
    size = choose_design(options).name
    section = f"{study}, {size}"
    with Store(options.cache, "image-curves") as store:
        found = find_curves(arms, sets, store=store, options=options, section=section)
        write_page(
            options,
            study,
            title=title,
            shows=shows,
            seeds="0, 1, ... of weights and sampling, one a fold",
            seconds=store.wall_time(section),
            store=store,
            body=[*body(found), *curve_table(found), ""],
            made=[f"- Size: {size}"],
        )


def find_curves(
    arms: Mapping[str, Sequence[ImageArm]],
    sets: Mapping[str, Bags],
    *,
    store: Store,
    options: StudyOptions,
    section: str,
) -> dict[tuple[str, str], ImageCurve]:
    """Return the curves by set and label, after missing curves are computed.

    A curve has the rate with the highest mean validation AUROC at the end; a divergence counts as -1.
    """
    jobs = {(name, arm.label): _jobs(name, arm, sets[name], options) for name, own in arms.items() for arm in own}
    groups = [Group([job.trial], [job]) for own in jobs.values() for job in own]
    complete(groups, _train, store=store, options=options, section=section)
    return {name: _curve(own, store.find([job.trial for job in own])) for name, own in jobs.items()}


def _curve(jobs: Sequence[_CurveJob], done: Sequence[Row | None]) -> ImageCurve:
    found: dict[float, list[Row]] = {}
    for job, row in zip(jobs, done):
        if row is not None:
            found.setdefault(job.lr, []).append(row)
    ends = {lr: np.mean([_number(row["val"][-1], -1.0) for row in rows]) for lr, rows in found.items()}
    lr = max(ends, key=lambda rate: ends[rate])
    rows = found[lr]
    parts = {p: np.array([[_number(v, np.nan) for v in row[p]] for row in rows]) for p in ("train", *PARTS)}
    return ImageCurve(lr, np.array(rows[0]["epochs"]), np.array(rows[0]["instances"]), **parts)


def draw_curves(
    path: Path, curves: Mapping[str, Mapping[str, ImageCurve]], *, xlabel: str, order: Sequence[str]
) -> None:
    """Draw a row of panels for validation and one for test, with a panel for each title; x is epochs or instances."""
    figure = new_figure((3.1 * max(len(curves), 2) + 0.4, 5.9))
    grid = figure.subplots(2, len(curves), squeeze=False, sharey=True)
    for row, part in zip(grid, PARTS):
        for axes, (title, own) in zip(row, curves.items()):
            for name, curve in own.items():
                x = curve.epochs if xlabel == "Epoch" else curve.instances
                style = order.index(name)
                axes.plot(
                    x,
                    getattr(curve, part).mean(axis=0),
                    color=COLORS[style],
                    linestyle=DASHES[style],
                    marker=MARKERS[style],
                    markersize=3.5,
                    linewidth=1.5,
                    label=name,
                )
            axes.set_title(title if part == "val" else "", loc="left", fontweight="bold", fontsize=10)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
            axes.set_xlabel(xlabel if part == "test" else "")
        row[0].set_ylabel("Validation AUROC" if part == "val" else "Test AUROC")
    add_legend(figure, columns=min(len(order), 5))
    save_figure(figure, path)


def curve_table(curves: Mapping[tuple[str, str], ImageCurve]) -> list[str]:
    """Return a Markdown table: rate, and AUROC at the end and on the average of all points, for each set and arm."""
    rows = []
    for (name, arm), curve in curves.items():
        ends = [f"{getattr(curve, part)[:, -1].mean():.3f}" for part in ("train", *PARTS)]
        rows.append([f"{name}, {arm}", f"{curve.lr:g}", str(curve.instances[-1]), *ends, f"{curve.test.mean():.3f}"])
    head = ["set, curve", "lr", "patches encoded", "training", "validation", "test", "test, mean of all points"]
    return table(head, rows)


def _jobs(name: str, arm: ImageArm, bags: Bags, options: StudyOptions) -> list[_CurveJob]:
    cuda = options.use_cuda()
    splits = image_splits(bags, arm.recipe)
    return [_CurveJob(name, arm, lr, bags, split, cuda) for lr in arm.recipe.lrs for split in splits]


def _train(job: _CurveJob) -> list[Row]:
    started = time.perf_counter()
    recipe, labels, split = job.arm.recipe, job.bags.require_labels(), job.split
    epochs = score_epochs(recipe.epochs, recipe.score_every)
    with cpu_threads(1):
        found = train_scored(job.config, job.bags, split, score=split.score, epochs=epochs)
    drawn = min(2 * recipe.bags, len(split.train))
    size = float(np.minimum(job.bags.sizes[split.train], recipe.instances).mean())
    per_epoch = -(-len(split.train) // drawn) * drawn * size
    row: Row = {"seed": split.seed, "epochs": epochs, "instances": [round(epoch * per_epoch) for epoch in epochs]}
    lost: list[float | None] = [None] * (len(epochs) - len(found.epochs))
    row["train"] = [_rounded(found.train[epoch - 1]) for epoch in found.epochs] + lost
    count = len(split.val)
    for part, positions, scores in zip(PARTS, (split.val, split.test), np.split(found.scores, [count], axis=1)):
        areas = [_rounded(auroc(labels[positions], s)) if np.isfinite(s).all() else None for s in scores]
        row[part] = areas + lost
    return [{**row, "seconds": time.perf_counter() - started}]


def _rounded(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None


def _number(value: float | None, other: float) -> float:
    return other if value is None else value
