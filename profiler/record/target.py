"""Finds, starts, waits for and stops the program that is recorded, and handles signals to both."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from profiler.core.errors import ProfilerError
from profiler.core.masking import MASK, masked_word
from profiler.core.procfs import descendants, read_status, wait_exit
from profiler.run import store, tables
from profiler.run.model import RunSpec

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON: Final = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGXCPU, signal.SIGWINCH)
"""A program may handle the last five and go on: a scheduler's "write a checkpoint now", a dump of its stacks."""
_ANSWER_S: Final = 10.0
"""Patience with the witness on a machine whose cores are all busy."""
_MAX_ANSWER: Final = 64
"""Bytes: one for each signal that there is."""
_WITNESS: Final = f"""
import os, signal
numbers = {[int(number) for number in PASSED_ON]}
while os.read(0, 1):
    seen = [0]
    while pending := signal.sigtimedwait(numbers, 0):
        seen.append(pending.si_signo)
    os.write(1, bytes(seen))
"""


class Witness:
    """A process in the recorder's group that blocks signals: those that reach it stay pending until it is asked.

    Its command line ends with the program's, so that `pkill -f train.py` finds both. It ends with the recorder, because
    its standard input is a pipe from there.

    :param argv: the program's command line.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # The process inherits this mask, so that no signal can end it, not even before its first line runs.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _WITNESS, *argv],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def seen(self) -> set[int]:
        """Return the signals that have reached the witness since the last call; none where it does not answer."""
        if self._process is not None and self._process.stdin and self._process.stdout:
            question, answer = self._process.stdin.fileno(), self._process.stdout.fileno()
            with suppress(OSError):
                os.write(question, b"?")
                if select.select([answer], [], [], _ANSWER_S)[0] and (seen := os.read(answer, _MAX_ANSWER)):
                    return set(seen[1:])
            self.end()
        return set()

    def end(self) -> None:
        """End the witness."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def handled_signals(
    handler: Callable[[int, FrameType | None], object],
    numbers: Sequence[signal.Signals] = STOP_SIGNALS,
    *,
    also_ignored: bool = False,
) -> Iterator[None]:
    """Have `handler` called for these signals until the block ends; outside the main thread, handle none.

    :param also_ignored: handle ignored signals too. Otherwise they stay ignored, as SIGHUP is under nohup.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if also_ignored or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM and SIGHUP, as at Ctrl-C, so that files are still closed and written."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled_signals(interrupt, (signal.SIGTERM, signal.SIGHUP)):
        yield


def end_by(number: int) -> int:
    """End this process by signal `number`, as the program that it stands for ended.

    A shell stops its script where SIGINT ended a program, and goes on where the program exited with 130.

    :returns: the exit code that a shell has for it, where the signal does not end this process: in a container, the
        first process gets none of its own signals.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # closed
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its core dump
    with suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.kill(os.getpid(), number)
    return 128 + number


# ---------------------------------------------------------------- the program

KILL_AFTER_S: Final = 60.0
"""Time that a program has to end after the SIGTERM of a timeout, or of enough recorded, before it is killed. Kubernetes
and torchrun give 30 s."""
SITE: Final = str(Path(__file__).parents[1] / "agent" / "pythonpath")
"""The folder at the head of PYTHONPATH that brings our hooks into a Python."""
_WAKE_S: Final = 0.1
_SETTLE_S: Final = 0.2
"""systemd and Slurm signal the processes of a job one by one; `timeout` signals its child, then the group. What arrives
within this time belongs together."""
_MAX_SETTLING: Final = 5
"""At most so many waits of _SETTLE_S while signals keep coming."""
_FORGET_S: Final = 1.0
"""How often the witness is asked while the recorder gets nothing. What it has then was sent to the witness alone, as by
`pkill -P`, and must not be taken for a later signal's. An answer takes 0.1 ms."""
_APART_S: Final = 0.01
"""Time between two equal signals: the kernel and Python merge those that the program has not handled yet."""


def find_program(argv: tuple[str, ...]) -> str:
    """Return the file that `argv` runs, as a shell would find it.

    :raises ProfilerError: there is none, or it cannot be executed.
    """
    if not argv:
        raise ProfilerError("no command to record: write it after --, as in: run -- python train.py")
    if word := masked_word(argv):
        raise ProfilerError(
            f"cannot start {argv[0]}: the value in {word!r} was not recorded: write it in place of {MASK}"
        )
    program = shutil.which(argv[0])
    if program is not None:
        return program
    path = Path(argv[0])
    if path.is_dir():
        raise ProfilerError(f"cannot start {argv[0]}: it is a folder")
    if path.exists():
        raise ProfilerError(f"cannot start {argv[0]}: it is not executable")
    raise ProfilerError(f"cannot start {argv[0]}: there is no such program")


def target_environment(spec: RunSpec, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the target's environment: `base` (None: ours) with the variables that make it record."""
    environment = {
        **(os.environ if base is None else base),
        tables.ENV_RUN: str(spec.out),
        tables.ENV_LEVEL: spec.level,
        tables.ENV_RECORDER: str(os.getpid()),
    }
    environment.pop(tables.ENV_HOOKS, None)
    environment.pop(tables.ENV_MARKS_ONLY, None)
    environment.pop(tables.ENV_CONTROL, None)
    before = environment.pop("PYTHONPATH", "")
    paths = [path for path in before.split(os.pathsep) if path != SITE] if before else []
    if spec.hooks or spec.level == "full":  # torch's trace has what a program cannot mark
        environment[tables.ENV_HOOKS] = SITE
        paths.insert(0, SITE)
    if not spec.hooks:
        environment[tables.ENV_MARKS_ONLY] = "1"
    if spec.virtual_cuda:
        environment[tables.ENV_VIRTUAL_CUDA] = spec.virtual_cuda
    if spec.count:
        environment[tables.ENV_COUNT] = "1"
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


class Target:
    """The target's process. As a context manager it handles the recorder's signals, and restores them at the end.

    The target stays in our process group, and so in the terminal's foreground, where it can read the keyboard.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._received: list[int] = []
        self._early = 0
        """So many of them came before the target handled signals."""
        self._seen: set[int] = set()
        self._handled: set[int] = set()
        self._ignored = {number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN}
        """As nohup has it; the target inherits that, and may handle the signal all the same."""
        self._signals = ExitStack()
        self._kill_at: float | None = None
        self.stopped = False
        """A signal that we forwarded, or the timeout, stopped it."""
        self.enough = False
        """It was stopped because enough of it was recorded, and for no other reason."""

    def __enter__(self) -> Self:
        self._signals.enter_context(handled_signals(self._note, PASSED_ON))
        self._witness = Witness(self._spec.argv)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._witness.end()
        self._signals.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)

    def start(self, program: str) -> None:
        """Start it. What it needs of us is in environment variables.

        :raises OSError: the system refuses, for example a file that is no program.
        """
        spec = self._spec
        environment = target_environment(spec, {**os.environ, **spec.env})
        if spec.quiet:
            with open(spec.out / store.OUTPUT_LOG, "wb") as log:
                self._process = subprocess.Popen(
                    spec.argv,
                    executable=program,
                    cwd=spec.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        else:
            self._process = subprocess.Popen(spec.argv, executable=program, cwd=spec.cwd, env=environment)
        self._early = len(self._received)
        # Only now, since a handler of ours would make it default for the target.
        self._signals.enter_context(handled_signals(self._note, tuple(self._ignored), also_ignored=True))
        self._looked = self._started = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: minus the signal that ended it."""
        return self._process.returncode

    def wait(
        self,
        watch: Callable[[], None] | None = None,
        enough: Callable[[], bool] | None = None,
        *,
        stops: bool = True,
    ) -> bool:
        """Wait until the target has ended. Meanwhile forward signals and keep the timeout.

        :param enough: called about ten times a second; once it returns True the target is stopped.
        :param stops: it is stopped then; else it goes on, and this returns True.
        """
        timeout = self._spec.timeout
        while not wait_exit(self.pid, _WAKE_S):
            now = time.monotonic()
            if self._received:
                self._pass_on()
            elif now - self._looked > _FORGET_S:
                self._looked, self._seen = now, self._witness.seen()
                if not self._received:
                    self._seen.clear()
            if self.stopped or self.enough:
                if self._kill_at is not None and now > self._kill_at:
                    self._kill_tree()
            elif timeout is not None and now - self._started > timeout:
                print(f"profiler: the target is stopped after {timeout:g} s (timeout)", file=sys.stderr)
                self.stopped = True
                self._stop()
            elif enough is not None and enough():
                if not stops:
                    return True
                self.enough = True
                self._stop()
            if watch:
                watch()
        self._process.wait()
        self.note_signals()
        return False

    def note_signals(self) -> None:
        """Count signals that came after the target had ended (Ctrl-C reached both), while collectors were stopping."""
        ended_by = -(self.exit_code or 0)
        if any(number in STOP_SIGNALS or number == ended_by for number in (*self._received, *self._handled)):
            self.stopped, self.enough = True, False

    def _pass_on(self) -> None:
        """Send the target the signals that it has not got itself, as often as they came. It decides whether it ends."""
        for _ in range(_MAX_SETTLING):  # until none arrives while the witness is asked
            count = len(self._received)
            if wait_exit(self.pid, _SETTLE_S):
                return  # `note_signals` counts them
            self._seen |= self._witness.seen()
            if len(self._received) == count:
                break
        else:
            count = len(self._received)
        received, early, self._early = self._received[:count], self._early, 0
        seen, self._seen = self._seen, set()
        del self._received[:count]
        ignored = int(read_status(self.pid, "SigIgn") or "0", 16) if self._ignored.intersection(received) else 0
        handled = {number for number in received if number not in self._ignored or not ignored >> (number - 1) & 1}
        self._handled |= handled
        if not handled.isdisjoint(STOP_SIGNALS):
            self.stopped, self.enough, self._kill_at = True, False, None
        shares_group = _group(self.pid) == os.getpgrp()
        for place, number in enumerate(received):
            if place < early or number not in seen or not shares_group:
                if number in received[:place]:
                    time.sleep(_APART_S)
                self._send(number)

    def _stop(self) -> None:
        self._kill_at = time.monotonic() + KILL_AFTER_S
        self._send(signal.SIGTERM)

    def _kill_tree(self) -> None:
        print(f"profiler: the target is killed: it goes on {KILL_AFTER_S:g} s after SIGTERM", file=sys.stderr)
        self._kill_at = None
        workers = descendants(self.pid)
        self._send(signal.SIGKILL)
        for pid in workers:  # their parent cannot end them any more
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it at once if it still runs."""
        if self._process.poll() is None:
            self.stopped = True
            self._process.kill()
            self._process.wait()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _group(pid: int) -> int | None:
    """Return the process group of `pid`, which may be one of its own, or None where it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
