"""The encoders: shapes, independence of instances, refused settings."""

import pytest
import torch
from torch import nn

from midam.errors import ConfigError
from midam.nn.encoders import MLP, ResNet20


def test_mlp_of_the_paper_is_one_tanh_layer_as_wide_as_the_input() -> None:
    mlp = MLP(5)
    x = torch.randn(3, 5)
    linear = mlp.layers[0]
    assert mlp.out_features == 5
    assert torch.allclose(mlp(x), torch.tanh(x @ linear.weight.T + linear.bias))


def test_mlp_layers_flattening_and_dropout() -> None:
    mlp = MLP(6, hidden=(8, 3), dropout=0.5)
    kinds = [type(layer) for layer in mlp.layers]
    assert kinds == [nn.Linear, nn.Tanh, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout]
    assert mlp.out_features == 3
    x = torch.randn(4, 2, 3)
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x.flatten(1)))
    mlp.train()
    assert not torch.equal(mlp(x), mlp(x))


def test_resnet20_has_twenty_weighted_layers_counting_the_classifier() -> None:
    net = ResNet20(3)
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) + 1 == 20
    assert sum(p.numel() for m in convolutions for p in m.parameters()) == 267_696
    assert net(torch.randn(2, 3, 16, 16)).shape == (2, 64)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_an_instance_is_encoded_alone(norm: str) -> None:
    torch.manual_seed(0)
    net = ResNet20(1, norm=norm).double()
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    together = net(x)[:1]
    alone = net(x[:1])
    # Group normalisation in training mode, batch normalisation in evaluation mode only.
    assert torch.allclose(together, alone, rtol=1e-9) == (norm == "group")
    net.eval()
    assert torch.allclose(net(x)[:1], net(x[:1]), rtol=1e-9)


def test_gradients_reach_every_weight() -> None:
    net = ResNet20(1)
    net(torch.randn(2, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() and p.grad.any() for p in net.parameters())


def test_an_unknown_normalisation_is_refused() -> None:
    with pytest.raises(ConfigError, match="norm 'group' or 'batch', got 'layer'"):
        ResNet20(1, norm="layer")
