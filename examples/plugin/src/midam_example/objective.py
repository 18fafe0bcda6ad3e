"""An objective that remembers a number for each bag: one-way partial AUC."""

from collections.abc import Mapping

import torch
from torch import Tensor

from midam.functional.objectives import ClassWeights
from midam.train import Objective


class FocusedAUC(Objective):
    """Partial AUC at low false positive rates, in its soft form (Zhu et al., ICML 2022, SOPA-s).

    For each positive bag i the negatives count by exp(L_ij / focus), L_ij the squared hinge of the pair, so that those
    ranked too high decide. The mean of these numbers over all negatives is tracked for each bag.

    Parameters
    ----------
    num_bags : int
        Bags of the training set.
    margin : float
        Of the squared hinge, > 0.
    focus : float
        lambda > 0: smaller looks at fewer negatives.
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
        """Loss [] of scores h [K], and the tracked means that `commit` writes."""
        pairs = torch.relu(self.margin - (h.unsqueeze(1) - h.unsqueeze(0))).square()
        pull = torch.exp(pairs.detach() / self.focus)
        new = (pull * weights.negative).sum(dim=1)
        old = self.inner[index]
        tracked = torch.where(old > 0, torch.lerp(old, new, self.rate), new)
        share = weights.positive.unsqueeze(1) * weights.negative * pull / tracked.unsqueeze(1).clamp(min=1e-6)
        kept = torch.where(labels > 0, tracked, old)
        return (share * pairs).sum(), {"inner": self.inner.index_copy(0, index, kept)}
