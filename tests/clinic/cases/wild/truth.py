"""What a script knows of its own loop: seconds of named parts by its own clocks, printed at the end for the judge."""

from __future__ import annotations

import json
import os
import random
import time


READ_S = 0.04
"""Mean time between two readings of the CPU clock. On a busy core the kernel takes the core away where a thread reads
it, so with readings in each step most waits for a core would lie in this file. The blocks are chosen at random: the
first one after 0.1 s would be the one that runs when the 100 ms of a CPU quota begin anew."""


class Part:
    """A part of the loop: `with part:` adds the wall time of the block, and the thread's CPU time of some blocks."""

    def __init__(self) -> None:
        self.wall = 0.0
        self._cpu_read = self._wall_read = 0.0
        self._begin, self._begin_cpu, self._reads = 0.0, 0.0, False
        self._first, self._blocks, self._random = 0.0, 0, random.Random(0)
        self._squares = [0.0, 0.0, 0.0]

    @property
    def cpu(self) -> float:
        """CPU seconds of all blocks: at the rate of those in which the clock was read."""
        return self._cpu_read * self.wall / self._wall_read if self._wall_read else 0.0

    @property
    def error(self) -> float:
        """Half of the 95% interval of `cpu`, a ratio of sums over the blocks in which the clock was read."""
        if not self._wall_read:
            return 0.0
        ratio, (cpu, both, wall) = self._cpu_read / self._wall_read, self._squares
        return 1.96 * max(0.0, cpu - 2 * ratio * both + ratio**2 * wall) ** 0.5 * self.wall / self._wall_read

    def __enter__(self) -> None:
        self._begin = time.perf_counter()
        self._first = self._first or self._begin
        period = (self._begin - self._first) / self._blocks if self._blocks else READ_S
        self._blocks += 1
        self._reads = self._random.random() * READ_S < period
        if self._reads:
            self._begin_cpu = time.thread_time()

    def __exit__(self, *error: object) -> None:
        wall = time.perf_counter() - self._begin
        self.wall += wall
        if self._reads:
            cpu = time.thread_time() - self._begin_cpu
            self._cpu_read += cpu
            self._wall_read += wall
            for number, square in enumerate((cpu * cpu, cpu * wall, wall * wall)):
                self._squares[number] += square


class Truth:
    """The clocks of a loop, from now to `end`."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._begin, self._begin_cpu = time.perf_counter(), time.thread_time()

    def part(self, name: str) -> Part:
        """The part called `name`."""
        return self._parts.setdefault(name, Part())

    def end(self, updates: int) -> None:
        """Print how many updates the loop made and where its time went."""
        wall = time.perf_counter() - self._begin
        print(
            "truth",
            json.dumps({
                "rank": int(os.environ.get("RANK", "0")),
                "updates": updates,
                "wall": wall,
                "cpu": time.thread_time() - self._begin_cpu,
                "parts": {name: [part.cpu, part.wall, part.error] for name, part in self._parts.items()},
            }),
            flush=True,
        )  # fmt: skip
