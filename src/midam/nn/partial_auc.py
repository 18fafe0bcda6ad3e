"""Objectives of the top of a ranking, for screening; they remember a state of each positive bag.

The equations and their sources are in `midam.functional.partial_auc`.
"""

import torch
from torch import Tensor

from midam.errors import ConfigError, require_positive
from midam.functional import partial_auc
from midam.functional.objectives import ClassWeights
from midam.nn.objectives import Objective, Proposal, checked_margin

_NEW = -1.0  # marks a missing logarithm; the logarithms are at least 0


class PartialAUCLoss(Objective):
    """Partial AUC: the AUC at low false positive rates (one-way), optionally of the hardest positive bags (two-way).

    By default all negative bags count, higher ones more (SOPA-s); with `max_fpr` only the highest negative bags count
    (SOPA); with `tpr_temperature` the lower positive bags also count more (SOTA-s).

    Parameters
    ----------
    num_bags : int
        Bags of the training set.
    margin : float
        c > 0.
    max_fpr : float, optional
        beta in (0, 1], the largest false positive rate that counts.
    fpr_temperature : float
        lam > 0, in units of the squared hinge: the lower, the more the higher negative bags count; near 0 only the
        highest. Unused with `max_fpr`.
    tpr_temperature : float, optional
        lam' > 0: the same for the lower positive bags; default: all count equally.
    pair_rate : float
        Weight in (0, 1] of a batch in the remembered state; with `max_fpr`, the step size of the thresholds.

    Attributes
    ----------
    tail : Tensor [N]
        log u of each positive bag, -1 before its first batch; with `max_fpr` its threshold s.
    overall : Tensor []
        log v of the two-way objective, -1 before the first batch.

    Examples
    --------
    >>> from midam.nn import PartialAUCLoss, commit
    >>> objective = PartialAUCLoss(num_bags=100, max_fpr=0.1)
    >>> scores = torch.tensor([0.9, 0.4, 0.6], requires_grad=True)
    >>> loss = objective(scores, torch.tensor([1, 1, 0]), torch.tensor([12, 40, 7]))
    >>> loss.backward()
    >>> commit(objective)
    >>> torch.nonzero(objective.tail).flatten().tolist()  # the positive bags that are remembered
    [12, 40]
    """

    name = "partial-auc"
    both_classes = True
    per_bag = True
    rates = ("pair_rate",)
    tail: Tensor
    overall: Tensor

    def __init__(
        self,
        *,
        num_bags: int,
        margin: float = 1.0,
        max_fpr: float | None = None,
        fpr_temperature: float = 0.2,
        tpr_temperature: float | None = None,
        pair_rate: float = 0.9,
    ) -> None:
        super().__init__()
        require_positive("1 forgets the past", most=1, pair_rate=pair_rate)
        tpr = {} if tpr_temperature is None else {"tpr_temperature": tpr_temperature}
        require_positive("the losses lie in [0, 4], so try 0.2", fpr_temperature=fpr_temperature, **tpr)
        if max_fpr is not None:
            require_positive("0.05 is a specificity of at least 95%", most=1, max_fpr=max_fpr)
        if max_fpr is not None and tpr_temperature is not None:
            raise ConfigError(
                "Expected no tpr_temperature with max_fpr, which limits only the FPR, got both; use fpr_temperature "
                "instead of max_fpr."
            )
        self.margin, self.num_bags = checked_margin(margin), num_bags
        self.max_fpr = max_fpr
        self._new = _NEW if max_fpr is None else 0.0
        self.fpr_temperature, self.tpr_temperature, self.pair_rate = fpr_temperature, tpr_temperature, pair_rate
        self.register_buffer("tail", torch.full((num_bags,), self._new))
        self.register_buffer("overall", torch.tensor(_NEW))

    def loss(self, h: Tensor, _: Tensor, /, *, weights: ClassWeights, index: Tensor | None) -> Proposal:
        """Return the loss [] of scores h [K] and the new state, which is empty without an `index`."""
        losses = partial_auc.pair_losses(h, margin=self.margin)
        rows = _rows(self.tail, index, count=len(h), new=self._new)
        if self.max_fpr is not None:
            of_bags = partial_auc.partial_auc(losses, weights, s=rows, rate=self.pair_rate, max_fpr=self.max_fpr)
            return of_bags.loss, _updated_rows(self.tail, index, of_bags.rows, name="tail")
        estimate = partial_auc.soft_partial_auc(
            losses,
            weights,
            log_u=rows,
            log_v=self.overall if index is not None else torch.full_like(self.overall, _NEW),
            rate=self.pair_rate,
            fpr_temperature=self.fpr_temperature,
            tpr_temperature=self.tpr_temperature,
        )
        written = _updated_rows(self.tail, index, estimate.log_u, name="tail")
        return estimate.loss, written and written | {"overall": estimate.log_v}


class AveragePrecisionLoss(Objective):
    """Average precision (SOAP), the area under the curve of precision and recall.

    The precision is that among the training bags, whatever the share of positive bags in a batch.

    Parameters
    ----------
    num_bags : int
        Bags of the training set.
    margin : float
        c > 0.
    pair_rate : float
        Weight in (0, 1] of a batch in the remembered state.

    Attributes
    ----------
    ranks : Tensor [N, 2]
        Mean losses of each positive bag against the positive and against the negative bags; 0 before its first batch.

    Examples
    --------
    >>> from midam.nn import AveragePrecisionLoss, commit
    >>> objective = AveragePrecisionLoss(num_bags=100)
    >>> scores = torch.tensor([0.9, 0.4, 0.6], requires_grad=True)
    >>> loss = objective(scores, torch.tensor([1, 1, 0]), torch.tensor([12, 40, 7]))
    >>> loss.backward()
    >>> commit(objective)
    >>> objective.ranks[[12, 40]].round(decimals=2)
    tensor([[0.6200, 0.4900],
            [1.6200, 1.4400]])
    """

    name = "average-precision"
    both_classes = True
    per_bag = True
    rates = ("pair_rate",)
    ranks: Tensor

    def __init__(self, *, num_bags: int, margin: float = 1.0, pair_rate: float = 0.9) -> None:
        super().__init__()
        require_positive("1 forgets the past", most=1, pair_rate=pair_rate)
        self.margin, self.pair_rate, self.num_bags = checked_margin(margin), pair_rate, num_bags
        self.register_buffer("ranks", torch.zeros(num_bags, 2))

    def loss(self, h: Tensor, labels: Tensor, /, *, weights: ClassWeights, index: Tensor | None) -> Proposal:
        """Return the loss [] of scores h [K] and the new state, which is empty without an `index`."""
        estimate = partial_auc.average_precision(
            partial_auc.pair_losses(h, margin=self.margin),
            weights,
            u=_rows(self.ranks, index, count=len(h), new=0.0),
            rate=self.pair_rate,
            prevalence=self._prevalence(labels, index, dtype=h.dtype),
        )
        return estimate.loss, _updated_rows(self.ranks, index, estimate.rows, name="ranks")

    def _prevalence(self, labels: Tensor, index: Tensor | None, *, dtype: torch.dtype) -> Tensor:
        """Return the share of positive bags among all training bags; bags that no batch has held count as negative."""
        positive = labels > 0
        if index is None:
            return positive.to(dtype).mean()
        known = self.ranks[:, 0] > 0
        return known.index_copy(0, index, positive).to(dtype).mean()


def _rows(memory: Tensor, index: Tensor | None, *, count: int, new: float) -> Tensor:
    return memory.new_full((count, *memory.shape[1:]), new) if index is None else memory[index]


def _updated_rows(memory: Tensor, index: Tensor | None, rows: Tensor, *, name: str) -> dict[str, Tensor]:
    return {} if index is None else {name: memory.index_copy(0, index, rows.detach().to(memory.dtype))}
