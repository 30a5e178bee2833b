"""Records a region for each backward pass, and the end of a step where no optimizer of torch steps.

A backward pass is the time of the thread that starts it and waits for it. One within another (checkpointed activations,
with `use_reentrant`) is a part of it. The boundary is named after the user's line that calls it: `backward
(train.py:31)`. Once an optimizer steps, backward passes are no boundaries any more. Calls of `torch.autograd.grad`,
which torch.func makes too, are boundaries called `gradients (train.py:31)`: they end steps only in programs without
`backward()` and without an optimizer of torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from types import CodeType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks._unused_gradients import Search
from profiler.agent.hooks.tensors import register_builtin
from profiler.agent.patching import STATE, Hook, caller, patch, user_frame
from profiler.run.tables import GRADIENTS, BoundaryKind

_REGION: Final = "backward"
_BOUNDARIES: Final = {"backward": _REGION, "grad": GRADIENTS}
"""Functions of torch.autograd, and what a boundary at the end of them is called."""


class _Thread(threading.local):
    is_open = False
    """Whether this thread is in a backward pass."""


_thread: Final = _Thread()
_open_passes: Final[set[int]] = set()
"""Threads that are in a backward pass, by their identifier."""
_MAX_NAMES: Final = 1000  # that are remembered: a program may make code without end
_names: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
"""Names of boundaries, by the code that calls and its instruction: making one takes 3 µs. The code is kept, so that its
id is not reused."""


def _install(module: Any) -> None:
    for name, boundary in _BOUNDARIES.items():
        original = getattr(module, name)
        search = Search() if name == "backward" else None
        patch(module, name, partial(_recorded, boundary=boundary, search=search))
        register_builtin(original, getattr(module, name))


def _recorded(original: Callable[..., Any], *, boundary: str, search: Search | None) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        recorder, here = STATE.recorder, _thread
        if recorder is None or here.is_open or (_open_passes and _is_autograd_thread()):
            return original(*args, **kwargs)
        end_search = None
        if search is not None and not search.is_over:
            end_search = search.begin(args, kwargs)
        detailed, thread, identifier = recorder.detailed, recorder.thread, threading.get_ident()
        depth, begin = thread.depth, 0
        if detailed:
            thread.depth = depth + 1
            begin = now()
        here.is_open = True
        _open_passes.add(identifier)
        try:
            result = original(*args, **kwargs)
        finally:
            here.is_open = False
            _open_passes.discard(identifier)
            if detailed:
                recorder.region(_REGION, begin, depth)
            if end_search is not None:
                end_search()
        if recorder.count_backward():
            recorder.record_boundary(BoundaryKind.BACKWARD, _name(boundary))
        return result

    return backward


def _is_autograd_thread() -> bool:
    """Tell whether C++ started this thread: autograd has one for each GPU, in which checkpointed activations start
    backward passes within the one that waits for them."""
    return threading.get_ident() not in threading._active  # type: ignore[attr-defined]


def _name(boundary: str) -> str:
    frame = user_frame(caller(2))
    if frame is None:
        return boundary
    code = frame.f_code
    key = id(code), frame.f_lasti
    named = _names.get(key)
    if named is None:
        if len(_names) >= _MAX_NAMES:
            _names.clear()
        name = f"{boundary} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
        named = _names[key] = code, name
    return named[1]


PLUGIN = Hook("backward", {"torch.autograd": _install})
