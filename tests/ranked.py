"""One of several processes that train the cases of a file together; the leading one writes what came of them.

``python -m tests.ranked CASES OUT``; the environment says which process of how many this is (RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT). Without, it trains alone.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.evaluate.predict import predict
from midam.process_group import Ranks
from midam.settings import Settings
from midam.targets import target_of
from midam.train.inputs import open_reader
from midam.train.loop import Training
from midam.train.members import build_members

USUAL = {"epochs": 3, "members": 1, "num_positive": 3, "num_negative": 4, "num_instances": 3, "standardize": False}


def bags_of(target):
    """29 ragged bags of 1 to 9 instances of 5 features."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=29)
    parts = [rng.normal(size=(int(rng.integers(1, 10)), 5)) + level * np.eye(5)[0] for level in latent]
    if target == "binary":
        return Bags.from_list(parts, (latent > 0.3).astype(int))
    values, names = np.digitize(latent, [-0.5, 0.5]), ["low", "mid", "high"]
    if target == "multilabel":
        values, names = np.stack([latent > 0, latent < -0.3], axis=1).astype(float), ["p", "q"]
        values[::7, 0] = np.nan
    elif target == "survival":
        values, names = np.stack([np.exp(-latent), latent < 0.8], axis=1).astype(float), ["time", "event"]
    return Bags.from_list(parts, outcome=TargetLabels.of(target, values, names=names))


def train(case, ranks):
    """Train a case in float64; returns all numbers that training and scoring give, by name."""
    options = {**USUAL, **case}
    bags, epochs = bags_of(options.pop("bags", "binary")), options.pop("epochs")
    config = Settings(**options).replace(threads=1)
    (member,) = build_members(config, bags, device=torch.device("cpu"))
    for part in (member.model, member.trained, member.estimator, member.objective):
        part.double()
    reader = open_reader(member.config, bags, transform=None, device=torch.device("cpu"))
    reader.all = reader.all.double()
    labels = torch.from_numpy(np.asarray(target_of(bags).values(bags), dtype=np.float64))
    training, found = Training(member, reader, labels, ranks=ranks), {}
    for epoch in range(epochs):
        loss, metric = training.train_epoch(epoch)
        found[f"loss-{epoch}"], found[f"metric-{epoch}"] = loss, np.array(metric)
    found["scores"] = predict(member.model, bags, chunk_size=7, reader=reader, ranks=ranks)
    for part in ("model", "estimator", "objective"):
        for name, tensor in getattr(training, part).state_dict().items():
            if isinstance(tensor, torch.Tensor):
                found[f"{part}.{name}"] = tensor.numpy().copy()
    return found


def main(cases, out):
    """Train the cases, one after the other."""
    torch.set_num_threads(1)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    ranks = None
    if count > 1:
        dist.init_process_group("gloo")
        ranks = Ranks(dist.get_rank(), count, torch.device("cpu"))
    try:
        for number, case in enumerate(json.loads(Path(cases).read_text())):
            found = train(case, ranks)
            if ranks is None or ranks.leads:
                np.savez(Path(out) / f"{number}.npz", **found)
        if ranks is not None:
            ranks.leave()
    finally:
        if ranks is not None:
            ranks.abandon()


def launch(cases, out, count):
    """Train cases with so many processes; returns what came of each."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "cases.json").write_text(json.dumps(cases))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    command = [sys.executable, "-m", "tests.ranked", str(out / "cases.json"), str(out)]
    kids = [subprocess.Popen(command, env={**os.environ, **address, "RANK": str(rank)}) for rank in range(count)]
    try:
        codes = [kid.wait(timeout=240) for kid in kids]
    finally:
        for kid in kids:
            kid.kill()
    assert codes == [0] * count
    return [dict(np.load(out / f"{number}.npz")) for number in range(len(cases))]


if __name__ == "__main__":
    main(*sys.argv[1:])
