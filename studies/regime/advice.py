"""The advice of the study of regimes: the answer in plain words, and sentences whose every number is computed."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from studies.page import table
from studies.regime.design import CONSTANT, EXACT, EXACT_POINT, MINIBATCH, WARMUP, Cell, EstimatorRule
from studies.regime.results import Kind, Results
from studies.split_statistics import Estimate

# Bounds of the witnesses that a draw of B instances of a positive bag is expected to hold.
_FEW, _MANY = 0.1, 1.0
_RARE = 0.01
_BUDGETS: tuple[tuple[Literal["steps", "instances"], str], ...] = (
    ("steps", "steps add"),
    ("instances", "instances a draw add"),
)
# What the difference of vrsp to another estimator says, by its verdict.
_WORDS = {
    MINIBATCH.name: {
        "a gain": "Take `vrsp`, the default: on average it is ahead of `minibatch`. They differ in {told} of {cells} "
        "cells.",
        "a loss": "Take `minibatch`: on average it is ahead of `vrsp`. They differ in {told} of {cells} cells.",
        "no difference found": "Keep `vrsp`, the default, or take `minibatch`: on average they cannot be told apart. "
        "They differ in {told} of {cells} cells.",
    },
    EXACT_POINT.name: {
        "a gain": "At equal cost `vrsp` is ahead of `exact-point`.",
        "a loss": "At equal cost `exact-point` is ahead of `vrsp`.",
        "no difference found": "At equal cost `exact-point` cannot be told from `vrsp`.",
    },
    EXACT.name: {
        "a gain": "It is ahead of `exact`.",
        "a loss": "`exact` is ahead of it.",
        "no difference found": "`exact` cannot be told from it.",
    },
}


class NamedKind(NamedTuple):
    """A kind of cells and what it is called."""

    name: str
    where: Kind


def in_short(results: Results) -> list[str]:
    """Return the answer: a paragraph without figures of AUROC, and a small table that has them."""
    sentences, rows = [], []
    for other in (MINIBATCH, EXACT_POINT, EXACT):
        difference, tally = results.mean_difference(results.rule, other), results.counts(results.rule, other)
        if difference is not None:
            sentences.append(_WORDS[other.name][_verdict(difference)].format(told=sum(tally[:2]), cells=sum(tally)))
            rows.append([f"`vrsp` minus `{other.name}`, at equal cost", signed(difference), _verdict(difference)])
    for field, text in _BUDGETS:
        found = results.mean_gain(results.rule, field)
        if found is not None:
            rows.append([f"{found[0]:g} times the {text.removesuffix(' add')}", signed(found[1]), _verdict(found[1])])
    scarce = [winner for cell in results.cells if cell.rate < _RARE for winner in [results.winner(cell)]]
    if scarce:
        learned = sum(winner is not None and winner.learns for winner in scarce)
        sentences.append(
            f"Where fewer than {100 * _RARE:g}% of a positive bag's instances are witnesses, expect little: "
            f"{learned} of {len(scarce)} such cells rose above chance."
        )
    sentences.append(f"For `vrsp`, {rule_name(results.rule)} has the highest validation AUROC.")
    return [
        " ".join(["**In short.**", *sentences]),
        "",
        *table(["what", "test AUROC, mean over cells [95%]", "verdict"], rows),
        "",
    ]


def advice(results: Results) -> list[str]:
    """Return the advice with its numbers, a sentence an entry, every number computed."""
    rule = results.rule
    sentences = [*_of_sizes(results)]
    for kind in draws(results):
        difference = results.mean_difference(rule, MINIBATCH, kind.where)
        if difference is not None:
            sentences.append(
                f"Where {kind.name}, vrsp minus minibatch is {signed(difference)} in test AUROC: "
                f"{_verdict(difference)}."
            )
    gains = [(text, results.mean_gain(rule, field)) for field, text in _BUDGETS]
    added = [f"{found[0]:g} times the {text} {signed(found[1])}" for text, found in gains if found is not None]
    if added:
        sentences.append(f"All else equal, {' and '.join(added)} of test AUROC to vrsp, mean over cells.")
    winners = [results.winner(cell) for cell in results.cells]
    unlearned = sum(winner is None or not winner.learns for winner in winners)
    next_best = results.best_rule([other for other in (*CONSTANT, *WARMUP) if other != rule])
    lead = results.mean_difference(rule, next_best, val=True)
    sentences.append(
        f"For vrsp take {rule_name(rule)}: of the rules tried it has the highest validation AUROC over all cells"
        f"{f' (over {rule_name(next_best)} {signed(lead)}, {_verdict(lead)})' if lead is not None else ''}."
    )
    if unlearned:
        sentences.append(
            f"In {unlearned} of {len(winners)} cells no method is shown above chance by {len(results.design.repeats)} "
            f"repeats; {_unlearned(results)}"
        )
    return sentences


def _unlearned(results: Results) -> str:
    """What larger budgets did in these cells: more of them learn, or not."""
    cells = [(cell, results.winner(cell)) for cell in results.cells]
    shares = {
        (steps, instances): [
            winner is not None and winner.learns
            for cell, winner in cells
            if (cell.steps, cell.instances) == (steps, instances)
        ]
        for steps in results.design.steps
        for instances in results.design.instances
    }
    counted = [f"{sum(of)} of {len(of)} with T = {t} and B = {b}" for (t, b), of in shares.items()]
    rarest = min(cell.rate for cell in results.cells)
    scarce = [w is not None and w.learns for c, w in cells if c.rate < _RARE]
    rare = (
        f"of {len(scarce)} cells with less than {100 * _RARE:g}% witnesses (the least {100 * rarest:g}%), {sum(scarce)}"
    )
    return f"above chance were {'; '.join(counted)}{f'; {rare}' if scarce else ''}."


def _of_sizes(results: Results) -> Iterator[str]:
    for size in results.design.sizes:
        parts = []
        for steps in results.design.steps:
            ranked = _ranked(results, size, steps)
            if not ranked:
                continue
            best, area = ranked[0]
            take: str = best.estimator
            text = f"mean test AUROC {area.mean:.3f}"
            if len(ranked) > 1:
                second = ranked[1][0]
                gain = results.mean_difference(best, second, at(size, steps))
                if gain is not None:
                    take += "" if gain.low > 0 else f" or {second.estimator}"
                    text += f"; over {second.estimator} {signed(gain)}, {_verdict(gain)}"
            parts.append(f"{take} with the budget of {steps} steps ({text})")
        if parts:
            yield f"For bags of {size} take {'; '.join(parts)}."


def _ranked(results: Results, size: int, steps: int) -> list[tuple[EstimatorRule, Estimate]]:
    """Estimators that can take a step in every cell of a size and T, by their mean test AUROC."""
    where = at(size, steps)
    cells = [cell for cell in results.cells if where(cell)]
    able = [m for m in results.estimators if all(results.design.steps_of(cell, m) for cell in cells)]
    areas = [(method, results.mean_area(method, where)) for method in able]
    return sorted(((m, area) for m, area in areas if area is not None), key=lambda pair: -pair[1].mean)


def draws(results: Results) -> list[NamedKind]:
    """Kinds of cells, by the witnesses that a draw of B instances is expected to hold; those that have cells."""

    def expected(cell: Cell) -> float:
        return cell.instances * cell.rate

    kinds = [
        NamedKind(f"a draw of B holds less than {_FEW:g} witnesses on average", lambda cell: expected(cell) < _FEW),
        NamedKind(f"a draw of B holds {_FEW:g} to {_MANY:g}", lambda cell: _FEW <= expected(cell) < _MANY),
        NamedKind(f"a draw of B holds {_MANY:g} or more", lambda cell: expected(cell) >= _MANY),
    ]
    return [kind for kind in kinds if any(kind.where(cell) for cell in results.cells)]


def at(size: int, steps: int) -> Kind:
    """Return the kind of the cells of a bag size and T."""
    return lambda cell: (cell.size, cell.steps) == (size, steps)


def rule_name(method: EstimatorRule) -> str:
    """Return a rule of vrsp in words.

    Examples
    --------
    >>> rules = EstimatorRule("constant 0.5", "vrsp", 0.5), EstimatorRule("warm-up 0.1", "vrsp", 0.1, "warmup")
    >>> rule_name(rules[0]), rule_name(rules[1])
    ('constant gamma0 = 0.5', 'gamma0 = max(0.1, 1/k)')
    """
    kind, _, rate = method.name.partition(" ")
    return f"constant gamma0 = {rate}" if kind == "constant" else f"gamma0 = max({rate}, 1/k)"


def signed(difference: Estimate, *, bold: bool = False) -> str:
    """Return a difference with its interval; bold, if asked for, where that excludes zero."""
    text = f"{difference:+}"
    return f"**{text}**" if bold and (difference.low > 0 or difference.high < 0) else text


def _verdict(difference: Estimate) -> str:
    if difference.low > 0:
        return "a gain"
    return "a loss" if difference.high < 0 else "no difference found"
