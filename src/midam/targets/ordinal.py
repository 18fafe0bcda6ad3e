"""Grades: of two bags that with the higher grade has the higher score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.grades import GradeCuts, quadratic_kappa
from midam.reading import ColumnForm, Number, one_of
from midam.targets.base import CardWords, Decided, Groups, Scores, read_codes
from midam.targets.columns import describe_calls
from midam.targets.forms import CallsForm
from midam.targets.ranked import RankedForm, RankedTarget, kendall_tau, named


class OrdinalForm(RankedForm, CallsForm):
    """Entries of grades."""

    kendall_tau: Number | None
    quadratic_kappa: Number | None = None


class Ordinal(RankedTarget):
    """Grades: of two bags that with the higher grade has the higher score."""

    name = "ordinal"
    pairs = "order"
    objectives = ("pairwise",)
    form = OrdinalForm
    name_limits = (2, None)
    decided_figure = "quadratic_kappa"
    card = CardWords(
        "classification",
        "gives one score in [0, 1] that follows {count} grades, from low to high: {names}",
        "a grade",
        (("kappa", "quadratic_kappa"), ("accuracy", "accuracy"), ("Kendall's tau-b", "kendall_tau")),
    )

    def label_forms(self) -> dict[str, ColumnForm]:
        """Names of the grades."""
        return {"label": one_of(*self.names)}

    def prediction_forms(self) -> dict[str, ColumnForm]:
        """The grade."""
        return {"grade": one_of(*self.names, "")}

    def read_predictions(self, table: Mapping[str, Sequence[Any]]) -> Scores | None:
        """Positions [N] of the grades."""
        return read_codes(table["grade"], self.names)

    def predictions(self, scores: NDArray[Any], decision: Decided) -> dict[str, list[Any]]:
        """The grade."""
        return {"grade": named(self.names, scores, decision)}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The grades."""
        return values[:, 0].astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse bags of one grade."""
        if not self.has_metric(self.values(bags)):
            raise BagDataError(
                f"Expected training bags of at least two grades, got one alone (in {bags.source}); add bags of others."
            )

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Whether there are two grades."""
        return len(np.unique(values)) > 1

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> GradeCuts:
        """Cuts of the score between grades."""
        return GradeCuts().fit(scores, values[:, 0], count=len(self.names))

    def load_decision(self, content: Mapping[str, Any]) -> GradeCuts:
        """Cuts of the score, from a model file."""
        return GradeCuts.from_dict(content)

    def further(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Kendall's tau and, with a decision, the quadratic kappa and how well grades are called."""
        grades = values[:, 0]
        result: dict[str, Any] = {"kendall_tau": kendall_tau(grades, scores)}
        if decision is not None:
            called, count = decision.predict(scores), len(self.names)
            result["quadratic_kappa"] = quadratic_kappa(grades, called, count)
            result |= describe_calls(grades, called, count, groups)
        return result
