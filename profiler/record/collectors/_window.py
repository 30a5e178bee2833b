"""One run of py-spy on one process: started, its trace read, and what it wrote put on our clock."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler.core.procfs import thread_ids, thread_times, wait_exit
from profiler.record.collectors import _preempt
from profiler.record.collectors._chrometrace import Span, spans
from profiler.record.collectors._speedscope import held

_POLL_S: Final = 0.05  # thread clocks: 20 readings a second of about 8 µs a thread
_MOST_THREADS: Final = 64  # of which clocks are read, beside those that are known to run Python
_WROTE: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")
_CUT: Final = "Stopped sampling because"  # its process exited, or SIGINT
FORBIDDEN: Final = (
    "ptrace is forbidden here: run as root, give the container the capability SYS_PTRACE, "
    "or set kernel.yama.ptrace_scope to 0"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next window is to see."""

    pid: int
    seconds: int
    rate: int
    """Samples a second."""
    gil: bool
    """True: only the thread that holds the GIL; False: every thread."""
    preempt: bool


@dataclass(frozen=True, slots=True)
class Converted:
    """What a window gave."""

    rows: list[Span]
    values: list[tuple[int, int, str, float]]
    end: int
    errors: int


@dataclass
class Window:
    """One py-spy at work."""

    plan: Plan
    process: subprocess.Popen[bytes]
    output: Path
    log: Path
    begin: int
    known: frozenset[int] = frozenset()
    """Threads that ran Python in the window before."""
    sampling: int = 0
    """ns at which it was seen to sample; 0: not yet."""
    end: int = 0
    cpu_s: float = 0.0
    start_s: float = 0.0
    """CPU seconds of it that went by until it sampled: some 20 ms, of a window of 1 s as much as 60 samples."""
    refused: bool = False
    """Its place before the sampled thread was denied."""
    polls: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)

    def wait(self) -> bool:
        """Read thread clocks until py-spy has ended; True when it wrote something."""
        seat = _preempt.Seat(self.process.pid, self.plan.pid) if self.plan.preempt else None
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + _POLL_S
                self._poll()
            if wait_exit(self.process.pid, min(_POLL_S, seat.pause_s) if seat else _POLL_S):
                break
            if not self.sampling and self.log.stat().st_size:  # its first words are said when it has attached
                self.sampling = time.monotonic_ns()
                self.start_s = _cpu_seconds(self.process.pid)
            if seat and self.sampling:  # it starts, and writes in the end, on a core of its own: some 20 ms each time
                if self.output.exists():  # made behind the last sample, and written then
                    seat.leave()
                else:
                    seat.take()
        self.refused = seat is not None and seat.refused
        self.end = time.monotonic_ns()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.process.returncode == 0 and self.output.exists()

    @property
    def killed(self) -> bool:
        """By a signal, and so without a trace."""
        return self.process.returncode is not None and self.process.returncode < 0

    def _poll(self) -> None:
        if self.plan.gil:
            return
        tids = thread_ids(self.plan.pid)
        if len(tids) > _MOST_THREADS:
            tids = sorted({*tids[:_MOST_THREADS], *self.known.intersection(tids)})
        clocks = {tid: times.cpu_ns for tid, times in thread_times(self.plan.pid, tids).items()}
        self.polls.append((time.monotonic_ns(), clocks))

    def signal(self, number: signal.Signals) -> None:
        """SIGINT: write what there is, and end."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def convert(self) -> Converted:
        """Its file as rows, on our clock."""
        content = self.output.read_bytes()
        log = self.log.read_text(errors="replace")
        wrote = _WROTE.search(log)
        samples, errors = (int(wrote[1]), int(wrote[2])) if wrote else (0, 0)
        self.output.unlink()
        self.log.unlink()
        document = json.loads(content)
        rows, values, end = self._of_gil(document, _CUT in log) if self.plan.gil else self._of_all(document, samples)
        return Converted(rows, values, end, errors)

    def _of_all(self, events: Sequence[Mapping[str, object]], samples: int) -> _Parts:
        """A chrome trace: its zero lies between our two clock readings, and the middle is taken."""
        if not events:
            return [], [], self.end
        slack = max(0, self.end - self.begin - max(int(str(event["ts"])) for event in events) * 1000)
        rows = spans(events, self.begin + slack // 2, self.polls)
        pid = self.plan.pid
        values = [(pid, 0, "stacks.clock_slack_s", slack / 2e9)]
        if samples:
            values.append((pid, 0, "stacks.period_s", sum(r.end - r.begin for r in rows) / samples / 1e9))
        return rows, values, self.end

    def _of_gil(self, document: Mapping[str, object], cut: bool) -> _Parts:
        """py-spy looks seconds x rate times, at random moments: a window lasts about as long as it was asked to.

        One that was cut short looked about as often as its time allows.
        """
        begin = self.sampling or self.begin
        observed = self.end - begin
        ticks = self.plan.seconds * self.plan.rate
        if cut:
            ticks = max(1, round(observed / 1e9 * self.plan.rate))
        rows = held(document, self.plan.pid, begin, observed, ticks)
        pid = self.plan.pid
        values = [(pid, 0, "stacks.gil_window_s", observed / 1e9), (pid, 0, "stacks.gil_ticks", float(ticks))]
        return rows, values, begin + observed

    def reason(self) -> str:
        """Why it ended without a trace, in one line."""
        self.output.unlink(missing_ok=True)
        try:
            text = self.log.read_text(errors="replace")
            self.log.unlink()
        except OSError as error:
            return f"py-spy left no log: {error.strerror}"
        if re.search(r"permission denied|operation not permitted", text, re.IGNORECASE):
            return FORBIDDEN
        lines = [line.strip() for line in text.splitlines() if line.startswith(("Error:", "Reason:"))]
        return "py-spy: " + (" ".join(lines) or " ".join(text.split())[-200:] or "no reason given")


def _cpu_seconds(pid: int) -> float:
    return sum(times.cpu_ns for times in thread_times(pid, thread_ids(pid)).values()) / 1e9


_Parts = tuple[list[Span], list[tuple[int, int, str, float]], int]


def open_window(program: str, plan: Plan, stem: Path, known: frozenset[int]) -> Window:
    """Start py-spy; in a process group of its own, away from Ctrl-C."""
    output, log = stem.with_suffix(".json"), stem.with_suffix(".log")
    command = [program, "record", "--pid", str(plan.pid), "--output", str(output)]
    command += ["--format", "speedscope" if plan.gil else "chrometrace"]
    command += ["--duration", str(plan.seconds), "--rate", str(plan.rate), "--threads", "--idle", "--full-filenames"]
    if plan.gil:
        command.append("--gil")
    if plan.preempt:
        command.append("--nonblocking")  # the main thread stands still while py-spy has its core
    begin = time.monotonic_ns()
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0
        )
    return Window(plan, process, output, log, begin, known)
