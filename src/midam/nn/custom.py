"""Encoders that are not ours: any `torch.nn.Module` by its class path, weights from a file, frozen parts."""

import difflib
import importlib
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from midam.errors import ConfigError, MidamError

_FAILURES = (AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
_SHOWN = 5


class Encoder(nn.Module):
    """A network as an encoder: what it returns as [M, D], its width D found by a trial run, parts of it frozen.

    An output [M, D, ...] is averaged over the axes after D (global average pooling), one of shape [M] becomes [M, 1].
    A frozen part has parameters without gradient, and stays in evaluation mode whatever `train` says: its
    normalisation keeps its running statistics, its dropout is off. Where no parameter is left to train, the network
    runs without a graph.

    Parameters
    ----------
    module : nn.Module
        Maps instances [M, ...] to floating-point numbers [M, D], [M, D, ...] or [M].
    instance_shape : tuple of int
        Shape of one instance.
    name : str
        What messages call it.
    freeze : sequence of str
        Names of submodules or parameters of `module`, such as "stem" or "layer1.0"; "*" stands for all of it.

    Attributes
    ----------
    out_features : int
        D.

    Raises
    ------
    ConfigError
        If the network does not take two such instances, does not return one row for each, or has no part of a name in
        `freeze`.

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
        self,
        module: nn.Module,
        *,
        instance_shape: tuple[int, ...],
        name: str = "encoder",
        freeze: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.module = module
        self.out_features = _trial(module, instance_shape, name)
        self._frozen = tuple(freeze)
        self._freeze(name)
        self._trains = any(p.requires_grad for p in module.parameters())

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        if self._trains:
            return _as_rows(self.module(x))
        with torch.no_grad():
            return _as_rows(self.module(x))

    def train(self, mode: bool = True) -> "Encoder":
        """Set the training mode of all but the frozen parts, which stay in evaluation mode."""
        super().train(mode)
        self._hold()
        return self

    def _hold(self) -> None:
        for name, module in self.module.named_modules():
            if any(_within(name, part) for part in self._frozen):
                module.eval()

    def _freeze(self, encoder: str) -> None:
        names = [name for name, _ in self.module.named_parameters()]
        for part in self._frozen:
            if not any(_within(name, part) for name in names):
                raise ConfigError(_unknown_part(part, names, encoder))
        for name, parameter in self.module.named_parameters():
            if any(_within(name, part) for part in self._frozen):
                parameter.requires_grad_(False)
        self._hold()


def make_module(path: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Import what a class path names and call it with arguments.

    Parameters
    ----------
    path : str
        "package.module.Class", or a function there that returns a module, such as "timm.create_model". It is imported
        and so runs code: give no path that you do not trust.
    arguments : mapping
        Keyword arguments.

    Raises
    ------
    ConfigError
        If there is nothing of that name, it does not take the arguments, or it makes no `torch.nn.Module`.

    Examples
    --------
    >>> make_module("torch.nn.Linear", {"in_features": 3, "out_features": 2})
    Linear(in_features=3, out_features=2, bias=True)
    """
    make = _imported(path)
    shown = dict(arguments)
    try:
        module = make(**arguments)
    except _FAILURES as error:
        raise ConfigError(
            f"Expected encoder_args that {path} takes, got {shown}: {_first_line(error)}; correct encoder_args."
        ) from None
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"Expected a torch.nn.Module of the encoder {path!r}, got {type(module).__name__}; name a class, or a "
            "function that returns a module."
        )
    return module


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Fill a module with the weights of a file, every one of them and no others.

    Parameters
    ----------
    module : nn.Module
        To be filled.
    path : str or Path
        A state dictionary written by ``torch.save``, alone or under the key "state_dict" of a dictionary; read with
        ``weights_only=True``, so no code of the file runs. Or a file that ends in ".safetensors".

    Raises
    ------
    ConfigError
        If there is no such file, it holds something else, or its names or shapes are not those of the module.
    MidamError
        For a .safetensors file where the package safetensors is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"Expected a file of weights, got nothing at {path}; correct encoder_weights.")
    found = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    own = module.state_dict()
    missing, extra = [name for name in own if name not in found], [name for name in found if name not in own]
    if missing or extra:
        parts = [f"{what} {_some(names)}" for what, names in (("missing", missing), ("unexpected", extra)) if names]
        raise ConfigError(
            f"Expected the {len(own)} weights of the encoder, got others (in {path}): {'; '.join(parts)}; rename or "
            "remove them in the file, or correct encoder_args."
        )
    wrong = [name for name in own if own[name].shape != found[name].shape]
    if wrong:
        name = wrong[0]
        raise ConfigError(
            f"Expected {name} of shape {list(own[name].shape)}, got {list(found[name].shape)} (in {path}); correct "
            "encoder_args, or take other weights."
        )
    module.load_state_dict(found)


def batch_norms(module: nn.Module) -> list[str]:
    """Names of the layers that normalise by the statistics of the batch as the module is now.

    Examples
    --------
    >>> batch_norms(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval()))
    ['1']
    """
    return [
        name
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats)
    ]


def _imported(path: str) -> Any:
    where, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(where)
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise ConfigError(
            f"Expected the encoder {path!r} to be importable, got {_first_line(error)}; install its package, or put "
            "the folder of its file on PYTHONPATH."
        ) from None
    found = getattr(module, name, None)
    if found is None:
        near = difflib.get_close_matches(name, dir(module), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "correct the class path."
        raise ConfigError(f"Expected {name!r} in {where}, got nothing of that name; {hint}")
    if not callable(found):
        raise ConfigError(f"Expected a class at {path!r}, got {type(found).__name__}; correct the class path.")
    return found


@torch.no_grad()
def _trial(module: nn.Module, instance_shape: tuple[int, ...], name: str) -> int:
    """Width of the encodings, from two instances of zeros in evaluation mode."""
    modes = {layer: layer.training for layer in module.modules()}
    shape = [2, *instance_shape]
    try:
        out = module.eval()(torch.zeros(shape))
    except (AssertionError, *_FAILURES) as error:
        raise ConfigError(
            f"Expected an encoder for instances of shape {list(instance_shape)}, got an error of {name!r} for two of "
            f"them: {_first_line(error)}; correct encoder_args, or use another encoder."
        ) from None
    finally:
        for layer, mode in modes.items():
            layer.training = mode
    if not isinstance(out, Tensor) or not out.is_floating_point() or out.ndim == 0 or len(out) != 2:
        got = f"{out.dtype} {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"Expected one row of numbers an instance from the encoder {name!r}, [2, D] for two instances, got {got}; "
            "use a network that returns one tensor."
        )
    return _as_rows(out).shape[1]


def _as_rows(e: Tensor) -> Tensor:
    return e.unsqueeze(1) if e.ndim == 1 else e.flatten(2).mean(dim=2) if e.ndim > 2 else e


def _within(name: str, part: str) -> bool:
    return part in ("*", name) or name.startswith(f"{part}.")


def _unknown_part(part: str, names: Sequence[str], encoder: str) -> str:
    parts = sorted({".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)})
    near = difflib.get_close_matches(part, parts, n=3) or sorted({name.split(".")[0] for name in names})
    return f"Expected a part of the encoder {encoder!r} in freeze, got {part!r}; its parts are such as {_some(near)}."


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"Expected a state dictionary written by torch.save, got something else (in {path}): {_first_line(error)}; "
            "save module.state_dict()."
        ) from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ConfigError(
            f"Expected a state dictionary of tensors, got something else (in {path}); save module.state_dict()."
        )
    return dict(content)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        reader = importlib.import_module("safetensors.torch")
        broken = importlib.import_module("safetensors").SafetensorError
    except ModuleNotFoundError:
        raise MidamError(
            f"Expected the package safetensors for {path}, got none; run `pip install safetensors`."
        ) from None
    try:
        found: dict[str, Tensor] = reader.load_file(path)
    except broken as error:
        raise ConfigError(
            f"Expected a safetensors file, got something else (in {path}): {_first_line(error)}; restore the file."
        ) from None
    return found


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
