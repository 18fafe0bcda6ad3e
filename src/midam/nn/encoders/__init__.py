"""The encoders: each maps instances [M, ...] to encodings [M, D]; its attribute `out_features` is D."""

from midam.nn.encoders.custom import Encoder, batch_norms, load_weights, make_module
from midam.nn.encoders.images import PatchStatistics, ResNet20, resnet20, resnet20_3d
from midam.nn.encoders.mlp import MLP

__all__ = [
    "MLP",
    "Encoder",
    "PatchStatistics",
    "ResNet20",
    "batch_norms",
    "load_weights",
    "make_module",
    "resnet20",
    "resnet20_3d",
]
