"""Several processes that train one model: how they join, and their exchanges.

Process r of W takes the bags at the positions r, r + W, ... of a batch. Each process encodes its bags, all get the
scores and the tracked statistics of all bags, and the gradients of the weights are added up. Only rounding depends on
W, and all processes have the same state.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from subprocess import Popen
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from midam.errors import ConfigError, RankLostError
from midam.processes import LEADER, Processes, end_others, end_with, restarted, start_others

T = TypeVar("T")

_LEAVE_S, _END_S, _LOOK_S = 30.0, 60.0, 0.02
_LEAVES = itertools.count()  # a store of torchrun outlives the group


def start(processes: Processes, fabric: Any) -> "Ranks | None":
    """Start the other processes of this machine, unless torchrun has, and join all; return None for one process."""
    if processes.count == 1:
        return None
    others = [] if processes.started_by_others else start_others(processes.devices)
    if fabric.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        # Each process takes a share of the cores: more threads would wait for each other.
        torch.set_num_threads(max(1, torch.get_num_threads() // processes.devices))
    try:
        if LEADER in os.environ:
            end_with(int(os.environ[LEADER]))
        elif restarted():
            _meet_again(fabric.device, timedelta(minutes=processes.timeout))
        fabric.launch()
    except BaseException:
        end_others(others)
        close_group()
        raise
    return Ranks(fabric.global_rank, fabric.world_size, fabric.device, others=others)


def _meet_again(device: torch.device, timeout: timedelta) -> None:
    """Join the processes that torchrun has restarted, under a prefix that the earlier processes did not use.

    The store of torchrun outlives them, and torch would find the addresses of dead processes there (pytorch#135712).
    """
    count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    hosts = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
    store = dist.TCPStore(*address, count, hosts, timeout=timeout)  # type: ignore[attr-defined]
    attempt = dist.PrefixStore(f"midam/{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)  # type: ignore[attr-defined]
    backend = dist.get_default_backend_for_device(device)
    dist.init_process_group(backend, store=attempt, rank=rank, world_size=count, timeout=timeout)


def close_group() -> None:
    """Close the group of this process, if it has joined a group, and end its threads.

    An interpreter that exits before a thread of the group has ended aborts, because the thread requests Python's lock.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def _wait_for_all(store: Any, name: str, count: int) -> None:
    """Add this process to a list, and wait until `count` are on it, but at most 30 seconds, as one may have died."""
    deadline = time.monotonic() + _LEAVE_S
    # If the process that keeps the list has ended, there is no process left to wait for.
    with suppress(RuntimeError):
        store.add(name, 1)
        while store.add(name, 0) < count and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def joined(device: torch.device) -> "Ranks | None":
    """Return the ranks of a group that is already set up, as by DDP; None for a single process."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


class Ranks:
    """One process among W that train one model, and the exchanges between them.

    All processes must call each method, in the same order. If a process has died, the others raise a `RankLostError`.

    Parameters
    ----------
    rank, count : int
        Number of this process, from 0, and number of all processes, W.
    device : torch.device
        Device of the exchanged tensors.
    others : iterable of Popen, optional
        Processes that this process has started, and that end with it.

    Attributes
    ----------
    exchanged_s : float
        Seconds spent in exchanges, including the wait for others.
    exchanged_bytes, exchanges : int
        Bytes of tensors that this process has sent, and number of exchanges.
    """

    def __init__(self, rank: int, count: int, device: torch.device, *, others: Iterable[Popen[bytes]] = ()) -> None:
        self.rank, self.count, self.device = rank, count, device
        self.exchanged_s, self.exchanged_bytes, self.exchanges = 0.0, 0, 0
        self._others = others

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def own(self, x: Tensor, dim: int = 0) -> Tensor:
        """Return the part of this process in values of K bags along `dim`: positions rank, rank + W, ..."""
        return x[(slice(None),) * dim + (slice(self.rank, None, self.count),)]

    def check_batch(self, num_bags: int) -> None:
        """Raise a `ConfigError` if a step has fewer bags than processes."""
        if num_bags < self.count:
            raise ConfigError(
                f"Expected at least {self.count} bags per batch, one per process, got {num_bags}; raise num_positive "
                "and num_negative, or start fewer processes."
            )

    def gather(self, local: Tensor, total: int) -> Tensor:
        """Join the rows of the bags of all processes, [K, ...], from the `local` rows of each, with gradient."""
        apply: Any = _Gather.apply
        return apply(local, self, total)

    def join(self, local: Tensor) -> Tensor:
        """Call `gather` for equally many rows in all processes; scale the gradient for an average over processes."""
        if local.requires_grad:
            local = local.view_as(local)
            local.register_hook(lambda grad: self.count * grad)  # type: ignore[no-untyped-call]
        return self.gather(local, self.count * len(local))

    def check_equal(self, num_bags: int) -> None:
        """Raise a `ConfigError` in all processes if they hold batches of unequal sizes, which `join` cannot gather."""
        counts = self._all_gather(torch.tensor([num_bags], device=self.device)).view(-1).tolist()
        if len(set(counts)) > 1:
            raise ConfigError(
                f"Expected as many bags in the batch of each process, got {', '.join(map(str, counts))}; leave out the "
                "rest of an epoch, such as by `drop_last=True`."
            )

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of x over the processes, without gradient."""
        return self._all_gather(x.detach()).view(self.count, *x.shape).sum(dim=0)

    def least(self, x: Tensor) -> Tensor:
        """Return the least number of x in any process, [1], without gradient."""
        return self._all_gather(x.detach().amin().view(1)).amin().view(1)

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Add up the gradients of all processes, with one exchange per dtype."""
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                by_dtype.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for grads in by_dtype.values():
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            self._exchange(partial(dist.all_reduce, flat), size=flat.nbytes)
            for part, grad in zip(torch.split(flat, [grad.numel() for grad in grads]), grads):
                grad.copy_(part.view_as(grad))

    def share_rows(self, table: Tensor, local: Tensor, every: Tensor, *, rows: int = 1) -> None:
        """Write into a table the rows that each process has written for its bags.

        `local` and `every` are the rows of the bags of this process, and of all K bags of a step, with `rows` per bag.
        """
        sent = table.index_select(0, local).view(len(local) // rows, -1)
        joined = self.gather(sent, len(every) // rows)
        table.index_copy_(0, every, joined.view(len(every), *table.shape[1:]))

    def spread(
        self, jobs: Sequence[T], work: Callable[[T], Tensor], *, rows: Callable[[T], int]
    ) -> Iterator[tuple[T, Tensor]]:
        """Let each process do a share of the jobs; yield each job with its result in all processes, in order.

        `work` returns a tensor of ``rows(job)`` rows, with one width and dtype for all jobs.
        """
        for first in range(0, len(jobs), self.count):
            turn = jobs[first : first + self.count]
            # A process without a job does another one, so that it knows the shape and dtype of the results.
            result = work(turn[self.rank % len(turn)]).to(self.device)
            longest = max(rows(job) for job in turn)
            padded = result.new_zeros((longest, *result.shape[1:]))
            padded[: len(result)] = result
            parts = self._all_gather(padded)
            for job, part in zip(turn, parts):
                yield job, part[: rows(job)]

    def from_lead(self, call: Callable[[], T]) -> T:
        """Return the result of a call that only the leading process makes, shared with all processes."""
        box: list[Any] = [call() if self.leads else None]
        self._exchange(lambda: dist.broadcast_object_list(box, src=0, device=self.device))
        return box[0]

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the values of the tensors in the leading process."""
        for tensor in tensors:
            values = tensor.detach()
            sent = values.contiguous()
            self._exchange(partial(dist.broadcast, sent, src=0), size=sent.nbytes)
            values.copy_(sent)

    def leave(self) -> None:
        """Close the group once no process needs it; the leading process waits for the processes that it has started.

        No process closes a connection that another may still read: all report that they are done before the first
        closes, and the leading process, which keeps the list, closes last.
        """
        if dist.is_initialized():
            store, number = dist.distributed_c10d._get_default_store(), next(_LEAVES)
            _wait_for_all(store, f"through/{number}", self.count)
            close_group()
            _wait_for_all(store, f"closed/{number}", self.count if self.leads else 0)
        end_others(self._others, wait_s=_END_S)

    def abandon(self) -> None:
        """End the processes that this process has started, at once, and close the group."""
        end_others(self._others)
        close_group()

    def _all_gather(self, x: Tensor) -> Tensor:
        """Return [W, ...], the x [...] of each process."""
        joined = x.new_empty((self.count * len(x), *x.shape[1:]))
        # torch 2.13 renames the function.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._exchange(partial(gather, joined, x.contiguous()), size=x.nbytes)
        return joined.view(self.count, *x.shape)

    def _exchange(self, call: Callable[[], Any], *, size: int = 0) -> None:
        started = time.perf_counter()
        try:
            call()
            self.exchanged_s += time.perf_counter() - started
            self.exchanged_bytes, self.exchanges = self.exchanged_bytes + size, self.exchanges + 1
        except RuntimeError as error:
            raise RankLostError(f"lost one of {self.count} processes, whose results the others need") from error


class _Gather(torch.autograd.Function):
    """Gathers the rows of all bags: bag k is at position k // W of process k mod W."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, ranks: Ranks, total: int) -> Tensor:
        ctx.ranks = ranks
        longest = -(-total // ranks.count)
        padded = local if len(local) == longest else torch.cat([local, local.new_zeros((1, *local.shape[1:]))])
        parts = ranks._all_gather(padded.detach())
        return parts.transpose(0, 1).reshape(ranks.count * longest, *local.shape[1:])[:total].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.own(grad).contiguous(), None, None
