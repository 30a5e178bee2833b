"""The engine that uses a pool of processes of this machine.

Each worker is a `ProcessPoolExecutor` of its own with one process. An executor whose process dies is broken and gives
up all that it has, which here is one task; the other workers are not affected. So it is known which task a death
belongs to.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.ssm.engine import (
    EnginePlugin,
    Failure,
    Prepare,
    R,
    T,
    Work,
    Worker,
    WorkerEngine,
    attempt,
    use_one_thread,
)
from reference_trainer.ssm.placement import MemoryUse, Placement, WorkerSlot, shared

_PRELOADED: Final = "reference_trainer.ssm.engines._preloaded"


class Pool(WorkerEngine["_Process"]):
    """Workers that are processes of this machine."""

    @property
    def device_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(worker.slot.name for worker in self.pool)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Start one worker per device; the memory that it takes determines how many more are started.

        The first ones have their device to themselves until then, and share it from their next task on.
        """
        first = placement.first()
        slots = shared([*first, *placement.rest(self._add(first, prepare))])
        for worker, slot in zip(self.pool, slots, strict=False):
            worker.slot = slot
        self._add(slots[len(first) :], prepare)

    def _add(self, slots: Sequence[WorkerSlot], prepare: Prepare) -> list[MemoryUse]:
        self.is_busy = True
        added = [_Process(slot, prepare) for slot in slots]
        for worker in added:
            worker.open()
            self.pool.append(worker)
        memory_use = [worker.memory_use() for worker in added]
        self.is_busy = False
        return memory_use


class _Process(Worker):
    """A worker that is a process."""

    def __init__(self, slot: WorkerSlot, prepare: Prepare) -> None:
        self.slot = slot
        self.device_name = slot.name
        self._prepare = prepare
        self._executor: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None

    def open(self) -> None:
        self.close(kill=False)
        # What CUDA has loaded does not survive a fork; without CUDA a forked process need not load torch again.
        context: Any
        if self.slot.device == "cpu":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([_PRELOADED])
        else:
            context = multiprocessing.get_context("spawn")
        try:
            theirs, self._pipe = context.Pipe(duplex=False)
            with theirs:
                self._executor = ProcessPoolExecutor(1, context, _initialize, (theirs,))
                self.first_work = self._executor.submit(attempt, self._prepare, self.slot)
            with suppress(BrokenProcessPool):  # the first work tells that the process has died already
                self._pid = self._executor.submit(os.getpid)
        except (OSError, EOFError) as error:  # too many files or processes, or the server of forks died
            reason = str(error) or type(error).__name__
            raise TrainerError(f"a worker could not be started: {reason}; fewer --workers may do") from None

    def submit(self, work: Work[T, R], task: T) -> Future[R | Failure]:
        assert self._executor is not None
        return self._executor.submit(attempt, work, task, self.slot, device=self.slot.name)

    def cause(self, error: BaseException) -> BaseException | None:
        return None if isinstance(error, BrokenProcessPool) else error

    def close(self, *, kill: bool) -> None:
        if self._executor is None:
            return
        if kill:
            self._pipe.close()  # ends a process that is not stuck in compiled code
            if self._pid is not None and self._pid.done() and self._pid.exception() is None:
                with suppress(ProcessLookupError):
                    os.kill(self._pid.result(), signal.SIGKILL)
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._pipe.close()
        self._executor = self._pid = None


def _initialize(pipe: Connection) -> None:
    """Prepare the worker's process: the sweep handles Ctrl-C, and the process ends when the sweep does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = sys.__excepthook__  # that of the server hides errors
    use_one_thread()
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _end_with(pipe: Connection) -> None:
    """Exit when the other end of the pipe is closed, as it also is by kill -9; nothing is ever sent."""
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    os._exit(1)


PLUGIN = EnginePlugin("pool", lambda _: Pool())
