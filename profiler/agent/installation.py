"""Installs hooks, each right after the program has imported its library, and keeps the process's recorder up to date.

Our frames are left out of tracebacks that end the program or a thread.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from profiler.agent.bootstrap import find_behind
from profiler.agent.patching import STATE, Hook, on_unpatch, patch, patch_count, unpatch
from profiler.agent.recorder import Recorder, start, stop
from profiler.run.tables import ENV_LEVEL, ENV_MARKS_ONLY, ENV_RECORDER, ENV_RUN

_HOOKS: Final = "hooks"
_AGENT: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - as code objects have it


# ---------------------------------------------------------------- imports


class HookFinder:
    """Installs hooks when their modules are imported.

    :param finder: the finder in sys.meta_path that calls this one; the modules are found by those behind it. None: this
        finder is in sys.meta_path itself.
    """

    def __init__(self, hooks: Iterable[Hook], finder: object | None = None) -> None:
        self._finder = finder or self
        self._hooks: dict[str, list[Hook]] = {}
        for hook in hooks:
            for name in hook.installers:
                self._hooks.setdefault(name, []).append(hook)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return find_behind(self._finder, name, path, target, after=self.loaded) if name in self._hooks else None

    def loaded(self, module: ModuleType) -> None:
        """Install the hooks of `module`, which has been imported or reloaded."""
        for hook in self._hooks.get(module.__name__, ()):
            install(hook, module)

    def install_for_loaded_modules(self) -> None:
        """Install the hooks of modules that the program has imported already."""
        for name in self._hooks:
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.loaded(module)


# ---------------------------------------------------------------- hooks

_failures: Final[dict[str, str]] = {}
"""For each hook of this recording: empty if it was installed, else why not."""


def install_hooks(caller: object | None = None) -> HookFinder:
    """Start the recorder of this process, and install each hook when its library is imported, until `unpatch`.

    :param caller: the finder in sys.meta_path that will call the returned one; None: that is put there itself.
    """
    _failures.clear()  # of an earlier recording in this process
    track_process()
    hide_our_frames()
    recorder = STATE.recorder
    finder = HookFinder(load_hooks(recorder.level) if recorder else (), caller)
    if caller is None:
        sys.meta_path.insert(0, finder)
        on_unpatch(partial(_remove, finder))
    finder.install_for_loaded_modules()
    return finder


def _remove(finder: Any) -> None:
    with suppress(ValueError):  # the program may have removed it
        sys.meta_path.remove(finder)


def load_hooks(level: str) -> list[Hook]:
    """Return the hooks of that level: the `PLUGIN`, or the `PLUGINS`, of every module in the folder hooks, by name. A
    module that cannot load is reported."""
    package = f"{__name__.rpartition('.')[0]}.{_HOOKS}"  # our package has another name in a recorded program
    hooks: list[Hook] = []
    marks_only = bool(os.environ.get(ENV_MARKS_ONLY))
    for file in sorted(os.listdir(Path(__file__).parent / _HOOKS)):  # noqa: PTH208 - a Path each costs more
        name, _, ending = file.partition(".")
        if ending != "py" or name.startswith("_"):
            continue
        try:
            module: Any = importlib.import_module(f"{package}.{name}")
            found: tuple[Hook, ...] = getattr(module, "PLUGINS", None) or (module.PLUGIN,)
        except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and it reports
            report_failure(name, error)
        else:
            hooks += (hook for hook in found if level in hook.levels and (hook.beside_marks or not marks_only))
    return sorted(hooks, key=lambda hook: hook.name)


def install(hook: Hook, module: ModuleType) -> None:
    """Install one hook. An error is reported, and its patches are undone."""
    before = patch_count()
    try:
        hook.install(module)
    except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and it reports
        unpatch(before)
        report_failure(hook.name, error, f"{module.__name__}: ")
    else:
        _failures.setdefault(hook.name, "")


def report_failure(name: str, error: BaseException, where: str = "") -> None:
    """Record in the run that a hook could not be installed, or gave up. The first reason counts."""
    _failures[name] = _failures.get(name) or f"{where}{type(error).__name__}: {' '.join(str(error).split())}"
    recorder = STATE.recorder
    if recorder is not None:
        recorder.hook_errors = _failures
        recorder.write_metadata()


# ---------------------------------------------------------------- the process

_tracking = False


def track_process() -> None:
    """Keep STATE.recorder current in this process, in its forks, and to its end."""
    global _tracking
    if not _tracking:
        _tracking = True
        os.register_at_fork(after_in_child=_renew)
        atexit.register(_flush)
    _renew()
    for name in ("_exit", "execv", "execve"):  # ways past atexit; the other functions of exec call these two
        patch(os, name, _flushed_first)


def _renew() -> None:
    before, STATE.recorder = STATE.recorder, start()
    if STATE.recorder is not None and STATE.recorder is not before:
        STATE.recorder.release = release
        STATE.recorder.hook_errors = _failures
        if before is not None:  # a fork inherits what its parent is
            STATE.recorder.hook_facts.update(before.hook_facts)


def release() -> None:
    """End the recording of this process, which goes on.

    Hooks stay, and pass everything on. To take them away could break the program: torch may call hooks at this moment,
    and code that it compiled is compiled anew where a function is another one.
    """
    for callback in STATE.recorder.on_release if STATE.recorder is not None else ():
        callback()
    for name in (ENV_RUN, ENV_LEVEL, ENV_RECORDER):  # what it starts from now on is not recorded
        os.environ.pop(name, None)
    stop()
    STATE.recorder = None


def _flush() -> None:
    recorder: Recorder | None = STATE.recorder
    if recorder is not None and recorder.pid == os.getpid():
        recorder.flush()


def _flushed_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Children of multiprocessing end by os._exit, and launchers replace themselves by another program."""

    def leave(*args: Any, **kwargs: Any) -> Any:
        _flush()
        return original(*args, **kwargs)

    return leave


# ---------------------------------------------------------------- tracebacks


def hide_our_frames() -> None:
    """Remove our frames from tracebacks of uncaught errors, unless the program has an excepthook of its own."""
    if sys.excepthook is sys.__excepthook__:
        patch(sys, "excepthook", _program_hook)
    if threading.excepthook is threading.__excepthook__:
        patch(threading, "excepthook", _thread_hook)


def _program_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> Any:
        _strip(value)
        return original(kind, value, value.__traceback__)

    return excepthook


def _thread_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(args: Any) -> Any:
        if args.exc_value is None:
            return original(args)
        _strip(args.exc_value)
        stripped = (args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread)
        return original(threading.ExceptHookArgs(stripped))

    return excepthook


def _strip(error: BaseException) -> None:
    """Remove our frames from an error and its causes."""
    with suppress(Exception):  # a signal's handler may raise meanwhile: then some frames stay
        done: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            current = pending.pop()
            if current is None or id(current) in done:
                continue
            done.add(id(current))
            current.__traceback__ = _without_our_frames(current.__traceback__)
            pending += (current.__cause__, current.__context__)
            if isinstance(current, BaseExceptionGroup):
                pending += current.exceptions


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    first = current = _next_foreign(trace)
    while current is not None:
        current.tb_next = _next_foreign(current.tb_next)
        current = current.tb_next
    return first


def _next_foreign(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_AGENT):
        trace = trace.tb_next
    return trace
