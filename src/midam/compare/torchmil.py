"""torchmil's ABMIL (Ilse et al. 2018), `torchmil-abmil`, run through its own loss, optimizer and network.

Cross-entropy on whole bags, padded and masked by its own collate function; a linear layer of 512 with ReLU before it,
Adam at 1e-3, weight decay 1e-4, batches of 16 bags, 100 epochs. Features are standardized by the training instances.
Nothing is selected; the weights of the last epoch score.
"""

import importlib
from types import ModuleType

import numpy as np
import torch

from midam.compare.baselines import Baseline, Scores, standardized_tensors
from midam.data.bags import Bags
from midam.errors import ConfigError, install
from midam.train.lockstep import Trial

_EPOCHS, _WIDTH, _BATCH = 100, 512, 16


class TorchMILABMIL(Baseline):
    """`torchmil-abmil`."""

    uses_torch = True
    lacks = "it is a network of torchmil, which the run would need to score"

    def __init__(self) -> None:
        load_torchmil()

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Scores of the last epoch."""
        models, data = load_torchmil()
        train, score = standardized_tensors(bags, trial)
        labels = torch.from_numpy(bags.require_labels()[trial.train]).float()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(trial.seed)
            width = train[0].shape[1]
            features = torch.nn.Sequential(torch.nn.Linear(width, _WIDTH), torch.nn.ReLU())
            model = models.ABMIL(in_shape=(width,), feat_ext=features)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
            for _ in range(_EPOCHS):
                order = torch.randperm(len(train)).tolist()
                for low in range(0, len(order), _BATCH):
                    batch = data.collate_fn([{"X": train[i], "Y": labels[i]} for i in order[low : low + _BATCH]])
                    _, losses = model.compute_loss(batch["Y"], batch["X"], batch["mask"])
                    optimizer.zero_grad()
                    sum(losses.values()).backward()
                    optimizer.step()
        model.eval()
        with torch.no_grad():
            return np.array([model(x.unsqueeze(0)).item() for x in score])


def load_torchmil() -> tuple[ModuleType, ModuleType]:
    """Modules `models` and `data` of torchmil; a `ConfigError` where it, or a package that it needs, is missing."""
    try:
        return importlib.import_module("torchmil.models"), importlib.import_module("torchmil.data")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Expected torchmil and what it needs for torchmil-abmil, got no package {error.name}; "
            f"{install('peers')}, or install the missing package alone."
        ) from None
