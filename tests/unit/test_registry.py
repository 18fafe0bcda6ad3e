"""Extension points: names, plug-ins, and what is refused."""

import sys

import pytest
from torch import nn

from midam.errors import ConfigError, nearest
from midam.registry import BASELINES, ENCODERS, POOLINGS, Registry, build, load_plugins, plugin_entry, take_known


@pytest.fixture
def layers():
    return Registry("layer", {"linear": "torch.nn.Linear", "relu": "torch.nn.ReLU"}, base="torch.nn.Module")


def test_a_row_is_imported_when_it_is_asked_for(layers):
    Registry("thing", {"broken": "no_such_package.Thing"}).check("broken")
    assert layers.find("linear") is nn.Linear


def test_an_unknown_name_is_refused_with_the_nearest(layers):
    with pytest.raises(ConfigError, match="Expected a known layer, got 'lineer'; did you mean 'linear'"):
        layers.find("lineer")


@pytest.mark.parametrize("path", ["torch.nn.Tanh", "no_such_package.Thing", "os.system"])
def test_a_class_path_is_no_name(layers, path):
    for names in (POOLINGS, layers):
        with pytest.raises(ConfigError, match=f"Expected a known {names.kind}, got '{path}'; known are "):
            names.find(path)


def test_functions_are_admitted_where_that_is_said(layers):
    makers = Registry("encoder", {}, base="torch.nn.Module", functions=True)
    makers.add("normed", nn.utils.weight_norm)
    assert makers.find("normed") is nn.utils.weight_norm
    with pytest.raises(ConfigError, match=r"Expected a subclass of torch\.nn\.Module as layer"):
        layers.add("normed", nn.utils.weight_norm)


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


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The name of a module on the path that adds an encoder and a baseline when it is imported."""
    (tmp_path / "some_plugin.py").write_text(
        "from torch import nn\nfrom midam.compare import Baseline\nfrom midam.registry import BASELINES, ENCODERS\n"
        "ENCODERS.add('some-net', nn.Linear)\n"
        "class Flat(Baseline): pass\nBASELINES.add('some-baseline', Flat)\n"
    )
    (tmp_path / "broken_plugin.py").write_text("nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ENCODERS, "_added", {})
    monkeypatch.setattr(BASELINES, "_added", {})
    yield "some_plugin"
    sys.modules.pop("some_plugin", None)


def test_a_file_tells_which_plug_in_adds_its_names(plugin):
    load_plugins([plugin])
    settings = {"encoder": "some-net", "pooling": "mean", "method": "some-baseline"}
    modules = {"some-net": plugin, "some-baseline": plugin}
    assert plugin_entry(settings) == {"plugins": modules}
    assert plugin_entry({"encoder": "mlp"}) == {}
    assert take_known({**settings, "plugins": modules}, "c.yaml") == settings
    ENCODERS.remove("some-net")
    with pytest.raises(ConfigError) as caught:
        take_known({**settings, "plugins": modules}, "c.yaml")
    assert str(caught.value) == (
        "Expected a known name, got 'some-net' (in c.yaml), which the plug-in some_plugin adds; pass --plugin "
        "some_plugin, or import it in Python."
    )


@pytest.mark.parametrize("modules", [3, ["os"], {"some-net": 3}, {"some-net": "os; rm"}, {"some-net": "$(x)"}], ids=str)
def test_a_plug_in_in_a_file_is_the_name_of_a_module(modules):
    with pytest.raises(ConfigError, match=r"Expected `plugins` as names and their modules, got .*\(in c.yaml\)"):
        take_known({"encoder": "some-net", "plugins": modules}, "c.yaml")


def test_a_plug_in_that_cannot_be_imported_is_named(plugin):
    with pytest.raises(ConfigError, match=r"imported as plug-in, got 'no_such_one' \(no such module\)"):
        load_plugins(["no_such_one"])
    with pytest.raises(ConfigError, match=r"got 'broken_plugin' \(NameError: .*nothing.*PYTHONPATH"):
        load_plugins(["broken_plugin"])
    ENCODERS.add("some-net", nn.Tanh)
    with pytest.raises(ConfigError, match="'some-net', which is taken"):
        load_plugins([plugin])


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
