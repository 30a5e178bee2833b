"""Samples the stacks of the target's Python threads from outside, with py-spy, in windows.

py-spy writes only when it ends and on a clock of its own: so it records windows of 10 s, each with a reading of our
clock before and after; a kill -9 loses one window. Where it may, it preempts the main thread for each sample (see
`_preempt`); elsewhere py-spy stops the target's threads (some 100 µs), and on a machine whose cores are all busy the
samples lean toward waiting, which the run says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from profiler.record.collector import Context
from profiler.record.collectors import _preempt
from profiler.record.collectors._chrometrace import spans
from profiler.record.processes import descendants, is_python, thread_cpu, thread_ids, wait_exit
from profiler.run.model import CollectorStatus
from profiler.run.store import RECORDER

_WINDOW_S: Final = 10
_POLL_S: Final = 0.05  # thread clocks: 20 readings a second of about 8 µs a thread
_MOST_THREADS: Final = 64  # of which clocks are read
_SETTLE_S: Final = 0.1  # py-spy starts (10 to 20 ms) undisturbed by our conversion: its clock's zero is better known
_RETRY_S: Final = (0.05, 1.0)  # first and longest pause after a py-spy that could not attach
_PATIENCE_S: Final = 3.0  # for py-spy to notice that the target has ended, before it is told
_WROTE: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")
FORBIDDEN: Final = (
    "ptrace is forbidden here: run as root, give the container the capability SYS_PTRACE, "
    "or set kernel.yama.ptrace_scope to 0"
)
LEANING: Final = (
    "samples lean toward waiting where all cores are busy: py-spy may not preempt the program "
    "(needs root or the capability SYS_NICE)"
)


@dataclass
class _Window:
    """One run of py-spy."""

    process: subprocess.Popen[bytes]
    pid: int
    output: Path
    log: Path
    begin: int
    end: int = 0
    cpu_s: float = 0.0
    polls: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)


class StacksCollector:
    """A thread in the recorder that keeps one py-spy at work and converts what the one before wrote."""

    name: ClassVar[str] = "stacks"
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def available(self) -> str | None:
        found = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
        found = found or shutil.which("py-spy")
        if found is None:
            return "py-spy is not installed: pip install py-spy"
        self._program = found
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        self._context = context
        self._ended = threading.Event()
        self._records = self._dropped = self._number = 0
        self._cost = 0.0
        self._refusal = self._error = ""
        self._preempts = _preempt.permitted()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="collector stacks", daemon=True)
        self._thread.start()

    def stop(self) -> CollectorStatus:
        """The target has ended, and py-spy sees that by itself; one that does not is told."""
        self._ended.set()
        for sign in (signal.SIGINT, signal.SIGKILL):
            self._thread.join(_PATIENCE_S)
            process = self._process
            if self._thread.is_alive() and process is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, sign)
        self._thread.join()
        state, reason = self._verdict()
        return CollectorStatus(
            self.name, state, reason, records=self._records, dropped=self._dropped, cost_s=self._cost
        )

    def _verdict(self) -> tuple[str, str]:
        if self._error:
            return "failed", self._error
        if self._records:
            return "ok", "" if self._preempts else LEANING
        if self._refusal == FORBIDDEN:
            return "unavailable", self._refusal
        return "failed", self._refusal or "the target ended before the first sample"

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        finally:
            self._cost += time.thread_time()

    def _record(self) -> None:
        """Window after window; while one records, the one before is converted."""
        pause = _RETRY_S[0]
        done: _Window | None = None
        while not self._ended.is_set():
            window = self._open()
            if done:
                wait_exit(window.process.pid, _SETTLE_S)
                self._convert(done)
                done = None
            if self._wait(window):
                done, pause = window, _RETRY_S[0]
            else:
                self._refusal = _reason(window.log)
                self._ended.wait(pause)
                pause = min(_RETRY_S[1], pause * 2)
        if done:
            self._convert(done)

    def _open(self) -> _Window:
        """Start py-spy on the Python process of the target. In a process group of its own, away from Ctrl-C."""
        spec = self._context.spec
        folder = spec.out / RECORDER
        self._number += 1
        output, log = folder / f"window-{self._number}.json", folder / f"window-{self._number}.log"
        pid = python_of(self._context.pid)
        command = [self._program, "record", "--pid", str(pid), "--output", str(output), "--format", "chrometrace"]
        command += ["--duration", str(_WINDOW_S), "--rate", str(spec.stack_rate)]
        command += ["--threads", "--idle", "--full-filenames"]
        if self._preempts:
            command.append("--nonblocking")  # the main thread stands still while py-spy has its core
        begin = time.monotonic_ns()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
        self._process = process
        return _Window(process, pid, output, log, begin)

    def _wait(self, window: _Window) -> bool:
        """Read thread clocks until py-spy has ended; True when it wrote something."""
        seat = _preempt.Seat(window.process.pid, window.pid) if self._preempts else None
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + _POLL_S
                tids = thread_ids(window.pid)[:_MOST_THREADS]
                window.polls.append((time.monotonic_ns(), thread_cpu(window.pid, tids)))
            if wait_exit(window.process.pid, _preempt.FOLLOW_S if seat else _POLL_S):
                break
            if seat:
                seat.take()
        if seat and seat.refused:
            self._preempts = False  # from the next window on it stops threads instead; the status says how it was
        window.end = time.monotonic_ns()
        _, status, usage = os.wait4(window.process.pid, 0)
        window.process.returncode = os.waitstatus_to_exitcode(status)
        self._cost += usage.ru_utime + usage.ru_stime
        return window.process.returncode == 0 and window.output.exists()

    def _convert(self, window: _Window) -> None:
        """The window's trace -> the stacks table. Its zero lies between our two clock readings: the middle is taken."""
        events = json.loads(window.output.read_bytes())
        wrote = _WROTE.search(window.log.read_text(errors="replace"))
        samples, errors = (int(wrote[1]), int(wrote[2])) if wrote else (0, 0)
        if events:
            slack = max(0, window.end - window.begin - max(int(event["ts"]) for event in events) * 1000)
            rows = spans(events, window.begin + slack // 2, window.polls)
            self._context.writer.stacks(rows)
            values = [(window.pid, 0, "stacks.clock_slack_s", slack / 2e9)]
            if samples:
                values.append((window.pid, 0, "stacks.period_s", sum(r.end - r.begin for r in rows) / samples / 1e9))
            self._context.writer.samples(window.end, values)
            self._records += len(rows)
        self._dropped += errors
        window.output.unlink()
        window.log.unlink()


def python_of(pid: int) -> int:
    """The first Python process in the tree of `pid`; `pid` itself where none is found (it may embed one)."""
    return next((process for process in (pid, *descendants(pid)) if is_python(process)), pid)


def _reason(log: Path) -> str:
    """Why py-spy ended without a trace, in one line."""
    try:
        text = log.read_text(errors="replace")
        log.unlink()
    except OSError as error:
        return f"py-spy left no log: {error.strerror}"
    if re.search(r"permission denied|operation not permitted", text, re.IGNORECASE):
        return FORBIDDEN
    lines = [line.strip() for line in text.splitlines() if line.startswith(("Error:", "Reason:"))]
    return "py-spy: " + (" ".join(lines) or text.strip()[-200:] or "no reason given")


PLUGIN = StacksCollector
