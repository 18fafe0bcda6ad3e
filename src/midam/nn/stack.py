"""Several modules of one architecture as one, with a leading axis: M small ones then take little more than one."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from midam.errors import ConfigError, require, require_counts
from midam.nn.pooling.base import Pooling
from midam.nn.scorer import BagScorer

_PADDED_UP_TO = 24


class Stack(nn.Module):
    """M modules of one architecture side by side; whatever `torch.vmap` can run of them runs as it is written for one.

    Their weights are copied. Noise (dropout) is drawn for each module on its own.

    Examples
    --------
    >>> stack = Stack([nn.Linear(4, 2) for _ in range(3)])
    >>> stack.over(lambda layer, x: layer(x), torch.randn(3, 5, 4)).shape
    torch.Size([3, 5, 2])
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        require(modules, Sequence, "modules", "give a list of modules of one kind")
        require_counts(modules=len(modules))
        for number, module in enumerate(modules):
            require(module, nn.Module, f"modules[{number}]", "give a module of torch")
        # In a list, so that its weights are no parameters of this module.
        self._template = [copy.deepcopy(modules[0])]
        self.count = len(modules)
        parameters, buffers = stack_module_state(list(modules))
        self._names, self._buffer_names = list(parameters), list(buffers)
        self._weights = nn.ParameterList(nn.Parameter(_turned(p.detach()).contiguous()) for p in parameters.values())
        for i, buffer in enumerate(buffers.values()):
            self.register_buffer(f"_buffer_{i}", buffer)

    @property
    def template(self) -> nn.Module:
        """One of the modules, for what all have in common."""
        return self._template[0]

    def buffer(self, name: str) -> Tensor:
        """Return the modules' buffers of this name, [M, ...]."""
        return self.get_buffer(f"_buffer_{self._buffer_names.index(name)}")

    @torch.no_grad()
    def write(self, number: int, module: nn.Module) -> None:
        """Write the weights and buffers of module `number` (from 0) into `module`, of the same architecture."""
        own = {name.removeprefix("module."): tensor[number] for name, tensor in self._state().items()}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensor.copy_(own[name])

    def over(self, call: Callable[..., Any], *inputs: Tensor) -> Any:
        """Apply ``call(module, *own)`` to each module and its entry of the inputs [M, ...]; stacks what it returns."""
        module = _Call(self.template.train(self.training), call)

        def one(weights: dict[str, Tensor], *own: Tensor) -> Any:
            return functional_call(module, weights, own)

        return torch.vmap(one, randomness="different")(self._state(), *inputs)

    def each(self, call: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Any]:
        """Apply ``call(module, own)`` to each module and its input, one after the other."""
        module, state = _Call(self.template.train(self.training), call), self._state()
        # Unbound, all modules' gradients of a weight come back in one piece.
        weights = zip(*(p.unbind(0) for p in state.values()))
        return [functional_call(module, dict(zip(state, own)), (x,)) for own, x in zip(weights, inputs)]

    @torch.no_grad()
    def finite(self) -> Tensor:
        """Whether all weights of each module are finite, [M] bool."""
        return torch.stack([torch.isfinite(p).reshape(self.count, -1).all(dim=1) for p in self._weights]).all(dim=0)

    def _state(self) -> dict[str, Tensor]:
        state = {f"module.{name}": _turned(p) for name, p in zip(self._names, self._weights)}
        return state | {f"module.{name}": self.buffer(name) for name in self._buffer_names}


class _Call(nn.Module):
    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self._call = call

    def forward(self, *inputs: Tensor) -> Any:
        return self._call(self.module, *inputs)


class StackedScorer(BagScorer):
    """M scorers as one with M times the bags: instances and bags come scorer after scorer, equally many bags for each.

    They are of one architecture and one score column, and their weights are copied; a `ConfigError` refuses several.

    Examples
    --------
    >>> from midam.nn.encoders import MLP
    >>> from midam.nn.pooling import AttentionPooling
    >>> scorers = [BagScorer(MLP(4), AttentionPooling(4)) for _ in range(3)]
    >>> z, v = StackedScorer(scorers).instances(torch.randn(3 * 5, 4))
    >>> z.shape, v.shape
    (torch.Size([15]), torch.Size([15, 1]))
    """

    def __init__(self, scorers: Sequence[BagScorer]) -> None:
        pooling = scorers[0].pooling
        if pooling.columns > 1:
            raise ConfigError(
                f"Expected scorers of one score column to train at once, got {pooling.name!r} of {pooling.columns}; "
                "train them one after the other."
            )
        if scorers[0].covariates is not None:
            raise ConfigError("Expected scorers without covariates to train at once; train them one after the other.")
        stack = Stack(scorers)
        super().__init__(nn.Identity(), _StackedPooling(stack, pooling))
        self.stack = stack
        self._repeatable = scorers[0].repeatable

    @property
    def repeatable(self) -> bool:
        """As of one of the scorers."""
        return self._repeatable

    def encoded(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Logits z [R] and values v [R, V] of instances u [R, ...], equally many for each scorer."""
        z, v = self.stack.over(BagScorer.instances, _by_module(u, self.stack.count))
        return z.flatten(0, 1), v.flatten(0, 1)

    def instances_of_bags(self, x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of the instances x [R, ...] of whole bags of `sizes` [M * K]."""
        rows = sizes.view(self.stack.count, -1).sum(dim=1)
        if (rows == rows[0]).all():
            return self.instances(x)
        # Padding costs arithmetic, rows of their own a call a scorer: of large bags the arithmetic is dearer.
        if len(x) > _PADDED_UP_TO * len(sizes):
            parts = self.stack.each(BagScorer.instances, torch.split(x, rows.tolist()))
            z, v = (torch.cat(out) for out in zip(*parts))
            return z, v
        width, first = int(rows.max()), rows.cumsum(0) - rows
        slot = torch.arange(width, device=x.device)
        real = slot < rows.unsqueeze(1)
        z, v = self.instances(x[torch.where(real, first.unsqueeze(1) + slot, first.unsqueeze(1)).flatten()])
        kept = real.flatten().nonzero().squeeze(1)
        return z[kept], v[kept]


class _StackedPooling(Pooling):
    def __init__(self, stack: Stack, pooling: Pooling) -> None:
        super().__init__(pooling.in_features)
        # In a list: the stack is no submodule of its own part.
        self._stack = [stack]
        for name in ("name", "statistic", "weighted", "value_size"):
            setattr(self, name, getattr(pooling, name))

    @property
    def weight_power(self) -> float:
        """Power of the weights, of all scorers alike."""
        return float(self._template.weight_power)

    @weight_power.setter
    def weight_power(self, power: float) -> None:
        self._template.weight_power = power

    @property
    def _template(self) -> Pooling:
        return cast(BagScorer, self._stack[0].template).pooling

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        return self._over(lambda scorer, *stat: scorer.pooling.score(*stat), l, r, n)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        return self._over(lambda scorer, *stat: scorer.pooling.logit(*stat), l, r, n)

    def _over(self, call: Callable[..., Any], *stat: Tensor) -> Tensor:
        stack = self._stack[0]
        found: Tensor = stack.over(call, *(_by_module(x, stack.count) for x in stat))
        return found.flatten(0, 1)


def _by_module(x: Tensor, count: int) -> Tensor:
    return x.reshape(count, len(x) // count, *x.shape[1:])


def _turned(weight: Tensor) -> Tensor:
    # A batched linear layer returns the gradient of its weight transposed in memory. Kept that way round, the weight
    # takes the gradient as it is, where torch would copy it into order at nearly the price of the product.
    return weight.transpose(1, 2) if weight.ndim == 3 else weight
