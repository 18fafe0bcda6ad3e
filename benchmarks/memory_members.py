"""The members that `memory.py` measures: the work of each, its files, and the process that does the work."""

import contextlib
import gc
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from benchmarks.shared import memory_mib, sparse_store
from numpy.lib.format import open_memmap

from midam.data.store import open_store
from midam.evaluate.predict import predict
from midam.settings import Settings
from midam.train.build import build_ensemble
from midam.train.trainer import Trainer
from studies.peers import load_libauc, load_torchmil

BAGS, WIDTH, HIDDEN, DRAWN, CHUNK = 32, 1024, 1024, 64, 128
STEPS = 10
SEEN = 10**5
USUAL = "midam-usual-malloc"

Work = Callable[[Path], None]


@dataclass(frozen=True)
class Member:
    """A measured member, with its files and its largest bag size."""

    case: str
    who: str
    files: str
    largest: int


MEMBERS = (
    Member("train", "midam", "store", 10**6),
    Member("train", "midam-mmap", "store", 10**6),
    Member("train", USUAL, "store", 10**6),
    Member("train", "midam-exact-point", "store", 10**4),
    Member("train", "midam-exact", "store", 10**4),
    Member("train", "libauc", "arrays", 10**6),
    Member("train", "libauc-mmap", "arrays", 10**6),
    Member("train", "torchmil", "arrays", 10**6),
    Member("score", "midam", "store", 10**6),
    Member("score", "midam-mmap", "store", 10**5),
    Member("score", USUAL, "store", 10**5),
    Member("score", "midam-chunk-4096", "store", 10**5),
    Member("score", "libauc", "arrays", 10**6),
    Member("score", "libauc-mmap", "arrays", 10**6),
    Member("score", "torchmil", "arrays", 10**6),
)


def settings(**values: Any) -> Settings:
    return Settings(members=1, hidden=[HIDDEN], num_instances=DRAWN, scaling="linear", accelerator="cpu", **values)


def midam_train(folder: Path, *, reads: Any = "pread", **values: Any) -> None:
    trainer = Trainer(settings(**values), open_store(folder, reads=reads))
    while not trainer.finished:
        trainer.train_epoch()


def midam_score(folder: Path, *, reads: Any = "pread", chunk_size: int = CHUNK) -> None:
    bags = open_store(folder, reads=reads)
    model, one = build_ensemble(settings(), instance_shape=bags.instance_shape), bags.subset([0])
    for _ in range(repeats(one.num_instances)):
        predict(model, one, chunk_size=chunk_size)


def repeats(size: int) -> int:
    """Return how often a bag is scored: small bags often, so that reads every 2 ms find the highest memory."""
    return max(1, SEEN // size)


def libauc_train(folder: Path, *, mapped: Literal["r"] | None = None) -> None:
    peer = load_libauc()
    with contextlib.redirect_stdout(io.StringIO()):  # LibAUC's network prints.
        model = peer.mil_models.FFNN_stoc_att(input_dim=WIDTH, hidden_sizes=(HIDDEN,), num_classes=1)
        loss_fn = peer.mil.MIDAMLoss(mode="attention", data_len=BAGS, margin=1.0, device=torch.device("cpu"))
        optimizer = peer.midam.MIDAM(model.parameters(), loss_fn=loss_fn, lr=0.01, device=torch.device("cpu"))
    bags = [np.load(path, mmap_mode=mapped) for path in array_paths(folder)]
    labels = torch.tensor([number % 2 for number in range(BAGS)]).float().view(-1, 1)
    for step in range(STEPS):
        index = torch.arange(16) + 16 * (step % 2)
        pooled = [
            peer.paper_utils.MIL_sampling(bags[i], model, instance_batch_size=DRAWN, mode="att", device="cpu")
            for i in index.tolist()
        ]
        prediction = [torch.cat([p[k].view(1, 1) for p in pooled]) for k in range(2)]
        loss = loss_fn(y_pred=prediction, y_true=labels[index], index=index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def libauc_score(folder: Path, *, mapped: Literal["r"] | None = None) -> None:
    peer = load_libauc()
    with contextlib.redirect_stdout(io.StringIO()):
        model = peer.mil_models.FFNN_stoc_att(input_dim=WIDTH, hidden_sizes=(HIDDEN,), num_classes=1)
    bag = np.load(array_paths(folder)[0], mmap_mode=mapped)
    with torch.no_grad():
        for _ in range(repeats(len(bag))):
            peer.paper_utils.MIL_aggregation(bag, model, mode="att", device="cpu")


def _torchmil(folder: Path) -> tuple[Any, Any, Any]:
    from torchmil.datasets import ProcessedMILDataset

    models, data = load_torchmil()
    features = torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU())
    model = models.ABMIL(in_shape=(WIDTH,), feat_ext=features)
    paths = {"features_path": str(folder / "features"), "labels_path": str(folder / "labels")}
    return model, ProcessedMILDataset(**paths, bag_keys=["X", "Y"], verbose=False), data.collate_fn


def torchmil_train(folder: Path) -> None:
    model, bags, collate = _torchmil(folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in torch.utils.data.DataLoader(bags, batch_size=16, collate_fn=collate):
        _, losses = model.compute_loss(batch["Y"], batch["X"].float(), batch["mask"])
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()


def torchmil_score(folder: Path) -> None:
    model, bags, collate = _torchmil(folder)
    batch = collate([bags[0]])
    with torch.no_grad():
        for _ in range(repeats(batch["X"].shape[1])):
            model(batch["X"].float(), batch["mask"])


WORK: dict[tuple[str, str], Work] = {
    ("train", "midam"): lambda f: midam_train(f, epochs=STEPS // 2),
    ("train", "midam-mmap"): lambda f: midam_train(f, reads="mmap", epochs=STEPS // 2),
    ("train", USUAL): lambda f: midam_train(f, epochs=STEPS // 2),
    ("train", "midam-exact-point"): lambda f: midam_train(f, estimator="exact-point", chunk_size=CHUNK, epochs=1),
    ("train", "midam-exact"): lambda f: midam_train(f, estimator="exact", chunk_size=CHUNK, epochs=1),
    ("train", "libauc"): libauc_train,
    ("train", "libauc-mmap"): lambda f: libauc_train(f, mapped="r"),
    ("train", "torchmil"): torchmil_train,
    ("score", "midam"): midam_score,
    ("score", "midam-mmap"): lambda f: midam_score(f, reads="mmap"),
    ("score", USUAL): midam_score,
    ("score", "midam-chunk-4096"): lambda f: midam_score(f, chunk_size=4096),
    ("score", "libauc"): libauc_score,
    ("score", "libauc-mmap"): lambda f: libauc_score(f, mapped="r"),
    ("score", "torchmil"): torchmil_score,
}


def array_paths(folder: Path) -> list[Path]:
    return sorted((folder / "features").glob("*.npy"))


def make_files(folder: Path, kind: str, size: int) -> Path:
    """Make a sparse store, or the sparse .npy files that the other libraries load."""
    if kind == "store":
        return sparse_store(folder, bags=BAGS, size=size, width=WIDTH)
    for name in ("features", "labels"):
        (folder / name).mkdir(parents=True)
    for number in range(BAGS):
        open_memmap(folder / "features" / f"{number:03d}.npy", "w+", np.float16, (size, WIDTH))
        np.save(folder / "labels" / f"{number:03d}.npy", np.array(number % 2, dtype=np.float32))
    return folder


def child(case: str, who: str, folder: Path) -> None:
    """Run the measured process: import, report the memory, work on request, and wait until the memory is read."""
    torch.set_num_threads(1)
    if who.startswith("libauc"):
        load_libauc()
    if who == "torchmil":
        load_torchmil()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again.
    print(json.dumps(memory_mib()), flush=True)
    sys.stdin.readline()
    WORK[case, who](folder)
    print("done", flush=True)
    sys.stdin.readline()
