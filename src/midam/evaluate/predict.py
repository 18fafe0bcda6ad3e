"""Streamed scores of whole bags, after matching features, filling gaps and encoding covariates."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.data.column_codes import ColumnCoder, CovariateCoder, note_of_filled, refuse_columns
from midam.data.missing import align_features, impute, missing_counts
from midam.data.on_disk import on_disk
from midam.errors import BagDataError, require_counts
from midam.nn.pooling.base import Total
from midam.nn.scorer import (
    BagEnsemble,
    BagOutput,
    BagScorer,
    Inputs,
    coder_of,
    fold_chunk,
    member_mean,
    scorers_of,
)
from midam.nn.standardizer import standardized_alike
from midam.process_group import Ranks
from midam.settings import usual_chunk


@torch.no_grad()
def stream_instances(
    model: BagScorer, batch: WholeBatch, *, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, per chunk of a batch, positions (flat, on the CPU) and bags 0 to K-1, int64 [m], z [m] and v [m, V].

    With several branches z [m, G] and v [m, G, V].
    """
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            ((z, v),) = instances_of_each([model], x)
            yield positions, segment.to(z.device), z, v
    # Autocast caches the weights that it casts here, without a graph; torch below 2.11 would train with them.
    torch.clear_autocast_cache()


@torch.no_grad()
def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score the K whole bags of a batch in chunks: ``model(x, sizes)`` up to rounding, without a graph."""
    (total,) = stream_totals([model], batch, chunk_size=chunk_size)
    return model.with_covariates(output_of(model, total), batch.covariates)


@torch.no_grad()
def stream_totals(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[Total]:
    """Merge the statistic of whole bags in chunks, by several scorers [M] that read each chunk once."""
    totals = [total_of(model, batch.index.shape[0]) for model in models]
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            bag_index = segment.to(x.device)
            for total, pair in zip(totals, instances_of_each(models, x)):
                total.add(*fold_chunk(positions, bag_index, *pair))
    torch.clear_autocast_cache()  # as in `stream_instances`
    return totals


def instances_of_each(models: Sequence[BagScorer], x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `BagScorer.instances` of a chunk x [m, ...] for each scorer; equal standardizers are applied once.

    If all standardized instances are equal, only one is encoded. Bags whose features are all constant then tie to the
    last bit, whatever their sizes.
    """
    before: BagScorer | None = None
    u, alike = x, False
    for model in models:
        if before is None or not standardized_alike(model.standardizer, before.standardizer):
            u = model.standardized(x)
            alike = len(u) > 1 and torch.equal(u[0], u[1]) and bool((u == u[:1]).all())
        before = model
        z, v = model.encoded(u[:1] if alike else u)
        yield (z.expand(len(x), *z.shape[1:]), v.expand(len(x), *v.shape[1:])) if alike else (z, v)


def total_of(model: BagScorer, num_bags: int) -> Total:
    """Make the total of `num_bags` bags: with several branches a row per branch, numbered as in `fold_chunk`."""
    return model.pooling.statistic.total(num_bags * model.pooling.branches)


def output_of(model: BagScorer, total: Total) -> BagOutput:
    """Return the bag output of a scorer at the merged statistic."""
    stat = total.value()
    return BagOutput(stat.l, stat.r, stat.n, model.pooling)


_BAGS_AT_A_TIME, _CHUNKS_AT_A_TIME = 4096, 16
_LARGE = 1 << 16  # weights of a layer, from which several threads gain


def predict(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    *,
    chunk_size: int | None = None,
    reader: InstanceReader | None = None,
    covariates: Tensor | None = None,
    on_bags: Callable[[Sequence[int]], None] | None = None,
    ranks: Ranks | None = None,
) -> NDArray[np.float64]:
    """Return scores of whole bags, [N] in [0, 1]; [N, C] for several score columns; needs O(chunk) memory.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call; its device is used. An ensemble gives the mean of the members' scores;
        each chunk is read once.
    bags : Bags
        With or without labels; with covariates if the model takes covariates. For a loaded model, features are matched
        by name and missing values filled: `midam.evaluate.predict.prepared`.
    chunk_size : int, optional
        Instances encoded at a time, >= 1; default: `midam.settings.usual_chunk`.
    reader : InstanceReader, optional
        An open reader of `bags`.
    covariates : Tensor [N, P], optional
        The result of `midam.evaluate.predict.covariates_of` for `bags`; computed by default.
    on_bags : callable, optional
        Called with the positions of finished bags, group after group: `bag_groups`.
    ranks : Ranks, optional
        Processes that call this function together: each scores a share, and all get all scores.
    """
    bags = prepared(model, bags) if reader is None else bags
    known = covariates_of(model, bags) if covariates is None else covariates
    reader = reader or reader_of(model, bags)
    chunk_size = usual_chunk(bags.instance_shape) if chunk_size is None else chunk_size
    require_counts(chunk_size=chunk_size)
    scorers = scorers_of(model)

    def score(group: range) -> Tensor:
        index = torch.tensor(group)
        of_bags = None if known is None else known[index.to(known.device)]
        totals = stream_totals(scorers, WholeBatch.unlabeled(reader, index), chunk_size=chunk_size)
        of_members = [one.with_covariates(output_of(one, total), of_bags) for one, total in zip(scorers, totals)]
        return member_mean(model, torch.stack([output.tied_score.double() for output in of_members]), dim=0)

    groups, scores = list(bag_groups(bags.sizes, chunk_size=chunk_size)), list[Tensor]()
    with evaluation(model):
        parts = ((group, score(group)) for group in groups) if ranks is None else ranks.spread(groups, score, rows=len)
        for group, part in parts:
            scores.append(part.cpu())
            if on_bags is not None:
                on_bags(group)
    return torch.cat(scores).numpy()


def bag_groups(sizes: NDArray[np.int64], *, chunk_size: int) -> Iterator[range]:
    """Yield the positions of bags that are scored together: at most 4096 bags and 16 chunks, or one larger bag."""
    low, count = 0, 0
    parts = (sizes[at : at + _BAGS_AT_A_TIME].tolist() for at in range(0, len(sizes), _BAGS_AT_A_TIME))
    for i, size in enumerate(chain.from_iterable(parts)):
        if i > low and (count + size > _CHUNKS_AT_A_TIME * chunk_size or i - low == _BAGS_AT_A_TIME):
            yield range(low, i)
            low, count = i, 0
        count += size
    yield range(low, len(sizes))


def reader_of(model: torch.nn.Module, bags: Bags) -> InstanceReader:
    """Return a reader for one pass on the model's device; instances on disk are not loaded into memory."""
    device = next(model.parameters()).device
    return InstanceReader(bags, device=device, resident=False if on_disk(bags.instances) else None)


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Run with `count` CPU threads; None does not change their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def evaluation(model: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode without graph inside, and one thread if no layer is large; restore the modes afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    # Operations of a small network take microseconds. Several threads do not gain, and on a machine that does something
    # else they wait for each other a thousand times as long.
    large = any(weight.ndim > 2 or (weight.ndim == 2 and weight.numel() > _LARGE) for weight in model.parameters())
    try:
        with torch.no_grad(), cpu_threads(None if large else 1):
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def prepared(model: BagScorer | BagEnsemble | Inputs, bags: Bags) -> Bags:
    """Return bags with the features that a model was trained on, as recorded in its `midam.nn.scorer.Inputs`.

    Features are matched by name if both have names; columns are encoded and missing values filled as in training. Bags
    that need no change are returned unchanged.

    Raises
    ------
    BagDataError
        If features are missing, if their number differs, or if a value is missing or infinite.
    """
    known, bags = _inputs(model), encoded(model, bags)
    if known is None:
        return bags
    bags, (width, shape) = align_features(bags, known.names, reference=known.source), (known.shape, bags.instance_shape)
    if len(width) == 1 and bags.instance_shape != width:
        raise BagDataError(
            f"Expected instances of shape {list(width)}, on which {known.source} was trained, got {list(shape)} (in "
            f"{bags.source}); use the same features, or another model."
        )
    if on_disk(bags.instances) or bags.instances.dtype.kind != "f":
        return bags
    bags.check(missing=known.filling is not None)
    if known.filling is None or not missing_counts(bags).any():
        return bags
    if known.columns is None:
        note_of_filled(bags, known.how)
    return impute(bags, np.array(known.filling))


def inputs_of(data: Mapping[str, Any], source: str = "training") -> Inputs:
    """Return the features of a training, from its "instance_shape" and, if any, "feature_names", "imputed", "columns".

    "imputed" and "columns" are as in `midam.data.column_codes.Prepared`; `source` names the model in messages.
    """
    names, imputed, text = data.get("feature_names"), data.get("imputed") or {}, data.get("columns")
    return Inputs(
        tuple(data["instance_shape"]),
        None if names is None else tuple(names),
        how=imputed.get("how", "zero"),
        filling=imputed.get("values"),
        columns=None if text is None else ColumnCoder.from_json(text),
        source=source,
    )


def _inputs(model: BagScorer | BagEnsemble | Inputs) -> Inputs | None:
    return model if isinstance(model, Inputs) else model.inputs if isinstance(model, BagEnsemble) else None


def encoded(model: BagScorer | BagEnsemble | Inputs, bags: Bags) -> Bags:
    """Return bags with the raw columns of the model's training encoded as features; other bags unchanged."""
    known = _inputs(model)
    if known is None or known.columns is None:
        refuse_columns(bags, "the model")
        return bags
    if bags.feature_names is None or (bags.columns is None and bags.feature_names == known.names):
        return bags  # already encoded
    bags = align_features(bags, tuple(known.columns.kinds), reference=known.source)
    if known.filling is not None and missing_counts(bags).any():
        note_of_filled(bags, known.how)
    return known.columns.encode(bags)


def covariates_of(model: BagScorer | BagEnsemble, bags: Bags) -> Tensor | None:
    """Return the encoded covariates of bags, float32 [N, P] on the model's device; None if it takes no covariates.

    A `BagDataError` names missing covariates. A category that was unknown in training causes a warning.
    """
    term = scorers_of(model)[0].covariates
    return None if term is None else torch.from_numpy(term.coder.encode(bags)).to(term.weight.device, torch.float32)


def saved_coder(weights: Mapping[str, Tensor]) -> CovariateCoder | None:
    """Return the coder in the state dictionary of a saved ensemble; None if the ensemble takes no covariates.

    Raise a `ValueError` if the entry is not a coder.
    """
    state = weights.get("members.0.covariates._extra_state")
    return None if state is None else coder_of(state, CovariateCoder)


def covariate_kinds(model: BagScorer | BagEnsemble) -> dict[str, str]:
    """Return the covariates that a model takes, and the kind of each, "number" or "category"."""
    term = scorers_of(model)[0].covariates
    return {} if term is None else dict(term.coder.kinds)
