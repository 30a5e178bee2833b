"""Two ways of running a script, by turns: one of the two runs while the other, with all that belongs to it, is stopped.

A machine that others share changes its speed by tens of percent within seconds, and whole runs one after the other see
that and not what is looked for. Turns of half a second see it on both sides. What a turn says begins some time after
the other's end: samplers that were stopped catch up first.
"""

from __future__ import annotations

import bisect
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.benchmarks.overhead import SCRIPTS, Configuration, FailedError

TURN_S = 0.7
SETTLE_S = 0.2
WARM_S = 3.0
"""Of a program that steps: allocators and caches. The first, short windows of our sampler last 14 s, stopped time
included: most turns see it at its later, lower rate."""
PATIENCE_S = 60
STEPS = 200_000
"""More than a run comes to: it is killed in the end."""
LEFT_OUT = 2
"""Steps at either end of a turn."""


def alternated(script: str, one: Configuration, bare: Configuration, folder: Path, pairs: int) -> list[float]:
    """Mean time of a step of `one` over that of `bare`, in each pair of turns; the order changes from pair to pair.

    :raises FailedError: one of both did not run.
    """
    folder.mkdir()
    with _running(script, one, folder / "one") as ours, _running(script, bare, folder / "bare") as theirs:
        turns = []
        for number in range(pairs):
            order = ((ours, 0), (theirs, 1)) if number % 2 else ((theirs, 1), (ours, 0))
            spans = [(0.0, 0.0), (0.0, 0.0)]
            for side, at in order:
                spans[at] = side.turn()
            turns.append(spans)
        seen = [side.stamps() for side in (ours, theirs)]
    shutil.rmtree(folder)
    ratios = [_mean_step(seen[0], turn[0]) / _mean_step(seen[1], turn[1]) for turn in turns]
    found = [ratio for ratio in ratios if ratio == ratio]
    if not found:
        raise FailedError(f"{one.name}, {script}: a step takes too much of a turn of {TURN_S} s")
    return found


class _Side:
    """A script that runs only in its turns."""

    def __init__(self, name: str, process: subprocess.Popen[str], stamps: Path, errors: Path) -> None:
        self._name = name
        self._process = process
        self._stamps = stamps
        self._errors = errors

    def warm(self) -> None:
        """Until it has stepped for a while; then it is stopped."""
        until = time.monotonic() + PATIENCE_S
        while not self._stamps.exists() or not self.stamps():
            if self._process.poll() is not None or time.monotonic() > until:
                raise FailedError(f"{self._name}: {self._errors.read_text()[-1500:].strip()}")
            time.sleep(0.05)
        time.sleep(WARM_S)
        self._signal(signal.SIGSTOP)

    def turn(self) -> tuple[float, float]:
        self._signal(signal.SIGCONT)
        begin = time.perf_counter()
        time.sleep(TURN_S)
        end = time.perf_counter()
        self._signal(signal.SIGSTOP)
        if self._process.poll() is not None:
            raise FailedError(f"{self._name} ended: {self._errors.read_text()[-1500:].strip()}")
        return begin + SETTLE_S, end

    def stamps(self) -> list[float]:
        content = self._stamps.read_bytes()
        return [value for value in struct.unpack(f"{len(content) // 8}d", content) if value]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # of a root that had died before
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To all: our py-spy has a process group of its own, so no group's signal reaches it."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            root.send_signal(number)  # first: it starts no other meanwhile
            for process in root.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)


@contextmanager
def _running(script: str, one: Configuration, folder: Path) -> Iterator[_Side]:
    folder.mkdir()
    stamps, errors = folder / "stamps", folder / "errors"
    asked = {"OVERHEAD_STAMPS": str(stamps), "OVERHEAD_STEPS": str(STEPS)}
    with open(errors, "w", encoding="utf-8") as said:
        process = subprocess.Popen(
            one.command(str(SCRIPTS / script), folder / "out"),
            env={**os.environ, **one.environment, **asked},
            stdout=subprocess.DEVNULL,
            stderr=said,
            text=True,
            start_new_session=True,
        )
    side = _Side(one.name, process, stamps, errors)
    try:
        side.warm()
        yield side
    finally:
        side.kill()


def _mean_step(stamps: list[float], span: tuple[float, float]) -> float:
    """NaN where too few steps lie in it."""
    first = bisect.bisect_left(stamps, span[0]) + LEFT_OUT
    last = bisect.bisect_right(stamps, span[1]) - 1 - LEFT_OUT
    return (stamps[last] - stamps[first]) / (last - first) if last > first else float("nan")


CONTROL = Configuration("bare again", lambda script, _: (sys.executable, script))
"""What the method says of no difference."""
