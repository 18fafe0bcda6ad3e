"""The tracked statistic of each training bag, and the pooling that uses it: MIDAM for any training loop.

`TrackedStatistic` is the moving average of eq. ui, sm and ab of the paper, with the gradient of a sample at this
average (G1 to G3), computed by `midam.functional.logmean`. The estimator ``vrsp`` of `midam fit` and `TrackedPooling`
are both built on it.

A bag's score answers a constant that is added to the logits, or to the values, of all instances. The moving average as
printed does so only in part, and drifts: a common shift of the logits, which changes no score, changes its gradient. So
it is kept relative to the level of the step, the means of l and r over the samples of its bags, and the level of the
current step is added again (`midam.functional.logmean.track`). Other levels were tried. With the mean logit of the
instances long trainings collapsed; a level of each class, or a floor under the share of the sample, gained nothing; a
level without gradient pushes the background down, as the printed state does. With the mean of the samples minus what is
remembered of the same bags, the state is nearer to the bags' own statistics, but ranks no better.
"""

import math
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from midam.errors import ConfigError, require_positive
from midam.functional.logmean import track
from midam.nn.objectives import Objective, StillParameters, checked_index, known_finite, warn_of_missing_commit
from midam.nn.pooling import Pooling, make_pooling
from midam.nn.pooling.base import DescribedState, plain_parameters, upcast, wide_enough
from midam.nn.scorer import BagOutput, each, fold, fold_slots, rows_of
from midam.process_group import Ranks, joined

AUTO: Final = "auto"
# Chosen on splits and seeds that `python -m studies tracked` does not judge.
_MEMORY, _BAGS = 32.0, 2.0  # instances that a state averages over at most, also as a multiple of the median bag
_VISITS = 3.0  # the share of its visits that a state remembers is at most about 2 / _VISITS


def usual_rate(visits: Tensor, settled: float | Tensor) -> Tensor:
    """Return gamma0 [] for the samples of bags that have been visited `visits` times [K], at the end `settled`.

    Of visits [K, T] in T trainings it is that of each, [T].

    It is equal for all bags of a step: bags of the rarer class are visited more often, and with a memory of their own
    they would differ from the others by memory alone. A state averages over as many instances as `settled_rate` says,
    but not over the first third of the visits of the bag that was visited least.

    Examples
    --------
    >>> [round(usual_rate(torch.tensor([least, 200.0]), settled_rate(8)).item(), 3) for least in (100.0, 4.0)]
    [0.4, 0.6]
    """
    return (_VISITS / (1 + visits.amin(dim=0))).clamp(min=settled).clamp(max=1.0)


def settled_rate(drawn: int, sizes: NDArray[np.integer[Any]] | None = None, *, bags: float = _BAGS) -> float:
    """Return gamma0 of bags that have been visited often, for samples of `drawn` instances; at most 1.

    A state averages over about 32 instances, or as many as `bags` median bags hold, of those that are sampled in part,
    by the `sizes` [N] of all training bags. Two bags are likely to hold each instance; what is older says more about
    old weights than about the bag (`python -m studies small-bags`).

    Examples
    --------
    >>> settled_rate(8), settled_rate(8, np.array([4, 12, 12])), settled_rate(2, np.array([2, 5, 5]))
    (0.4, 0.5, 0.3333333333333333)
    """
    parts = np.empty(0) if sizes is None else sizes[sizes > drawn]
    memory = min(_MEMORY, bags * float(np.median(parts))) if len(parts) else _MEMORY
    return min(1.0, 2 * drawn / (memory + drawn))


def mean_over_rows(x: Tensor) -> Tensor:
    """Return the mean [1, D] of rows x [K, D]."""
    return x.sum(dim=0, keepdim=True) / len(x)  # faster than mean


def mean_over_bags(x: Tensor, *, branches: int, ranks: Ranks | None) -> Tensor:
    """Return the mean of rows x [K * G, D] over the bags of a step in all processes, of each branch, for each row."""
    of_bags = x.view(-1, branches, x.shape[1])
    total, count = of_bags.sum(dim=0), x.new_tensor(len(of_bags))
    if ranks is not None:
        everyone = ranks.total(torch.cat([total.flatten(), count.view(1)]))
        total, count = everyone[:-1].view_as(total), everyone[-1]
    return (total / count).repeat(len(of_bags), 1)


class TrackedStatistic(nn.Module):
    """Moving average of each training bag's statistic, in log space (eq. ui, sm, ab); proposed, then committed.

    `bag_state` holds a row per bag, or per branch of a bag: visits, l, r, the last two relative to the level of the
    step that wrote them. The parameters are those of `midam.train.estimators.VarianceReduced`; where `relative` is
    False the state is that of the paper, with absolute l and r. The attribute `state_rate` is gamma0, or with "auto" a
    factor of `usual_rate`, 1 at first: lower it when the learning rate falls. `sizes` [N] are the numbers
    of instances of the training bags, if known: see `settled_rate`.
    """

    bag_state: Tensor
    relative = True

    def __init__(
        self,
        num_bags: int,
        value_size: int,
        *,
        branches: int = 1,
        state_rate: float | Literal["auto"] = AUTO,
        sizes: NDArray[np.integer[Any]] | None = None,
    ) -> None:
        super().__init__()
        if state_rate != AUTO:
            require_positive("1 forgets the past, 0.1 averages over ten visits", most=1, state_rate=state_rate)
        self.branches = branches
        self.usual, self._known_sizes = state_rate == AUTO, sizes
        self._settled: dict[int, float] = {}  # by the number of drawn instances
        self.state_rate = 1.0 if state_rate == AUTO else state_rate
        self.register_buffer("bag_state", torch.zeros(num_bags * branches, 2 + value_size))
        # In a list: setting an attribute of a module takes longer than most kernels here.
        self._proposed: list[tuple[Tensor, Tensor, Tensor]] = []
        self._fewest = 0.0  # visits that each bag is known to have

    def at_state(
        self, z: Tensor, v: Tensor, index: Tensor, *, sizes: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Update the state of the rows `index` [K] with a sample; return its l [K] and r [K, V] with their gradient.

        The gradient is that of the sample. `sizes` [K] are the numbers of instances of the whole bags; None if no
        sample is a whole bag. `z` [K, B] is very low where `mask` [K, B] is False. The new state waits for `commit`.
        If `torch.distributed` is set up, the level of the step is that of the bags of all processes.
        """
        ranks = joined(z.device) if self.relative else None
        old = self.bag_state.index_select(0, index)
        visits = old[:, :1]
        gamma0 = self._rate(visits, sizes, drawn=z.shape[1], mask=mask, ranks=ranks)
        z, v, past = (x.to(torch.promote_types(z.dtype, old.dtype)) for x in (z, v, old[:, 1:]))
        l, r, kept = track(z, v, past, gamma0=gamma0, mask=mask, level=self._level(ranks))  # noqa: E741
        self._proposed[:] = [(index, old, torch.cat([visits + 1, kept], dim=1))]
        return l, r

    def commit(self, loss: Tensor) -> None:
        """Write the proposed rows of the state, unless the loss is not finite."""
        if not self._proposed:
            return
        index, old, new = self._proposed.pop()
        if known_finite(loss):
            self._write(index, new.to(old.dtype))
            return
        # Not isfinite, which is four kernels: abs(.) < inf is false for NaN and infinity too.
        self._write(index, torch.where(loss.abs() < math.inf, new.to(old.dtype), old))

    def _write(self, index: Tensor, rows: Tensor) -> None:
        self.bag_state.index_copy_(0, index, rows)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the module as torch does, but keep the state in at least float32: it sums over many steps."""
        state = self.bag_state
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.bag_state = wide_enough(self.bag_state, state)
        return self

    def start_epoch(self) -> None:
        """Note how often each bag has been visited at least, so that the steps need not look."""
        self._fewest = float(self.bag_state[:, 0].min())

    def rate(self, drawn: int) -> float:
        """Return gamma0 of bags that have been visited before, for samples of `drawn` instances, in this epoch."""
        return float(self._step_rate(self.bag_state.new_tensor([self._fewest]), drawn=drawn, ranks=None))

    def settled_rate(self, drawn: int) -> float:
        """Return `settled_rate` of these bags."""
        if drawn not in self._settled:
            self._settled[drawn] = settled_rate(drawn, self._known_sizes)
        return self._settled[drawn]

    def _level(self, ranks: Ranks | None) -> Callable[[Tensor], Tensor] | None:
        if not self.relative:
            return None
        plain = self.branches == 1 and ranks is None
        return mean_over_rows if plain else partial(mean_over_bags, branches=self.branches, ranks=ranks)

    def _rate(
        self, visits: Tensor, sizes: Tensor | None, *, drawn: int, mask: Tensor | None, ranks: Ranks | None
    ) -> Tensor | float:
        """Return gamma0, a number or [K, 1]: 1 at a first visit, and for a bag that is sampled whole."""
        gamma0 = self._step_rate(visits, drawn=drawn, ranks=ranks)
        if self._fewest and sizes is None:
            return gamma0
        fresh = visits == 0
        if sizes is not None:
            fresh |= sizes.unsqueeze(1) <= (drawn if mask is None else mask.sum(dim=1, keepdim=True))
        return torch.where(fresh, torch.ones_like(visits), gamma0 * torch.ones_like(visits))

    def _step_rate(self, visits: Tensor, *, drawn: int, ranks: Ranks | None) -> Tensor | float:
        if not self.usual:
            return self.state_rate
        settled = self.settled_rate(drawn)
        if self._fewest >= _VISITS / settled - 1:
            return self.state_rate * settled
        return self.state_rate * usual_rate(visits if ranks is None else ranks.least(visits), settled)


class TrackedPooling(DescribedState, TrackedStatistic):
    """Pool a few instances of each bag to scores of the whole bags, with the gradient of these instances (VRSP).

    In training mode the scores have the value of the tracked statistic of each bag and the gradient of its sample
    (eq. ui, sm, ab, G1 to G3). `midam.nn.commit` writes the new state after the optimizer step. In evaluation mode the
    instances are treated as the whole bag, and no state is read or written; `evaluate` takes them in chunks.

    If `torch.distributed` is set up, `commit` sends the new rows of each process to all: every process holds the same
    state, whichever bags it has seen. All processes must pass equally many bags per step. The gradients of parameters
    of a pooling by name, as noisy-and has one, are averaged; give ``pool.parameters()`` to the optimizer.

    Parameters
    ----------
    pooling : str or Pooling
        "attention", which takes a logit and a value of each instance; "mean", "smoothed-max", "generalized-mean",
        "noisy-or" or "noisy-and", which take a score of each; or a `Pooling` with its layers, called on the
        encodings: ``pool(*pooling(e), index)``.
    num_bags : int
        Number N of training bags.
    sizes : array of int [N], optional
        Numbers of instances of the training bags. Noisy-or needs them. With them, a bag whose instances are all in the
        sample takes the value of the sample alone, and states of small bags remember less (`settled_rate`).
    columns : int
        Number C of scores of a bag.
    logits : bool
        Return logits instead of scores in [0, 1], for `BCELoss`, `CrossEntropyLoss`, `CoxLoss` and the losses of torch.
    state_rate : float or "auto"
        gamma0 in (0, 1], the weight of the new sample; "auto" is `usual_rate`.
    relative : bool
        Keep the state relative to the level of the step, so that it answers shifts of logits and values as the bag
        does; False is the state as the paper prints it. With one bag per step and process there is nothing to compare
        it with: nothing is remembered then.
    **options
        Options of a pooling that is given by name, such as ``temperature=0.1``.

    Attributes
    ----------
    bag_state : Tensor [N, 2 + V], float32
        Visits, l and r of each bag, relative to the level of the step that wrote them: a buffer, which moves, saves and
        loads with the module. The state of another pooling raises a `CheckpointError`.

    Examples
    --------
    >>> pool = TrackedPooling("attention", num_bags=100)
    >>> z, v = torch.zeros(2, 4, requires_grad=True), torch.zeros(2, 4)
    >>> scores = pool(z, v, torch.tensor([7, 3]))
    >>> scores.sum().backward()
    >>> commit(pool)
    >>> scores.tolist(), pool.bag_state[:, 0].sum().item()
    ([0.5, 0.5], 2.0)
    """

    sizes: Tensor | None
    rates = ("state_rate",)

    def __init__(
        self,
        pooling: str | Pooling,
        *,
        num_bags: int,
        sizes: ArrayLike | None = None,
        columns: int = 1,
        logits: bool = False,
        state_rate: float | Literal["auto"] = AUTO,
        relative: bool = True,
        **options: Any,
    ) -> None:
        self._named = isinstance(pooling, str)  # its few parameters are in no network that the user shares
        if isinstance(pooling, str):
            pooling = make_pooling(pooling, 1, squash=not logits, columns=columns, **options).without_layers()
        if not pooling.statistic.trackable:
            raise ConfigError(f"Expected a smooth pooling, got {pooling.name!r}; use 'smoothed-max'.")
        super().__init__(num_bags, pooling.value_size, branches=pooling.branches, state_rate=state_rate)
        self.pooling, self.logits, self.relative = pooling, logits, relative
        known = None if sizes is None else np.asarray(sizes.cpu() if isinstance(sizes, Tensor) else sizes).reshape(-1)
        known = known.astype(np.int64) if known is not None and known.dtype.kind in "ub" else known
        counts = None if known is None else torch.as_tensor(known)
        if counts is not None and (len(counts) != num_bags or not bool((counts.round().clamp(min=1) == counts).all())):
            raise ConfigError(f"Expected a size above 0 of each of {num_bags} bags, got {counts}; pass all sizes.")
        if counts is None and pooling.counts:
            raise ConfigError(
                f"Expected the sizes of the training bags for {pooling.name!r}, whose score depends on them, got none; "
                "give sizes=[...]."
            )
        self._known_sizes = known
        self.register_buffer("sizes", counts, persistent=False)
        self._pulls: list[Tensor] = []  # sums of the gradient of the scores since the last step
        self._still = StillParameters()

    def forward(
        self, z: Tensor, v: Tensor | None = None, index: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Return the scores [K], or [K, C], of K bags from B instances of each.

        Parameters
        ----------
        z, v : Tensor [K, B], Tensor [K, B] or [K, B, V]
            For attention, the logit of an instance's weight, and its value. For a pooling of scores by name, the score
            before the sigmoid: v, or z if v is not given. [K, B, C] with several columns. For a `Pooling`, its outputs,
            by bag.
        index : Tensor [K], int64
            Positions of the bags in the training set, in [0, N), each once. Not needed in evaluation mode. If z is the
            score, it may be passed as v.
        mask : Tensor [K, B], bool, optional
            True where there is an instance, at least one per bag. Default: everywhere.
        """
        if index is None and v is not None and not (isinstance(v, Tensor) and (v.ndim > 1 or v.is_floating_point())):
            v, index = None, v  # called as (score, index)
        alike = all(x is None or (x.ndim > 1 and x.shape[:2] == z.shape[:2]) for x in (z, v, mask))
        if not alike or not z.shape[:2].numel():
            shapes = [None if x is None else list(x.shape) for x in (z, v, mask)]
            raise ConfigError(
                "Expected z, v and mask [K, B] for B instances of each of K bags, got shapes "
                f"{shapes}; give all for the same instances."
            )
        if mask is not None:
            if mask.device.type == "cpu" and not bool(mask.any(dim=1).all()):  # a GPU would have to synchronize
                empty = int((~mask.any(dim=1)).nonzero()[0])
                raise ConfigError(f"Expected an instance in each row of mask, got none (in row {empty}); drop the bag.")
            mask = mask.to(z.device, torch.bool)
            # An empty slot may hold any value, which must not reach a gradient.
            z, v = _filled(z, mask, 0.0), None if v is None else _filled(v, mask, 0.0)
        z, v = self._terms(z, v)
        if mask is not None:
            z = _filled(z, mask, torch.finfo(z.dtype).min / 4)
        z, v = fold_slots(z, v)
        mask = None if mask is None else each(mask, self.branches)
        if not self.training:
            n, l, r = self.pooling.statistic.sample(z, v, mask=mask)  # noqa: E741
            return self._scores(l, r, n)
        if not torch.is_grad_enabled():
            text = "TrackedPooling in training mode mixes what it remembers of training bags into the scores"
            warnings.warn(f"{text}: call eval() first to score other bags, and train() afterwards", stacklevel=3)
        warn_of_missing_commit(self, bool(self._proposed))
        known = checked_index(index, len(z) // self.branches, len(self.bag_state) // self.branches)
        index = rows_of(known.to(self.bag_state.device), self.branches)
        sizes = None if self.sizes is None else self.sizes[torch.div(index, self.branches, rounding_mode="floor")]
        l, r = self.at_state(z, v, index, sizes=sizes, mask=mask)  # noqa: E741
        n = z.new_full((len(z),), z.shape[1]) if mask is None else mask.sum(dim=1)
        scores = self._scores(l, r, (n if sizes is None else sizes).to(z.dtype))
        self._pulls.clear()
        if joined(z.device) is not None:
            for parameter in self.pooling.parameters() if self._named else ():
                if not parameter._post_accumulate_grad_hooks:
                    parameter.register_post_accumulate_grad_hook(_mean_gradient)  # type: ignore[no-untyped-call]
        if scores.requires_grad:
            scores.register_hook(lambda gradient: self._pulls.append(gradient.sum()))  # type: ignore[no-untyped-call]
        return scores

    @torch.no_grad()
    def evaluate(self, chunks: Iterable[Tensor | tuple[Tensor, Tensor | None]]) -> Tensor:
        """Return the score [], or [C], of one whole bag, given in chunks, in the memory of one chunk, without state.

        A chunk is (z, v), or z alone, of m instances: [m] and [m, V], as for `forward` but without the axis K. Encode
        in evaluation mode and in a generator, so that only one chunk exists at a time.

        Examples
        --------
        >>> pool = TrackedPooling("mean", num_bags=1)
        >>> pool.evaluate(torch.tensor(part) for part in ([0.0, 0.0], [0.0])).item()
        0.5
        """
        total = self.pooling.statistic.total(self.branches)
        for chunk in chunks:
            z, v = fold(*self._terms(*(chunk if isinstance(chunk, tuple | list) else (chunk, None))))
            positions = torch.arange(len(z) // self.branches)
            segment = rows_of(torch.zeros_like(positions, device=z.device), self.branches)
            total.add(each(positions, self.branches), segment, z, v)
        n, l, r = total.value()  # noqa: E741
        return self._scores(l, r, n).squeeze(0)

    def _meaning(self) -> dict[str, Any]:
        kind = {"relative": self.relative, "state_rate": "auto" if self.usual else "a number"}
        return {"pooling": self.pooling.name, **kind, **plain_parameters(self.pooling)}

    def commit(self, loss: Tensor | None = None) -> None:
        """Write the proposed rows, unless the `loss` is not finite; by default, the rows and the gradient of scores."""
        self._still.look(self, name="pool")
        if self._proposed:
            super().commit(self._proposed[0][2].sum() + sum(self._pulls) if loss is None else loss)

    def _write(self, index: Tensor, rows: Tensor) -> None:
        ranks = joined(rows.device)
        if ranks is None:
            return super()._write(index, rows)
        ranks.check_equal(len(index))
        index, rows = ranks.join(index), ranks.join(rows)
        for rank in range(ranks.count):  # for a bag that two processes saw, all keep the row of the later process
            super()._write(index[rank :: ranks.count], rows[rank :: ranks.count])

    def _terms(self, z: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the logits and values [..., V] of the statistic, in at least float32."""
        if isinstance(getattr(self.pooling, "scorer", None), nn.Identity):
            scores = z if v is None else v
            if self.pooling.columns == 1:
                scores = scores.reshape(z.shape)
            z, v = self.pooling(scores.reshape(-1, self.pooling.columns))
            shape = scores.shape if self.pooling.columns == 1 else scores.shape[:-1]
            return z.view(*shape, *z.shape[1:]), v.view(*shape, *v.shape[1:])
        v = z.new_empty(*z.shape, 0) if v is None else v
        v = v.unsqueeze(-1) if v.ndim == z.ndim else v
        if v.shape[-1] != self.pooling.value_size:
            raise ConfigError(
                f"Expected values of width {self.pooling.value_size} for {self.pooling.name!r}, got {v.shape[-1]}; "
                "give a value of each instance next to its logit."
            )
        return upcast(z), upcast(v)

    def _scores(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        output = BagOutput(l, r, n, self.pooling)
        return output.logit if self.logits else output.score


def _mean_gradient(parameter: Tensor) -> None:
    """Average a gradient over the processes, as `DistributedDataParallel` does."""
    ranks = joined(parameter.device)
    if ranks is not None and parameter.grad is not None:
        parameter.grad.copy_(ranks.total(parameter.grad.view(1, -1)).view_as(parameter.grad) / ranks.count)


def _filled(x: Tensor, mask: Tensor, value: float) -> Tensor:
    return x.masked_fill(~mask.view(*mask.shape, *[1] * (x.ndim - 2)), value)


def commit(*modules: nn.Module, loss: Tensor | None = None) -> None:
    """Write the values that the last forward passes proposed: tracked statistics, dual variables, states of losses.

    Call it once after each backward pass, and after ``optimizer.step()`` if the optimizer steps; with accumulated
    gradients, after each batch.

    Parameters
    ----------
    *modules : nn.Module
        Poolings and losses, or modules that contain them.
    loss : Tensor [], optional
        If it is not finite, nothing is written. Default: the sum of the losses among the modules.

    Raises
    ------
    ConfigError
        If there is no `TrackedPooling` and no loss of `midam.nn` in the modules.
    """
    parts = [part for one in modules for part in one.modules() if isinstance(part, TrackedPooling | Objective)]
    if not parts:
        raise ConfigError("Expected a TrackedPooling or a loss of midam.nn, got none; call commit(pool, loss_fn).")
    losses = [part.last[0] for part in parts if isinstance(part, Objective) and part.last]
    if loss is None and losses:
        loss = torch.stack(losses).sum()
    if loss is not None and loss.device.type == "cpu" and not bool(loss.isfinite()):
        warnings.warn("the loss is not finite, so no state was written: look at x, or lower the rate", stacklevel=2)
    for part in parts:
        if isinstance(part, TrackedPooling):
            part.commit(loss)
        elif loss is not None:
            part.commit(loss.detach())
