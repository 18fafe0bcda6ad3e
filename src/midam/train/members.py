"""Parts that train one scorer, built from settings and bags: standardizers, instances on the device, steps."""

import inspect
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, instance_tensor
from midam.data.column_codes import CovariateCoder, fit_coder
from midam.data.on_disk import fits, free_memory, on_disk
from midam.data.sampling import BagSampler, Sampler, StrataSampler
from midam.errors import BagDataError, ConfigError, Note, given, listed, plural
from midam.files import size_text
from midam.nn.encoders import batch_norms
from midam.nn.objectives import Objective
from midam.nn.pooling import Pooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.registry import ESTIMATORS, OBJECTIVES
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.settings.group import AUTO
from midam.targets import Target, target_of
from midam.targets.binary import Binary
from midam.train.build import build_method
from midam.train.estimators import Estimator

_TRAINED, _COPIES = 3, 12  # memory of a network in a step, and with all copies, as multiples of its weights
_NARROW = 128
_WORTH_SAYING = 1 << 30  # bytes from which a network causes a note
CHECKPOINTED_PARTS = 8
_ENOUGH_STEPS = 2400
_MOST_NUMBERS = 2**23  # in the instances of a step


@dataclass(frozen=True)
class Member:
    """The parts of one scorer, on the device, without a reader of instances."""

    config: ResolvedSettings  # with the seed of the member
    model: BagScorer
    trained: BagScorer  # scorer that a step runs, see `training_scorer`
    estimator: Estimator
    objective: Objective
    sampler: Sampler
    target: Target


def with_objective(config: Settings, target: Target) -> Settings:
    """Return these settings with the target's objective if none is named; refuse one that does not support it."""
    if config.method.objective == AUTO:
        return config.replace(objective=target.objectives[0])
    OBJECTIVES.find(config.method.objective).check_pairs(target.pairs)
    return config


def build_members(
    config: Settings,
    train: Bags,
    *,
    device: torch.device,
    standardized: bool = False,
    coder: CovariateCoder | None = None,
) -> list[Member]:
    """Build the members, each from its `midam.settings.member_seed`; standardizers are not fitted.

    With `standardized`, the reader of the training bags returns standardized instances. `coder` encodes their
    covariates; by default it is fitted here.
    """
    members: list[Member] = []
    target, shape, coder = target_of(train), train.instance_shape, coder or fit_coder(train)
    values, binary = target.values(train), isinstance(target, Binary)
    config = with_objective(config, target).resolve(shape)
    _check_size(config, train, device)
    sites = sites_to_balance(train, target, config.training.balance)
    for number in range(config.training.members):
        seeded = config.replace(seed=member_seed(config.run.seed, number))
        num_positive, num_negative, num_instances = config.training.batch
        method = build_method(
            seeded,
            instance_shape=shape,
            num_bags=len(train),
            columns=target.count,
            pairs=target.pairs,
            coder=coder,
            sizes=train.sizes,
        )
        model, estimator = method.model.to(device), method.estimator.to(device)
        sampler: Sampler = (BagSampler if binary else StrataSampler)(
            values if binary else target.turns(values),
            train.sizes,
            num_positive=num_positive,
            num_negative=num_negative,
            num_instances=None if estimator.whole else num_instances,
            seed=seeded.run.seed,
            sites=sites,
        )
        _check_anneal(seeded, model.pooling)
        channels_last(model, instance_shape=shape)
        trained = training_scorer(model, seeded, standardized=standardized)
        members.append(Member(seeded, model, trained, estimator, method.objective.to(device), sampler, target))
        # Classes with fewer bags than a batch needs cause one warning, not one for each member.
        config = config.replace(num_positive=sampler.num_positive, num_negative=sampler.num_negative)
    members[0].model.pooling.check_sizes(int(train.sizes.max()))
    return members


def _check_size(config: ResolvedSettings, train: Bags, device: torch.device) -> None:
    """Refuse an mlp that does not fit into memory, before it is built; warn about one that is larger than the data."""
    if config.model.encoder != "mlp":
        return
    width = math.prod(train.instance_shape)
    layers, count = [width, *(config.model.hidden or [width])], config.training.members
    weights = 4 * count * sum(a * b for a, b in pairwise(layers))
    least, most, free = _TRAINED * weights, _COPIES * weights, free_memory(device)
    shape = " x ".join(map(str, layers))
    narrow, advice = 4 * count * width * _NARROW, given(hidden=[_NARROW])
    networks = f"{count} network{'s' if count > 1 else ''} with layers of {shape}"
    if least > free:
        raise ConfigError(
            f"Expected a network that fits into the {size_text(free)} of free memory, got {networks}, whose weights, "
            f"gradients and momenta take {size_text(least)} (in {train.source}); use fewer features, or a narrower "
            f"network, such as {advice} ({size_text(_TRAINED * narrow)})."
        )
    if most > _WORTH_SAYING and most > 10 * train.num_instances * width * train.instances.itemsize:
        takes = f"{advice} takes {size_text(_COPIES * narrow)}"
        message = f"{networks} take up to {size_text(most)} of memory, with their gradients and copies: {takes}"
        warnings.warn(message, Note, stacklevel=2)


def sites_to_balance(train: Bags, target: Target, balance: str | None) -> NDArray[np.str_] | None:
    """Return sites [N] of training bags if the setting `balance` names their column, else None.

    Raises
    ------
    ConfigError
        If the bags have no sites.
    BagDataError
        If a bag has no site, or each bag has a different site.

    Warns
    -----
    UserWarning
        If a class has no bags from a site, or all bags come from one site: class and site stay confounded there.
    """
    if balance is None:
        return None
    sites = train.sites
    if sites is None:
        raise ConfigError(
            f"Expected bags with sites for `balance={balance!r}`, got none (in {train.source}); read them with "
            f"`midam.read_bags(..., site_column={balance!r})`, or give `Bags` with `sites`."
        )
    unknown = train.ids[sites == ""].tolist()
    if unknown:
        raise BagDataError(
            f"Expected a site of each training bag in the column {balance!r} of `balance`, got none for "
            f"{listed(unknown)} (in {train.source}); fill it in, or write a word such as unknown as a site."
        )
    names = np.unique(sites)
    if len(names) == len(sites) > 1:
        raise BagDataError(
            f"Expected several bags of each site in the column {balance!r} of `balance`, got a different site for each "
            f"bag (in {train.source}); name the column of the hospital or scanner."
        )
    missing = _cannot_balance(train, target, names)
    if missing:
        warnings.warn(f"balance by {balance}: {missing} (in {train.source})", stacklevel=2)
    return sites


def _cannot_balance(train: Bags, target: Target, names: NDArray[np.str_]) -> str:
    """Return a message about classes that are missing at sites; empty if there are none."""
    if len(names) == 1:
        return f"all training bags come from {names[0]}: there is nothing to balance"
    strata = target.turns(target.values(train))
    lost = []
    for stratum in np.unique(strata):
        missing = names[~np.isin(names, train.sites[strata == stratum])].tolist()  # type: ignore[index]  # has sites
        if missing:
            lost.append(f"stratum {stratum} at {listed(missing)}")
    return f"no training bags of {'; '.join(lost)}: class and site cannot be balanced there" if lost else ""


class Checkpointed(nn.Module):
    """Encodes a batch in 8 parts, whose activations the backward pass recomputes: 1/3 more work, 1/8 of the memory.

    Result and dropout are those of the encoder, which must treat each instance separately.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        if batch_norms(encoder):
            raise ConfigError(
                f"Expected an encoder without batch statistics for checkpointing, got batch normalization at "
                f"{batch_norms(encoder)[0]!r}; use group normalization, or freeze the layer."
            )
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        parts = [checkpoint(self.encoder, part, use_reentrant=False) for part in x.chunk(CHECKPOINTED_PARTS)]
        return torch.cat(cast(list[Tensor], parts))


def training_scorer(model: BagScorer, config: Settings, *, standardized: bool = False) -> BagScorer:
    """Return the scorer that a step runs instead of `model`, with the same parameters, for checkpointing and compile.

    With `standardized` instances, it has no standardizer. If nothing changes, it is `model` itself. A `ConfigError`
    refuses an encoder that cannot be checkpointed.
    """
    encoder, standardizer = model.encoder, None if standardized else model.standardizer
    if config.run.compile:
        encoder = cast(nn.Module, torch.compile(encoder))
    if config.run.checkpointing:
        encoder = Checkpointed(encoder)
    if encoder is model.encoder and standardizer is model.standardizer:
        return model
    return BagScorer(encoder, model.pooling, standardizer=standardizer, covariates=model.covariates)


def _check_anneal(config: ResolvedSettings, pooling: Pooling) -> None:
    """Refuse annealing if the pooling has no weights for it."""
    if config.method.anneal and not pooling.anneals:
        raise ConfigError(
            f"Expected no `anneal` with the pooling {pooling.name!r}, which has no weights to sharpen, got "
            f"{config.method.anneal:g}; leave it out, or use the pooling 'attention' or 'smoothed-max'."
        )


def channels_last(model: BagScorer, *, instance_shape: tuple[int, ...]) -> None:
    """Set the memory format of a 2-D encoder's weights to the fastest of its device: channels last on CUDA."""
    if len(instance_shape) == 3 and next(model.parameters()).is_cuda:
        for parameter in model.encoder.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def refuse_half_volumes(encoder: nn.Module, precision: str, device: torch.device) -> None:
    """Refuse 3-D convolutions in bfloat16 on the CPU, whose gradients over two slices are not finite."""
    if precision != "32-true" and device.type == "cpu" and any(isinstance(m, nn.Conv3d) for m in encoder.modules()):
        raise ConfigError(
            f"Expected the precision 32-true for 3-D convolutions on the CPU, got {precision!r}; torch's gradients are "
            "wrong there. Train on a GPU, or leave the precision out."
        )


def choose_batch_size(config: ResolvedSettings, train: Bags) -> ResolvedSettings:
    """Choose the "auto" counts of `config` for these training bags, and name them in a note.

    They are the first of `batch_sizes` whose step holds at most 8 million numbers, such as 55 images of 3 x 224 x 224,
    else the last. Bags of one class raise a `OneClassError`.
    """
    target, largest, draws = target_of(train), int(train.sizes.max()), _draws(config)
    target.check(train)
    positives = int(train.require_labels().sum()) if target.name == "binary" else len(train) // 2
    sizes = batch_sizes(config, largest=largest, counts=(positives, len(train) - positives))
    width = math.prod(train.instance_shape)
    held = ((size, (size[0] + size[1]) * min(size[2], largest) * width) for size in sizes)
    positive, negative, drawn = next((size for size, numbers in held if numbers <= _MOST_NUMBERS), sizes[-1])
    counts = f"{positive} + {negative} whole bags per step"
    if draws:
        counts = f"{plural(drawn, 'instance')} of a bag and {positive} + {negative} bags per step"
    message = f"{counts}: bags hold up to {plural(largest, 'instance')} of {plural(width, 'number')}"
    warnings.warn(message, Note, stacklevel=3)
    return config.replace(num_positive=positive, num_negative=negative, num_instances=drawn)


def batch_sizes(config: ResolvedSettings, *, largest: int, counts: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return (S+, S-, B) in the order of preference; the last is the smallest possible.

    The first has 16 instances of a bag, or the power of two that holds the `largest` bag, and 8 bags of each class, or
    all of the `counts` (positive, negative); 4 or 2 bags if bags are larger than that and the epochs would take fewer
    than 2400 steps. Then come fewer bags, down to 2 + 2 (more steps per epoch, each with as much of a bag), then fewer
    instances, down to 4, then both.
    """
    training = config.training
    # A single instance has the weight 1, from which nothing is learned, unless the bag's state is tracked.
    least = 1 if ESTIMATORS.find(config.method.estimator).tracks else 2
    drawn = [count for count in (16, 8, 4, 2, 1) if least <= count < 2 * max(largest, least)]
    if training.num_instances != "auto":
        drawn = [training.num_instances]
    elif not _draws(config):
        drawn = drawn[:1]

    def classes(bags: int) -> tuple[int, int]:
        positive = min(bags, counts[0]) if training.num_positive == "auto" else training.num_positive
        return positive, min(bags, counts[1]) if training.num_negative == "auto" else training.num_negative

    def enough(bags: int) -> bool:
        return training.epochs * math.ceil(sum(counts) / sum(classes(bags))) >= _ENOUGH_STEPS

    most = next(bags for bags in (8, 4, 2) if bags == 2 or largest <= drawn[0] or enough(bags))
    pairs = [(bags, count) for count in drawn for bags in (8, 4, 2, 1) if bags <= most]
    # One bag of a class comes with at most 4 of its instances, where they can be fewer.
    return [(*classes(bags), count) for bags, count in pairs if bags > 1 or count <= max(4, drawn[-1])]


def _draws(config: ResolvedSettings) -> bool:
    """Return whether the estimator draws instances."""
    estimator = ESTIMATORS.find(config.method.estimator)
    return not estimator.whole or "num_instances" in inspect.signature(estimator).parameters


_MOST_READ_ONCE = 2**29  # bytes
_MAX_INSTANCES = 200_000
_MAX_VALUES = 50_000_000
_MAX_VALUES_ON_DISK = 4_000_000  # 8 MB of float16: instances on disk should not fill the memory here
_STREAM = 7


def open_reader(
    config: ResolvedSettings, bags: Bags, *, transform: nn.Module | None, device: torch.device
) -> InstanceReader:
    """Open bags by the settings; with a `transform`, bags on disk are read into memory once, except for a GPU."""
    read_once = transform is not None and on_disk(bags.instances) and device.type != "cuda"
    resident = True if read_once else config.run.resident
    return InstanceReader(bags, device=device, resident=resident, workers=config.run.workers, transform=transform)


def labels_of(bags: Bags, reader: InstanceReader) -> Tensor:
    """Return the labels [N], or [N, L] for a target other than two classes, on the reader's device.

    They are float32, or float64 if different numbers or times would tie in float32 (except on Apple's GPUs).
    """
    values = target_of(bags).values(bags)
    wide = values.ndim == 2 and _tie_in_float32(values[:, 0]) and reader.device.type != "mps"
    return torch.from_numpy(values).to(device=reader.device, dtype=torch.float64 if wide else torch.float32)


def weights_of(bags: Bags, reader: InstanceReader) -> Tensor | None:
    """Return the weight of each bag over the mean weight of its class [N], on the reader's device.

    It is None if the bags of a class have equal weights: the AUC does not depend on the weights of the classes.
    """
    if bags.weights is None:
        return None
    labels, relative = bags.require_labels(), bags.weights.copy()
    for inside in (labels == 0, labels == 1):
        relative[inside] /= relative[inside].mean()
    alike = np.allclose(relative, 1, rtol=0, atol=1e-6)
    return None if alike else torch.from_numpy(relative).to(device=reader.device, dtype=torch.float32)


def _tie_in_float32(numbers: NDArray[Any]) -> bool:
    """Return whether two different numbers of [N] become equal in float32; NaN, an unknown label, is ignored."""
    known = np.unique(numbers[~np.isnan(numbers)])
    return len(np.unique(known.astype(np.float32))) < len(known)


def standardized_once(config: Settings, bags: Bags) -> bool:
    """Return whether instances are standardized once in memory, not at each visit.

    Feature vectors are, images stay bytes. Vectors on disk are only if they take at most 512 MiB as float32 and a
    quarter of the memory that is free now.
    """
    if not config.model.standardize or len(bags.instance_shape) != 1:
        return False
    if not on_disk(bags.instances):
        return True
    needed = 4 * bags.num_instances * bags.instance_shape[0]
    return config.run.resident is None and needed <= _MOST_READ_ONCE and fits(4 * needed)


def fit_standardizers(standardizers: Sequence[nn.Module | None], train: Bags, *, seed: int) -> None:
    """Fit the standardizers among `standardizers`, at least one, to the training instances; all get the same fit.

    Of more than 200 000 instances or 50 000 000 numbers (on disk 4 000 000), as many are drawn without replacement.
    """
    first, *others = (standardizer for standardizer in standardizers if isinstance(standardizer, Standardizer))
    values = _MAX_VALUES_ON_DISK if on_disk(train.instances) else _MAX_VALUES
    limit = max(1, min(_MAX_INSTANCES, values // int(np.prod(train.instance_shape))))
    rows = random_instances(train, limit, np.random.default_rng([seed, _STREAM]))
    first.fit(rows, names=train.feature_names, source=train.source)
    for standardizer in others:
        standardizer.load_state_dict(first.state_dict())


def random_instances(bags: Bags, limit: int, rng: np.random.Generator) -> Tensor:
    """Return all instances, or `limit` of them, drawn without replacement: [M, ...]."""
    chosen = distinct_sorted(bags.num_instances, min(bags.num_instances, limit), rng)  # draws nothing up to the limit
    ends = np.cumsum(bags.sizes)
    bag = np.searchsorted(ends, chosen, side="right")
    return instance_tensor(bags.gather(bags.starts[bag] + chosen - (ends - bags.sizes)[bag]))


def distinct_sorted(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` distinct whole numbers below `total`, uniformly, ascending, in O(count) memory."""
    if 2 * count > total:
        return np.delete(np.arange(total), distinct_sorted(total, total - count, rng))
    # Each round draws only the missing count: the set is that of the first distinct numbers of one sequence.
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < count:
        numbers = np.union1d(numbers, rng.integers(total, size=count - len(numbers)))
    return numbers
