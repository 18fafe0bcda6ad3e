"""MIDAM in a `LightningModule`: Lightning's `Trainer` moves, saves, resumes and distributes it.

    pip install midam lightning
    python examples/lightning_trainer.py --folder runs/lightning
    python examples/lightning_trainer.py --folder runs/lightning --epochs 12      # continues from the last checkpoint

`--devices 2 --strategy ddp` trains in two processes. The bags are the bags of examples/torch_loop.py.
"""

import argparse
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader
from torch_loop import Network, digit_bags  # the file next to this one

import midam


class BagModel(lightning.LightningModule):
    """Network, tracked pooling and loss, with all their state in the checkpoint."""

    def __init__(self, num_bags: int) -> None:
        super().__init__()
        self.network = Network()
        self.pool = midam.nn.TrackedPooling("attention", num_bags=num_bags)
        self.loss_fn = midam.nn.MinMaxAUCLoss()

    def training_step(self, batch, _):
        """Return the loss of some instances of some bags."""
        x, y, index = batch
        z, v = self.network(x)
        return self.loss_fn(self.pool(z, v, index), y)

    def on_train_batch_end(self, *_) -> None:
        """Commit the tracked state after the optimizer step."""
        midam.nn.commit(self.pool, self.loss_fn)

    def configure_optimizers(self):
        """Return an optimizer of all parameters, including the centers of the loss."""
        return torch.optim.Adam(self.parameters(), lr=5e-3)


class Bags(lightning.LightningDataModule):
    """The training bags; the batch sampler depends on the processes, so it is made after they have started."""

    def __init__(self) -> None:
        super().__init__()
        bags, self.labels = digit_bags(200, seed=0, test=False)
        self.train = midam.data.BagDataset(bags, self.labels, num_instances=8)

    def train_dataloader(self) -> DataLoader:
        """Return batches of 8 positive and 8 negative bags, distributed over the processes."""
        ranks = {"rank": self.trainer.global_rank, "num_ranks": self.trainer.world_size}
        self.batches = midam.data.BalancedBags(self.labels, num_positive=8, num_negative=8, **ranks)
        if self.trainer.ckpt_path:
            self.batches.load_state_dict(self.loaded)
        return DataLoader(self.train, batch_sampler=self.batches)

    def state_dict(self):
        """Return the position in the batches, for the checkpoint."""
        return self.batches.state_dict()

    def load_state_dict(self, state) -> None:
        """Keep the position in the batches from a checkpoint."""
        self.loaded = state


def main() -> None:
    """Train, or continue from a checkpoint if there is one, then score the test bags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/lightning"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--strategy", default="auto")
    options = parser.parse_args()
    lightning.seed_everything(0)
    data = Bags()
    model = BagModel(num_bags=len(data.train))
    last = lightning.pytorch.callbacks.ModelCheckpoint(options.folder, save_last=True)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator=options.accelerator,
        devices=options.devices,
        strategy=options.strategy,
        callbacks=[last],
        default_root_dir=options.folder,
        logger=False,
        use_distributed_sampler=False,  # `BalancedBags` distributes the bags
        enable_progress_bar=False,
    )
    checkpoint = options.folder / "last.ckpt"
    if checkpoint.exists():
        print(f"continues from {checkpoint}")
    trainer.fit(model, data, ckpt_path=str(checkpoint) if checkpoint.exists() else None)

    if trainer.is_global_zero:
        model.eval()
        bags, labels = digit_bags(100, seed=1, test=True)
        test = midam.data.BagDataset(bags, labels)
        scores = [model.pool.evaluate(model.network(x) for x in test.chunks(i)).item() for i in range(len(test))]
        seen = int(model.pool.bag_state[:, 0].sum())
        print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(test)} bags, after {seen} visits of training bags")


if __name__ == "__main__":
    main()
