"""Records the program that it runs in, as `python -m profiler run` would from outside: for notebooks and scripts.

Inside of this process go the hooks and the recorder of its steps; samples and stacks are taken by a process beside it
(`profiler.record.beside`), so that each of the two may be killed and what was written still loads.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from profiler import marks
from profiler.agent import bootstrap, installation, patching, recorder
from profiler.core.directories import refusal
from profiler.core.errors import ProfilerError
from profiler.record.target import environment_of
from profiler.run import tables
from profiler.run.model import RunSpec

_PACKAGE: Final = Path(__file__).parents[1]
_OURS: Final = (tables.ENV_RUN, tables.ENV_LEVEL, tables.ENV_RECORDER, tables.ENV_HOOKS, "PYTHONPATH")
"""What `record` sets in the environment, for the processes that the program starts meanwhile."""
# It leaves the family of our processes at once: what is sampled there is the program's. Our package is named by its
# file, because the program's folder, or its environment, may have another of the name.
_BESIDE: Final = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("profiler", sys.argv[1])
sys.modules["profiler"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from profiler.record.beside import main
sys.exit(main())
"""

_entering: Final = threading.Lock()
_current: Recording | None = None


def record(
    path: Path | str, *, level: str = "standard", label: str = "", sample_period: float = 0.1, stack_rate: int = 100
) -> Recording:
    """A context manager that records what this program does in its block, into the run directory `path`.

    In a program that is recorded already, by `python -m profiler run` or as a process that a recorded one started, the
    block is a region of that run, named after `label` or `path`.

    :param level: light | standard | full.
    :param label: name of the run in reports; the last part of `path` when empty.
    :param sample_period: seconds between host and GPU samples.
    :param stack_rate: stack samples a second, from level standard on.
    """
    path = Path(path)
    argv = tuple(getattr(sys, "orig_argv", ())) or (sys.executable,)
    return Recording(RunSpec(argv, path, level, label or path.name, sample_period, stack_rate))


class Recording:
    """One block that is recorded. Its run can be read when the block has ended: `profiler.read(run)`."""

    def __init__(self, spec: RunSpec) -> None:
        self.path = spec.out
        """Of the run that holds the block."""
        self.joined = False
        """True: the program was recorded already, and the block is a region of that run."""
        self._spec = spec
        self._pid = 0
        self._region: recorder.Region | None = None

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
            there = recorder.start()
            if there is not None:
                self._join(there)
                return self
            self._pid = os.getpid()
            self._begin()
            _current = self
        return self

    def _join(self, there: recorder.Recorder) -> None:
        self.joined, self.path = True, there.directory.parent
        if there.detailed:
            self._region = recorder.Region(there, self._spec.label)
            self._region.__enter__()

    def _begin(self) -> None:
        spec = self._spec
        self.path = spec.out.absolute()
        if why := refusal(spec.out, tables.MANIFEST):
            raise ProfilerError(why)
        self._beside = _Beside(spec, self.path)
        self._before = {name: os.environ.get(name) for name in _OURS}
        changed = {**environment_of(spec), tables.ENV_RUN: str(self.path), tables.ENV_RECORDER: str(self._beside.pid)}
        self._watcher: installation.HookFinder | None = None
        try:
            os.environ.update({name: changed[name] for name in _OURS if name in changed})
            bootstrap.report_hooked("python")
            recorder.start()
            self._watcher = installation.install_hooks()
            bootstrap.report_hooked(bootstrap.FIRST)
            marks.renew()
        except BaseException:  # Ctrl-C too: the program is not left half hooked
            self._take_back()
            self._beside.close("failed")
            raise
        self._beside.say("go")

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
            self._take_back()
            if self._beside.close(_state(kind, value)):
                shown = shlex.quote(str(self._spec.out))
                with suppress(OSError, ValueError):  # it was closed: the program's, and not ours to judge
                    print(f"profiler: recorded {shown}; see python -m profiler diagnose {shown}", file=sys.stderr)

    def _take_back(self) -> None:
        patching.unpatch()
        if self._watcher in sys.meta_path:  # the program may have taken it out
            sys.meta_path.remove(self._watcher)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        recorder.stop()
        patching.STATE.recorder = None
        marks.renew()


def _state(kind: type[BaseException] | None, value: BaseException | None) -> str:
    """How the block ended, in the words of a manifest."""
    if kind is None or (isinstance(value, SystemExit) and value.code in {None, 0}):
        return "complete"
    return "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"


class _Beside:
    """The process beside: told by a line each what to do, it answers with a line."""

    def __init__(self, spec: RunSpec, out: Path) -> None:
        if not sys.executable:
            raise ProfilerError("cannot record: this Python does not know its own program (sys.executable is empty)")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BESIDE, str(_PACKAGE / "__init__.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",  # no module of the program's folder is in its way
        )
        self._process.wait()  # it has gone on as a process that is not ours
        request = {
            "pid": os.getpid(),
            "argv": spec.argv,
            "out": str(out),
            "level": spec.level,
            "label": spec.label,
            "sample_period": spec.sample_period,
            "stack_rate": spec.stack_rate,
        }
        self.say(json.dumps(request))
        word, _, rest = self._heard().partition(" ")
        if word != "ready":
            self._hang_up()
            raise ProfilerError(rest or "cannot record: the process beside did not start")
        self.pid = int(rest)

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed: `close` says so
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def close(self, state: str) -> bool:
        """Have it close the run; whether it has when this returns."""
        self.say(state)
        closed = self._heard() == "closed"
        if not closed:
            print("profiler: the recorder beside was ended; what it had written still loads", file=sys.stderr)
        self._hang_up()
        return closed

    def _hang_up(self) -> None:
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with suppress(BrokenPipeError):
                    end.close()
