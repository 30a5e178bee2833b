"""Makes Python's warnings name the line of the program, not a wrapper of ours around what warned.

torch warns from C++ at the innermost frame of Python, which is our wrapper where that calls native code. Whether a
warning is shown again is still decided by the line of the wrapper.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from profiler.agent.patching import PACKAGE, Hook, patch


def _at_program_line(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap the function of `warnings` through which every shown or recorded warning goes."""

    def _showwarnmsg(message: Any) -> None:
        if str(message.filename).startswith(PACKAGE):
            frame = _caller_of_wrapper(sys._getframe(1), message.filename)
            if frame is not None:
                message.filename, message.lineno, message.line = frame.f_code.co_filename, frame.f_lineno, None
        original(message)

    return _showwarnmsg


def _caller_of_wrapper(frame: FrameType | None, file: str) -> FrameType | None:
    """The frame that called into the package where the warning names `file` of it; None without one."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


PLUGIN = Hook("warning-sites", {"torch": lambda _: patch(warnings, "_showwarnmsg", _at_program_line)})
