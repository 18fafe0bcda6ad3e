"""`python -m studies table3`: test AUROC on images and volumes, beside the paper's Table 3.

`--size full` is made for one GPU, `small` for two cores; `paper` has the paper's 100 epochs throughout. `--quick` shows
that each row runs. What is measured, on which bags and with which settings: `studies.images.design`.
"""

from collections.abc import Mapping

from studies.engine import Store
from studies.images.cost import cost_table, measure_seconds, row_costs, row_seconds
from studies.images.design import Design, choose_design
from studies.images.sets import ImageSet, load_set
from studies.images.table3_page import assumption, body, shows, size_line
from studies.images.trials import Job, make_jobs, run_jobs
from studies.options import StudyOptions
from studies.page import duration, write_page
from studies.registry import as_study

NAME = "table3"


@as_study("test AUROC on the image sets, beside the paper's Table 3", takes=("size", "device"), store="images")
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    design = choose_design(options)
    options.use_cuda()
    study(options, {name: load_set(name, design, cache=options.cache) for name in design.recipes})


def study(options: StudyOptions, sets: Mapping[str, ImageSet]) -> None:
    """Run the study on these sets: what it will cost is said first, what is finished is kept."""
    design, cuda = choose_design(options), options.use_cuda()
    jobs = [job for name, found in sets.items() for job in make_jobs(name, found, design.recipes[name], cuda=cuda)]
    expected = _announce(jobs, design, options, cuda=cuda)
    section = f"{NAME}, {design.name}"
    with Store(options.cache, "images") as store:
        run_jobs(_longest_first(jobs, expected), store=store, options=options, section=section)
        rows = store.find([job.trial for job in jobs])
        write_page(
            options,
            NAME,
            title="Table 3: images and volumes",
            shows=shows(design),
            seeds="repeats of the cross-validation are seeded 0, 1, ...; trial (repeat r, fold f) has the seed 5 r + f "
            "for weights and sampling",
            seconds=store.wall_time(section),
            store=store,
            body=body(design, sets, jobs, rows, expected=expected),
            made=[size_line(design, jobs, rows)],
        )


def _announce(jobs: list[Job], design: Design, options: StudyOptions, *, cuda: bool) -> dict[tuple[str, str], float]:
    """Measure how fast this device is, and show what each row will cost before anything is run."""
    costs = row_costs(jobs)
    seconds = measure_seconds(costs, cuda=cuda)
    expected = {key: row_seconds(cost, seconds) for key, cost in costs.items()}
    if options.console is not None:
        options.console.print(f"{NAME}, {design.name}: expected time of each row on one process, before it is run")
        for line in cost_table(costs, jobs, expected=expected):
            options.console.print(line, markup=False, highlight=False, soft_wrap=True)
        total = sum(expected.values())
        shared = f", {duration(total / options.jobs)} on {options.jobs} idle cores" if options.jobs > 1 else ""
        options.console.print(f"in all {duration(total)} on one core{shared}. {assumption(costs)}", highlight=False)
    return expected


def _longest_first(jobs: list[Job], expected: Mapping[tuple[str, str], float]) -> list[Job]:
    # So that no process is left with a long one in the end.
    number = {key: sum((job.name, job.method) == key for job in jobs) for key in expected}
    return sorted(
        jobs, key=lambda job: -expected.get((job.name, job.method), 0.0) / number.get((job.name, job.method), 1)
    )
