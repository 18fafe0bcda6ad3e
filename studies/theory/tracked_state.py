"""The tracked state, taken apart: gamma0 x B x tau, fast and slow encoders, draw rules, and a corrected state.

**Question.** Does gamma0 < 1 help where `minibatch` is biased, does that depend on how fast the encoder moves, does it
hold with draws by remembered scores, and would a corrected state (STORM, MSVR) be better than the plain one?

**Rules of decision**, fixed before the run. The gain of the state in a cell is the mean test AUROC over gamma0 0.3 to
0.9, minus `minibatch`, paired over the repeats. The bias says where it helps if the rank correlation over the cells,
worked out in each repeat by itself, has a 95% interval above 0. A corrected state goes into the library if its test
AUROC, mean over its cells and both gamma0, is ahead of the plain state's at equal cost, the interval above 0.

**Size.** Bags of 200 with 2 nines, with 4 at B = 1: there trainings of a few seeds neither all learn nor all fail.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import spearmanr

from midam.report.figures import new_figure
from studies.drawing import COLORS, DASHES, MARKERS, save_figure
from studies.engine import Store, complete
from studies.options import StudyOptions
from studies.page import figure_path, section, table, write_page
from studies.registry import as_study
from studies.split_statistics import Estimate, mean_interval
from studies.theory.state_loop import CORRECTIONS, RENEWED, WHOLE, Arm
from studies.theory.state_trials import (
    EXACT,
    EXACT_OLD,
    FEW,
    FULL,
    LR,
    MINIBATCH,
    NAME,
    QUICK,
    SMALLER,
    SPEEDS,
    Cell,
    Design,
    Found,
    run_task,
    wanted_groups,
)

_BIASES = {
    "score, end": "end, h bias",
    "l, end": "end, l bias",
    "score, start": "start, h bias",
    "l, start": "start, l bias",
}
_MAIN = "score, end"
_STATES = {
    "": "plain",
    "storm": "STORM, weights of the step before",
    "msvr": "MSVR, weights of the step before",
    "visit": "STORM, weights of the bag's last visit",
    RENEWED: "the whole bag's own value, and the draw",
    WHOLE: "the whole bag's own value",
}
# One section: what it says in short, and its lines.
Part = tuple[str, list[str]]


@as_study("the tracked state taken apart: gamma0, B, tau, speed, draws, and a corrected state", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""
    part, design = ("", FULL)
    if options.quick or options.smaller:
        part, design = ("-smaller", SMALLER) if options.smaller else ("-quick", QUICK)
    with Store(options.cache, f"{NAME}{part}") as store:
        complete(wanted_groups(design), run_task, store=store, options=options, section=NAME)
        found = Found(design, store)
        figure = figure_path(options, NAME)
        _plot(found, figure)
        write_page(
            options,
            NAME,
            title="The tracked state, taken apart",
            shows="Where does gamma0 < 1 help, does the bias of `minibatch` say where, and would a corrected state be "
            "better? Trainings that differ in nothing else, on bags of digits.",
            seeds=f"repeats {design.seeds[0]} to {design.seeds[-1]}, of images, bags, weights and draws",
            seconds=store.wall_time(),
            store=store,
            body=_body(found, figure.name),
        )


def _body(found: Found, figure: str) -> Iterator[str]:
    """Lines of the page below its head."""
    parts = [_rates(found), _longer(found), _bias(found), _speed(found), _rules(found), _corrections(found)]
    yield "**In short.**"
    yield ""
    yield from (f"- {said}" for said, _ in parts)
    yield from ("", f"![Test AUROC by gamma0, gain by bias, and corrected states]({figure})", "")
    yield (
        "Above, test AUROC by gamma0. Below left, a mark a cell: what the state adds, by the bias of `minibatch`. "
        "Below right, other states minus plain ones: diamonds are attention, circles smoothed-max, filled ones gamma0 "
        "= 0.3, open ones 0.9. A color is one B throughout."
    )
    yield ""
    for _, lines in parts:
        yield from lines
    yield from _design(found.design)


def _rates(found: Found) -> Part:
    gammas, rows = found.design.gammas, []
    gains = {cell: found.gain(cell) for cell in found.design.cells if not cell.refused}
    means = {cell: [float(found.test(cell, Arm(g)).mean()) for g in gammas] for cell in found.design.cells}
    for cell, own in means.items():
        marked = [f"**{mean:.3f}**" if mean == max(own) else f"{mean:.3f}" for mean in own]
        gain = _bold(_interval(gains[cell])) if cell in gains else "-"
        rows.append([cell.head, str(cell.b), str(found.design.draws[cell.b][1]), *marked, gain])
    told = [_told(_interval(gain)) for gain in gains.values()]
    average = {g: float(np.mean([means[cell][i] for cell in gains])) for i, g in enumerate(gammas)}
    half = np.mean([found.test(cell, Arm(0.5)) - found.test(cell, Arm(0.9)) for cell in gains], axis=0)
    said = (
        f"A tracked state (gamma0 0.3 to 0.9) is ahead of `minibatch` in {told.count('ahead')} of {len(gains)} cells "
        f"and behind in {told.count('behind')}; on average {_interval(np.mean(list(gains.values()), axis=0)):+}. Mean "
        f"test AUROC by gamma0: {', '.join(f'{mean:.3f} at {g:g}' for g, mean in average.items())}; 0.5 minus the "
        f"default, 0.9: {_interval(half):+}."
    )
    text = "Mean test AUROC by gamma0, the highest of a row in bold; last, the mean over 0.3 to 0.9 minus `minibatch`."
    names = ["1 (minibatch)" if g == MINIBATCH else f"{g:g}" for g in gammas]
    lines = table(["pooling", "B", "witnesses", *names, "gain of the state"], rows)
    return said, section("gamma0, B and tau", text, lines)


def _longer(found: Found) -> Part:
    rows, gains, arms = [], [], [Arm(g) for g in (*FEW, MINIBATCH)]
    for cell in found.design.usual:
        usual, longer = ([found.test(cell, arm, longer=own) for arm in arms] for own in (False, True))
        gain = np.mean(longer[:-1], axis=0) - longer[-1]
        gains += [] if cell.refused else [gain]
        means = [f"{own.mean():.3f}" for own in (*usual, *longer)]
        rows.append([cell.head, str(cell.b), *means, "-" if cell.refused else _bold(_interval(gain))])
    times = found.design.longer
    said = f"After {times} times as many steps the gain of gamma0 0.3 and 0.9 is {_interval(np.mean(gains, axis=0)):+}."
    text = f"Mean test AUROC by gamma0, after the steps of this study, and after {times} times as many."
    names = [f"{g:g}" for g in (*FEW, MINIBATCH)]
    head = ["pooling", "B", *names, *(f"{name}, longer" for name in names), "gain, longer"]
    return said, section("Trained for longer", text, table(head, rows))


def _bias(found: Found) -> Part:
    cells = [cell for cell in found.design.cells if not cell.refused]
    forgetful, gains, rows = Arm(MINIBATCH), np.array([found.gain(cell) for cell in cells]), []
    places = [("start", forgetful), ("end", forgetful), ("end", Arm(FEW[-1]))]
    for cell in cells:
        row = [cell.head, str(cell.b)]
        for (when, arm), of in itertools.product(places, "lh"):
            bias, spread = (found.values(cell, arm, f"{when}, {of} {kind}").mean() for kind in ("bias", "deviation"))
            row.append(f"{bias:+.3f} / {spread:.3f}")
        rows.append(row)
    ranks = {}
    for name, key in _BIASES.items():
        sizes = np.abs([found.values(cell, forgetful, key) for cell in cells])
        ranks[name] = _interval(np.array([spearmanr(x, y).statistic for x, y in zip(sizes.T, gains.T)]))
    verdict = {"ahead": "is larger where the state helps more", "behind": "is smaller where the state helps more"}
    said = (
        "The size of the bias of a mini-batch's score, at the end of its own training, "
        f"{verdict.get(_told(ranks[_MAIN]), 'does not say where the state helps')}: rank correlation over {len(cells)} "
        f"cells {ranks[_MAIN]:+}; at the start of training {ranks['score, start']:+}."
    )
    text = (
        "Bias / standard deviation of a draw that is pooled as if it were the bag, against the whole bag: means over "
        "the positive training bags, 100 draws each, and over the repeats; at the start and at the end of training by "
        f"`minibatch`, and at the end of training with gamma0 = {FEW[-1]:g}."
    )
    note = (
        "Rank correlation (Spearman), over the cells, of the size of that bias of `minibatch` with the gain of the "
        "state; in each repeat by itself, mean over the repeats. The first was named before the run. Scores that "
        "hardly differ have little bias: at the end that is so where `minibatch` has learned nothing."
    )
    names = ["start", "end", f"end, gamma0 {FEW[-1]:g}"]
    head = ["pooling", "B", *(f"{of}, {name}" for name in names for of in ("l", "score"))]
    lines = table(["bias", "rank correlation with the gain"], [[name, _bold(own)] for name, own in ranks.items()])
    return said, section("The bias of a mini-batch", text, table(head, rows), note, lines)


def _speed(found: Found) -> Part:
    rows, slows = [], defaultdict(list)
    gains: dict[float, list[NDArray[np.float64]]] = defaultdict(list)
    for cell, speed in itertools.product(found.design.usual, SPEEDS):
        means = [f"{found.test(cell, Arm(g, speed)).mean():.3f}" for g in (*FEW, MINIBATCH)]
        gain = found.gain(cell, speed, gammas=FEW)
        gains[speed] += [] if cell.refused else [gain]
        slow = found.test(cell, Arm(FEW[0], speed)) - found.test(cell, Arm(FEW[-1], speed))
        slows[speed].append(slow)
        row = [cell.head, str(cell.b), f"{speed * LR:g}", *means, "-" if cell.refused else _bold(_interval(gain))]
        rows.append([*row, _bold(_interval(slow))])
    told = [
        ", ".join(f"{_interval(np.mean(own, axis=0)):+} at {speed * LR:g}" for speed, own in by.items())
        for by in (gains, slows)
    ]
    low, high = FEW
    said = (
        f"By learning rate, the gain of gamma0 {low:g} and {high:g} over `minibatch` is {told[0]}; {low:g} minus "
        f"{high:g} is {told[1]}."
    )
    head = ["pooling", "B", "lr", *(f"{g:g}" for g in (*FEW, MINIBATCH)), "their gain", f"{low:g} minus {high:g}"]
    text = "Mean test AUROC by gamma0, at a fifth, once and 2.5 times the learning rate of the other parts."
    return said, section("Fast and slow encoders", text, table(head, rows))


def _rules(found: Found) -> Part:
    drawn = [task for task in found.design.tasks() if task.draw in found.design.rules]
    cells = {(task.draw, task.job.instances) for task in drawn}
    usual = {cell.b: cell for cell in found.design.usual if cell.pooling == "smoothed-max"}
    rows, differences, gaps = [], defaultdict(list), []
    for rule, b in sorted(cells, key=lambda own: (found.design.rules.index(own[0]), own[1])):
        low, high = (found.test(usual[b], Arm(g), draw=rule) for g in FEW)
        differences[rule].append(low - high)
        rows.append([rule, str(b), f"{low.mean():.3f}", f"{high.mean():.3f}", _bold(_interval(low - high))])
        if rule == "uniform":
            gaps += [found.test(usual[b], Arm(g)) - own for g, own in zip(FEW, (low, high))]
    told = ", ".join(f"`{rule}` {_interval(np.mean(own, axis=0)):+}" for rule, own in differences.items())
    said = f"gamma0 = {FEW[0]:g} minus {FEW[-1]:g} by draw rule, smoothed-max: {told}."
    text = (
        "By the library's own trainer, smoothed-max, without annealing, at equal steps; passes of the score memory "
        "come on top. Which rule is best [the map](regime.md) says. The rows of `uniform` check the loop of this "
        "study, which begins at the same weights and draws the same: its test AUROC minus the library's is "
        f"{_interval(np.mean(gaps, axis=0)):+}, at most {np.abs(gaps).max():.3f} in a training."
    )
    head = ["draw", "B", *(f"gamma0 {g:g}" for g in FEW), f"{FEW[0]:g} minus {FEW[-1]:g}"]
    return said, section("With draw rules", text, table(head, rows))


def _corrections(found: Found) -> Part:
    rows, gains, errors = [], defaultdict(list), []
    for cell in found.design.usual:
        none, plain = found.test(cell, Arm(MINIBATCH)), {g: found.test(cell, Arm(g)) for g in FEW}
        for gamma0, kind in itertools.product(FEW, ("", *CORRECTIONS)):
            arm = Arm(gamma0, 1.0, kind)
            test, (in_s, in_h) = found.test(cell, arm), (found.error(cell, arm, key) for key in ("state", "score"))
            row = [cell.head, str(cell.b), f"{gamma0:g}", _STATES[kind], f"{in_s:.2g}", f"{in_h:.2g}"]
            row += [f"{found.error(cell, arm, 'refused'):.1%}" if kind else "-", f"{test.mean():.3f}"]
            rows.append([*row, _bold(_interval(test - plain[gamma0])) if kind else "-", _against(cell, test, none)])
            if kind:
                gains[kind].append(test - plain[gamma0])
                errors.append(in_h < found.error(cell, Arm(gamma0), "score"))
        for arm in found.design.exact(cell):
            test = found.test(cell, arm)
            gains[arm.correction].append(test - plain[FEW[0]])
            row = [cell.head, str(cell.b), f"{FEW[0]:g}" if arm == EXACT_OLD else "-", _STATES[arm.correction]]
            row += ["-", "-", "-", f"{test.mean():.3f}", _bold(_interval(test - plain[FEW[0]]))]
            rows.append([*row, _against(cell, test, none)])
    means = {kind: _interval(np.mean(own, axis=0)) for kind, own in gains.items()}
    whole, renewed = means.pop(WHOLE), means.pop(RENEWED)
    told = "; ".join(f"{_STATES[kind]}: {mean:+}, {_told(mean)}" for kind, mean in means.items())
    wins = [_STATES[kind] for kind, mean in means.items() if mean.low > 0]
    said = (
        f"A corrected state minus the plain one, at equal cost: {told}. Along the same training its score is nearer to "
        f"the bag's in {sum(errors)} of {len(errors)} cases. By the rule, the library "
        f"{f'should get {wins[0]}' if wins else 'stays without one'}.\n- At any cost, minus the plain one at "
        f"{FEW[0]:g}: with the whole bag's own value for the old part of the state (smoothed-max) {renewed:+}, "
        f"{_told(renewed)}; "
        f"for all of it, so that nothing bounds the weight of an instance drawn, {whole:+}, {_told(whole)}."
    )
    text = (
        "A state is corrected by what the weights have changed: `s <- (1 - gamma0) s + gamma0 g(w) + kappa (g(w) - "
        "g(w'))`, g of the same draw, w' older weights. STORM (Cutkosky and Orabona, NeurIPS 2019) has kappa = 1 - "
        "gamma0; MSVR (Jiang et al., NeurIPS 2022) adds (N - S) / (S (1 - gamma0)) for the N - S bags that a step does "
        "not visit. The draw is encoded twice, 4 B a bag in place of 3 B, so corrected states had 3/4 of the steps. "
        "For weights of the bag's last visit a copy of the encoder is kept for each step of two epochs, which no "
        "library would; nothing corrects more exactly. `left out`: corrections that would have taken the state below "
        "gamma0 g(w). These, and the errors against whole bags (of s, relative to mean squared s; of the bag's score, "
        "squared), are those of states that were all kept along one and the same training, by the plain state at "
        f"gamma0 = {FEW[0]:g} for half the epochs: means over six times, medians over the repeats. The last rows "
        "of a cell encode bags whole in each step to learn their values, and are compared with "
        f"{FEW[0]:g}: averaged with the draw, that value lets no instance weigh more than 1 / gamma0; alone, it lets "
        "one weigh n / B."
    )
    head = ["pooling", "B", "gamma0", "state", "error of s", "of the score", "left out", "test AUROC"]
    return said, section("A corrected state", text, table([*head, "minus plain", "minus minibatch"], rows))


def _against(cell: Cell, test: NDArray[np.float64], none: NDArray[np.float64]) -> str:
    """What a test AUROC adds to `minibatch`, where the library has it."""
    return "-" if cell.refused else _bold(_interval(test - none))


def _design(design: Design) -> list[str]:
    draws = "; ".join(f"B = {b}: {epochs} epochs, {count} witnesses" for b, (epochs, count) in design.draws.items())
    counts = design.counts
    return section(
        "Design",
        [
            f"- Bags of {design.size} 8x8 digits, nines are the witnesses: {counts.train} training and {counts.test} "
            f"test bags, half of each positive. {draws}.",
            f"- SGD {LR:g}, momentum 0.1, 8 positive and 8 negative bags a step; at 1/2 and 3/4 of the epochs the "
            "learning rate falls tenfold, gamma0 (but 1) and eta' by half. Margin 1, one hidden layer of 64.",
            "- gamma0 = 1 is `minibatch`. Attention with it and B = 1, which the library refuses, is in the tables, "
            "and in no gain and no correlation.",
            "- The gain, the bias that should predict it and the rule for the corrected state were fixed before the "
            "run. Witnesses, steps and learning rates were set on repeats 20 to 23, which are not in the tables; at a "
            "learning rate of 1 nothing was learned there. The longer trainings, the whole bag's own value and the "
            "errors along one training were added after the first results.",
            "- Intervals are 95% t intervals over the repeats, paired; bold excludes 0, by chance one time in twenty.",
        ],
    )


def _interval(values: NDArray[np.float64]) -> Estimate:
    return mean_interval(values.tolist(), bounds=(-1.0, 1.0))


def _bold(estimate: Estimate) -> str:
    return f"**{estimate:+}**" if estimate.low > 0 or estimate.high < 0 else f"{estimate:+}"


def _told(estimate: Estimate) -> str:
    return "ahead" if estimate.low > 0 else "behind" if estimate.high < 0 else "not told apart"


def _plot(found: Found, path: Path) -> None:
    """AUROC by gamma0 for each pooling; below, the gain by the bias, and corrected against plain states."""
    design, heads = found.design, list(dict.fromkeys(cell.head for cell in found.design.cells))
    figure = new_figure((11.0, 6.6))
    grid = figure.add_gridspec(2, 1)
    upper, lower = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    for place, (axes, head) in enumerate(zip(upper.subplots(1, len(heads), sharey=True), heads)):
        for style, cell in enumerate(cell for cell in design.cells if cell.head == head):
            means = [found.test(cell, Arm(g)).mean() for g in design.gammas]
            look = {"color": COLORS[style], "ls": DASHES[style], "marker": MARKERS[style], "ms": 4}
            axes.plot(design.gammas, means, label=f"B = {cell.b}", **look)
        axes.set_title(head, loc="left", fontweight="bold", fontsize=10)
        axes.set_xlabel("gamma0 (1: minibatch)", fontsize=9)
        if not place:
            axes.set_ylabel("test AUROC", fontsize=9)
            axes.legend(frameon=False, fontsize=8)
    left, right = lower.subplots(1, 2)
    left.axhline(0, color="#B0B0B0", lw=1)
    for cell in design.cells:
        if not cell.refused:
            bias = np.abs(found.values(cell, Arm(MINIBATCH), _BIASES[_MAIN])).mean()
            mark, color = MARKERS[heads.index(cell.head)], COLORS[list(design.draws).index(cell.b)]
            left.plot([bias], [found.gain(cell).mean()], mark, color=color, ms=6)
    for head, mark in zip(heads, MARKERS):
        left.plot([], [], mark, color="#606060", label=head)
    left.set_xscale("log")
    left.set_xlabel("size of the bias of minibatch's score, end of its training", fontsize=9)
    left.set_ylabel("gain of the state, AUROC", fontsize=9)
    left.legend(frameon=False, fontsize=8, loc="upper right", labelspacing=0.3)
    _plot_corrected(found, right)
    save_figure(figure, path)


def _plot_corrected(found: Found, axes: Axes) -> None:
    """Test AUROC of other states minus that of plain ones: a row a state, a mark a cell and gamma0."""
    axes.axvline(0, color="#B0B0B0", lw=1)
    kinds, few = (*CORRECTIONS, RENEWED, WHOLE), found.design.usual
    arms = [(cell, Arm(gamma0, 1.0, kind)) for cell in few for gamma0 in FEW for kind in CORRECTIONS]
    arms += [(cell, arm) for cell in few for arm in found.design.exact(cell)]
    for cell, arm in arms:
        plain = Arm(FEW[0] if arm == EXACT else arm.gamma0)
        color = COLORS[list(found.design.draws).index(cell.b)]
        fill = color if plain.gamma0 == FEW[0] else "none"
        mark = "D" if cell.pooling == "attention" else "o"
        difference = float((found.test(cell, arm) - found.test(cell, plain)).mean())
        axes.plot([difference], [kinds.index(arm.correction)], mark, color=color, markerfacecolor=fill, alpha=0.8)
    axes.set_yticks(range(len(kinds)), [_STATES[kind].replace(", ", ",\n") for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlabel("test AUROC minus the plain state's", fontsize=9)
