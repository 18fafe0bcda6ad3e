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
    """Each job with what `read` makes of it, in the order of the jobs; W workers (threads) read up to 2 W jobs ahead.

    Without workers, the caller reads. The threads end with the iterator: when it is exhausted, closed, or fails. What
    `read` raises in any of them is raised when the caller next asks.
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
            # A batch that no thread has begun is read here, sooner than waiting for it.
            value = read(job) if future.cancel() else future.result()
            for _, later in pending:
                if later.done():
                    later.result()  # raises, if it failed
            # Only the caller may hold it on: a chunk kept here would be one more in memory.
            del future
            yield job, value
            del value
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
