"""The study `defaults`: the defaults for small tabular bags, and what a rule chooses without each kind of bags."""

from collections.abc import Mapping, Sequence

import numpy as np

from midam.compare.workers import Group
from midam.data.bags import Bags
from studies.engine import Store, complete
from studies.images.features import frozen_areas
from studies.options import StudyOptions
from studies.page import write_page
from studies.peers import installed_peers
from studies.registry import as_study
from studies.sets import catalog
from studies.synthetic import synthetic_sets
from studies.tabular.defaults_page import (
    Judged,
    around_section,
    candidates_section,
    choice_section,
    frozen_section,
    judged_areas,
    judged_section,
    mixtures_section,
    prior_of,
)
from studies.tabular.defaults_trials import (
    AROUND,
    BESIDE,
    CANDIDATES,
    CHOSEN,
    DEFAULT,
    KINDS,
    MEMBERS,
    SYNTHETIC,
    Areas,
    Fit,
    config_of,
    nested_fits,
    train_fit,
)

NAME = "defaults"
_FINALISTS = 2
_REPEATS = 2
# The pooling stays attention, which explains a bag, with one scorer in a member: these show the cost of this.
_SHOWN = tuple(name for name, values in CANDIDATES.items() if "pooling" in values)


@as_study("the defaults and `auto`, beside bag statistics and what a rule would choose", store="defaults")
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    real = [name for kind, names in KINDS.items() if kind != SYNTHETIC for name in names]
    frozen = {} if options.quick or options.smaller else frozen_areas(options)
    study(options, {name: catalog.load(name) for name in real}, synthetic_sets(), frozen)


def study(
    options: StudyOptions,
    real: Mapping[str, Bags],
    synthetic: Mapping[str, Bags],
    frozen: Mapping[str, Judged] | None = None,
) -> None:
    """Run the study on these sets: candidates on all sets, then each set with the defaults.

    `frozen` are the finished trainings on vectors of images, by kind.
    """
    with Store(options.cache, NAME) as store:
        _study(options, {**real, **synthetic}, store, frozen or {})


def _study(options: StudyOptions, sets: Mapping[str, Bags], store: Store, frozen: Mapping[str, Judged]) -> None:
    epochs = 2 if options.smaller else None
    small = options.quick or options.smaller
    candidates = list(CANDIDATES)[:3] if small else list(CANDIDATES)
    kinds = {kind: [name for name in names if name in sets] for kind, names in KINDS.items()}
    kinds = {kind: names for kind, names in kinds.items() if names}
    areas = Areas(store, epochs=epochs)

    def tried(names: Sequence[str], repeats: range) -> dict[str, dict[str, float]]:
        """Return the mean AUROC over the folds of the repeats, with one member, by candidate and set."""
        fits = [
            Fit(data, bags, DEFAULT, config_of(name, bags, epochs=epochs), repeat).group()
            for name in names
            for data, bags in sets.items()
            for repeat in repeats
        ]
        complete(_once(fits), train_fit, store=store, options=options, section="candidates")
        return {
            name: {data: float(areas.of(data, bags, name, repeats=repeats).mean()) for data, bags in sets.items()}
            for name in names
        }

    first = tried(candidates, range(1))
    around = {} if small else tried(list(AROUND), range(1))
    tried([] if small else list(MEMBERS), range(1))
    kept = {kind: finalists(first, kinds, without=kind, count=1 if small else _FINALISTS) for kind in (*kinds, None)}
    repeats = range(1 if small else _REPEATS)
    second = tried(list(dict.fromkeys([CHOSEN, *(name for names in kept.values() for name in names)])), repeats)
    chosen = {
        kind: finalists({name: second[name] for name in names}, kinds, without=kind, count=1)[0]
        for kind, names in kept.items()
    }
    judged = range(1)
    nested = [
        fit.group()
        for data, bags in sets.items()
        for repeat in judged
        for fit in nested_fits(data, bags, config_of(CHOSEN, bags, epochs=epochs), repeat)
    ]
    complete(nested, train_fit, store=store, options=options, section="judged")
    others = () if small else installed_peers(BESIDE)
    real = {data: sets[data] for kind, names in kinds.items() if kind != SYNTHETIC for data in names}
    fits = [Fit(data, bags, name, None, repeat) for data, bags in real.items() for name in others for repeat in judged]
    complete([fit.group() for fit in fits], train_fit, store=store, options=options, section="peers")
    found = judged_areas(areas, sets, kinds, repeats=judged)
    prior = prior_of(areas, sets, kinds, without=None, repeats=judged)
    gaps = [
        float(np.mean([second[CHOSEN][data] - second[chosen[None]][data] for data in names]))
        for names in kinds.values()
    ]
    write_page(
        options,
        NAME,
        title="`midam` and `auto` with the library's defaults, and the candidates for the defaults",
        shows="What a user gets who tunes nothing: `auto` is what `midam fit` does with vectors, here with the four "
        "methods it tried at first. Sets that share instances or a source are one kind. A rule, fixed before the runs, "
        "chooses a default for each kind: the candidate with the highest AUROC on the *other* kinds (the mean over a "
        "kind's sets, then over kinds, the synthetic ones as one). A first look at single "
        "repeats came before it: it suggested which changes to try, and that the weights of `auto` go by p-values. The "
        "mean map and the choice of epochs came later, and were looked at on these very sets: that fewer epochs must "
        "gain more than their standard error was decided after a first run without it (`auto` 0.891 on the real sets, "
        "then 0.892).",
        seeds=f"0 to {repeats[-1]} for the choice, 0 for the judgment: folds, weights and sampling",
        seconds=store.wall_time(),
        store=store,
        body=[
            *judged_section(found, kinds, prior),
            *choice_section(kinds, chosen, gaps),
            *(frozen_section(found, kinds, frozen) if frozen else []),
            *candidates_section(kinds, first, second, repeats, kept=_FINALISTS),
            *around_section(areas, sets, kinds, around),
            *([] if small else mixtures_section(areas, sets, kinds)),
        ],
    )


def finalists(
    found: Mapping[str, Mapping[str, float]], kinds: Mapping[str, Sequence[str]], *, without: str | None, count: int
) -> list[str]:
    """Return the attention candidates with the highest mean AUROC over the kinds except one, the best first.

    Examples
    --------
    >>> found = {"a": {"x": 0.9, "y": 0.5}, "b": {"x": 0.5, "y": 0.8}}
    >>> finalists(found, {"one": ["x"], "other": ["y"]}, without="other", count=1)
    ['a']
    """
    means = {name: kinds_mean(of, kinds, without=without) for name, of in found.items() if name not in _SHOWN}
    return sorted(means, key=lambda name: -means[name])[:count]


def kinds_mean(of: Mapping[str, float], kinds: Mapping[str, Sequence[str]], *, without: str | None = None) -> float:
    """Return the mean over kinds of the mean over the sets of a kind."""
    return float(np.mean([np.mean([of[data] for data in names]) for kind, names in kinds.items() if kind != without]))


def _once(groups: Sequence[Group[Fit]]) -> list[Group[Fit]]:
    """Return each group once: candidates that are equal for a set share their trials."""
    return list({str(group.names): group for group in groups}.values())
