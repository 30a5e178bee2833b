"""Two ways of running a script in alternation: one runs while the other is frozen with all its processes.

A shared machine changes its speed by tens of percent within seconds, which dominates a comparison of whole runs one
after the other. Blocks of half a second affect both sides alike. The first moments of a block are left out, because
samplers that were frozen catch up then.
"""

from __future__ import annotations

import bisect
import math
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler.check.speed.processes import ProcessTree
from tests.benchmarks.overhead import SCRIPTS, Configuration, FailedError

TURN_S = 0.7
SETTLE_S = 0.2
WARM_S = 3.0
"""Warm-up of allocators and caches. The first, short windows of our sampler take 14 s, time frozen included: most
blocks have its later, lower rate."""
PATIENCE_S = 60
STEPS = 200_000
"""More steps than a run takes: it is killed at the end."""
LEFT_OUT = 2
"""Steps at either end of a block."""


def alternated(
    script: str, one: Configuration, bare: Configuration, folder: Path, pairs: int, *, turn_s: float = TURN_S
) -> list[float]:
    """Mean time of a step of `one` over that of `bare`, in each pair of blocks of `turn_s`, whose order alternates.

    :raises FailedError: one of them did not run.
    """
    folder.mkdir()
    with _running(script, one, folder / "one") as ours, _running(script, bare, folder / "bare") as theirs:
        turns = []
        for number in range(pairs):
            order = ((ours, 0), (theirs, 1)) if number % 2 else ((theirs, 1), (ours, 0))
            spans = [(0.0, 0.0), (0.0, 0.0)]
            for side, at in order:
                spans[at] = side.block(turn_s)
            turns.append(spans)
        seen = [side.stamps() for side in (ours, theirs)]
    shutil.rmtree(folder)
    ratios = [_mean_step(seen[0], turn[0]) / _mean_step(seen[1], turn[1]) for turn in turns]
    if not (found := [ratio for ratio in ratios if not math.isnan(ratio)]):
        raise FailedError(f"{one.name}, {script}: a step takes too much of a turn of {turn_s} s")
    return found


class _Side:
    """A script that runs only in its blocks."""

    def __init__(self, name: str, process: subprocess.Popen[str], stamps: Path, errors: Path) -> None:
        self._name = name
        self._process = process
        self._tree = ProcessTree(process.pid)
        self._stamps = stamps
        self._errors = errors

    def warm(self) -> None:
        """Let it step for a while, then freeze it."""
        until = time.monotonic() + PATIENCE_S
        while not self._stamps.exists() or not self.stamps():
            self._check()
            if time.monotonic() >= until:
                raise FailedError(f"{self._name} did not step within {PATIENCE_S} s")
            time.sleep(0.05)
        time.sleep(WARM_S)
        self._tree.find_orphans()
        self._tree.freeze()

    def block(self, turn_s: float) -> tuple[float, float]:
        """Let it run for `turn_s`; returns the begin and the end of the part that counts."""
        self._tree.thaw()
        begin = time.perf_counter()
        time.sleep(turn_s)
        end = time.perf_counter()
        self._tree.freeze()
        self._check()
        return begin + SETTLE_S, end

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise FailedError(f"{self._name} ended: {self._errors.read_text()[-1500:].strip()}")

    def stamps(self) -> list[float]:
        content = self._stamps.read_bytes()
        return [value for value in struct.unpack(f"{len(content) // 8}d", content) if value]

    def kill(self) -> None:
        self._tree.kill()
        self._process.wait()


@contextmanager
def _running(script: str, one: Configuration, folder: Path) -> Iterator[_Side]:
    folder.mkdir()
    stamps, errors = folder / "stamps", folder / "errors"
    variables = {"OVERHEAD_STAMPS": str(stamps), "OVERHEAD_STEPS": str(STEPS)}
    with open(errors, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            one.command(str(SCRIPTS / script), folder / "out"),
            env={**os.environ, **one.environment, **variables},
            stdout=subprocess.DEVNULL,
            stderr=file,
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
    """The mean time of a step within the span; NaN if there are too few."""
    first = bisect.bisect_left(stamps, span[0]) + LEFT_OUT
    last = bisect.bisect_right(stamps, span[1]) - 1 - LEFT_OUT
    return (stamps[last] - stamps[first]) / (last - first) if last > first else float("nan")


CONTROL = Configuration("bare again", lambda script, _: (sys.executable, script))
"""The bare script against itself: it shows what the method measures without a difference."""
