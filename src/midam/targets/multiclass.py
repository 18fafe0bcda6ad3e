"""Several classes, of which a bag has one, each ranked against the rest."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.classes import one_against_rest
from midam.evaluate.decisions import TemperatureCalibrator
from midam.reading import ColumnForm, Share, one_of
from midam.targets.base import CardWords, Decided, Groups, Scores, logistic_shares
from midam.targets.columns import LEAST_BAGS, ColumnsForm, ColumnTarget, check_width, describe_calls
from midam.targets.forms import CallsForm, Confusion


class MulticlassForm(ColumnsForm, CallsForm):
    """Entries of several classes."""

    accuracy: Share
    balanced_accuracy: Share
    confusion: Confusion


class Multiclass(ColumnTarget):
    """Classes, each ranked against the rest."""

    name = "multiclass"
    pairs = "classes"
    objectives = ("minmax-auc", "pairwise", "bce", "cross-entropy")
    form = MulticlassForm
    name_limits = (2, None)
    card = CardWords(
        "classification",
        "gives a score in [0, 1] for each of {count} classes ({names}), which ranks bags of it above the others",
        "a probability of each class, and the most probable one",
        (("accuracy", "accuracy"), ("balanced accuracy", "balanced_accuracy")),
    )

    def label_forms(self) -> dict[str, ColumnForm]:
        """Names of the classes."""
        return {"label": one_of(*self.names)}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The classes."""
        return values[:, 0].astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse a class with fewer than two bags."""
        counts = np.bincount(self.strata(self.values(bags)), minlength=len(self.names))
        rare = [f"{name} ({count})" for name, count in zip(self.names, counts.tolist()) if count < LEAST_BAGS]
        if rare:
            raise BagDataError(
                f"Expected at least {LEAST_BAGS} training bags of each class, got fewer of {', '.join(rare)} (in "
                f"{bags.source}); add bags, join classes, or leave such bags out."
            )

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Whether there are bags of two classes."""
        return len(np.unique(values)) > 1

    def table(self, values: NDArray[Any]) -> Scores:
        """1 in the column of the bag's class, else 0."""
        return one_against_rest(check_width(values, 1)[:, 0], len(self.names))

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Probabilities of the classes by logistic regression."""
        return logistic_shares(x, values[:, 0].astype(np.int64), scored)

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> TemperatureCalibrator:
        """Probabilities of the classes."""
        return TemperatureCalibrator().fit(scores, values[:, 0])

    def load_decision(self, content: Mapping[str, Any]) -> TemperatureCalibrator:
        """Probabilities of the classes, from a model file."""
        return TemperatureCalibrator.from_dict(content)

    def predictions(self, scores: Scores, decision: Decided) -> dict[str, list[Any]]:
        """Probability of each class, and the most probable class."""
        codes = self.main_column(scores, decision).tolist()
        called = [None] * len(scores) if decision is None else [self.names[code] for code in codes]
        return super().predictions(scores, decision) | {"class": called}

    def describe(self, values: NDArray[Any], scores: Scores, decision: Decided, *, groups: Groups) -> dict[str, Any]:
        """Figures of each class, and how well bags are called the class of the largest probability, or score."""
        result = super().describe(values, scores, decision, groups=groups)
        warnings = result.pop("warnings")
        called = self.main_column(scores, decision)
        calls = describe_calls(values[:, 0].astype(np.float64), called, len(self.names), groups)
        return {**result, **calls, "warnings": warnings}
