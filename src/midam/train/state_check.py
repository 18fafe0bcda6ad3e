"""The check after a training that the tracked state of training bags is that of the whole bags."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.evaluate.predict import stream_bags
from midam.nn.scorer import BagOutput, rows_of
from midam.nn.tracked import TrackedStatistic

if TYPE_CHECKING:
    from midam.train.loop import Training

_LEAST_SCORED, _MOST_SCORED = 20, 100  # training bags of a stratum, scored after a training
_MOST_APART = 0.25  # of the metric at the tracked state above that of whole bags


@dataclass(frozen=True)
class StateError:
    """The tracked state of some training bags, compared with the whole bags at the weights after the last step.

    Attributes
    ----------
    bags : int
        Number of bags compared.
    tracked, whole : float
        Main metric of the scores at the tracked state, as an epoch reports it, and of the scores of the whole bags.
    l, r : float
        Mean squared errors of l and r (None without values); of a relative state up to a shift common to all bags,
        which its level adds in a step.
    enough : bool
        Whether there are enough bags to tell.
    """

    bags: int
    tracked: float
    whole: float
    l: float  # noqa: E741
    r: float | None
    enough: bool

    @property
    def wrong(self) -> bool:
        """Whether the training has climbed at its state, and not on the bags."""
        return self.enough and self.tracked - self.whole > _MOST_APART


@torch.no_grad()
def state_error(training: "Training") -> StateError | None:
    """Compare the tracked state with whole bags, at the current weights; None without a state or a metric.

    It scores at most 100 training bags of each stratum, and as many instances as a quarter of those that the
    training has drawn, but at least 20 bags of each stratum.
    """
    estimator, model = training.estimator, training.trained  # the reader may have standardized the instances already
    if not isinstance(estimator, TrackedStatistic):
        return None
    index, enough = _compared(training, estimator)
    batch = WholeBatch.unlabeled(training.reader, index, training.covariates)
    values = training.labels[index.to(training.labels.device)].cpu().numpy()
    if not len(index) or not training.target.has_metric(values):
        return None
    model.eval()
    whole = stream_bags(model, batch, chunk_size=training.config.run.chunk_size)
    rows = rows_of(index, estimator.branches)
    state, want = estimator.bag_state[rows.to(whole.l.device), 1:], torch.cat([whole.l.unsqueeze(1), whole.r], 1)
    if estimator.relative:
        apart = (want - state).view(len(index), estimator.branches, -1).mean(dim=0)
        state = state + apart.repeat(len(index), 1)
    tracked = model.with_covariates(BagOutput(state[:, 0], state[:, 1:], whole.n, whole.pooling), batch.covariates)
    seen = [training.objective.seen(output).double().cpu().numpy() for output in (tracked, whole)]
    if not all(np.isfinite(scores).all() for scores in seen):
        return None
    metrics = [training.target.metric_value(values, scores) for scores in seen]
    squares = (state - want).double().square()
    r = float(squares[:, 1:].mean()) if squares.shape[1] > 1 else None
    return StateError(len(index), metrics[0] or 0.0, metrics[1] or 0.0, float(squares[:, 0].mean()), r, enough)


def _compared(training: "Training", estimator: TrackedStatistic) -> tuple[Tensor, bool]:
    """Return the visited bags [K] that are scored, and whether they are enough to tell."""
    visited = estimator.bag_state[:: estimator.branches, 0].cpu().numpy() > 0
    strata = training.target.strata(training.labels.cpu().numpy())
    order = np.random.default_rng(training.config.run.seed).permutation(np.flatnonzero(visited))
    rank = np.empty(len(order), dtype=np.int64)  # within the stratum
    for stratum in np.unique(strata):
        inside = strata[order] == stratum
        rank[inside] = np.arange(inside.sum())
    order = order[np.argsort(rank, kind="stable")]
    rank = np.sort(rank, kind="stable")
    sizes = training.reader.sizes.numpy()[order]
    drawn = float(estimator.bag_state[:, 0].sum()) / estimator.branches * training.config.training.batch[2]
    few = (rank < _LEAST_SCORED) | (np.cumsum(sizes) <= drawn / 4)
    chosen = order[few & (rank < _MOST_SCORED)]
    counts = np.unique(strata[chosen], return_counts=True)[1]
    return torch.from_numpy(np.sort(chosen)), bool(len(counts) and counts.min() >= _LEAST_SCORED)
