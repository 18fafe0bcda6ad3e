"""Labels 0 and 1: each positive bag against each negative one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import both_classes
from midam.evaluate.ranking import auroc
from midam.targets.base import Target


class Binary(Target):
    """Two classes, of which one is positive; what is decided and told of them stands in `midam.runs.judge`."""

    name = "binary"
    pairs = "binary"
    objectives = ("minmax-auc", "pairwise", "bce")
    metric = "auroc"

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        super().__init__(names)

    def values(self, bags: Bags) -> NDArray[np.int64]:
        """Labels [N]."""
        return bags.require_labels()

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The labels themselves."""
        return np.asarray(values, dtype=np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse bags of one class."""
        both_classes(bags)

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether both classes are there."""
        return bool(len(values)) and bool(values.min() < values.max())

    def merit(self, values: NDArray[Any], scores: NDArray[Any]) -> float | None:
        """AUROC; None of one class."""
        return auroc(values, scores) if self.judged(values) else None
