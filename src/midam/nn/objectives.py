"""The objectives: losses of a batch of bags, as modules with parameters and remembered state.

`midam.train` calls them with the output of an estimator, a custom training loop with the scores of a
`midam.nn.TrackedPooling`.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, get_args

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require, require_choice, require_positive
from midam.functional import columns as per_column
from midam.functional import objectives as f
from midam.functional.pairs import Pairs, comparable, squared_hinge
from midam.nn.pooling.base import DescribedState, plain_parameters, upcast, wide_enough
from midam.nn.scorer import BagOutput, SeenBags
from midam.process_group import joined
from midam.registry import OBJECTIVES, NamedPart

# A loss [], and new values of buffers by name.
Proposal = tuple[Tensor, Mapping[str, Tensor]]

# Of each kind of pairs, the bags that it orders, the labels that it takes, and how to give them.
_KINDS: dict[str, tuple[str, str, str]] = {
    "binary": ("bags of two classes", "labels 0 and 1", "give 1 to positive bags and 0 to the others"),
    "classes": ("bags of several classes", "a class number [K] from 0 to C - 1", "give the number of the class"),
    "labels": ("bags with several labels", "labels [K, C] of 0, 1 or NaN", "give NaN where a label is unknown"),
    "order": ("bags with a grade or a number", "one number for each bag", "give grades as 0, 1, 2, ..."),
    "survival": ("bags with a time and an event", "labels [K, 2], time and event (0 or 1)", "stack the two columns"),
}
_BINARY = frozenset({"binary"})
_STILL = 50  # commits in which a parameter with a gradient does not move
_COLUMNS = frozenset({"binary", "classes", "labels"})


class Objective(NamedPart, DescribedState):
    """Base of the objectives: a call with the scores of K bags and their labels returns the loss [].

    Each training step is a forward pass, ``loss.backward()``, ``optimizer.step()`` and `midam.nn.commit`. In evaluation
    mode, or without gradient, nothing is remembered. If `torch.distributed` is set up, each process passes equally many
    bags per step; every process computes the loss of all of them, and scales the gradient of its bags for the average
    over the processes that `torch.nn.parallel.DistributedDataParallel` computes.

    A subclass implements `loss`, for bags of two classes, and `column_loss` if it `serves` other labels. Its parameters
    are learned without weight decay; its buffers (a dual variable, a row for each training bag) are remembered state: a
    loss proposes new values, and `commit` writes them after the optimizer step.

    Its constructor gets the settings and sizes that it names as parameters: ``num_bags``, ``columns``, ``pairs`` and
    any setting.

    Parameters
    ----------
    columns : int >= 1
        C, the score columns.
    pairs : str
        Which pairs of bags the labels order: a kind of `midam.functional.pairs` in `serves`.

    Attributes
    ----------
    name : str
        Name in messages; by default that of the class.
    squash : bool
        True if the losses take scores in [0, 1], False if they take logits.
    serves : frozenset of str
        The supported kinds of pairs.
    per_bag : bool
        Whether it remembers each training bag and needs the `index` of the bags.
    both_classes : bool
        Whether it learns nothing from a batch of one class.
    rates : tuple of str
        Attributes in (0, 1] that fall with the learning rate.

    Examples
    --------
    A custom objective, the mean squared error of the scores:

    >>> class BrierLoss(Objective):
    ...     def loss(self, h, labels, /, *, weights, index):
    ...         return (h - labels).square().mean(), {}
    >>> loss = BrierLoss()(torch.tensor([0.9, 0.3]), torch.tensor([1, 0]))
    >>> round(loss.item(), 2)
    0.05
    """

    per_bag: ClassVar[bool] = False
    num_bags: int | None = None  # the limit of the index
    both_classes: ClassVar[bool] = False
    squash: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = _BINARY

    def __init__(self, *, columns: int = 1, pairs: Pairs = "binary") -> None:
        super().__init__()
        self.check_pairs(pairs)
        self.columns, self.pairs = columns, pairs
        self._proposed: dict[str, Tensor] = {}
        self._checked = self._warned = False
        self.last: list[Tensor] = []  # the loss that waits for `commit`
        self._still = StillParameters()

    def _meaning(self) -> dict[str, Any]:
        return {"loss": self.name, **plain_parameters(self, but=("num_bags", *self.rates))}

    @classmethod
    def check_pairs(cls, pairs: str) -> None:
        """Refuse an unsupported kind of pairs with a `ConfigError` that names other objectives."""
        if pairs not in cls.serves:
            names = OBJECTIVES.where(lambda objective: pairs in objective.serves)
            kind, others = _KINDS.get(pairs, (pairs,))[0], ", ".join(names)
            raise ConfigError(f"Expected an objective for {kind}, got {cls.name!r}; use one of {others}.")

    def loss(self, h: Tensor, labels: Tensor, /, *, weights: f.ClassWeights, index: Tensor | None) -> Proposal:
        """Return the loss [] of a batch, and new values of buffers by name, without graph.

        `h` [K] are scores, or logits if `squash` is False, and `labels` [K] are 0 or 1. `weights` average over the bags
        of each class; `index` (int64 [K]) are the positions of the bags in the training set, if known.
        """
        raise NotImplementedError

    def column_loss(self, h: Tensor, labels: Tensor, /, *, index: Tensor | None) -> Proposal:
        """Return the same as `loss` for targets other than two classes, from h [K, C] and labels [K, L].

        For "classes" and "labels" the labels are 0, 1 or NaN for each column, [K, C], as in `midam.functional.columns`;
        for "order" and "survival", with one column, they are the labels of the bags.
        """
        raise NotImplementedError

    def forward(
        self,
        output: BagOutput | SeenBags | Tensor,
        labels: Tensor,
        index: Tensor | None = None,
        *,
        weights: f.ClassWeights | None = None,
    ) -> Tensor:
        """Return the loss [] of K bags.

        Parameters
        ----------
        output : Tensor [K] or [K, C], or BagOutput
            Scores in [0, 1], or logits if `squash` is False.
        labels : Tensor [K], or [K, L] for targets other than two classes
            0 or 1; for "classes" class numbers from 0; for "survival" time and event.
        index : Tensor [K], int64, optional
            Positions of the bags in the training set, for an objective that remembers each bag.
        weights : ClassWeights, optional
            Averaging weights of a batch of two classes; by default they come from the labels.
        """
        if isinstance(output, Tensor):
            return self._loss_of_scores(output, labels, index)
        h = self.seen(output)
        if self.pairs != "binary":
            y = per_column.column_labels(labels, columns=self.columns) if self.pairs == "classes" else labels
            loss, proposed = self.column_loss(h.view(len(labels), self.columns), y, index=index)
            self._propose(proposed)
            return loss
        if weights is None or weights.positive.dtype != h.dtype:  # float32 weights, but a float64 model
            bags = None if weights is None else weights.bags
            weights = f.class_weights(labels, dtype=h.dtype)
            weights = weights if bags is None else weights.weighted(bags.to(h.dtype))
        loss, proposed = self.loss(h, labels, weights=weights, index=index)
        self._propose(proposed)
        return loss

    def _loss_of_scores(self, scores: Tensor, labels: Tensor, index: Tensor | None) -> Tensor:
        scores, labels = upcast(scores), torch.as_tensor(labels, device=scores.device)
        labels = labels if labels.is_floating_point() else labels.to(scores.dtype)
        if self.pairs == "binary":
            scores, labels = scores.flatten(), labels.flatten()
        elif labels.ndim == 1:
            labels = labels.unsqueeze(1)
        if not 0 < len(scores) == len(labels) == scores.numel() / self.columns:
            raise ConfigError(
                f"Expected {self.columns} scores and one row of labels for each bag, got scores {list(scores.shape)} "
                f"and labels {list(labels.shape)}; give both for the same bags."
            )
        if self._trains and self.per_bag and index is None:
            raise ConfigError(
                f"Expected the index of the bags for {self.name!r}, which keeps a state of each bag, got none; call it "
                "with (scores, labels, index)."
            )
        if index is not None:
            index = index if self.num_bags is None else checked_index(index, len(scores), self.num_bags)
            index = index.to(scores.device)
        ranks = joined(scores.device) if self._trains else None
        if ranks is not None:
            ranks.check_equal(len(scores))
            scores, labels = ranks.join(scores), ranks.join(labels)
            index = None if index is None else ranks.join(index)
        warn_of_missing_commit(self, self._trains and bool(self.last))
        if self.squash and self.pairs == "binary" and not self._checked and bool(((scores < 0) | (scores > 1)).any()):
            text = f"Expected scores in [0, 1] for {self.name!r}, got others, perhaps logits"
            warnings.warn(f"{text}; give the scores of a TrackedPooling, or torch.sigmoid(logits)", stacklevel=4)
        self._check_labels(labels.view(len(labels), -1))
        loss = self.forward(SeenBags.of(scores), labels, index)
        if self._trains:
            self.last[:] = [loss.detach()]
        if self._proposed and loss.requires_grad:
            self._refuse_late_backward(loss)
        return loss

    def _refuse_late_backward(self, loss: Tensor) -> None:
        """Refuse a first backward pass after `commit`, which changes values that the gradient needs."""
        passed: list[Tensor] = []

        def check(grad: Tensor) -> None:
            if not (passed or self._proposed):
                raise ConfigError(
                    f"Expected loss.backward() before commit, got commit first (of {self.name!r}); in each step, call "
                    "loss.backward(), optimizer.step() and commit(pool, loss_fn), in this order."
                )
            passed.append(grad)

        loss.register_hook(check)  # type: ignore[no-untyped-call]

    def _check_labels(self, labels: Tensor) -> None:
        """Refuse other labels [K, L], and warn once about a batch of one class; on a GPU check one batch only."""
        if labels.is_cuda and self._checked:
            return
        self._checked = True
        width = {"labels": self.columns, "survival": 2}.get(self.pairs, 1)
        time, last = labels[:, :1], self.columns - 1 if self.pairs == "classes" else 1
        values = torch.where(time.isfinite(), labels[:, 1:], time) if self.pairs == "survival" else labels
        unknown = values.isnan() & (self.pairs in _COLUMNS - _BINARY)
        wrong = values[(values.clamp(0, last) != values.round()) & ~unknown]
        if labels.shape[1] != width or (len(wrong) and self.pairs != "order"):
            _, wanted, advice = _KINDS[self.pairs]
            got = f"{wrong[0].item():g}" if labels.shape[1] == width else f"shape {list(labels.shape)}"
            raise ConfigError(f"Expected {wanted} for {self.name!r}, got {got}; {advice}.")
        one = self.training and self.both_classes and self.pairs == "binary" and not self._warned
        if one and bool((labels == labels[:1]).all()):
            self._warned = True
            warnings.warn(
                f"Expected both classes in a batch for {self.name!r}, got only label {labels[0].item():g}: there is "
                "nothing to rank; sample batches with midam.data.BalancedBags",
                stacklevel=5,
            )

    @property
    def _trains(self) -> bool:
        """Whether a call belongs to a training step: in training mode, and with a gradient."""
        return self.training and torch.is_grad_enabled()

    def _propose(self, values: Mapping[str, Tensor]) -> None:
        # Not an assignment: setting an attribute of a module takes longer than most kernels here.
        if self._trains:  # an evaluation between forward pass and commit leaves what waits
            self._proposed.clear()
            self._proposed.update(values)

    def seen(self, output: BagOutput | SeenBags | Tensor) -> Tensor:
        """Return the scores or logits that the loss takes, [K], or [K, C] with several columns."""
        return output if isinstance(output, Tensor) else output.score if self.squash else output.logit

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the module as torch does, but keep its numbers in at least float32, as the loss is."""
        return super()._apply(lambda x: wide_enough(fn(x), x), recurse)  # type: ignore[no-untyped-call]

    def commit(self, loss: Tensor) -> None:
        """Write the values that the last batch proposed, unless its loss is not finite."""
        self._still.look(self, name="loss_fn")
        self.last.clear()
        if not self._proposed:
            return
        # Not isfinite, which is four kernels: abs(.) < inf is false for NaN and infinity too.
        finite = None if known_finite(loss) else loss.abs() < math.inf
        for name, new in self._proposed.items():
            old = self.get_buffer(name)
            if finite is None:
                old.copy_(new)
                continue
            torch.where(finite, new.to(old.dtype), old, out=old)
        self._proposed.clear()


class StillParameters:
    """The watch over the parameters of a module: it warns once if none of them ever moves."""

    def __init__(self) -> None:
        self._commits, self._start = 0, torch.empty(0)

    def look(self, module: nn.Module, *, name: str) -> None:
        """Warn if parameters that have a gradient have not moved for 50 calls: no optimizer has them."""
        if self._commits < 0 or any(x.grad is None or x.is_cuda for x in module.parameters()):
            return
        values = torch.cat([torch.empty(0), *(x.detach().flatten() for x in module.parameters())])
        if not len(values) or (self._commits and not torch.equal(values, self._start)):
            self._commits = -1
            return
        self._commits, self._start = self._commits + 1, values
        if self._commits > _STILL:
            self._commits = -1
            text = f"no parameter of {type(module).__name__} has moved in {_STILL} steps"
            warnings.warn(f"{text}: give {name}.parameters() to the optimizer", stacklevel=4)


class MinMaxAUCLoss(Objective):
    """Min-max AUC objective (eq. MI_DAM); see `midam.functional.objectives.minmax_auc`.

    Each of several columns has separate centers and a separate dual variable. A column that lacks a class in a batch
    contributes nothing.

    Parameters
    ----------
    columns, pairs
        As in `Objective`.
    margin : float
        c > 0.
    dual_lr : float
        eta' in (0, 1].
    objective_weight : {"paper", "pairwise"}
        F3 as printed, or doubled so that the saddle value is the pairwise square loss.
    dual_domain : {"nonnegative", "real"}
        Omega, the domain of the dual variable.
    center_start : float
        Initial value of a and b. With 0, as in the paper, a network whose first scores are near 0.5 is first pulled
        towards 0, where the sigmoid of a deep network has hardly any gradient. `midam fit` takes 0 for vectors and 0.5
        for images.

    Attributes
    ----------
    positive_center, negative_center : Parameter [], or [C] with several columns
        a and b, without weight decay: see `midam.train.build.parameter_groups`.
    dual : Tensor [], or [C]
        alpha, a buffer that only `commit` writes.

    Examples
    --------
    >>> from midam.nn import MinMaxAUCLoss, commit
    >>> objective = MinMaxAUCLoss()
    >>> scores = torch.tensor([0.9, 0.4, 0.6], requires_grad=True)
    >>> loss = objective(scores, torch.tensor([1, 1, 0]))
    >>> loss.backward()
    >>> commit(objective)  # after the optimizer has stepped
    >>> round(loss.item(), 3), round(objective.dual.item(), 3)
    (0.095, 0.95)
    """

    name = "minmax-auc"
    both_classes = True
    serves = _COLUMNS
    rates = ("dual_lr",)
    dual: Tensor

    def __init__(
        self,
        *,
        columns: int = 1,
        pairs: Pairs = "binary",
        margin: float = 1.0,
        dual_lr: float = 1.0,
        objective_weight: f.Weight = "paper",
        dual_domain: f.Domain = "nonnegative",
        center_start: float = 0.5,
    ) -> None:
        super().__init__(columns=columns, pairs=pairs)
        require(center_start, float, "center_start", "give a score, such as 0.5")
        require_positive("the paper's code uses 1", most=1, dual_lr=dual_lr)
        require_choice(get_args(f.Weight), objective_weight=objective_weight)
        require_choice(get_args(f.Domain), dual_domain=dual_domain)
        self.margin = checked_margin(margin)
        self.dual_lr = dual_lr
        self.objective_weight: f.Weight = objective_weight
        self.dual_domain: f.Domain = dual_domain
        shape = () if columns == 1 else (columns,)
        self.positive_center = nn.Parameter(torch.full(shape, float(center_start)))
        self.negative_center = nn.Parameter(torch.full(shape, float(center_start)))
        self.register_buffer("dual", torch.zeros(shape))

    def loss(self, h: Tensor, _: Tensor, /, *, weights: f.ClassWeights, **__: Any) -> Proposal:
        """Return the loss [] of scores h [K] and the next alpha, which does not change if a class is missing."""
        a, b, kind = self.positive_center, self.negative_center, self.objective_weight
        loss, gap = f.minmax_auc(h, weights, a=a, b=b, alpha=self.dual, margin=self.margin, weight=kind)
        dual = f.dual_step(self.dual, gap, dual_lr=self.dual_lr, domain=self.dual_domain, both=weights.both)
        return loss, {"dual": dual}

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Return the loss [] of scores h [K, C] and the next alpha [C], unchanged in columns that lack a class."""
        weights = f.class_weights(labels, dtype=h.dtype)
        a, b, alpha = (x.view(-1) for x in (self.positive_center, self.negative_center, self.dual))
        kind = self.objective_weight
        loss, gap = per_column.minmax_auc(h, weights, a=a, b=b, alpha=alpha, margin=self.margin, weight=kind)
        dual = f.dual_step(alpha, gap, dual_lr=self.dual_lr, domain=self.dual_domain, both=weights.both)
        return loss, {"dual": dual.view_as(self.dual)}


class PairwiseAUCLoss(Objective):
    """Squared hinge over all pairs of a positive and a negative bag of the batch, or over all comparable pairs.

    Parameters
    ----------
    columns, pairs
        As in `Objective`; all kinds of pairs are supported.
    margin : float
        c > 0.

    Examples
    --------
    >>> scores = torch.tensor([0.9, 0.4, 0.6])
    >>> round(PairwiseAUCLoss()(scores, torch.tensor([1, 1, 0])).item(), 3)
    0.965

    For survival, the labels are time and event, and a high score means a short time:

    >>> labels = torch.tensor([[2.0, 1.0], [5.0, 0.0], [3.0, 1.0]])
    >>> round(PairwiseAUCLoss(pairs="survival")(scores, labels).item(), 3)
    0.46
    """

    name = "pairwise"
    both_classes = True
    serves = frozenset(_KINDS)

    def __init__(self, *, columns: int = 1, pairs: Pairs = "binary", margin: float = 1.0) -> None:
        super().__init__(columns=columns, pairs=pairs)
        self.margin = checked_margin(margin)

    def loss(self, h: Tensor, _: Tensor, /, *, weights: f.ClassWeights, **__: Any) -> Proposal:
        """Return the loss [] of scores h [K]; nothing is proposed."""
        return f.pairwise_squared_hinge(h, weights, margin=self.margin), {}

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Return the loss [] of scores h [K, C]; nothing is proposed."""
        return squared_hinge(h, comparable(labels, pairs=self.pairs), margin=self.margin), {}


class BCELoss(Objective):
    """Binary cross-entropy of the bag logits, of each column; mean, max and smoothed-max then pool raw scores.

    Examples
    --------
    >>> logits = torch.tensor([2.0, -1.0, 0.0])
    >>> round(BCELoss()(logits, torch.tensor([1, 0, 1])).item(), 4)
    0.3778
    """

    name = "bce"
    squash = False
    serves = _COLUMNS

    def loss(self, h: Tensor, labels: Tensor, /, *, weights: f.ClassWeights, **_: Any) -> Proposal:
        """Return the loss [] of logits h [K]; nothing is proposed."""
        return f.bce(h, labels, bags=weights.bags), {}

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Return the loss [] of logits h [K, C]; nothing is proposed."""
        return per_column.bce(h, labels), {}


def checked_index(index: Any, count: int, bags: int) -> Tensor:
    """Return the positions [count] of different bags as int64; check them on the CPU only: a GPU would synchronize."""
    advice = "pass positions of bags in the training set, each once per batch"
    require(index, Tensor, "index", advice)
    wrong = index.shape != (count,) or index.is_floating_point()
    if not wrong and index.device.type == "cpu":
        wrong = len(torch.unique(index)) < count or bool((index < 0).any()) or bool((index >= bags).any())
    if wrong:
        raise ConfigError(f"Expected {count} different bags from 0 to {bags - 1} as index, got {index}; {advice}.")
    return torch.as_tensor(index, dtype=torch.int64)


def known_finite(loss: Tensor) -> bool:
    """Return whether a loss is known to be finite without waiting for a device: one number on the CPU."""
    return loss.ndim == 0 and loss.device.type == "cpu" and math.isfinite(loss.item())


def warn_of_missing_commit(module: nn.Module, waiting: bool) -> None:
    """Warn once if a module is called again before `midam.nn.commit` has written its proposed values."""
    if waiting and module.training and not getattr(module, "_warned_of_commit", False):
        module._warned_of_commit = True  # type: ignore[assignment]
        event = f"{type(module).__name__} was called again before midam.nn.commit"
        warnings.warn(f"{event}: call commit after each backward pass, or no state is kept", stacklevel=4)


def checked_margin(margin: float) -> float:
    """Return a margin; raise a `ConfigError` if it is not above 0."""
    require_positive("scores lie in [0, 1], so try 1.0", margin=margin)
    return margin


class CrossEntropyLoss(Objective):
    """Cross-entropy of the softmax of the bag logits, for bags of several classes.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 3.0]])
    >>> round(CrossEntropyLoss(columns=3)(logits, torch.tensor([0, 2])).item(), 4)
    0.2047
    """

    name = "cross-entropy"
    squash = False
    serves = frozenset({"classes"})

    def __init__(self, *, columns: int, pairs: Pairs = "classes") -> None:
        super().__init__(columns=columns, pairs=pairs)

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Return the loss [] of logits h [K, C]; nothing is proposed."""
        return per_column.cross_entropy(h, labels), {}


class CoxLoss(Objective):
    """Partial likelihood of Cox's model on the bags of a batch; the bag logit is the log risk.

    See `midam.functional.objectives.cox`. In a small batch few bags are at risk, and the loss of a single bag is 0.

    Parameters
    ----------
    pairs
        As in `Objective`.

    Examples
    --------
    Three bags with their log risks, and with time and event as labels:

    >>> log_risk = torch.tensor([1.0, -1.0, 0.0])
    >>> labels = torch.tensor([[2.0, 1.0], [9.0, 0.0], [5.0, 1.0]])
    >>> round(CoxLoss()(log_risk, labels).item(), 4)
    0.3604
    """

    name = "cox"
    squash = False
    serves = frozenset({"survival"})

    def __init__(self, *, pairs: Pairs = "survival") -> None:
        super().__init__(pairs=pairs)

    def column_loss(self, h: Tensor, labels: Tensor, /, **_: Any) -> Proposal:
        """Return the loss [] of log risks h [K, 1] and labels [K, 2], time and event; nothing is proposed."""
        if len(h) == 1 and not self._warned:
            self._warned = True
            message = "the loss of 'cox' on a batch of one bag is 0: use at least two bags per batch"
            warnings.warn(message, stacklevel=3)
        return f.cox(h.squeeze(1), labels[:, 0], labels[:, 1]), {}
