"""How many bags and instances a step takes, where that is left open."""

import warnings

import numpy as np
import pytest
import torch
from tests.trainings import train, witness_bags

from midam import MIDAMClassifier
from midam.compare import Grid, Workers, repeated_folds, run_comparison
from midam.data.bags import Bags
from midam.data.on_disk import _available, _granted, free_memory
from midam.errors import ConfigError, Note, OneClassError
from midam.settings import Settings
from midam.train.members import batch_sizes, choose_batch_size
from midam.train.side import Trial, train_trials
from midam.train.trainer import Trainer, build_training

OPEN = {"num_instances": "auto", "num_positive": "auto", "num_negative": "auto"}
LONG = {**OPEN, "epochs": 1000}
CPU = torch.device("cpu")


def sizes(largest=1000, counts=(50, 50), **settings):
    config = Settings(**{**LONG, **settings}).resolve((5,))
    return batch_sizes(config, largest=largest, counts=counts)


def images(count=12, *, largest=6, side=16, dtype=np.uint8):
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(0, 255, (int(rng.integers(2, largest + 1)), 3, side, side), dtype=dtype) for _ in range(count)
    ]
    return Bags.from_list(parts, np.arange(count) % 2)


def choose(bags, **settings):
    config = Settings(**{**LONG, **settings}).resolve(bags.instance_shape)
    with pytest.warns(Note):
        return choose_batch_size(config, bags)


def test_bags_are_left_out_first_then_instances_then_both():
    expected = [(s, s, b) for b in (16, 8) for s in (8, 4, 2)] + [(s, s, b) for b in (4, 2, 1) for s in (8, 4, 2, 1)]
    assert sizes() == expected


@pytest.mark.parametrize(("largest", "first"), [(1, 1), (2, 2), (5, 8), (16, 16), (17, 16), (10**6, 16)])
def test_small_bags_are_drawn_whole(largest, first):
    assert sizes(largest=largest)[0] == (8, 8, first)


def test_a_class_of_few_bags_gives_all():
    assert sizes(counts=(3, 50))[:3] == [(3, 8, 16), (3, 4, 16), (2, 2, 16)]


def test_parts_of_bags_are_drawn_in_many_steps():
    # 100 bags, 16 a step: 7 steps an epoch.
    assert sizes(epochs=343)[0] == (8, 8, 16)
    assert sizes(epochs=342)[0] == (4, 4, 16)
    assert sizes(epochs=100)[0] == (2, 2, 16)
    assert sizes(epochs=1)[0] == (2, 2, 16)
    assert sizes(epochs=1, largest=16)[0] == (8, 8, 16)
    assert [size[:2] for size in sizes(epochs=1, estimator="exact")] == [(2, 2), (1, 1)]
    assert sizes(epochs=1, num_positive=8, num_negative=8)[0] == (8, 8, 16)
    assert sizes(epochs=1, num_positive=8)[0] == (8, 2, 16)


def test_numbers_that_are_given_stay():
    assert {size[:2] for size in sizes(num_positive=5, num_negative=3)} == {(5, 3)}
    assert sizes(num_instances=100) == [(8, 8, 100), (4, 4, 100), (2, 2, 100), (1, 1, 100)]
    assert sizes(num_instances=3, num_positive=6, counts=(4000, 4))[1:] == [(6, 4, 3), (6, 2, 3), (6, 1, 3)]


def test_the_estimator_has_a_say():
    # One instance has no weights that could differ, but those that a tracked state remembers.
    assert sizes(estimator="minibatch")[-1] == sizes(estimator="exact-point")[-1] == (1, 1, 2)
    assert sizes(estimator="minibatch", largest=1)[0] == (8, 8, 2)
    assert {size[2] for size in sizes(estimator="exact")} == {16}


def test_a_step_of_large_images_takes_fewer():
    assert choose(images(side=16)).training.batch == (6, 6, 8)
    assert choose(images(side=64, largest=60)).training.batch == (2, 2, 16)
    assert choose(images(6, side=512, largest=3)).training.batch == (1, 1, 4)


def test_free_memory_is_known():
    assert 2**20 < free_memory(CPU) < 2**50


def test_a_trainer_says_in_a_line_what_it_took_and_why():
    bags = witness_bags(30, largest=9)
    with pytest.warns(Note, match=r"^8 instances of a bag and 8 \+ 8 bags per step: bags hold up to 8 ") as told:
        trainer = Trainer(Settings(num_instances="auto"), bags)
    assert len(told) == 1
    assert trainer.config.training.batch == (8, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(trainer.config, bags)


def test_a_loop_of_ones_own_gets_numbers():
    with pytest.warns(Note, match="8 instances of a bag"):
        training = build_training(Settings(**OPEN), witness_bags(30))
    assert training.config.training.batch == (8, 8, 8)
    with pytest.raises(OneClassError):
        build_training(Settings(**OPEN), witness_bags(30).subset([0, 2, 4]))
    with pytest.raises(ConfigError, match="a number for `num_negative`, got 'auto', which only `Trainer` and"):
        Settings(num_negative="auto").training.batch  # noqa: B018


def test_what_the_system_leaves_is_read(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:  100 kB\nMemAvailable:     64 kB\n")
    assert _available(path) == 64 * 1024
    path.write_text("MemTotal:  100 kB\n")
    assert _available(path) is None
    assert _available(tmp_path / "none") is None


def limited(root, limit, used, names=("memory.max", "anon")):
    root.mkdir(parents=True, exist_ok=True)
    (root / names[0]).write_text(f"{limit}\n")
    (root / "memory.stat").write_text(f"file 99\n{names[1]} {used}\n")


def test_what_a_container_or_a_job_leaves_is_read(tmp_path):
    process, mount = tmp_path / "cgroup", tmp_path / "mount"
    assert _granted(process, mount) is None
    process.write_text("0::/slurm/job_7/step_0\n")
    assert _granted(process, mount) is None
    limited(mount / "slurm/job_7/step_0", "max", 30)
    assert _granted(process, mount) is None
    limited(mount / "slurm/job_7", 1000, 300)
    assert _granted(process, mount) == 700
    limited(mount, 500, 400)
    assert _granted(process, mount) == 100
    limited(mount, 300, 400)
    assert _granted(process, mount) == 0
    # The first version has a folder a controller, and the path of the host in a container.
    process.write_text("9:name=systemd:/\n4:cpu,memory:/docker/abc\n3:cpu:/\n")
    limited(mount / "memory", 800, 50, ("memory.limit_in_bytes", "total_rss"))
    assert _granted(process, mount) == 750


def test_trials_choose_by_their_own_training_bags():
    bags = witness_bags(40, largest=17)
    order = np.argsort(bags.labels, kind="stable")
    few = np.sort(order[12:25])  # of which 5 are positive
    trials = [Trial(np.sort(order[::2]), order[1::2], seed=0), Trial(few, order[25:], seed=1)]
    config = Settings(**OPEN, epochs=2, members=1)
    choices = [choose(bags.subset(trial.train), epochs=2, members=1) for trial in trials]
    assert [choice.training.batch for choice in choices] == [(8, 8, 16), (5, 8, 16)]
    for trial, result in zip(trials, train_trials(config, bags, trials), strict=True):
        with pytest.warns(Note):
            alone = train(Trainer(config.replace(seed=trial.seed), bags.subset(trial.train)))
        np.testing.assert_allclose(result.loss, [row["loss"] for row in alone.history], rtol=1e-5)


def test_a_comparison_chooses_by_the_training_bags_of_a_fold_alone(tmp_path, monkeypatch):
    chosen = []

    def noted(config, train):
        chosen.append(choose_batch_size(config, train))
        return chosen[-1]

    monkeypatch.setattr("midam.train.trainer.choose_batch_size", noted)
    bags = witness_bags(40, largest=5)
    folds, out = repeated_folds(bags, repeats=1, folds=2), tmp_path / "out"
    # A test bag that is larger than all others; were it looked at, 16 instances would be drawn.
    part = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    parts = [bags[i] for i in range(len(bags))]
    parts[folds[0].test[0]] = part
    bags = Bags.from_list(parts, bags.labels)
    how = {"settings": Settings(num_instances="auto", epochs=1), "grid": Grid([0.05], [1.0], "last")}
    found = run_comparison(bags, ["midam-att", "ce-mean"], folds, **how, out=out)
    assert [config.training.batch for config in chosen[:2]] == [(8, 8, 4), (8, 8, 16)]
    again = run_comparison(bags, ["midam-att", "ce-mean"], folds, **how, out=out, workers=Workers(jobs=2))
    assert again.summary.equals(found.summary)


@pytest.mark.filterwarnings("ignore:Expected scores that rank validation bags")
def test_the_classifier_takes_it():
    bags = witness_bags(40, largest=9)
    with pytest.warns(Note, match="8 instances of a bag"):
        fitted = MIDAMClassifier(num_instances="auto", epochs=1, members=1).fit(bags)
    assert fitted.settings_.training.batch == (8, 8, 8)
    assert fitted.get_params()["num_instances"] == "auto"
