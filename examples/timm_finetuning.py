"""Fine-tune a network of timm on bags: its layers have a low learning rate, the new head a high one.

    pip install midam timm
    python examples/timm_finetuning.py --model convnext_atto --pretrained
    python examples/timm_finetuning.py --model test_convnext          # random weights, half a minute on a CPU

The bags are the bags of examples/torch_loop.py, with digits as color images of 64 x 64 pixels. Use a network with layer
or group normalization: with batch normalization, the score of an instance depends on the other instances of its batch.
"""

import argparse

import timm
import torch
from torch.utils.data import DataLoader
from torch_loop import digit_bags  # the file next to this one

import midam


class Scored(torch.nn.Module):
    """Network that gives a logit and a value for each image, x [K, B, 64] -> [K, B] each."""

    def __init__(self, name: str, *, pretrained: bool) -> None:
        super().__init__()
        self.body = timm.create_model(name, pretrained=pretrained, num_classes=0)
        self.head = torch.nn.Linear(self.body.num_features, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values."""
        images = torch.nn.functional.interpolate(x.reshape(-1, 1, 8, 8), size=64, mode="bilinear").expand(-1, 3, -1, -1)
        z, v = self.head(self.body(images * 2 - 1)).view(*x.shape[:-1], 2).unbind(dim=-1)
        return z, v


def main() -> None:
    """Train, then score the test bags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="test_convnext")
    parser.add_argument("--pretrained", action="store_true", help="fetch the weights")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)

    bags, labels = digit_bags(200, seed=0, test=False)
    train = midam.data.BagDataset(bags, labels, num_instances=8)
    loader = DataLoader(train, batch_sampler=midam.data.BalancedBags(labels, num_positive=8, num_negative=8))
    network = Scored(options.model, pretrained=options.pretrained).to(options.device)
    pool = midam.nn.TrackedPooling("attention", num_bags=len(train)).to(options.device)
    loss_fn = midam.nn.MinMaxAUCLoss().to(options.device)
    slow, fast = (1e-4, 2e-3) if options.pretrained else (2e-3, 2e-3)
    groups = [
        {"params": network.body.parameters(), "lr": slow},
        {"params": [*network.head.parameters(), *loss_fn.parameters()], "lr": fast},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)

    for _ in range(options.epochs):
        network.train()
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
    scores = [pool.evaluate(network(x.to(options.device)) for x in test.chunks(i)).item() for i in range(len(test))]
    print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(test)} bags")


if __name__ == "__main__":
    main()
