"""The page of the study of remembering: what it says in short, the advice, a figure and every cell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from midam.compare.summary import corrected_interval
from midam.report.figures import new_figure
from studies.differences import Difference, holm
from studies.drawing import COLORS, add_legend, save_figure
from studies.page import section, table
from studies.split_statistics import mean_interval

PRIMARY = (1, 2, 4)  # B of the primary comparison
_LEVEL = 0.05
ANY, PRINTED, STEPS = "vrsp, any gamma0", "vrsp-printed", "exact, as many steps"
_ARMS = ("minibatch", "vrsp", ANY, PRINTED, "exact", STEPS)


class Cell(NamedTuple):
    """A task, a pooling, and the instances of a bag that a step reads."""

    task: str
    pooling: str
    instances: int


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The judged trainings of a cell."""

    cell: Cell
    test: Mapping[str, NDArray[np.float64]]  # by arm: test AUROC [repeats]
    option: Mapping[str, Mapping[str, Any]]  # by arm: what validation bags chose
    overlap: float  # test bags for each training bag, 0 where repeats share none
    validation: Mapping[str, float] = field(default_factory=dict)  # by arm: mean AUROC by which its option was chosen
    # By arm: mean effective number of instances of the attention
    effective: Mapping[str, float] = field(default_factory=dict)

    def gain(self, arm: str = "vrsp", other: str = "minibatch") -> NDArray[np.float64] | None:
        """Return the paired differences [repeats], None where one of both did not run."""
        return self.test[arm] - self.test[other] if arm in self.test and other in self.test else None


Found = Sequence[Outcomes]
Pick = tuple[str | None, tuple[int, ...]]  # pooling or both, and values of B


def interval(gain: NDArray[np.float64], overlap: float) -> Difference:
    """Return the mean and the 95% interval of one cell; one without spread has no width."""
    found = corrected_interval(gain, ratio=overlap)
    return Difference(found.mean, *(found.mean if np.isnan(x) else x for x in (found.low, found.high)))


def task_gains(found: Found, pick: Pick, arm: str = "vrsp", other: str = "minibatch") -> dict[str, Difference]:
    """Return, of each task, the mean difference over the cells that are picked."""
    pooling, values = pick
    gains: dict[str, list[NDArray[np.float64]]] = {}
    overlap = {}
    for outcome in found:
        gain = outcome.gain(arm, other)
        if gain is not None and outcome.cell.instances in values and pooling in (None, outcome.cell.pooling):
            gains.setdefault(outcome.cell.task, []).append(gain)
            overlap[outcome.cell.task] = outcome.overlap
    return {task: interval(np.mean(cells, axis=0), overlap[task]) for task, cells in gains.items()}


def over_tasks(gains: Mapping[str, Difference]) -> Difference:
    """Return the mean over tasks, each with the variance of its repeats.

    Examples
    --------
    >>> print(over_tasks({"a": Difference(0.01, 0.0, 0.02), "b": Difference(0.03, 0.03, 0.03)}))
    +0.020 [+0.015, +0.025]
    """
    mean = float(np.mean([gain.mean for gain in gains.values()]))
    half = float(np.sqrt(np.sum([((gain.high - gain.low) / 2) ** 2 for gain in gains.values()]))) / len(gains)
    return Difference(mean, mean - half, mean + half)


def corrected(found: Found, arm: str = "vrsp", other: str = "minibatch") -> dict[Cell, tuple[Difference, float]]:
    """Return the difference of each cell that has one, and its p-value by Holm's rule over all of them."""
    gaps = {
        outcome.cell: (interval(gain, outcome.overlap), len(gain) - 1)
        for outcome in found
        for gain in [outcome.gain(arm, other)]
        if gain is not None
    }
    p = holm([gap for gap, _ in gaps.values()], freedom=[free for _, free in gaps.values()]) if gaps else []
    return {cell: (gap, value) for (cell, (gap, _)), value in zip(gaps.items(), p)}


def body(found: Found, references: Mapping[str, Mapping[str, NDArray[np.float64]]], figure: str) -> Iterator[str]:
    """Lines of the page."""
    cells = corrected(found)
    arms = [arm for arm in _ARMS if any(arm in outcome.test for outcome in found)]
    chosen: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for outcome in found:
        chosen.setdefault(outcome.cell[:2], {}).update(outcome.option)
    yield "**In short.**"
    yield ""
    yield from _short(found, cells)
    yield ""
    yield f"![The tracked state minus a mini-batch, by task and B]({figure})"
    yield ""
    yield from section("By pooling and B", _advice_head(), table(_ADVICE, _advice(found)))
    yield from section("The primary comparison by task", table(["task", "`vrsp` minus `minibatch`"], _primary(found)))
    yield from section(
        "All cells",
        "Mean test AUROC; differences are paired, with 95% intervals, and p-values by Holm's rule over all cells. "
        "'Effective': the effective number 1 / sum(w^2) of instances of the attention of `vrsp` on test bags. `-`: not "
        "run, see the end of the page.",
        table(
            ["task", "pooling", "B", *arms, "`vrsp` minus `minibatch`", "p", "effective"],
            (_row(outcome, arms, cells.get(outcome.cell)) for outcome in found),
        ),
    )
    for arm, about in _OTHERS.items():
        minus, ours = corrected(found, arm), corrected(found, "vrsp", arm)
        if minus:
            yield from section(
                f"The arm `{arm}`",
                f"{about} Differences with p-values by Holm's rule over each column.",
                table(
                    ["task", "pooling", "B", f"`{arm}` minus `minibatch`", "p", f"`vrsp` minus `{arm}`", "p"],
                    (
                        [*map(str, cell), str(gap), _level(p), str(ours[cell][0]), _level(ours[cell][1])]
                        for cell, (gap, p) in minus.items()
                    ),
                ),
            )
    if references:
        names = list(next(iter(references.values())))
        yield from section(
            "What the digits allow",
            "Mean test AUROC and its 95% interval over the same repeats. Trained on the label of each instance; by the "
            "distance to the nearest instance of a negative training bag; and mi-SVM, from the labels of bags.",
            table(
                ["task", *names],
                (
                    [task, *(str(mean_interval(aurocs[name].tolist())) for name in names)]
                    for task, aurocs in references.items()
                ),
            ),
        )
    yield from section(
        "What was chosen",
        table(
            ["task", "pooling", *arms],
            (
                [task, pooling, *(_chosen(option.get(arm)) for arm in arms)]
                for (task, pooling), option in chosen.items()
            ),
        ),
    )
    gaps = list(_validation_gaps(found))
    if gaps:
        yield from section(
            "Do validation bags show which is better?",
            "`vrsp` minus `minibatch`, each with the option that was chosen: the mean validation AUROC by which it was "
            "chosen, and the mean test AUROC over all B. "
            f"The sign is the same in {sum(seen * gap.mean > 0 for *_, seen, gap in gaps)} of {len(gaps)}.",
            table(
                ["task", "pooling", "validation", "test"],
                ([task, pooling, f"{seen:+.3f}", str(gap)] for task, pooling, seen, gap in gaps),
            ),
        )
    yield from section("How it was done", *_HOW)


_ADVICE = ["pooling", "B", "tasks", "`vrsp` minus `minibatch`", "ahead / behind", "`vrsp` minus `exact`", "advice"]


_OTHERS = {
    ANY: "gamma0 is chosen with the optimizer, among 0.3, 0.9, the rule and 1, which is `minibatch`, in four times as "
    "many trainings as the other arms have.",
    PRINTED: "The state as the paper prints it, of absolute l and r, gamma0 0.9.",
}
_HOW = (
    "A step reads B instances of 8 + 8 bags; `exact` reads whole bags, 1 + 1 a step, in as many whole epochs as the "
    "same number of instances buys, and `exact, as many steps` 8 + 8 whole bags in each step. `-`: that is less than "
    "one epoch; or bags of more than 1000 instances; or attention with B = 1 and no state, which has no gradient. "
    "Trainings on images have fewer steps above B = 4, so that no cell costs more. The test scores are those after the "
    "last step.",
    "Each arm chose among the same optimizers by the mean validation AUROC of eight trainings on bags that are not "
    "judged, four folds at B = 2 and at B = 8, which choose for all B. At first they were six; where an arm chose the "
    "lowest or highest rate, all arms of this task and pooling tried the next. The references, `exact`, chose among "
    "the six by four trainings. SGD has a momentum of 0.9.",
    "Customers: 6000 bags of 30 rows of 12 numbers, 12% positive; 1 to 3 rows of these have three numbers shifted "
    "together, and an ordinary row may have one of them shifted. Digits: 8 x 8 pixels of scikit-learn's 1797, each "
    "instance turned, stretched, shifted and made noisy by amounts of its own, so that no two instances are alike. A "
    "positive bag holds 5% nines (3% of 1000, 2% of 5000). A third of the images is for test bags alone. Other tables, "
    "breast and colon: one half of the bags, disjoint by group, chooses; half of the others tests, drawn anew in each "
    "repeat, and the rest trains. Their intervals have Nadeau and Bengio's correction, since repeats share bags. "
    "Adrenal: four folds of its training and validation volumes choose, and its published test volumes test: its "
    "intervals leave out how much hangs on these. Vectors are those of a frozen EfficientNet-Lite0 (ImageNet), a slice "
    "each. Intervals over tasks take the tasks as given.",
    "The rule for gamma0 and its two numbers were chosen on the bags that choose, not on those that are judged.",
)


def _short(found: Found, cells: Mapping[Cell, tuple[Difference, float]]) -> Iterator[str]:
    tasks = task_gains(found, (None, PRIMARY))
    if not tasks:
        yield "- No cell has both arms."
        return
    gap = over_tasks(tasks)
    verdict = "remembering pays" if gap.low > 0 else "it costs" if gap.high < 0 else "no difference found"
    higher = sum(gap.mean > 0 for gap in tasks.values())
    sign = stats.binomtest(higher, len(tasks)).pvalue
    yield (
        f"- Primary comparison, `vrsp` minus `minibatch` at B = 1, 2 and 4, {len(tasks)} tasks: {gap}: {verdict} on "
        f"these tasks. Higher in {higher} of {len(tasks)} (sign test over tasks: p = {sign:.2f})."
    )
    yield from _clear("vrsp", cells)
    for arm in _OTHERS:
        gains = task_gains(found, (None, PRIMARY), "vrsp", arm)
        if gains:
            yield f"- `vrsp` minus `{arm}` at B = 1, 2 and 4: {over_tasks(gains)}."


def _clear(arm: str, cells: Mapping[Cell, tuple[Difference, float]]) -> Iterator[str]:
    """Yield where an arm is ahead of `minibatch`, and where behind."""
    for word, side in (("ahead of", 1), ("behind", -1)):
        clear = [cell for cell, (mean, p) in cells.items() if p < _LEVEL and mean.mean * side > 0]
        named = "; ".join(f"{cell.task}, {cell.pooling}, B = {cell.instances} {cells[cell][0]}" for cell in clear)
        listed = f"{len(clear)} of {len(cells)} cells" + (f": {named}" if named else "")
        if cells:
            yield f"- `{arm}` is {word} `minibatch`, after Holm's correction, in {listed}."


def _advice_head() -> str:
    return (
        "Means over the tasks. `remember`: the interval lies above 0 and no task is behind; `mini-batch`: below 0 and "
        "no task is ahead."
    )


def _advice(found: Found) -> Iterator[list[str]]:
    for pooling in dict.fromkeys(outcome.cell.pooling for outcome in found):
        for b in dict.fromkeys(outcome.cell.instances for outcome in found):
            gains = task_gains(found, (pooling, (b,)))
            whole = task_gains(found, (pooling, (b,)), "vrsp", "exact")
            if not gains:
                yield [pooling, str(b), "0", "-", "-", str(over_tasks(whole)) if whole else "-", "no mini-batch"]
                continue
            gap = over_tasks(gains)
            ahead = sum(gain.low > 0 for gain in gains.values())
            behind = sum(gain.high < 0 for gain in gains.values())
            kind = "differs by task" if ahead and behind else "no difference found"
            advice = "remember" if gap.low > 0 and not behind else "mini-batch" if gap.high < 0 and not ahead else kind
            yield [
                *(pooling, str(b), str(len(gains)), str(gap), f"{ahead} / {behind}"),
                *(str(over_tasks(whole)) if whole else "-", advice),
            ]


def _primary(found: Found) -> list[list[str]]:
    return [[task, str(gap)] for task, gap in task_gains(found, (None, PRIMARY)).items()]


def _validation_gaps(found: Found) -> Iterator[tuple[str, str, float, Difference]]:
    """Yield task, pooling, and `vrsp` minus `minibatch` on validation and on test bags."""
    values = tuple(dict.fromkeys(outcome.cell.instances for outcome in found))
    for outcome in found:
        seen = outcome.validation
        if outcome.cell.instances == max(values) and {"vrsp", "minibatch"} <= set(seen):
            pooling, task = outcome.cell.pooling, outcome.cell.task
            gap = task_gains([other for other in found if other.cell.task == task], (pooling, values))[task]
            yield task, pooling, seen["vrsp"] - seen["minibatch"], gap


def _row(outcome: Outcomes, arms: Sequence[str], gap: tuple[Difference, float] | None) -> list[str]:
    means = [f"{outcome.test[arm].mean():.3f}" if arm in outcome.test else "-" for arm in arms]
    effective = f"{outcome.effective['vrsp']:.1f}" if "vrsp" in outcome.effective else "-"
    if gap is None:
        return [*map(str, outcome.cell), *means, "-", "-", effective]
    difference, p = gap
    return [*map(str, outcome.cell), *means, str(difference), _level(p), effective]


def _level(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _chosen(option: Mapping[str, Any] | None) -> str:
    if option is None:
        return "-"
    gamma = f", gamma0 {option.get('state_rate', 1)}"
    return f"{option['optimizer']} {option['lr']:g}{gamma}"


def plot_gains(found: Found, path: Path) -> None:
    """Draw, a panel a task, the difference by B with its interval: by pooling, and of the printed state."""
    tasks = list(dict.fromkeys(outcome.cell.task for outcome in found))
    poolings = list(dict.fromkeys(outcome.cell.pooling for outcome in found))
    lines = [(pooling, "vrsp", pooling) for pooling in poolings]
    lines += [(pooling, PRINTED, f"{pooling}, printed state") for pooling in poolings]
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = new_figure((3.4 * columns + 0.6, 2.3 * rows + 0.9))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, task in zip(grid.flat, tasks):
        for style, (pooling, arm, name) in enumerate(lines):
            points = [
                (o.cell.instances, interval(g, o.overlap))
                for o in found
                if o.cell.task == task and o.cell.pooling == pooling
                for g in [o.gain(arm)]
                if g is not None
            ]
            if points:
                x = np.array([b for b, _ in points]) * (0.94, 0.98, 1.02, 1.06)[style]
                mean = np.array([gap.mean for _, gap in points])
                reach = [mean - [gap.low for _, gap in points], [gap.high for _, gap in points] - mean]
                axes.errorbar(x, mean, yerr=reach, fmt="os^D"[style] + "-", color=COLORS[style], capsize=3, label=name)
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_title(task, loc="left", fontweight="bold", fontsize=9)
    for axes in grid.flat[len(tasks) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("minus minibatch")
    for axes in grid[-1]:
        axes.set_xlabel("B, instances of a bag in a step")
        values = sorted({outcome.cell.instances for outcome in found})
        axes.set_xticks(values, [str(value) for value in values])
    add_legend(figure, columns=len(lines))
    save_figure(figure, path)
