"""Targets: kinds of labels, with the pairs of bags that they order, and how bags are sampled, split and evaluated."""

from collections.abc import Mapping, Sequence
from typing import Any

from midam.data.bags import Bags
from midam.registry import TARGETS
from midam.targets.base import Difference, OutOfFold, Target
from midam.targets.binary import Binary

__all__ = ["Difference", "OutOfFold", "Target", "target_named", "target_of"]


def target_of(bags: Bags) -> Target:
    """Return the target of bags: that of their outcome, or binary for bags without an outcome or labels.

    Examples
    --------
    >>> target_of(Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1])).name
    'binary'
    """
    return _binary(bags.classes) if bags.outcome is None else _named(bags.outcome.target, bags.outcome.names)


def target_named(description: Mapping[str, Any] | None, *, classes: Sequence[Any] | None = None) -> Target:
    """Return the target of a run from its `description`; without one, binary with the names of two `classes`."""
    return _binary(classes) if description is None else _named(description["target"], tuple(description["names"]))


def label_columns(bags: Bags) -> dict[str, list[Any]]:
    """Return the labels of bags by table column; empty for unlabeled bags."""
    if bags.outcome is not None:
        return bags.outcome.columns()
    return {} if bags.labels is None else {"label": bags.labels.tolist()}


def _binary(classes: Sequence[Any] | None) -> Binary:
    return Binary(() if classes is None else tuple(classes))


def _named(name: str, names: tuple[str, ...]) -> Target:
    return TARGETS.find(name)(names)
