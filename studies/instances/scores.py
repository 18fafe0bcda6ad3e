"""Seven numbers that a model can give an instance, from one pass of the encoder through its bag.

Let the bag of n instances have the score h, and S be a part of it.

    weight              the weight of the pooling, softmax(z)
    value               h of a bag with this instance alone
    weight x value      weight times (value - h): what the instance adds to a weighted mean
    contribution        h minus h of the bag without the instance, which is removal, or leaving one out
    contribution, logit the same of the logit of h, the mean over members
    order average       mean over 32 random orders of the bag of h(S with the instance) - h(S), where S holds all before
                        it, at least one: Shapley's value without the empty bag
    gradient x input    sum over features of dh/dx times (x - mean of the training instances)

The mean over the members of an ensemble is taken last, of all but the gradient's, which is that of the mean.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit

from midam.data.bags import Bags
from midam.evaluate.pooled import PooledBags
from midam.evaluate.predict import evaluation, prepared
from midam.functional.logmean import BagStatistic
from midam.nn.pooling import Pooling
from midam.nn.scorer import BagEnsemble

Scores = NDArray[np.float64]

SCORES = (
    *("weight", "value", "weight x value", "contribution", "contribution, logit", "order average"),
    "gradient x input",
)
_ORDERS, _CHUNK, _LEAST = 32, 4096, 1e-12


def score_instances(model: BagEnsemble, bags: Bags, typical: NDArray[np.float32]) -> dict[str, Scores]:
    """Return the numbers of all instances, bag after bag, [num_instances] each.

    `typical` [D] is the mean of the training instances. A number that a model does not have is left out: members
    without a gradient, such as forests, have no "gradient x input".
    """
    bags = prepared(model, bags)
    parts: dict[str, list[Scores]] = {name: [] for name in SCORES}
    with evaluation(model):
        for index in range(len(bags)):
            bag = PooledBags(model, bags.subset([index]), chunk_size=_CHUNK)
            for name, values in _of_bag(bag, seed=index).items():
                parts[name].append(values)
            gradient = _gradient(model, bags[index], typical)
            if gradient is not None:
                parts["gradient x input"].append(gradient)
    return {name: np.concatenate(values) for name, values in parts.items() if len(values) == len(bags)}


def _of_bag(bag: PooledBags, *, seed: int) -> dict[str, Scores]:
    weight, value, whole = bag.weights_of_instances(), bag.alone(), np.array(bag.member_scores())[:, 0]
    each, (score,) = np.array(bag.member_contributions()), bag.scores().tolist()
    without = (whole[:, None] - each).clip(_LEAST, 1 - _LEAST)
    moved = logit(whole.clip(_LEAST, 1 - _LEAST))[:, None] - logit(without)
    return {
        "weight": weight,
        "value": value,
        "weight x value": weight * (value - score),
        "contribution": np.average(each, axis=0, weights=bag.weights).astype(np.float32).astype(float),
        "contribution, logit": np.average(moved, axis=0, weights=bag.weights),
        "order average": _order_average(bag, seed),
    }


def _order_average(bag: PooledBags, seed: int) -> Scores:
    """Return what each instance adds to the instances before it, the mean over random orders of the bag."""
    count = len(bag.segment)
    if count == 1:
        return bag.scores()
    orders = torch.from_numpy(np.random.default_rng(seed).permuted(np.tile(np.arange(count), (_ORDERS, 1)), axis=1))
    added = []
    for number, member in enumerate(bag.members):
        z, v = (torch.cat(columns) for columns in zip(*(pair for _, *pair in bag.blocks(number))))
        scores = _prefix_scores(member.pooling, z, v, orders)
        steps = scores.diff(dim=1)  # of the second instance of an order, and so on
        sums = torch.zeros(count, dtype=torch.float64).index_add_(0, orders[:, 1:].flatten(), steps.flatten())
        times = torch.bincount(orders[:, 1:].flatten(), minlength=count)
        added.append((sums / times.clamp(min=1)).numpy())
    return np.asarray(np.average(added, axis=0, weights=bag.weights))


@torch.no_grad()
def _prefix_scores(pooling: Pooling, z: torch.Tensor, v: torch.Tensor, orders: torch.Tensor) -> torch.Tensor:
    """Return the scores of the first 1, 2, ..., n instances of each order [R, n]."""
    rows, stat = torch.arange(len(z)), pooling.statistic
    singles = stat.reduce_segments(z, v, rows, num_bags=len(z))
    merged, scores = BagStatistic(*(x[orders[:, 0]] for x in singles)), []
    for at in range(orders.shape[1]):
        if at:
            merged = stat.merge(merged, BagStatistic(*(x[orders[:, at]] for x in singles)))
        scores.append(pooling.score(merged.l, merged.r, merged.n).double())
    return torch.stack(scores, dim=1)


def _gradient(model: BagEnsemble, instances: NDArray[np.float32], typical: NDArray[np.float32]) -> Scores | None:
    """Return the gradient of the score of a bag times its instances minus the typical one; None without a gradient."""
    found = []
    for member in model.members:
        x = torch.from_numpy(np.array(instances, np.float32)).requires_grad_()
        with torch.enable_grad():
            score = member(x, torch.tensor([len(x)])).score.sum()
        if not score.requires_grad:
            return None
        (slope,) = torch.autograd.grad(score, x)
        found.append((slope * (x - torch.from_numpy(typical))).sum(dim=1).detach().double().numpy())
    return np.asarray(np.mean(found, axis=0))
