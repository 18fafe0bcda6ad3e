import dataclasses

import numpy as np
import pytest

from midam.errors import ConfigError
from midam.train.config import FitConfig, from_dict, member_seed, to_dict
from midam.train.settings import read_yaml, yaml_text


def test_settings_survive_yaml(tmp_path):
    config = FitConfig(lr=1e-5, hidden=[8, 4], pooling="generalized-mean", pooling_args={"p": 3.0}, groups="pätient")
    path = tmp_path / "c.yaml"
    path.write_text(yaml_text(to_dict(config)), encoding="utf-8")
    assert from_dict(read_yaml(path)) == config


def test_clip_and_chunk_go_by_the_kind_of_instance():
    usual = FitConfig()
    assert (usual.clip_of((1024,)), usual.clip_of((3, 32, 32))) == (3, 10)
    assert usual.chunk_of((1024,)) == 4096
    assert usual.chunk_of((1, 240, 240)) * 240**2 <= 2**19 < (usual.chunk_of((1, 240, 240)) + 1) * 240**2
    assert usual.chunk_of((1, 256, 256, 256)) == 1
    chosen = FitConfig(clip=2.0, chunk_size=7)
    assert (chosen.clip_of((3, 32, 32)), chosen.chunk_of((3, 32, 32))) == (2, 7)


def test_numbers_take_the_type_of_their_setting():
    config = FitConfig(lr=1, epochs=np.int64(3), margin=np.float32(0.5), hidden=(np.int32(4), 2))
    assert (type(config.lr), type(config.epochs), type(config.margin)) == (float, int, float)
    assert config.hidden == [4, 2]
    assert {type(width) for width in config.hidden} == {int}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("members", 0),
        ("epochs", 0),
        ("epochs", 2.0),
        ("epochs", True),
        ("epochs", "3"),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("lr", "1e-3"),
        ("margin", -1.0),
        ("clip", 0.0),
        ("state_rate", 0.0),
        ("state_rate", 1.01),
        ("state_rate", float("nan")),
        ("dual_lr", 2.0),
        ("momentum", 1.0),
        ("dropout", 1.0),
        ("val_fraction", -0.1),
        ("test_fraction", 0.9),
        ("weight_decay", -1e-9),
        ("weight_decay", float("nan")),
        ("seed", -1),
        ("seed", None),
        ("patience", 0),
        ("hidden", [4, 0]),
        ("hidden", 4),
        ("hidden", [4.5]),
        ("decay_at", [0.5, 1.0]),
        ("decay_at", "0.5"),
        ("pooling", "attenton"),
        ("estimator", "vrps"),
        ("objective", None),
        ("optimizer", "adamw"),
        ("lag", 1),
        ("groups", 3),
        ("pooling_args", []),
        ("workers", -1),
        ("workers", 1.5),
        ("resident", 1),
        ("reads", "map"),
        ("val_every", 0),
        ("state_refresh", 0),
        ("state_start", "warm"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        from_dict({name: value})


def test_ends_of_the_ranges_are_allowed():
    FitConfig(state_rate=1.0, dual_lr=1.0, momentum=0.0, dropout=0.0, val_fraction=0.0, weight_decay=0.0, patience=1)
    FitConfig(pooling="smoothed-max", temperature=0.1)
    FitConfig(workers=0, val_every=1, state_refresh=1, resident=False)


def test_an_unknown_key_suggests_the_near_one():
    with pytest.raises(ConfigError, match=r"'epoch'.*did you mean 'epochs'"):
        from_dict({"epoch": 3})
    with pytest.raises(ConfigError, match="known are pooling, estimator"):
        from_dict({"zzz": 3})
    with pytest.raises(ConfigError, match="got 1 "):
        from_dict({1: 3})


@pytest.mark.parametrize("content", [b"a: [1\nb: }", b"\xff\xfe\x00", b"", b"- 1\n", b"word"])
def test_a_file_that_is_no_settings_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.yaml") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)


def test_yaml_runs_no_code(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"pooling: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n")
    with pytest.raises(ConfigError):
        read_yaml(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("epochs", "decay_at", "falls"),
    [
        (4, [0.5, 0.75], [0, 0, 1, 2]),
        (3, [0.5, 0.75], [0, 0, 2]),
        (1, [0.5, 0.75], [0]),
        (2, [0.1], [0, 1]),
        (3, [], [0, 0, 0]),
    ],
)
def test_rates_fall_at_fractions_of_the_epochs_and_never_before_the_first(epochs, decay_at, falls):
    config = FitConfig(epochs=epochs, decay_at=decay_at)
    assert [config.decays(epoch) for epoch in range(epochs)] == falls


def test_each_setting_is_documented():
    text = FitConfig.__doc__ or ""
    for field in dataclasses.fields(FitConfig):
        assert f"\n    {field.name}\n" in text, field.name


def test_the_first_member_keeps_the_seed_and_the_others_have_their_own():
    seeds = [member_seed(seed, member) for seed in range(20) for member in range(20)]
    assert seeds[::20] == list(range(20))
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert FitConfig(seed=member_seed(2**40, 1)).seed < 2**32
