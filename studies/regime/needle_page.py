"""The page of the needle: what decides, a table for each size of bags, and each training as a dot."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.report.figures import new_figure
from studies.differences import holm
from studies.drawing import save_figure
from studies.page import section, table
from studies.split_statistics import mean_interval, paired_interval

# By size of bags, of each way: test AUROC [repeats].
Found = Mapping[str, Mapping[str, NDArray[np.float64]]]
_DOT, _MEAN = "#0072B2", "#202020"
_LEVEL = 0.05


def body(
    found: Found,
    figure: str,
    *,
    rates: Mapping[tuple[str, str], float],
    ways: tuple[str, str],
    tracked: Sequence[tuple[str, str]],
    new: Sequence[str],
    bounds: Sequence[str],
) -> Iterator[str]:
    """Return the lines of the page.

    `ways` are the plain way and the one that may be advised, `tracked` pairs of ways with and without a tracked state,
    `new` those that the library lacks, `bounds` those that are told the labels of instances; `rates` are those that
    validation bags chose.
    """
    plain, advised = ways
    last = list(found)[-1]
    gain = paired_interval(found[last][advised], found[last][plain])
    told = "the tracked state is advised" if gain.low > 0 else "there is no ground to advise it"
    yield f"**Primary comparison, {last}:** `{advised}` minus `{plain}` {gain:+}: {told}."
    yield ""
    for title, rows in found.items():
        best = max((name for name in rows if name not in bounds), key=lambda name: rows[name].mean())
        parts = []
        for word in _VERDICTS:
            alike = [f"`{name}`" for name in rows if name not in bounds and verdict(rows[name]) == word]
            parts += [f"{word}: {', '.join(alike)}"] if alike else []
        yield f"**{title}.** Best: `{best}`, mean test AUROC {rows[best].mean():.3f}. {'; '.join(parts)}."
        yield ""
    yield from _family(found, tracked, "Does the tracked state help?")
    yield from _family(found, [(name, advised) for name in new], "Is a way that the library lacks better?")
    yield f"![Test AUROC of each training]({figure})"
    yield ""
    head = ["way", "test AUROC [95%]", "worst", "above 0.7", f"minus {plain}", f"minus {advised}", "rate", "verdict"]
    for title, rows in found.items():
        lines = []
        for name, test in rows.items():
            gains = ["" if name == other else f"{paired_interval(test, rows[other]):+}" for other in ways]
            chosen = f"{rates[title, name]:g}" if (title, name) in rates else "-"
            level = f"{np.mean(test > 0.7):.0%}"
            lines.append(
                [name, str(mean_interval(test.tolist())), f"{test.min():.3f}", level, *gains, chosen, verdict(test)]
            )
        yield from section(title, table(head, lines))
    yield from section(
        "What was run",
        "Intervals are 95% t intervals over the repeats, paired: all ways of a repeat see the same bags. A bag is the "
        "highest score of its instances, or, of ways that score instances alone, the mean of the highest twentieth or "
        "of all, whichever ranks the training bags best. Networks have one tanh layer of 64 on the 64 pixels, and "
        "smoothed-max pooling with the weights annealed where the way is `exact`; `tracked state` is `vrsp`. "
        "`positive-unlabelled risk` is told the share of witnesses, `labels by bag constraint` that there is one. The "
        "ways that are told each instance's label bound what the images allow.",
    )


def _family(found: Found, pairs: Sequence[tuple[str, str]], question: str) -> Iterator[str]:
    """Return a table of the differences of these pairs of ways, after Holm's correction over all pairs and sizes."""
    known = [(title, *pair) for title, rows in found.items() for pair in pairs if all(name in rows for name in pair)]
    if not known:
        return
    gains = [paired_interval(found[title][name], found[title][other]) for title, name, other in known]
    freedom = [len(found[title][name]) - 1 for title, name, _ in known]
    levels = holm([(gain.mean, gain.low, gain.high) for gain in gains], freedom=freedom)
    ahead = [
        f"`{name}` in bags with {title}"
        for (title, name, _), gain, level in zip(known, gains, levels)
        if level < _LEVEL and gain.mean > 0
    ]
    yield f"**{question}** Ahead after Holm's correction: {'; '.join(ahead) or 'none'}."
    yield ""
    rows = [
        [title, f"{name} minus {other}", f"{gain:+}", f"{level:.2g}"]
        for (title, name, other), gain, level in zip(known, gains, levels)
    ]
    yield from table(["bags", "difference", "test AUROC", "p after Holm"], rows)
    yield ""


_VERDICTS = ("found", "weak", "at chance")


def verdict(test: NDArray[np.float64]) -> str:
    """Say whether the test AUROC of the repeats shows that the needle was found.

    Examples
    --------
    >>> [verdict(np.array(test)) for test in ([0.90, 0.92], [0.74, 0.75, 0.66], [0.51, 0.49])]
    ['found', 'weak', 'at chance']
    """
    low = mean_interval(test.tolist()).low
    return "found" if low > 0.7 else "weak" if low > 0.5 else "at chance"


def plot_trials(found: Found, path: Path) -> None:
    """Draw the test AUROC of each training, a row a way, a panel a size of bags."""
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    figure = new_figure((4.2 * len(found) + 2.4, 0.9 + 0.3 * len(names)))
    panels = figure.subplots(1, len(found), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (title, rows) in zip(panels, found.items()):
        axes.axvline(0.5, color="#B0B0B0", linewidth=1)
        for name, test in rows.items():
            line = names.index(name)
            spread = np.linspace(-0.22, 0.22, len(test))
            axes.scatter(test, line + spread, s=14, color=_DOT, alpha=0.6, linewidths=0)
            axes.scatter([test.mean()], [line], s=60, marker="|", color=_MEAN, linewidths=2)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0.25, 1.01)
        axes.set_xlabel("test AUROC (bar: mean)")
    save_figure(figure, path, grid=False)
