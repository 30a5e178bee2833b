"""The program that is recorded: found, started, waited for, and stopped with the patience that it deserves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from profiler.core.errors import ProfilerError
from profiler.core.procfs import descendants, wait_exit
from profiler.run import store, tables
from profiler.run.model import RunSpec

GRACE_S: Final = 5.0  # from a signal to the next, harder one: a trainer may write a checkpoint on its way out
SITE: Final = str(Path(__file__).parents[1] / "agent" / "pythonpath")
"""What brings our hooks into a Python whose PYTHONPATH begins with it."""
_WAKE_S: Final = 0.1
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""What a terminal sends to all of its foreground: there the target has it already."""
_WORDS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)
"""What a target may have a handler for and go on: a scheduler's "write a checkpoint now", a dump of its stacks."""


def find_program(argv: tuple[str, ...]) -> str:
    """The file that `argv` runs, as a shell would find it.

    :raises ProfilerError: there is none, or it cannot be executed.
    """
    if not argv:
        raise ProfilerError("no command to record: write it after --, as in: run -- python train.py")
    program = shutil.which(argv[0])
    if program is not None:
        return program
    path = Path(argv[0])
    if path.is_dir():
        raise ProfilerError(f"cannot start {argv[0]}: it is a folder")
    if path.exists():
        hint = f"; perhaps you mean: python {argv[0]}" if path.suffix == ".py" else ""
        raise ProfilerError(f"cannot start {argv[0]}: it is not executable{hint}")
    raise ProfilerError(f"cannot start {argv[0]}: there is no such program")


def environment_of(spec: RunSpec, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The target's environment: ours or the one that is `given`, and what tells it that it is recorded."""
    environment = {
        **(os.environ if given is None else given),
        tables.ENV_RUN: str(spec.out),
        tables.ENV_LEVEL: spec.level,
        tables.ENV_RECORDER: str(os.getpid()),
    }
    environment.pop(tables.ENV_HOOKS, None)
    environment.pop(tables.ENV_CONTROL, None)
    before = environment.pop("PYTHONPATH", "")
    paths = [path for path in before.split(os.pathsep) if path != SITE] if before else []
    if spec.hooks:
        environment[tables.ENV_HOOKS] = SITE
        paths.insert(0, SITE)
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


class Target:
    """The target's process. As a context manager it takes the recorder's signals and gives them back at the end.

    The target stays in our process group, and so in the terminal's foreground: it can read the keyboard, and Ctrl-C
    reaches it from the terminal.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._received: list[int] = []
        self._passed: set[int] = set()
        self._handlers: dict[int, Any] = {}
        self._ladder: list[signal.Signals] = [signal.SIGTERM, signal.SIGKILL]
        self._harder_at: float | None = None
        self.stopped = False
        """By us: a signal that we passed on, or the timeout."""
        self.enough = False
        """It was stopped because enough of it was recorded, and for no other reason."""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (*_STOPS, *_WORDS):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it: then it is not ours to take
                    self._handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)

    def start(self, program: str) -> None:
        """Start it. Ours reaches it by environment variables only: nothing of its own modules is touched.

        :raises OSError: the system refuses, for example a file that is no program.
        """
        spec = self._spec
        environment = environment_of(spec, {**os.environ, **spec.env})
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
        self._started = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: minus the signal that ended it."""
        return self._process.returncode

    def wait(self, watch: Callable[[], None] | None = None, enough: Callable[[], bool] | None = None) -> None:
        """Until it has ended; passes signals on, keeps the timeout, and grows harder when it does not heed.

        :param enough: asked some ten times a second; once it says so the target is stopped.
        """
        timeout = self._spec.timeout
        while not wait_exit(self.pid, _WAKE_S):
            while self._received:
                self._pass_on(self._received.pop(0))
            now = time.monotonic()
            if timeout is not None and not self.stopped and now - self._started > timeout:
                print(f"profiler: the target is stopped after {timeout:g} s (timeout)", file=sys.stderr)
                self._harder()
            elif enough is not None and not self.stopped and enough():
                self.enough = True
                self._harder()
            elif self._harder_at is not None and now > self._harder_at:
                self._harder()
            if watch:
                watch()
        self._process.wait()
        self.note_signals()

    def note_signals(self) -> None:
        """What came when the target had ended already (Ctrl-C reached both; collectors were stopping) counts too."""
        ended_by = -(self.exit_code or 0)
        if any(number in _STOPS or number == ended_by for number in (*self._received, *self._passed)):
            self.stopped, self.enough = True, False

    def _pass_on(self, number: int) -> None:
        """A signal goes to the target as it came; one more of those that stop means: now."""
        stops = number in _STOPS
        if stops and self.stopped:
            self._harder()
            return
        self._passed.add(number)
        if stops:
            self.stopped, self.enough = True, False
            self._harder_at = time.monotonic() + GRACE_S
        if number not in _FROM_TERMINAL or not _at_terminal():
            self._send(number)

    def _harder(self) -> None:
        self.stopped = True
        self._harder_at = time.monotonic() + GRACE_S
        number = self._ladder.pop(0) if len(self._ladder) > 1 else self._ladder[0]
        workers = descendants(self.pid) if number == signal.SIGKILL else []
        self._send(number)
        for pid in workers:  # nobody is left to end them
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End it at once if it still runs."""
        if self._process.poll() is None:
            self.stopped = True
            self._process.kill()
            self._process.wait()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _at_terminal() -> bool:
    """Whether we are in a terminal's foreground, so that its Ctrl-C has reached the target too.

    A SIGINT that someone sent to us alone is then taken for a Ctrl-C, and the target gets SIGTERM after the grace.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
