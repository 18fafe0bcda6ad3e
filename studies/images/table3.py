"""`python -m studies table3`: test AUROC on images and volumes, next to the paper's Table 3.

`--size full` is for one GPU, `small` for two cores. `--quick` shows that each row runs. For methods, bags and settings
see `studies.images.design`.

`python -m studies table3-paper` trains rows that read a sample of each bag for the paper's 100 epochs: ten on colon,
nine minutes of an H200 and 16 processes, and six on breast, two minutes of it and an hour of two cores.

`python -m studies table3-mini-batches` runs the rows of mini-batches that `small` leaves out, at its settings, on the
two sets where a row takes minutes. `python -m studies table3-state` runs those of the state there: the library's, the
paper's, and none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from studies.engine import Store
from studies.images.cost import cost_table, measure_seconds, row_costs, row_seconds
from studies.images.design import DESIGNS, MIDAM, SAMPLED, Design, choose_design
from studies.images.sets import ImageSet, load_set
from studies.images.table3_page import body, shows, size_line
from studies.images.trials import Job, make_jobs, run_jobs
from studies.options import StudyOptions
from studies.page import duration, write_page
from studies.paper_tables import OURS
from studies.registry import as_study

NAME = "table3"
REST, LONG, STATE = "table3-mini-batches", "table3-paper", "table3-state"
_LONG_SHOWS = (
    "Test AUROC of the rows of the paper's Table 3 that read a sample of each bag, on colon (1100 image tiles), and of "
    "six of them on breast (58 images), trained as long as in the paper: 100 epochs, and a tenth of them for each "
    "setting that is tried."
)
_REST_SHOWS = (
    "Test AUROC of the rows of mini-batches that [Table 3](table3.md) at the size `small` leaves out, at the settings "
    "of that size, beside the paper's figures: on breast and adrenal, where a row takes a core a few minutes. On colon "
    "it takes several times as long ([what Table 3 cost](table3.md#cost)), and was not run. Each figure of adrenal is "
    "one training."
)
_STATE_SHOWS = (
    "MIDAM with the library's state, which is relative to the step, beside MIDAM with the state that the paper prints, "
    "and mini-batches, which remember nothing, at the settings of [Table 3](table3.md) at the size `small`, five "
    "trainings a row. "
    "Written before the first run: the library's state is ahead, or behind, where an interval by group of a paired "
    "difference excludes 0, and nowhere else."
)
_TITLES = {
    NAME: "Table 3: images and volumes",
    REST: "Table 3: the other rows of mini-batches",
    LONG: "Table 3 with the paper's epochs",
    STATE: "Table 3: the state of the library, of the paper, and none",
}


@as_study("test AUROC on the image sets, beside the paper's Table 3", takes=("size", "device"), store="images")
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    design = choose_design(options)
    options.use_cuda()
    study(options, {name: load_set(name, design, cache=options.cache) for name in design.recipes})


@as_study("rows of Table 3 that sample, for the paper's epochs", takes=("device",), store="images")
def run_long(options: StudyOptions) -> None:
    """Run these rows, and write their page."""
    _run(options, LONG, sampled_of, full=PAPER_EPOCHS)


@as_study("the rows of mini-batches that Table 3 at its small size leaves out", takes=("device",), store="images")
def run_rest(options: StudyOptions) -> None:
    """Run the rows of mini-batches that `small` leaves out, and write their page."""
    _run(options, REST, rest_of, full=rest_of(DESIGNS["small"]))


@as_study("rows of Table 3 with the state of the library, of the paper, and none", takes=("device",), store="images")
def run_state(options: StudyOptions) -> None:
    """Run the rows with and without a state, and write their page."""
    _run(options, STATE, state_of, full=state_of(DESIGNS["small"]))


def _run(options: StudyOptions, name: str, part_of: Callable[[Design], Design], *, full: Design) -> None:
    """Run a part of Table 3 and write its page: a part of the quick design if that is asked for, or the `full` one."""
    design = part_of(choose_design(options)) if options.quick or options.smaller else full
    options.use_cuda()
    study(
        options, {key: load_set(key, design, cache=options.cache) for key in design.recipes}, design=design, name=name
    )


def sampled_of(design: Design, **others: Any) -> Design:
    """Return a design with only rows that read a sample of each bag, and `others` in its recipes.

    On breast, where a training is long, these are the rows of the mean, and those of smoothed-max and attention with
    the AUC objectives.

    Examples
    --------
    >>> [len(recipe.methods) for recipe in sampled_of(DESIGNS["small"]).recipes.values()]
    [10, 6]
    """
    methods = {"colon": (*SAMPLED, *MIDAM), "breast": ("ce-mb-mean", "dam-mb-mean", "dam-mb-smx", "dam-mb-att", *MIDAM)}
    recipes = {
        name: replace(design.recipes[name], methods=own, less=(), repeats=1, **others) for name, own in methods.items()
    }
    return replace(design, recipes=recipes)


PAPER_EPOCHS = replace(sampled_of(DESIGNS["full"], epochs=100, score_every=10), name="paper")


def rest_of(design: Design) -> Design:
    """Return a design with only the rows of mini-batches that `small` leaves out, on breast and adrenal.

    Examples
    --------
    >>> rest_of(DESIGNS["small"]).recipes["breast"].methods
    ('ce-mb-mean', 'dam-mb-mean', 'ce-mb-max', 'dam-mb-max', 'ce-mb-smx', 'ce-mb-att')
    """
    rest = [name for name in SAMPLED if name not in DESIGNS["small"].recipes["breast"].methods]
    return _rows_of(design, ("breast", "adrenal"), rest)


def state_of(design: Design) -> Design:
    """Return a design with only MIDAM by both states and the mini-batches beside it.

    Examples
    --------
    >>> state_of(DESIGNS["small"]).recipes["adrenal"].methods[2:]
    ('midam-printed-smx', 'midam-printed-att', 'midam-smx', 'midam-att')
    """
    return _rows_of(design, tuple(design.recipes), ("dam-mb-smx", "dam-mb-att", *MIDAM, *OURS), folds=5)


def _rows_of(design: Design, sets: Sequence[str], methods: Sequence[str], **others: Any) -> Design:
    """Return a design with only these methods, on these sets."""
    rows = tuple(methods)
    recipes = {name: replace(design.recipes[name], methods=rows, baselines=(), less=(), **others) for name in sets}
    return replace(design, recipes=recipes)


def study(
    options: StudyOptions, sets: Mapping[str, ImageSet], *, design: Design | None = None, name: str = NAME
) -> None:
    """Run the study on these sets: print its expected cost first, and keep finished trials."""
    design, cuda = design or choose_design(options), options.use_cuda()
    jobs = [job for key, found in sets.items() for job in make_jobs(key, found, design.recipes[key], cuda=cuda)]
    section = f"{name}, {design.name}"
    expected = _announce(jobs, section, options, cuda=cuda)
    with Store(options.cache, "images") as store:
        run_jobs(_longest_first(jobs, expected), store=store, options=options, section=section)
        rows = store.find([job.trial for job in jobs])
        write_page(
            options,
            name,
            title=_TITLES[name],
            shows=shows(design, {REST: _REST_SHOWS, LONG: _LONG_SHOWS, STATE: _STATE_SHOWS}.get(name)),
            seeds="repeats of the cross-validation are seeded 0, 1, ...; trial (repeat r, fold f) has the seed 5 r + f "
            "for weights and sampling",
            seconds=store.wall_time(section),
            store=store,
            body=body(design, sets, jobs, rows, expected=expected),
            made=[size_line(design, jobs, rows)],
        )


def _announce(jobs: list[Job], section: str, options: StudyOptions, *, cuda: bool) -> dict[tuple[str, str], float]:
    """Measure the speed of this device, and show the expected cost of each row before the run."""
    costs = row_costs(jobs)
    seconds = measure_seconds(costs, cuda=cuda)
    expected = {key: row_seconds(cost, seconds) for key, cost in costs.items()}
    if options.console is not None:
        options.console.print(f"{section}: expected time of each row on one process, before it is run")
        for line in cost_table(costs, jobs, expected=expected):
            options.console.print(line, markup=False, highlight=False, soft_wrap=True)
        total = sum(expected.values())
        shared = f", {duration(total / options.jobs)} on {options.jobs} idle cores" if options.jobs > 1 else ""
        options.console.print(f"in all {duration(total)} on one core{shared}.", highlight=False)
    return expected


def _longest_first(jobs: list[Job], expected: Mapping[tuple[str, str], float]) -> list[Job]:
    # So that no process has a long trial at the end.
    number = {key: sum((job.name, job.method) == key for job in jobs) for key in expected}
    return sorted(
        jobs, key=lambda job: -expected.get((job.name, job.method), 0.0) / number.get((job.name, job.method), 1)
    )
