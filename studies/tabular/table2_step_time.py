"""Time of the trials of Table 2 with LibAUC's loop: its measured time for a step, times the number of steps."""

import time
from collections.abc import Mapping

import numpy as np

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.methods.store import Row
from midam.train.side import Trial
from studies.engine import Store, settings_hash
from studies.page import duration, section, table
from studies.peers import LibAUCAttention, libauc_folder
from studies.protocol import EPOCHS, paper_config, steps
from studies.splits import paper_splits
from studies.tabular.table2_trials import Plan, select_rows

_METHOD = "midam-printed-att"


def measure_libauc(sets: Mapping[str, Bags], *, store: Store) -> None:
    """Train LibAUC's attention model for one trial on each set without a time in the store, and store the time.

    If LibAUC is not installed, nothing happens.
    """
    if libauc_folder() is None:
        return
    for group in store.missing([Group([_name(name, bags)], [bags]) for name, bags in sets.items()]):
        bags = group.tasks[0]
        split = paper_splits(bags.require_labels(), splits=[0], folds=1)[0]
        # Only one scored bag, so that the time is the time of the training.
        trial = Trial(split.train, split.test[:1], split.seed)
        started = time.perf_counter()
        LibAUCAttention().score(bags, trial)
        seconds = time.perf_counter() - started
        count = steps(paper_config(_METHOD, lr=0.01, epochs=EPOCHS), len(split.train))
        store.keep(group.names, [{"seconds": seconds, "steps": count}])


def time_section(plans: Mapping[float, Plan], sets: Mapping[str, Bags], *, store: Store) -> list[str]:
    """Return the table of times of a step and of all steps, with the total; empty if LibAUC was not measured."""
    lines, ours_total, theirs_total = [], 0.0, 0.0
    for name, bags in sets.items():
        (found,) = store.find([_name(name, bags)])
        rows = _all_rows(plans, name, bags, store)
        if found is None or not rows:
            continue
        own = [row for row in rows if row["method"] == _METHOD]
        count = sum(row["steps"] for row in rows)
        seconds = sum(row["seconds"] for row in rows)
        theirs = found["seconds"] / found["steps"]
        ours_total, theirs_total = ours_total + seconds, theirs_total + theirs * count
        mine = 1e3 * sum(row["seconds"] for row in own) / max(1, sum(row["steps"] for row in own))
        cells = [f"{mine:.2f}" if own else "-", f"{1e3 * theirs:.2f}", str(len(rows)), str(count)]
        lines.append([name, *cells, duration(seconds), duration(theirs * count)])
    if not lines:
        return []
    head = ["set", "MIDAM (att), ms a step", "LibAUC's, ms a step", "trainings", "steps", "ours", "LibAUC's loop"]
    return section(
        "Time",
        "LibAUC 2.0.1's own loop (attention, 4 instances a bag) was timed over one trial on each set. The last two "
        "columns are the time of all trainings above, added up over processes, with the scoring of validation and test "
        "bags after each epoch; and the same number of steps at LibAUC's time a step, without scoring. Its loop draws "
        "4 instances of a bag; most of our methods see whole bags.",
        table(head, lines),
        f"In all: {duration(ours_total)} here, {duration(theirs_total)} with LibAUC's loop, "
        f"{np.divide(theirs_total, ours_total):.1f} times as long.",
    )


def _all_rows(plans: Mapping[float, Plan], name: str, bags: Bags, store: Store) -> list[Row]:
    found = {}
    for plan in plans.values():
        for method in plan.methods:
            for row in select_rows(plan, name, bags, method, store=store):
                found[row["method"], row["lr"], row["margin"], row["split"], row["fold"]] = row
    return list(found.values())


def _name(name: str, bags: Bags) -> Row:
    return {"study": "libauc-time", "set": name, "settings": settings_hash(paper_config(_METHOD, lr=0.01), bags=bags)}
