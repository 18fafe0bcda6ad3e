"""MIDAM with Hugging Face Accelerate: `prepare` the network, the optimizer and the loader as usual.

    pip install midam accelerate
    python examples/accelerate_loop.py
    accelerate launch --num_processes 2 --cpu examples/accelerate_loop.py

The bags are the bags of examples/torch_loop.py. `save_state` and `load_state` include the tracked state too, because
pooling and loss are registered.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from torch_loop import Network, digit_bags  # the file next to this one

import midam


def main() -> None:
    """Train, save and load the state, and score the test bags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    parser.add_argument("--folder", type=Path, default=Path("runs/accelerate"))
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.cpu)
    set_seed(0)

    bags, labels = digit_bags(200, seed=0, test=False)
    train = midam.data.BagDataset(bags, labels, num_instances=8)
    # Accelerate gives whole batches to the processes in turn: each process has this number of bags in a step.
    per_process = 8 // accelerator.num_processes
    batches = midam.data.BalancedBags(labels, num_positive=per_process, num_negative=per_process)
    pool = midam.nn.TrackedPooling("attention", num_bags=len(train)).to(accelerator.device)
    loss_fn = midam.nn.MinMaxAUCLoss().to(accelerator.device)
    network = Network()
    optimizer = torch.optim.Adam([*network.parameters(), *loss_fn.parameters()], lr=5e-3)
    network, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(train, batch_sampler=batches))
    accelerator.register_for_checkpointing(pool, loss_fn)

    for _ in range(options.epochs):
        for x, y, index in loader:
            z, v = network(x)
            loss = loss_fn(pool(z, v, index), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)

    accelerator.save_state(options.folder)
    pool.bag_state.zero_()
    accelerator.load_state(options.folder)
    if accelerator.is_main_process:
        network = accelerator.unwrap_model(network).eval()
        bags, labels = digit_bags(100, seed=1, test=True)
        test = midam.data.BagDataset(bags, labels)
        device = accelerator.device
        scores = [pool.evaluate(network(x.to(device)) for x in test.chunks(i)).item() for i in range(len(test))]
        seen = int((pool.bag_state[:, 0] > 0).sum())
        print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(test)} bags; the state holds {seen} training bags")
    accelerator.wait_for_everyone()  # see torch_ddp.py
    accelerator.end_training()


if __name__ == "__main__":
    main()
