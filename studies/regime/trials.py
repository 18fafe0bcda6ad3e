"""The trials of the map: how they are trained, what they leave behind, and the choice among a rule's options."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.data.bags import Bags
from midam.evaluate.ranking import auroc
from midam.train.trials import Trial, train_trials
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.regime.bags import PIXELS, Counts, nine_bags
from studies.regime.design import CEILING, MATCHED, RULES, VRSP, Cell, Design, Option, Rule

SECTION = "regime"
_VALUES = 2**29  # of the bags that a group holds; neighboring groups share them
# By rule and pooling.
Chosen = dict[tuple[str, str], Option]


@dataclass(frozen=True)
class Training:
    """What is trained together: a rule with an option, on the bags of each number of witnesses and repeat."""

    design: Design
    cell: Cell  # of any number of witnesses
    rule: Rule
    option: Option
    sets: tuple[tuple[int, int], ...]  # witnesses and repeat


def run_trials(design: Design, *, store: Store, options: StudyOptions) -> Chosen:
    """Compute the trials of a design that the store does not hold; returns the option that each rule was given."""
    groups = wanted_groups(design, design.choice_cells, design.choice_repeats, _all_options)
    complete(groups, _train, store=store, options=options, section=SECTION)
    chosen = choose(design, store)
    groups = wanted_groups(design, design.cells, design.repeats, lambda rule, pooling: (chosen[rule.name, pooling],))
    complete(groups, _train, store=store, options=options, section=SECTION)
    return chosen


def choose(design: Design, store: Store) -> Chosen:
    """Return the option of each rule and pooling with the highest mean validation AUROC, the first of equals.

    A training that diverged counts as chance.
    """
    chosen: Chosen = {}
    for pooling in dict.fromkeys(cell.pooling for cell in design.cells):
        cells = [cell for cell in design.choice_cells if cell.pooling == pooling]
        for rule in RULES:
            if rule == MATCHED:
                continue
            means = []
            for option in rule.options:
                found = [
                    outcomes(design, store, cell, rule, option, repeats=design.choice_repeats)[0] for cell in cells
                ]
                means.append(float(np.nan_to_num(np.concatenate(found), nan=0.5).mean()) if found else 0.5)
            chosen[rule.name, pooling] = rule.options[int(np.argmax(means))]
        chosen[MATCHED.name, pooling] = chosen[VRSP.name, pooling]
    return chosen


def wanted_groups(
    design: Design,
    cells: Iterable[Cell],
    repeats: Sequence[int],
    options: Callable[[Rule, str], Sequence[Option]],
) -> list[Group[Training]]:
    """Return what is to be trained, cells with the same bags one after the other, the smallest bags first."""
    sets: dict[Cell, list[tuple[int, int]]] = {}
    for cell in cells:
        sets.setdefault(replace(cell, witnesses=0), []).extend((cell.witnesses, repeat) for repeat in repeats)
    parts = []
    for cell, of in sets.items():
        at_once = max(1, _VALUES // (design.counts.total * cell.size * PIXELS))
        parts += [(cell, tuple(of[low : low + at_once])) for low in range(0, len(of), at_once)]
    groups = {}
    for cell, part in sorted(parts, key=lambda own: (own[0].size, own[1])):
        for rule in RULES:
            for option in options(rule, cell.pooling) if design.runs(cell, rule) else ():
                names = [_name(design, cell, rule, option, witnesses=w, repeat=repeat) for w, repeat in part]
                # Of budgets that buy as many whole bags, one training serves all.
                groups[str(names)] = Group(names, [Training(design, cell, rule, option, part)])
    return list(groups.values())


def outcomes(
    design: Design, store: Store, cell: Cell, rule: Rule, option: Option, *, repeats: Sequence[int]
) -> NDArray[np.float64]:
    """Return validation and test AUROC [2, repeats] of a cell; NaN where none was trained, or a training diverged."""
    found = np.full((2, len(repeats)), np.nan)
    if design.runs(cell, rule):
        rows = store.find(
            [_name(design, cell, rule, option, witnesses=cell.witnesses, repeat=repeat) for repeat in repeats]
        )
        for place, row in enumerate(rows):
            if row is not None and row["val"] is not None:
                found[:, place] = row["val"], row["test"]
    return found


def _train(training: Training) -> list[Row]:
    design, counts = training.design, training.design.counts
    config = design.config(training.cell, training.rule, training.option)
    bags = _bags(training.cell.size, training.sets, counts)
    labels, trials = bags.require_labels(), []
    for place, (_, repeat) in enumerate(training.sets):
        train, val, test = (counts.positions(split, place=place) for split in ("train", "val", "test"))
        trials.append(Trial(train, np.concatenate([val, test]), repeat))
    rows = []
    for trial, result in zip(trials, train_trials(config, bags, trials)):
        y, scores = labels[trial.score], result.scores[-1]
        finite = bool(np.isfinite(scores).all())
        own = [
            auroc(y[part], scores[part]) if finite else None for part in (slice(counts.val), slice(counts.val, None))
        ]
        rows.append({"val": own[0], "test": own[1], "seconds": result.seconds})
    return rows


@lru_cache(maxsize=1)
def _bags(size: int, sets: tuple[tuple[int, int], ...], counts: Counts) -> Bags:
    return nine_bags(size, sets=sets, counts=counts)


def _all_options(rule: Rule, pooling: str) -> Sequence[Option]:  # noqa: ARG001
    return () if rule == CEILING else rule.options


def _name(design: Design, cell: Cell, rule: Rule, option: Option, *, witnesses: int, repeat: int) -> Row:
    counts = design.counts
    return trial_name(
        SECTION,
        pooling=cell.pooling,
        size=cell.size,
        witnesses=witnesses,
        instances=None if rule.whole else cell.instances,
        epochs=design.epochs(cell, rule),
        rule=rule.name,
        option=option.name,
        repeat=repeat,
        bags=[counts.train, counts.val, counts.test],
        settings=_settings(design, cell, rule, option),
    )


# A page asks for the same settings once a repeat.
@lru_cache(maxsize=4096)
def _settings(design: Design, cell: Cell, rule: Rule, option: Option) -> str:
    return settings_hash(design.config(cell, rule, option))
