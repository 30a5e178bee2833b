"""Keeps torch.compile unharmed by our wrappers: as many graphs and breaks as without us, the same results and warnings.

While torch._dynamo looks at the program's code, every patched function has its original. Its guards compare functions
by identity and run with the wrappers in place, so while guards are built the wrappers are back.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.inside import hook
from profiler.inside.hooks import _waits
from profiler.inside.hooks._waits import OPEN
from profiler.inside.recorder import Recorder

_INSIDE: Final = Path(__file__).parents[1].as_posix() + "/"


class _Patches:
    """All that our hooks have replaced, put aside as long as anybody compiles; other threads' calls go by meanwhile."""

    def __init__(self, kept: tuple[Any, ...]) -> None:
        self.kept = kept
        self._aside: list[tuple[Any, str, Any]] = []
        self._compiling = 0
        self._lock = threading.RLock()

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._lock:
            self._compiling += 1
            if self._compiling == 1:
                self._off()
        try:
            yield
        finally:
            with self._lock:
                self._compiling -= 1
                if not self._compiling:
                    self._on()

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
        for owner, name, own, original in reversed(hook._patches):
            wrapper = vars(owner).get(name)
            code = getattr(wrapper, "__code__", None)
            if owner in self.kept or code is None or not code.co_filename.startswith(_INSIDE):
                continue  # what is replaced below, or the program has put its own in the place of ours
            self._aside.append((owner, name, wrapper))
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

    def _on(self) -> None:
        while self._aside:
            owner, name, wrapper = self._aside.pop()
            setattr(owner, name, wrapper)


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

        def guarding(original: Any) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with patches.back():
                    return original(*args, **kwargs)

            return wrapper

        hook.patch(convert.CatchErrorsWrapper, "__call__", compiling)
        if hasattr(convert, "_fullgraph_capture_frame"):  # the way in of torch.export, in recent torch
            hook.patch(convert, "_fullgraph_capture_frame", compiling)
        hook.patch(guards.CheckFunctionManager, "__init__", guarding)


def _run_as_they_are(dynamo: ModuleType) -> None:
    """Of what only we call, the standard library below it included: not worth a look to torch._dynamo."""
    frames: Any = getattr(dynamo, "types", None)
    if not hasattr(frames, "FrameExecStrategy") or not hasattr(dynamo.eval_frame, "set_code_exec_strategy"):
        return
    skip = frames.FrameExecStrategy(frames.FrameAction.SKIP, frames.FrameAction.SKIP)
    for function in (*vars(Recorder).values(), *vars(_waits).values()):
        if inspect.isfunction(function):
            dynamo.eval_frame.set_code_exec_strategy(function.__code__, skip)


PLUGIN = DynamoHook()
