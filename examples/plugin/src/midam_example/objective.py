"""An objective that keeps a number for each bag: one-way partial AUC."""

from collections.abc import Mapping

import torch
from torch import Tensor

from midam.functional.objectives import ClassWeights
from midam.train import Objective


class FocusedAUC(Objective):
    """Partial AUC at low false positive rates, in its soft form (Zhu et al., ICML 2022, SOPA-s).

    For each positive bag i, the negative bags have the weights exp(L_ij / focus), with the squared hinge L_ij of the
    pair, so that negative bags with a too high rank dominate. The mean of these weights over all negative bags is
    tracked for each positive bag.

    Parameters
    ----------
    num_bags : int
        Number of bags of the training set.
    margin : float
        Margin of the squared hinge, > 0.
    focus : float
        lambda > 0: with a smaller value, fewer negative bags dominate.
    rate : float
        Weight of the new sample in the tracked mean, in (0, 1].
    """

    name = "focused-auc"
    inner: Tensor

    def __init__(self, *, num_bags: int, margin: float, focus: float = 1.0, rate: float = 0.5) -> None:
        super().__init__()
        self.margin, self.focus, self.rate = margin, focus, rate
        self.register_buffer("inner", torch.zeros(num_bags))

    def loss(
        self, h: Tensor, labels: Tensor, *, weights: ClassWeights, index: Tensor | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss [] of scores h [K], and the tracked means that `commit` writes."""
        pairs = torch.relu(self.margin - (h.unsqueeze(1) - h.unsqueeze(0))).square()
        pull = torch.exp(pairs.detach() / self.focus)
        new = (pull * weights.negative).sum(dim=1)
        old = self.inner[index]
        tracked = torch.where(old > 0, torch.lerp(old, new, self.rate), new)
        share = weights.positive.unsqueeze(1) * weights.negative * pull / tracked.unsqueeze(1).clamp(min=1e-6)
        kept = torch.where(labels > 0, tracked, old)
        return (share * pairs).sum(), {"inner": self.inner.index_copy(0, index, kept)}
