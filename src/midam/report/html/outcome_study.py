"""What a page about bags that are ranked by more than 0 and 1 is made of, and what it says of its target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.report.html.study import PartBags, Report
from midam.report.words import MERITS


@dataclass(frozen=True)
class OutcomeBags(PartBags):
    """Bags of one part with their scores.

    Attributes
    ----------
    ids : array of str [N]
        Names.
    values : array of float64 [N, L]
        As of `midam.data.outcome.Outcome`.
    scores : array of float64 [N], or [N, C] of classes and labels
        Scores.
    told : array of float64 or None
        What the scores mean: probabilities [N, C] of classes and labels, NaN of a label that has none; the position
        of the grade, the number, or the position of the group of risk [N]. None where nothing was decided.
    groups, sizes : array [N], or None
        Patients, instances of each bag; None where unknown.
    """

    ids: NDArray[np.str_]
    values: NDArray[np.float64]
    scores: NDArray[np.float64]
    told: NDArray[np.float64] | None = None
    groups: NDArray[np.str_] | None = None
    sizes: NDArray[np.int64] | None = None


@dataclass(frozen=True, kw_only=True)
class OutcomeStudy(Report):
    """What the page of such bags says beside what all pages say.

    Attributes
    ----------
    target, merit : str
        Name of the target, and of its figure of merit in the summary.
    names, told_names : sequence of str
        As of `midam.data.outcome.Outcome`; names of the classes, labels, grades or groups of risk that are told.
    """

    target: str
    merit: str
    names: Sequence[str]
    told_names: Sequence[str]
    tested: OutcomeBags
    validation: OutcomeBags | None
    parts: Mapping[str, OutcomeBags]

    @property
    def merit_name(self) -> str:
        """Figure of merit, as people know it; begins with a capital."""
        name = MERITS.get(self.merit, self.merit)
        return f"{name[:1].upper()}{name[1:]}"

    def figure(self, name: str) -> Estimate | None:
        """A figure of the summary with its interval; None where there is none."""
        value, (low, high) = self.summary.get(name), self.summary.get(f"{name}_ci95") or (np.nan, np.nan)
        return None if value is None else Estimate(value, low, high, len(self.tested))
