"""The modules of `midam.nn` in a bare loop train what `midam fit` trains: weights, tracked state, dual variable."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import midam
from midam.data.bags import Bags
from midam.nn import AttentionPooling, TrackedPooling
from midam.nn import objectives as losses
from midam.nn.partial_auc import AveragePrecisionLoss, PartialAUCLoss
from midam.train.trainer import Trainer

BAGS, WIDTH, DRAWN = 24, 6, 4
LOSSES = {
    "minmax-auc": lambda: losses.MinMaxAUCLoss(center_start=0.0, margin=0.8, dual_lr=0.5),
    "pairwise": lambda: losses.PairwiseAUCLoss(margin=0.8),
    "partial-auc": lambda: PartialAUCLoss(num_bags=BAGS, margin=0.8),
    "average-precision": lambda: AveragePrecisionLoss(num_bags=BAGS, margin=0.8),
    "bce": losses.BCELoss,
}


def bags_of(seed: int = 0, *, smallest: int = 2) -> Bags:
    rng = np.random.default_rng(seed)
    labels = np.arange(BAGS) % 2
    rows = [rng.normal(label, 1, size=(rng.integers(smallest, 12), WIDTH)).astype(np.float32) for label in labels]
    return Bags.from_list(rows, labels)


class Head(nn.Module):
    """Somebody's own network: a logit and a value of each instance, or a score alone."""

    def __init__(self, trained: midam.BagScorer) -> None:
        super().__init__()
        layers = trained.encoder.layers
        self.body = nn.Sequential(*[copy.deepcopy(layer) for layer in layers])
        pooling = trained.pooling
        self.value = copy.deepcopy(pooling.scorer)
        attention = isinstance(pooling, AttentionPooling)
        parts = (pooling.hidden, nn.Tanh(), pooling.attention) if attention else ()
        self.logit = nn.Sequential(*copy.deepcopy(nn.ModuleList(parts)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        e = self.body(x)
        if not len(self.logit):
            return self.value(e).squeeze(-1), None
        return self.logit(e).squeeze(-1), self.value(e)


def trained(settings: dict, bags: Bags) -> tuple[Trainer, Trainer]:
    """Two trainers of the same settings; the first has trained an epoch."""
    common = {"members": 1, "epochs": 1, "num_instances": DRAWN, "num_positive": 4, "num_negative": 4, "seed": 3}
    common |= {"optimizer": "sgd", "lr": 0.5, "momentum": 0.1, "weight_decay": 0.0, "hidden": [8]}
    config = midam.Settings(**{**common, "standardize": False, "margin": 0.8, **settings})
    done, fresh = (Trainer(config, bags) for _ in range(2))
    done.train_epoch()
    return done, fresh


def weights_of(scorer: midam.BagScorer) -> torch.Tensor:
    """Weights of a scorer in the order of a `Head` and a pooling."""
    outer = [p for name, p in scorer.pooling.named_parameters() if name == "b_logit"]
    return torch.cat([p.detach().flatten() for p in (*Head(scorer).parameters(), *outer)])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("pooling", "objective", "options"),
    [
        *[("attention", name, {}) for name in LOSSES],
        *[(name, "minmax-auc", {}) for name in ("mean", "smoothed-max", "generalized-mean", "noisy-or", "noisy-and")],
        ("smoothed-max", "bce", {}),
        # Attention has a bias without a gradient: Adam would blow up the rounding there.
        ("smoothed-max", "minmax-auc", {"optimizer": "adam", "lr": 0.01}),
        ("attention", "minmax-auc", {"state_rate": 0.3}),
    ],
)
def test_an_epoch_in_a_bare_loop_is_an_epoch_of_midam_fit(pooling, objective, options):
    bags = bags_of()
    extra = {"dual_lr": 0.5, "center_start": 0.0} if objective == "minmax-auc" else {}
    done, fresh = trained({"pooling": pooling, "objective": objective, **extra, **options}, bags)
    member = fresh.members[0]
    head = Head(fresh.members[0].trained)
    rates = {name: options[name] for name in ("state_rate",) if name in options}
    logits = objective == "bce"
    pool = TrackedPooling(pooling, num_bags=BAGS, sizes=bags.sizes, logits=logits, **rates)
    loss_fn = LOSSES[objective]()
    learned = [*head.parameters(), *pool.parameters(), *loss_fn.parameters()]
    if options.get("optimizer") == "adam":
        optimizer = torch.optim.Adam(learned, lr=options["lr"])
    else:
        optimizer = torch.optim.SGD(learned, lr=0.5, momentum=0.1, dampening=0.1)
    steps = 0
    with member.epoch(0) as batches:
        for batch in batches:
            x, index = batch.x.view(8, DRAWN, WIDTH), batch.index
            z, v = head(x)
            scores = pool(z, v, index, mask=batch.mask)
            loss = loss_fn(scores, torch.from_numpy(bags.labels)[index], index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            midam.nn.commit(pool, loss_fn)
            steps += 1
    assert steps == 3
    start, want = (weights_of(trainer.members[0].trained) for trainer in (fresh, done))
    assert (want - start).abs().max() > 0.01  # it has trained
    ours = torch.cat([p.detach().flatten() for p in (*head.parameters(), *pool.parameters())])
    torch.testing.assert_close(ours, want, rtol=0, atol=1e-6)
    torch.testing.assert_close(pool.bag_state, done.members[0].estimator.bag_state, rtol=1e-5, atol=1e-6)
    for name, value in done.members[0].objective.state_dict().items():
        torch.testing.assert_close(loss_fn.state_dict()[name], value, rtol=1e-5, atol=1e-6)
