"""A pool of processes of this machine.

Each worker is a `ProcessPoolExecutor` of its own with one process. An executor whose process dies is broken and gives
up all that it has: here that is one task, which is done again by a process in its place, and the other workers never
notice. And so it is known which task a death belongs to: one that takes two workers with it is a failure.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import (
    LOST,
    MAX_WORKER_DEATHS,
    ONE_THREAD,
    EnginePlugin,
    Failure,
    Learned,
    Lost,
    Prepare,
    R,
    T,
    Work,
    accepted,
    attempt,
    prepared,
)
from reference_trainer.ssm.placement import MemoryUse, Placement, WorkerSlot, find_free_devices, shared

_MOST_FALSE_STARTS: Final = 3
"""Processes of a worker that may die, or fail in their first work, in a row."""
_is_prepared = False
"""In a worker: its first work is done."""
_PRELOADED: Final = "reference_trainer.ssm.engines._preloaded"


class Pool:
    """Workers that are processes."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._busy = False
        """Tasks are under way."""
        self._redone = 0
        self._last: Failure | None = None
        """What the worker that was last to start failed by."""

    @property
    def workers(self) -> int:
        """Those that were started."""
        return len(self._workers)

    @property
    def device_names(self) -> tuple[str, ...]:
        """Of each the device."""
        return tuple(worker.slot.name for worker in self._workers)

    @property
    def redone(self) -> int:
        """How often a task was begun again, because the process that had it died."""
        return self._redone

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """Devices of this machine."""
        return find_free_devices(device, config, workers)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """One worker a device; the memory that each takes says how many more there is place for.

        These know then what the first ones have found out, and are ready sooner.

        The first ones have their device for themselves so long, and share it from their next task on.

        :raises TrainerError: one could not be started.
        """
        first = placement.first()
        memory_use = self._add(first, prepare)
        learned = tuple(use.learned for use in memory_use)
        slots = shared([*first, *placement.rest(memory_use)])
        for worker, slot in zip(self._workers, slots, strict=False):
            worker.slot, worker.learned = slot, learned
        self._add(slots[len(first) :], prepare, learned)

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """A task a worker at a time: who is done first gets the next."""
        waiting = deque(enumerate(tasks))
        idle = deque(self._workers)
        ended: SimpleQueue[tuple[_Worker, int, T, Future[R | Failure]]] = SimpleQueue()
        deaths: Counter[int] = Counter()
        under_way = 0
        self._busy = True
        while waiting or under_way:
            while waiting and idle:
                worker = idle.popleft()
                number, task = waiting.popleft()
                future: Future[R | Failure] = worker.submit(work, task)
                future.add_done_callback(partial(_put, ended, worker, number, task))
                under_way += 1
            if not under_way:
                break
            with marks.region("workers"):
                worker, number, task, future = ended.get()
            under_way -= 1
            result = _result(future)
            if result is not LOST:
                idle.append(worker)
                yield task, result
                continue
            began, self._last = worker.began, worker.failed
            if worker.restart():
                idle.append(worker)
            deaths[number] += began
            if deaths[number] < MAX_WORKER_DEATHS:
                waiting.appendleft((number, task))
                self._redone += began
            else:
                yield task, Failure.death()
        for _, task in waiting:
            yield task, Failure.no_worker(self._last)
        self._busy = False

    def close(self) -> None:
        """End the workers; those in the middle of a task are killed."""
        for worker in self._workers:
            worker.close(kill=self._busy)
        self._workers = []

    def _add(self, slots: Sequence[WorkerSlot], prepare: Prepare, learned: Learned = ()) -> list[MemoryUse]:
        added = []
        for slot in slots:
            added.append(_Worker(slot, prepare, learned))
            self._workers.append(added[-1])
        self._busy = True
        memory_use = [worker.started() for worker in added]
        self._busy = False
        return memory_use


def _put(
    ended: SimpleQueue[tuple[_Worker, int, T, Future[R | Failure]]],
    worker: _Worker,
    number: int,
    task: T,
    future: Future[R | Failure],
) -> None:
    ended.put((worker, number, task, future))


def _result(future: Future[R | Failure]) -> R | Failure | Lost:
    """Lost: the worker died, or did not take it: its first work had failed."""
    error = future.exception()
    if error is None:
        return future.result()
    return LOST if isinstance(error, (BrokenProcessPool, _UnpreparedError)) else Failure.of(error)


class _UnpreparedError(Exception):
    """The task was queued before it was known that the first work of the worker failed."""


class _Worker:
    """A process, and the next one where it died."""

    def __init__(self, slot: WorkerSlot, prepare: Prepare, learned: Learned) -> None:
        self.slot = slot
        self.learned = learned
        self._prepare = prepare
        self._false_starts = 0
        self._open()

    def _open(self) -> None:
        # What CUDA has loaded does not survive a fork, and a new process need not load torch again where it can.
        context: Any
        if self.slot.device == "cpu":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([_PRELOADED])
        else:
            context = multiprocessing.get_context("spawn")
        try:
            theirs, self._line = context.Pipe(duplex=False)
            with theirs, _environment(ONE_THREAD):
                self._executor = ProcessPoolExecutor(1, context, _begin, (theirs,))
                self._hello = self._executor.submit(_hello, self._prepare, self.slot, self.learned)
        except (OSError, EOFError) as error:  # of files, of processes, or the server from which they are forked died
            reason = str(error) or type(error).__name__
            raise TrainerError(f"a worker could not be started: {reason}; fewer --workers may do") from None

    @property
    def began(self) -> bool:
        """The process came as far as to have tasks."""
        return self._greeted and self.failed is None

    @property
    def failed(self) -> Failure | None:
        """What the first work of the process failed by; None: it did not fail, or the process died of it."""
        result = self._hello.result()[1] if self._greeted else None
        return result if isinstance(result, Failure) else None

    @property
    def _greeted(self) -> bool:
        return self._hello.done() and self._hello.exception() is None

    def started(self) -> MemoryUse:
        """Wait for the first work of the process.

        :raises TrainerError: it failed, or the process died.
        """
        try:
            _, result = self._hello.result()
        except BrokenProcessPool:
            raise TrainerError(
                f"a worker on {self.slot.name} died while it started: killed, or out of memory; try fewer --workers"
            ) from None
        return accepted(result)

    def submit(self, work: Work[T, R], task: T) -> Future[R | Failure]:
        """Have it do a task; of a process that died meanwhile by the next one."""
        try:
            return self._executor.submit(_attempt, work, task, self.slot)
        except BrokenProcessPool:
            self._reopen()
            return self._executor.submit(_attempt, work, task, self.slot)

    def restart(self) -> bool:
        """A new process for one that died, or whose first work failed; False: none comes as far as to have a task."""
        self._false_starts = 0 if self.began else self._false_starts + 1
        if self._false_starts >= _MOST_FALSE_STARTS:
            return False
        self._reopen()
        return True

    def close(self, *, kill: bool) -> None:
        """End the process."""
        if kill:
            self._kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._line.close()

    def _reopen(self) -> None:
        self._executor.shutdown(wait=True)
        self._line.close()
        self._open()

    def _kill(self) -> None:
        """At once, whatever it does."""
        self._line.close()  # ends it where it is not up yet
        if self._greeted:
            process, _ = self._hello.result()
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """For processes that are started in it: libraries read these when they are loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ---------------------------------------------------------------- in the worker


def _begin(line: Connection) -> None:
    """Ctrl-C is the sweep's own; and when that is gone, this is too, whatever it is doing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = sys.__excepthook__  # the server's own knows why it may not start
    os.environ.update(ONE_THREAD)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()


def _end_with(line: Connection) -> None:
    """Nothing is ever sent: what comes is the end of the process at the other end, also by kill -9."""
    with suppress(EOFError, OSError):
        line.recv_bytes()
    os._exit(1)


def _hello(prepare: Prepare, slot: WorkerSlot, learned: Learned) -> tuple[int, MemoryUse | Failure]:
    """The process, and its first work."""
    global _is_prepared
    try:
        result = prepared(prepare, slot, learned)
    except TrainerError as error:
        return os.getpid(), Failure.of(error)
    _is_prepared = True
    return os.getpid(), result


def _attempt(work: Work[T, R], task: T, slot: WorkerSlot) -> R | Failure:
    """A task."""
    if not _is_prepared:
        raise _UnpreparedError
    return attempt(work, task, slot)


def _open(address: str | None) -> Pool:
    if address is not None:
        raise TrainerError("--address is of engine ray: leave it out")
    return Pool()


PLUGIN = EnginePlugin("pool", "processes of this machine", _open)
