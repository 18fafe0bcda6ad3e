"""The estimators: the point at which a bag's statistic is linearized, and the sample that carries the gradient.

| estimator         | point                                    | sample            | batch        |
|-------------------|------------------------------------------|-------------------|--------------|
| `MiniBatch`       | the (l, r) of the sample; biased         | B drawn instances | SampledBatch |
| `VarianceReduced` | the bag's tracked (l, r), relative to the step | B drawn instances | SampledBatch |
| `AsPrinted`       | the bag's tracked (l, r) (eq. ui, sm, ab) | B drawn instances | SampledBatch |
| `Exact`           | the whole bag's (l, r), streamed         | all, by chunks    | WholeBatch   |
| `ExactPoint`      | the whole bag's (l, r), streamed         | B drawn instances | WholeBatch   |

The last two are in `midam.train.exact`.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from midam.data.batch import SampledBatch, WholeBatch
from midam.errors import ConfigError
from midam.functional.logmean import MAX_LAG_EXPONENT, linearize, point_weights
from midam.nn.scorer import BagOutput, BagScorer, each, fold_slots, rows_of
from midam.nn.tracked import AUTO, TrackedStatistic
from midam.process_group import Ranks
from midam.registry import NamedPart

_PRINTED_RATE = 0.9


class Estimator(NamedPart, nn.Module):
    """Base of the estimators.

    Called with the scorer and a batch, an estimator returns a `BagOutput` whose score (or logit) any loss may use;
    plain ``loss.backward()`` then gives the estimator's gradient. After the optimizer step, `commit` writes the values
    that the forward pass proposed. Evaluation does not use estimators.

    Its constructor gets the settings and sizes that it names as parameters: ``num_bags``, ``value_size``, ``branches``,
    ``chunk_size``, ``num_instances``, ``seed`` and any other setting. With a pooling of several branches, each bag has
    a row per branch: see `midam.nn.scorer`.

    Attributes
    ----------
    name : str
        Name in messages; by default that of the class.
    whole : bool
        Whether it takes a `WholeBatch`.
    needs_trackable : bool
        Whether it linearizes at points other than that of the sample, which needs a `trackable` statistic: no maximum.
    tracks : bool
        Whether it keeps a state per bag.
    tables : tuple of str
        Buffers with a row per bag, or per branch of a bag; `commit` writes the rows of a batch.
    branched : bool
        Whether it supports poolings with several branches.
    rates : tuple of str
        Attributes in (0, 1] that fall with the learning rate.

    Examples
    --------
    A custom estimator, plain autograd through the sample:

    >>> from midam.data import Bags, BagSampler, InstanceReader, sampled_batches
    >>> from midam.nn import MeanPooling
    >>> from midam.functional.logmean import reduce
    >>> class Plain(Estimator):
    ...     def forward(self, model, batch):
    ...         stat = reduce(*encoded_sample(model, batch), mask=batch.mask)
    ...         return BagOutput(stat.l, stat.r, batch.sizes, model.pooling)
    >>> bags = Bags.from_list([torch.ones(9, 1).numpy(), torch.zeros(5, 1).numpy()], labels=[1, 0])
    >>> sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=2)
    >>> batch = next(sampled_batches(InstanceReader(bags), sampler, torch.tensor([1.0, 0.0])))
    >>> Plain()(BagScorer(nn.Identity(), MeanPooling(1).without_layers()), batch).score.round(decimals=2)
    tensor([0.7300, 0.5000])
    """

    whole: ClassVar[bool] = False
    needs_trackable: ClassVar[bool] = False
    tracks: ClassVar[bool] = False
    tables: ClassVar[tuple[str, ...]] = ()
    branched: ClassVar[bool] = False
    rates: ClassVar[tuple[str, ...]] = ()

    def __call__(self, model: BagScorer, batch: SampledBatch | WholeBatch) -> BagOutput:
        """Return the bag output at the point of the estimator, plus the term of covariates, which is exact."""
        output: BagOutput = super().__call__(model, batch)
        return output if model.covariates is None else model.with_covariates(output, batch.covariates)

    def check(self, model: BagScorer) -> None:
        """Raise a `ConfigError` if this estimator does not support the model."""
        if self.needs_trackable and not model.pooling.statistic.trackable:
            raise ConfigError(
                f"Expected a smooth pooling for the estimator {self.name!r}, got {model.pooling.name!r}; use the "
                "estimator 'minibatch', or 'exact', which back-propagates the maximal instance alone."
            )
        if model.pooling.branches > 1 and not self.branched:
            raise ConfigError(
                f"Expected a pooling with the same weights for all score columns for the estimator {self.name!r}, got "
                f"{model.pooling.name!r} with weights for each of {model.pooling.branches}; use attention 'shared', or "
                "the estimator 'minibatch', 'vrsp', 'exact' or 'exact-point'."
            )

    def start_epoch(self) -> None:
        """Prepare for the steps of an epoch."""

    def commit(self, loss: Tensor) -> None:
        """Write the proposed state, unless the loss [] is not finite."""

    def share(self, ranks: Ranks, mine: Tensor, every: Tensor) -> None:
        """Exchange the committed rows of a step: of `every` bag (int64 [K]), `mine` (int64 [k]) are here."""
        for name in self.tables:
            table, branches = self.get_buffer(name), getattr(self, "branches", 1)
            ranks.share_rows(table, rows_of(mine, branches), rows_of(every, branches), rows=branches)


class MiniBatch(Estimator):
    """Naive mini-batch pooling (the MB rows of the paper): it pools the sample as if it were the bag.

    It is biased for every pooling except the mean. f2 gets the number of drawn instances.

    Parameters
    ----------
    num_instances : int, optional
        B, to refuse a pooling that cannot learn from it.

    Examples
    --------
    >>> from midam.data import Bags, BagSampler, InstanceReader, sampled_batches
    >>> from midam.nn import AttentionPooling
    >>> bags = Bags.from_list([torch.ones(9, 4).numpy(), torch.zeros(5, 4).numpy()], labels=[1, 0])
    >>> sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=2)
    >>> batch = next(sampled_batches(InstanceReader(bags), sampler, torch.tensor([1.0, 0.0])))
    >>> output = MiniBatch(num_instances=2)(BagScorer(nn.Identity(), AttentionPooling(4)), batch)
    >>> output.n
    tensor([2., 2.])
    """

    name = "minibatch"
    branched = True

    def __init__(self, *, num_instances: int | None = None) -> None:
        super().__init__()
        self._num_instances = num_instances

    def check(self, model: BagScorer) -> None:
        """Refuse attention over one instance, whose weight is 1 for any logit."""
        super().check(model)
        if self._num_instances == 1 and model.pooling.weighted and model.pooling.value_size:
            raise ConfigError(
                f"Expected num_instances of at least 2 for {model.pooling.name!r} with the estimator {self.name!r}, "
                "got 1: the weight of a single instance is always 1, so attention gets no gradient; sample more, or "
                "use the estimator 'vrsp'."
            )

    def forward(self, model: BagScorer, batch: SampledBatch) -> BagOutput:
        """Return the bag output at the point of the estimator, with the gradient of the sample."""
        mask = None if batch.mask is None else each(batch.mask, model.pooling.branches)
        stat = model.pooling.statistic.sample(*encoded_sample(model, batch), mask=mask)
        return BagOutput(stat.l, stat.r, stat.n, model.pooling)


class VarianceReduced(TrackedStatistic, Estimator):
    """Variance-reduced stochastic pooling (VRSP), the estimator of MIDAM, with a state that follows the model.

    The tracked statistic of each training bag is a moving average in log space (eq. ui, sm, ab); the gradient of the
    batch is taken at this statistic. It is kept relative to the level of the step (`midam.nn.tracked`). `bag_state`
    holds a row per bag, or per branch of a bag: visits, l, r.

    Parameters
    ----------
    num_bags : int
        Number N of training bags.
    value_size : int
        V of the pooling head.
    branches : int
        G of the pooling head.
    state_rate : float or "auto"
        gamma0 in (0, 1], the weight of the new sample; "auto" is `midam.nn.tracked.usual_rate`. It is 1 at the first
        visit of a bag, and when the sample is the whole bag.
    sizes : int64 array [N], optional
        Numbers of instances of the training bags: with "auto", less is remembered of small ones.

    Examples
    --------
    >>> from midam.data import Bags, BagSampler, InstanceReader, sampled_batches
    >>> from midam.nn import AttentionPooling
    >>> bags = Bags.from_list([torch.ones(9, 4).numpy(), torch.zeros(5, 4).numpy()], labels=[1, 0])
    >>> sampler = BagSampler(bags.labels, bags.sizes, num_positive=1, num_negative=1, num_instances=2)
    >>> batch = next(sampled_batches(InstanceReader(bags), sampler, torch.tensor([1.0, 0.0])))
    >>> model, estimator = BagScorer(nn.Identity(), AttentionPooling(4)), VarianceReduced(num_bags=2, value_size=1)
    >>> loss = estimator(model, batch).score.sum()
    >>> loss.backward()
    >>> estimator.commit(loss)
    >>> estimator.bag_state[:, 0]  # visits of each bag
    tensor([1., 1.])
    """

    name = "vrsp"
    needs_trackable = True
    tracks = True
    tables = ("bag_state",)
    branched = True
    rates = ("state_rate",)

    def forward(self, model: BagScorer, batch: SampledBatch) -> BagOutput:
        """Return the bag output at the point of the estimator, with the gradient of the sample."""
        z, v = encoded_sample(model, batch)
        batch = _row_batch(batch, self.branches)
        whole = batch.sizes if batch.may_be_whole else None
        l_hat, r_hat = self.at_state(z, v, batch.index, sizes=whole, mask=batch.mask)
        return BagOutput(l_hat, r_hat, batch.sizes.to(z.dtype), model.pooling)


class AsPrinted(VarianceReduced):
    """VRSP as the paper prints it: the state holds absolute l and r, for the paper's tables and theory.

    With attention it drifts: a common shift of the logits changes no score, but the weight of this state.

    Parameters
    ----------
    num_bags, value_size, branches
        As in `VarianceReduced`.
    state_rate : float or "auto"
        gamma0 in (0, 1]; "auto" is 0.9, as in the authors' code.
    lag : bool
        Linearize at s^{t-1}, as Algorithm 1 is printed, not at s^t, as in the authors' code. The exponent z - l is then
        clipped at 20, and `clips` counts how often. A bag whose sample is the whole state has its s^t.
    """

    name = "vrsp-printed"
    relative = False
    clips: Tensor

    def __init__(
        self,
        num_bags: int,
        value_size: int,
        *,
        branches: int = 1,
        state_rate: float | Literal["auto"] = AUTO,
        lag: bool = False,
    ) -> None:
        rate = _PRINTED_RATE if state_rate == AUTO else state_rate
        super().__init__(num_bags, value_size, branches=branches, state_rate=rate)
        self.lag = lag
        self.register_buffer("clips", torch.zeros((), dtype=torch.int64))

    def at_state(
        self, z: Tensor, v: Tensor, index: Tensor, *, sizes: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Update the state of the rows `index` [K]; return its l [K] and r [K, V], or with `lag` those before."""
        now = super().at_state(z, v, index, sizes=sizes, mask=mask)
        if not self.lag:
            return now
        with torch.no_grad():
            _, old, new = self._proposed[0]
            gamma0 = self._rate(old[:, :1], sizes, drawn=z.shape[1], mask=mask, ranks=None)
            point = torch.where(gamma0 * torch.ones_like(old[:, :1]) < 1, old, new)
            l, r = point[:, 1], point[:, 2:]  # noqa: E741
            self.clips += (z - l.unsqueeze(1) > MAX_LAG_EXPONENT).sum()
            n = z.new_full((1,), z.shape[1]) if mask is None else mask.sum(dim=1)
            w = point_weights(z, l, n, mask=mask, max_exponent=MAX_LAG_EXPONENT)
        return linearize(z, v, l, r, w)


def encoded_sample(model: BagScorer, batch: SampledBatch) -> tuple[Tensor, Tensor]:
    """Return logits z [K, B] and values v [K, B, V] of a batch's instances; z is very low in an empty slot.

    With several branches each bag has a row per branch: [K * G, B] and [K * G, B, V].
    """
    z, v = model.instances(batch.x)
    num_bags = batch.index.shape[0]
    slots = z.shape[0] // num_bags
    z, v = z.view(num_bags, slots, *z.shape[1:]), v.view(num_bags, slots, *v.shape[1:])
    if batch.mask is not None:
        # A padded slot holds a real instance; neither its logit may reach exp(z - l), nor a gradient the instance.
        empty = ~batch.mask
        z = z.masked_fill(empty.unsqueeze(-1) if z.ndim > 2 else empty, torch.finfo(z.dtype).min / 4)
    return fold_slots(z, v)


def _row_batch(batch: SampledBatch, branches: int) -> SampledBatch:
    """Return the batch with a row per branch, as in the state."""
    if branches == 1:
        return batch
    mask = None if batch.mask is None else each(batch.mask, branches)
    return replace(batch, index=rows_of(batch.index, branches), sizes=each(batch.sizes, branches), mask=mask)
