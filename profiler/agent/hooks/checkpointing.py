"""Records the lines that checkpoint activations: torch computes these a second time in the backward pass.

Functions that torch calls within `checkpoint` are replaced, and not that function itself, which torch.compile knows by
its identity. Under a compiler they are not called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, Final

from profiler.agent.patching import STATE, Hook, caller, code_line, patch, user_frame

_FUNCTIONS: Final = ("_checkpoint_without_reentrant_generator", "check_backward_validity")
"""Functions of torch.utils.checkpoint that the two ways of checkpointing call once for each checkpoint."""
_MAX_LINES: Final = 8
_known: Final[dict[tuple[int, int], tuple[CodeType, dict[str, Any]]]] = {}
"""Calling code and its instruction -> its line: file, number, function. The code is kept, so that its id is not
reused."""


def _install(module: ModuleType) -> None:
    _known.clear()  # of an earlier recording in this process
    for name in _FUNCTIONS:
        if hasattr(module, name):
            patch(module, name, _noted)


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is not None and len(_known) < _MAX_LINES:
            frame = user_frame(caller(1))
            if frame is not None and (id(frame.f_code), frame.f_lasti) not in _known:
                code = frame.f_code
                _known[id(code), frame.f_lasti] = code, code_line(code, frame.f_lineno)
                recorder.add_hook_facts(activation_checkpoints=[line for _, line in _known.values()])
        return original(*args, **kwargs)

    return noted


PLUGIN = Hook("checkpointing", {"torch.utils.checkpoint": _install})
