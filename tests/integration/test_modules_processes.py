"""Two processes with `DistributedDataParallel` train what one process trains, tracked state included."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import midam

BAGS, STEPS = 12, 4
CASES = [("minmax", "inside"), ("precision", "outside"), ("minmax", "outside"), ("pairs", "inside")]
CASES += [("noisy-and", "inside"), ("noisy-and", "outside")]  # with a parameter of its own
CODE = """
import os, sys, torch, torch.distributed as dist
from tests.integration.test_modules_processes import CASES, train
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
for name, place in CASES:
    torch.save(train(rank, 2, name, inside=place == "inside"), f"{folder}/{name}-{place}-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # see examples/torch_ddp.py
"""
LOSSES = {
    "minmax": midam.nn.MinMaxAUCLoss,
    "noisy-and": midam.nn.MinMaxAUCLoss,
    "precision": lambda: midam.nn.AveragePrecisionLoss(num_bags=BAGS),
    "pairs": midam.nn.PairwiseAUCLoss,
}


class Model(nn.Module):
    """Network, and the pooling if it is inside, as somebody may have them."""

    def __init__(self, pooling: str, inside: bool) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2 if pooling == "attention" else 1))
        self.pool = midam.nn.TrackedPooling(pooling, num_bags=BAGS, state_rate=0.5) if inside else None

    def forward(self, x, index):
        out = self.head(x).unbind(dim=-1)
        return out if self.pool is None else self.pool(*out, index)


def train(rank: int, count: int, name: str, *, inside: bool) -> dict:
    """Some steps of one process among so many; returns weights and states."""
    torch.manual_seed(0)
    pooling = name if name == "noisy-and" else "attention"
    model, loss_fn = Model(pooling, inside), LOSSES[name]()
    pool = model.pool or midam.nn.TrackedPooling(pooling, num_bags=BAGS, state_rate=0.5)
    wrapped = DistributedDataParallel(model) if count > 1 else model
    own = [] if inside else pool.parameters()
    optimizer = torch.optim.SGD([*model.parameters(), *own, *loss_fn.parameters()], lr=0.2)
    bags, labels = torch.randn(BAGS, 6, 5), torch.arange(BAGS) % 2
    loader = midam.data.BalancedBags(labels, num_positive=2, num_negative=2, rank=rank, num_ranks=count)
    losses = []
    for _ in range(STEPS):
        for batch in loader:
            index = torch.tensor(batch)
            out = wrapped(bags[index], index)
            loss = loss_fn(out if inside else pool(*out, index), labels[index], index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)
            losses.append(loss.item())
    return {"model": model.state_dict(), "pool": pool.state_dict(), "loss": loss_fn.state_dict(), "losses": losses}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with what each of two processes has trained, in each case."""
    folder = tmp_path_factory.mktemp("trained")
    running = [subprocess.Popen([sys.executable, "-c", CODE, str(rank), str(folder)]) for rank in (0, 1)]
    assert [process.wait(timeout=240) for process in running] == [0, 0]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), CASES)
def test_two_processes_train_what_one_does(name, place, trained):
    both = [torch.load(trained / f"{name}-{place}-{rank}.pt", weights_only=True) for rank in (0, 1)]
    alone = train(0, 1, name, inside=place == "inside")
    assert (alone["pool"]["bag_state"][:, 0] > 0).all()
    for found in both:
        assert found["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        for part in ("model", "pool", "loss"):
            torch.testing.assert_close(dict(found[part]), dict(alone[part]), rtol=1e-5, atol=1e-6)
    for part in ("pool", "loss"):  # to the last bit: whatever one knows, the other knows
        assert all(torch.equal(value, both[1][part][key]) for key, value in both[0][part].items())


UNEQUAL = """
import sys, torch, torch.distributed as dist, midam
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
index = torch.arange(4 - rank) + 4 * rank
pool, loss_fn = midam.nn.TrackedPooling("mean", num_bags=8), midam.nn.MinMaxAUCLoss()
own = sys.argv[3] == "own"  # a loss of somebody else: only the commit joins the bags
try:
    scores = pool(torch.randn(len(index), 3, requires_grad=True), index)
    loss = scores.square().mean() if own else loss_fn(scores, index % 2)
    loss.backward()
    midam.nn.commit(pool)
except midam.errors.ConfigError as error:
    print(error, flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["midam", "own"])
def test_batches_of_unequal_sizes_are_named_in_each_process(loss, tmp_path):
    """The last batch of a `DataLoader` without `drop_last`; the exchange itself would end both in C++."""
    command = [sys.executable, "-c", UNEQUAL]
    others = [
        subprocess.Popen([*command, str(rank), str(tmp_path), loss], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for other in others:
        out, _ = other.communicate(timeout=300)
        assert "as many bags in the batch of each process, got 4, 3" in out
        assert other.returncode == 0
