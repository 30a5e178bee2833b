"""Samples the stacks of the target's Python processes from outside, with py-spy, each process in windows of its own.

py-spy writes only when it ends and on a clock of its own: so it records windows of up to 8 s, each with a reading of
our clock before and after; a kill -9 loses one window. Nor does it tell in one pass who holds the GIL: windows of its
holder alone lie between those of all threads. Where it may, it preempts the main thread for each sample (`_preempt`);
elsewhere py-spy stops the target's threads (some 100 µs), and on a machine whose cores are all busy the samples lean
toward waiting, which the run says.

Each process has a py-spy to itself, not one with --subprocesses for all: that one could stand on one core only, so only
one process would be sampled rightly, and it takes every process there is.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from profiler.core.procfs import is_python, process_tree, read_arguments
from profiler.record.collector import Context
from profiler.record.collectors import _preempt
from profiler.record.collectors._lane import Equipment, Lane
from profiler.record.collectors._window import FORBIDDEN
from profiler.run.model import CollectorState, CollectorStatus
from profiler.run.store import RECORDER

__all__ = ["FORBIDDEN", "LEANING", "MOST_PROCESSES", "StacksCollector", "find_py_spy", "python_of", "sampled_processes"]
MOST_PROCESSES: Final = 8
"""So many are sampled at a time: each costs a py-spy and its target a share of every sample."""
_LOOK_S: Final = 0.5  # how late a new process may be seen; one that is not there at two looks is not sampled
_HELPERS: Final = ("multiprocessing.resource_tracker", "torch._inductor.compile_worker", "_inductor/compile_worker")
"""Python processes that do no work of the program's own: by their command line."""
LEANING: Final = (
    "samples lean toward waiting where all cores are busy: py-spy may not preempt the program "
    "(needs root or the capability SYS_NICE)"
)


class StacksCollector:
    """A thread in the recorder that gives every Python process of the target a lane, up to MOST_PROCESSES."""

    name: ClassVar[str] = "stacks"
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

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
        self._equipment = Equipment(
            self._program, context.spec.out / RECORDER, context.writer, preempts=_preempt.permitted()
        )
        self._lanes: dict[int, Lane] = {}
        self._left_out: set[int] = set()
        self._ended = threading.Event()
        self._cost = 0.0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="collector stacks", daemon=True)
        self._thread.start()

    def stop(self) -> CollectorStatus:
        """Windows of processes that have ended end by themselves; those of the living are cut short."""
        self._ended.set()
        self._thread.join()
        lanes = self._lanes.values()
        for lane in lanes:
            lane.end()
        for lane in lanes:
            lane.join()
        state, reason = self._verdict()
        return CollectorStatus(
            self.name,
            state,
            reason,
            code="ptrace-forbidden" if reason == FORBIDDEN else "",
            records=sum(lane.records for lane in lanes),
            dropped=sum(lane.dropped for lane in lanes),
            cost_s=self._cost + sum(lane.cost_s for lane in lanes),
        )

    def _verdict(self) -> tuple[CollectorState, str]:
        lanes = self._lanes.values()
        errors = [error for error in (self._error, *(lane.error for lane in lanes)) if error]
        if errors:
            return "failed", errors[0]
        if any(lane.records for lane in lanes):
            preempted = self._equipment.preempts and not any(lane.lost_seat for lane in lanes)
            said = "" if preempted else LEANING, self._said_of_lost(), self._said_of_left_out()
            return "ok", "; ".join(filter(None, said))
        refusals = [lane.refusal for lane in lanes if lane.refusal]
        if refusals and refusals[0] == FORBIDDEN:
            return "unavailable", FORBIDDEN
        return "failed", refusals[0] if refusals else "the target ended before the first sample"

    def _said_of_lost(self) -> str:
        lost = sum(lane.lost for lane in self._lanes.values())
        return f"windows lost because their py-spy was killed: {lost}" if lost else ""

    def _said_of_left_out(self) -> str:
        count = len(self._left_out.difference(self._lanes))
        return f"the first {MOST_PROCESSES} Python processes were sampled, {count} were left out" if count else ""

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        finally:
            self._cost += time.thread_time()

    def _watch(self) -> None:
        """Give a lane to what is there now, then to each process that is there at two looks."""
        seen = sampled_processes(self._context.pid)
        self._give(seen or [self._context.pid])
        while not self._ended.wait(_LOOK_S):
            now = sampled_processes(self._context.pid)
            self._give([pid for pid in now if pid in seen])
            seen = now

    def _give(self, pids: list[int]) -> None:
        for pid in pids:
            if pid in self._lanes:
                continue
            if sum(lane.alive for lane in self._lanes.values()) >= MOST_PROCESSES:
                self._left_out.add(pid)
            else:
                self._lanes[pid] = Lane(self._equipment, pid, self._context.spec.stack_rate)


def find_py_spy() -> str | None:
    """The path of py-spy: beside this Python, or found as a shell does."""
    beside = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    return beside or shutil.which("py-spy")


def python_of(pid: int) -> int:
    """The first Python process in the tree of `pid`; `pid` itself where none is found (it may embed one)."""
    return next(filter(is_python, process_tree(pid)), pid)


def sampled_processes(pid: int) -> list[int]:
    """The Python processes in the tree of `pid`, those next to it first, without mere helpers."""
    found = list(filter(is_python, process_tree(pid)))
    return found[:1] + [one for one in found[1:] if not any(mark in " ".join(read_arguments(one)) for mark in _HELPERS)]


PLUGIN = StacksCollector
