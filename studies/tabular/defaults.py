"""The study `defaults`: settings for small tabular bags, chosen without the set that they are judged on."""

from collections.abc import Mapping, Sequence

import numpy as np

from midam.data.bags import Bags
from midam.data.sets import catalog
from studies.engine import Store, complete
from studies.options import StudyOptions
from studies.page import write_page
from studies.registry import as_study
from studies.synthetic import synthetic_sets
from studies.tabular.defaults_page import MEMBERS, averaged_section, candidates_section, judged_section
from studies.tabular.defaults_trials import BASE, CANDIDATES, DECIDED, Areas, Fit, config_of, train_fit

NAME = "defaults"
SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
_FINALISTS = 4
_REPEATS = 3
# The default pooling stays attention, which explains a bag; others are tried to show what it costs.
_OTHER_POOLINGS = tuple(name for name, values in CANDIDATES.items() if "pooling" in values)
# Tried after the choice was made. Either would take its place if it were ahead of it beyond doubt: an interval of the
# paired difference that excludes zero. That was fixed before the three repeats were run.
_LATER = tuple(name for name, values in CANDIDATES.items() if "average_from" in values)


@as_study("the defaults, chosen leave-one-set-out, beside bag statistics", store="defaults")
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    study(options, {name: catalog.load(name) for name in SETS}, synthetic_sets())


def study(options: StudyOptions, real: Mapping[str, Bags], synthetic: Mapping[str, Bags]) -> None:
    """Run the study on these sets: candidates on all of them, then each real set under the choice made without it."""
    with Store(options.cache, NAME) as store:
        _study(options, real, synthetic, store)


def _study(options: StudyOptions, real: Mapping[str, Bags], synthetic: Mapping[str, Bags], store: Store) -> None:
    epochs = 2 if options.smaller else None
    few = [*list(CANDIDATES)[:3], _LATER[0]]
    candidates = few if options.smaller else list(CANDIDATES)
    everything = {**real, **synthetic}
    small = options.quick or options.smaller
    areas = Areas(store, epochs=epochs)

    def tried(names: Sequence[str], repeats: range) -> dict[str, dict[str, float]]:
        """Mean AUROC over the folds of the repeats, one member, by candidate and set."""
        fits = [
            Fit(data, bags, config_of(name, epochs=epochs), repeat).group()
            for name in names
            for data, bags in everything.items()
            for repeat in repeats
        ]
        complete(fits, train_fit, store=store, options=options, section="candidates")
        return {
            name: {data: float(areas.of(data, bags, name, repeats=repeats).mean()) for data, bags in everything.items()}
            for name in names
        }

    first = tried(candidates, range(1))
    kept = {data: finalists(first, without=data, count=1 if small else _FINALISTS) for data in (*real, None)}
    later = [name for name in _LATER if name in candidates]
    repeats = range(1 if small else _REPEATS)
    second = tried(list(dict.fromkeys([*(name for names in kept.values() for name in names), *later])), repeats)
    chosen = {
        data: finalists({name: second[name] for name in names}, without=data, count=1)[0]
        for data, names in kept.items()
    }
    judged = range(1 if small else 5)
    ours = [
        Fit(data, bags, config_of(name, epochs=epochs, judged=True), repeat, member).group()
        for data, bags in real.items()
        for name in dict.fromkeys((chosen[data], chosen[None]))
        for repeat in judged
        for member in range(max(MEMBERS))
    ]
    trees = [Fit(data, bags, None, repeat).group() for data, bags in real.items() for repeat in judged]
    complete([*ours, *trees], train_fit, store=store, options=options, section="judged")
    write_page(
        options,
        NAME,
        title="The defaults, chosen without the set they are judged on",
        shows="What a user gets who tunes nothing. Each candidate is trained on all sets; for each real set the "
        "candidate with the highest mean AUROC on the *other* sets, synthetic ones included, is judged on it. The list "
        "of candidates itself grew while results on all sets were seen: the scalings and clips were thought of then. "
        f"The candidates were tried at gamma0 = {BASE['state_rate']:g}; what was chosen is judged at "
        f"{DECIDED['state_rate']:g}, which the [map of estimators](regime.md) decides. 'Averaged' reports "
        "the mean of the weights after each epoch of the second half.",
        seeds=f"0 to {repeats[-1]} for the choice, 0 to {judged[-1]} for the judgment: folds, weights and sampling",
        seconds=store.wall_time(),
        store=store,
        body=[
            *judged_section(areas, real, chosen, repeats=judged),
            *candidates_section(list(real), first, second, repeats, kept=_FINALISTS),
            *averaged_section(areas, everything, chosen[None], later, repeats),
        ],
    )


def finalists(found: Mapping[str, Mapping[str, float]], *, without: str | None, count: int) -> list[str]:
    """Return the attention candidates with the highest mean AUROC over the sets but one, the best first.

    Examples
    --------
    >>> finalists({"a": {"x": 0.9, "y": 0.5}, "b": {"x": 0.5, "y": 0.8}}, without="y", count=1)
    ['a']
    """
    means = {
        name: np.mean([value for data, value in of.items() if data != without])
        for name, of in found.items()
        if name not in (*_OTHER_POOLINGS, *_LATER)
    }
    return sorted(means, key=lambda name: -means[name])[:count]
