"""Finished trials on images by set and method: means, paired differences, and the pairs to compare."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.ranking import group_numbers
from midam.methods.store import Row
from studies.images.design import MIDAM, STACKED, Recipe
from studies.images.sets import ImageSet
from studies.images.statistics import BagScores, Paired, compare_trials
from studies.images.trials import Job
from studies.paper_tables import OURS

Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Results:
    """Finished trials by set and method."""

    sets: Mapping[str, ImageSet]  # The sets
    rows: Mapping[Key, list[tuple[Job, Row]]]  # Trials of each set and method

    def tested(self, name: str, method: str, *, epoch: str) -> dict[tuple[int, int], BagScores]:
        """Return the scores of the trials that did not diverge, by repeat and fold."""
        return {
            (job.split.split, job.split.fold): BagScores(job.split.test, np.array(row[f"test_{epoch}"]))
            for job, row in self.rows.get((name, method), [])
            if row[f"test_{epoch}"] is not None
        }

    def compare(self, name: str, first: str, second: str | None = None, *, epoch: str = "best") -> Paired | None:
        """Return the mean AUROC of a method, or its difference to another on the trials of both; None without any."""
        a = self.tested(name, first, epoch=epoch)
        b = a if second is None else self.tested(name, second, epoch=epoch)
        shared = sorted(a.keys() & b.keys())
        if not shared:
            return None
        bags = self.sets[name].bags
        return compare_trials(
            bags.require_labels(),
            _units(bags),
            [a[key] for key in shared],
            None if second is None else [b[key] for key in shared],
            ratio=self._ratio(name, first),
        )

    def mean(self, name: str, method: str) -> float:
        """Return the mean test AUROC; -1 without trials."""
        found = self.compare(name, method)
        return -1.0 if found is None else found.grouped.mean

    def _ratio(self, name: str, method: str) -> float | None:
        splits = [job.split for job, _ in self.rows[name, method]]
        if len(splits) < 2 or any(np.array_equal(splits[0].test, other.test) for other in splits[1:]):
            return None
        return float(np.mean([len(split.test) / (len(split.train) + len(split.val)) for split in splits]))


def pairs(recipe: Recipe) -> list[Key]:
    """Return the pairs of methods that are compared on a set: MIDAM and its references."""
    found = []
    for method in (own for own in (*OURS, *MIDAM) if own in recipe.methods):
        loss, _, pooling = method.rpartition("-")
        earlier = [f"midam-printed-{pooling}"] if loss == "midam" else []
        others = (*earlier, f"dam-mb-{pooling}", f"dam-{pooling}", *STACKED, *recipe.baselines)
        found += [(method, other) for other in others if other in (*recipe.methods, *recipe.baselines)]
    return found


def better_baseline(results: Results, name: str, recipe: Recipe) -> str:
    """Return the baseline with the higher mean test AUROC: chosen on test bags, to the disadvantage of MIDAM."""
    return max(recipe.baselines, key=lambda baseline: results.mean(name, baseline))


def signed(found: Paired) -> str:
    """Return a difference with its interval by group, for the page."""
    return f"{found.grouped:+}"


def bounds(pair: tuple[float, float]) -> str:
    """Return two bounds for the page, or "-" if there are none."""
    return f"[{pair[0]:+.3f}, {pair[1]:+.3f}]" if np.isfinite(pair[0]) else "-"


def resolved(found: Paired) -> str:
    """Return on which side of 0 the interval by group lies, or "no"."""
    if found.grouped.low > 0:
        return "above 0"
    return "below 0" if found.grouped.high < 0 else "no"


def _units(bags: Bags) -> NDArray[np.intp]:
    found = group_numbers(bags.groups, len(bags))
    return np.arange(len(bags)) if found is None else found
