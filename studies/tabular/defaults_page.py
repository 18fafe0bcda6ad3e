"""The page of the study `defaults`: each set under the choice made without it, and all candidates."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from midam.compare.statistics import corrected_interval
from midam.data.bags import Bags
from studies.page import section, table
from studies.tabular.defaults_trials import FOLDS, TREES, Areas

MEMBERS = (1, 3)


def judged_section(
    areas: Areas, real: Mapping[str, Bags], chosen: Mapping[str | None, str], *, repeats: range
) -> list[str]:
    """Return the table of each real set under the choice made without it, beside extra trees."""
    rows, totals, gaps = [], [], []
    for data, bags in real.items():
        ours = [areas.of(data, bags, chosen[data], repeats=repeats, members=count, judged=True) for count in MEMBERS]
        trees = areas.of(data, bags, TREES, repeats=repeats)
        gaps.append(ours[-1] - trees)
        difference = _interval(gaps[-1])
        default = areas.of(data, bags, chosen[None], repeats=repeats, members=MEMBERS[-1], judged=True)
        totals.append([*(float(o.mean()) for o in ours), float(trees.mean()), float(default.mean())])
        *means, of_default = (f"{mean:.3f}" for mean in totals[-1])
        rows.append([data, chosen[data], *means, difference, of_default])
    mean = np.mean(totals, axis=0)
    *means, of_default = (f"{value:.3f}" for value in mean)
    reached, trees_mean = mean[len(MEMBERS) - 1], mean[len(MEMBERS)]
    rows.append(["mean", "", *means, _interval(np.mean(gaps, axis=0)), of_default])
    head = ["set", "chosen without it", *(f"{m} member{'s' if m > 1 else ''}" for m in MEMBERS), "ExtraTrees"]
    within = "is" if reached >= trees_mean - 0.01 else "is not"
    return section(
        "Each set under the choice made without it",
        f"Stratified {FOLDS}-fold, {len(repeats)} repeat{'s' if len(repeats) > 1 else ''}. ExtraTrees: 500 trees on "
        "the mean, minimum, maximum and deviation of each feature over the bag, the same folds. The difference is of "
        "the largest number of members, with the Nadeau-Bengio corrected 95% interval; that of the mean pairs the "
        "folds of the sets, which are independent. The last column is the choice made with all sets, with as many "
        "members.",
        table([*head, "difference", "default"], rows),
        f"The mean over the sets {within} within 0.01 of ExtraTrees: {reached:.3f} against {trees_mean:.3f}.",
        f"Chosen with all sets: **{chosen[None]}**.",
    )


def candidates_section(
    real: Sequence[str],
    first: Mapping[str, Mapping[str, float]],
    second: Mapping[str, Mapping[str, float]],
    repeats: range,
    *,
    kept: int,
) -> list[str]:
    """Return the tables of all candidates over one repeat, and of the best `kept` of each choice over all repeats."""

    def lines(found: Mapping[str, Mapping[str, float]]) -> list[str]:
        rows = [
            [
                name,
                *(f"{value:.3f}" for value in of.values()),
                f"{np.mean([of[data] for data in real]):.4f}",
                f"{np.mean(list(of.values())):.4f}",
            ]
            for name, of in found.items()
        ]
        return table(["candidate", *next(iter(found.values())), "mean of the real sets", "mean of all"], rows)

    return [
        "## The candidates",
        "",
        "Mean AUROC over the folds of one repeat, one member. Other poolings than attention, and averaged "
        "weights, are shown, not chosen.",
        "",
        *lines(first),
        "",
        f"The best {kept} of each choice, from which it was made, and averaged weights, over {len(repeats)} "
        f"repeat{'s' if len(repeats) > 1 else ''}:",
        "",
        *lines(second),
    ]


def averaged_section(
    areas: Areas, sets: Mapping[str, Bags], chosen: str, later: Sequence[str], repeats: range
) -> list[str]:
    """Return what the mean of the weights adds to the choice; nothing where it was not tried."""
    rows = []
    for name in later:
        gaps = [
            areas.of(data, bags, name, repeats=repeats) - areas.of(data, bags, chosen, repeats=repeats)
            for data, bags in sets.items()
        ]
        rows.append([name, *(f"{gap.mean():+.3f}" for gap in gaps), _interval(np.mean(gaps, axis=0))])
    if not rows:
        return []
    return [
        "",
        f"Averaged weights minus '{chosen}', paired by fold, the mean with its corrected 95% interval. They were tried "
        "after the choice, and would have taken its place with an interval above zero:",
        "",
        *table(["candidate", *sets, "mean"], rows),
    ]


def _interval(difference: NDArray[np.float64]) -> str:
    gap = corrected_interval(difference, ratio=1 / (FOLDS - 1))
    return f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
