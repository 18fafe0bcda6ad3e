"""Extension points: names, class paths, installed packages, and what is refused."""

import importlib.metadata

import pytest
from torch import nn

from midam import registry
from midam.errors import ConfigError, nearest
from midam.registry import Registry, build, typed


@pytest.fixture
def layers():
    return Registry("layer", {"linear": "torch.nn.Linear", "relu": "torch.nn.ReLU"}, base="torch.nn.Module")


def test_a_row_is_imported_when_it_is_asked_for():
    Registry("thing", {"broken": "no_such_package.Thing"}).check("broken")


def test_names_and_class_paths_are_found(layers):
    assert layers.find("linear") is nn.Linear
    assert layers.find(typed("torch.nn.Tanh")) is nn.Tanh


def test_an_unknown_name_is_refused_with_the_nearest(layers):
    with pytest.raises(ConfigError, match="Expected a known layer, got 'lineer'; did you mean 'linear'"):
        layers.find("lineer")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package.Thing", "no module 'no_such_package'"),
        ("torch.nn.Lineer", "did you mean 'Linear'"),
        ("collections.OrderedDict", "Expected a subclass of torch.nn.Module"),
        ("os.system", "Expected a subclass of torch.nn.Module"),
    ],
)
def test_a_class_path_that_is_none_is_refused_before_it_is_called(layers, path, message):
    with pytest.raises(ConfigError, match=message):
        layers.find(typed(path))


def test_functions_are_admitted_where_that_is_said():
    makers = Registry("encoder", {}, base="torch.nn.Module", functions=True)
    assert makers.find(typed("torch.nn.utils.weight_norm"))


def test_what_is_added_is_known_until_it_is_removed(layers):
    layers.add("tanh", nn.Tanh)
    assert layers.find("tanh") is nn.Tanh
    assert "tanh" in layers.names()
    layers.remove("tanh")
    with pytest.raises(ConfigError):
        layers.find("tanh")


def test_a_taken_name_and_another_kind_are_refused(layers):
    with pytest.raises(ConfigError, match="'relu', which is taken"):
        layers.add("relu", nn.ReLU)
    with pytest.raises(ConfigError, match="Expected a subclass"):
        layers.add("dict", dict)


def test_entry_points_of_installed_packages_are_found(layers, monkeypatch):
    points = [
        importlib.metadata.EntryPoint("layer.soft", "torch.nn:Softmax", registry.GROUP),
        importlib.metadata.EntryPoint("layer.lost", "torch.nn:Nowhere", registry.GROUP),
        importlib.metadata.EntryPoint("other.tanh", "torch.nn:Tanh", registry.GROUP),
        importlib.metadata.EntryPoint("layer.relu", "torch.nn:Tanh", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry._plugins.cache_clear()
    try:
        assert layers.names() == ["linear", "relu", "soft", "lost"]
        assert layers.find("soft") is nn.Softmax
        with pytest.raises(ConfigError, match="fix or remove that package"):
            layers.find("lost")
        with pytest.warns(UserWarning, match="'relu' is the layer of midam, not that of the package 'torch.nn'"):
            assert layers.find("relu") is nn.ReLU
    finally:
        registry._plugins.cache_clear()


def test_build_gives_what_is_asked_for_by_name():
    made = build(nn.Linear, part="a layer", offered={"in_features": 3, "seed": 1}, arguments={"out_features": 2})
    assert (made.in_features, made.out_features) == (3, 2)


def test_build_refuses_what_nobody_takes_and_what_is_missing():
    with pytest.raises(ConfigError, match="did you mean 'out_features'"):
        build(nn.Linear, part="a layer", offered={"in_features": 3}, arguments={"out_feature": 2})
    with pytest.raises(ConfigError, match="Expected the argument 'out_features' of a layer"):
        build(nn.Linear, part="a layer", offered={"in_features": 3}, arguments={})


def test_nearest_names_several_and_lists_a_few():
    assert nearest("meam", ["mean", "meat", "x"], count=2) == "did you mean 'meat' or 'mean'?"
    assert nearest("q", [f"name{i}" for i in range(20)]).endswith(", name15 and 12 more.")
