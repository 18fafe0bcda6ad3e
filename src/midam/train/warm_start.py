"""A warm start of the tracked state: every bag's statistic, exact as of the weights of the moment."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.predict import bag_groups, evaluation
from midam.evaluate.stream import stream_members
from midam.nn.scorer import BagScorer
from midam.settings import Settings
from midam.train.exact import refuse_batch_statistics
from midam.train.memory import annealed
from midam.train.training import Training


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
