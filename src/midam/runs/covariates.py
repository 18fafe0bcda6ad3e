"""Covariates alone beside a run that takes them: what the instances add is the difference of the two.

The model of covariates alone is linear, and shrunk a little: logistic regression where bags have classes or labels,
ridge regression of grades and numbers, Cox's proportional hazards of times. It sees the encoded covariates of the
training bags, as the run does, and nothing of it is tuned.
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.covariate_codes import CovariateCoder
from midam.nn.ensemble import BagEnsemble, scorers_of
from midam.runs.baseline import COMPARED, compared_auroc
from midam.runs.data import SplitBags
from midam.targets import target_of

Scores = NDArray[np.float64]

_MOST_ITERATIONS = 1000


def summarize_covariates(model: BagEnsemble, parts: SplitBags, scores: Scores) -> dict[str, Any] | None:
    """Entry `covariates` of summary.json; None of a model without covariates.

    `names` and `kinds` of the covariates, `weights` of the model's term by its columns, the mean of the members' (of
    several score columns one each), and `alone`: the model of covariates alone beside the model's `scores` [N] or
    [N, C] of all bags, on the test bags, or the validation bags where these cannot be judged.
    """
    terms = [scorer.covariates for scorer in scorers_of(model)]
    if terms[0] is None:
        return None
    coder: Any = terms[0].coder
    weights = torch.stack([term.weight.detach().double().cpu() for term in terms if term is not None]).mean(dim=0)
    return {
        "names": list(coder.names),
        "kinds": list(coder.kinds),
        "weights": dict(zip(coder.features, weights.numpy().T.tolist(), strict=True)),
        "alone": _alone(coder, parts, scores),
    }


def _alone(coder: CovariateCoder, parts: SplitBags, scores: Scores) -> dict[str, Any] | None:
    """How covariates alone do, and how much better the model does; None where no bags can be judged."""
    bags, target = parts.bags, target_of(parts.bags)
    values = target.values(bags)
    part = next((name for name in COMPARED if target.has_metric(values[parts.splits == name])), None)
    if part is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is unknown has been told, and little data may not converge
        x = coder.encode(bags)
        inside = parts.splits == "train"
        found = target.linear_scores(x[inside], values[inside], x)
    tested = np.flatnonzero(parts.splits == part)
    told = {"method": target.linear, "part": part, "bags": len(tested)}
    return told | compared_auroc(bags.subset(tested), scores[tested], found[tested])
