"""Work on a cluster: waiting that ends when workers are lost, and the pool that learns orders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from distributed import Client, Future, get_client
from distributed import wait as wait_for_some
from distributed.client import CancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

Item = TypeVar("Item")
Shared = TypeVar("Shared")
Result = TypeVar("Result")

POLL_SECONDS = 0.5
WAIT_SECONDS = 30.0  # for a worker to appear, or for one to come back after all are lost
ATTEMPTS = 5  # to send what workers share, which is lost with the last worker that holds it


def find_client(client: Client | None) -> Client:
    """The client that was given, or the current one; raises RuntimeError if there is none."""
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError as error:
        raise RuntimeError(
            "no Dask client: pass client=, or make one first, distributed.Client()"
        ) from error


class ClusterPool:
    """Workers of a cluster that run jobs; implements `triegp.models.jobs.Pool`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def run(
        self,
        work: Callable[[Shared, Item], Result],
        shared: Shared,
        items: Sequence[Item],
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Result]:
        """Compute work(shared, item) for all items, in their order; `shared` is on every worker.

        A job whose worker is lost runs again on another one.
        """
        client = self._client

        def submit(left: Sequence[int]) -> list[Future]:
            (held,) = client.scatter([shared], broadcast=True, hash=False)  # it may be a tuple
            return [client.submit(work, held, items[k], pure=False) for k in left]

        return _finish(client, len(items), submit, progress)


def compute(client: Client, tasks: Sequence[Any]) -> list[Any]:
    """Results of delayed tasks, in their order.

    Tasks whose worker is lost run again on another one, and so does what they need.
    """
    return _finish(client, len(tasks), lambda left: client.compute([tasks[k] for k in left]))


def _finish(
    client: Client,
    n_tasks: int,
    submit: Callable[[Sequence[int]], list[Future]],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Any]:
    """Results of tasks 0, 1, ...; those that a restart of workers cancels are submitted again."""
    found: dict[int, Any] = {}
    seen: dict[str, str] = {}  # all workers so far
    last: Exception | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(POLL_SECONDS * 2**attempt)  # a restart takes seconds
        wait_for_workers(client, seen)
        left = [k for k in range(n_tasks) if k not in found]
        try:
            futures = submit(left)
        except (TimeoutError, CommClosedError, KeyError) as error:  # workers were lost on the way
            last = error
            continue
        try:
            for k, result in zip(left, _iterate(client, futures, seen), strict=True):
                found[k] = result
                progress(len(found))
            return [found[k] for k in range(n_tasks)]
        except (CancelledError, CommClosedError) as error:  # lost with what they shared
            last = error
    raise RuntimeError(
        f"workers were lost or restarted {ATTEMPTS} times; there were: worker {_named(seen)}"
    ) from last


def wait_for_workers(client: Client, seen: dict[str, str] | None = None) -> None:
    """Wait until there is a worker; raises RuntimeError after 30 seconds.

    seen: names of workers that were there before, by address.
    """
    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except TimeoutError:
        lost = f": lost are {_named(seen)}" if seen else ""
        raise RuntimeError(
            f"the cluster at {client.scheduler.address} has no workers{lost}"
        ) from None


def _named(seen: dict[str, str]) -> str:
    """Names of workers, for a message."""
    return ", ".join(sorted(set(seen.values())))


def _iterate(client: Client, futures: Sequence[Future], seen: dict[str, str]) -> Iterator[Any]:
    """Results of futures, in their order, each released as soon as it is here.

    Raises what a job raised; RuntimeError, with the name of a worker, if it was lost again and
    again; RuntimeError if no worker is left, or may run a task, for 30 seconds, or if the scheduler
    is gone. Futures that are not done are then cancelled.
    """
    seen |= _workers(client)
    rest = list(futures)
    try:
        while rest:
            _wait(client, rest[0], seen)
            yield _result(rest[0])
            rest.pop(0).release()
    finally:
        if rest and client.status == "running":
            client.cancel(rest)


def _wait(client: Client, future: Future, seen: dict[str, str]) -> None:
    """Wait until a future is done, has failed or is cancelled."""
    stuck_since = None
    while not future.done():
        try:
            wait_for_some(future, timeout=POLL_SECONDS)
            return
        except TimeoutError:
            pass
        if client.status != "running":
            raise RuntimeError(f"the scheduler of the cluster is gone (client {client.status})")
        now = _workers(client)
        seen |= now
        stuck = client.run_on_scheduler(_unrunnable_tasks) if now else 0
        if now and not stuck:
            stuck_since = None
            continue
        stuck_since = stuck_since or time.monotonic()
        if time.monotonic() - stuck_since <= WAIT_SECONDS:
            continue
        if not now:
            raise RuntimeError(f"all workers of the cluster are lost: {_named(seen)}")
        raise RuntimeError(
            f"{stuck} tasks of the cluster may run on none of its workers ({_named(now)}): they "
            "ask for resources or for workers that are not there"
        )


def _result(future: Future) -> Any:
    try:
        return future.result()
    except KilledWorker as error:
        worker = error.last_worker
        name = getattr(worker, "name", None) or getattr(worker, "address", worker)
        raise RuntimeError(
            f"worker {name} was lost, the last of several that ended while they worked on the same "
            "piece: it may need more memory than a worker has"
        ) from error


def _workers(client: Client) -> dict[str, str]:
    """Names of the workers by address."""
    found: dict[str, str] = client.run_on_scheduler(_worker_names)
    return found


def _unrunnable_tasks(dask_scheduler: Any) -> int:
    """Number of tasks that wait for a worker which may run them, while there are workers."""
    return len(dask_scheduler.unrunnable)


def _worker_names(dask_scheduler: Any) -> dict[str, str]:
    return {address: str(one.name) for address, one in dask_scheduler.workers.items()}
