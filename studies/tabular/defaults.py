"""The study `defaults`: settings for small tabular bags, chosen without the set that they are judged on."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.sets import catalog
from studies.options import StudyOptions
from studies.page import write_page
from studies.store import Store
from studies.synthetic import synthetic_sets
from studies.tabular.defaults_page import MEMBERS, averaged_section, candidates_section, judged_section
from studies.tabular.defaults_trials import BASE, CANDIDATES, DECIDED, TREES, Areas, Group, complete, settings_of
from studies.work import wall_time

NAME = "defaults"
SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
_FINALISTS = 4
_REPEATS = 3
# The default pooling stays attention, which explains a bag; others are tried to show what it costs.
_OTHER_POOLINGS = tuple(name for name, values in CANDIDATES.items() if "pooling" in values)
# Tried after the choice was made. Either would take its place if it were ahead of it beyond doubt: an interval of the
# paired difference that excludes zero. That was fixed before the three repeats were run.
_LATER = tuple(name for name, values in CANDIDATES.items() if "average_from" in values)


def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    study(options, {name: catalog.load(name) for name in SETS}, synthetic_sets())


def study(options: StudyOptions, real: Mapping[str, Bags], synthetic: Mapping[str, Bags]) -> None:
    """Run the study on these sets: candidates on all of them, then each real set under the choice made without it."""
    store = Store(options.cache / f"{NAME}.jsonl")
    epochs = 2 if options.smaller else None
    few = [*list(CANDIDATES)[:3], _LATER[0]]
    candidates = {name: CANDIDATES[name] for name in few} if options.smaller else CANDIDATES
    everything = {**real, **synthetic}
    small = options.quick or options.smaller
    first = _try(candidates, everything, range(1), store=store, options=options, epochs=epochs)
    kept = {data: finalists(first, without=data, count=1 if small else _FINALISTS) for data in (*real, None)}
    later = [name for name in _LATER if name in candidates]
    final_names = list(dict.fromkeys([*(name for names in kept.values() for name in names), *later]))
    finals = {name: candidates[name] for name in final_names}
    repeats = range(1 if small else _REPEATS)
    second = _try(finals, everything, repeats, store=store, options=options, epochs=epochs)
    chosen = {
        data: finalists({name: second[name] for name in names}, without=data, count=1)[0]
        for data, names in kept.items()
    }
    judged = range(1 if small else 5)
    ours = [
        Group(data, bags, name, settings_of(name, judged=True), repeat, member, epochs, "")
        for data, bags in real.items()
        for name in dict.fromkeys((chosen[data], chosen[None]))
        for repeat in judged
        for member in range(max(MEMBERS))
    ]
    trees = [Group(data, bags, TREES, None, repeat, 0, None, "") for data, bags in real.items() for repeat in judged]
    complete([*ours, *trees], store, options, section="judged")
    areas = Areas(store, epochs=epochs)
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
        seeds=f"0 to {repeats[-1]} for the choice, 0 to {judged[-1]} for the judgement: folds, weights and sampling",
        seconds=wall_time(store),
        store=store,
        body=[
            *judged_section(areas, real, chosen, repeats=judged),
            *candidates_section(list(real), first, second, repeats, kept=_FINALISTS),
            *averaged_section(areas, everything, chosen[None], later, repeats),
        ],
    )


def finalists(found: Mapping[str, Mapping[str, float]], *, without: str | None, count: int) -> list[str]:
    """Return the attention candidates with the highest mean AUROC over the sets but one, the best first.

    Parameters
    ----------
    found : mapping
        AUROC by candidate and set.
    without : str or None
        The set that has no say.
    count : int
        How many.

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


def _try(
    candidates: Mapping[str, Mapping[str, Any]],
    sets: Mapping[str, Bags],
    repeats: range,
    *,
    store: Store,
    options: StudyOptions,
    epochs: int | None,
) -> dict[str, dict[str, float]]:
    """Mean AUROC over the folds of the repeats, one member, by candidate and set."""
    groups = [
        Group(data, bags, name, settings_of(name), repeat, 0, epochs, "")
        for name in candidates
        for data, bags in sets.items()
        for repeat in repeats
    ]
    complete(groups, store, options, section="candidates")
    areas = Areas(store, epochs=epochs)
    return {
        name: {data: float(areas.of(data, bags, name, repeats=repeats).mean()) for data, bags in sets.items()}
        for name in candidates
    }
