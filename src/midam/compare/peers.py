"""Other libraries' models, run through their own loss, optimizer and network.

- `libauc-midam-att`, `libauc-midam-smx`: LibAUC 2.0.1, the settings of its tutorial: learning rate 0.01, margin 1,
  gamma 0.9, tau 0.1, momentum 0.1, weight decay 1e-4, batches of 8 + 8 bags, 4 instances a bag, 100 epochs, the rates
  lowered after 50 and 75.
- `torchmil-abmil`: torchmil's ABMIL (Ilse et al. 2018) with its own cross-entropy on whole bags, padded and masked by
  its own collate function; a linear layer of 512 with ReLU before it, Adam at 1e-3, weight decay 1e-4, batches of 16
  bags, 100 epochs.

Features are standardised by the training instances. Nothing is tuned or selected; the weights of the last epoch score.
"""

import contextlib
import importlib
import io
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from midam.compare.baselines import Runner, Scores, standardised_bags
from midam.compare.libauc import load_libauc
from midam.data.bags import Bags
from midam.data.sampling import BagSampler
from midam.errors import ConfigError
from midam.train.lockstep import Trial

_EPOCHS = 100
_LOWERED = (50, 75)
_TAU = 0.1
_CPU = torch.device("cpu")
_ABMIL_WIDTH, _ABMIL_BATCH = 512, 16


def libauc_attention(bags: Bags, trial: Trial) -> Scores:
    """Scores of `libauc-midam-att`."""
    return _libauc(bags, trial, attention=True)


def libauc_smoothed_max(bags: Bags, trial: Trial) -> Scores:
    """Scores of `libauc-midam-smx`."""
    return _libauc(bags, trial, attention=False)


def torchmil_abmil(bags: Bags, trial: Trial) -> Scores:
    """Scores of `torchmil-abmil`."""
    models, data = load_torchmil()
    train, score = (_tensors(part) for part in standardised_bags(bags, trial))
    labels = torch.from_numpy(bags.require_labels()[trial.train]).float()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(trial.seed)
        width = train[0].shape[1]
        features = torch.nn.Sequential(torch.nn.Linear(width, _ABMIL_WIDTH), torch.nn.ReLU())
        model = models.ABMIL(in_shape=(width,), feat_ext=features)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
        for _ in range(_EPOCHS):
            order = torch.randperm(len(train)).tolist()
            for low in range(0, len(order), _ABMIL_BATCH):
                batch = data.collate_fn([{"X": train[i], "Y": labels[i]} for i in order[low : low + _ABMIL_BATCH]])
                _, losses = model.compute_loss(batch["Y"], batch["X"], batch["mask"])
                optimizer.zero_grad()
                sum(losses.values()).backward()
                optimizer.step()
    model.eval()
    with torch.no_grad():
        return np.array([model(x.unsqueeze(0)).item() for x in score])


def load_torchmil() -> tuple[ModuleType, ModuleType]:
    """Return torchmil's modules `models` and `data`.

    Raises
    ------
    ConfigError
        torchmil, or a package that it needs, is not installed.
    """
    try:
        return importlib.import_module("torchmil.models"), importlib.import_module("torchmil.data")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Expected torchmil and what it needs for torchmil-abmil, got no package {error.name}; install "
            "midam[peers], or the missing package alone."
        ) from None


PEERS: dict[str, Runner] = {
    "libauc-midam-att": libauc_attention,
    "libauc-midam-smx": libauc_smoothed_max,
    "torchmil-abmil": torchmil_abmil,
}


def check_peer(name: str) -> None:
    """Load the library that a peer needs.

    Raises
    ------
    ConfigError
        If it is not installed.
    """
    if name.startswith("libauc"):
        load_libauc()
    else:
        load_torchmil()


def _libauc(bags: Bags, trial: Trial, *, attention: bool) -> Scores:
    peer = load_libauc()
    train, score = (_tensors(part) for part in standardised_bags(bags, trial))
    y = bags.require_labels()[trial.train]
    labels = torch.from_numpy(y).float().view(-1, 1)
    sampler = BagSampler(y, bags.sizes[trial.train], num_instances=None, seed=trial.seed)
    # Its network prints.
    with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(trial.seed)
        model, loss_fn = _libauc_parts(peer, width=train[0].shape[1], bags=len(train), attention=attention)
        optimizer = peer.midam.MIDAM(
            model.parameters(), loss_fn=loss_fn, lr=0.01, momentum=0.1, weight_decay=1e-4, device=_CPU
        )
        for epoch in range(_EPOCHS):
            if epoch in _LOWERED:
                optimizer.update_lr(decay_factor=10)
                loss_fn.update_smoothing(decay_factor=2)
            for index in sampler.epoch().bags:
                pooled = _libauc_sample(peer, model, [train[i] for i in index.tolist()], attention=attention)
                loss = loss_fn(y_pred=pooled, y_true=labels[index], index=index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    mode = "att" if attention else "softmax"
    with torch.no_grad():
        found = [peer.paper_utils.MIL_aggregation(x, model, mode=mode, tau=_TAU, device=_CPU) for x in score]
    return np.array([value.item() for value in found])


def _libauc_parts(peer: SimpleNamespace, *, width: int, bags: int, attention: bool) -> tuple[Any, Any]:
    """Network and loss."""
    shared = {"data_len": bags, "margin": 1.0, "gamma": 0.9, "device": _CPU}
    if attention:
        network = peer.mil_models.FFNN_stoc_att(input_dim=width, hidden_sizes=(width,), num_classes=1)
        return network, peer.mil.MIDAMLoss(mode="attention", **shared)
    network = peer.mil_models.FFNN(input_dim=width, hidden_sizes=(width,), last_activation="sigmoid", num_classes=1)
    return network, peer.mil.MIDAMLoss(mode="softmax", tau=_TAU, **shared)


def _libauc_sample(peer: SimpleNamespace, model: Any, drawn: list[Tensor], *, attention: bool) -> Any:
    """What its loss takes: its sampled pooling, a bag after the other."""
    mode = "att" if attention else "exp"
    pooled = [
        peer.paper_utils.MIL_sampling(x, model, instance_batch_size=4, mode=mode, tau=_TAU, device=_CPU) for x in drawn
    ]
    if attention:
        return [torch.cat([p[k].view(1, 1) for p in pooled]) for k in range(2)]
    return torch.cat(pooled).view(-1, 1)


def _tensors(bags: list[Scores]) -> list[Tensor]:
    return [torch.from_numpy(x.astype(np.float32)) for x in bags]
