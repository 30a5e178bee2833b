"""Starts a helper process that ends the controlled programs if the `check` process is killed.

When `check` dies, the kernel kills the first process of each program (`process_tree.die_with_parent`) but none of its
descendants: loader workers and ranks would stay frozen forever. The watchdog waits for the end of a pipe from `check`
and then kills them. It is a fresh Python process and not a fork: a fork would inherit the locks and file descriptors of
`check`, and would look as large to the kernel's out-of-memory killer.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from profiler.check.speed.process_tree import ProcessTree
from profiler.core.errors import ProfilerError
from profiler.core.procfs import ProcessStat, read_stat

_ROOT: Final = Path(__file__).resolve().parents[3]
_MAIN: Final = "import sys; sys.path.append(sys.argv[1]); from profiler.check.speed.watchdog import main; main()"
"""Our folder comes last in sys.path: what is installed beside the package must not hide modules of Python itself."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DISMISSED: Final = b"goodbye\n"
_EXIT_S: Final = 20.0
"""How long the watchdog may take to end, twice what it gives the processes that it kills."""


class Watchdog:
    """The `check` process's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)

    def watch(self, pid: int, stat: ProcessStat | None = None) -> None:
        """Have `pid` ended with `check`, with its descendants and the session that it leads; takes some µs.

        If somebody has killed the watchdog, `check` goes on without it.

        :param stat: its current state, if the caller has read it already.
        """
        stat = stat or read_stat(pid)
        if stat is not None:
            self._send(b"%d %d %d\n" % (pid, stat.start_ticks, stat.session == pid))

    def watch_folder(self, folder: str) -> None:
        """Have a folder for temporary files removed with `check`, after its programs."""
        self._send(os.fsencode(folder) + b"\n")

    def dismiss(self) -> None:
        """Tell the watchdog that there is nothing to end."""
        self._send(_DISMISSED)

    def _send(self, line: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe, line)


@contextmanager
def watchdog_process() -> Iterator[Watchdog]:
    """Start the watchdog before the programs. If the block ends by an exception, it ends the programs that are left.

    :raises ProfilerError: it cannot be started.
    """
    # The watchdog inherits this mask, so that no signal can end it, not even before its first line runs.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _MAIN, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ProfilerError(f"cannot start {sys.executable or 'Python'}: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert process.stdin is not None
    watchdog = Watchdog(process.stdin.fileno())
    try:
        yield watchdog
        watchdog.dismiss()
    finally:
        process.stdin.close()
        try:
            process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Run the watchdog: wait for the end of the pipe, then end the processes that `check` has left behind."""
    data = sys.stdin.buffer.read()
    if not data.endswith(_DISMISSED):
        lines = data.splitlines()
        watched = [tuple(map(int, line.split())) for line in lines if not line.startswith(b"/")]
        tree = ProcessTree()
        tree.starts = {pid: start for pid, start, _ in watched}
        tree.leaders = {pid: start for pid, start, leads in watched if leads}
        tree.kill()
        for folder in [line for line in lines if line.startswith(b"/")]:
            shutil.rmtree(os.fsdecode(folder), ignore_errors=True)
