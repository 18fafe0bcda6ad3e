"""`python -m studies table3-statistics`: only color, texture and size, on the bags of Table 3 at its small size."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from midam.methods.store import Row
from studies.engine import Store
from studies.images.design import COLOR_BASELINES, DESIGNS, SMALLER, VOXEL_BASELINES, Design
from studies.images.results import Key, Results, bounds, resolved, signed
from studies.images.sets import ImageSet, load_set
from studies.images.trials import Job, make_jobs, run_jobs
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study

NAME = "table3-statistics"
TEXTURE = "patch-statistics-extratrees"


@as_study("bag statistics of images on the test bags of Table 3", store="images")
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    design = statistics_of(SMALLER if options.smaller else DESIGNS["small"])
    study(options, {name: load_set(name, design, cache=options.cache) for name in design.recipes}, design)


def statistics_of(design: Design) -> Design:
    """Return a design with only bag statistics.

    Examples
    --------
    >>> statistics_of(DESIGNS["small"]).recipes["adrenal"].baselines
    ('voxel-logistic', 'patch-statistics-extratrees')
    """
    plain = {name: VOXEL_BASELINES if name == "adrenal" else COLOR_BASELINES for name in design.recipes}
    recipes = {
        name: replace(recipe, methods=(), baselines=(*plain[name], TEXTURE), less=())
        for name, recipe in design.recipes.items()
    }
    return replace(design, recipes=recipes)


def study(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design) -> None:
    """Run the study on these sets."""
    jobs = [job for name, found in sets.items() for job in make_jobs(name, found, design.recipes[name])]
    with Store(options.cache, "images") as store:
        run_jobs(jobs, store=store, options=options, section=NAME)
        by: dict[Key, list[tuple[Job, Row]]] = defaultdict(list)
        for job, row in zip(jobs, store.find([job.trial for job in jobs]), strict=True):
            if row is not None:
                by[job.name, job.method].append((job, row))
        results = Results(sets, by)
        write_page(
            options,
            NAME,
            title="Images: what color, texture and size alone reach",
            shows="Test AUROC of trees and linear models on bag statistics of images and volumes, on the test bags and "
            "training bags of [Table 3](table3.md) at its small size: there stands what networks reach on them. "
            f"`{TEXTURE}` sees color and texture of each patch or slice ([which](../docs/images.md)), the mean, "
            "minimum, maximum and deviation of these over the bag; `rgb-logistic` and `rgb-trees` the mean and "
            "deviation of each color over the image, `voxel-logistic` the number of voxels of a volume. Nothing is "
            "chosen.",
            seeds="the repeat of the folds has the seed 0, trial f of a set the seed f",
            seconds=store.wall_time(NAME),
            store=store,
            body=[*_means(design, results), *_differences(design, results)],
        )


def _means(design: Design, results: Results) -> list[str]:
    lines = []
    for name, recipe in design.recipes.items():
        for method in recipe.baselines:
            found = results.compare(name, method)
            if found is not None:
                lines.append([f"{name}, {method}", str(found.trials), str(found.groups), str(found.grouped)])
    return section(
        "Means",
        "Folds are disjoint by group; adrenal has its published test bags. The interval is a bootstrap of the groups "
        "of the test bags: patients, source tiles, tissue arrays.",
        table(["set, method", "trials", "groups tested", "mean [95% by group]"], lines),
    )


def _differences(design: Design, results: Results) -> list[str]:
    lines = []
    for name, recipe in design.recipes.items():
        for other in recipe.baselines[:-1]:
            found = results.compare(name, TEXTURE, other)
            if found is not None:
                lines.append([f"{name}, minus {other}", signed(found), bounds(found.corrected), resolved(found)])
    return section(
        "What texture adds",
        f"`{TEXTURE}` minus the others on the same bags. 'Corrected': Nadeau and Bengio's corrected t over folds, '-' "
        "with one. 'Resolved': whether the interval by group excludes 0.",
        table(["set, difference", "mean [95% by group]", "corrected 95%", "resolved"], lines),
    )
