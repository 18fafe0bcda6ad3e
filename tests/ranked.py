"""Several processes that train the cases of a file together; the leading one writes what came of them."""

import json
import socket
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tests.integration.commands import finish, fork

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.evaluate.predict import predict
from midam.process_group import Ranks
from midam.settings import Settings
from midam.targets import target_of
from midam.train.loop import Training
from midam.train.members import build_members, open_reader

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


def join(cases, out):
    """Train the cases of a file, one after the other, as one of the processes that the environment describes."""
    dist.init_process_group("gloo")
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    try:
        for number, case in enumerate(json.loads(Path(cases).read_text())):
            found = train(case, ranks)
            if ranks.leads:
                np.savez(Path(out) / f"{number}.npz", **found)
        ranks.leave()
    finally:
        ranks.abandon()


def launch(cases, out, count):
    """Train cases with so many processes; returns what came of each."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "cases.json").write_text(json.dumps(cases))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    files = str(out / "cases.json"), str(out)
    kids = [fork(join, *files, log=out / f"log-{rank}", RANK=str(rank), **address) for rank in range(count)]
    codes = [finish(kid) for kid in kids]
    assert codes == [0] * count, (out / "log-0").read_text()
    return [dict(np.load(out / f"{number}.npz")) for number in range(len(cases))]
