"""MIDAM in `DistributedDataParallel`, with a checkpoint from which any number of processes can continue.

    torchrun --nproc-per-node 2 examples/torch_ddp.py --checkpoint run.pt

Each process encodes its half of the 16 bags of a step. The losses use the scores of all 16 bags, and `commit` gives
every process the tracked state of all bags, so that the checkpoint of one process is complete. A second call continues
from the last epoch in the file. The bags are the bags of examples/torch_loop.py.
"""

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch_loop import Network, digit_bags  # the file next to this one

import midam


def main() -> None:
    """Train, save after each epoch, then score the test bags in the first process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--checkpoint", type=Path, default=Path("run.pt"))
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(minutes=5))
    rank, count = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(rank)  # the draws of instances; DDP starts from the weights of the first process

    bags, labels = digit_bags(200, seed=0, test=False)
    train = midam.data.BagDataset(bags, labels, num_instances=8)
    batches = midam.data.BalancedBags(labels, num_positive=8, num_negative=8, rank=rank, num_ranks=count)
    loader = DataLoader(train, batch_sampler=batches)

    network = DistributedDataParallel(Network().to(device))
    pool = midam.nn.TrackedPooling("attention", num_bags=len(train)).to(device)
    loss_fn = midam.nn.MinMaxAUCLoss().to(device)
    optimizer = torch.optim.Adam([*network.parameters(), *loss_fn.parameters()], lr=5e-3)
    parts = {"network": network.module, "pool": pool, "loss": loss_fn, "optimizer": optimizer, "batches": batches}
    first = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True, map_location=device)
        first = state.pop("epoch")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        print(f"process {rank} of {count} continues after epoch {first}")

    for epoch in range(first, options.epochs):
        for x, y, index in loader:
            z, v = network(x.to(device))
            loss = loss_fn(pool(z, v, index), y, index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)
        if rank == 0:
            torch.save(
                {name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch + 1}, options.checkpoint
            )

    if rank == 0:
        network.eval()
        bags, labels = digit_bags(100, seed=1, test=True)
        test = midam.data.BagDataset(bags, labels)
        scores = [pool.evaluate(network.module(x.to(device)) for x in test.chunks(i)).item() for i in range(len(test))]
        print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(test)} bags")
    dist.barrier()
    dist.destroy_process_group()
    # DDP keeps the threads of gloo to the end. One that holds a tensor then aborts the interpreter: end without it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
