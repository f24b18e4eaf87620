"""Work done ahead of time by threads, delivered in order: the results are those of a plain loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")


def ahead(work: Callable[[Job], Done], jobs: Iterable[Job], workers: int) -> Iterator[Done]:
    """Yield work(job) for each job in order, up to 2*workers of them prepared by threads meanwhile.

    An error in a thread is raised where its result would have been; leaving early stops the threads.
    """
    if workers == 0:
        yield from map(work, jobs)
        return
    remaining = iter(jobs)
    with ThreadPoolExecutor(workers, thread_name_prefix="nfm-data") as pool:
        pending: deque[Future[Done]] = deque(pool.submit(work, job) for job in islice(remaining, 2 * workers))
        try:
            while pending:
                done = pending.popleft().result()
                pending.extend(pool.submit(work, job) for job in islice(remaining, 1))
                yield done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
