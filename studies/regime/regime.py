"""`python -m studies regime`: the map, which draw and which estimator over bag size, witnesses and B, at equal cost."""

from collections.abc import Iterable
from pathlib import Path

from studies.engine import Store
from studies.options import StudyOptions
from studies.regime.bags import Counts
from studies.regime.design import Block, Design
from studies.regime.figure import plot_map
from studies.regime.page import body
from studies.regime.results import collect
from studies.regime.run import run_design
from studies.regime.trials import SECTION, run_trials
from studies.registry import as_study

_BOTH = ("smoothed-max", "attention")
_SMALL = ((1, 6000), (2, 6000), (4, 6000))
_LARGE = ((16, 4800), (64, 1200))
FULL = Design(
    blocks=(
        # Of 5% witnesses, larger draws miss none.
        Block(_BOTH, 200, (1, 2, 10), _SMALL),
        Block(_BOTH, 200, (1, 2), _LARGE),
        Block(_BOTH, 500, (1, 5), ((1, 6000), (4, 6000), *_LARGE)),
        Block(_BOTH, 5000, (5, 50), ((4, 6000), (16, 4800))),
        # 0.02% and 0.2%
        Block(_BOTH, 5000, (1,), ((16, 4800),)),
        Block(_BOTH, 50_000, (100,), ((64, 4800),)),
    ),
    repeats=tuple(range(8)),
    choice=(Block(_BOTH, 200, (2,), ((1, 6000),)), Block(_BOTH, 500, (5,), ((16, 4800),))),
    choice_repeats=(100, 101, 102, 103),
    ceiling=500,
)
QUICK = Design(
    blocks=(Block(_BOTH, 200, (1, 10), ((1, 1200), (16, 1200))),),
    repeats=(0, 1, 2),
    choice=(Block(_BOTH, 200, (2,), ((4, 1200),)),),
    choice_repeats=(100,),
    ceiling=200,
)
SMALLER = Design(
    blocks=(Block(("smoothed-max",), 20, (1, 5), ((1, 12), (4, 12))),),
    repeats=(0, 1),
    choice=(Block(("smoothed-max",), 20, (2,), ((2, 12),)),),
    choice_repeats=(100,),
    ceiling=20,
    ceiling_epochs=2,
    counts=Counts(train=32, val=6, test=8),
)
_SHOWS = (
    "Which instances should a step draw, and what should it remember? `minibatch` draws B of a bag uniformly and "
    "remembers nothing; `vrsp` (MIDAM) keeps a tracked state a bag; `top` draws by what instances scored before; "
    "`exact` trains on whole bags. All were given the same cost, counted in instances encoded, over bag size, number "
    "of witnesses and B."
)


@as_study("the map: which draw and which estimator, over bag size, witnesses and B", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        results = collect(design, store, run_trials(design, store=store, options=options))
        plot_map(results, figure)
        return body(results, figure.name)

    run_design(options, SECTION, (FULL, QUICK, SMALLER), study, title="The map", shows=_SHOWS)
