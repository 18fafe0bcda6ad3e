"""The page of the study of the needle: a table for each kind of bags, and each training as a dot."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from midam.report.figures import new_figure
from studies.drawing import save_figure

# Of each rule: test AUROC, validation AUROC and cost of each repeat, [repeats, 3].
Outcomes = Mapping[str, NDArray[np.float64]]
_DOT, _MEAN = "#0072B2", "#202020"


def body(found: Sequence[tuple[str, Outcomes]], figure: str, *, reference: str, ours: str) -> Iterator[str]:
    """Lines of the page; differences are to the rule `reference`, and the first sentence is of the rule `ours`."""
    for title, rows in found:
        test, other = rows[ours][:, 0], rows[reference][:, 0]
        yield (
            f"**{title}.** `{ours}`: mean test AUROC {test.mean():.3f}, worst {test.min():.3f}, at "
            f"{rows[ours][:, 2].mean():.2f} times the cost; `{reference}`: {other.mean():.3f}."
        )
        yield ""
    yield f"![Test AUROC of each training]({figure})"
    yield ""
    for title, rows in found:
        yield f"## {title}"
        yield ""
        yield f"| draws | test AUROC | worst | above 0.7 | minus {reference} [95%] | validation | cost |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for name, own in rows.items():
            test, costs = own[:, 0], own[:, 2]
            paid = "-" if np.isnan(costs).any() else f"{costs.mean():.2f}"
            gain = "" if name == reference else interval(test - rows[reference][:, 0])
            yield (
                f"| {name} | {test.mean():.3f} | {test.min():.3f} | {np.mean(test > 0.7):.0%} | {gain} | "
                f"{own[:, 1].mean():.3f} | {paid} |"
            )
        yield ""
    yield (
        "Intervals are 95% t intervals over the repeats, paired: all rules of a repeat see the same bags and begin at "
        "the same weights. Cost 1 is that of 2400 uniform steps of 16 instances from 16 bags; `exact, 100 epochs` is "
        "trained on whole bags, two a step, whatever that costs. `tracked state` is `vrsp` at gamma0 = "
        "0.9, the other draws `minibatch`. `best of 4` trains four times, each with weights and draws of its own, "
        "keeps the training with the highest validation AUROC, and pays for all. `instances labeled` is no rule but a "
        "bound: a network with the same hidden layer (scikit-learn's `MLPClassifier`), which was told which training "
        "images are nines and scores a bag by its highest instance. The rules have the rates and the schedule that "
        "served `top, annealed` best on repeats 100 to 119, which are not in the table."
    )


def vector_body(found: Mapping[int, Outcomes], figure: str, *, reference: str, bounds: Sequence[str]) -> Iterator[str]:
    """Lines of the page on vectors: by bag size, what each rule finds; differences are to the rule `reference`."""
    for size, rows in found.items():
        names = [name for name in rows if name not in bounds]
        best = max(names, key=lambda name: rows[name][:, 0].mean())
        parts = []
        for word in _VERDICTS:
            alike = [f"`{name}`" for name in names if verdict(rows[name][:, 0]) == word]
            parts += [f"{word}: {', '.join(alike)}"] if alike else []
        yield f"**1 of {size}.** Best: `{best}`, mean test AUROC {rows[best][:, 0].mean():.3f}. {'; '.join(parts)}."
        yield ""
    yield f"![Test AUROC of each training]({figure})"
    yield ""
    yield "| rule | " + " | ".join(f"1 of {size}" for size in found) + " |"
    yield "|---|" + "---:|" * len(found)
    for name in next(iter(found.values())):
        cells = [interval(rows[name][:, 0], sign="") if name in rows else "-" for rows in found.values()]
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""
    for size, rows in found.items():
        yield f"## 1 of {size}"
        yield ""
        yield f"| rule | test AUROC | worst | minus {reference} [95%] | validation | cost | verdict |"
        yield "|---|---:|---:|---:|---:|---:|---|"
        for name, own in rows.items():
            test, costs = own[:, 0], own[:, 2]
            paid = "-" if np.isnan(costs).any() else f"{costs.mean():.2f}"
            gain = "" if name == reference else interval(test - rows[reference][:, 0])
            yield (
                f"| {name} | {test.mean():.3f} | {test.min():.3f} | {gain} | {own[:, 1].mean():.3f} | {paid} | "
                f"{verdict(test)} |"
            )
        yield ""


_VERDICTS = ("found", "weak", "at chance")


def verdict(test: NDArray[np.float64]) -> str:
    """Say whether the test AUROC of the repeats shows that the needle was found.

    Examples
    --------
    >>> [verdict(np.array(test)) for test in ([0.90, 0.92], [0.74, 0.75, 0.66], [0.51, 0.49])]
    ['found', 'weak', 'at chance']
    """
    low, _ = _bounds(test)
    return "found" if low > 0.7 else "weak" if low > 0.5 else "at chance"


def interval(differences: NDArray[np.float64], *, sign: str = "+") -> str:
    """Mean and 95% t interval of paired differences, or of values with `sign=""`.

    Examples
    --------
    >>> interval(np.array([0.1, 0.3]))
    '+0.200 [-1.071, +1.471]'
    """
    low, high = _bounds(differences)
    return f"{differences.mean():{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _bounds(values: NDArray[np.float64]) -> tuple[float, float]:
    mean, count = values.mean(), len(values)
    half = student.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count)
    return float(mean - half), float(mean + half)


def plot_trials(found: Sequence[tuple[str, Outcomes]], path: Path) -> None:
    """Draw the test AUROC of each training, a row a rule, a panel a kind of bags."""
    names = list(dict.fromkeys(name for _, rows in found for name in rows))
    columns = min(2, len(found))
    lines = -(-len(found) // columns)
    figure = new_figure((4.6 * columns + 1.6, lines * (0.9 + 0.3 * len(names))))
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (title, rows) in zip(panels.flat, found):
        axes.axvline(0.5, color="#B0B0B0", linewidth=1)
        for name, own in rows.items():
            line, test = names.index(name), own[:, 0]
            spread = np.linspace(-0.22, 0.22, len(test))
            axes.scatter(test, line + spread, s=14, color=_DOT, alpha=0.6, linewidths=0)
            axes.scatter([test.mean()], [line], s=60, marker="|", color=_MEAN, linewidths=2)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0.25, 1.01)
    for axes in panels[-1]:
        axes.set_xlabel("test AUROC (bar: mean)")
    for axes in panels.flat[len(found) :]:
        axes.set_visible(False)
    save_figure(figure, path, grid=False)
