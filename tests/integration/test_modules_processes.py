"""Two processes with `DistributedDataParallel` train what one process trains, tracked state included."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.integration.commands import finish, fork
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import midam

BAGS, STEPS = 12, 4
CASES = [("minmax", "inside"), ("precision", "outside"), ("minmax", "outside"), ("pairs", "inside")]
CASES += [("noisy-and", "inside"), ("noisy-and", "outside")]  # with a parameter of its own
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


def join(rank: int, folder: Path) -> None:
    """Train all cases as one of two processes."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name, place in CASES:
        torch.save(train(rank, 2, name, inside=place == "inside"), folder / f"{name}-{place}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with what each of two processes has trained, in each case."""
    folder = tmp_path_factory.mktemp("trained")
    running = [fork(join, rank, folder, log=folder / f"log-{rank}") for rank in (0, 1)]
    assert [finish(process) for process in running] == [0, 0], (folder / "log-0").read_text()
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


def join_with_other_sizes(rank: int, folder: Path, loss_of: str) -> None:
    """Train a batch of 4 bags, or of 3, as one of two processes; writes why that is refused."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    index = torch.arange(4 - rank) + 4 * rank
    pool, loss_fn = midam.nn.TrackedPooling("mean", num_bags=8), midam.nn.MinMaxAUCLoss()
    try:
        scores = pool(torch.randn(len(index), 3, requires_grad=True), index)
        # A loss of somebody else: only the commit joins the bags.
        loss = scores.square().mean() if loss_of == "own" else loss_fn(scores, index % 2)
        loss.backward()
        midam.nn.commit(pool)
    except midam.errors.ConfigError as error:
        (folder / f"said-{rank}").write_text(str(error))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["midam", "own"])
def test_batches_of_unequal_sizes_are_named_in_each_process(loss, tmp_path):
    """The last batch of a `DataLoader` without `drop_last`; the exchange itself would end both in C++."""
    others = [fork(join_with_other_sizes, rank, tmp_path, loss, log=tmp_path / "log") for rank in range(2)]
    assert [finish(other) for other in others] == [0, 0], (tmp_path / "log").read_text()
    for rank in range(2):
        assert "as many bags in the batch of each process, got 4, 3" in (tmp_path / f"said-{rank}").read_text()
