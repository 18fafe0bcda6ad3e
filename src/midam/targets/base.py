"""What a target is: one file and one row of `midam.registry.TARGETS`."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.outcome import Outcome
from midam.errors import BagDataError, ConfigError, nearest
from midam.evaluate.outcomes import (
    Decision,
    decision_from_dict,
    fit_decision,
    primary_value,
    summarize_outcome,
)
from midam.names import name_of


class Target:
    """Base of the targets.

    Parameters
    ----------
    names : tuple of str
        Those of the bags' `midam.data.outcome.Outcome`.

    Attributes
    ----------
    name : str
        As in `midam.registry.TARGETS`.
    pairs : {"binary", "classes", "labels", "order", "survival"}
        Which pairs of bags a label orders; what objectives say they serve.
    objectives : tuple of str
        Objectives that suit it, the default first.
    metric : str
        Name of its figure of merit in `summary.json`, in [0, 1], the higher the better.
    """

    name: ClassVar[str]
    pairs: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]]
    metric: ClassVar[str]

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the score columns; one is called "score"."""
        return ("score",)

    @property
    def count(self) -> int:
        """Number of score columns, C."""
        return len(self.columns)

    @property
    def score_columns(self) -> list[str]:
        """Columns of its scores in a table."""
        return ["score"] if self.count == 1 else [f"score_{name}" for name in self.columns]

    def values(self, bags: Bags) -> NDArray[Any]:
        """What objectives and metrics see of labeled bags: [N], or [N, L] of an outcome."""
        return self._outcome(bags).values

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Strata of bags, int [N], that splits and folds hold in like shares."""
        raise NotImplementedError

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Strata of training bags, int [N], that take turns in a batch."""
        return self.strata(values)

    def check(self, bags: Bags) -> None:
        """Refuse training bags of which nothing can be learned, with a `BagDataError`."""
        raise NotImplementedError

    def judged(self, values: NDArray[Any]) -> bool:
        """Whether bags of these values have a figure of merit."""
        raise NotImplementedError

    def merit(self, values: NDArray[Any], scores: NDArray[Any]) -> float | None:
        """Figure of merit of scores [N] or [N, C]; None where there is none."""
        return primary_value(self.name, values, scores) if self.judged(values) else None

    def decide(self, values: NDArray[Any], scores: NDArray[Any]) -> Decision | None:
        """What turns scores into predictions, fitted on validation bags; None where these do not suffice."""
        return fit_decision(self.name, self.names, values, scores) if len(values) and self.judged(values) else None

    def decision(self, said: Mapping[str, Any] | None) -> Decision | None:
        """The decision that a model file holds."""
        return None if said is None else decision_from_dict(self.name, said)

    def told(self, scores: NDArray[Any], decision: Decision | None) -> dict[str, list[Any]]:
        """What scores [N] or [N, C] mean, by columns of predictions.csv; None where nothing was decided."""
        raise NotImplementedError

    def leading(self, scores: NDArray[Any], decision: Decision | None) -> NDArray[np.int64]:  # noqa: ARG002
        """Column that speaks for each bag of scores [N] or [N, C], int [N]: the only one."""
        return np.zeros(len(scores), dtype=np.int64)

    def column(self, name: str) -> int:
        """Position of the score column of a class or label; a `ConfigError` where there is none of that name."""
        if self.count == 1:
            raise ConfigError(
                f"Expected no class with the target {self.name!r}, which has one score, got {name!r}; leave it out."
            )
        name = name_of(name)
        if name not in self.columns:
            raise ConfigError(f"Expected a class of the run, got {name!r}; {nearest(name, self.columns)}")
        return self.columns.index(name)

    def summarize(
        self,
        values: NDArray[Any],
        scores: NDArray[Any],
        *,
        groups: NDArray[np.str_] | None = None,
        decision: Decision | None = None,
    ) -> dict[str, Any]:
        """What `summary.json` tells of scores [N] or [N, C], and of what was decided on them."""
        return summarize_outcome(self.name, self.names, values, scores, groups=groups, decision=decision)

    def _outcome(self, bags: Bags) -> Outcome:
        if bags.outcome is None or bags.outcome.target != self.name:
            got = "no labels" if bags.outcome is None and bags.labels is None else "others"
            raise BagDataError(
                f"Expected bags with labels of the target {self.name!r}, got {got} (in {bags.source}); name their "
                "column with `label_column`."
            )
        return bags.outcome
