"""MIDAM with MONAI: its dataset and transforms cut patches of NIfTI volumes, its DenseNet scores them.

    pip install midam monai nibabel
    python examples/monai_volumes.py --folder runs/volumes

The first call writes 60 small volumes of noise; a positive volume has three bright spots. A volume is a bag, its
patches are the instances. A step encodes 8 random patches of each of 8 volumes; the score of a test volume uses all its
patches.
"""

import argparse
from pathlib import Path

import nibabel
import numpy as np
import torch
from monai.data import CacheDataset, list_data_collate
from monai.networks.nets import DenseNet
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    GridPatchd,
    LoadImaged,
    RandFlipd,
    RandSpatialCropSamplesd,
    ScaleIntensityRanged,
)
from torch.utils.data import DataLoader

import midam

DRAWN, PATCH, SIDE = 8, 16, 48


def write_volumes(folder: Path, count: int = 60) -> list[dict]:
    """Write volumes as files, and return an entry for each as MONAI's transforms need it."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, axis = np.random.default_rng(0), np.arange(SIDE)
    rows = []
    for number in range(count):
        label, path = number % 2, folder / f"volume{number:02}.nii.gz"
        if not path.exists():
            voxels = rng.normal(100, 20, size=(SIDE,) * 3)
            for center in rng.integers(8, SIDE - 8, size=(3 * label, 3)):
                near = sum((grid - c) ** 2 for grid, c in zip(np.meshgrid(axis, axis, axis, indexing="ij"), center))
                voxels += 80 * np.exp(-near / (2 * 3.0**2))
            nibabel.save(nibabel.Nifti1Image(voxels.astype(np.int16), np.eye(4)), path)
        rows.append({"image": str(path), "label": label, "index": number})
    return rows


class Patches(torch.nn.Module):
    """Network that gives a score for each patch, x [K, B, 1, 16, 16, 16] -> [K, B]."""

    def __init__(self) -> None:
        super().__init__()
        # With batch statistics the score of a patch would depend on the other patches; instance normalization avoids
        # this.
        shape = {"init_features": 8, "growth_rate": 8, "block_config": (2, 2)}
        self.encoder = DenseNet(spatial_dims=3, in_channels=1, out_channels=1, norm="instance", **shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores before the sigmoid."""
        return self.encoder(x.flatten(0, -5)).view(x.shape[:-4])


def main() -> None:
    """Train on 40 volumes and score 20 other volumes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/volumes"))
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = write_volumes(options.folder)
    read = [LoadImaged("image"), EnsureChannelFirstd("image"), ScaleIntensityRanged("image", 40, 200, -1, 1)]
    cut = [RandSpatialCropSamplesd("image", PATCH, num_samples=DRAWN, random_size=False), RandFlipd("image", prob=0.5)]
    train = CacheDataset(rows[:40], Compose([*read, *cut]), progress=False)
    whole = CacheDataset(rows[40:], Compose([*read, GridPatchd("image", (PATCH,) * 3)]), progress=False)
    batches = midam.data.BalancedBags([row["label"] for row in rows[:40]], num_positive=4, num_negative=4)
    loader = DataLoader(train, batch_sampler=batches, collate_fn=list_data_collate)

    network = Patches()
    pool = midam.nn.TrackedPooling("smoothed-max", num_bags=len(train))
    loss_fn = midam.nn.MinMaxAUCLoss()
    optimizer = torch.optim.Adam([*network.parameters(), *loss_fn.parameters()], lr=1e-2)
    for _ in range(options.epochs):
        for batch in loader:  # the patches of a volume are consecutive rows
            x = batch["image"].as_tensor().unflatten(0, (-1, DRAWN))
            y, index = batch["label"][::DRAWN], batch["index"][::DRAWN]
            loss = loss_fn(pool(network(x), index=index), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)

    network.eval()
    labels = [row["label"] for row in rows[40:]]
    scores = [pool.evaluate(network(x) for x in volume["image"].as_tensor().split(8)).item() for volume in whole]
    print(f"test AUROC {midam.auroc(labels, scores):.3f} on {len(whole)} volumes")


if __name__ == "__main__":
    main()
