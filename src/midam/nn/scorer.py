"""The bag scorer: encoder, pooling and a linear term of covariates in one module.

One pass gives all score columns. If each column weights the instances separately, the pooling has G branches, and
instances have logits z [M, G] and values v [M, G, V]. The statistics see only rows: row ``k * G + g`` is branch g of
bag k, and row ``j * G + g`` is branch g of instance j. With one branch, z [M] and v [M, V], the functions here return
their arguments unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.nn.pooling.base import ColumnPooling, Pooling


class CovariateTerm(nn.Module):
    """Adds ``w . x`` to the logit of a bag with the encoded covariates x; w starts at 0.

    The term does not depend on the sampled instances, so no estimator has to track it. The coder is saved and loaded
    with the weights.

    Parameters
    ----------
    coder : midam.data.CovariateCoder
        Fitted on training bags only.
    columns : int
        Number C of score columns; each has separate weights.

    Attributes
    ----------
    weight : Parameter [P], or [C, P] with several columns
        w, the increase of the logit per standard deviation of a number, or for a category.

    Examples
    --------
    >>> from midam.data import CovariateCoder, Covariates
    >>> train = Covariates.of({"age": [50, 60, 70]})
    >>> coder = CovariateCoder.fit(train)
    >>> term = CovariateTerm(coder)
    >>> _ = torch.nn.init.constant_(term.weight, 0.5)  # training learns it, from 0
    >>> term(torch.from_numpy(coder.matrix(train))).detach()
    tensor([-0.6124,  0.0000,  0.6124])
    """

    def __init__(self, coder: Any, *, columns: int = 1) -> None:
        super().__init__()
        self.coder = coder
        self.weight = nn.Parameter(torch.zeros((coder.width,) if columns == 1 else (columns, coder.width)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the term of the logits, [K] or [K, C], for covariates x [K, P]."""
        x = x.to(self.weight.dtype)
        # Not a matrix product: autocast would compute it in half precision.
        return ((x if self.weight.ndim == 1 else x.unsqueeze(1)) * self.weight).sum(dim=-1)

    def get_extra_state(self) -> Tensor:
        """Return the coder as the bytes of a text."""
        return torch.from_numpy(np.frombuffer(self.coder.to_json().encode(), np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        """Set the coder from a state; raise a `RuntimeError`, as torch does, if it does not fit the weights."""
        self.coder = coder_of(state, self.coder)
        if self.coder.width != self.weight.shape[-1]:
            raise RuntimeError(f"{self.coder.width} covariate columns for {self.weight.shape[-1]} weights")


def coder_of(state: Tensor, kind: Any) -> Any:
    """Return the coder in the extra state of a `CovariateTerm`; `kind` is a coder or its class."""
    return kind.from_json(state.cpu().numpy().tobytes().decode())


@dataclass(frozen=True)
class BagOutput:
    """K pooled bags: the statistic (l, r; n), and its score and logit.

    Score and logit are computed on first access, with the weights of that moment, and cached.

    Attributes
    ----------
    l, r, n : Tensor [K], Tensor [K, V], Tensor [K]
        Log-mean weight, weighted mean value, count that enters f2. For max pooling l is the maximum. With several
        branches, K * G rows: see `midam.nn.scorer`.
    pooling : Pooling
        The pooling, which has f2.
    shift : Tensor [K] or [K, C], optional
        Term of the covariates, added to the logit.

    Examples
    --------
    >>> from midam.nn.pooling import MaxPooling
    >>> model = BagScorer(nn.Identity(), MaxPooling(1).without_layers())
    >>> x = torch.tensor([[-1.0], [2.0], [0.0]])
    >>> output = model(x, torch.tensor([2, 1]))
    >>> output.score.round(decimals=2), output.logit.round(decimals=2), output.n
    (tensor([0.8800, 0.5000]), tensor([2., 0.]), tensor([2., 1.]))
    """

    l: Tensor  # noqa: E741
    r: Tensor
    n: Tensor
    pooling: Pooling
    shift: Tensor | None = None

    @cached_property
    def score(self) -> Tensor:
        """Bag scores h in [0, 1], [K], or [K, C] with several columns."""
        return self.pooling.score(*self._by_bag()) if self.shift is None else torch.sigmoid(self.logit)

    @cached_property
    def logit(self) -> Tensor:
        """Logits of the scores, [K] or [K, C]."""
        pooled = self.pooling.logit(*self._by_bag())
        return pooled if self.shift is None else pooled + self.shift

    @property
    def tied_score(self) -> Tensor:
        """As `score`; if all bags are equal in l and r, bags of one size get identical scores, at any position."""
        l, r, n = self._by_bag()  # noqa: E741
        alike = len(n) > 1 and self.shift is None and torch.equal(l[0], l[1]) and torch.equal(r[0], r[1])
        if not alike or not bool((l == l[:1]).all() and (r == r[:1]).all()):
            return self.score
        counts, inverse = torch.unique(n.reshape(len(n), -1)[:, 0], return_inverse=True)
        return torch.cat([self.pooling.score(l[:1], r[:1], torch.full_like(n[:1], float(x))) for x in counts])[inverse]

    def _by_bag(self) -> tuple[Tensor, Tensor, Tensor]:
        branches = self.pooling.branches
        return unfold(self.l, branches), unfold(self.r, branches), unfold(self.n, branches)


@dataclass(frozen=True)
class SeenBags:
    """Scores or logits of all bags of a step, in the form that an objective takes, gathered from all processes."""

    score: Tensor
    logit: Tensor

    @classmethod
    def of(cls, seen: Tensor) -> Self:
        """Make both from the result of `midam.nn.objectives.Objective.seen`, [K] or [K, C]."""
        return cls(seen, seen)


class BagScorer(nn.Module):
    """Scores bags: standardize, encode, pool, and add the term of covariates.

    Parameters
    ----------
    encoder : nn.Module
        Maps instances [M, ...] to encodings [M, D].
    pooling : Pooling
        Pooling of encodings of width D.
    standardizer : nn.Module, optional
        Applied to the raw instances first; saved with the weights as part of the model.
    covariates : CovariateTerm, optional
        Added to the pooled logit; bags then need covariates.

    Examples
    --------
    >>> from midam.nn.encoders import MLP
    >>> from midam.nn.pooling import AttentionPooling
    >>> model = BagScorer(MLP(4), AttentionPooling(4))
    >>> model(torch.randn(5, 4), torch.tensor([2, 3])).score.shape
    torch.Size([2])
    """

    covariates: CovariateTerm | None

    def __init__(
        self,
        encoder: nn.Module,
        pooling: Pooling,
        *,
        standardizer: nn.Module | None = None,
        covariates: CovariateTerm | None = None,
    ) -> None:
        super().__init__()
        self.standardizer, self.encoder, self.pooling = standardizer, encoder, pooling
        self.covariates = covariates

    @property
    def repeatable(self) -> bool:
        """Whether the encoding of an instance is known to be repeatable, see `midam.nn.encoders.MLP.repeatable`."""
        return getattr(self.encoder, "repeatable", False)

    def instances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z [M] and values v [M, V] of instances x [M, ...]; with G branches [M, G] and [M, G, V]."""
        return self.encoded(self.standardized(x))

    def standardized(self, x: Tensor) -> Tensor:
        """Return instances x [M, ...] in the form that the encoder takes."""
        return x if self.standardizer is None else self.standardizer(x)

    def encoded(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as `instances` for instances u [M, ...] that are already `standardized`."""
        z, v = self.pooling(self.encoder(u))
        return z, v

    def with_covariates(self, output: BagOutput, covariates: Tensor | None) -> BagOutput:
        """Return a bag output with the term of covariates [K, P]; unchanged if the scorer takes no covariates."""
        if self.covariates is None:
            return output
        if covariates is None:
            raise ConfigError(
                f"Expected the covariates of the model ({', '.join(self.covariates.coder.names)}), got none; pass "
                "them encoded, as by `midam.evaluate.predict.covariates_of`."
            )
        return replace(output, shift=self.covariates(covariates))

    def forward(
        self, x: Tensor, sizes: Tensor, *, covariates: Tensor | None = None, carriers: bool = False
    ) -> BagOutput:
        """Score whole bags of `sizes` (int64 [K], >= 1) with instances x [M, ...], bag after bag, by plain autograd.

        If the scorer takes covariates, the encoded `covariates` [K, P] of the bags are required. With `carriers`, if
        one instance carries all of a bag's gradient, it is found without a graph and encoded once more.
        """
        statistic, branches = self.pooling.statistic, self.pooling.branches
        rows = sizes.shape[0] * branches
        # If small bags with several columns have more carriers than instances, the instances are encoded once.
        carrier = statistic.carrier if carriers and rows <= len(x) else None
        with torch.set_grad_enabled(torch.is_grad_enabled() and carrier is None):
            z, v = self.instances(x)
        segment = torch.repeat_interleave(torch.arange(sizes.shape[0], device=z.device), sizes, output_size=z.shape[0])
        z, v = fold(z, v)
        segment, n = rows_of(segment, branches), each(sizes, branches).to(z.dtype)
        if carrier is not None:
            row = carrier(z, segment, num_bags=rows).clamp(max=len(z) - 1)
            z, v = own_branch(*self.instances(x[row if branches == 1 else row // branches]))
            return self.with_covariates(BagOutput(z, v, n, self.pooling), covariates)
        stat = statistic.reduce_segments(z, v, segment, num_bags=rows)
        return self.with_covariates(BagOutput(stat.l, stat.r, n, self.pooling), covariates)


def rows_of(index: Tensor, branches: int) -> Tensor:
    """Return the rows [K * G] of the bags or instances `index` [K].

    Examples
    --------
    >>> rows_of(torch.tensor([2, 0]), 3).tolist()
    [6, 7, 8, 0, 1, 2]
    """
    if branches == 1:
        return index
    return (index.unsqueeze(1) * branches + torch.arange(branches, device=index.device)).flatten()


def each(x: Tensor, branches: int) -> Tensor:
    """Repeat rows of K bags or instances, [K, ...], for each of their G branches: [K * G, ...]."""
    return x if branches == 1 else x.repeat_interleave(branches, dim=0)


def fold(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits [M * G] and values [M * G, V] by row, from z [M, G] and v [M, G, V] of instances."""
    return (z, v) if z.ndim == 1 else (z.flatten(), v.flatten(0, 1))


def fold_chunk(positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `fold` of a chunk, preceded by the positions and bags [M * G] of its rows, from those of instances [M]."""
    branches = 1 if z.ndim == 1 else z.shape[1]
    return each(positions, branches), rows_of(segment, branches), *fold(z, v)


def fold_slots(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return z [K * G, B] and v [K * G, B, V] by row, from samples z [K, B, G] and v [K, B, G, V]."""
    return (z, v) if z.ndim == 2 else (z.transpose(1, 2).flatten(0, 1), v.transpose(1, 2).flatten(0, 1))


def unfold(x: Tensor, branches: int) -> Tensor:
    """Return values of rows, [K * G, ...], by bag and branch, [K, G, ...]."""
    return x if branches == 1 else x.view(len(x) // branches, branches, *x.shape[1:])


def own_branch(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits [R] and values [R, V] of R rows, each in its branch, from one instance each, [R, G], [R, G, V]."""
    if z.ndim == 1:
        return z, v
    row = torch.arange(len(z), device=z.device)
    branch = row % z.shape[1]
    return z[row, branch], v[row, branch]


_SUM_ERROR = 1e-9


@dataclass(frozen=True)
class Inputs:
    """Features that a trained model takes; `midam.evaluate.predict.prepared` selects them in other bags.

    Attributes
    ----------
    shape : tuple of int
        Shape of an instance.
    names : tuple of str, optional
        Names of the features along its last axis, in their order.
    how, filling : str, nested list
        The rule that fills missing values, "mean", "median" or "zero", and the values, in the shape of an instance;
        None if no value may be missing.
    columns : ColumnCoder, optional
        Encoder of raw columns as these features, before missing values are filled.
    source : str
        Name of the model in messages.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None
    how: str = "zero"
    filling: Any = None
    columns: Any = None
    source: str = "training"


class BagEnsemble(nn.Module):
    """The mean of the scores of several bag scorers, at least one, for the same instances.

    Parameters
    ----------
    members : sequence of BagScorer
        M scorers, with equally many score columns.
    weights : sequence of float, or Tensor [M], optional
        Weights of the members in the mean, >= 0 with the sum 1; saved with the members. Default: equal weights.

    Raises
    ------
    ValueError
        If there are no members, if they differ in their columns or covariates, or if the weights are invalid.

    Examples
    --------
    >>> from midam.nn.pooling import AttentionPooling
    >>> from midam.nn.encoders import MLP
    >>> model = BagEnsemble([BagScorer(MLP(4), AttentionPooling(4)) for _ in range(3)])
    >>> model(torch.randn(5, 4), torch.tensor([2, 3])).shape
    torch.Size([2])
    """

    weights: Tensor | None
    inputs: Inputs | None = None  # features of the training bags, if known

    def __init__(self, members: Sequence[BagScorer], weights: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        members = list(members)
        if not members:
            raise ConfigError("Expected at least one bag scorer, got none; pass the members.")
        columns = sorted({member.pooling.columns for member in members})
        if len(columns) > 1:
            raise ConfigError(f"Expected the same number of score columns in all members, got {columns}; drop some.")
        coders = [None if member.covariates is None else member.covariates.coder for member in members]
        if any(coder != coders[0] for coder in coders):
            raise ConfigError("Expected the same covariates in all members, got different ones; drop some members.")
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", None if weights is None else _checked(weights, len(members)))

    def forward(self, x: Tensor, sizes: Tensor, *, covariates: Tensor | None = None) -> Tensor:
        """Return the scores of whole bags, [K] or [K, C] in [0, 1], by plain autograd; arguments as for `BagScorer`."""
        scores = [member(x, sizes, covariates=covariates).score for member in self.members]
        return member_mean(self, torch.stack(scores), dim=0)


def scorers_of(model: BagScorer | BagEnsemble) -> list[BagScorer]:
    """Return the members of an ensemble; for a scorer, the scorer itself."""
    return cast(list[BagScorer], list(model.members)) if isinstance(model, BagEnsemble) else [model]


def weights_of(model: BagScorer | BagEnsemble) -> Tensor | None:
    """Return the weights [M] of the members in their mean, float64 on the CPU; None for equal weights."""
    return model.weights.cpu() if isinstance(model, BagEnsemble) and model.weights is not None else None


def columns_of(model: BagScorer | BagEnsemble) -> int:
    """Return the number C of score columns of a model."""
    return scorers_of(model)[0].pooling.columns


def column_of(model: BagScorer | BagEnsemble, column: int | None) -> BagScorer | BagEnsemble:
    """Return one score column of a model, from 0, as a model with the same encoders and weights.

    A model of one column is returned itself, and `column` may be None. An unknown column raises a `ConfigError`. The
    term of covariates is left out.
    """
    columns = columns_of(model)
    if columns == 1 and column in (None, 0):
        return model
    if column is None or not 0 <= column < columns:
        raise ConfigError(f"Expected a score column from 0 to {columns - 1}, got {column}; name one of these.")
    return _with_poolings(model, [ColumnPooling(member.pooling, column) for member in scorers_of(model)])


def _with_poolings(model: BagScorer | BagEnsemble, poolings: Sequence[Pooling]) -> BagScorer | BagEnsemble:
    """Return the same members with other poolings, without covariates."""
    members = [
        BagScorer(member.encoder, pooling, standardizer=member.standardizer)
        for member, pooling in zip(scorers_of(model), poolings, strict=True)
    ]
    if not isinstance(model, BagEnsemble):
        return members[0]
    ensemble = BagEnsemble(members, model.weights)
    ensemble.inputs = model.inputs
    return ensemble


def member_mean(model: BagScorer | BagEnsemble, x: Tensor, *, dim: int) -> Tensor:
    """Return the weighted mean of x over its axis `dim` of M members; in float64 if the members have weights."""
    weights = weights_of(model)
    return x.mean(dim=dim) if weights is None else (x.double().movedim(dim, -1) * weights.to(x.device)).sum(dim=-1)


def all_weights(weights: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the weights of each member in the state of an ensemble, by their names in the member."""
    count = len({name.split(".")[1] for name in weights if name.startswith("members.")})
    starts = [f"members.{number}." for number in range(count)]
    return [{name.removeprefix(x): weights[name] for name in weights if name.startswith(x)} for x in starts]


def without_standardizer(model: BagEnsemble) -> BagEnsemble:
    """Return the same members, by reference, for instances that are already standardized."""
    members = [BagScorer(x.encoder, x.pooling, covariates=x.covariates) for x in scorers_of(model)]
    return BagEnsemble(members, model.weights)


def _checked(weights: Sequence[float] | Tensor, count: int) -> Tensor:
    values = torch.as_tensor(weights, dtype=torch.float64).clone()
    if values.shape != (count,) or not bool((values >= 0).all()) or not abs(float(values.sum()) - 1) <= _SUM_ERROR:
        raise ConfigError(
            f"Expected {count} weights of at least 0 with the sum 1, got {values.tolist()}; divide them by their sum."
        )
    return values
