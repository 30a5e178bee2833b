"""Installs hooks: each right after the program has imported the library that it watches."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler.agent.patching import STATE, Hook, patch, patch_count, unpatch
from profiler.agent.recorder import Recorder, start
from profiler.agent.tracebacks import hide_our_frames

_HOOKS: Final = "hooks"
_TRIMMED: Final = "<frozen importlib._bootstrap>"
"""Frames of this file are left out of the traceback of an import that failed: the program's own stays as it was."""


class HookFinder:
    """Stands in sys.meta_path (or is asked by one that does): adds the hooks to the loading of what they watch.

    :param before: the finder in whose name it is asked; the ones behind it find the modules.
    """

    def __init__(self, hooks: Iterable[Hook], before: object | None = None) -> None:
        self._wanted: dict[str, list[Hook]] = {}
        for hook in hooks:
            for name in hook.modules:
                self._wanted.setdefault(name, []).append(hook)
        self._before = before or self

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._wanted:
            return None
        finders = iter(tuple(sys.meta_path))
        for finder in finders:
            if finder is self._before:
                break
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        """Have `loaded` called when the module of `spec` is ready.

        The loader keeps its type, which libraries look at: only this one object gets another `exec_module`.
        """
        loader: Any = spec.loader
        if not hasattr(loader, "exec_module") or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
            return
        original, loaded = loader.exec_module, self.loaded

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            original(module)
            loaded(module)

        exec_module.__code__ = exec_module.__code__.replace(co_filename=_TRIMMED)
        loader.exec_module = exec_module

    def loaded(self, module: ModuleType) -> None:
        """Install what waits for `module`, which has been imported (or reloaded)."""
        for hook in self._wanted.get(module.__name__, ()):
            install(hook, module)

    def install_for_loaded_modules(self) -> None:
        """Install what waits for modules that the program has imported already."""
        for name in self._wanted:
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.loaded(module)


def install(hook: Hook, module: ModuleType) -> None:
    """Install one hook. What goes wrong is reported, and taken back."""
    before = patch_count()
    try:
        hook.install(module)
    except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and it reports
        unpatch(before)
        report_failure(hook.name, error)
    else:
        _told.setdefault(hook.name, "")


_told: Final[dict[str, str]] = {}
"""Of each hook that came in or should have: empty, or why it did not."""


def report_failure(name: str, error: BaseException) -> None:
    """A hook did not come in, or had to be given up: the run says so."""
    _told[name] = (
        _told.get(name) or f"{type(error).__name__}: {' '.join(str(error).split())}"
    )  # the first reason counts
    recorder = STATE.recorder
    if recorder is not None:
        recorder.hook_errors = _told
        recorder.write_metadata()


def load_hooks(level: str) -> list[Hook]:
    """The hooks of that level: the `PLUGIN` of every module in the folder hooks. One that cannot load is reported."""
    package = f"{__name__.rpartition('.')[0]}.{_HOOKS}"  # ours goes by another name inside of a program
    found: list[Hook] = []
    for file in sorted(os.listdir(Path(__file__).parent / _HOOKS)):  # noqa: PTH208 - a Path each costs more
        name, _, ending = file.partition(".")
        if ending != "py" or name.startswith("_"):
            continue
        try:
            plugin = importlib.import_module(f"{package}.{name}").PLUGIN
            hook: Hook = type(plugin)()  # what one learns of a program is of one recording
        except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and it reports
            report_failure(name, error)
        else:
            if level in hook.levels:
                found.append(hook)
    return found


def install_hooks(before: object | None = None) -> HookFinder:
    """Start the recorder of this process, and have each hook installed when its library is imported.

    :param before: the finder that will ask the watcher; None: the watcher stands in sys.meta_path itself.
    """
    _told.clear()  # of a recording before, in this process
    track_process()
    hide_our_frames()
    recorder = STATE.recorder
    watcher = HookFinder(load_hooks(recorder.level) if recorder else (), before)
    if before is None:
        sys.meta_path.insert(0, watcher)
    watcher.install_for_loaded_modules()
    return watcher


_following = False


def track_process() -> None:
    """Keep STATE.recorder right from now on: in this process, in its forks, and to its end."""
    global _following
    if not _following:
        _following = True
        os.register_at_fork(after_in_child=_renew)
        atexit.register(_finish)
    _renew()
    for name in ("_exit", "execv", "execve"):  # ways past atexit; the other execs are made of these two
        patch(os, name, _flushed_first)


def _renew() -> None:
    before, STATE.recorder = STATE.recorder, start()
    if STATE.recorder is not None and STATE.recorder is not before:
        STATE.recorder.hook_errors = _told
        if before is not None:  # a fork is what its parent was
            STATE.recorder.hook_facts.update(before.hook_facts)


def _finish() -> None:
    recorder: Recorder | None = STATE.recorder
    if recorder is not None and recorder.pid == os.getpid():
        recorder.flush()


def _flushed_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Children of multiprocessing leave by os._exit, launchers become another program."""

    def left(*args: Any, **kwargs: Any) -> Any:
        _finish()
        return original(*args, **kwargs)

    return left
