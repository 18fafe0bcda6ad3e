"""Numbers: of two bags that with the larger number has the higher score."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import model_validator

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.decisions import NumberScale
from midam.reading import ColumnForm, Number, known_numbers
from midam.targets.base import CardWords, Decided, Groups, Scores, read_numbers
from midam.targets.forms import NotNull, all_or_none
from midam.targets.ranked import RankedForm, RankedTarget, correlation, kendall_tau

_BINS = 5  # of numbers, for splits with like shares of low and high ones


class ContinuousForm(RankedForm):
    """Entries of numbers."""

    kendall_tau: Number | None
    spearman: Number | None
    mae: Annotated[Number | None, NotNull] = None
    mae_constant: Annotated[Number | None, NotNull] = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        all_or_none(self, "mae", "mae_constant")
        return self


class Continuous(RankedTarget):
    """Numbers: of two bags that with the larger number has the higher score."""

    name = "continuous"
    pairs = "order"
    objectives = ("pairwise",)
    form = ContinuousForm
    name_limits = (1, 1)
    decided_figure = "mae"
    card = CardWords(
        "regression",
        "gives one score in [0, 1] that follows a number ({names}): the larger, the higher",
        "the number",
        (("Spearman's rho", "spearman"), ("mean absolute error", "mae"), ("that of the median", "mae_constant")),
    )

    def prediction_forms(self) -> dict[str, ColumnForm]:
        """The number."""
        return {"number": known_numbers}

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Numbers [N]."""
        found = read_numbers(table["number"])
        return None if np.isnan(found).all() else found

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """The number that the score stands for."""
        return {"number": [None] * len(scores) if decision is None else decision.predict(scores).tolist()}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Fifths of the numbers."""
        numbers = values[:, 0]
        return np.searchsorted(np.quantile(numbers, np.arange(1, _BINS) / _BINS), numbers, side="right")

    def turns(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """All alike."""
        return np.zeros(len(values), dtype=np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse bags of one number."""
        if not self.has_metric(self.values(bags)):
            raise BagDataError(
                f"Expected training bags of different numbers, got one alone (in {bags.source}); nothing can be ranked."
            )

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Whether there are two numbers."""
        return len(np.unique(values)) > 1

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> NumberScale:
        """Numbers in the unit of the label."""
        return NumberScale().fit(scores, values[:, 0])

    def load_decision(self, content: Mapping[str, Any]) -> NumberScale:
        """Numbers in the unit of the label, from a model file."""
        return NumberScale.from_dict(content)

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:  # noqa: ARG002
        """Rank correlations and, with a decision, the mean absolute error next to that of the median of these bags."""
        numbers = values[:, 0]
        result = {
            "kendall_tau": kendall_tau(numbers, scores),
            "spearman": correlation(scipy.stats.spearmanr, numbers, scores),
        }
        if decision is not None:
            result["mae"] = float(np.abs(decision.predict(scores) - numbers).mean())
            result["mae_constant"] = float(np.abs(np.median(numbers) - numbers).mean())
        return result
