"""The folds of a cross-validated run: which model scores a bag without having seen it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.splits import check_disjoint
from midam.errors import BagDataError, ConfigError
from midam.methods.inner_folds import ranked, trainable, units_of_bags
from midam.settings import Settings
from midam.settings.group import AUTO
from midam.targets import target_of

if TYPE_CHECKING:
    from midam.train.side import Trial

MOST_BAGS, RARE = 500, 50
_FOLDS = 5
Folds = NDArray[np.int64]


def few_bags(bags: Bags, *, at_once: bool) -> bool:
    """Return whether bags are so few that holding some out costs more than folds do.

    At most 500 bags; or, for a method that is fitted `at_once` and needs no validation bags, at most 50 of the rarer of
    two classes.
    """
    if len(bags) <= MOST_BAGS:
        return True
    counts = np.bincount(bags.labels, minlength=2) if bags.labels is not None else np.array([len(bags)])
    return at_once and int(counts.min()) <= RARE


def choose_folds(bags: Bags, settings: Settings, *, at_once: bool) -> Folds | None:
    """Return the fold [N] that scores each bag, disjoint by group; None if bags are to be held out.

    Raises a `ConfigError` or `BagDataError` for `folds` or fractions that these bags or settings do not allow.
    """
    run, training = settings.run, settings.training
    if bags.splits is not None:
        ignored = {"test_fraction": run.test_fraction is not None}
        ignored["val_fraction"] = "val" in bags.splits and run.val_fraction != type(run)().val_fraction
        for name in filter(ignored.get, ignored):
            raise ConfigError(f"Expected splits or `{name}`, got both (in {bags.source}); leave one out.")
    needs_validation = training.select == "best" or training.patience is not None
    if run.folds == AUTO:
        given = bags.splits is not None or run.test_fraction is not None or needs_validation
        return None if given or not few_bags(bags, at_once=at_once) else _numbered(bags, settings, _FOLDS, least=2)
    if run.folds == 0:
        return None
    for named, words in (
        (bags.splits is not None, "splits"),
        (run.test_fraction is not None, "`test_fraction`"),
        (needs_validation, "`select` best or `patience`, which need validation bags"),
    ):
        if named:
            raise ConfigError(f"Expected `folds` {run.folds} or {words}, got both; leave one out.")
    if run.site is not None:
        folds = _by_site(bags, run.site)
        if bags.groups is not None and bags.sites is not None:
            check_disjoint(bags.sites, bags.groups, allow_leakage=run.allow_leakage)
        return folds
    return _numbered(bags, settings, int(run.folds), least=int(run.folds))


def _numbered(bags: Bags, settings: Settings, count: int, *, least: int) -> Folds | None:
    """Return as many of `count` stratified folds as the bags allow; fewer than `least`: None, or the reason."""
    target, groups = target_of(bags), bags.groups
    values, every = target.values(bags), np.arange(len(bags))
    possible = min(count, target.most_folds(values, units_of_bags(bags)))
    for number in range(possible, 1, -1):
        folds = target.folds(values, groups=groups, folds=number, seed=settings.run.seed)
        places = [np.flatnonzero(folds == fold) for fold in range(number)]
        if all(ranked(bags, fold) and trainable(bags, np.setdiff1d(every, fold)) for fold in places):
            if number < least:
                break
            return folds
    if settings.run.folds == AUTO:
        return None
    unit = "bags" if groups is None else "groups"
    got = f"too few {unit} {target.ordered} (in {bags.source}); take fewer `folds`"
    raise BagDataError(f"Expected {count} folds that can each be trained without and ranked, got {got}.")


def _by_site(bags: Bags, column: str) -> Folds:
    """Return the site of each bag as a number."""
    if bags.sites is None:
        raise BagDataError(f"Expected a column {column!r} of sites, got none (in {bags.source}); name another.")
    where, advice = f"(in {bags.source}, column {column})", "name another column, or a number of folds"
    if unknown := int((bags.sites == "").sum()):
        raise BagDataError(
            f"Expected the site of each bag, got none for {unknown} of {len(bags)}, whose site a model may have seen "
            f"{where}; fill the sites in, or leave these bags out."
        )
    names, folds = np.unique(bags.sites, return_inverse=True)
    lost = [str(name) for fold, name in enumerate(names) if not trainable(bags, np.flatnonzero(folds != fold))]
    if len(names) < 2 or lost:
        got = f"{names[0]} alone" if len(names) < 2 else f"none without {lost[0]}"
        raise BagDataError(f"Expected bags of both classes outside of each site, got {got} {where}; {advice}.")
    if not any(ranked(bags, np.flatnonzero(folds == fold)) for fold in range(len(names))):
        raise BagDataError(f"Expected a site whose bags can be ranked, got one label in each {where}; {advice}.")
    return folds.astype(np.int64)


def fold_trials(folds: Folds, *, seed: int) -> "list[Trial]":
    """Return the training of each fold: on the bags of the others, to score its own."""
    from midam.train.side import Trial  # imports torch

    each = np.unique(folds).tolist()
    return [Trial(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold), seed) for fold in each]
