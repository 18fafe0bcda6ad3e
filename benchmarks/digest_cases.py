"""The runs that `digests.py` compares: their inputs, made from fixed seeds, and their command lines."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image

Commands = list[list[str]]

POOLINGS = ("attention", "gated-attention", "embedding-attention", "smoothed-max", "mean", "max")
POOLINGS += ("generalised-mean", "noisy-or", "noisy-and")
ESTIMATORS = ("vrsp", "minibatch", "exact", "exact-point")
OBJECTIVES = ("minmax-auc", "pairwise", "bce")
SMALL = ("--num-positive", "4", "--num-negative", "4", "--num-instances", "2")
# A command of this name is stopped as soon as its first epoch is done.
STOPPED = "stopped-fit"

_NETWORK = """from torch import nn

class Small(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.body = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Linear(width, 5), nn.LayerNorm(5))

    def forward(self, x):
        return self.body(self.stem(x))
"""


def make_inputs(folder: Path) -> None:
    """Write every input of `CASES` into a new folder; the same bytes each time."""
    folder.mkdir()
    (folder / "digest_network.py").write_text(_NETWORK)
    torch.save(_weights(), folder / "weights.pt")
    frame = _table(np.random.default_rng(0), bags=40)
    frame.drop(columns=["patient", "part", "x", "y", "site"]).to_csv(folder / "bags.csv", index=False)
    frame.to_csv(folder / "study.csv", index=False)
    frame.to_csv(folder / "study.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "study.parquet", index=False)
    other = _table(np.random.default_rng(1), bags=12)
    other.drop(columns=["patient", "part", "x", "y", "site"]).to_csv(folder / "other.csv", index=False)
    codes, ids = pd.factorize(frame["bag"])
    x = frame.filter(regex="^f").to_numpy(np.float32)
    np.savez(folder / "bags.npz", X=x, bag=codes, y=_labels(len(ids)), ids=np.asarray(ids, dtype=str))
    _write_patches(folder / "patches.npz")
    _write_slides(folder)
    _write_images(folder)
    _write_scans(folder)


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"stem.weight": (8, 6), "stem.bias": (8,), "body.2.weight": (5, 8), "body.2.bias": (5,)}
    shapes |= {"body.3.weight": (5,), "body.3.bias": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _labels(bags: int) -> NDArray[np.int64]:
    return np.arange(bags) % 2


def _table(rng: np.random.Generator, *, bags: int) -> pd.DataFrame:
    parts = []
    for bag in range(bags):
        n = int(rng.integers(3, 9))
        x = rng.normal(size=(n, 6))
        x[0] += 1.5 * (bag % 2)
        x[:, 4:] *= rng.random((n, 2)) < 0.4  # two features that pile up on zero
        part = pd.DataFrame(x.round(5), columns=[f"f{i}" for i in range(6)])
        split = ("train", "train", "train", "val", "test")[bag // 2 % 5]
        part.insert(0, "site", "here")
        for column, value in {"part": split, "patient": f"p{bag // 2}", "label": bag % 2, "bag": f"b{bag:02d}"}.items():
            part.insert(0, column, value)
        part[["x", "y"]] = rng.integers(0, 99, (n, 2))
        parts.append(part)
    return pd.concat(parts)


def _write_patches(path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(2, 5, 24)
    x = rng.integers(0, 256, (sizes.sum(), 3, 8, 8)).astype(np.uint8)
    x[np.cumsum(sizes)[1::2] - 1, :, 2:6, 2:6] = 255
    np.savez(path, X=x, bag=np.repeat(np.arange(24), sizes), y=_labels(24))


def _write_slides(folder: Path) -> None:
    rng = np.random.default_rng(3)
    for name in ("h5_files", "pt_files", "csv_files", "npy_files"):
        (folder / name).mkdir()
    lines = ["case_id,slide_id,label"]
    for slide in range(30):
        x = rng.normal(size=(int(rng.integers(4, 12)), 6)).astype(np.float32)
        x[0] += 2.0 * (slide % 2)
        name = f"s{slide:02d}"
        with h5py.File(folder / "h5_files" / f"{name}.h5", "w", track_order=False) as file:
            file.create_dataset("features", data=x, track_times=False)
            file.create_dataset("coords", data=rng.integers(0, 9999, (len(x), 2)), track_times=False)
        torch.save(torch.from_numpy(x), folder / "pt_files" / f"{name}.pt")
        np.savetxt(folder / "csv_files" / f"{name}.csv", x, delimiter=",", fmt="%.6f")
        np.save(folder / "npy_files" / f"{name}.npy", x)
        lines.append(f"c{slide % 24},{name},{'yes' if slide % 2 else 'no'}")
    (folder / "slides.csv").write_text("\n".join(lines) + "\n")


def _write_images(folder: Path) -> None:
    rng = np.random.default_rng(4)
    (folder / "images").mkdir()
    lines = ["file,label"]
    for image in range(20):
        pixels = rng.integers(0, 200, (18, 26, 3)).astype(np.uint8)
        pixels[:8, 8:16, 0] += np.uint8(50 * (image % 2))
        Image.fromarray(pixels).save(folder / "images" / f"i{image:02d}.png")
        lines.append(f"i{image:02d}.png,{image % 2}")
    (folder / "images.csv").write_text("\n".join(lines) + "\n")


def _write_scans(folder: Path) -> None:
    rng = np.random.default_rng(5)
    (folder / "scans").mkdir()
    lines = ["file,label"]
    for scan in range(16):
        voxels = rng.normal(size=(9, 10, 4)).astype(np.float32)
        voxels[2:5, 2:5, 1] += 2.0 * (scan % 2)
        image = nibabel.Nifti1Image(voxels, np.diag([-1.5, 1.0, 3.0, 1.0]))
        nibabel.save(image, folder / "scans" / f"v{scan:02d}.nii")
        lines.append(f"v{scan:02d}.nii,{scan % 2}")
    (folder / "scans.csv").write_text("\n".join(lines) + "\n")


def _fit(data: str, *options: str, epochs: int = 3, out: str = "run") -> list[str]:
    return ["fit", f"../inputs/{data}", "--epochs", str(epochs), *options, "--out", out]


def _grid() -> Iterator[tuple[str, Commands]]:
    # Every pooling with every estimator; one scorer and two in turn, objectives in turn.
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
_OWN = ("--encoder", "digest_network.Small", "--encoder-args", '{"width": 8}')
_ADAM = ("--optimizer", "adam", "--lr", "0.05")
# Options of `midam fit bags.csv`.
OPTIONS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "lag": ("--lag", "true"),
    "state-exact": ("--state-start", "exact", "--chunk-size", "7"),
    "state-refresh": ("--state-refresh", "2", "--pooling", "smoothed-max", "--temperature", "0.5"),
    "warmup": ("--state-schedule", "warmup", "--state-rate", "0.3"),
    "average": ("--average-from", "0.3", *_ADAM),
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
    "class-path": (*_OWN, "--freeze", "stem"),
    "class-path-weights": (*_OWN, "--encoder-weights", "../inputs/weights.pt", "--members", "2", "--lr", "0.01"),
    "class-path-frozen": (*_OWN, "--freeze", "*"),
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
    augment = ("--augment", "[flip,rotate90,crop,colour,intensity]")
    yield "augment", [_fit("patches.npz", *augment, *_DEEP, epochs=2)]
    yield "resnet20-members", [_fit("patches.npz", *SMALL, "--members", "2", "--checkpointing", "true", epochs=2)]
    batch = ("--norm", "batch", "--estimator", "minibatch", "--optimizer", "sgd")
    yield "batch-norm", [_fit("patches.npz", *batch, *_DEEP, epochs=2)]


_COMPARED = ("midam", "midam-att", "midam-smx", "dam-mb-smx", "ce-mean", "ce-max", "bag-statistics-logistic")
_COMPARED += ("bag-statistics-extratrees", "mi-kernel-svm", "instance-logistic-max")


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
    trials = ["--cv", "1x3", "--epochs", "3", "--lrs", "0.1,0.01", "--margins", "0.5,1.0"]
    trials += ["--jobs", "1", "--out", "trials"]
    yield "compare", [["compare", "../inputs/bags.csv", "--methods", ",".join(_COMPARED), *trials]]
    deep = ["--methods", "midam-att,rgb-logistic", "--cv", "1x2", "--epochs", "2", "--jobs", "1", "--lrs", "0.001"]
    yield "compare-images", [["compare", "../inputs/patches.npz", *deep, "--margins", "1.0", *SMALL, "--out", "trials"]]


CASES: dict[str, Commands] = {
    **dict(_grid()),
    **{name: [_fit("bags.csv", *options, *SMALL)] for name, options in OPTIONS.items()},
    **dict(_formats()),
    **dict(_images()),
    **dict(_commands()),
}
