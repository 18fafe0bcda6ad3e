"""The statistics of poolings (log-weighted mean and maximum), the base of poolings, and poolings around another."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from midam.errors import BagDataError, CheckpointError, ConfigError, require_positive
from midam.functional import logmean, maximum
from midam.functional import poolings as f
from midam.functional.logmean import BagStatistic
from midam.registry import POOLINGS, NamedPart


@dataclass(frozen=True)
class Statistic:
    """Statistic (n, l, r) of the instances of a bag: a `midam.functional.logmean.BagStatistic`.

    Attributes
    ----------
    sample : callable
        ``sample(z, v, mask=)`` of samples z [K, B], v [K, B, V], with gradient; masked slots hold finite logits.
    reduce_segments, merge : callable
        As in `midam.functional.logmean`.
    carrier : callable, optional
        ``carrier(z, segment, num_bags=)`` returns the row [K] of the instance that carries all of a bag's gradient;
        None if every instance carries a part.
    is_mean : bool
        Whether l and r are means over the instances, as in `midam.functional.logmean`: an instance can be taken out.

    Examples
    --------
    The mean and the maximum of two bags with 2 and 1 instances, each with one score:

    >>> scores, segment = torch.tensor([0.25, 0.75, 0.5]), torch.tensor([0, 0, 1])
    >>> LOG_MEAN.reduce_segments(torch.zeros(3), scores.unsqueeze(1), segment, num_bags=2).r.squeeze(1)
    tensor([0.5000, 0.5000])
    >>> MAXIMUM.reduce_segments(scores, torch.empty(3, 0), segment, num_bags=2).l
    tensor([0.7500, 0.5000])
    """

    sample: Callable[..., BagStatistic]
    reduce_segments: Callable[..., BagStatistic]
    merge: Callable[[BagStatistic, BagStatistic], BagStatistic]
    carrier: Callable[..., Tensor] | None = None
    is_mean: bool = False

    @property
    def trackable(self) -> bool:
        """Whether it can be linearized at any point: a moving average can track it, and any sample has its gradient."""
        return self.carrier is None

    def total(self, num_bags: int) -> "Total":
        """Make the `Total` of K bags."""
        return Total(self, num_bags)


class Total:
    """The statistic of K bags, merged from chunks of instances without a graph, in O(K V) memory.

    It is merged in float64: in float32 the mean of a million instances depends on the chunks.

    Attributes
    ----------
    where : Tensor [K], int64
        On the CPU, the flat position of each bag's carrier, where `Statistic.carrier` is not None.

    Examples
    --------
    The mean of a bag of three instances in two chunks; `positions` are the positions of instances in the data:

    >>> total = LOG_MEAN.total(1)
    >>> for low, values in ((0, [1.0, 2.0]), (2, [6.0])):
    ...     v = torch.tensor(values).unsqueeze(1)
    ...     segment = torch.zeros(len(v), dtype=torch.int64)
    ...     _ = total.add(low + torch.arange(len(v)), segment, torch.zeros(len(v)), v)
    >>> total.value().r.tolist()
    [[3.0]]
    """

    def __init__(self, statistic: Statistic, num_bags: int) -> None:
        self.statistic, self.num_bags = statistic, num_bags
        self.where = torch.zeros(num_bags, dtype=torch.int64)
        self._merged: BagStatistic | None = None
        self._dtype = torch.float32

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> BagStatistic:
        """Merge instances at `positions` (flat, int64 [m], CPU) of bags `segment` (int64 [m]); return theirs alone."""
        part = self.statistic.reduce_segments(z.double(), v.double(), segment, num_bags=self.num_bags)
        if self.statistic.carrier is not None:
            row = self.statistic.carrier(z, segment, num_bags=self.num_bags).clamp(max=len(z) - 1)
            better = part.l > (self._merged.l if self._merged is not None else -torch.inf)
            self.where = torch.where(better.cpu(), positions[row.cpu()], self.where)
        self._merged = part if self._merged is None else self.statistic.merge(self._merged, part)
        self._dtype = z.dtype
        return part

    @property
    def merged(self) -> BagStatistic:
        """The merged statistic in float64."""
        if self._merged is None or not self._merged.n.any():
            raise BagDataError("Expected at least one instance, got an empty batch; pass bags that hold instances.")
        return self._merged

    def value(self) -> BagStatistic:
        """Return the merged statistic in the dtype of the logits."""
        return BagStatistic(*(x.to(self._dtype) for x in self.merged))


LOG_MEAN = Statistic(logmean.reduce_sample, logmean.reduce_segments, logmean.merge, is_mean=True)
MAXIMUM = Statistic(maximum.reduce, maximum.reduce_segments, maximum.merge, carrier=maximum.first_maximum)


class Pooling(NamedPart, nn.Module):
    """Base of the poolings: maps encodings [M, D] to logits z [M] and values v [M, V], and owns the outer function f2.

    `in_features` is D. Scores are cast to float32 (`upcast`) before any nonlinearity, whatever the precision of the
    encoder.

    A pooling with several score `columns` C, which share the encodings, has 1 or C `branches` G. With one branch, all
    columns use the same logits and values: z [M], v [M, V]. With C, each column has separate logits and values:
    z [M, G], v [M, G, V], and the statistic has a row per bag and branch (`midam.nn.scorer`). In both cases `score`
    returns [K, C] instead of [K].

    Attributes
    ----------
    name : str
        Name in messages; by default that of the class.
    columns : int
        C, at least 1; more than 1 only if the constructor takes `columns` and passes it on to this constructor.
    branches : int
        G: by default C if the pooling is `weighted`, else 1.
    statistic : Statistic
        Statistic of a bag: `LOG_MEAN` or `MAXIMUM`.
    counts : bool
        Whether the score depends on the number of instances of the bag.
    weighted : bool
        Whether z varies: it then ranks the instances of a bag, and sampling in proportion to exp(z) beats uniform
        sampling.
    value_size : int
        V.
    anneals : bool
        Whether it uses `weight_power`.
    weight_power : float
        Power of the instances' weights: 1, or less while the training anneals it, which brings the pooling closer to
        the mean. Not saved with the weights.

    Examples
    --------
    A custom pooling, the square root of the mean of the instance scores:

    >>> class RootMean(Pooling):
    ...     value_size = 1
    ...
    ...     def __init__(self, in_features):
    ...         super().__init__(in_features)
    ...         self.scorer = nn.Linear(in_features, 1)
    ...
    ...     def forward(self, e):
    ...         v = torch.sigmoid(upcast(self.scorer(e)))
    ...         return v.new_zeros(len(v)), v  # equal weights
    ...
    ...     def score(self, l, r, n):
    ...         return r.squeeze(-1).sqrt()
    >>> from midam.nn import BagScorer
    >>> model = BagScorer(nn.Identity(), RootMean(1).without_layers())
    >>> x = torch.tensor([[0.36], [0.14]]).logit()
    >>> round(model(x, torch.tensor([2])).score.item(), 2)
    0.5
    """

    statistic: ClassVar[Statistic] = LOG_MEAN
    counts: ClassVar[bool] = False
    weighted = False
    value_size = 0
    anneals: ClassVar[bool] = False
    weight_power: float = 1.0
    columns: int = 1
    branches: int = 1

    def __init__(self, in_features: int, *, columns: int = 1) -> None:
        super().__init__()
        self.in_features, self.columns = in_features, columns
        self.branches = columns if self.weighted else 1

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]; of several branches [M, G] and [M, G, V]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return bag scores in [0, 1], [K], from the statistic l [K], r [K, V] and the counts n [K].

        With several columns the scores are [K, C]; with several branches the inputs are l [K, G], r [K, G, V] and
        n [K, G]. A subclass defines this, or `logit`.
        """
        return torch.sigmoid(self.logit(l, r, n))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores, [K] or [K, C]."""
        return f.logit(self.score(l, r, n))

    def check_sizes(self, largest: int) -> None:
        """Warn if bags of `largest` instances harm this pooling."""

    def without_layers(self) -> Self:
        """Drop the layers between encodings and pooled scores: instances are then given as scores [M, C]."""
        if not hasattr(self, "scorer"):
            raise ConfigError(
                f"Expected the name of a pooling without layers, or 'attention', got {self.name!r}; give an instance, "
                "made for the width of the encodings."
            )
        self.scorer: nn.Module = nn.Identity()
        return self


class ScorePooling(Pooling):
    """Base of the poolings of one score per instance.

    With `squash`, phi = sigmoid(score) is pooled, as the AUC objectives need; without it, the raw score is pooled to
    the bag's logit, as cross-entropy needs. The `term` of an instance is its logit if the pooling is `weighted`, with
    V = 0; else its value, V = C, and all weights are equal.

    Examples
    --------
    A custom pooling of instance scores, the root of their mean square:

    >>> class RootMeanSquare(ScorePooling):
    ...     def term(self, e):
    ...         return self.instance_score(e).square()
    ...
    ...     def pooled(self, l, r):
    ...         return r.squeeze(-1).sqrt()
    >>> from midam.nn import BagScorer
    >>> model = BagScorer(nn.Identity(), RootMeanSquare(1).without_layers())
    >>> x = torch.tensor([[0.1], [0.7]]).logit()
    >>> round(model(x, torch.tensor([2])).score.item(), 2)
    0.5
    """

    def __init__(self, in_features: int, *, squash: bool = True, columns: int = 1) -> None:
        super().__init__(in_features, columns=columns)
        self.squash = squash
        self.value_size = 0 if self.weighted else columns
        self.scorer = nn.Linear(in_features, columns)

    def raw_score(self, e: Tensor) -> Tensor:
        """Return the raw scores of instances, [M] or [M, C], from encodings e [M, D]."""
        return upcast(self.scorer(e)).squeeze(-1)

    def instance_score(self, e: Tensor) -> Tensor:
        """Return the scores or logits to pool, [M] or [M, C], from encodings e [M, D]."""
        return torch.sigmoid(self.raw_score(e)) if self.squash else self.raw_score(e)

    def term(self, e: Tensor) -> Tensor:
        """Return the logit, or the value, of each instance, [M] or [M, C], from encodings e [M, D]."""
        return self.instance_score(e)

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]; of several branches [M, G] and [M, G, V]."""
        term = self.term(e)
        if self.weighted:
            return term, term.new_empty(*term.shape, 0)
        return term.new_zeros(term.shape[0]), term.unsqueeze(-1) if self.columns == 1 else term

    def pooled(self, l: Tensor, r: Tensor) -> Tensor:  # noqa: E741
        """Return the pooled instance scores [K] or [K, C]."""
        raise NotImplementedError

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the bag scores [K] or [K, C]."""
        pooled = self.pooled(l, r)
        return pooled if self.squash else torch.sigmoid(pooled)

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: ARG002, E741
        """Return the logits of the bag scores [K] or [K, C]."""
        pooled = self.pooled(l, r)
        return f.logit(pooled) if self.squash else pooled


def upcast(x: Tensor) -> Tensor:
    """Cast half precision to float32; wider types stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def wide_enough(new: Tensor, old: Tensor) -> Tensor:
    """Return a moved or cast tensor, but `old` on its device if it was cast to half precision."""
    return old.to(new.device) if upcast(new) is not new else new


def one_a_column(start: Tensor, columns: int) -> Tensor:
    """Return the initial value of a learnable number [] of a pooling; with several columns one for each, [C]."""
    return start if columns == 1 else start.repeat(columns)


class DescribedState(nn.Module):
    """Base of modules that remember bags: a saved state names the settings that give it its meaning.

    The state of other settings raises a `CheckpointError` before anything of the module is loaded. The `rates`, which
    fall during a training, are saved and loaded, and values that wait for `commit` are dropped by loading.
    """

    rates: tuple[str, ...] = ()

    def _meaning(self) -> dict[str, Any]:
        raise NotImplementedError

    def get_extra_state(self) -> Tensor:
        """Return the settings as the bytes of a JSON text, which every format of checkpoints can hold."""
        held = [self._meaning(), {name: float(getattr(self, name)) for name in self.rates}]
        return torch.frombuffer(bytearray(json.dumps(held).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the rates; the settings were compared before."""
        vars(self).update(json.loads(bytes(state.tolist()))[1])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        saved, now = state_dict.get(f"{prefix}_extra_state"), self._meaning()
        for name, value in ({} if saved is None else json.loads(bytes(saved.tolist()))[0]).items():
            if value != now.get(name):
                text = (
                    f"Expected a state of {type(self).__name__} with {name}={now.get(name)!r}, got one with {value!r}"
                )
                raise CheckpointError(f"{text}; make it as it was saved.")
        vars(self)["_proposed"].clear()
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def plain_parameters(part: nn.Module, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the parameters of the constructor of a part that it holds as plain values under their names."""
    values = {name: getattr(part, name, ...) for name in inspect.signature(type(part)).parameters if name not in but}
    return {name: value for name, value in values.items() if isinstance(value, float | int | str | None)}


class WrappedPooling(Pooling):
    """Another pooling, with the same name, statistic, z and v; a subclass changes its scores."""

    def __init_subclass__(cls) -> None:
        """Do not name the class: the name is that of the inner pooling."""

    def __init__(self, inner: Pooling) -> None:
        super().__init__(inner.in_features)
        self.inner, self.weighted, self.value_size = inner, inner.weighted, inner.value_size
        vars(self).update(name=inner.name, counts=inner.counts)

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """Statistic of the inner pooling."""
        return self.inner.statistic

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z and values v of the inner pooling, from encodings e [M, D]."""
        z, v = self.inner(e)
        return z, v

    def check_sizes(self, largest: int) -> None:
        """Warn if bags of this many instances harm the inner pooling."""
        self.inner.check_sizes(largest)


class RescaledPooling(WrappedPooling):
    """Another pooling, with the same statistic, z and v, whose scores h become ``sigmoid(scale * logit(h) + offset)``.

    The logit is `midam.functional.poolings.bounded_logit`, in float64: it is finite for scores of exactly 0 or 1, and
    bags keep their order.

    Parameters
    ----------
    inner : Pooling
        Trained or fitted pooling of one score column; `RescaledPooling` is not for training.
    scale, offset : float
        scale > 0; both are saved, in float64.

    Examples
    --------
    >>> from midam.nn.pooling import MeanPooling
    >>> pooling = RescaledPooling(MeanPooling(4), scale=2.0, offset=-1.0)
    >>> half = torch.full((1, 1), 0.5)
    >>> round(pooling.score(half[0], half, torch.ones(1)).item(), 4)  # sigmoid(-1)
    0.2689
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, inner: Pooling, scale: float = 1.0, offset: float = 0.0) -> None:
        super().__init__(inner)
        require_positive("choose a positive number", scale=scale)
        if inner.columns > 1:
            raise ConfigError(
                f"Expected a pooling of one score column, got {inner.name!r} with {inner.columns}; rescale one column."
            )
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))
        self.register_buffer("offset", torch.tensor(offset, dtype=torch.float64))

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores [K], float64."""
        inner = f.bounded_logit(torch.sigmoid(self.inner.logit(l, r, n).double()))
        return self.scale * inner + self.offset


class ColumnPooling(WrappedPooling):
    """Column `column`, from 0, of another pooling, with its weights and statistic.

    Examples
    --------
    >>> import torch
    >>> from midam.nn.pooling import AttentionPooling
    >>> several = AttentionPooling(4, columns=3, attention="per-class")
    >>> z, v = ColumnPooling(several, 2)(torch.ones(5, 4))
    >>> z.shape, v.shape
    (torch.Size([5]), torch.Size([5, 1]))
    """

    def __init__(self, inner: Pooling, column: int) -> None:
        super().__init__(inner)
        self.column = column

    def forward(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of encodings e [M, D]."""
        return self.own(*self.inner(e))

    def own(self, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [M] and values [M, V] of this column among those of all, [M, C] and [M, C, V]."""
        return (z, v) if self.inner.branches == 1 else (z[:, self.column], v[:, self.column])

    def score(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the bag scores [K]."""
        return self.inner.score(*self._given(l, r, n))[:, self.column]

    def logit(self, l: Tensor, r: Tensor, n: Tensor) -> Tensor:  # noqa: E741
        """Return the logits of the bag scores [K]."""
        return self.inner.logit(*self._given(l, r, n))[:, self.column]

    def _given(self, *statistic: Tensor) -> tuple[Tensor, ...]:
        # All branches get the statistic of this column; only the score of this column is used.
        branches = self.inner.branches
        if branches == 1:
            return statistic
        return tuple(x.unsqueeze(1).expand(-1, branches, *x.shape[1:]) for x in statistic)


def check_columns(pooling: Pooling, columns: int) -> None:
    """Refuse a pooling with another number of score columns; without the parameter `columns` it has one."""
    if pooling.columns == columns:
        return
    able = POOLINGS.where(lambda kind: "columns" in inspect.signature(kind).parameters)
    raise ConfigError(
        f"Expected a pooling of {columns} score columns, got {pooling.name!r} with {pooling.columns}; poolings with "
        f"`columns` are {', '.join(able)}."
    )
