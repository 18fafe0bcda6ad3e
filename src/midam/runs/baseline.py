"""The baseline next to a run: a plain method, trained on the same bags and scored on the same bags as the model.

The baseline trains 500 extremely randomized trees, as in `midam compare` and without tuning, on statistics of each bag:
mean, minimum, maximum and deviation of each feature, or mean and deviation of each color of images. For times to an
event, it is a Cox regression on the statistics of features, which ranks better than trees if events are few; inner
folds of the training bags choose its ridge penalty.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import first_line
from midam.evaluate.calibrate import one_scale
from midam.registry import BASELINES
from midam.runs.data import SplitBags
from midam.runs.folder import OUT_OF_FOLD
from midam.runs.folds import fold_trials
from midam.settings.method import are_pixels
from midam.targets import Target, target_of

if TYPE_CHECKING:
    from midam.train.side import Prepare, Trial

COMPARED = ("test", OUT_OF_FOLD, "val")  # the comparison uses the first of these splits that has a main metric
_FEATURES, _PIXELS, _TIMES = "bag-statistics-extratrees", "rgb-trees", "bag-statistics-cox"


def usual_baseline(instance_shape: tuple[int, ...], target: Target) -> str:
    """Return the name of the baseline for instances of a shape: statistics of features, or of colors for images."""
    return _PIXELS if are_pixels(instance_shape) else _TIMES if target.pairs == "survival" else _FEATURES


def compared_part(parts: SplitBags) -> tuple[str, NDArray[np.intp]] | None:
    """Return the first split of `COMPARED` that has a main metric, and the positions of its bags; None without one."""
    target = target_of(parts.bags)
    values = target.values(parts.bags)
    part = next((name for name in COMPARED if target.has_metric(values[parts.splits == name])), None)
    return None if part is None else (part, np.flatnonzero(parts.splits == part))


def held_out_scores(
    parts: SplitBags, tested: NDArray[np.intp], score: "Callable[[Trial], NDArray[np.float64]]", *, seed: int
) -> NDArray[np.float64]:
    """Return the scores of the `tested` bags by a training on the training bags, or, of folds, on the other folds.

    `score` trains on the bags of a trial, and returns the scores of those that it holds out. Those of folds are brought
    to one scale, as the model's are, see `midam.targets.Target.cross_decide`.
    """
    from midam.train.side import Trial  # imports torch

    train = np.flatnonzero(parts.splits == "train")
    trials = [Trial(train, tested, seed)] if parts.folds is None else fold_trials(parts.folds, seed=seed)
    of_trials = [score(trial) for trial in trials]
    scores = np.full((len(parts.bags), *of_trials[0].shape[1:]), np.nan)
    for trial, of_trial in zip(trials, of_trials):
        scores[trial.score] = of_trial
    if parts.folds is not None and scores.ndim == 1 and not parts.by_site:
        scores = one_scale(scores, parts.folds, groups=parts.bags.groups)
    return scores[tested]


def train_baseline(
    parts: SplitBags,
    scores: NDArray[np.float64],
    prepare: "Prepare | None" = None,
    *,
    seed: int,
) -> dict[str, Any]:
    """Train the baseline on the training bags, and compare the model's `scores` [N] or [N, C] of all bags with it.

    Returns the entries of summary.json: `baseline`, or `baseline_note`, the reason why there is none.

    Bags of folds are scored by baselines of the other folds, on bags that `prepare` returns, if they need it.

    The comparison uses the test bags, or the validation bags if the main metric cannot be computed on the test bags. An
    error becomes a note, so that a trained model is not lost because its baseline failed.
    """
    bags, target, compared = parts.bags, target_of(parts.bags), compared_part(parts)
    if compared is None:
        note = f"there are no test or validation bags {target.ordered} to compare on"
        return {"baseline": None, "baseline_note": note}
    name = usual_baseline(bags.instance_shape, target)
    part, tested = compared

    def score(trial: "Trial") -> NDArray[np.float64]:
        scores: NDArray[np.float64] = BASELINES.find(name)().score(bags if prepare is None else prepare(trial), trial)
        return scores

    try:
        baseline_scores, held = held_out_scores(parts, tested, score, seed=seed), bags.subset(tested)
        compared_scores = scores[tested], baseline_scores
        entry = {"method": name, "part": part, **compared_auroc(held, *compared_scores, parts.folds)}
    except Exception as error:  # other packages may raise any error
        return {"baseline": None, "baseline_note": f"{name} failed ({first_line(error)})"}
    return {"baseline": entry}


def compared_auroc(
    bags: Bags, model: NDArray[np.float64], baseline: NDArray[np.float64], folds: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Return the main metric of the baseline and the difference of the model to the baseline, with their intervals."""
    target, groups = target_of(bags), bags.groups
    values, metric = target.values(bags), target.metric
    summary = target.summarize(values, baseline, groups=groups, folds=folds)
    difference = target.difference(values, model, baseline, groups=groups, folds=folds)
    return {
        **{key: summary[key] for key in (metric, f"{metric}_ci95", f"{metric}_method")},
        "difference": difference.value,
        "difference_ci95": [difference.low, difference.high],
        "difference_method": difference.method,
    }
