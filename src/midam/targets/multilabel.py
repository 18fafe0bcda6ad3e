"""Several labels, of which a bag has any, each ranking the bags that have it above those that have not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.evaluate.decisions import LabelCalibrator
from midam.reading import ColumnForm, one_of
from midam.targets.base import CardWords, Scores, logistic_shares
from midam.targets.columns import LEAST_BAGS, ColumnTarget, check_width


class Multilabel(ColumnTarget):
    """Labels, each of which ranks the bags that have it above those that have not."""

    name = "multilabel"
    pairs = "labels"
    objectives = ("minmax-auc", "pairwise", "bce")
    name_limits = (1, None)
    card = CardWords(
        "classification",
        "gives a score in [0, 1] for each of {count} labels ({names}), which ranks bags with it above those without",
        "a probability of each label",
        (("weighted AUROC", "auroc_weighted"),),
    )

    def label_forms(self) -> dict[str, ColumnForm]:
        """A column of each label: 1, 0, or nothing where it is not known."""
        return {f"label_{name}": one_of("0", "1", "") for name in self.names}

    def strata(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The rarest label that a bag has, from 1; 0 of bags without."""
        has = values == 1
        order = np.argsort(has.sum(axis=0), kind="stable")
        return np.where(has.any(axis=1), order[has[:, order].argmax(axis=1)] + 1, 0).astype(np.int64)

    def check(self, bags: Bags) -> None:
        """Refuse a label without two bags that have it and two that have not."""
        values = self.values(bags)
        counts = [((values == 1).sum(axis=0)), ((values == 0).sum(axis=0))]
        rare = [
            f"{name} ({with_it} with, {without} without)"
            for name, with_it, without in zip(self.names, *counts)
            if min(with_it, without) < LEAST_BAGS
        ]
        if rare:
            raise BagDataError(
                f"Expected at least {LEAST_BAGS} training bags with each label and as many without, got fewer of "
                f"{', '.join(rare)} (in {bags.source}); add bags, or leave the column out of `label_column`."
            )

    def has_metric(self, values: NDArray[Any]) -> bool:
        """Whether some label is there and not there."""
        return bool(((values == 1).any(axis=0) & (values == 0).any(axis=0)).any())

    def table(self, values: NDArray[Any]) -> Scores:
        """The labels as they are."""
        return check_width(values, len(self.names))

    @property
    def stratum_names(self) -> tuple[Any, ...]:
        """No label, and the labels."""
        return ("no label", *self.names)

    def linear_scores(self, x: Scores, values: NDArray[Any], scored: Scores) -> Scores:
        """Probability of each label by logistic regression on the bags whose entry is known."""
        known = [~np.isnan(column) for column in values.T]
        columns = zip(known, values.T)
        shares = [logistic_shares(x[own], column[own].astype(np.int64), scored)[:, 1] for own, column in columns]
        return np.stack(shares, axis=1)

    def fit_decision(self, values: NDArray[Any], scores: Scores) -> LabelCalibrator:
        """Probability of each label."""
        return LabelCalibrator().fit(scores, values, names=self.names)

    def load_decision(self, content: Mapping[str, Any]) -> LabelCalibrator:
        """Probability of each label, from a model file."""
        return LabelCalibrator.from_dict(content)
