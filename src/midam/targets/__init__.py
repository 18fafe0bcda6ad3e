"""The targets: what a label says of bags, which pairs of them it orders, how they are drawn, split and judged."""

from collections.abc import Mapping
from typing import Any

from midam.data.bags import Bags
from midam.registry import TARGETS
from midam.targets.base import Target
from midam.targets.binary import Binary

__all__ = ["Binary", "Target", "target_named", "target_of"]


def target_of(bags: Bags) -> Target:
    """Target of labeled bags: that of their outcome, or binary.

    Examples
    --------
    >>> target_of(Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1])).name
    'binary'
    """
    return Binary() if bags.outcome is None else _named(bags.outcome.target, bags.outcome.names)


def target_named(said: Mapping[str, Any] | None) -> Target:
    """Target that a run remembers, by its "target" and "names"; of nothing, binary."""
    return Binary() if said is None else _named(said["target"], tuple(said["names"]))


def _named(name: str, names: tuple[str, ...]) -> Target:
    found: Target = TARGETS.find(name)(names)
    return found
