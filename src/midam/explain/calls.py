"""Why bags were called: the instances that did it, and the values of their features beside ordinary ones.

An instance counts by its contribution, the score of the bag minus its score without it; a feature by what the score
loses when this value of this instance becomes the typical one (occlusion). Bags are handled many at a time, see
`midam.evaluate.pooled`.
"""

import math
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import ConfigError, require_counts
from midam.evaluate.pooled import PooledBags, Scores, pooled_groups
from midam.evaluate.predict import prepared
from midam.explain.explanation import Features, Origins, TellingFeature, known_columns, named
from midam.explain.words import named_values
from midam.runs.loaded import LoadedRun, predict_run

_LITTLE = 0.1  # of what the removal of another listed instance takes away
_TRIED, _FEATURES = 5, 3  # instances besides those that are listed; features of an instance


def decide(
    whole: PooledBags, bags: Bags, features: Features | None, *, threshold: float | None, top: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each bag, at most `top` instances with their numbers and features, see `why`.

    Each is the one that adds most without those before it. It is listed if the bag is still at the `threshold` then, or
    if it takes at least a tenth of what another one takes.
    """
    added, score, segment = whole.contributions(), whole.scores(), whole.segment.numpy()
    # Without a closed form, only the instances that added most at first are tried again.
    likely, ranks = np.empty(len(added), dtype=bool), np.arange(len(added)) - np.searchsorted(segment, segment)
    likely[np.lexsort((-added, segment))] = ranks < top + _TRIED
    picks = np.full((min(top, int(bags.sizes.max())), len(bags)), -1)
    kept, goes_on = np.ones(len(added), dtype=bool), np.ones(len(bags), dtype=bool)
    rest, before, without, lost = whole, score, list[Scores](), list[Scores]()
    telling = list[dict[int, tuple[TellingFeature, ...]]]()
    for pick in picks:
        places = np.flatnonzero(kept)
        adds = rest.contributions(likely[places]) if without else added
        # Of equal instances under a maximum, none adds anything, and one has the weight. NaN comes last.
        order = np.lexsort((-rest.weights_of_instances(), -adds, segment[places]))
        held, first = np.unique(segment[places][order], return_index=True)
        pick[held] = places[order[first]]
        kept[pick[held]] = False
        rest = whole.keep(kept)
        lost.append(before - np.nan_to_num(rest.scores()))
        matters = (lost[-1] > 0) & (lost[-1] >= _LITTLE * np.max(np.nan_to_num(lost), axis=0))
        if threshold is not None:
            matters |= before >= threshold
        goes_on &= (pick >= 0) & (matters | (not without))
        pick[~goes_on] = -1  # none after the first that is not listed
        telling.append({} if features is None else features.telling(rest, bags, pick, before, most=_FEATURES))
        before = rest.scores()
        without.append(before)
    shares, starts = _shares(whole, added, picks, score), np.cumsum(bags.sizes) - bags.sizes
    for bag in range(len(bags)):
        reasons = []
        for k, pick in enumerate(picks[:, bag].tolist()):
            if pick >= 0:
                left = float(without[k][bag])
                numbers: dict[str, Any] = {"adds": float(added[pick]), "share": float(shares[k, bag])}
                numbers["without"] = None if math.isnan(left) else left
                features_of = [feature._asdict() for feature in telling[k].get(bag, ())]
                reasons.append({"instance": pick - int(starts[bag]), **numbers, "features": features_of})
        yield reasons


def _shares(whole: PooledBags, added: NDArray[np.float32], picks: NDArray[np.int64], score: Scores) -> Scores:
    """Return the share of each listed instance [k, K] in the score of its bag, 0 to 1."""
    listed = np.zeros(len(added), dtype=bool)
    listed[picks[picks >= 0]] = True
    rest = np.nan_to_num(whole.keep(~listed).scores())
    gains = np.zeros(picks.shape)
    for k, pick in enumerate(picks):
        kept, held = ~listed, pick >= 0
        kept[pick[held]] = True
        alone = np.nan_to_num(whole.keep(kept).scores()) - rest
        gains[k, held] = np.clip(alone[held] + added[pick[held]], 0, None)
    total, taken = gains.sum(axis=0), np.clip((score - rest) / np.where(score > 0, score, 1.0), 0, 1)
    return np.asarray(gains / np.where(total > 0, total, 1.0) * taken)


TOP = 3  # instances of a bag


def why(
    run: LoadedRun, bags: Bags, *, top: int = TOP, every: bool = False, origins: Origins = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return why bags were called positive: their deciding instances, and what is unusual about these.

    Parameters
    ----------
    run, bags : LoadedRun, Bags
        The run, and bags with or without labels.
    top : int
        Most instances of a bag, >= 1.
    every : bool, default False
        Explain all bags, not only those from the threshold on. Runs with other labels than two classes have no
        threshold: all bags are explained, by their most probable class or label.
    origins : mapping
        Columns of the instances by bag, see `midam.data.sources.inputs.rows_of`.

    Returns
    -------
    list of dict
        The highest score first, as in ``midam predict --why --json``. Entries of a bag: "bag", "index" (its position),
        "group", "split" (train, val or test; None for a new bag), "label", "score", "threshold", "probability",
        "called" (the predicted class), "predicted" (other predictions), "explained" (the class or label whose score is
        explained, if there are several), "size", and "instances", each the one that adds most without those before it.
        These have "instance" (the position in the bag), "columns" (line, file, slice), "place" (coordinates), "adds"
        (the score of the bag minus its score without the instance), "share" (part of the score that it carries, in
        [0, 1]), "without" (score of the bag without it and those before it; None if it then has no instance), and
        "features", see `midam.explain.TellingFeature`: at most three; none of pictures and of more than 512 features.

    Raises
    ------
    ConfigError
        If the run has no threshold, and not `every` bag is to be explained.

    Examples
    --------
    >>> from midam import MIDAMClassifier
    >>> x = np.random.default_rng(0).normal(size=(40, 5, 2))
    >>> x[::2, 3, 1] += 6
    >>> bags = Bags.from_list(x, [1, 0] * 20, feature_names=["noise", "heat"])
    >>> run = MIDAMClassifier(epochs=20, members=1, seed=0).fit(bags, bags.labels).to_run()
    >>> first = why(run, bags, every=True)[0]["instances"][0]
    >>> first["instance"], first["features"][0]["name"]
    (3, 'heat')
    """
    require_called(run, every=every)
    bags = prepared(run.model, bags)
    scores, index = predict_run(run, bags)[0], np.arange(len(bags))
    if run.threshold is not None and not every:
        index = np.flatnonzero(scores >= run.threshold)
    return by_score(explain_calls(run, bags, index, scores, top=top, origins=origins))


def by_score(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of bags, the highest score first."""
    return sorted(entries, key=lambda entry: (-entry["score"], entry["index"]))


def require_called(run: LoadedRun, *, every: bool) -> None:
    """Refuse a run of two classes without a threshold, unless `every` bag is explained."""
    if run.target.name == "binary" and run.threshold is None and not every:
        reason = "too few bags were held out to choose one"
        raise ConfigError(f"Expected a run with a threshold, got none (in {run.source}): {reason}; explain all bags.")


def explain_calls(
    run: LoadedRun, bags: Bags, index: NDArray[np.int64], scores: NDArray[np.float64], *, top: int, origins: Origins
) -> Iterator[dict[str, Any]]:
    """Yield why the bags at the positions `index` have their scores, by score column, else in their order.

    The bags are `midam.evaluate.predict.prepared`, `scores` [N] or [N, C] those of all of them.
    """
    require_counts(top=top)
    columns, features = explained_columns(run, scores), Features.of(run.data, run.model, bags)
    for column in np.unique(columns[index]).tolist():
        of_column = index[columns[index] == column]
        explained = None if run.target.count == 1 else column
        for group in pooled_groups(run.model, bags.sizes[of_column]):
            chosen = of_column[group.start : group.stop]
            part = bags.subset(chosen)
            pooled = PooledBags(run.model, part, column=explained, chunk_size=run.settings.run.chunk_size)
            reasons = decide(pooled, part, features, threshold=run.threshold, top=top)
            for i, of_bag in zip(chosen.tolist(), reasons):
                known, places = known_columns(bags, i, origins), bags.places(i)
                instances = [named(one["instance"], places, known) | one for one in of_bag]
                yield {**bag_facts(run, bags, i, scores[i : i + 1], int(columns[i])), "instances": instances}


def explained_columns(run: LoadedRun, scores: NDArray[np.float64], label: str | None = None) -> NDArray[np.int64]:
    """Return the score column that is explained of each bag, [N]: that of `label`, or of its most probable class."""
    main = run.target.main_column(scores, run.decision)
    return main if label is None else np.full_like(main, run.target.column(label))


def bag_facts(run: LoadedRun, bags: Bags, index: int, score: NDArray[np.float64], column: int) -> dict[str, Any]:
    """Return the facts about a bag with its score [1], or its scores [1, C], of which a `column` is explained."""
    bag, target = bags.subset([index]), run.target
    predicted = {name: values[0] for name, values in target.predictions(score, run.decision).items()}
    explained, called = None if target.count == 1 else str(target.columns[column]), predicted.pop("class", None)
    return {
        "bag": str(bag.ids[0]),
        "index": index,
        "group": None if bag.groups is None else str(bag.groups[0]),
        "split": run.known_splits(bag)[0],
        "label": _label(bag),
        "score": float(score.ravel()[column]),
        "probability": predicted.get("probability" if explained is None else f"probability_{explained}"),
        "called": None if called is None else str(called),
        "predicted": {name: value for name, value in predicted.items() if not name.startswith("probability")},
        "threshold": run.threshold,
        "explained": explained,
        "size": int(bag.sizes[0]),
    }


def _label(bag: Bags) -> str | None:
    """Return the label of a bag in words."""
    known = bag.known_labels
    if known is None:
        return None
    values = {name: values[0] for name, values in known.columns().items()}
    if known.target == "multilabel":
        return ", ".join(name for name, value in zip(known.names, values.values()) if value == 1) or "none"
    return named_values(values).removeprefix("label ")
