"""Several bag scorers whose scores are averaged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from midam.errors import ConfigError
from midam.nn.pooling.base import Pooling
from midam.nn.pooling.rescaled import ColumnPooling, ShiftedPooling
from midam.nn.scorer import BagScorer

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
    term of covariates is left out; see `of_covariates`.
    """
    columns = columns_of(model)
    if columns == 1 and column in (None, 0):
        return model
    if column is None or not 0 <= column < columns:
        raise ConfigError(f"Expected a score column from 0 to {columns - 1}, got {column}; name one of these.")
    return _with_poolings(model, [ColumnPooling(member.pooling, column) for member in scorers_of(model)])


@torch.no_grad()
def of_covariates(model: BagScorer | BagEnsemble, covariates: Tensor | None) -> BagScorer | BagEnsemble:
    """Return the model for bags with these encoded covariates [P], whose term becomes a constant of the pooling.

    Encoders and weights are the same. A model without covariates is returned unchanged.
    """
    terms = [member.covariates for member in scorers_of(model)]
    if covariates is None or terms[0] is None:
        return model
    shifts = [term(covariates.unsqueeze(0))[0] for term in terms if term is not None]
    return _with_poolings(model, [ShiftedPooling(x.pooling, shift) for x, shift in zip(scorers_of(model), shifts)])


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
