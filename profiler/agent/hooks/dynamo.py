"""Keeps torch.compile unharmed by our wrappers: as many graphs and breaks as without us, the same results and warnings.

While torch._dynamo looks at the program's code, every patched function has its original. Its guards compare functions
by identity and run with the wrappers in place, so while guards are built the wrappers are back.
"""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent import patching
from profiler.agent.hooks import _syncs
from profiler.agent.hooks._syncs import OPEN
from profiler.agent.patching import STATE, Patch, caller
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import RECOMPILED

_INSIDE: Final = Path(__file__).parents[1].as_posix() + "/"


class _Here(threading.local):
    """In how many compilations this thread is."""

    compiling = 0


class _Patches:
    """All that our hooks have replaced, put aside as long as anybody compiles; other threads' calls go by meanwhile."""

    def __init__(self, kept: tuple[Any, ...]) -> None:
        self.kept = kept
        self._aside: list[Patch] = []
        self._compiling = 0
        self._since = 0
        self._here = _Here()
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Another thread of the parent's may have been compiling, or had the lock: it does not go on in a child."""
        self._lock = threading.RLock()
        if self._compiling > self._here.compiling:
            self._compiling = self._here.compiling
            if not self._compiling:
                self._on()

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._lock:
            self._compiling += 1
            self._here.compiling += 1
            if self._compiling == 1:
                self._since = now()
                self._off()
        try:
            yield
        finally:
            with self._lock:
                self._compiling -= 1
                self._here.compiling -= 1
                if not self._compiling:
                    self._on()
                    self._say_how_long()

    def _say_how_long(self) -> None:
        """Counted, since the waits of other threads are not seen meanwhile."""
        recorder = STATE.recorder
        if recorder is not None:
            recorder.count("compile_ns", now() - self._since)

    @contextmanager
    def back(self) -> Iterator[None]:
        """The wrappers in place again for a moment within `aside`."""
        with self._lock:
            aside = bool(self._aside)
            self._on()
        inside, OPEN.inside = OPEN.inside, True
        try:
            yield
        finally:
            OPEN.inside = inside
            with self._lock:
                if aside and self._compiling:
                    self._off()

    def _off(self) -> None:
        for one in reversed(patching.patches()):
            # what is replaced below stays, and what the program has put in the place of ours
            if one.owner not in self.kept and one.is_active():
                one.undo()
                self._aside.append(one)

    def _on(self) -> None:
        while self._aside:
            one = self._aside.pop()
            if vars(one.owner).get(one.name) is one.original:  # None where it was inherited, and is again
                setattr(one.owner, one.name, one.wrapper)


class DynamoHook:
    """Watches torch._dynamo, which the first optimizer imports even where nothing is compiled."""

    name: ClassVar[str] = "dynamo"
    modules: ClassVar[tuple[str, ...]] = ("torch._dynamo",)
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        convert, guards = module.convert_frame, module.guards
        patches = _Patches(kept=(warnings, convert, convert.CatchErrorsWrapper, guards.CheckFunctionManager))
        rules = module.trace_rules
        rules.SKIP_DIRS.append(_INSIDE)  # our frames run as they are
        rules._recompile_re()
        _run_as_they_are(module)
        known: list[bool] = []

        def compiling(original: Any) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with patches.aside():
                    if not known:  # what was learnt of torch's functions until now, was learnt of our wrappers
                        known.append(True)
                        rules.clear_lru_cache()
                    return original(*args, **kwargs)

            return wrapper

        def again(original: Any) -> Callable[..., Any]:
            compiled = compiling(original)

            def wrapper(self: Any, frame: Any, compiled_before: Any, *args: Any, **kwargs: Any) -> Any:
                if compiled_before is not None:
                    _say_again()
                return compiled(self, frame, compiled_before, *args, **kwargs)

            return wrapper

        def guarding(original: Any) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with patches.back():
                    return original(*args, **kwargs)

            return wrapper

        patching.patch(convert.CatchErrorsWrapper, "__call__", again)
        if hasattr(convert, "_fullgraph_capture_frame"):  # the way in of torch.export, in recent torch
            patching.patch(convert, "_fullgraph_capture_frame", compiling)
        patching.patch(guards.CheckFunctionManager, "__init__", guarding)


def _say_again() -> None:
    """Code that was compiled before is compiled once more, since what was assumed then does not hold: counted, with
    the user's line that called it."""
    recorder = STATE.recorder
    if recorder is not None:
        recorder.count(RECOMPILED)
        if recorder.detailed:
            recorder.instant(RECOMPILED, site=_syncs.site(recorder, caller(2)))


def _run_as_they_are(dynamo: ModuleType) -> None:
    """Of what only we call, the standard library below it included: not worth a look to torch._dynamo."""
    frames: Any = getattr(dynamo, "types", None)
    if not hasattr(frames, "FrameExecStrategy") or not hasattr(dynamo.eval_frame, "set_code_exec_strategy"):
        return
    skip = frames.FrameExecStrategy(frames.FrameAction.SKIP, frames.FrameAction.SKIP)
    for function in (*vars(Recorder).values(), *vars(_syncs).values()):
        if inspect.isfunction(function):
            dynamo.eval_frame.set_code_exec_strategy(function.__code__, skip)


PLUGIN = DynamoHook()
