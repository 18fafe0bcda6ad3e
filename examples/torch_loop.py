"""MIDAM in a plain torch loop: no settings, no trainer; your network, your DataLoader, your optimizer.

    python examples/torch_loop.py

Bags of 40 handwritten digits (included in scikit-learn); a positive bag has three to five nines. A step encodes 8
digits of each of 16 bags. Test bags are scored with all instances, in chunks. The script prints the test AUROC.
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

import midam


def digit_bags(count: int, *, seed: int, test: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Return bags [40, 64] and their labels; training and test bags share no digit."""
    images, digits = load_digits(return_X_y=True)
    images, digits = (x[1::2] if test else x[::2] for x in (images.astype(np.float32) / 16, digits))
    rng, labels = np.random.default_rng(seed), np.arange(count) % 2
    bags = []
    for label in labels:
        nines = rng.integers(3, 6) if label else 0
        parts = [
            rng.choice(np.flatnonzero((digits == 9) == nine), n) for nine, n in ((True, nines), (False, 40 - nines))
        ]
        bags.append(images[rng.permutation(np.concatenate(parts))])
    return bags, labels


class Network(nn.Module):
    """Network that gives a logit (attention) and a value for each instance, x [K, B, 64] -> [K, B] each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values."""
        z, v = self.head(self.encoder(x)).unbind(dim=-1)
        return z, v


def main() -> None:
    """Train, then score the test bags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)

    bags, labels = digit_bags(200, seed=0, test=False)
    train = midam.data.BagDataset(bags, labels, num_instances=8)
    loader = DataLoader(train, batch_sampler=midam.data.BalancedBags(labels, num_positive=8, num_negative=8))

    network = Network().to(options.device)
    pool = midam.nn.TrackedPooling("attention", num_bags=len(train)).to(options.device)
    loss_fn = midam.nn.MinMaxAUCLoss().to(options.device)
    optimizer = torch.optim.Adam([*network.parameters(), *loss_fn.parameters()], lr=5e-3)

    for _ in range(options.epochs):
        for x, y, index in loader:
            z, v = network(x.to(options.device))
            loss = loss_fn(pool(z, v, index), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)

    network.eval()
    bags, labels = digit_bags(100, seed=1, test=True)
    test = midam.data.BagDataset(bags, labels)
    scores = [pool.evaluate(network(x.to(options.device)) for x in test.chunks(i, 16)).item() for i in range(len(test))]
    print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(test)} bags")


if __name__ == "__main__":
    main()
