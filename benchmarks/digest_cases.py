"""The runs that `digests.py` compares, as command lines on the files of `digest_inputs`."""

import itertools
from collections.abc import Iterator

Commands = list[list[str]]

POOLINGS = ("attention", "gated-attention", "embedding-attention", "smoothed-max", "mean", "max")
POOLINGS += ("generalised-mean", "noisy-or", "noisy-and")
ESTIMATORS = ("vrsp", "minibatch", "exact", "exact-point")
OBJECTIVES = ("minmax-auc", "pairwise", "bce")
SMALL = ("--num-positive", "4", "--num-negative", "4", "--num-instances", "2")
# A command with this name is stopped after its first epoch.
STOPPED = "stopped-fit"


def _fit(data: str, *options: str, epochs: int = 3, out: str = "run") -> list[str]:
    return ["fit", f"../inputs/{data}", "--epochs", str(epochs), *options, "--out", out]


def _grid() -> Iterator[tuple[str, Commands]]:
    # Every pooling with every estimator, alternately with one scorer and with two, and with each objective in turn.
    for i, (pooling, estimator) in enumerate(itertools.product(POOLINGS, ESTIMATORS)):
        if pooling == "max" and estimator not in ("minibatch", "exact"):
            continue  # refused
        objective, members = OBJECTIVES[(i + i // 4) % 3], str(1 + (i // 4 + i) % 2)
        method = ("--pooling", pooling, "--estimator", estimator, "--objective", objective, "--members", members)
        yield f"{pooling}-{estimator}", [_fit("bags.csv", *method, *SMALL)]
    for objective, members in itertools.product(OBJECTIVES, ("1", "3")):
        options = ("--objective", objective, "--members", members, "--pooling", "embedding-attention")
        yield f"{objective}-{members}", [_fit("bags.csv", *options, *SMALL)]


_DEEP = (*SMALL, "--members", "1")
_H5 = ("--labels", "../inputs/slides.csv", "--positive", "yes", *SMALL)
_STUDY = ("--groups", "patient", "--coords", "[x,y]", "--ignore", "[site]")
_OWN = ("--plugin", "digest_network", "--encoder", "digest-small", "--encoder-args", '{"width": 8}')
_ADAM = ("--optimizer", "adam", "--lr", "0.05")
# Options of `midam fit bags.csv`.
OPTIONS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "printed": ("--estimator", "vrsp-printed", "--estimator-args", '{"lag": true}'),
    "best": ("--select", "best", *_ADAM),
    "patience": ("--select", "best", "--patience", "1", "--members", "1", *_ADAM),
    "objective-args": ("--objective-weight", "pairwise", "--margin", "0.5", "--dual-lr", "0.3"),
    "dual-real": ("--dual-domain", "real", "--members", "1"),
    "optimizer": ("--momentum", "0.9", "--weight-decay", "0.01", "--lr", "0.1", "--decay-at", "[0.3]"),
    "hidden-dropout": ("--hidden", "[8,5]", "--dropout", "0.3"),
    "dropout-one": ("--dropout", "0.3", "--members", "1", "--seed", "3"),
    "scaling-linear": ("--scaling", "linear", "--clip", "2"),
    "scaling-blend": ("--scaling", "blend"),
    "raw": ("--standardize", "false", "--center-start", "0.5"),
    "val-every": ("--val-every", "2", "--val-fraction", "0.3", "--test-fraction", "0.1"),
    "pooling-args": ("--pooling", "generalised-mean", "--pooling-args", '{"exponent": 2.0}'),
    "workers-0": ("--workers", "0", "--resident", "false"),
    "workers-2": ("--workers", "2", "--resident", "false"),
    "checkpointing": ("--checkpointing", "true", "--hidden", "[8]"),
    "plug-in": (*_OWN, "--freeze", "stem"),
    "plug-in-weights": (*_OWN, "--encoder-weights", "../inputs/weights.pt", "--members", "2", "--lr", "0.01"),
    "plug-in-frozen": (*_OWN, "--freeze", "*"),
}


def _formats() -> Iterator[tuple[str, Commands]]:
    yield "digits", [["fit", "digits", "--epochs", "2", "--members", "2", "--out", "run"]]
    for suffix in ("csv", "tsv", "parquet"):
        yield f"study-{suffix}", [_fit(f"study.{suffix}", *_STUDY, "--split", "part", *SMALL)]
    yield "study-groups", [_fit("study.csv", *_STUDY, "--ignore", "[site,part]", *SMALL)]
    yield "npz", [_fit("bags.npz", *SMALL)]
    for name in ("h5_files", "pt_files", "csv_files", "npy_files"):
        yield name, [_fit(name, *_H5)]
    yield "h5-patients", [_fit("h5_files", *_H5, "--bag-by", "patient", "--workers", "2")]
    for reads in ("mmap", "pread"):
        imported = ["data", "import", "../inputs/bags.npz", "--out", "bags.store"]
        yield f"store-{reads}", [imported, ["fit", "bags.store", "--epochs", "3", "--reads", reads, "--out", "run"]]
    images = ("--labels", "../inputs/images.csv", "--patch-size", "8", *_DEEP)
    yield "images", [_fit("images", *images, epochs=2), ["explain", "run", "../inputs/images", "--out", "why"]]
    slices = ("--labels", "../inputs/scans.csv", "--slice-size", "8", *_DEEP)
    cut = _fit("scans", *slices, "--spacing", "1.2", epochs=2)
    yield "slices", [cut, ["explain", "run", "../inputs/scans", "--out", "why"]]
    volume = ("--labels", "../inputs/scans.csv", "--volume", "true", "--volume-size", "[4,8,8]", "--window", "[-2,2]")
    yield "volumes", [_fit("scans", *volume, *_DEEP, epochs=2)]


def _images() -> Iterator[tuple[str, Commands]]:
    for estimator in ESTIMATORS:
        options = ("--estimator", estimator, "--chunk-size", "20", *_DEEP)
        yield f"resnet20-{estimator}", [_fit("patches.npz", *options, epochs=2)]
    yield "resnet20-members", [_fit("patches.npz", *SMALL, "--members", "2", "--checkpointing", "true", epochs=2)]
    batch = ("--norm", "batch", "--estimator", "minibatch", "--optimizer", "sgd")
    yield "batch-norm", [_fit("patches.npz", *batch, *_DEEP, epochs=2)]


_COMPARED = ("midam", "midam-att", "midam-smx", "dam-mb-smx", "ce-mean", "ce-max", "bag-statistics-logistic")
_COMPARED += ("bag-statistics-extratrees", "mean-map-svm")
_AT_ONCE = ("bag-statistics-logistic", "mean-map-svm")


def _commands() -> Iterator[tuple[str, Commands]]:
    yield "resume", [[STOPPED, *_fit("bags.csv", epochs=120)[1:]], ["fit", "--resume", "run"]]
    applied = [
        ["predict", "run", "../inputs/other.csv", "--out", "scores.csv", "--instances", "instances"],
        ["evaluate", "run", "../inputs/other.csv", "--out", "other.json"],
        ["evaluate", "run", "../inputs/bags.csv", "--out", "own.json"],
        ["explain", "run", "../inputs/other.csv", "--bags", "b01", "b02", "--out", "why"],
    ]
    yield "apply", [_fit("bags.csv", "--pooling", "smoothed-max"), *applied]
    single = (*_H5, "--members", "1", "--pooling", "gated-attention")
    yield "apply-h5", [_fit("h5_files", *single), ["explain", "run", "../inputs/h5_files", "--out", "why"]]
    pictures = ("--labels", "../inputs/images.csv", "--patch-size", "8")
    slides = ["data", "import", "../inputs/h5_files", *_H5[:4], "--out", "h5.store", "--jobs", "2"]
    pictures = ["data", "import", "../inputs/images", "--labels", "../inputs/images.csv", "--patch-size", "8"]
    rows = ["data", "import", "../inputs/study.csv", *_STUDY, "--split", "part", "--out", "study.store"]
    yield "import", [slides, [*pictures, "--out", "images.store"], rows]
    labels = {name: ["--labels", f"../inputs/{name}.csv"] for name in ("scans", "series", "pyramids", "slides")}
    for name, options in {
        "scans": ["--axis", "0", "--spacing", "1.3", "--slice-size", "8"],
        "series": ["--window", "[0,500]"],
        "pyramids": ["--patch-size", "32", "--stride", "48", "--magnification", "10", "--tissue", "0.3"],
    }.items():
        yield f"import-{name}", [["data", "import", f"../inputs/{name}", *labels[name], *options, "--out", "out.store"]]
    zarr = ["data", "import", "../inputs/zarr_files", *labels["slides"], "--positive", "yes"]
    yield "import-zarr", [[*zarr, "--out", "out.store"]]
    trials = ["--cv", "1x3", "--epochs", "3", "--lrs", "0.1,0.01", "--margins", "0.5,1.0"]
    trials += ["--jobs", "1", "--out", "trials"]
    yield "compare", [["compare", "../inputs/bags.csv", "--methods", ",".join(_COMPARED), *trials]]
    listed = ",".join((*_AT_ONCE[::-1], "midam-att", "auto"))
    yield "compare-at-once", [["compare", "../inputs/bags.csv", "--methods", listed, *trials]]
    for name in (*_AT_ONCE, "auto"):
        held_out = ["fit", "../inputs/bags.csv", "--method", name, "--folds", "0", "--out", "held-out"]
        yield f"method-{name}", [["fit", "../inputs/bags.csv", "--method", name, "--out", "run"], held_out]
    yield "method-shorthand", [["fit", "../inputs/bags.csv", "--method", "ce-mb-mean", "--folds", "0", "--out", "run"]]
    deep = ["--methods", "midam-att,rgb-logistic", "--cv", "1x2", "--epochs", "2", "--jobs", "1", "--lrs", "0.001"]
    yield "compare-images", [["compare", "../inputs/patches.npz", *deep, "--margins", "1.0", *SMALL, "--out", "trials"]]


CASES: dict[str, Commands] = {
    **dict(_grid()),
    **{name: [_fit("bags.csv", *options, *SMALL)] for name, options in OPTIONS.items()},
    **dict(_formats()),
    **dict(_images()),
    **dict(_commands()),
}
