"""Ends the programs of a gate that was killed: a process beside it that waits for the end of a pipe.

With the gate the kernel ends a program's first process (`tree.die_with_parent`) and none below it; loader workers and
ranks that the gate had stopped would stand there for ever. A fresh Python and no fork: a fork would have the locks of
the gate's threads, its descriptors and, for who looks for memory to free, its size.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from profiler.check.speed.table import ENDED, Seen, everyone, look
from profiler.core.errors import ProfilerError

_ROOT: Final = Path(__file__).resolve().parents[3]
_START: Final = "import sys; sys.path.append(sys.argv[1]); from profiler.check.speed.watchdog import main; main()"
"""Our folder comes last: what lies beside the package (all that is installed) hides no module of Python's own."""
_GOODBYE: Final = b"goodbye\n"
_PATIENCE_S: Final = 10.0
_LOOK_S: Final = 0.01


class Guard:
    """The gate's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)

    def watch(self, pid: int, seen: Seen | None = None) -> None:
        """End `pid` with the gate, and what is then below it or in the session that it leads; some µs.

        Without the watchdog (somebody killed it) the gate does what it did.

        :param seen: where that is known.
        """
        seen = seen or look(pid)
        if seen is not None:
            self._say(b"%d %d %d\n" % (pid, seen.start, seen.session == pid))

    def goodbye(self) -> None:
        """Nothing of what was watched is left."""
        self._say(_GOODBYE)

    def _say(self, line: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe, line)


@contextmanager
def guarded() -> Iterator[Guard]:
    """Start the watchdog, before the programs; it ends with the block. After an exception it ends what is left of them.

    :raises ProfilerError: it cannot be started.
    """
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # what is sent to the gate's group is not for it
        )
    except OSError as error:
        raise ProfilerError(f"cannot start {sys.executable or 'Python'}: {error.strerror}") from error
    assert process.stdin is not None
    guard = Guard(process.stdin.fileno())
    try:
        yield guard
        guard.goodbye()
    finally:
        process.stdin.close()
        try:
            process.wait(2 * _PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """The watchdog's own process: wait, and end what the gate has left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    words = sys.stdin.buffer.read()
    if not words.endswith(_GOODBYE):
        said = [tuple(map(int, line.split())) for line in words.splitlines()]
        _end({pid: start for pid, start, _ in said}, {pid: start for pid, start, leads in said if leads})


def _end(watched: dict[int, int], leaders: dict[int, int]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        living = _belonging(watched, leaders)
        if not living:
            return
        for pid in living:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def _belonging(watched: dict[int, int], leaders: dict[int, int]) -> list[int]:
    """Who lives of the watched, of their sessions and below them; they are watched from now on.

    A session whose leader has ended keeps its number for itself, as long as anyone is in it.
    """
    table = everyone()
    sessions = {pid for pid, start in leaders.items() if pid not in table or table[pid].start == start}
    ours = {pid for pid, seen in table.items() if watched.get(pid) == seen.start or seen.session in sessions}
    while below := {pid for pid, seen in table.items() if seen.parent in ours} - ours:
        ours |= below
    watched.update((pid, table[pid].start) for pid in ours)
    leaders.update((pid, table[pid].start) for pid in ours if table[pid].session == pid)
    return [pid for pid in ours if table[pid].state not in ENDED]
