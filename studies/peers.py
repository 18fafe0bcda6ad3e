"""Methods of other libraries: LibAUC 2.0.1's MIDAM, torchmil's ABMIL, and the networks of mikit-learn 1.0.6.

`libauc-midam-att` and `libauc-midam-smx` run through LibAUC's own loss, optimizer and network.
Settings are those of its tutorial: learning rate 0.01, margin 1, gamma 0.9, tau 0.1, momentum 0.1, weight decay 1e-4,
batches of 8 + 8 bags, 4 instances per bag, 100 epochs, with lower rates after 50 and 75. Features are standardized by
the training instances. Nothing is tuned or selected; the weights of the last epoch are tested.

LibAUC's packages import torchvision, torch_geometric and more, so only the required files are imported, under empty
parent packages. No code of LibAUC is changed or copied.

`torchmil-abmil` (Ilse et al. 2018) runs through torchmil's own loss, optimizer and network.
It trains with cross-entropy on whole bags, padded and masked by its own collate function; a linear layer of 512 with
ReLU precedes it; Adam at 1e-3, weight decay 1e-4, batches of 16 bags, 100 epochs. Features are standardized by
the training instances. Nothing is selected; the weights of the last epoch are tested.

`mikit-mean` and `mikit-attention` (Zankov et al. 2025) run as the documentation of mikit-learn shows: features are
scaled to the range of the training instances, three layers of 256, 128 and 64, AdamW at 1e-3, at most 1000 epochs,
stopped when the loss on a fifth of the training bags has not fallen for ten.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from midam.data.bags import Bags
from midam.data.sampling import BagSampler
from midam.errors import ConfigError, install
from midam.methods.method import Baseline, Scores
from midam.registry import BASELINES
from midam.train.side import Trial
from studies.tabular.instance_methods import standardized_tensors

# Not `libauc`: an installed LibAUC stays reachable. Its files import each other relatively, so any name will do.
ROOT = "_peer_libauc"
PACKAGES = ("losses", "optimizers", "utils", "models", "metrics")

_LOWERED = (50, 75)
_TAU = 0.1
_CPU = torch.device("cpu")
_EPOCHS, _WIDTH, _BATCH = 100, 512, 16


class LibAUCAttention(Baseline):
    """`libauc-midam-att`: LibAUC's attention pooling."""

    uses_torch = True
    lacks = "it is a network of LibAUC, which a run does not hold"
    loss: ClassVar[dict[str, Any]] = {"mode": "attention"}
    modes = ("att", "att")  # modes of its sampling and its aggregation
    lr = 0.01
    num_instances = 4  # sampled from each bag

    def __init__(self) -> None:
        load_libauc()

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the last epoch."""
        peer = load_libauc()
        train, score = self.tensors(bags, trial)
        y = bags.require_labels()[trial.train]
        labels = torch.from_numpy(y).float().view(-1, 1)
        sampler = BagSampler(y, bags.sizes[trial.train], num_instances=None, seed=trial.seed)
        pooled = {"tau": _TAU, "device": _CPU}
        # LibAUC's network prints.
        with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(trial.seed)
            model = self.network(peer, train[0].shape[1])
            loss_fn = peer.mil.MIDAMLoss(data_len=len(train), margin=1.0, gamma=0.9, device=_CPU, **self.loss)
            optimizer = peer.midam.MIDAM(
                model.parameters(), loss_fn=loss_fn, lr=self.lr, momentum=0.1, weight_decay=1e-4, device=_CPU
            )
            drawing = {"instance_batch_size": self.num_instances, "mode": self.modes[0], **pooled}
            sample = partial(peer.paper_utils.MIL_sampling, model=model, **drawing)
            for epoch in range(_EPOCHS):
                if epoch in _LOWERED:
                    optimizer.update_lr(decay_factor=10)
                    loss_fn.update_smoothing(decay_factor=2)
                for index in sampler.epoch().bags:
                    drawn = self.join([sample(train[i]) for i in index.tolist()])
                    loss = loss_fn(y_pred=drawn, y_true=labels[index], index=index)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        aggregate = partial(peer.paper_utils.MIL_aggregation, model=model, mode=self.modes[1], **pooled)
        with torch.no_grad():
            return np.array([aggregate(x).item() for x in score])

    def tensors(self, bags: Bags, trial: Trial) -> list[list[torch.Tensor]]:
        """Return training and scored bags as tensors."""
        return standardized_tensors(bags, trial)

    def network(self, peer: SimpleNamespace, width: int) -> Any:
        """Return LibAUC's network for instances of a width."""
        return peer.mil_models.FFNN_stoc_att(input_dim=width, hidden_sizes=(width,), num_classes=1)

    def join(self, pooled: list[Any]) -> Any:
        """Join sampled poolings in the form that LibAUC's loss takes."""
        return [torch.cat([p[k].view(1, 1) for p in pooled]) for k in range(2)]


class LibAUCSmoothedMax(LibAUCAttention):
    """`libauc-midam-smx`: LibAUC's smoothed maximum."""

    loss: ClassVar[dict[str, Any]] = {"mode": "softmax", "tau": _TAU}
    modes = ("exp", "softmax")

    def network(self, peer: SimpleNamespace, width: int) -> Any:
        """Return LibAUC's network for instances of a width."""
        return peer.mil_models.FFNN(input_dim=width, hidden_sizes=(width,), last_activation="sigmoid", num_classes=1)

    def join(self, pooled: list[Any]) -> Any:
        """Join sampled poolings in the form that LibAUC's loss takes."""
        return torch.cat(pooled).view(-1, 1)


def libauc_folder() -> Path | None:
    """Return the folder of the package `libauc`: ``MIDAM_LIBAUC``, else the installed package's, else PREFIX/libauc."""
    if named := os.environ.get("MIDAM_LIBAUC"):
        places = [Path(named)]
    else:
        spec = importlib.util.find_spec("libauc")
        installed = [] if spec is None or spec.origin is None else [Path(spec.origin).parents[1]]
        places = [*installed, Path(sys.prefix) / "libauc"]
    return next((place for place in places if (place / "libauc" / "losses" / "mil.py").is_file()), None)


def load_libauc() -> SimpleNamespace:
    """Import `mil`, `midam`, `utils`, `paper_utils` and `mil_models` of LibAUC 2.0.1, or raise a `ConfigError`.

    They run unpatched on torch 2.13, which still has the `torch.optim.optimizer.required` that the optimizer imports.
    """
    folder = libauc_folder()
    if folder is None:
        raise ConfigError(
            "Expected LibAUC 2.0.1, got none; run `pip install --no-deps --target DIR libauc==2.0.1` and set "
            "MIDAM_LIBAUC=DIR."
        )
    for name in ("", *PACKAGES):
        # An empty package for the modules of the folder, so that its `__init__.py` never runs.
        package = ModuleType(f"{ROOT}.{name}".rstrip("."))
        package.__path__ = [str(folder / "libauc" / name)]
        sys.modules.setdefault(package.__name__, package)
    # Only LibAUC's recommenders use tqdm; if tqdm is missing, an empty module replaces it during the import.
    stub = None if importlib.util.find_spec("tqdm") else ModuleType("tqdm")
    if stub is not None:
        stub.__dict__.update(tqdm=iter, trange=range)
        sys.modules["tqdm"] = stub
    try:
        metrics = importlib.import_module(f"{ROOT}.metrics.metrics_k")
        sys.modules[f"{ROOT}.metrics"].__dict__.update(ndcg_at_k=metrics.ndcg_at_k, map_at_k=metrics.map_at_k)
        parts = {"utils": "utils.utils", "paper_utils": "utils.paper_utils", "mil": "losses.mil"}
        parts |= {"midam": "optimizers.midam", "mil_models": "models.mil_models"}
        return SimpleNamespace(**{n: importlib.import_module(f"{ROOT}.{path}") for n, path in parts.items()})
    finally:
        if stub is not None:
            del sys.modules["tqdm"]


class TorchMILABMIL(Baseline):
    """`torchmil-abmil`: torchmil's attention-based pooling."""

    uses_torch = True
    lacks = "it is a network of torchmil, which a run does not hold"

    def __init__(self) -> None:
        load_torchmil()

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the last epoch."""
        return self.score_with_instances(bags, trial)[0]

    def score_with_instances(self, bags: Bags, trial: Trial) -> tuple[Scores, Scores]:
        """Return the scores of the last epoch, and what torchmil calls the predictions of instances.

        These are the attention values of all instances before normalization, bag after bag.
        """
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
            logits, attention = zip(*(model(x.unsqueeze(0), return_att=True) for x in score), strict=True)
        return np.array([logit.item() for logit in logits]), torch.cat(attention, dim=1)[0].double().numpy()


def load_torchmil() -> tuple[ModuleType, ModuleType]:
    """Import `models` and `data` of torchmil; raise a `ConfigError` if it, or a package that it needs, is missing."""
    try:
        return importlib.import_module("torchmil.models"), importlib.import_module("torchmil.data")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Expected torchmil and the packages that it needs for torchmil-abmil, got no package {error.name}; "
            f"{install('peers')}, or install the missing package alone."
        ) from None


class MikitMean(Baseline):
    """`mikit-mean`: the network of mikit-learn with the mean of the vectors of a bag."""

    uses_torch = True
    lacks = "it is a network of mikit-learn, which a run does not hold"
    network = "BagNetworkClassifier"

    def __init__(self) -> None:
        load_mikit()

    def score(self, bags: Bags, trial: Trial) -> Scores:
        """Return the scores of the network."""
        with self.fitted(bags, trial) as (network, score):
            scores: Scores = network.predict(score).astype(np.float64)
        return scores

    @contextlib.contextmanager
    def fitted(self, bags: Bags, trial: Trial) -> Iterator[tuple[Any, list[Scores]]]:
        """Yield the trained network, and the scored bags as it takes them; without its warnings."""
        classifiers, preprocessing = load_mikit()
        train, score = (
            [np.asarray(bags[i], np.float64).reshape(bags.sizes[i], -1) for i in own]
            for own in (trial.train, trial.score)
        )
        scaler = preprocessing.BagMinMaxScaler().fit(train)
        labels = bags.require_labels()[trial.train].tolist()
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
            network = getattr(classifiers, self.network)(random_seed=trial.seed)
            network.fit(scaler.transform(train), labels)
            yield network, scaler.transform(score)


class MikitAttention(MikitMean):
    """`mikit-attention`: its network with additive attention."""

    network = "AdditiveAttentionNetworkClassifier"

    def score_with_instances(self, bags: Bags, trial: Trial) -> tuple[Scores, Scores]:
        """Return the scores of the network, and its attention weights of all instances, bag after bag."""
        with self.fitted(bags, trial) as (network, score):
            scores, weights = network.predict(score), network.get_instance_weights(score)
        return scores.astype(np.float64), np.concatenate(weights)[:, 0].astype(np.float64)


def load_mikit() -> tuple[ModuleType, ModuleType]:
    """Import the classifiers and the scalers of mikit-learn; raise a `ConfigError` if a package is missing."""
    try:
        modules = ("milearn.network.classifier", "milearn.preprocessing")
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(modules[0]), importlib.import_module(modules[1])
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Expected mikit-learn and the packages that it needs, got no package {error.name}; run "
            "`pip install --no-deps mikit-learn==1.0.6 lightning pytorch-lightning torchmetrics`."
        ) from None


PEERS: Mapping[str, type[Baseline]] = {
    "libauc-midam-att": LibAUCAttention,
    "libauc-midam-smx": LibAUCSmoothedMax,
    "torchmil-abmil": TorchMILABMIL,
    "mikit-mean": MikitMean,
    "mikit-attention": MikitAttention,
}
for _name, _peer in PEERS.items():
    BASELINES.add(_name, _peer)


def installed_peers(names: Iterable[str] = PEERS) -> tuple[str, ...]:
    """Return the methods whose library is installed."""
    return tuple(name for name in names if _installed(name))


def _installed(peer: str) -> bool:
    try:
        BASELINES.find(peer)()
    except ConfigError:
        return False
    return True
