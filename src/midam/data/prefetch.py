"""Reading ahead: threads that fetch what comes next, in order, while the caller works on what came before."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Job = TypeVar("Job")
Found = TypeVar("Found")


def read_ahead(
    jobs: Iterable[Job], read: Callable[[Job], Found], *, workers: int
) -> Generator[tuple[Job, Found], None, None]:
    """Each job with what `read` makes of it, in the order of the jobs, whatever the number of workers.

    Jobs are taken from at most ``2 * workers`` ahead of the caller, and read by so many threads at once; none reads
    when asked. The threads end with the iterator: when it is exhausted, closed, or fails. What no thread has begun when
    the caller asks for it, the caller reads itself. What `read` raises is raised as soon as the caller asks for more,
    also where an earlier job went well.

    Examples
    --------
    >>> list(read_ahead([3, 1, 2], str, workers=2))
    [(3, '3'), (1, '1'), (2, '2')]
    """
    if workers == 0:
        for job in jobs:
            yield job, read(job)
        return
    source = iter(jobs)
    pending: deque[tuple[Job, Future[Found]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="midam-read")
    try:
        while True:
            pending.extend((job, pool.submit(read, job)) for job in islice(source, 2 * workers - len(pending)))
            if not pending:
                return
            job, future = pending.popleft()
            # A read that no thread has begun is done sooner here than it would be waited for.
            found = read(job) if future.cancel() else future.result()
            _raise_failed(later for _, later in pending)
            # Only the caller may hold it on: a chunk kept here would be one more in memory.
            del future
            yield job, found
            del found
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _raise_failed(futures: Iterable[Future[Found]]) -> None:
    for future in futures:
        if future.done():
            future.result()
