"""Several scorers of one architecture as one module whose parameters carry a leading axis, one entry a scorer.

A small network spends most of a step outside its arithmetic. Stacked, M of them take little more than one.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from midam.nn.heads import Pooling
from midam.nn.scorer import BagScorer


class StackedScorer(BagScorer):
    """M scorers side by side: rows of instances and bags come scorer after scorer, equally many for each.

    Serves an estimator of sampled batches as one `BagScorer` with M times the bags. Noise (dropout) is drawn for each
    scorer on its own.

    Parameters
    ----------
    scorers : sequence of M BagScorer
        Of one architecture; their weights are copied.

    Examples
    --------
    >>> from midam.nn.attention import AttentionPooling
    >>> from midam.nn.encoders import MLP
    >>> scorers = [BagScorer(MLP(4), AttentionPooling(4)) for _ in range(3)]
    >>> z, v = StackedScorer(scorers).instances(torch.randn(3 * 5, 4))
    >>> z.shape, v.shape
    (torch.Size([15]), torch.Size([15, 1]))
    """

    def __init__(self, scorers: Sequence[BagScorer]) -> None:
        # In a list, so that the template's own weights are no parameters of this module.
        self._template = [copy.deepcopy(scorers[0])]
        super().__init__(nn.Identity(), StackedPooling(self, scorers[0].pooling))
        self.num_scorers = len(scorers)
        parameters, buffers = stack_module_state(list(scorers))
        self._names, self._buffer_names = list(parameters), list(buffers)
        self.stacked = nn.ParameterList(nn.Parameter(_turned(p.detach()).contiguous()) for p in parameters.values())
        for i, buffer in enumerate(buffers.values()):
            self.register_buffer(f"stacked_buffer_{i}", buffer)

    @property
    def repeatable(self) -> bool:
        """Whether an instance encoded twice is encoded alike, as `MLP.repeatable`."""
        return getattr(self._template[0].encoder, "repeatable", False)

    def instances(self, x: Tensor, rows: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """Logits z [R] and values v [R, V] of instances x [R, ...], `rows` of them for each scorer (default: equal).

        Unequal rows go through one scorer after the other, which pays where they are many.
        """
        if rows is None:
            z, v = self.over_scorers(_Instances, x)
            return z, v
        module = _Instances(self._template[0].train(self.training))
        names = [f"scorer.{name}" for name in (*self._names, *self._buffer_names)]
        buffers = [getattr(self, f"stacked_buffer_{i}") for i in range(len(self._buffer_names))]
        # Unbound, all scorers' gradients of a weight come back in one piece.
        weights = zip(*(p.unbind(0) for p in (*map(_turned, self.stacked), *buffers)))
        own_rows = torch.split(x, list(rows))
        parts = [functional_call(module, dict(zip(names, own)), (part,)) for own, part in zip(weights, own_rows)]
        z, v = (torch.cat(out) for out in zip(*parts))
        return z, v

    def over_scorers(self, call: "type[_Call]", *inputs: Tensor) -> Any:
        """Apply `call` to each scorer and its share of the rows of `inputs`; joins the outputs' rows."""
        template = self._template[0].train(self.training)
        prefix = "scorer."
        parameters = {prefix + name: _turned(p) for name, p in zip(self._names, self.stacked)}
        buffers = {prefix + name: getattr(self, f"stacked_buffer_{i}") for i, name in enumerate(self._buffer_names)}
        module = call(template)

        def one(p: dict[str, Tensor], b: dict[str, Tensor], *own: Tensor) -> Any:
            return functional_call(module, (p, b), own)

        split = [x.reshape(self.num_scorers, len(x) // self.num_scorers, *x.shape[1:]) for x in inputs]
        out = torch.vmap(one, randomness="different")(parameters, buffers, *split)
        return tuple(o.flatten(0, 1) for o in out) if isinstance(out, tuple) else out.flatten(0, 1)

    @torch.no_grad()
    def finite(self) -> Tensor:
        """Whether all weights of each scorer are finite, [M] bool."""
        return torch.stack([torch.isfinite(p).reshape(self.num_scorers, -1).all(dim=1) for p in self.stacked]).all(
            dim=0
        )

    def unstack(self, index: int) -> BagScorer:
        """Scorer `index` alone, a copy."""
        scorer = copy.deepcopy(self._template[0])
        state = {name: _turned(p.detach())[index] for name, p in zip(self._names, self.stacked)}
        state |= {n: getattr(self, f"stacked_buffer_{i}")[index] for i, n in enumerate(self._buffer_names)}
        scorer.load_state_dict(state)
        return scorer


class StackedPooling(Pooling):
    """f2 of M stacked scorers; see `midam.nn.heads.Pooling`."""

    def __init__(self, owner: StackedScorer, head: Pooling) -> None:
        super().__init__(head.in_features)
        # In a list: the owner is no submodule of its own part.
        self._owner = [owner]
        self.name, self.smooth, self.weighted, self.value_size = head.name, head.smooth, head.weighted, head.value_size

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Bag scores [M * K]."""
        out: Tensor = self._owner[0].over_scorers(_Score, l, r, n)
        return out

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Logits of the bag scores [M * K]."""
        out: Tensor = self._owner[0].over_scorers(_Logit, l, r, n)
        return out


class _Call(nn.Module):
    """What `functional_call` runs: one method of a scorer."""

    def __init__(self, scorer: BagScorer) -> None:
        super().__init__()
        self.scorer = scorer


class _Instances(_Call):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.scorer.instances(x)


class _Score(_Call):
    def forward(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        return self.scorer.pooling.score(l, r, n)


class _Logit(_Call):
    def forward(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        return self.scorer.pooling.logit(l, r, n)


def _turned(weight: Tensor) -> Tensor:
    # A batched linear layer returns the gradient of its weight transposed in memory. Kept that way round, the weight
    # takes the gradient as it is, where torch would copy it into order at nearly the price of the product.
    return weight.transpose(1, 2) if weight.ndim == 3 else weight
