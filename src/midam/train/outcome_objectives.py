"""Objectives that are for one kind of labels alone: the softmax of several classes, and survival."""

import warnings
from typing import Any

from torch import Tensor

from midam.functional import columns as per_column
from midam.functional import survival
from midam.functional.pairs import Pairs
from midam.train.objectives import Objective, Proposal


class CrossEntropy(Objective):
    """Cross-entropy of the softmax of the bag logits, for bags of several classes.

    Parameters
    ----------
    columns, pairs
        As of the base.
    """

    name = "cross-entropy"
    squash = False
    serves = frozenset({"classes"})

    def __init__(self, *, columns: int = 1, pairs: Pairs = "binary") -> None:
        super().__init__(columns=columns, pairs=pairs)

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Loss [] of logits h [K, C]; nothing is proposed."""
        return per_column.cross_entropy(h, labels), {}


class Cox(Objective):
    """Partial likelihood of Cox's model on the bags of a batch; the bag logit is the log risk.

    See `midam.functional.survival.cox`. Batches of few bags have few at risk, and one bag alone teaches nothing.

    Parameters
    ----------
    pairs
        As of the base.
    """

    name = "cox"
    squash = False
    serves = frozenset({"survival"})

    def __init__(self, *, pairs: Pairs = "binary") -> None:
        super().__init__(pairs=pairs)
        self._warned = False

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Loss [] of log risks h [K, 1] and labels [K, 2], time and event; nothing is proposed."""
        if len(h) == 1 and not self._warned:
            self._warned = True
            message = "the loss of 'cox' on a batch of one bag is 0: give a step at least two bags"
            warnings.warn(message, UserWarning, stacklevel=3)
        return survival.cox(h.squeeze(1), labels[:, 0], labels[:, 1]), {}
