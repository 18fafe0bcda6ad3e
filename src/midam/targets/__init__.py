"""Targets: kinds of labels, with the pairs of bags that they order, and how bags are sampled, split and evaluated."""

from collections.abc import Mapping, Sequence
from typing import Any

from midam.data.bags import Bags
from midam.registry import TARGETS
from midam.targets.base import Difference, OutOfFold, Target

__all__ = ["Difference", "OutOfFold", "Target", "target_named", "target_of"]


def target_of(bags: Bags) -> Target:
    """Return the target of bags: that of their outcome, or binary for bags without an outcome or labels.

    Examples
    --------
    >>> target_of(Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1])).name
    'binary'
    """
    outcome = bags.outcome
    known = None if outcome is None else {"target": outcome.target, "names": outcome.names}
    return target_named(known, classes=bags.classes)


def target_named(description: Mapping[str, Any] | None, *, classes: Sequence[Any] | None = None) -> Target:
    """Return the target of a run from its `description`; without one, binary with the names of two `classes`."""
    known = description or {"target": "binary", "names": classes or ()}
    target: Target = TARGETS.find(known["target"])(tuple(known["names"]))
    return target


def label_columns(bags: Bags) -> dict[str, list[Any]]:
    """Return the labels of bags, in words, by table column; empty for unlabeled bags."""
    return {} if bags.known_labels is None else bags.known_labels.columns()
