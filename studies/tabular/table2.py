"""`python -m studies table2`: test AUROC on the five tabular sets, next to the paper's Table 2.

Two protocols, with a page for each. `splits` is the paper's protocol: random 0.9/0.1 splits, 5 folds of the training
part of each, learning rate and epoch chosen on validation bags; 3 splits are the paper's 15 trials, and more splits
show the variation of 15 trials. `cv` (`studies.tabular.table2_cv`) is 5 x 10-fold cross-validation with nothing chosen,
with methods compared in pairs.
"""

import dataclasses
from collections.abc import Mapping

from midam.data.bags import Bags
from midam.errors import ConfigError
from studies.engine import Store
from studies.options import StudyOptions
from studies.page import duration, figure_path, write_page
from studies.paper_tables import METHODS, OURS, SETS
from studies.protocol import EPOCHS, LRS, MARGIN, uses_no_margin
from studies.registry import as_study
from studies.sets import catalog
from studies.splits import FOLDS
from studies.tabular import table2_cv
from studies.tabular.table2_page import (
    Row,
    draw_rows,
    margin_section,
    paired_section,
    paper_section,
    relative_section,
    short_section,
    split_rows,
    verdict_section,
)
from studies.tabular.table2_step_time import measure_libauc, time_section
from studies.tabular.table2_trials import PAPER_SPLITS, Plan, more_section, run_trials, section

NAME = "table2"
PROTOCOLS = ("splits", "cv")
_QUICK, _QUICK_SET = f"{NAME}-quick", SETS[0]
_MARGINS = (0.1, 1.0)  # The paper's margin first
_SHOWS = (
    "Test AUROC of the ten methods of the paper's Table 2 on the five tabular sets, ours beside the paper's: by its "
    "protocol (15 trials on 3 random splits), over more splits with intervals that know that the trials of a split "
    "share their test bags. The paper fixes the margin of DAM and MIDAM at 0.1, which comes first. [Table 2 by "
    "cross-validation](table2-cv.md) has all methods, baselines and other libraries in pairs."
)


def plan(options: StudyOptions) -> Plan:
    """Return the plan of the protocol `splits`."""
    margin = MARGIN if options.margin is None else options.margin
    accelerator = "cuda" if options.device is not None and options.use_cuda() else "cpu"
    if options.smaller:
        return Plan(METHODS, LRS[:2], margin, options.splits or 2, folds=2, epochs=2, accelerator=accelerator)
    return Plan(METHODS, LRS, margin, options.splits or 3, folds=FOLDS, epochs=EPOCHS, accelerator=accelerator)


@as_study(
    "test AUROC on the tabular sets, beside the paper's Table 2",
    takes=("margin", "splits", "protocol", "device"),
    store="table2",
)
def run(options: StudyOptions) -> None:
    """Run a protocol, and write its page from all trials until now."""
    _protocol(options)
    names = (_QUICK_SET,) if options.quick else SETS
    study(options, {name: catalog.load(name) for name in names}, shown={name: catalog.load(name) for name in SETS})


def study(options: StudyOptions, sets: Mapping[str, Bags], *, shown: Mapping[str, Bags] | None = None) -> None:
    """Run a protocol on `sets`; the page shows the stored trials of `shown` (default: the same sets)."""
    shown = sets if shown is None else shown
    if _protocol(options) == "cv":
        table2_cv.study(options, sets, shown=shown)
        return
    # The quick version has a separate store, so that its time is the time of a first run.
    with Store(options.cache, _QUICK if options.quick else NAME) as store:
        for methods in (METHODS, OURS):
            run_trials(dataclasses.replace(plan(options), methods=methods), sets, store=store, options=options)
        if not options.smaller:
            measure_libauc(sets, store=store)
    write(options, shown)


def _protocol(options: StudyOptions) -> str:
    protocol = options.protocol or PROTOCOLS[0]
    if protocol not in PROTOCOLS:
        raise ConfigError(f"Expected the protocol {' or '.join(PROTOCOLS)}, got {protocol!r}; choose one.")
    if protocol == "cv" and any(value is not None for value in (options.margin, options.splits, options.device)):
        raise ConfigError("Expected no --margin, --splits and --device with the protocol cv, got one; leave it out.")
    return protocol


def write(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Write the page from the cached trials of `sets`."""
    with Store(options.cache, NAME) as full, Store(options.cache, _QUICK) as quick:
        store, wanted = full if full.rows else quick, plan(options)
        margins = sorted({wanted.margin, *_MARGINS})
        plans = {margin: dataclasses.replace(wanted, margin=margin) for margin in margins}
        rows = _once({margin: split_rows(plans[margin], sets, store=store) for margin in margins})
        ours = {m: split_rows(dataclasses.replace(plans[m], methods=OURS), sets, store=store) for m in rows}
        body = short_section(rows)
        for margin, found in rows.items():
            body += paper_section([*found, *ours[margin]], margin=margin)
        for margin, found in rows.items():
            others = {other: theirs for other, theirs in rows.items() if other != margin}
            body += verdict_section(found, margin=margin, others=others)
            path = figure_path(options, NAME, f"margin-{margin:g}")
            if draw_rows(path, found):
                body += [f"![Our means, the paper's means and the interval of a 3-split mean]({path.name})", ""]
            body += paired_section(found, margin=margin) + relative_section(found, ours[margin], margin=margin)
        body += margin_section(rows)
        body += time_section(plans, sets, store=store)
        write_page(
            options,
            NAME,
            title="Table 2: the tabular sets",
            shows=_SHOWS,
            seeds="splits are seeded 0, 1, 2, ...; trial (split s, fold f) has the seed 5 s + f for weights and "
            "sampling",
            seconds=store.wall_time(),
            body=body,
            made=[*_commands(rows), *_times(rows, store, quick)],
            store=store,
        )


def _once(rows: Mapping[float, list[Row]]) -> dict[float, list[Row]]:
    """Keep the margins that were run; cross-entropy has no margin, and is shown with the margin of the most splits."""
    kept = {margin: found for margin, found in rows.items() if any(not uses_no_margin(row.method) for row in found)}
    most = max(kept, key=lambda margin: (max(row.splits for row in kept[margin]), len(kept[margin])), default=None)
    return {m: [row for row in found if m == most or not uses_no_margin(row.method)] for m, found in kept.items()}


def _commands(rows: Mapping[float, list[Row]]) -> list[str]:
    """Return the calls that make the page; each call writes it from all trials until then."""
    calls = []
    for margin, found in rows.items():
        splits = max(row.splits for row in found)
        calls.append(StudyOptions(margin=None if margin == MARGIN else margin))
        calls += [dataclasses.replace(calls[-1], splits=splits)] if splits > PAPER_SPLITS else []
    return [f"- The whole page: {', '.join(f'`{call.command(NAME)}`' for call in calls)}"] if len(calls) > 1 else []


def _times(rows: Mapping[float, list[Row]], store: Store, quick: Store) -> list[str]:
    sets = {m: len({row.name for row in found}) for m, found in rows.items()}
    lines = [
        f"- Time of the protocol at margin {m:g}: {duration(store.wall_time(section(m)))}"
        f"{f' (so far: {sets[m]} of {max(sets.values())} sets)' if sets[m] < max(sets.values()) else ''}"
        for m in rows
    ]
    more = "Time of the splits beyond the paper's three, margin"
    for what, seconds in (
        *((f"{more} {m:g}", store.wall_time(more_section(m))) for m in rows),
        *((f"Time of `--quick` at margin {m:g}, {_QUICK_SET} alone", quick.wall_time(section(m))) for m in rows),
    ):
        lines += [f"- {what}: {duration(seconds)}"] if seconds else []
    return lines
