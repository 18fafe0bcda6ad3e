"""How many bags and instances a step takes, where that is left open."""

import numpy as np
import pytest
import torch
from tests.trainings import witness_bags

from midam import MIDAMClassifier
from midam.compare import Grid, Workers, repeated_folds, run_comparison
from midam.data.bags import Bags
from midam.data.on_disk import _available, _granted, free_memory
from midam.errors import ConfigError, OneClassError
from midam.settings import Settings
from midam.train.members import choose_batch_size
from midam.train.trainer import build_training

OPEN = {"num_instances": "auto", "num_positive": "auto", "num_negative": "auto"}
CPU = torch.device("cpu")


def images(count=12, *, largest=6, side=16, dtype=np.uint8):
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(0, 255, (int(rng.integers(2, largest + 1)), 3, side, side), dtype=dtype) for _ in range(count)
    ]
    return Bags.from_list(parts, np.arange(count) % 2)


def choose(bags, **settings):
    config = Settings(**{**OPEN, **settings}).resolve(bags.instance_shape)
    return choose_batch_size(config, bags)


@pytest.mark.parametrize(("largest", "drawn"), [(1, 1), (5, 5), (16, 16), (40, 16)])
def test_small_bags_are_drawn_whole(largest, drawn):
    bags = Bags.from_list([np.ones((largest, 3)), np.ones((1, 3))] * 2, [0, 1] * 2)
    assert choose(bags).training.batch == (8, 8, drawn)


def test_numbers_that_are_given_stay():
    assert choose(images(), num_positive=5, num_negative=3).training.batch == (5, 3, 6)
    assert choose(images(), num_instances=100).training.batch == (8, 8, 100)


def test_a_step_of_large_images_takes_fewer():
    assert choose(images(side=16)).training.batch == (8, 8, 6)
    assert choose(images(side=64, largest=60)).training.batch == (8, 8, 16)
    assert choose(images(side=128, largest=60)).training.batch == (4, 4, 16)
    assert choose(images(6, side=512, largest=3)).training.batch == (2, 2, 2)


def test_free_memory_is_known():
    assert 2**20 < free_memory(CPU) < 2**50


def test_a_loop_of_ones_own_gets_numbers():
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


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_the_classifier_takes_it():
    bags = witness_bags(40, largest=9)
    fitted = MIDAMClassifier(num_instances="auto", epochs=1, members=1).fit(bags)
    assert fitted.settings_.training.batch == (8, 8, 8)
    assert fitted.get_params()["num_instances"] == "auto"
