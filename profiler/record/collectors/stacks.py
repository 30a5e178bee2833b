"""Samples the stacks of the target's Python processes from outside, with py-spy, each process in windows of its own.

py-spy writes only when it ends and on a clock of its own: so it records windows of up to 8 s, each with a reading of
our clock before and after; a kill -9 loses one window. Nor does it tell in one pass who holds the GIL: a second py-spy
beside it samples the holder alone. Sampling is rare until the program steps, and then begins anew.

Where it may, it preempts the main thread for each sample (RealtimePriority); elsewhere py-spy stops the target's
threads (some 100 µs), and on a machine whose cores are all busy the samples lean toward waiting, which the status
tells.

Each process has its own py-spys, not one with --subprocesses for all: that one could run on one core only, so only
one process would be sampled rightly, and it samples helper processes too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from profiler.core.procfs import is_python, process_tree, read_arguments
from profiler.record.collectors import Context, describe_error
from profiler.record.collectors._pyspy import ENDED_TOO_SOON, find_py_spy, may_preempt
from profiler.record.collectors._sampling import ProcessSampler
from profiler.run.model import CollectorStatus
from profiler.run.tables import packer

MAX_PROCESSES: Final = 9
"""Sampled at a time: eight ranks and their launcher. Each costs a py-spy, and its target a share of every sample."""
_LOOK_S: Final = 0.5
"""Time between two looks for new processes; a process that is not there at two looks is not sampled."""
_STEP_LOOK_S: Final = 0.05
"""Time between two looks for the first steps, of some 20 µs."""
_FIRST_RECORDS: Final = 2
"""Records of steps, or of boundaries, from which a program counts as stepping: its first boundary may be the request
for the first batch, which compilation follows."""
_HELPERS: Final = ("multiprocessing.resource_tracker", "torch._inductor.compile_worker", "_inductor/compile_worker")
"""Python processes that do no work of the program's own, by their command line."""
LEANING: Final = (
    "samples lean toward waiting where all cores are busy: py-spy may not preempt the program "
    "(needs root or the capability SYS_NICE)"
)


class StacksCollector:
    """A thread that gives every Python process of the target a sampler, up to MAX_PROCESSES."""

    name: ClassVar[str] = "stacks"
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")
    start_order: ClassVar[int] = 0

    def available(self) -> str | None:
        program = find_py_spy()
        if program is None:
            return "py-spy is not installed: pip install py-spy"
        self._program = program
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        self._context = context
        self._preempt = may_preempt()
        self._samplers: dict[int, ProcessSampler] = {}
        self._left_out: set[int] = set()
        self._ended = threading.Event()
        self._steps = not context.spec.hooks
        self._cost = 0.0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="collector stacks", daemon=True)
        self._thread.start()

    def stop(self) -> CollectorStatus:
        """Windows of processes that have ended end by themselves; those of living ones are cut short."""
        self._ended.set()
        self._thread.join()
        samplers = self._samplers.values()
        for sampler in samplers:
            sampler.end()
        for sampler in samplers:
            sampler.join()
        return replace(
            self._status(),
            records=sum(sampler.records for sampler in samplers),
            dropped=sum(sampler.dropped for sampler in samplers),
            cost_s=self._cost + sum(sampler.cost_s for sampler in samplers),
        )

    def _status(self) -> CollectorStatus:
        samplers = self._samplers.values()
        errors = [error for error in (self._error, *(sampler.error for sampler in samplers)) if error]
        if errors:
            return CollectorStatus(self.name, "failed", errors[0])
        if any(sampler.records for sampler in samplers):
            return CollectorStatus(self.name, "ok", "; ".join(self._limitations()))
        refusal = next((sampler.refusal for sampler in samplers if sampler.refusal), None)
        if refusal and refusal.forbidden:
            return CollectorStatus(self.name, "unavailable", refusal.reason, code="ptrace-forbidden")
        reason = refusal.reason if refusal else ENDED_TOO_SOON
        return CollectorStatus(self.name, "failed", reason)

    def _limitations(self) -> list[str]:
        samplers = self._samplers.values()
        killed = sum(sampler.killed_windows for sampler in samplers)
        left_out = len(self._left_out.difference(self._samplers))
        lines = [] if all(sampler.preempts for sampler in samplers) else [LEANING]
        if killed:
            lines.append(f"windows lost because their py-spy was killed: {killed}")
        if left_out:
            lines.append(f"the first {MAX_PROCESSES} Python processes were sampled, {left_out} were left out")
        return lines

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = describe_error(error)
        finally:
            self._cost += time.thread_time()

    def _watch(self) -> None:
        """Sample what is there now, then each process that is there at two looks."""
        before = sampled_processes(self._context.pid)
        self._sample(before or [self._context.pid])
        due = time.monotonic() + _LOOK_S
        while not self._ended.wait(_LOOK_S if self._steps else _STEP_LOOK_S):
            self._steps = self._steps or has_steps(self._context.spec.out)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + _LOOK_S
            now = sampled_processes(self._context.pid)
            self._sample(pid for pid in now if pid in before)
            before = now

    def _sample(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid in self._samplers:
                continue
            if sum(sampler.alive for sampler in self._samplers.values()) >= MAX_PROCESSES:
                self._left_out.add(pid)
            else:
                self._samplers[pid] = ProcessSampler(
                    self._context, self._program, pid, preempt=self._preempt, stepping=lambda: self._steps
                )


def has_steps(run: Path) -> bool:
    """Tell whether a process of the recorded program steps: its tables of steps or of boundaries grow."""
    return any(
        path.stat().st_size >= _FIRST_RECORDS * packer(table).size
        for table in ("steps", "boundaries")
        for path in run.glob(f"source-*/{table}.bin")
    )


def sampled_processes(pid: int) -> list[int]:
    """Return the Python processes in the tree of `pid`, by generation, without mere helpers."""
    pythons = list(filter(is_python, process_tree(pid)))
    helpers = {pid for pid in pythons[1:] if any(mark in " ".join(read_arguments(pid)) for mark in _HELPERS)}
    return [pid for pid in pythons if pid not in helpers]


PLUGIN = StacksCollector
