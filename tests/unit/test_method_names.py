"""Names of methods."""

import pytest

from midam.errors import ConfigError
from midam.methods.names import method_names, method_settings
from midam.settings import Settings
from midam.train.build import build_method

PAPER = [
    f"{prefix}-{pool}" for prefix in ("ce", "dam", "ce-mb", "dam-mb") for pool in ("mean", "max", "smx", "att")
] + ["midam-smx", "midam-att"]


def test_the_methods_of_the_paper_are_there():
    assert set(PAPER) <= set(method_names())
    assert len(set(method_names())) == len(method_names())


@pytest.mark.parametrize(
    ("name", "pooling", "estimator", "objective"),
    [
        ("ce-mean", "mean", "exact", "bce"),
        ("dam-max", "max", "exact", "minmax-auc"),
        ("ce-mb-smx", "smoothed-max", "minibatch", "bce"),
        ("dam-mb-att", "attention", "minibatch", "minmax-auc"),
        ("ce-vrsp-gated", "gated-attention", "vrsp", "bce"),
        ("midam-emb", "embedding-attention", "vrsp", "minmax-auc"),
        ("ce-point-gm", "generalized-mean", "exact-point", "bce"),
        ("dam-point-nor", "noisy-or", "exact-point", "minmax-auc"),
        ("dam-nand", "noisy-and", "exact", "minmax-auc"),
    ],
)
def test_a_name_is_three_settings(name, pooling, estimator, objective):
    assert method_settings(name) == {"pooling": pooling, "estimator": estimator, "objective": objective}


@pytest.mark.parametrize("name", method_names())
def test_every_name_can_be_built(name):
    method = build_method(Settings(**method_settings(name)), instance_shape=(3,), num_bags=2)
    assert method.model.pooling.name == method_settings(name)["pooling"]


@pytest.mark.parametrize("name", ["midam-max", "ce-vrsp-max", "dam-point-max"])
def test_a_maximum_is_neither_tracked_nor_linearized(name):
    with pytest.raises(ConfigError, match="Expected a known method"):
        method_settings(name)


def test_the_nearest_name_is_suggested():
    with pytest.raises(ConfigError, match="did you mean 'midam-att'"):
        method_settings("midam-atn")


def test_any_three_settings_are_a_name():
    wanted = {"pooling": "mean", "estimator": "exact", "objective": "pairwise"}
    assert method_settings("pairwise+exact+mean") == wanted
    with pytest.raises(ConfigError, match="Expected a known estimator, got 'exakt'; did you mean 'exact'"):
        method_settings("pairwise+exakt+mean")
