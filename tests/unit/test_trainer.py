import copy

import numpy as np
import pytest
import torch
from tests.trainings import outcome_bags, train, weights, witness_bags

from midam.data.bags import Bags
from midam.errors import BagDataError, CheckpointError, ConfigError, DivergedError, OneClassError, StaleStateError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from midam.train.trainer import Trainer, build_training, make_fabric


def make_config(**settings):
    return Settings(**{"epochs": 4, "num_positive": 4, "num_negative": 4, "num_instances": 3, **settings})


def scaler_of(trainer):
    return trainer.members[0].model.standardizer


def test_a_row_an_epoch_with_the_schedule_of_the_rates():
    trainer = train(
        Trainer(make_config(lr=0.01, state_rate=0.8, dual_lr=0.5), witness_bags(), witness_bags(10, seed=1))
    )
    rows = trainer.history
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert list(rows[0]) == ["epoch", "lr", "state_rate", "dual_lr", "loss", "train_auroc", "val_auroc"]
    np.testing.assert_allclose([row["lr"] for row in rows], [0.01, 0.01, 0.001, 0.0001], rtol=1e-12)
    np.testing.assert_allclose([row["state_rate"] for row in rows], [0.8, 0.8, 0.4, 0.2], rtol=1e-12)
    np.testing.assert_allclose([row["dual_lr"] for row in rows], [0.5, 0.5, 0.25, 0.125], rtol=1e-12)
    member = trainer.members[0]
    assert member.optimizer.param_groups[0]["lr"] == rows[-1]["lr"]
    assert (member.estimator.state_rate, member.objective.dual_lr) == (rows[-1]["state_rate"], rows[-1]["dual_lr"])


def test_rates_that_a_method_lacks_are_absent():
    trainer = Trainer(make_config(estimator="minibatch", objective="bce"), witness_bags())
    assert "state_rate" not in trainer.train_epoch()
    assert "dual_lr" not in trainer.history[0]


def test_the_validation_column_is_the_auroc_of_whole_bags():
    val = witness_bags(10, seed=1)
    trainer = Trainer(make_config(), witness_bags(), val)
    row = trainer.train_epoch()
    assert row["val_auroc"] == auroc(val.require_labels(), predict(trainer.model, val))


def _of_one_set(tmp_path):
    everything = witness_bags(34)
    return everything.subset(np.arange(24)), everything.subset(np.arange(24, 34))


def _of_two_sets(tmp_path):
    return witness_bags(24), witness_bags(10, seed=1)


def _on_disk_and_in_memory(tmp_path):
    disk, memory = _of_two_sets(tmp_path)
    np.save(tmp_path / "instances.npy", disk.instances)
    return disk.replace(instances=np.load(tmp_path / "instances.npy", mmap_mode="r")), memory


def _in_memory_and_on_disk(tmp_path):
    return _on_disk_and_in_memory(tmp_path)[::-1]


@pytest.mark.parametrize("parts", [_of_one_set, _of_two_sets, _on_disk_and_in_memory, _in_memory_and_on_disk])
@pytest.mark.parametrize("settings", [{}, {"standardize": False}, {"resident": False}], ids=str)
def test_scores_while_training_are_those_of_a_prediction(parts, settings, tmp_path):
    own, others = parts(tmp_path)
    trainer = Trainer(make_config(members=2, **settings), own, others)
    trainer.train_epoch()
    np.testing.assert_array_equal(trainer.scores(others, trainer.reader(others)), predict(trainer.model, others))
    assert trainer.history[0]["val_auroc"] == auroc(others.require_labels(), predict(trainer.model, others))
    one_set = parts is _of_one_set and "resident" not in settings
    assert (trainer.reader(others).all is trainer.reader(own).all is not None) == one_set


def test_validation_changes_nothing():
    alone, beside = (
        Trainer(make_config(), witness_bags()),
        Trainer(make_config(), witness_bags(), witness_bags(10, seed=1)),
    )
    assert torch.equal(weights(train(alone)), weights(train(beside)))
    assert {row["val_auroc"] for row in alone.history} == {None}
    assert alone.best_epoch is None


def test_validation_bags_of_one_class_have_no_auroc():
    val = witness_bags(10, seed=1)
    trainer = Trainer(make_config(), witness_bags(), val.subset(np.flatnonzero(val.labels == 1)))
    assert trainer.train_epoch()["val_auroc"] is None


def test_patience_counts_from_the_best_epoch(monkeypatch):
    values = iter([0.6, 0.7, 0.7, 0.5, 0.6, 0.9])
    trainer = Trainer(make_config(epochs=20, patience=2), witness_bags(), witness_bags(10, seed=1))
    monkeypatch.setattr(trainer, "_validate", lambda: next(values))
    train(trainer)
    # Of equals the later one is the best; patience counts the epochs without a better one than the second.
    assert (trainer.epoch, trainer.best_epoch) == (4, 3)


def test_callbacks_see_each_epoch_and_may_stop_the_training():
    config, seen = make_config(epochs=5), []

    def stop_at_three(trainer, row):
        if row["epoch"] == 3:
            trainer.stop()

    def note(trainer, row):
        seen.append((trainer.epoch, row["loss"]))

    trainer = Trainer(config, witness_bags()).fit(epochs=1, callbacks=[note])
    assert trainer.epoch == 1
    assert not trainer.finished
    trainer.fit(callbacks=[stop_at_three, note])
    assert trainer.finished, "three epochs of five"
    assert seen == [(row["epoch"], row["loss"]) for row in trainer.history]
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    by_hand = Trainer(config, witness_bags())
    for _ in range(3):
        by_hand.train_epoch()
    assert by_hand.history == trainer.history


@pytest.mark.parametrize("settings", [{"select": "best"}, {"patience": 3}])
def test_what_needs_validation_bags_warns_without_them(settings):
    with pytest.warns(UserWarning, match=next(iter(settings))):
        Trainer(make_config(**settings), witness_bags())


@pytest.mark.parametrize(
    ("count", "settings", "validated", "selected"),
    [
        (501, {}, True, ("best", 0.01)),
        (501, {"weight_decay": 0.0}, True, ("best", 0.0)),
        (500, {}, True, ("last", 1e-4)),
        (501, {}, False, ("last", 1e-4)),
        (501, {"select": "last"}, True, ("last", 1e-4)),
        (501, {"select": "best"}, True, ("best", 1e-4)),
        (501, {"encoder": "resnet20"}, True, ("last", 1e-4)),
    ],
)
def test_the_best_epoch_of_many_bags_of_vectors_is_reported(count, settings, validated, selected):
    shape = (3, 8, 8) if settings.get("encoder") else (2,)
    bags = Bags.from_list(np.random.default_rng(0).normal(size=(count + 4, 1, *shape)), np.arange(count + 4) % 2)
    val = bags.subset(range(count, count + 4)) if validated else None
    config = Settings(members=1, epochs=2, accelerator="cpu", **settings)
    for either in (config, config.resolve(shape)):  # commands resolve them first
        training = Trainer(either, bags.subset(range(count)), val).config.training
        assert (training.select, training.weight_decay) == selected


def test_the_best_epoch_of_numbers_is_not_reported_unless_asked():
    bags = outcome_bags("continuous", 505)
    config = Settings(members=1, epochs=2, accelerator="cpu")
    assert Trainer(config, bags.subset(range(501)), bags.subset(range(501, 505))).config.training.select == "last"


@pytest.mark.parametrize("estimator", ["vrsp", "exact"])
def test_the_global_random_state_is_left_alone_and_does_not_matter(estimator):
    config = make_config(estimator=estimator, dropout=0.5, chunk_size=16, epochs=2)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = train(Trainer(config, witness_bags()))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(weights(first), weights(train(Trainer(config, witness_bags()))))


def test_dropout_differs_between_epochs_and_seeds():
    def losses(**settings):
        return [row["loss"] for row in train(Trainer(make_config(lr=1e-12, **settings), witness_bags())).history]

    still = losses(estimator="exact", objective="bce", num_positive=12, num_negative=12)
    noisy = losses(estimator="exact", objective="bce", num_positive=12, num_negative=12, dropout=0.5)
    assert np.ptp(still) < 1e-6 < np.ptp(noisy)


def test_the_standardizer_knows_training_instances_alone():
    bags = witness_bags(30)
    held = np.arange(30) >= 20
    poisoned = bags.instances.copy()
    for start, size in zip(bags.starts[held], bags.sizes[held], strict=True):
        poisoned[start : start + size] = 1e6
    other = Bags(poisoned, starts=bags.starts, sizes=bags.sizes, ids=bags.ids, labels=bags.labels)

    def statistics(data):
        trainer = Trainer(make_config(), data.subset(~held), data.subset(held))
        return scaler_of(trainer).center, scaler_of(trainer).scale

    (center, scale), (same_center, same_scale) = statistics(bags), statistics(other)
    assert torch.equal(center, same_center)
    assert torch.equal(scale, same_scale)
    rows = np.concatenate([bags[i] for i in range(20)])
    expected = Standardizer(rows.shape[1:], clip=10.0, scaling="linear").fit(torch.from_numpy(rows))
    assert torch.equal(center, expected.center)
    assert torch.equal(scale, expected.scale)
    assert not torch.equal(center, scaler_of(Trainer(make_config(), other)).center), "the poison must be strong"


def test_without_standardising_the_scaler_does_nothing():
    standardizer = scaler_of(Trainer(make_config(standardize=False), witness_bags()))
    assert torch.equal(standardizer.center, torch.zeros(5))
    assert torch.equal(standardizer.scale, torch.ones(5))


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max"])
def test_bfloat16_trains_to_finite_weights_near_those_of_float32(pooling):
    trainers = [
        train(Trainer(make_config(precision=precision, pooling=pooling, epochs=8, lr=0.01), witness_bags()))
        for precision in ("32-true", "bf16-mixed")
    ]
    full, half = (weights(trainer) for trainer in trainers)
    assert torch.isfinite(half).all()
    assert half.dtype == torch.float32
    assert trainers[1].members[0].estimator.bag_state.dtype == torch.float32
    assert not torch.equal(full, half), "nothing ran in bfloat16"
    # bfloat16 keeps 8 bits: the paths stay close, not equal.
    torch.testing.assert_close(half, full, rtol=0.2, atol=0.1)


def test_each_step_in_bfloat16_sees_the_weights_of_its_own_step():
    # Autocast keeps its bfloat16 copy of a weight for as long as its region lasts.
    trainer = Trainer(make_config(precision="bf16-mixed", epochs=1, lr=5.0, weight_decay=0.0), witness_bags(40))
    encoder = trainer.members[0].model.encoder
    errors, outputs, first = [], [], []

    def compare(module, inputs, output):
        first.extend([inputs[0]] if not first else [])
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            errors.append((output.float() - module.forward(inputs[0])).abs().max().item())
            outputs.append(module.forward(first[0]))

    with encoder.register_forward_hook(compare):
        trainer.train_epoch()
    assert len(errors) > 2
    assert (outputs[-1] - outputs[0]).abs().max() > 0.2, "the weights must move for the test to tell"
    assert max(errors) < 0.05


@pytest.mark.parametrize("steps", [1, 6])
def test_a_diverging_run_stops(steps):
    bags = witness_bags(8 * steps)
    trainer = Trainer(make_config(lr=1e38, optimizer="sgd", epochs=9), bags, witness_bags(10, seed=1))
    with pytest.raises(DivergedError, match=r"epoch \d.*lower lr \(now 1e\+38\)"):
        train(trainer)
    assert trainer.epoch == len(trainer.history)


@pytest.mark.parametrize("estimator", ["vrsp", "minibatch", "exact", "exact-point"])
def test_a_state_continues_bit_for_bit(estimator):
    bags, val = witness_bags(), witness_bags(10, seed=1)
    config = make_config(estimator=estimator, chunk_size=16, epochs=5, lr=0.01)
    whole = Trainer(config, bags, val)
    for _ in range(2):
        whole.train_epoch()
    state = copy.deepcopy(whole.state_dict())
    train(whole)
    resumed = Trainer(config, bags, val)
    resumed.load_state_dict(state)
    train(resumed)
    assert resumed.history == whole.history
    assert resumed.best_epoch == whole.best_epoch
    assert torch.equal(weights(resumed), weights(whole))


def test_the_state_of_other_bags_is_refused():
    state = Trainer(make_config(), witness_bags()).state_dict()
    other = witness_bags(ids=[f"x{i}" for i in range(24)])
    with pytest.raises(CheckpointError, match="other bags"):
        Trainer(make_config(), other).load_state_dict(state)


def test_bad_bags_are_refused():
    bags = witness_bags()
    with pytest.raises(OneClassError):
        Trainer(make_config(), bags.subset(np.flatnonzero(bags.labels == 1)))
    with pytest.raises(BagDataError, match=r"\(5,\), got \(4,\)"):
        Trainer(make_config(), bags, witness_bags(10, width=4))


def test_fewer_bags_than_a_batch_asks_for_warn_and_train():
    with pytest.warns(UserWarning, match="a batch now holds 12 positive and 4 negative"):
        trainer = Trainer(make_config(num_positive=50), witness_bags())
    assert np.isfinite(trainer.train_epoch()["loss"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(ConfigError, match="CUDA"):
        make_fabric(make_config(accelerator="cuda"))


@pytest.mark.parametrize(
    "settings",
    [{}, {"dropout": 0.3}, {"estimator": "exact", "objective": "bce"}, {"pooling": "smoothed-max", "hidden": [6, 4]}],
    ids=str,
)
def test_a_loop_of_your_own_trains_the_very_method(settings):
    bags, config = witness_bags(), make_config(members=1, epochs=2, **settings)
    trainer = Trainer(config, bags)
    training = build_training(config, bags)
    for epoch in range(config.training.epochs):
        trainer.train_epoch()
        with training.epoch(epoch) as batches:
            for batch in batches:
                loss = training.objective(training.estimator(training.trained, batch), batch.labels, index=batch.index)
                training.optimizer.zero_grad()
                loss.backward()
                training.optimizer.step()
                training.objective.commit(loss.detach())
                training.estimator.commit(loss.detach())
        expected = trainer.members[0].model.state_dict()
        found = training.model.state_dict()
        assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("pooling", ["embedding-attention", "attention", "smoothed-max"])
@pytest.mark.parametrize("objective", ["minmax-auc", "bce"])
def test_the_reported_auroc_is_that_of_the_scores_that_the_loss_saw(pooling, objective):
    bags, config = witness_bags(), make_config(pooling=pooling, objective=objective, members=1, epochs=2)
    training, seen = build_training(config, bags), []
    loss = type(training.objective).loss

    def watched(own, h, labels, **others):
        seen.append((h.detach().clone(), labels))
        return loss(own, h, labels, **others)

    training.objective.loss = watched.__get__(training.objective)
    _, metric = training.train_epoch(0)
    scores, labels = (torch.cat(column).double().numpy() for column in zip(*seen))
    assert metric == auroc(labels, scores)
    trial = Trial(np.arange(len(bags)), np.arange(2), seed=config.run.seed)
    expected = Trainer(config, bags).train_epoch()["train_auroc"]
    assert expected == metric
    assert train_trials(config, bags, [trial])[0].train_auroc[0] == expected


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max"])
@pytest.mark.parametrize("estimator", ["vrsp", "vrsp-printed"])
def test_a_state_that_the_bags_do_not_have_is_an_error(pooling, estimator):
    rng = np.random.default_rng(0)
    # Far from 0: a bag that is standardized twice has another statistic.
    bags = Bags.from_list([rng.normal(50, 9, size=(4, 3)) for _ in range(60)], [i % 2 for i in range(60)])

    def remember_labels(trainer, _):
        (member,) = trainer.members
        labels = np.arange(len(member.estimator.bag_state)) % 2
        member.estimator.bag_state[:, 1:] = torch.from_numpy(labels).float().unsqueeze(1)

    config = Settings(pooling=pooling, estimator=estimator, epochs=1, members=1, num_instances=4, lr=1e-6)
    (honest,) = Trainer(config, bags).fit().states
    assert (honest.bags, honest.enough) == (40, True)
    assert honest.l < 1e-3  # a sample is the whole bag, the weights hardly move; levels of steps differ
    assert honest.tracked == pytest.approx(honest.whole, abs=0.02)
    with pytest.raises(
        StaleStateError, match=r"of 40 whole training bags, 1\.000 at the state.*`estimator='minibatch'`"
    ):
        Trainer(config, bags).fit(callbacks=[remember_labels])
    (few,) = Trainer(config, bags.subset(np.arange(30))).fit(callbacks=[remember_labels]).states
    assert (few.tracked, few.enough) == (1, False)
    assert not Trainer(config.replace(estimator="minibatch"), bags).fit().states
