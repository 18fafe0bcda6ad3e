"""The page of the study of draws on real data: what it says in short, a figure, and a table a case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.compare.summary import corrected_interval
from midam.report.figures import new_figure
from studies.differences import holm
from studies.drawing import plot_points, save_figure
from studies.page import table
from studies.split_statistics import Estimate

LOSS = -0.01  # A lower bound above it is no loss
_REPEATS = 8
TABULAR = ("musk1", "musk2", "elephant", "fox", "tiger")
_HISTOLOGY = ("breast", "colon")


@dataclass(frozen=True, eq=False)
class Outcome:
    """The test AUROC of all trials of an arm."""

    pooling: str
    arm: str
    rates: tuple[float, ...]  # That were chosen, one a repeat; empty where the library's was taken
    test: NDArray[np.float64]  # [trials]
    overlap: float  # Test bags for each training bag, 0 where repeats share no bags


Found = Mapping[str, Sequence[Outcome]]


def body(found: Found, figure: str) -> Iterator[str]:
    """Lines of the page."""
    yield from _losses(found)
    yield from _states(found)
    yield _floors(found)
    yield ""
    yield f"![Difference in test AUROC to minibatch, by case]({figure})"
    yield ""
    yield "Differences in test AUROC to `minibatch` with the same pooling, paired, with 95% intervals."
    yield ""
    for case, outcomes in found.items():
        yield f"## {case}"
        yield ""
        yield from _case(outcomes)
        yield ""
    yield (
        "Intervals are 95% t intervals over trials, paired: the arms of a trial see the same bags and begin at the "
        "same weights. Trials on one set share bags; their intervals are corrected by Nadeau and Bengio's factor. "
        "Those of adrenal are repeated trainings, tested on the same published volumes: they leave out how much hangs "
        "on the volumes. The learning rate of Adam is chosen for each arm by validation bags, on each split of its own "
        "where splits share bags, else on one training. That choice is part of a difference: of adrenal, where it fell "
        "on another rate for one arm than for the others, all arms are shown at one rate as well, which was decided "
        "after the first page. The tabular sets have the library's defaults, the images a small encoder of two "
        "convolutions."
    )


def plot_differences(found: Found, path: Path) -> None:
    """Draw each arm's difference to minibatch, a row a case, a panel a pooling."""
    poolings = list(dict.fromkeys(own.pooling for outcomes in found.values() for own in outcomes))
    arms = list(dict.fromkeys(own.arm for outcomes in found.values() for own in outcomes if own.arm != "minibatch"))
    figure = new_figure((1.6 + 3.4 * len(poolings), 1.4 + 0.42 * len(found)))
    for axes, pooling in zip(figure.subplots(1, len(poolings), squeeze=False, sharey=True)[0], poolings):
        for style, arm in enumerate(arms):
            rows = [
                (row + 0.16 * (style - (len(arms) - 1) / 2), gain)
                for row, outcomes in enumerate(found.values())
                for gain in [_difference(outcomes, pooling, arm, "minibatch")]
                if gain is not None and np.isfinite(gain.low)
            ]
            if rows:
                gains = [gain for _, gain in rows]
                plot_points(
                    axes,
                    [place for place, _ in rows],
                    [gain.mean for gain in gains],
                    [(gain.low, gain.high) for gain in gains],
                    name=arm,
                    style=style,
                    horizontal=True,
                )
        axes.axvline(0, color="#6E6E6E", lw=1)
        axes.set_yticks(range(len(found)), list(found))
        axes.set_title(pooling.capitalize(), loc="left", fontweight="bold", fontsize=10)
        axes.set_xlabel("Test AUROC minus that of minibatch")
    figure.axes[0].invert_yaxis()
    names = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    save_figure(figure, path)


def _losses(found: Found) -> Iterator[str]:
    """What is lost where `top` is drawn in place of the default, over each kind of sets."""
    for name, sets in (("the five tabular sets", TABULAR), *((one, (one,)) for one in _HISTOLOGY)):
        pairs = [_pair(found[one], "smoothed-max", "top, minibatch", "vrsp") for one in sets if one in found]
        known = [pair for pair in pairs if pair is not None]
        if not known:
            continue
        gain = _estimate(np.mean([values for values, _ in known], axis=0), known[0][1])
        verdict = "no loss" if gain.low > LOSS else "a loss" if gain.high < 0 else "open"
        yield f"- Smoothed-max, `top, minibatch` minus the default `vrsp`, {name}: {gain:+} ({verdict})."


def _states(found: Found) -> Iterator[str]:
    """Where `top` and a tracked state can be told from others."""
    lost, won, ahead, both = [], [], [], []
    for case, outcomes in found.items():
        gain = _difference(outcomes, "smoothed-max", "top, minibatch", "vrsp")
        lost += [f"{case} {gain:+}"] if gain is not None and gain.high < 0 else []
        won += [f"{case} {gain:+}"] if gain is not None and gain.low > 0 else []
        for own in outcomes:
            gains = [_difference(outcomes, own.pooling, own.arm, other) for other in ("minibatch", "exact")]
            if "vrsp" in own.arm and len(own.test) >= _REPEATS and gains[0] is not None and gains[0].low > 0:
                name = f"{case}, {own.pooling}, `{own.arm}`"
                ahead.append(f"{name} {gains[0]:+}")
                both += [name] if gains[1] is not None and gains[1].low > 0 else []
    yield f"- Smoothed-max, `top, minibatch` behind `vrsp` beyond doubt: {_listed(lost)}; ahead: {_listed(won)}."
    yield f"- A tracked state ahead of `minibatch` beyond doubt: {_listed(ahead)}."
    yield f"- Of these ahead of `exact` as well: {_listed(both)}."
    known = {
        f"{case}, {own.pooling}, `{own.arm}`": (gain, len(own.test) - 1)
        for case, outcomes in found.items()
        for own in outcomes
        for gain in [_difference(outcomes, own.pooling, own.arm, "minibatch")]
        if "vrsp" in own.arm and gain is not None and np.isfinite(gain.low)
    }
    p = holm([(g.mean, g.low, g.high) for g, _ in known.values()], freedom=[degrees for _, degrees in known.values()])
    left = [f"{name} ({v:.4f})" for (name, (gain, _)), v in zip(known.items(), p) if v < 0.05 and gain.mean > 0]
    yield (
        f"- Of the {len(p)} differences of a tracked state to `minibatch`, above 0 after Holm's correction (p below "
        f"0.05): {_listed(left)}."
    )


def _floors(found: Found) -> str:
    """What the floor under the sample's share changes, where anything."""
    gains = [
        f"{case} {gain:+}"
        for case, outcomes in found.items()
        for gain in [_difference(outcomes, "attention", "vrsp", "vrsp, no floor")]
        if gain is not None and np.isfinite(gain.low) and case not in TABULAR
    ]
    return (
        "- Attention, `vrsp`, whose sample holds a tenth of the state at least, minus `vrsp, no floor`, the paper's: "
        f"{_listed(gains)}."
    )


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "in no case"


def _case(outcomes: Sequence[Outcome]) -> list[str]:
    rows = []
    for own in outcomes:
        gains = [_difference(outcomes, own.pooling, own.arm, other) for other in ("minibatch", "vrsp", "exact")]
        rates = ", ".join(f"{rate:g}" for rate in sorted(set(own.rates))) or "default"
        rows.append(
            [
                f"{own.pooling}, {own.arm}",
                f"{own.test.mean():.3f}",
                f"{own.test.min():.3f}",
                *("" if gain is None else _told(gain) for gain in gains),
                rates,
            ]
        )
    return table(["arm", "test AUROC", "worst trial", "minus minibatch", "minus vrsp", "minus exact", "rate"], rows)


def _told(gain: Estimate) -> str:
    """A difference with its interval, where the trials differ at all."""
    return f"{gain:+}" if np.isfinite(gain.low) else f"{gain.mean:+.3f}"


def _difference(outcomes: Sequence[Outcome], pooling: str, arm: str, other: str) -> Estimate | None:
    pair = None if arm == other else _pair(outcomes, pooling, arm, other)
    return None if pair is None else _estimate(*pair)


def _pair(outcomes: Sequence[Outcome], pooling: str, arm: str, other: str) -> tuple[NDArray[np.float64], float] | None:
    """Paired differences of two arms, and the overlap of their trials; None where one was not run."""
    own = {outcome.arm: outcome for outcome in outcomes if outcome.pooling == pooling}
    if arm not in own or other not in own:
        return None
    return own[arm].test - own[other].test, own[arm].overlap


def _estimate(values: NDArray[np.float64], overlap: float) -> Estimate:
    found = corrected_interval(values, ratio=overlap)
    return Estimate(found.mean, found.low, found.high)
