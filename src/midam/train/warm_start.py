"""What a training starts from: standardizers fitted to the instances, and the exact state of every bag."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch, instance_tensor
from midam.data.on_disk import on_disk
from midam.evaluate.predict import bag_groups, evaluation
from midam.evaluate.stream import stream_members
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.exact import refuse_batch_statistics
from midam.train.memory import annealed
from midam.train.training import Training

_MAX_INSTANCES = 200_000
_MAX_VALUES = 50_000_000
_MAX_VALUES_ON_DISK = 4_000_000  # 8 MB of float16: what stays on disk is not to fill the memory here
_STREAM = 7


def check_warm_start(config: Settings, model: BagScorer) -> None:
    """Refuse a scorer that normalizes by the statistics of a batch, where the settings ask for a warm start."""
    if config.method.state_start == "exact" or config.method.state_refresh is not None:
        refuse_batch_statistics(model, "state_start 'exact' and state_refresh")


def warm_start_due(config: Settings, epoch: int) -> bool:
    """Whether epoch `epoch` (from 0) begins with a warm start."""
    if epoch == 0:
        return config.method.state_start == "exact"
    return config.method.state_refresh is not None and epoch % config.method.state_refresh == 0


def warm_start(members: Sequence[Training], reader: InstanceReader, *, epoch: int, chunk_size: int) -> None:
    """Set the tracked state of each bag and member to the whole bag's statistic, streamed once for all members.

    In evaluation mode, which without batch statistics is the training mode without its noise (dropout, augmentation),
    and with the weights of the instances annealed as in epoch `epoch` (from 0).
    A bag counts as visited from then on. Each member trains one scorer, with an estimator that tracks a state;
    `reader` is that of the training bags.
    """
    models = [member.trained for member in members]
    with ExitStack() as stack:
        stack.enter_context(evaluation(nn.ModuleList(models)))
        for member in members:
            stack.enter_context(annealed(member.trained, member.config, epoch))

        def statistics(group: range) -> Tensor:
            """Rows [bags, ...] of l and r of each member, of bags of one or several branches."""
            batch = WholeBatch.unlabeled(reader, torch.arange(group.start, group.stop), members[0].covariates)
            outputs = stream_members(models, batch, chunk_size=chunk_size)
            both = [torch.cat([output.l.unsqueeze(1), output.r], dim=1) for output in outputs]
            return torch.stack(both, dim=1).view(len(group), -1, len(models), both[0].shape[1])

        groups, ranks = list(bag_groups(reader.sizes.numpy(), chunk_size=chunk_size)), members[0].ranks
        alone = ((group, statistics(group)) for group in groups)
        for group, found in alone if ranks is None else ranks.spread(groups, statistics, rows=len):
            index = torch.arange(group.start, group.stop)
            for member, own in zip(members, found.unbind(dim=2)):
                member.estimator.set_state(index, own[..., 0].flatten(), own[..., 1:].flatten(0, 1))


def fit_standardizers(standardizers: Sequence[nn.Module | None], train: Bags, *, seed: int) -> None:
    """Fit the standardizers among `standardizers`, at least one, to the training instances; all alike.

    Of more than 200 000 instances or 50 000 000 numbers (on disk 4 000 000) so many are drawn, without replacement.
    """
    first, *others = (standardizer for standardizer in standardizers if isinstance(standardizer, Standardizer))
    values = _MAX_VALUES_ON_DISK if on_disk(train.instances) else _MAX_VALUES
    limit = max(1, min(_MAX_INSTANCES, values // int(np.prod(train.instance_shape))))
    rows = random_instances(train, limit, np.random.default_rng([seed, _STREAM]))
    first.fit(rows, names=train.feature_names, source=train.source)
    for standardizer in others:
        standardizer.load_state_dict(first.state_dict())


def random_instances(bags: Bags, limit: int, rng: np.random.Generator) -> Tensor:
    """All instances, or so many that are drawn without replacement: [M, ...]."""
    total = bags.num_instances
    chosen = distinct_sorted(total, min(total, limit), rng)  # up to the limit it draws nothing
    ends = np.cumsum(bags.sizes)
    bag = np.searchsorted(ends, chosen, side="right")
    return instance_tensor(bags.gather(bags.starts[bag] + chosen - (ends - bags.sizes)[bag]))


def distinct_sorted(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` distinct whole numbers below `total`, uniformly, ascending, in O(count) memory."""
    if 2 * count > total:
        return np.delete(np.arange(total), distinct_sorted(total, total - count, rng))
    # Each round draws only as many as are missing: the set is that of the first distinct numbers of one sequence.
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        found = np.union1d(found, rng.integers(total, size=count - len(found)))
    return found
