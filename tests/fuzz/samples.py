"""Sound inputs of every format that midam reads, small and real: written by the libraries that users have."""

import contextlib
import gzip
import io
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
import zarr
from PIL import Image
from safetensors.torch import save_file
from tests.fuzz.reading import try_candidates
from tests.integration.commands import stop_at, table
from tests.unit.test_sources_slides import scene, write_pyramid
from tests.unit.test_sources_volumes import body, save_nifti, save_series

import midam.data.store.write
import midam.explain.run
import midam.runs.kept_scores
from midam.cli import main
from midam.data.sources import read_bags
from midam.data.store import write_store
from midam.nn.encoders.mlp import MLP

LABELS = "bag,label\na,0\nb,1\n"
COMPARE = [*("--methods", "mean-map-svm,bag-statistics-logistic", "--cv", "1x2", "--jobs", "1")]


@dataclass(frozen=True)
class Sample:
    """A sound input of one format.

    `make` writes it into a folder. `targets` are the patterns of the files that are damaged; `summed` those under a
    checksum, of which no change may pass; `text` those without one that people write by hand, where a cut at a line
    cannot be seen. `how` says what the child does with the folder, see `tests.fuzz.reading`.
    """

    name: str
    make: Callable[[Path], None]
    targets: tuple[str, ...]
    how: dict[str, Any]
    summed: tuple[str, ...] = ()
    text: tuple[str, ...] = ()


def _features(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 5)).astype(np.float32)


def _coords(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, size=(6, 2))


def _folder(write: Callable[[Path, int], Any], suffix: str) -> Callable[[Path], None]:
    """A folder of two bags, one of which is damaged, beside its label table."""

    def make(folder: Path) -> None:
        (folder / "files").mkdir()
        for seed, name in enumerate("ab"):
            write(folder / "files" / f"{name}{suffix}", seed)
        (folder / "labels.csv").write_text(LABELS)

    return make


def _h5(path: Path, seed: int, **how: Any) -> None:
    with h5py.File(path, "w", libver=how.pop("libver", None)) as file:
        data = file.create_dataset("features", data=_features(seed), **how)
        data.attrs["encoder"] = "uni"
        file.create_dataset("coords", data=_coords(seed))


def _h5_summed(path: Path, seed: int) -> None:
    _h5(path, seed, chunks=(2, 5), fletcher32=True, compression="gzip", libver="latest")


def _zarr(path: Path, seed: int, version: int) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("features", data=_features(seed), chunks=(3, 5))
    group.create_array("coords", data=_coords(seed), chunks=(6, 2))


def _pt(path: Path, seed: int) -> None:
    torch.save({"features": torch.from_numpy(_features(seed)), "coords": torch.from_numpy(_coords(seed))}, path)


def _pt_old(path: Path, seed: int) -> None:
    torch.save(torch.from_numpy(_features(seed)), path, _use_new_zipfile_serialization=False)


def _image(path: Path, seed: int, **how: Any) -> None:
    Image.fromarray(scene()[: 40 + seed, :64]).save(path, **how)


def _npy_volume(path: Path, seed: int) -> None:
    np.save(path, body(seed=seed))


def _npz(folder: Path) -> None:
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(6), 3)
    keys = {"y": bag[::3] % 2, "ids": [f"b{i}" for i in range(6)], "group": [f"p{i // 2}" for i in range(6)]}
    keys["instance_label"] = (np.arange(18) % 6 == 3).astype(np.int64)
    split = ["train", "train", "val", "val", "test", "test"]
    np.savez(folder / "bags.npz", X=rng.normal(size=(18, 4)), bag=bag, split=split, **keys)


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(6), 3)
    frame = pd.DataFrame(rng.normal(size=(18, 4)).astype(np.float32), columns=list("wxyz"))
    return frame.assign(bag=[f"b{i}" for i in bag], label=bag % 2, patient=[f"p{i // 2}" for i in bag])


def _parquet(folder: Path, **how: Any) -> None:
    _frame().to_parquet(folder / "bags.parquet", **how)


def _packed(folder: Path) -> None:
    plain = table(folder / "bags.csv")
    (folder / "bags.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def _excel(folder: Path) -> None:
    _frame().to_excel(folder / "bags.xlsx", index=False)


def _manifest(folder: Path) -> None:
    (folder / "files").mkdir()
    lines = ["bag,path,label,patient,split"]
    for seed, name in enumerate("abcdef"):
        np.save(folder / "files" / f"{name}.npy", _features(seed))
        lines.append(f"{name},files/{name}.npy,{seed % 2},p{seed // 2},{['train', 'val', 'test'][seed // 2]}")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")


def _tables(folder: Path) -> None:
    """Features with CLAM's label table, its folder of splits, and a table of patients and slides."""
    (folder / "files").mkdir()
    names = "abcdef"
    for seed, name in enumerate(names):
        np.save(folder / "files" / f"{name}.npy", _features(seed))
    rows = [f"case{i // 2},{name},{'tumor' if i % 2 else 'normal'}" for i, name in enumerate(names)]
    (folder / "labels.csv").write_text("case_id,slide_id,label\n" + "\n".join(rows) + "\n")
    (folder / "splits_0.csv").write_text(",train,val,test\n0,a,c,e\n1,b,d,f\n")


def _store(folder: Path) -> None:
    path = folder / "files"
    path.mkdir()
    for seed, name in enumerate("ab"):
        _h5(path / f"{name}.h5", seed)
    (folder / "labels.csv").write_text("bag,label,patient\na,0,p1\nb,1,p2\n")
    bags = read_bags(path, labels=folder / "labels.csv")
    write_store(bags.replace(instance_labels=np.arange(len(bags.instances)) == 0), folder / "store")
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


_MADE: dict[Callable[[Path], None], Path] = {}
_KEPT = tempfile.TemporaryDirectory(prefix="midam-fuzz-made-")


def _once(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Make a sound input once in this process, and copy it from then on: a run takes seconds."""

    def copied(folder: Path) -> None:
        if make not in _MADE:
            _MADE[make] = Path(_KEPT.name) / str(len(_MADE))
            _MADE[make].mkdir()
            make(_MADE[make])
        shutil.copytree(_MADE[make], folder, dirs_exist_ok=True, symlinks=True)

    return copied


@_once
def _run(folder: Path) -> None:
    table(folder / "bags.csv")
    with contextlib.chdir(folder):
        _quietly(["fit", "bags.csv", "--epochs", "2", "--members", "2", "--chunk-size", "3", "--out", "run"])
        _quietly(["explain", "run", "bags.csv", "--bags", "b00", "--top", "2"])


def _stopped_folds(folder: Path) -> None:
    """A cross-validated run that was stopped after its folds."""
    _run(folder)
    for name in ("summary.json", "model.pt", "predictions.csv"):
        (folder / "run" / name).unlink()


def _outcomes(**columns: Any) -> Callable[[Path], None]:
    """A run of another target than two classes."""

    def make(folder: Path) -> None:
        (column,) = columns
        held = {column: [columns[column](bag) for bag in range(40)]}
        if column == "time":
            held["event"] = [int(bag % 3 > 0) for bag in range(40)]
        table(folder / "bags.csv", **held)
        words = ["--label-column", ",".join(held), "--target", _TARGETS[column], "--ignore", "label"]
        with contextlib.chdir(folder):
            _quietly(["fit", "bags.csv", *words, "--epochs", "1", "--members", "1", "--no-baseline", "--out", "run"])

    return _once(make)


_TARGETS = {"kind": "multiclass", "grade": "ordinal", "number": "continuous", "time": "survival"}


def _export(folder: Path) -> None:
    _run(folder)
    with contextlib.chdir(folder):
        _quietly(["export", "run", "--format", "torch", "--out", "export"])


@_once
def _candidates(folder: Path) -> None:
    """What `auto` has tried, with two cheap methods."""
    table(folder / "bags.csv")
    with contextlib.chdir(folder):
        try_candidates()


def _subgroups(folder: Path) -> None:
    _run(folder)
    rows = [f"b{bag:02d},{'mf'[bag % 2]},{40 + bag}" for bag in range(40)]
    (folder / "patients.csv").write_text("bag,sex,age\n" + "\n".join(rows) + "\n")


def _weights(suffix: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        weights = MLP(5, hidden=[4]).state_dict()
        save = save_file if suffix == ".safetensors" else torch.save
        save(weights, folder / f"weights{suffix}")

    return make


def _patho_bench(folder: Path) -> None:
    _folder(lambda p, s: np.save(p, _features(s)), ".npy")(folder)
    (folder / "k=all.tsv").write_text("slide_id\tlabel\tfold_0\tfold_1\na\t0\ttrain\ttest\nb\t1\ttest\ttrain\n")


@_once
def _whole_comparison(folder: Path) -> None:
    table(folder / "bags.csv")
    _quietly(["compare", str(folder / "bags.csv"), *COMPARE, "--out", str(folder / "compare")])


def _compared(folder: Path) -> None:
    _whole_comparison(folder)
    # As if it had been stopped before its last trial.
    lines = (folder / "compare/trials.jsonl").read_text().splitlines(keepends=True)
    (folder / "compare/trials.jsonl").write_text("".join(lines[:-1]))


def _stopped_at(module: Any, name: str, call: int, words: list[str]) -> None:
    """Run a command that is stopped in the call number `call` of a function."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, module, name, call)
        _quietly(words, expected=130)


def _scores(folder: Path) -> None:
    _run(folder)
    words = ["predict", "run", "bags.csv", "--out", "p.csv"]
    with contextlib.chdir(folder):
        _stopped_at(midam.runs.kept_scores, "predict", 2, words)


def _imported(folder: Path) -> None:
    table(folder / "bags.csv")
    with contextlib.chdir(folder):
        words = ["data", "import", "bags.csv", "--out", "imported", "--jobs", "1"]
        _stopped_at(midam.data.store.write, "_write_bag", 20, words)


def _explained(folder: Path) -> None:
    _run(folder)
    words = ["explain", "run", "bags.csv", "--bags", "b00", "b01", "--top", "2", "--out", "why"]
    with contextlib.chdir(folder):
        _stopped_at(midam.explain.run, "explain_bag", 2, words)


@_once
def _transformers(folder: Path) -> None:
    """A small model of transformers: settings, processor and weights."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8))
    model.save_pretrained(folder / "eyes")
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}, image_mean=[0.4, 0.5, 0.6])
    processor.save_pretrained(folder / "eyes")


def _settings(folder: Path) -> None:
    text = "pooling: attention\nepochs: 3\nlr: 0.1\nhidden: [8, 4]\nencoder_args: {}\nignore: [age, site]\nseed: 1\n"
    (folder / "settings.yaml").write_text(text)


def _quietly(words: list[str], *, expected: int = 0) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main(words)
    if code != expected:
        raise RuntimeError(f"midam {' '.join(words)} ended with {code}")


def _csv_features(path: Path, seed: int) -> None:
    np.savetxt(path, _features(seed), delimiter=",", fmt="%.5f")


def _ome(path: Path, seed: int) -> None:
    tifffile.imwrite(path, scene()[: 64 + seed, :64], photometric="rgb", tile=(32, 32), ome=True)


def _slide(path: Path, seed: int, **how: Any) -> None:
    write_pyramid(path, scene()[:256, : 256 + seed], levels=2, **how)


_FILES: dict[str, Any] = {"do": "bags", "path": "files", "labels": "labels.csv"}
_PATCHES = {**_FILES, "images": {"patch_size": 16}}
_SLIDES = {**_FILES, "images": {"patch_size": 32, "tissue": 0}}
_TABLE: dict[str, Any] = {"do": "bags", "groups": "patient"}
_ALL_FILES = ("files/a*",)


def _sample(name: str, write: Callable[[Path, int], Any], suffix: str, how: dict[str, Any], **more: Any) -> Sample:
    return Sample(name, _folder(write, suffix), more.pop("targets", (f"files/a{suffix}",)), how, **more)


_READ = (  # of a run, by `midam report`
    *("run/summary.json", "run/predictions.csv", "run/metrics.csv", "run/config.yaml"),
    *("run/explain/*.json", "run/*.png"),
)
_RUN_TEXTS = ("*.json", "*.csv", "*.yaml", "*.txt")


def _written() -> list[Sample]:
    """What midam itself has written, and each command that reads it."""
    report = {"do": "command", "words": ["report", "run", "--out", "page.html"], "written": ["page.html"]}
    tables = ("run/summary.json", "run/predictions.csv", "run/metrics.csv", "run/config.yaml")
    evaluate = ["evaluate", "run", "bags.csv"]
    other = ["report", "run", "bags.csv", "--out", "page.html"]
    explain = ["explain", "run", "bags.csv", "--bags", "b00", "--top", "1", "--out", "why"]
    export = ["export", "run", "--format", "safetensors", "--out", "export"]
    exported = ["export/config.json", "export/model.safetensors"]
    compared = tuple(f"compare/{name}" for name in ("*.csv", "*.yaml", "*.jsonl", "summary.md"))
    by_target = {
        "multiclass": _outcomes(kind=lambda bag: "abc"[bag % 3]),
        "ordinal": _outcomes(grade=lambda bag: bag % 3),
        "continuous": _outcomes(number=lambda bag: bag % 2 + bag / 40),
        "survival": _outcomes(time=lambda bag: 1 + bag % 7 + bag / 40),
    }
    compare = {**report, "words": ["report", "compare", "--out", "page.html"]}
    run, bags = {"do": "command"}, {"text": _RUN_TEXTS}
    finished = {**run, "words": ["fit", "--resume", "run"]}
    subgroups = ["report", "run", "--table", "patients.csv", "--subgroups", "sex,age", "--out", "page.html"]
    weights = ("run/model.pt", "run/config.yaml")
    return [
        Sample("report", _run, _READ, report, **bags),
        *(Sample(f"report {name}", make, tables, report, **bags) for name, make in by_target.items()),
        Sample("report data", _run, (*tables, "run/model.pt"), {**report, "words": other}, ("*.pt",), _RUN_TEXTS),
        Sample("evaluate", _run, weights, {**run, "words": evaluate}, **bags),
        Sample("explain", _run, (*weights, "run/checkpoints/last.pt"), {**run, "words": explain}, **bags),
        Sample("export", _run, (*tables, *weights), {**run, "words": export, "written": exported}, **bags),
        Sample("exported", _export, ("export/config.json", "export/*.pt2"), {"do": "exported"}, ("*.pt2",), _RUN_TEXTS),
        Sample("report compare", _whole_comparison, compared, compare, text=("*.csv", "*.yaml", "*.md", "*.jsonl")),
        Sample("auto", _candidates, ("candidates.jsonl",), {"do": "candidates"}, text=("*.jsonl",)),
        Sample("stopped folds", _stopped_folds, ("run/folds.jsonl",), finished, text=("*.jsonl",)),
        Sample("finished", _run, ("run/summary.json", "run/config.yaml"), finished, **bags),
        Sample("saved", _run, ("run/model.pt",), {"do": "saved"}, ("*.pt",)),
        Sample("subgroups", _subgroups, ("patients.csv",), {**report, "words": subgroups}, **bags),
        Sample("store verify", _store, ("store/*",), {**run, "words": ["data", "verify", "store"]}, ("*",)),
        Sample("store describe", _store, ("store/*",), {**run, "words": ["data", "describe", "store"]}),
    ]


def samples() -> dict[str, Sample]:
    """All samples by name."""
    everything = "*"
    found = [
        Sample(
            "csv",
            lambda f: table(f / "bags.csv") and None,
            ("bags.csv",),
            {"do": "bags", "path": "bags.csv"},
            text=("*.csv",),
        ),
        Sample("csv.gz", _packed, ("bags.csv.gz",), {"do": "bags", "path": "bags.csv.gz"}, summed=(everything,)),
        Sample("xlsx", _excel, ("bags.xlsx",), {**_TABLE, "path": "bags.xlsx"}, summed=(everything,)),
        Sample("parquet", _parquet, ("bags.parquet",), {**_TABLE, "path": "bags.parquet"}),
        Sample(
            "parquet summed",
            lambda f: _parquet(f, write_page_checksum=True),
            ("bags.parquet",),
            {**_TABLE, "path": "bags.parquet"},
        ),
        Sample("npz of bags", _npz, ("bags.npz",), {"do": "bags", "path": "bags.npz"}, summed=(everything,)),
        _sample("csv features", _csv_features, ".csv", _FILES, text=("*.csv",)),
        _sample("npy", lambda p, s: np.save(p, _features(s)), ".npy", _FILES),
        _sample("npy volume", _npy_volume, ".npy", _FILES),
        _sample(
            "npz",
            lambda p, s: np.savez_compressed(p, features=_features(s), coords=_coords(s)),
            ".npz",
            _FILES,
            summed=(everything,),
        ),
        _sample("h5", _h5, ".h5", _FILES),
        _sample("h5 summed", _h5_summed, ".h5", _FILES),
        _sample("zarr 2", lambda p, s: _zarr(p, s, 2), ".zarr", _FILES, targets=("files/a.zarr/**/*",)),
        _sample("zarr 3", lambda p, s: _zarr(p, s, 3), ".zarr", _FILES, targets=("files/a.zarr/**/*",)),
        _sample("pt", _pt, ".pt", _FILES, summed=(everything,)),
        _sample("pt old", _pt_old, ".pt", _FILES),
        _sample("nii", lambda p, s: save_nifti(p, body(seed=s)), ".nii", _FILES),
        _sample("nii.gz", lambda p, s: save_nifti(p, body(seed=s)), ".nii.gz", _FILES, summed=(everything,)),
        _sample("dicom", lambda p, s: save_series(p, body(seed=s)), "", _FILES, targets=("files/a/*",)),
        _sample("png", _image, ".png", _PATCHES, summed=(everything,)),
        _sample("jpg", _image, ".jpg", _PATCHES),
        _sample("tiff", lambda p, s: _image(p, s, compression="tiff_lzw"), ".tif", _PATCHES),
        _sample("ome-tiff", _ome, ".ome.tif", _PATCHES),
        _sample("slide tiled", _slide, ".tif", _SLIDES),
        _sample("slide strips", lambda p, s: _slide(p, s, tile=None, rowsperstrip=16), ".tif", _SLIDES),
        Sample("manifest", _manifest, ("manifest.csv",), {"do": "bags", "path": "manifest.csv"}, text=("*.csv",)),
        Sample(
            "label table",
            _tables,
            ("labels.csv", "splits_0.csv"),
            {**_FILES, "positive": "tumor", "split_file": "splits_0.csv"},
            text=("*.csv",),
        ),
        Sample("folds of splits", _patho_bench, ("k=all.tsv",), {**_FILES, "split_file": "k=all.tsv", "fold": 1}),
        Sample("weights", _weights(".pt"), ("weights.pt",), {"do": "weights", "path": "weights.pt"}, (everything,)),
        Sample(
            "weights safetensors",
            _weights(".safetensors"),
            ("weights.safetensors",),
            {"do": "weights", "path": "weights.safetensors"},
        ),
        Sample("transformers", _transformers, ("eyes/*",), {"do": "network", "name": "hf:eyes"}, text=("*.json",)),
        Sample("store", _store, ("store/*",), {"do": "store"}, summed=(everything,)),
        Sample("run", _run, ("run/model.pt",), {"do": "predict"}, summed=(everything,)),
        Sample("checkpoint", _run, ("run/checkpoints/*.pt",), {"do": "resume"}, summed=(everything,)),
        Sample("run settings", _run, ("run/config.yaml",), {"do": "resume"}, text=("*.yaml",)),
        Sample("settings", _settings, ("settings.yaml",), {"do": "settings"}, text=("*.yaml",)),
        Sample(
            "trials",
            _compared,
            ("compare/trials.jsonl", "compare/config.yaml"),
            {"do": "compare", "words": COMPARE},
            text=("*.jsonl", "*.yaml"),
        ),
        Sample("scores", _scores, ("p.csv.part",), {"do": "predict"}, text=("*.part",)),
        Sample("import", _imported, (".imported.journal", ".imported.part/*"), {"do": "import"}, text=("*.journal",)),
        *_written(),
        Sample("explanations", _explained, ("why/explain.json",), {"do": "explain"}, text=("*.json*",)),
    ]
    return {sample.name: sample for sample in found}
