"""Keeps our wrappers out of torch.compile: graphs, graph breaks, results and warnings are those without the profiler.

While torch._dynamo analyses the program's code, patched functions are restored. Its guards compare functions by
identity and run later, with the wrappers in place, so the wrappers are put back while guards are built.

The time that compilation takes is recorded as a stage of the program, that of a backward pass included, which torch
compiles when it first runs.
"""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler.agent import patching
from profiler.agent.clocks import ThreadClocks, now
from profiler.agent.folder import Sites
from profiler.agent.hooks import syncs
from profiler.agent.hooks.syncs import NESTED, OPEN
from profiler.agent.patching import STATE, Hook, Patch, caller
from profiler.agent.recorder import Recorder
from profiler.run.tables import GRAPH_BROKEN, RECOMPILED, StageKind

_AGENT: Final = Path(__file__).parents[1].as_posix() + "/"


class _Thread(threading.local):
    """Number of compilations that this thread is in."""

    compiling = 0


class _Patches:
    """Restores patched functions while any thread compiles; calls of other threads are not recorded meanwhile.

    :param permanent: owners whose patches stay.
    """

    def __init__(self, permanent: tuple[Any, ...]) -> None:
        self.permanent = permanent
        self._aside: list[Patch] = []
        self._compiling = 0
        self._since = 0
        self._thread = _Thread()
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Another thread of the parent may have been compiling, or held the lock: it does not exist in a child."""
        self._lock = threading.RLock()
        if self._compiling > self._thread.compiling:
            self._compiling = self._thread.compiling
            if not self._compiling:
                self._on()

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._lock:
            self._compiling += 1
            self._thread.compiling += 1
            if self._compiling == 1:
                self._since = now()
                self._off()
        try:
            yield
        finally:
            with self._lock:
                self._compiling -= 1
                self._thread.compiling -= 1
                if not self._compiling:
                    self._on()
                    if STATE.recorder is not None:  # calls of other threads were not recorded meanwhile
                        STATE.recorder.count("compile_ns", now() - self._since)
                        STATE.recorder.stage(StageKind.COMPILE, "torch.compile", self._since, now())

    @contextmanager
    def back(self) -> Iterator[None]:
        """Put the wrappers back for a moment within `aside`."""
        with self._lock:
            aside = bool(self._aside)
            self._on()
        inside, OPEN.inside = OPEN.inside, NESTED
        try:
            yield
        finally:
            OPEN.inside = inside
            with self._lock:
                if aside and self._compiling:
                    self._off()

    def _off(self) -> None:
        for patch in reversed(patching.patches()):
            # the patches below stay, and replacements that the program made after ours
            if patch.owner not in self.permanent and patch.is_active():
                patch.undo()
                self._aside.append(patch)

    def _on(self) -> None:
        while self._aside:
            patch = self._aside.pop()
            if vars(patch.owner).get(patch.name) is patch.original:  # None if it is inherited
                setattr(patch.owner, patch.name, patch.wrapper)


def _install(module: Any) -> None:
    """Patch torch._dynamo, which the first optimizer imports even if nothing is compiled."""
    convert, guards, rules = module.convert_frame, module.guards, module.trace_rules
    handler = getattr(getattr(module, "callback", None), "CompilationCallbackHandler", None)
    translator = getattr(getattr(module, "symbolic_convert", None), "InstructionTranslatorBase", None)
    permanent = warnings, convert, convert.CatchErrorsWrapper, guards.CheckFunctionManager, handler, translator
    patches = _Patches(permanent)
    rules.SKIP_DIRS.append(_AGENT)  # our frames are not compiled
    rules._recompile_re()
    skip_functions(
        module, (*vars(Recorder).values(), *vars(ThreadClocks).values(), *vars(Sites).values(), *vars(syncs).values())
    )
    cleared = False

    def compiling(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with patches.aside():
                nonlocal cleared
                if not cleared:  # caches about torch's functions were filled with our wrappers
                    cleared = True
                    rules.clear_lru_cache()
                return original(*args, **kwargs)

        return wrapper

    def again(original: Any) -> Callable[..., Any]:
        compiled = compiling(original)

        def wrapper(self: Any, frame: Any, compiled_before: Any, *args: Any, **kwargs: Any) -> Any:
            if compiled_before is not None:
                _record_recompilation()
            return compiled(self, frame, compiled_before, *args, **kwargs)

        return wrapper

    def guarding(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with patches.back():
                return original(*args, **kwargs)

        return wrapper

    patching.patch(convert.CatchErrorsWrapper, "__call__", again)
    if hasattr(convert, "_fullgraph_capture_frame"):  # entry point of torch.export, in recent versions
        patching.patch(convert, "_fullgraph_capture_frame", compiling)
    patching.patch(guards.CheckFunctionManager, "__init__", guarding)
    if handler is not None and hasattr(handler, "run_start_callbacks"):
        _time_compilations(handler)
    if hasattr(translator, "log_graph_break"):
        patching.patch(translator, "log_graph_break", _graph_break)


def _time_compilations(handler: Any) -> None:
    """Record the time from torch's outermost event that compilation begins to the one that it ends: that of a backward
    pass does not pass through the functions that the wrappers are put aside for."""
    begun = 0

    def started(original: Any) -> Callable[..., Any]:
        def run_start_callbacks(*args: Any, **kwargs: Any) -> Any:
            nonlocal begun
            begun = now()
            return original(*args, **kwargs)

        return run_start_callbacks

    def ended(original: Any) -> Callable[..., Any]:
        def run_end_callbacks(*args: Any, **kwargs: Any) -> Any:
            recorder = STATE.recorder
            if recorder is not None and begun:
                recorder.stage(StageKind.COMPILE, "torch.compile", begun, now())
            return original(*args, **kwargs)

        return run_end_callbacks

    patching.patch(handler, "run_start_callbacks", started)
    patching.patch(handler, "run_end_callbacks", ended)


def _record_recompilation() -> None:
    """Record that code is compiled again, because its guards failed, with the user's line that called it."""
    recorder = STATE.recorder
    if recorder is not None:
        recorder.count(RECOMPILED)
        if recorder.detailed:
            recorder.instant(RECOMPILED, site=syncs.site(recorder, caller(2)))


def _graph_break(original: Any) -> Callable[..., Any]:
    """Record that torch.compile ends a graph at a line of the program, once for each time that it compiles the line."""

    def log_graph_break(self: Any, code_options: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        error = kwargs.get("exc", args[1] if len(args) > 1 else None)
        if recorder is not None and recorder.detailed and not getattr(error, "logged", False):
            frames = [each for each in getattr(error, "real_stack", None) or () if patching.is_user_file(each.filename)]
            code = self.f_code
            place = (frames[-1].filename, frames[-1].lineno, frames[-1].name) if frames else None
            site = recorder.site_of(*(place or (code.co_filename, self.lineno, code.co_qualname)))
            recorder.instant(GRAPH_BROKEN, site=site)
        return original(self, code_options, *args, **kwargs)

    return log_graph_break


def skip_functions(dynamo: ModuleType, functions: Iterable[Any]) -> None:
    """Have torch._dynamo skip functions of ours that only we call, and what they call."""
    frames: Any = getattr(dynamo, "types", None)
    if not hasattr(frames, "FrameExecStrategy") or not hasattr(dynamo.eval_frame, "set_code_exec_strategy"):
        return
    skip = frames.FrameExecStrategy(frames.FrameAction.SKIP, frames.FrameAction.SKIP)
    for function in functions:
        if inspect.isfunction(function):
            dynamo.eval_frame.set_code_exec_strategy(function.__code__, skip)


PLUGIN = Hook("dynamo", {"torch._dynamo": _install})
