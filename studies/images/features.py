"""`python -m studies table3-features`: the rows of Table 3 on the vectors of a pretrained network.

`python -m studies pretrained`: what the library does by default with such vectors, beside networks from random weights.
Its page says by a rule that was written before which images are embedded first by default.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from midam.compare.engine import Row
from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.data.store import is_store, open_store
from midam.embed.bags import embed_bags
from midam.embed.kinds import fitting_patch
from midam.embed.others import load_network
from midam.errors import DataNotFoundError
from midam.settings import Settings
from midam.settings.data import CutSettings
from midam.train.method_names import DEFAULT
from studies.engine import PACKED, Store, take_published
from studies.images.design import DESIGNS, EXACT, METHODS, Design, Recipe, limited
from studies.images.results import Key, Results, bounds, signed
from studies.images.sets import ImageSet, load_set
from studies.images.table3 import rest_of
from studies.images.table3_page import intervals, mean_sd
from studies.images.trials import Job, make_jobs, run_jobs
from studies.options import StudyOptions
from studies.page import duration, section, table, write_page
from studies.paper_tables import label, printed
from studies.registry import as_study

NAME, PRETRAINED = "table3-features", "pretrained"
NETWORK = "efficientnet-lite0"
STATISTICS = ("bag-statistics-extratrees", "bag-statistics-logistic")
# How the names of a set end whose trials are split as in the paper, choose nothing, or encode the images themselves.
PAPER, PLAIN, SCRATCH = "-paper", "-plain", "-scratch"
_MNIST = "mnist"
_NINE, _MNIST_BAGS, _MEAN_SIZE, _SIZE_SD = 9, 200, 10, 2
_POSITIVE = 1 / 3  # of positive MNIST bags

# One layer of 128 before the pooling: of the rows of whole bags the widest that two cores train in half an hour.
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
_RECIPES = {
    "breast": replace(_TRAINED, instances=16, less=tuple((method, 10) for method in EXACT)),
    "colon": replace(_TRAINED, epochs=12, score_every=4, less=tuple((method, 4) for method in EXACT)),
    "adrenal": replace(_TRAINED, epochs=10, score_every=5, less=tuple((method, 4) for method in EXACT)),
}
# Nothing is chosen, and there are no validation bags: these rows train on four folds, as those from random weights do.
# Folds of trainings with the defaults: colon is saturated, adrenal has one test, and small images differ widely.
_PLAIN_FOLDS = {"breast": 5, "colon": 2, "adrenal": 2, _MNIST: 5, _MNIST + SCRATCH: 2}
_PLAIN = Recipe((), (*STATISTICS, DEFAULT), epochs=Settings().training.epochs, instances=4)
FEATURES = Design(
    "features",
    {
        **_RECIPES,
        **{
            name + PAPER: replace(recipe, by_group=False, repeats=2 if name == "breast" else 1)
            for name, recipe in _RECIPES.items()
        },
    },
)
DEFAULTS = Design(
    "features",
    {
        **{name + PLAIN: replace(_PLAIN, folds=_PLAIN_FOLDS[name]) for name in (*_RECIPES, _MNIST)},
        _MNIST + SCRATCH: replace(_PLAIN, baselines=(DEFAULT,), folds=_PLAIN_FOLDS[_MNIST + SCRATCH]),
    },
)
_SEEDS = "repeats of the splits are seeded 0, 1, ...; trial (repeat r, fold f) has the seed 5 r + f"
RULE = (
    "The rule, written before the first run: a kind of images (photographs and tiles; volumes; small images) is "
    "embedded by default where, on each of its sets, the default on vectors has at least the mean test AUROC of the "
    "best row from random weights on the same test bags, folds by group; a tie goes to the vectors."
)
KINDS = {"photographs and tiles": ("breast", "colon"), "volumes": ("adrenal",), "small images": (_MNIST,)}


@as_study("the rows of Table 3 on vectors of a pretrained network", store="features")
def run(options: StudyOptions) -> None:
    """Run the rows of Table 3, and write their page."""
    design = smaller(FEATURES) if options.smaller or options.quick else FEATURES
    found = {name: load_features(name, design, cache=options.cache) for name in _RECIPES}
    study(options, found, design, scratch_results(options) if design is FEATURES else None)


@as_study("whether images are embedded by a pretrained network by default", store="features")
def run_default(options: StudyOptions) -> None:
    """Run the trainings with the defaults, and write their page."""
    design = smaller(DEFAULTS) if options.smaller or options.quick else DEFAULTS
    found = {name: load_features(name, design, cache=options.cache) for name in (*_RECIPES, _MNIST)}
    raw = limited(mnist_bags(), design)
    found[_MNIST + SCRATCH] = ImageSet(raw, raw)
    default_study(options, found, design, scratch_results(options) if design is DEFAULTS else None)


def smaller(design: Design) -> Design:
    """Make of each row a trial of seconds."""
    few = {"epochs": 1, "folds": 1, "search": 1.0, "lrs": (0.01,), "margins": (1.0,), "bags": 2, "less": ()}
    recipes = {
        name: replace(recipe, **few if recipe.methods else {"folds": 1, "epochs": 1}, repeats=1)
        for name, recipe in design.recipes.items()
    }
    return Design("features-quick", recipes, bags=10, instances=24)


def study(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design, scratch: Results | None = None) -> None:
    """Run the rows of Table 3 on these sets; `scratch` are published trials from random weights."""
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
            body=[*_rows(design, results, scratch), *intervals(design, results), *_settings(design), *_cost(results)],
        )


def default_study(
    options: StudyOptions, sets: Mapping[str, ImageSet], design: Design, scratch: Results | None = None
) -> None:
    """Run the trainings with the defaults on these sets; `scratch` are published trials from random weights."""
    with Store(options.cache, "features") as store:
        results = _run(options, sets, design, store=store, name=PRETRAINED)
        write_page(
            options,
            PRETRAINED,
            title="Images: pretrained by default?",
            shows="Test AUROC of trainings with all defaults on vectors of images, slices and digits, each of which "
            f"first passed once through a frozen network ({NETWORK}, ImageNet), beside networks that are trained from "
            "random weights. It decides which data `midam fit` embeds first.",
            seeds=_SEEDS,
            seconds=store.wall_time(PRETRAINED),
            store=store,
            body=[*default_section(results, scratch), *intervals(design, results), *_cost(results)],
        )


def _run(options: StudyOptions, sets: Mapping[str, ImageSet], design: Design, *, store: Store, name: str) -> Results:
    jobs = [
        job
        for key, recipe in design.recipes.items()
        for job in make_jobs(key, sets.get(key) or sets[key.partition("-")[0]], recipe)
    ]
    run_jobs(jobs, store=store, options=options, section=name)
    by: dict[Key, list[tuple[Job, Row]]] = defaultdict(list)
    for job, row in zip(jobs, store.find([job.trial for job in jobs]), strict=True):
        if row is not None:
            by[job.name, job.method].append((job, row))
    return Results({job.name: ImageSet(job.bags, job.bags) for job in jobs}, by)


def load_features(name: str, design: Design, *, cache: Path) -> ImageSet:
    """Vectors of a set, which is embedded once, into a store under `cache`."""
    place = cache / "sets" / f"{name}-{design.name}"
    if not is_store(place):
        network = load_network(NETWORK)
        patch = fitting_patch(name, CutSettings(), network) if catalog.is_name(name) else CutSettings().patch_size
        raw = mnist_bags() if name == _MNIST else catalog.load(name, images=CutSettings(patch_size=patch))
        place.parent.mkdir(parents=True, exist_ok=True)
        embed_bags(limited(raw, design), network, place)
    return with_means(open_store(place).replace(source=name))


def with_means(bags: Bags) -> ImageSet:
    """Bags of vectors, and the same bags of one vector each, their mean: what a network says of a whole image.

    Examples
    --------
    >>> with_means(Bags.from_list([[[1.0], [3.0]], [[5.0]]], [0, 1])).stacked.instances.tolist()
    [[2.0], [5.0]]
    """
    means = np.stack([np.asarray(bags[i], np.float32).mean(axis=0) for i in range(len(bags))])
    one = np.ones(len(bags), dtype=np.int64)
    alone = {"starts": np.arange(len(bags)), "sizes": one, "coords": None, "digests": None, "attributes": None}
    return ImageSet(bags, bags.replace(instances=means, **alone))


def mnist_bags() -> Bags:
    """200 bags of about ten digits of MNIST; a third hold a nine and are positive. No image is in two bags."""
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


def scratch_results(options: StudyOptions) -> Results:
    """Finished trials of Table 3 at its small size, from random weights: those of the cache, and published ones."""
    cache, published = options.cache, options.out / "trials" / f"images{PACKED}"
    if published.is_file():
        take_published(published, cache)
    by: dict[Key, list[tuple[Job, Row]]] = defaultdict(list)
    sets: dict[str, ImageSet] = {}
    with Store(cache, "images") as store:
        for design in (DESIGNS["small"], rest_of(DESIGNS["small"])):
            for name, recipe in design.recipes.items():
                sets[name] = sets[name] if name in sets else load_set(name, DESIGNS["small"], cache=cache)
                jobs = make_jobs(name, sets[name], replace(recipe, baselines=()))
                for job, row in zip(jobs, store.find([job.trial for job in jobs]), strict=True):
                    if row is not None:
                        by[name, job.method].append((job, row))
    return Results(sets, by)


def _rows(design: Design, results: Results, scratch: Results | None) -> list[str]:
    names = [name for name in design.recipes if name in _RECIPES]
    head = [
        f"{name}, {what}" for name in names for what in ("by group", "as the paper", "from random weights", "paper")
    ]
    lines = []
    for method in METHODS:
        cells = []
        for name in names:
            theirs = printed(name, method)
            cells += [mean_sd(results, name, method), mean_sd(results, name + PAPER, method)]
            cells.append("-" if scratch is None else mean_sd(scratch, name, method))
            cells.append("-" if theirs is None else f"{theirs[0]:.3f} ({theirs[1]:.3f})")
        lines.append([label(method), *cells])
    return section(
        "Rows of Table 3",
        "Mean (standard deviation) of the test AUROC over trials. 'By group': five folds, disjoint by tissue array or "
        "source tile; adrenal has its published test bags in all its columns but 'as the paper'. 'As the paper': a "
        "random tenth is the test, the rest five folds, twice on breast; groups then stand on both sides. 'From random "
        "weights': ours by group, see [Table 3](table3.md); 'paper': the paper's, from random weights. CE (3D) and DAM "
        "(3D) see one vector a bag, the mean of its vectors. CE (smx), DAM (smx), CE (att) and DAM (att) are not in "
        "the paper: whole bags, exactly.",
        table(["method", *head], lines),
    )


def default_section(results: Results, scratch: Results | None) -> list[str]:
    """What the library does by default, on vectors and from random weights."""
    lines, better = [], {}
    for name in (*_RECIPES, _MNIST):
        plain = name + PLAIN
        if scratch is None or not results.rows.get((plain, DEFAULT)):
            return []
        if name == _MNIST:
            other, theirs, known = DEFAULT, results, _MNIST + SCRATCH
        else:
            tried = [method for method in METHODS if scratch.rows.get((name, method))]
            other, theirs, known = max(tried, key=lambda method: scratch.mean(name, method)), scratch, name
        both = _of_shared_folds(results, plain, theirs.rows.get((known, other), []))
        found = both.compare(plain, "a", "b")
        if found is None:
            continue
        ours, before = both.mean(plain, "a"), both.mean(plain, "b")
        better[name] = ours >= before
        rows = both.rows[plain, "a"], both.rows[plain, "b"]
        seconds = [duration(float(np.mean([row["seconds"] for _, row in own]))) for own in rows]
        statistics = [f"{results.mean(plain, method):.3f}" for method in STATISTICS]
        cells = [f"{ours:.3f}", f"{before:.3f} ({'the default' if other == DEFAULT else label(other)})", signed(found)]
        lines.append([name, str(found.trials), *cells, bounds(found.corrected), *statistics, *seconds])
    head = [
        "set",
        "folds of both",
        "default on vectors",
        "best row from random weights",
        "difference [95% by group]",
        "corrected 95%",
    ]
    head += ["trees", "logistic", "seconds a training, vectors", "random weights"]
    verdicts = [
        f"- {kind}: {'**embedded first**' if all(better[name] for name in names) else '**from random weights**'}"
        for kind, names in KINDS.items()
        if set(names) <= set(better)
    ]
    text = (
        "Vectors, then training with all defaults (three scorers, 100 epochs), on four folds by group, against the "
        "best of the rows from random weights ([Table 3](table3.md): one scorer, fewer epochs), picked on the test "
        "bags, for them; of MNIST bags against all defaults on the images themselves. 'Trees', 'logistic': on the "
        "statistics of the vectors of a bag. "
    )
    return section("What is the default", text + RULE, table(head, lines), verdicts)


def _of_shared_folds(results: Results, name: str, others: Sequence[tuple[Job, Row]]) -> Results:
    """Trials of the default of a set, "a", and others, "b", on the folds that both have."""
    mine = results.rows[name, DEFAULT]
    folds = [{(job.split.split, job.split.fold) for job, _ in rows} for rows in (mine, others)]
    kept = [
        [(job, row) for job, row in rows if (job.split.split, job.split.fold) in folds[0] & folds[1]]
        for rows in (mine, others)
    ]
    return Results({name: results.sets[name]}, {(name, "a"): kept[0], (name, "b"): kept[1]})


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
