"""`python -m studies regime`: which estimator to take, over bag size, witness rate, B and steps, at equal budgets."""

from studies.engine import Store
from studies.options import StudyOptions
from studies.page import figure_path, write_page
from studies.regime.bags import Counts
from studies.regime.design import Design
from studies.regime.figure import plot_map
from studies.regime.page import body
from studies.regime.results import collect
from studies.regime.trials import SECTION, run_trials
from studies.registry import as_study

FULL = Design(
    poolings=("smoothed-max", "attention"),
    sizes=(50, 500, 5000),
    rates=(0.001, 0.01, 0.03, 0.1),
    instances=(4, 16),
    steps=(300, 2400),
    lrs=(0.1, 0.5),
    repeats=(0, 1, 2, 3, 4),
)
QUICK = Design(
    poolings=("smoothed-max", "attention"),
    sizes=(50, 500),
    rates=(0.01, 0.1),
    instances=(4,),
    steps=(300, 900),
    lrs=(0.1, 0.5),
    repeats=(0, 1, 2, 3, 4),
)
SMALLER = Design(
    poolings=("smoothed-max",),
    sizes=(10, 400),
    rates=(0.1, 0.5),
    instances=(2,),
    steps=(4,),
    lrs=(0.1, 0.5),
    repeats=(0, 1),
    counts=Counts(train=8, val=4, test=6),
    bags=4,
)
_SHOWS = (
    "Four estimators: `vrsp` (MIDAM) draws B instances of a bag and remembers the bag, `minibatch` draws them and "
    "remembers nothing, `exact` trains on whole bags, `exact-point` reads whole bags and trains on B instances. "
    "Which should you take? They were compared at equal cost, counted in instances encoded, over bag size, witness "
    "rate, B and number of steps (T)."
)


@as_study("which estimator to take: bag size, witness rate, instances, steps", store="regime")
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""
    part, design = ("", FULL)
    if options.quick or options.smaller:
        part, design = ("-smaller", SMALLER) if options.smaller else ("-quick", QUICK)
    with Store(options.cache, f"{SECTION}{part}") as store:
        run_trials(design, store=store, options=options)
        results = collect(design, store)
        figure = figure_path(options, SECTION)
        plot_map(results, figure)
        write_page(
            options,
            SECTION,
            title="Which estimator to take",
            shows=_SHOWS,
            seeds=f"repeats {design.repeats[0]} to {design.repeats[-1]}, of images, bags, weights and draws",
            seconds=store.wall_time(),
            store=store,
            body=body(results, figure.name),
        )
