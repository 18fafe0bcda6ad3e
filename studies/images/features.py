"""`python -m studies table3-features`: the rows of Table 3 on the vectors of a pretrained network.

`python -m studies pretrained`: the library's default with such vectors, compared with networks from random weights. By
a rule that was written before the run, its page says which images are embedded first by default.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.store import is_store, open_store
from midam.errors import DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.imaging.embedding import embed_bags
from midam.imaging.networks import load_network
from midam.imaging.pixels import fitting_patch
from midam.methods.names import DEFAULT
from midam.methods.store import Row
from midam.settings import Settings
from midam.settings.data import CutSettings
from studies.engine import PACKED, Store, take_published
from studies.images.design import EXACT, METHODS, Design, Recipe, limited
from studies.images.results import Key, Results
from studies.images.sets import ImageSet
from studies.images.table3_page import differences, intervals, mean_sd
from studies.images.trials import Job, make_jobs, run_jobs
from studies.options import OUT, StudyOptions
from studies.page import duration, section, table, write_page
from studies.paper_tables import label, printed
from studies.registry import as_study
from studies.sets import catalog

NAME, PRETRAINED = "table3-features", "pretrained"
NETWORK = "efficientnet-lite0"
STATISTICS = ("bag-statistics-extratrees", "bag-statistics-logistic")
AUTO = "auto"  # the default of `midam fit` on vectors
# Suffixes of the names of sets: trials with the paper's splits, and trials without a choice.
PAPER, PLAIN = "-paper", "-plain"
_MNIST = "mnist"
_NEIGHBORS = "adrenal-neighbors" + PLAIN  # slices with the slices below and above as colors
_NINE, _MNIST_BAGS, _MEAN_SIZE, _SIZE_SD = 9, 200, 10, 2
_POSITIVE = 1 / 3  # share of positive MNIST bags

# One layer of 128 before the pooling: the widest with which two cores train the rows of whole bags in half an hour.
_TRAINED = Recipe(
    METHODS,
    (),
    epochs=50,
    instances=4,
    lrs=(0.1, 0.01, 0.001),
    margins=(1.0, 0.1),
    search=0.1,
    score_every=10,
    standardized=True,
    others=(("encoder", "mlp"), ("hidden", [128]), ("precision", "32-true")),
)
_OF_PAPER = tuple(method for method in METHODS if method not in EXACT)
_RECIPES = {
    "breast": replace(_TRAINED, instances=16, less=tuple((method, 10) for method in EXACT)),
    "colon": replace(_TRAINED, epochs=12, score_every=4, less=tuple((method, 4) for method in EXACT)),
    "adrenal": replace(_TRAINED, methods=_OF_PAPER, epochs=10, score_every=5),
}
# Sets of the paper that are not public: a user with their files in the folder of the catalog gets their rows too.
_PRIVATE = dict.fromkeys(("pdgm", "oct"), _RECIPES["adrenal"])
# Nothing is chosen, so there are no validation bags: these rows train on four folds, like rows from random weights.
# Folds of trainings with the defaults: colon is saturated, adrenal has one test, and small images vary much.
_PLAIN_FOLDS = {"breast": 5, "colon": 2, "adrenal": 2, _MNIST: 5}
_PLAIN = Recipe((), (*STATISTICS, DEFAULT, AUTO), epochs=Settings().training.epochs, instances=4)
FEATURES = Design(
    "features",
    {
        **_RECIPES,
        **{
            name + PAPER: replace(recipe, methods=_OF_PAPER, by_group=False, repeats=2 if name == "breast" else 1)
            for name, recipe in _RECIPES.items()
        },
        **_PRIVATE,
        **{name + PAPER: replace(recipe, methods=_OF_PAPER, by_group=False) for name, recipe in _PRIVATE.items()},
    },
)
DEFAULTS = Design(
    "features",
    {
        **{name + PLAIN: replace(_PLAIN, folds=_PLAIN_FOLDS[name]) for name in (*_RECIPES, _MNIST)},
        _NEIGHBORS: replace(_PLAIN, baselines=STATISTICS, folds=2),
    },
)
_SEEDS = "repeats of the splits are seeded 0, 1, ...; trial (repeat r, fold f) has the seed 5 r + f"
RULE = (
    "Written before the first run: a kind of images (photographs and tiles: breast, colon; volumes: adrenal; small "
    "images: MNIST bags) is embedded by default where, on each of its sets, the default on vectors has at least the "
    "mean test AUROC of the best row from random weights, folds by group; a tie goes to the vectors. Those rows are in "
    "[Table 3](table3.md), on the same folds and, of colon, on three more; nothing is paired with them. No network "
    "from random weights was run on MNIST bags: small images stay with one, as before. Training has all defaults, on "
    "four folds of five. When the rule was written, the default on vectors was `midam` (three scorers, 100 epochs), "
    "and volumes stayed with random weights. Since then it is `auto`; the rule is now applied to the rows of `auto`, "
    "which were added before any of them was run."
)


@as_study("the rows of Table 3 on vectors of a pretrained network", store="features")
def run(options: StudyOptions) -> None:
    """Run the rows of Table 3, and write their page."""
    design = smaller(FEATURES) if options.smaller or options.quick else FEATURES
    found = {name: load_features(name, design, cache=options.cache) for name in _RECIPES}
    for name in _PRIVATE:
        with suppress(DataNotFoundError):
            found[name] = load_features(name, design, cache=options.cache)
    there = {name: recipe for name, recipe in design.recipes.items() if name.removesuffix(PAPER) in found}
    study(options, found, replace(design, recipes=there))


@as_study("whether images are embedded by a pretrained network by default", store="features")
def run_default(options: StudyOptions) -> None:
    """Run the trainings with the defaults, and write their page."""
    design = smaller(DEFAULTS) if options.smaller or options.quick else DEFAULTS
    found = {name: load_features(name, design, cache=options.cache) for name in (*_RECIPES, _MNIST, _NEIGHBORS)}
    default_study(options, found, design)


def smaller(design: Design) -> Design:
    """Return recipes with a test of seconds for each row."""
    few = {"epochs": 1, "folds": 1, "search": 1.0, "lrs": (0.01,), "margins": (1.0,), "bags": 2, "less": ()}
    recipes = {
        name: replace(recipe, **few if recipe.methods else {"folds": 1, "epochs": 1}, repeats=1)
        for name, recipe in design.recipes.items()
    }
    return Design("features-quick", recipes, bags=10, instances=24)


def study(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design) -> None:
    """Run the rows of Table 3 on these sets."""
    with Store(options.cache, "features") as store:
        results = _run(options, sets, design, store=store, name=NAME)
        write_page(
            options,
            NAME,
            title="Table 3 on vectors of a pretrained network",
            shows="Test AUROC of the rows of the paper's Table 3 where each image or slice first passes once through "
            f"a frozen network ({NETWORK}, ImageNet), and what is trained sees its vectors: of breast a vector for "
            "each 32 x 32 pixels of the whole image (672), of colon 49, of adrenal one a slice. Beside them the rows "
            "that train ResNet20 from random weights ([Table 3](table3.md)).",
            seeds=_SEEDS,
            seconds=store.wall_time(NAME),
            store=store,
            body=[
                *_rows(design, results),
                *differences(design, results),
                *intervals(design, results),
                *_settings(design),
                *_cost(results),
            ],
        )


def default_study(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design) -> None:
    """Run the trainings with the defaults on these sets."""
    with Store(options.cache, "features") as store:
        results = _run(options, sets, design, store=store, name=PRETRAINED)
        write_page(
            options,
            PRETRAINED,
            title="Images: pretrained by default?",
            shows="Test AUROC of trainings with all defaults on vectors of images, slices and digits, each of which "
            f"first passed once through a frozen network ({NETWORK}, ImageNet), beside networks that are trained from "
            "random weights. It decides which data `midam fit` embeds first. adrenal-neighbors: each slice with the "
            "one before and the one behind it as the three colors, by methods that are fitted in one step.",
            seeds=_SEEDS,
            seconds=store.wall_time(PRETRAINED),
            store=store,
            body=[*section("The rule", RULE), *intervals(design, results), *_cost(results)],
        )


def frozen_areas(options: StudyOptions) -> dict[str, dict[str, dict[str, NDArray[np.float64]]]]:
    """Return the test AUROC for each fold of the trainings with all defaults, by kind, set and method."""
    take_published(OUT / "trials" / f"features{PACKED}", options.cache)
    kinds = {"photographs and tiles": ("breast", "colon"), "volumes": ("adrenal",)}
    recipes = {name + PLAIN: DEFAULTS.recipes[name + PLAIN] for names in kinds.values() for name in names}
    design = replace(DEFAULTS, recipes=recipes)
    sets = {name: load_features(name, design, cache=options.cache) for names in kinds.values() for name in names}
    with Store(options.cache, "features") as store:
        results = _run(options, sets, design, store=store, name=PRETRAINED)
    found: dict[str, dict[str, dict[str, NDArray[np.float64]]]] = {}
    for kind, names in kinds.items():
        found[kind] = {}
        for name in names:
            labels = sets[name].bags.require_labels()
            trials = {method: results.tested(name + PLAIN, method, epoch="last") for method in _PLAIN.baselines}
            found[kind][f"{name}, vectors"] = {
                method: np.array([auroc(labels[own[fold].test], own[fold].scores) for fold in sorted(own)])
                for method, own in trials.items()
            }
    return found


def _run(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design, *, store: Store, name: str) -> Results:
    jobs = [
        job
        for key, recipe in design.recipes.items()
        for job in make_jobs(key, sets.get(key) or sets[key.partition("-")[0]], recipe)
    ]
    jobs.sort(key=lambda job: job.method in EXACT)  # the longest comes last
    run_jobs(jobs, store=store, options=options, section=name)
    by: dict[Key, list[tuple[Job, Row]]] = defaultdict(list)
    for job, row in zip(jobs, store.find([job.trial for job in jobs]), strict=True):
        if row is not None:
            by[job.name, job.method].append((job, row))
    return Results({job.name: ImageSet(job.bags, job.bags) for job in jobs}, by)


def load_features(name: str, design: Design, *, cache: Path) -> ImageSet:
    """Return the vectors of a set, which is embedded once, into a store under `cache`."""
    place = cache / "sets" / f"{name}-{design.name}"
    if not is_store(place):
        network = load_network(NETWORK)
        base = name.partition("-")[0]
        patch = fitting_patch(base, CutSettings(), network) if catalog.is_name(base) else CutSettings().patch_size
        raw = mnist_bags() if name == _MNIST else catalog.load(base, images=CutSettings(patch_size=patch))
        place.parent.mkdir(parents=True, exist_ok=True)
        embed_bags(limited(with_neighbors(raw) if name == _NEIGHBORS else raw, design), network, place)
    return with_means(open_store(place).replace(source=name))


def with_means(bags: Bags) -> ImageSet:
    """Return bags of vectors, and the same bags with only their mean vector, as a network describes a whole image.

    Examples
    --------
    >>> with_means(Bags.from_list([[[1.0], [3.0]], [[5.0]]], [0, 1])).stacked.instances.tolist()
    [[2.0], [5.0]]
    """
    means = np.stack([np.asarray(bags[i], np.float32).mean(axis=0) for i in range(len(bags))])
    one = np.ones(len(bags), dtype=np.int64)
    alone = {"starts": np.arange(len(bags)), "sizes": one, "coords": None, "digests": None, "attributes": None}
    return ImageSet(bags, bags.replace(instances=means, **alone))


def with_neighbors(bags: Bags) -> Bags:
    """Return slices [1, H, W] as images of three colors: previous slice, slice, next slice; at an end the slice itself.

    Examples
    --------
    >>> with_neighbors(Bags.from_list([[[[[1]]], [[[2]]]], [[[[3]]]]])).instances.flatten().tolist()
    [1, 1, 2, 1, 2, 2, 3, 3, 3]
    """
    at = np.arange(len(bags.instances))
    before, behind = at - 1, at + 1
    before[bags.starts], behind[bags.starts + bags.sizes - 1] = bags.starts, bags.starts + bags.sizes - 1
    stored = np.asarray(bags.instances)
    return bags.replace(instances=np.concatenate([stored[before], stored, stored[behind]], axis=1), digests=None)


def mnist_bags() -> Bags:
    """Return 200 bags of about ten MNIST digits; a third has a nine and is positive. No image is in two bags."""
    path = Path(os.environ.get("MIDAM_DATA", ".")) / "digits" / "mnist_20k.npz"
    if not path.is_file():
        raise DataNotFoundError(f"Expected MNIST, got no file (at {path}); set MIDAM_DATA to the folder that holds it.")
    with np.load(path) as file:
        images = np.concatenate([file["x_train"], file["x_test"]])
        digits = np.concatenate([file["y_train"], file["y_test"]])
    rng = np.random.default_rng(0)
    nines, others = (rng.permutation(np.flatnonzero(own)).tolist() for own in (digits == _NINE, digits != _NINE))
    arrays = []
    labels = [int(number < _POSITIVE * _MNIST_BAGS) for number in range(_MNIST_BAGS)]
    for positive in labels:
        size = max(2, round(rng.normal(_MEAN_SIZE, _SIZE_SD)))
        rows = [nines.pop() for _ in range(positive)] + [others.pop() for _ in range(size - positive)]
        arrays.append(images[rng.permutation(rows)][:, None])
    return Bags.from_list(arrays, labels)


def _rows(design: Design, results: Results) -> list[str]:
    names = [name for name in design.recipes if name in (*_RECIPES, *_PRIVATE)]
    head = [f"{name}, {what}" for name in names for what in ("by group", "as the paper", "paper")]
    lines = []
    for method in METHODS:
        cells = []
        for name in names:
            theirs = printed(name, method)
            cells += [mean_sd(results, name, method), mean_sd(results, name + PAPER, method)]
            cells.append("-" if theirs is None else f"{theirs[0]:.3f} ({theirs[1]:.3f})")
        lines.append([label(method), *cells])
    return section(
        "Rows of Table 3",
        "Mean (standard deviation) of the test AUROC over trials. 'By group': five folds, disjoint by tissue array or "
        "source tile; adrenal has its published test bags in all its columns but 'as the paper'. 'As the paper': a "
        "random tenth is the test, the rest five folds, twice on breast; groups then stand on both sides. 'Paper': "
        "the paper's, from random weights; ours by group are in [Table 3](table3.md). CE (3D) and DAM "
        "(3D) see one vector a bag, the mean of its vectors. CE (smx), DAM (smx), CE (att) and DAM (att) are not in "
        "the paper: whole bags, exactly, on breast and colon by group.",
        table(["method", *head], lines),
    )


def _settings(design: Design) -> list[str]:
    lines = []
    for name, recipe in design.recipes.items():
        if recipe.methods:
            fewer = f"; whole bags {recipe.epochs_of(EXACT[0])}" if recipe.less else ""
            chosen = ", ".join(f"{lr:g}" for lr in recipe.lrs), ", ".join(f"{margin:g}" for margin in recipe.margins)
            batch = f"{recipe.bags} + {recipe.bags}, {recipe.instances}"
            lines.append([name, f"{recipe.repeats} x {recipe.folds}", batch, f"{recipe.epochs}{fewer}", *chosen])
    head = ["set", "repeats x folds", "bags a batch, B", "epochs", "learning rates", "margins"]
    return section(
        "What was run",
        "One layer of 128 on the vectors, which are standardized by those of the training bags; otherwise the settings "
        "of [Table 3](table3.md). Chosen in each trial by the validation AUROC of trainings of a tenth of the epochs: "
        "the learning rate at the first margin, then the margin; the reported epoch is the one with the best "
        "validation AUROC. Test bags choose nothing.",
        table(head, lines),
    )


def _cost(results: Results) -> list[str]:
    taken = {key: sum(row["seconds"] for _, row in rows) for key, rows in results.rows.items()}
    lines = [[", ".join(key), str(len(results.rows[key])), duration(seconds)] for key, seconds in taken.items()]
    return section(
        "Cost",
        f"Time of one process, without the vectors themselves; in all {duration(sum(taken.values()))}.",
        table(["set, method", "trials", "time"], lines),
    )
