"""Parts of anybody's, under new names: they train, are checkpointed, resume bit for bit, and run as trials."""

import numpy as np
import pytest
import torch
from torch import Tensor

from midam import registry
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.methods.names import method_settings
from midam.nn import Pooling, ScorePooling
from midam.nn.objectives import Objective
from midam.nn.scorer import BagOutput
from midam.settings import Settings
from midam.train.checkpoint import load_checkpoint, save_checkpoint
from midam.train.estimators import Estimator, encoded_sample
from midam.train.side import Trial, train_trials
from midam.train.trainer import Trainer


class TailAUC(Objective):
    """Toward the AUC at low false-positive rates: each positive bag has a threshold (a dual) of its own."""

    name = "tail-auc"
    rates = ("dual_lr",)
    thresholds: Tensor

    def __init__(self, *, num_bags: int, margin: float, dual_lr: float, part: float = 0.5) -> None:
        super().__init__()
        self.margin, self.dual_lr, self.part = margin, dual_lr, part
        self.register_buffer("thresholds", torch.zeros(num_bags))

    def loss(self, h, labels, *, weights, index):
        violation = torch.relu(self.margin - (h.unsqueeze(1) - h.unsqueeze(0))) ** 2
        own = self.thresholds[index]
        excess = violation - own.unsqueeze(1)
        over = (torch.relu(excess) * weights.negative).sum(dim=1)
        # d/dthreshold of `threshold + over / part`.
        slope = 1 - ((excess > 0) * weights.negative).sum(dim=1).detach() / self.part
        stepped = torch.where(labels > 0, (own - self.dual_lr * slope).clamp(min=0), own)
        new = self.thresholds.index_copy(0, index, stepped)
        return (weights.positive * (own + over / self.part)).sum(), {"thresholds": new}


class Remembered(Estimator):
    """Pools the sample together with the statistic of the bag's last visit, half and half."""

    name = "remembered"
    needs_trackable = True
    memory: Tensor

    def __init__(self, *, num_bags: int, value_size: int, weight: float = 0.5) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("memory", torch.zeros(num_bags, 1 + value_size))
        self._proposed = None

    def forward(self, model, batch):
        stat = model.pooling.statistic.sample(*encoded_sample(model, batch), mask=batch.mask)
        now = torch.cat([stat.l.unsqueeze(1), stat.r], dim=1)
        mixed = (1 - self.weight) * now + self.weight * self.memory[batch.index]
        self._proposed = batch.index, now.detach()
        return BagOutput(mixed[:, 0], mixed[:, 1:], stat.n, model.pooling)

    def commit(self, loss):
        index, now = self._proposed
        self.memory.index_copy_(0, index, torch.where(torch.isfinite(loss), now, self.memory[index]))


class Softened(ScorePooling):
    """Half the mean, half of it squared: whatever torch can run."""

    name = "softened"

    def __init__(self, in_features: int, *, sharpness: float = 0.5, squash: bool = True) -> None:
        super().__init__(in_features, squash=squash)
        self.sharpness = torch.nn.Parameter(torch.tensor(sharpness))

    def pooled(self, l, r):  # noqa: E741
        share = torch.sigmoid(self.sharpness)
        return share * r.squeeze(-1) + (1 - share) * r.squeeze(-1) ** 2


PARTS = [
    ("objective", registry.OBJECTIVES, TailAUC, {"objective_args": {"part": 0.3}}),
    ("estimator", registry.ESTIMATORS, Remembered, {"estimator_args": {"weight": 0.25}}),
    ("pooling", registry.POOLINGS, Softened, {"pooling_args": {"sharpness": 0.1}}),
]
part = pytest.mark.parametrize(("kind", "known", "made", "arguments"), PARTS, ids=[row[0] for row in PARTS])


def make_bags(number=24, *, width=5):
    rng = np.random.default_rng(0)
    labels = np.arange(number) % 2
    parts = [rng.normal(size=(int(rng.integers(2, 9)), width)).astype(np.float32) for _ in labels]
    for bag, label in zip(parts, labels, strict=True):
        bag[-1] += 2 * label
    return Bags.from_list(parts, labels)


def make_config(**settings):
    return Settings(**{"epochs": 4, "num_positive": 4, "num_negative": 4, "num_instances": 3, "members": 1} | settings)


@pytest.fixture
def named(kind, known, made):
    known.add(f"new-{kind}", made)
    yield f"new-{kind}"
    known.remove(f"new-{kind}")


def train(trainer, epochs):
    while trainer.epoch < epochs:
        trainer.train_epoch()
    return trainer


def flat(state):
    if isinstance(state, dict):
        return [leaf for value in state.values() for leaf in flat(value)]
    if isinstance(state, list):
        return [leaf for value in state for leaf in flat(value)]
    return [state]


@part
def test_a_part_of_anybodys_trains_is_saved_and_resumes(kind, made, arguments, named, tmp_path):
    bags = make_bags()
    config = Settings.from_flat(make_config(**{kind: named}, **arguments).flat())
    whole = train(Trainer(config, bags), 4)
    first = train(Trainer(config, bags), 2)
    save_checkpoint(tmp_path / "c.pt", {"trainer": first.state_dict(), "config": config.flat()})
    content = load_checkpoint(tmp_path / "c.pt")
    resumed = Trainer(Settings.from_flat(content["config"]), bags)
    resumed.load_state_dict(content["trainer"])
    train(resumed, 4)
    pairs = list(zip(flat(resumed.state_dict()), flat(whole.state_dict()), strict=True))
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)
    assert not np.array_equal(predict(whole.model, bags), predict(train(Trainer(make_config(), bags), 4).model, bags))


@part
def test_a_trial_of_it_is_a_trainer_of_its_own(kind, named, arguments):
    bags, config = make_bags(), make_config(**{kind: named}, **arguments)
    trials = [Trial(np.arange(22), np.array([22, 23]), seed) for seed in range(2)]
    for trial, found in zip(trials, train_trials(config, bags, trials), strict=True):
        trainer = train(Trainer(config.replace(seed=trial.seed), bags.subset(trial.train)), 4)
        np.testing.assert_array_equal(found.scores[0], predict(trainer.model, bags.subset(trial.score)))


def test_the_state_of_an_objective_has_a_row_a_bag_and_a_lost_batch_leaves_it_alone():
    objective = TailAUC(num_bags=6, margin=1.0, dual_lr=0.5)
    output = BagOutput(torch.zeros(4), torch.tensor([[2.0], [0.5], [1.5], [0.1]]), torch.ones(4), Sum(1))
    labels, index = torch.tensor([1, 1, 0, 0]), torch.tensor([5, 2, 0, 3])
    loss = objective(output, labels, index=index)
    assert not objective.thresholds.any()
    objective.commit(torch.tensor(torch.nan))
    assert not objective.thresholds.any()
    loss = objective(output, labels, index=index)
    objective.commit(loss)
    assert set(objective.thresholds.nonzero().flatten().tolist()) <= {5, 2}
    assert objective.thresholds.any()


class Sum(Pooling):
    """Scores a bag by its value."""

    def score(self, l, r, n):  # noqa: E741
        return r.squeeze(-1)


def test_a_method_is_named_by_its_three_parts(monkeypatch):
    monkeypatch.setitem(registry.POOLINGS._added, "softened", Softened)
    assert method_settings("bce+exact+softened")["pooling"] == "softened"


@pytest.mark.parametrize("kind", ["pooling", "estimator", "objective", "encoder"])
def test_an_unknown_name_is_refused_when_settings_are_made(kind):
    with pytest.raises(ConfigError, match=f"Expected a known {kind}, got 'zzz'"):
        make_config(**{kind: "zzz"})


KINDS = [registry.POOLINGS, registry.ESTIMATORS, registry.OBJECTIVES, registry.ENCODERS]


@pytest.mark.parametrize("known", KINDS, ids=lambda known: known.kind)
def test_no_class_has_a_default_that_differs_from_the_setting(known):
    settings = vars(Settings())
    # An attention network has a "hidden" of its own; a temperature that nobody sets is the pooling's.
    others = {("pooling", "hidden"), ("pooling", "temperature")}
    for name in known.names():
        for own, parameter in registry.inspect.signature(known.find(name)).parameters.items():
            if own in settings and (known.kind, own) not in others and parameter.default is not parameter.empty:
                value = settings[own]
                assert parameter.default == (tuple(value) if isinstance(value, list) else value), (name, own)
