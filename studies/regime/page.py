"""The page of the map: its answer and its tables, all of it from the results."""

import itertools
from collections.abc import Sequence

from midam.settings import Settings
from studies.page import section, table
from studies.regime.design import (
    CEILING,
    DRAWN,
    EXACT,
    MATCHED,
    MINIBATCH,
    RULES,
    TOP,
    TOP_VRSP,
    VRSP,
    Cell,
    Rule,
)
from studies.regime.results import SATURATED, Kind, Results, Where
from studies.split_statistics import Estimate

_TALLY = "ahead / behind / not separable"
_FREQUENT = 0.01
_NO_LOSS = -0.01
_KINDS: tuple[Kind, ...] = ("informative", "saturated", "at chance")


def body(results: Results, figure: str) -> list[str]:
    """Return the lines of the page below its head."""
    return [
        *_in_short(results),
        f"![Test AUROC of each rule, by bag size, witnesses and B]({figure})",
        "",
        "A box is a cell: one bar a rule, from an AUROC of 0.5 on, mean over the repeats; the line across is the "
        "ceiling, whole bags without a budget. Gray boxes are at chance for all rules that draw, white ones "
        "saturated.",
        "",
        *_state(results),
        *_draws(results),
        *_frequent(results),
        *_ceiling(results),
        *_options(results),
        *_design(results),
        *[line for pooling in _poolings(results) for line in _cells(results, pooling)],
    ]


def verdict(difference: Estimate) -> str:
    """What a difference says.

    Examples
    --------
    >>> verdict(Estimate(0.1, 0.05, 0.15)), verdict(Estimate(0.0, -0.005, 0.005)), verdict(Estimate(0.0, -0.1, 0.1))
    ('a gain', 'no loss', 'open')
    """
    if difference.low > 0:
        return "a gain"
    if difference.high < 0:
        return "a loss"
    return "no loss" if difference.low > _NO_LOSS else "open"


def _in_short(results: Results) -> list[str]:
    kinds = [results.kind(cell) for cell in results.cells]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in _KINDS)
    rows = []
    for pooling in _poolings(results):
        cells = results.informative(_of(pooling))
        best = results.best(cells)
        if best is None:
            continue
        area, gain = results.mean_area(best, cells), results.mean_difference(best, MINIBATCH, cells)
        rows.append(
            [
                pooling,
                str(len(cells)),
                best.name,
                _plain(area),
                _signed(gain),
                _signed(results.mean_difference(best, EXACT, cells)),
            ]
        )
    head = ["pooling", "informative cells", "best by validation", "its test AUROC", "minus minibatch", "minus exact"]
    return [
        f"**In short.** {len(results.cells)} cells: {counted}. Averages are over informative cells; a difference is "
        f"paired over {len(results.design.repeats)} repeats. {_region(results)} {_loss(results)}",
        "",
        *table(head, rows),
        "",
        *_all_cells(results),
        "",
    ]


def _all_cells(results: Results) -> list[str]:
    """Differences to minibatch that no outcome chose the cells of, nor left untuned to a pooling."""
    lines = []
    for pooling in _poolings(results):
        cells = [cell for cell in results.cells if cell.pooling == pooling]
        told = [
            f"`{rule.name}` {difference:+} (over the informative ones {_signed(known)}), minus the better of its two "
            f"settings in each cell {better:+}"
            for rule in (VRSP, TOP)
            for difference in [results.mean_difference(rule, MINIBATCH, cells)]
            for known in [results.mean_difference(rule, MINIBATCH, results.informative(_of(pooling)))]
            for better in [results.mean_over_better(rule, (MINIBATCH, MATCHED), cells)]
            if difference is not None and better is not None
        ]
        lines += [f"- {pooling.capitalize()}, minus `minibatch` over all cells: {'; '.join(told)}."] if told else []
    return [
        "Informative cells were told by their outcome, and `minibatch` was not tuned to each cell. Over all cells, "
        "saturated ones and those at chance too:",
        "",
        *lines,
        "",
        "The tracked state has no floor here, as in the paper. The library's default floor of 0.1 changes attention "
        f"alone: for it `vrsp` here is not the default. B = {Settings().training.num_instances}, the library's "
        "default, is not on the map.",
    ]


def _region(results: Results) -> str:
    """Where a tracked state is ahead of both minibatch and whole bags."""
    parts = []
    for pooling in _poolings(results):
        own = [cell for cell in results.cells if cell.pooling == pooling]
        ahead = [cell for cell in own if results.tracked_ahead(cell)]
        by_b = {cell.instances: [c for c in ahead if c.instances == cell.instances] for cell in own}
        counted = ", ".join(
            f"{len(found)} of {sum(c.instances == b for c in own)} at B = {b}" for b, found in sorted(by_b.items())
        )
        parts.append(f"with {pooling} in {len(ahead)} of {len(own)} cells ({counted})")
    return (
        "A tracked state, alone or with a draw rule, is ahead of both `minibatch` and `exact`: "
        + "; ".join(parts)
        + "."
    )


def _loss(results: Results) -> str:
    cells = [cell for cell in results.cells if cell.rate >= _FREQUENT]
    found = []
    for rule in (VRSP, TOP, TOP_VRSP):
        difference = results.mean_difference(rule, MINIBATCH, cells)
        if difference is not None:
            found.append(f"`{rule.name}` {difference:+} ({verdict(difference)})")
    return (
        f"At {_FREQUENT:.0%} witnesses and above, over all {len(cells)} cells, minus `minibatch`: {', '.join(found)}."
    )


def _state(results: Results) -> list[str]:
    pairs = ((VRSP, MINIBATCH), (VRSP, MATCHED), (VRSP, EXACT), (TOP_VRSP, TOP), (TOP_VRSP, MINIBATCH))
    rows = []
    for pooling in _poolings(results):
        for instances in sorted({cell.instances for cell in results.cells}):
            cells = results.informative(lambda c, p=pooling, b=instances: (c.pooling, c.instances) == (p, b))  # type: ignore[misc]
            if cells:
                entries = [entry for one, other in pairs for entry in _against(results, one, other, cells)]
                rows.append([pooling, str(instances), str(len(cells)), *entries])
    head = ["pooling", "B", "cells"]
    for one, other in pairs:
        head += [f"{one.name} minus {other.name}", _TALLY]
    ahead = [(cell, results.tracked_ahead(cell)) for cell in results.cells]
    named = [f"- {_place(cell)}: {'; '.join(rule.name for rule in rules)}" for cell, rules in ahead if rules]
    return [
        *section(
            "When does the tracked state help",
            "Means over informative cells. `minibatch, as vrsp` is `minibatch` with the settings that were chosen for "
            "`vrsp`: the difference to it is the tracked state alone.",
            table(head, rows),
        ),
        "Cells in which a rule with a tracked state is ahead of `minibatch`, with either settings, and of `exact` at "
        "equal cost, each interval above 0 (of `exact` alone where attention with B = 1 has no `minibatch`):",
        "",
        *(named or ["- none"]),
        "",
    ]


def _draws(results: Results) -> list[str]:
    bounds = (0.0, 0.003, 0.01, 1.0)
    rows = []
    for pooling in _poolings(results):
        for low, high in itertools.pairwise(bounds):
            cells = results.informative(_between(pooling, low, high))
            if cells:
                entries = [_plain(results.mean_area(rule, cells)) for rule in (*DRAWN, EXACT)]
                compared = [_signed(results.mean_difference(rule, MINIBATCH, cells)) for rule in (TOP, TOP_VRSP)]
                rows.append([pooling, f"{100 * low:g}% to {100 * high:g}%", str(len(cells)), *entries, *compared])
    head = ["pooling", "witnesses", "cells", *[rule.name for rule in (*DRAWN, EXACT)]]
    head += [f"{rule.name}, minus minibatch" for rule in (TOP, TOP_VRSP)]
    return section(
        "Which draw",
        "Test AUROC, mean over the informative cells in which a rule runs; the lower bound of witnesses is in, the "
        "upper out.",
        table(head, rows),
    )


def _frequent(results: Results) -> list[str]:
    rows = []
    for pooling in _poolings(results):
        cells = [cell for cell in results.cells if cell.pooling == pooling and cell.rate >= _FREQUENT]
        for rule in (VRSP, TOP, TOP_VRSP):
            difference = results.mean_difference(rule, MINIBATCH, cells)
            if difference is not None:
                tally = results.counts(rule, MINIBATCH, cells)
                rows.append([pooling, rule.name, _signed(difference), verdict(difference), " / ".join(map(str, tally))])
    return section(
        f"At {_FREQUENT:.0%} witnesses and above",
        f"Over all such cells, saturated ones too. `no loss`: the lower bound lies above {_NO_LOSS:g}.",
        table(["pooling", "rule", "minus minibatch", "verdict", _TALLY], rows),
    )


def _ceiling(results: Results) -> list[str]:
    rows = []
    for cell, rule, difference, share in results.below_ceiling():
        top = results.area(CEILING, cell)
        rows.append([_place(cell), _plain(top), rule.name, _signed(difference), f"{100 * share:.1f}%"])
    return section(
        "Against whole bags without a budget",
        f"Whole bags of at most {results.design.ceiling} instances, two a step, for {results.design.ceiling_epochs} "
        "epochs, wherever that is above 0.9; beside it the rule that is best by validation in the cell, and the share "
        "of the ceiling's cost that it had.",
        table(["cell", "ceiling", "rule", "minus the ceiling", "cost"], rows) if rows else "None is above 0.9.",
    )


def _options(results: Results) -> list[str]:
    names = [rule for rule in RULES if rule.options and rule != CEILING]
    rows = [[rule.name, *[results.chosen[rule.name, pooling].name for pooling in _poolings(results)]] for rule in names]
    repeats = results.design.choice_repeats
    places = [f"{cell.witnesses} of {cell.size}, B = {cell.instances}" for cell in results.design.choice_cells]
    where = "; ".join(dict.fromkeys(places))
    return section(
        "Settings",
        "Each rule was given the option with the highest mean validation AUROC on repeats "
        f"{', '.join(map(str, repeats))}, which are not in the map ({where}).",
        table(["rule", *_poolings(results)], rows),
    )


def _design(results: Results) -> list[str]:
    design, counts = results.design, results.design.counts
    blocks = [
        f"- n = {block.size}, {', '.join(f'{count} ({100 * count / block.size:g}%)' for count in block.witnesses)} "
        f"witnesses, {', '.join(f'B = {b} (T = {t})' for b, t in block.budgets)}"
        for block in design.blocks
    ]
    return section(
        "Design",
        blocks,
        [
            f"- Bags: scikit-learn's 8x8 digits, nines are the witnesses; {counts.train} training, {counts.val} "
            f"validation and {counts.test} test bags, half of each positive, drawn with replacement from disjoint sets "
            "of images. So an image stands in many bags, and one that never stands in a negative bag is a nine: a rule "
            "that asks for nothing else could find the nines too, and none was run.",
            "- Budget of a cell: T steps of 16 bags of B instances, T x 16 x 3B forward passes of an instance (a "
            "backward pass counts 2). Rules that remember pay their passes over all bags from it: at most 0.1 of the "
            "cost of their steps with bags of up to 500, 0.8 with larger ones. `exact` pays 3n a bag; what does not "
            "buy one epoch is not run.",
            "- `top` is trained with `--anneal 0.7`. gamma0 is 0.9 where an option says nothing. Margin 1, one hidden "
            "layer of 64.",
            f"- A cell is saturated where each rule that draws has a mean test AUROC of at least {SATURATED}, and at "
            "chance where no such rule's interval lies above 0.5. This was fixed before the first run; "
            f"`{MATCHED.name}` was added after it.",
            "- Intervals are 95% t intervals over the repeats, paired for differences. With as many of them as "
            "there are rows, about one in twenty excludes zero by chance.",
        ],
    )


def _cells(results: Results, pooling: str) -> list[str]:
    rows = []
    for cell in results.cells:
        if cell.pooling == pooling:
            place = [str(cell.size), f"{cell.witnesses} ({100 * cell.rate:g}%)", str(cell.instances)]
            entries = [_plain(results.area(rule, cell)) for rule in RULES]
            rows.append(
                [*place, results.kind(cell), *entries, _signed(results.difference(VRSP, MINIBATCH, cell), bold=True)]
            )
    head = ["n", "witnesses", "B", "cell", *[rule.name for rule in RULES], "vrsp minus minibatch"]
    return section(
        f"{pooling.capitalize()}, cell by cell",
        "Mean test AUROC over the repeats; a bold difference excludes zero.",
        table(head, rows),
    )


def _poolings(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.pooling for cell in results.cells))


def _of(pooling: str) -> Where:
    return lambda cell: cell.pooling == pooling


def _between(pooling: str, low: float, high: float) -> Where:
    return lambda cell: cell.pooling == pooling and low <= cell.rate < high


def _against(results: Results, rule: Rule, other: Rule, cells: Sequence[Cell]) -> list[str]:
    tally = results.counts(rule, other, list(cells))
    return [_signed(results.mean_difference(rule, other, list(cells)), bold=True), " / ".join(map(str, tally))]


def _signed(difference: Estimate | None, *, bold: bool = False) -> str:
    if difference is None:
        return "-"
    mark = "**" if bold and (difference.low > 0 or difference.high < 0) else ""
    return f"{mark}{difference:+}{mark}"


def _place(cell: Cell) -> str:
    return f"{cell.pooling}, {cell.witnesses} of {cell.size}, B = {cell.instances}"


def _plain(area: Estimate | None) -> str:
    return "-" if area is None else f"{area.mean:.3f} ± {max(area.high - area.mean, area.mean - area.low):.3f}"
