"""Records the program that it runs in, for notebooks and scripts; `python -m profiler run` does the same from outside.

Hooks and the recorder of steps go into this process; a process beside it (`profiler.record.sidecar`) takes samples and
stacks. Each of the two may be killed, and what was written still loads.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from profiler import marks
from profiler.agent import bootstrap, clocks, installation, patching, recorder
from profiler.core.errors import ProfilerError
from profiler.core.masking import Privacy
from profiler.core.terminal import called_as
from profiler.record.target import target_environment
from profiler.run import store, tables
from profiler.run.model import RunSpec

_PACKAGE: Final = Path(__file__).parents[1]
_VARIABLES: Final = (tables.ENV_RUN, tables.ENV_LEVEL, tables.ENV_RECORDER, tables.ENV_HOOKS, "PYTHONPATH")
"""Variables that `record` sets for the processes that the program starts meanwhile."""
# It leaves the tree of our processes, which is sampled. Our package is named by its file, because the program's
# folder, or its environment, may have another of the name.
_SIDECAR: Final = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("profiler", sys.argv[1])
sys.modules["profiler"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from profiler.record.sidecar import main
sys.exit(main())
"""

_REQUESTED: Final = ("argv", "level", "label", "sample_period", "stack_rate")
"""Settings that the sidecar needs."""
_entering: Final = threading.Lock()
_current: Recording | None = None


def record(
    path: Path | str,
    *,
    level: str = "standard",
    label: str = "",
    sample_period: float = 0.1,
    stack_rate: int = 100,
    source: bool = True,
    arguments: bool = True,
    shared: bool = False,
) -> Recording:
    """Return a context manager that records what this program does in its block, into the run directory `path`.

    In a program that is recorded already, by `python -m profiler run` or as a process that a recorded one started, the
    block is a region of that run, named after `label` or `path`.

    :param level: light | standard | full.
    :param label: name of the run in reports; the last part of `path` when empty.
    :param sample_period: seconds between host and GPU samples.
    :param stack_rate: stack samples a second, from level standard on.
    :param source: keep the text of the lines that the run names.
    :param arguments: keep the arguments of the program; secrets in them are masked all the same.
    :param shared: let the umask decide who may read the run directory, instead of only its owner.
    """
    path = Path(path)
    spec = RunSpec(
        tuple(getattr(sys, "orig_argv", ())) or (sys.executable,),
        path,
        level,
        label or path.name,
        sample_period,
        stack_rate,
        privacy=Privacy(source, arguments, shared),
    )
    return Recording(spec)


class Recording:
    """One block that is recorded. Its run can be read when the block has ended: `profiler.read(run)`."""

    def __init__(self, spec: RunSpec) -> None:
        self.path = spec.out
        """The directory of the run."""
        self.joined = False
        """The program was recorded already, and the block is a region of that run."""
        self._spec = spec
        self._pid = 0
        self._region: clocks.Region | None = None

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<recording into {self.path}>"

    def __enter__(self) -> Self:
        """:raises ProfilerError: the path is taken or cannot be written, no such level, or a recording is under way."""
        global _current
        with _entering:
            if _current is not None and _current._pid == os.getpid():
                raise ProfilerError(f"this program is being recorded into {_current.path}: end that recording first")
            running = recorder.start()
            if running is not None:
                self.joined, self.path = True, running.directory.parent
                if running.detailed:
                    self._region = clocks.Region(running, self._spec.label)
                    self._region.__enter__()
                return self
            self._pid = os.getpid()
            self._begin()
            _current = self
        return self

    def _begin(self) -> None:
        spec = self._spec
        self.path = spec.out.absolute()
        store.check_directory(spec.out)
        self._sidecar = _Sidecar(spec, self.path)
        self._before = {name: os.environ.get(name) for name in _VARIABLES}
        environment = target_environment(spec)
        environment |= {tables.ENV_RUN: str(self.path), tables.ENV_RECORDER: str(self._sidecar.pid)}
        try:
            os.environ.update({name: environment[name] for name in _VARIABLES if name in environment})
            bootstrap.report_hooked("python")
            recorder.start()
            installation.install_hooks()
            bootstrap.report_hooked(bootstrap.FIRST)
            marks.renew()
        except BaseException:  # Ctrl-C too: the program is not left half hooked
            self._restore_program()
            self._sidecar.close("failed")
            raise
        self._sidecar.send("go")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _current
        if self._region is not None:
            self._region.__exit__(kind, value, trace)
        if self.joined or self._pid != os.getpid():  # a child that was forked in the block has a recorder of its own
            return
        with _entering:
            _current = None
            self._restore_program()
            if self._sidecar.close(_state(kind, value)):
                shown = shlex.quote(str(self._spec.out))
                with suppress(OSError, ValueError):  # the program has closed stderr
                    print(f"profiler: recorded {shown}; see {called_as()} diagnose {shown}", file=sys.stderr)

    def _restore_program(self) -> None:
        patching.unpatch()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        recorder.stop()
        patching.STATE.recorder = None
        marks.renew()


def _state(kind: type[BaseException] | None, value: BaseException | None) -> str:
    """Return how the block ended, as a state of the manifest."""
    if kind is None or (isinstance(value, SystemExit) and value.code in {None, 0}):
        return "complete"
    return "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"


class _Sidecar:
    """The other end of the lines of `profiler.record.sidecar`."""

    def __init__(self, spec: RunSpec, out: Path) -> None:
        if not sys.executable:
            raise ProfilerError("cannot record: this Python does not know its own program (sys.executable is empty)")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SIDECAR, str(_PACKAGE / "__init__.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",  # so that no module of the program's folder is imported instead of ours
        )
        self._process.wait()  # it goes on as a process that is no child of ours
        request = {name: getattr(spec, name) for name in _REQUESTED}
        request |= {"privacy": asdict(spec.privacy), "pid": os.getpid(), "out": str(out)}
        self.send(json.dumps(request))
        status, _, detail = self._receive().partition(" ")
        if status != "ready":
            self._close_pipes()
            raise ProfilerError(detail or "cannot record: the process beside did not start")
        self.pid = int(detail)

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed: `close` reports that
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _receive(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def close(self, state: str) -> bool:
        """Close the run; whether the sidecar has closed it when this returns."""
        self.send(state)
        closed = self._receive() == "closed"
        if not closed:
            print("profiler: the recorder beside was ended; what it had written still loads", file=sys.stderr)
        self._close_pipes()
        return closed

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
