"""The page of the study of regimes: tables and counts, all of it from the results."""

from studies.page import section, table
from studies.regime.advice import advice, at, draws, in_short, rule_name, signed
from studies.regime.design import CONSTANT, EXACT, EXACT_POINT, METHODS, MINIBATCH, WARMUP, Cell, EstimatorRule
from studies.regime.results import Kind, Results
from studies.split_statistics import Estimate

_TALLY = "ahead / behind / not separable"


def body(results: Results, figure: str) -> list[str]:
    """Return the lines of the page below its head."""
    return [
        *in_short(results),
        f"![The best estimator by bag size, witness rate, pooling, B and T]({figure})",
        "",
        "A cell names the estimator with the highest mean test AUROC, that AUROC, the estimators that the repeats "
        "cannot tell from it (after ~; the cell is then pale) and the witnesses of a positive bag; `open` where none "
        "of the four can be told from the best, which need not mean that they are alike; `none shown` where the "
        "interval of every method reaches down to 0.5. Of estimators that are equal in three decimals vrsp is named. "
        f"`point` is exact-point; `vrsp` runs {rule_name(results.rule)} everywhere. To be the best of several "
        "on the same test bags flatters a winner a little; the tables have all of them.",
        "",
        *section("The advice with its numbers", [f"- {sentence}" for sentence in advice(results)]),
        *_design(results),
        *_by_budget(results),
        *_rules(results),
        *_draw_table(results),
        *_losses(results),
        *[line for pooling in results.design.poolings for line in _cells(results, pooling)],
    ]


def _design(results: Results) -> list[str]:
    design, counts = results.design, results.design.counts
    trained = sum(bool(design.steps_of(cell, method)) for cell in results.cells for method in METHODS)
    runs = trained * len(design.lrs) * len(design.repeats)
    sizes = [
        f"n = {size}: " + ", ".join(f"{count} ({100 * count / size:g}%)" for count in design.witness_counts(size))
        for size in design.sizes
    ]
    return [
        "## Design",
        "",
        f"{len(results.cells)} cells: {len(design.poolings)} poolings x bag size n and witnesses of a positive bag, at "
        f"least one ({'; '.join(sizes)}) x B in {_set(design.instances)} x T in {_set(design.steps)}. "
        f"{len(design.repeats)} repeats; all methods of a repeat see the same bags and start from the same weights. "
        f"**{runs} trainings.**",
        "",
        f"- Bags: scikit-learn's 8x8 digits, nines are the witnesses; {counts.train} training, {counts.val} validation "
        f"and {counts.test} test bags, half of each positive, drawn with replacement from disjoint sets of images. "
        "Pixels are centered and scaled as a whole by the training images.",
        f"- Budget of a cell: the cost of T steps of minibatch or vrsp, T x {design.bags} x 3B forward passes of an "
        f"instance (a backward pass counts 2). exact pays 3n a bag where the {design.bags} bags of a step fit a chunk, "
        "else 4n; exact-point pays n + 3B. What buys less than one step is not run and has no AUROC.",
        f"- The learning rate, one of {_set(design.lrs)}, is chosen for each method, cell and repeat on the validation "
        "bags. The set was adjusted once, by training losses of repeats 100 to 102 at 0.02, 0.05, 0.1, 0.5 and 5. Test "
        "bags choose nothing.",
        "- SGD, momentum 0.1, margin 1. After 50% and 75% of the steps the learning rate falls tenfold, and gamma0 and "
        "the dual step size halve.",
        "- gamma0 of vrsp: constant, or a warm-up max(gamma0, 1/k) at a bag's k-th visit. Which rule stands for vrsp "
        "is decided by validation AUROC over all cells.",
        "- Intervals are 95% t intervals over the repeats, paired for differences. With as many of them as there are "
        "rows, about one in twenty excludes zero by chance.",
        "",
    ]


def _by_budget(results: Results) -> list[str]:
    design = results.design
    rows = []
    for size in design.sizes:
        for steps in design.steps:
            where = at(size, steps)
            cells = [cell for cell in results.cells if where(cell)]
            entries = []
            for method in results.estimators:
                missing = sum(not design.steps_of(cell, method) for cell in cells)
                note = f" (no step in {missing} of {len(cells)} cells)" if 0 < missing < len(cells) else ""
                entries.append(_plain(results.mean_area(method, where)) + note)
            rows.append([str(size), str(steps), *entries])
    head = ["n", "T", *[_title(method) for method in results.estimators]]
    return [
        "## By bag size and budget",
        "",
        "Mean test AUROC over cells. Where an estimator cannot take a step in some cells, its mean is over the others, "
        "which have larger budgets, and is not to be compared along the row.",
        "",
        *table(head, rows),
        "",
    ]


def _rules(results: Results) -> list[str]:
    kinds: list[tuple[str, Kind | None]] = [("all", None)]
    kinds += [(pooling, _of_pooling(pooling)) for pooling in results.design.poolings]
    rows = []
    for rule in (*CONSTANT, *WARMUP, MINIBATCH):
        entries = []
        for _, where in kinds:
            val = results.mean_area(rule, where, val=True)
            entries += [f"{val.mean:.4f}" if val else "-", _plain(results.mean_area(rule, where))]
        compared = ["", ""] if rule is MINIBATCH else _against(results, rule, MINIBATCH)
        rows.append([rule.name, *entries, *compared])
    head = ["gamma0", *[f"{name}: {what}" for name, _ in kinds for what in ("validation", "test")]]
    return [
        "## Which rule for gamma0",
        "",
        "AUROC averaged over cells; the last columns compare the test AUROC with that of minibatch, on average and by "
        "number of cells.",
        "",
        *table([*head, "minus minibatch", _TALLY], rows),
        "",
        f"Highest validation AUROC: {rule_name(results.rule)}; of the constants {rule_name(results.constant)}, of the "
        f"warm-ups {rule_name(results.warmup)}.",
        "",
    ]


def _draw_table(results: Results) -> list[str]:
    rules = (results.constant, results.warmup)
    rows = []
    for kind in draws(results):
        cells = [cell for cell in results.cells if kind.where(cell)]
        rows.append(
            [kind.name, str(len(cells)), *[e for r in rules for e in _against(results, r, MINIBATCH, kind.where)]]
        )
    head = ["cells where", "cells"]
    for rule in rules:
        head += [f"{rule.name}, minus minibatch", _TALLY]
    return ["## When does the tracked state help", "", *table(head, rows), ""]


def _losses(results: Results) -> list[str]:
    rule = results.rule
    differences = [(cell, results.difference(rule, MINIBATCH, cell)) for cell in results.cells]
    behind = [f"{_place(cell)} ({signed(d)})" for cell, d in differences if d is not None and d.high < 0]
    lines = [
        "## Where vrsp does not win",
        "",
        f"- Its interval against minibatch lies below zero ({rule_name(rule)}): {'; '.join(behind) or 'in no cell'}.",
    ]
    for method in (EXACT_POINT, EXACT):
        wins, losses, ties = results.counts(rule, method)
        difference = results.mean_difference(rule, method)
        mean = "" if difference is None else f"; on average {signed(difference)}"
        lines.append(
            f"- Against {method.name}, in the {wins + losses + ties} cells where that can take a step: ahead in "
            f"{wins}, behind in {losses}, not separable in {ties}{mean}."
        )
    return [*lines, ""]


def _cells(results: Results, pooling: str) -> list[str]:
    design = results.design
    rules = (results.constant, results.warmup)
    methods = (MINIBATCH, *rules, EXACT_POINT, EXACT)
    rows = []
    for cell in (cell for cell in results.cells if cell.pooling == pooling):
        entries = []
        for method in methods:
            taken = design.steps_of(cell, method)
            note = f" ({taken})" if method in (EXACT_POINT, EXACT) and taken else ""
            entries.append((_plain(results.area(method, cell)) if taken else "no step") + note)
        for rule in rules:
            difference = results.difference(rule, MINIBATCH, cell)
            entries.append("-" if difference is None else signed(difference, bold=True))
        place = [str(cell.size), f"{cell.witnesses} ({100 * cell.rate:g}%)", str(cell.instances), str(cell.steps)]
        rows.append([*place, *entries])
    head = ["n", "witnesses", "B", "T", *[_title(method) for method in methods]]
    head += [f"{rule.name}, minus minibatch" for rule in rules]
    return [
        f"## {pooling.capitalize()}, cell by cell",
        "",
        "Mean test AUROC over the repeats; in brackets the steps of exact-point and exact. A bold difference excludes "
        "zero.",
        "",
        *table(head, rows),
        "",
    ]


def _against(results: Results, method: EstimatorRule, other: EstimatorRule, where: Kind | None = None) -> list[str]:
    difference, tally = results.mean_difference(method, other, where), results.counts(method, other, where)
    return ["-" if difference is None else signed(difference, bold=True), " / ".join(str(count) for count in tally)]


def _of_pooling(pooling: str) -> Kind:
    return lambda cell: cell.pooling == pooling


def _place(cell: Cell) -> str:
    return f"{cell.pooling}, {cell.witnesses} of {cell.size}, B = {cell.instances}, T = {cell.steps}"


def _title(method: EstimatorRule) -> str:
    return f"vrsp, {method.name}" if method.estimator == "vrsp" else method.name


def _plain(area: Estimate | None) -> str:
    return "-" if area is None else f"{area.mean:.3f} ± {max(area.high - area.mean, area.mean - area.low):.3f}"


def _set(values: tuple[float, ...]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"
