"""An estimator: a different point at which the statistic of a bag is linearized."""

import torch
from torch import Tensor

from midam.data import SampledBatch
from midam.functional.logmean import linearize, point_weights, reduce
from midam.nn import BagOutput, BagScorer
from midam.train import Estimator, encoded_sample


class CrossFitted(Estimator):
    """The statistic of each half of the drawn instances is the point for the gradient of the other half.

    In a mini-batch, the point and the gradient have the same noise; with two halves, their noise is independent.
    """

    name = "cross-fitted"
    needs_trackable = True  # the point is not from the same sample: a maximum cannot be linearized there

    def forward(self, model: BagScorer, batch: SampledBatch) -> BagOutput:
        """Return the bag output at the mean of the two points, with the gradient of the whole sample."""
        z, v = encoded_sample(model, batch)
        half = max(1, z.shape[1] // 2)
        mask = torch.ones_like(z, dtype=torch.bool) if batch.mask is None else batch.mask
        parts = [(slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))]
        if z.shape[1] == 1:
            parts = [(slice(None), slice(None))]
        outputs = [self._at(z, v, mask, point, sample) for point, sample in parts]
        l, r = (torch.stack(part).mean(dim=0) for part in zip(*outputs))  # noqa: E741
        return BagOutput(l, r, mask.sum(dim=1).to(z.dtype), model.pooling)

    def _at(self, z: Tensor, v: Tensor, mask: Tensor, point: slice, sample: slice) -> tuple[Tensor, Tensor]:
        # If a bag has too few instances for two halves, each half is the whole draw.
        here = torch.where(mask[:, point].any(dim=1, keepdim=True), 1, 0).bool()
        at = mask & _inside(mask, point) | mask & ~here
        stat = reduce(z.detach(), v.detach(), mask=at)
        there = mask & _inside(mask, sample)
        there = torch.where(there.any(dim=1, keepdim=True), there, mask)
        w = point_weights(z, stat.l, there.sum(dim=1), mask=there)
        return linearize(z, v, stat.l, stat.r, w)


def _inside(mask: Tensor, part: slice) -> Tensor:
    inside = torch.zeros_like(mask)
    inside[:, part] = True
    return inside
