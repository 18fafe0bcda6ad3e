"""Custom encoders: any `torch.nn.Module` by its name, weights from a file, frozen parts."""

import fnmatch
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from midam.errors import ConfigError, MidamError, first_line, listed, nearest, need_package, path_of
from midam.reading import check_archive
from midam.registry import ENCODERS, build


class Encoder(nn.Module):
    """Wraps a network as an encoder: its output as [M, D], with D from a trial run; parts of it can be frozen.

    An output [M, D, ...] is averaged over the axes after D (global average pooling); an output [M] becomes [M, 1]. The
    output is cast to the type of the instances, so that a network may compute in half precision. A frozen part has
    parameters without gradient and always stays in evaluation mode: its normalization keeps its running statistics, and
    its dropout is off. If nothing is left to train, the network runs without a graph.

    Parameters
    ----------
    module : nn.Module
        Maps instances [M, ...] to floating-point numbers [M, D], [M, D, ...] or [M].
    instance_shape : tuple of int
        Shape of one instance.
    name : str
        Name of the encoder in messages.
    freeze : sequence of str
        Names of submodules or parameters of `module`, such as "stem", "layer1.0" or "layers.[0-3]"; "*" freezes all.

    Raises
    ------
    ConfigError
        If the network does not take two such instances, does not return a row for each, or lacks a part in `freeze`.

    Examples
    --------
    >>> net = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU())
    >>> encoder = Encoder(net, instance_shape=(1, 8, 8), freeze=["0"])
    >>> encoder.out_features, encoder(torch.zeros(4, 1, 8, 8)).shape
    (5, torch.Size([4, 5]))
    >>> [p.requires_grad for p in encoder.parameters()]
    [False, False]
    """

    def __init__(
        self, module: nn.Module, *, instance_shape: tuple[int, ...], name: str = "encoder", freeze: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.module = module
        self.out_features = _trial(module, instance_shape, name)
        self._frozen = tuple(freeze)
        names = [inner for inner, _ in (*module.named_parameters(), *module.named_modules()) if inner]
        for part in self._frozen:
            if part != "*" and not any(_matches(inner, part) for inner in names):
                advice = nearest(part, names, count=3)
                raise ConfigError(f"Expected a part of the encoder {name!r} in freeze, got {part!r}; {advice}")
        for inner, parameter in module.named_parameters():
            if any(_matches(inner, part) for part in self._frozen):
                parameter.requires_grad_(False)
        self._set_frozen_modes()
        self._trains = any(p.requires_grad for p in module.parameters())
        self.repeatable = bool(getattr(module, "repeatable", False))

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        with torch.set_grad_enabled(self._trains and torch.is_grad_enabled()):
            return _as_rows(self.module(x)).to(x.dtype)

    def train(self, mode: bool = True) -> "Encoder":
        """Set the training mode of all but the frozen parts, which stay in evaluation mode."""
        super().train(mode)
        self._set_frozen_modes()
        return self

    def _set_frozen_modes(self) -> None:
        for name, module in self.module.named_modules():
            if any(_matches(name, part) for part in self._frozen):
                module.eval()


def make_module(name: str, offered: Mapping[str, Any], arguments: Mapping[str, Any]) -> nn.Module:
    """Make an encoder by its name in `midam.registry.ENCODERS`, with the keyword arguments `arguments`.

    It also gets the values of `offered` that are its parameters. An unknown name, an unknown argument, or a result that
    is not a `torch.nn.Module` raises a `ConfigError`.

    Examples
    --------
    >>> make_module("mlp", {"in_features": 3}, {"hidden": [2]}).out_features
    2
    """
    make, shown = ENCODERS.find(name), dict(arguments)
    with _code_of_the_user(f"encoder_args that {name} takes, got {shown}:", "correct encoder_args, or the code."):
        module = build(make, part=f"the encoder {name!r} in encoder_args", offered=offered, arguments=arguments)
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"Expected a torch.nn.Module as the encoder {name!r}, got {type(module).__name__}; name a class, or a "
            "function that returns a module."
        )
    return module


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Load the weights of a file into a module; names and shapes must match exactly.

    The file is a ".safetensors" file, or a state dictionary written by ``torch.save``, alone or under the key
    "state_dict", which is read with ``weights_only=True``, so that no code in the file runs. A `ConfigError` is raised
    if the file is missing, holds something else, or has other names or shapes than the module; a `MidamError` if the
    package safetensors is missing.
    """
    path = path_of(path, "weights")
    if not path.is_file():
        raise ConfigError(f"Expected a file of weights, got nothing at {path}; correct encoder_weights.")
    saved = _read_weights(path)
    expected = module.state_dict()
    missing, extra = [name for name in expected if name not in saved], [name for name in saved if name not in expected]
    if missing or extra:
        parts = [f"{kind} {listed(names)}" for kind, names in (("missing", missing), ("unexpected", extra)) if names]
        raise ConfigError(
            f"Expected the {len(expected)} weights of the encoder, got others (in {path}): {'; '.join(parts)}; rename "
            "or remove them in the file, or correct encoder_args."
        )
    for name, weight in expected.items():
        got = saved[name]
        if weight.shape != got.shape:
            raise ConfigError(
                f"Expected {name} of shape {list(weight.shape)}, got {list(got.shape)} (in {path}); correct "
                "encoder_args, or use other weights."
            )
        plain = got.layout == torch.strided and not (got.is_complex() or got.is_quantized or got.is_meta)
        if not plain or not torch.isfinite(got).all():
            got_others = f"got others (in {path})"
            raise ConfigError(
                f"Expected finite numbers in {name}, {got_others}; save the weights again, or use others."
            )
    module.load_state_dict(saved)


def batch_norms(module: nn.Module) -> list[str]:
    """Return the names of the layers that normalize by batch statistics in the current mode of the module."""
    return [
        name
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats)
    ]


@contextmanager
def _code_of_the_user(expected: str, advice: str) -> Iterator[None]:
    """Turn an error of the user's code into a one-line `ConfigError`, with the error as its cause."""
    try:
        yield
    except MidamError:
        raise
    except Exception as error:  # the user's code may raise any error
        raise ConfigError(f"Expected {expected} {first_line(error)}; {advice}") from error


@torch.no_grad()
def _trial(module: nn.Module, instance_shape: tuple[int, ...], name: str) -> int:
    """Return the width of the encodings, from a run on two instances of zeros in evaluation mode."""
    modes = {layer: layer.training for layer in module.modules()}
    expected = f"an encoder for instances of shape {list(instance_shape)}, got an error of {name!r} for two of them:"
    try:
        with _code_of_the_user(expected, "correct encoder_args, or use another encoder."):
            out = module.eval()(torch.zeros([2, *instance_shape]))
    finally:
        for layer, mode in modes.items():
            layer.training = mode
    if not isinstance(out, Tensor) or not out.is_floating_point() or out.ndim == 0 or len(out) != 2:
        got = f"{out.dtype} {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"Expected one row of numbers per instance from the encoder {name!r}, [2, D] for two instances, got {got}; "
            "use a network that returns one tensor."
        )
    return _as_rows(out).shape[1]


def _as_rows(e: Tensor) -> Tensor:
    return e.unsqueeze(1) if e.ndim == 1 else e.flatten(2).mean(dim=2) if e.ndim > 2 else e


def _matches(name: str, part: str) -> bool:
    return fnmatch.fnmatchcase(name, part) or fnmatch.fnmatchcase(name, f"{part}.*")


def _read_weights(path: Path) -> dict[str, Tensor]:
    kind, load, reason = (
        "a state dictionary written by torch.save",
        partial(torch.load, map_location="cpu", weights_only=True),
        "",
    )
    if path.suffix == ".safetensors":
        kind = "a safetensors file"
        load = need_package("safetensors.torch", "to read weights", extra="export", where=path).load_file
    try:
        if zipfile.is_zipfile(path):  # torch compares no checksums; a file older than torch 1.6 has none
            check_archive(path)
        content = load(path)
    except pickle.UnpicklingError:
        # torch's message advises to unpickle the file anyway, which would run code in it.
        reason = "it holds more than tensors, or is damaged; only tensors are loaded, as other objects can run code"
    except Exception as error:  # of a damaged file may be any
        reason = first_line(error)
    if reason:
        raise ConfigError(f"Expected {kind}, got something else (in {path}): {reason}; save module.state_dict().")
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    pairs = content.items() if isinstance(content, Mapping) else [(None, content)]
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in pairs):
        raise ConfigError(
            f"Expected a state dictionary of tensors by name, got something else (in {path}); save module.state_dict()."
        )
    return dict(content)
