"""Names optimizers by the user's line that made them: the same at each step of one, another for another."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import FrameType
from typing import Any

from profiler.agent.patching import caller, user_frame


class OptimizerNames:
    """Class and line, as in `AdamW (train.py:31)`; further ones of one line are numbered."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], str]] = {}

    def made(self, optimizer: Any, frame: FrameType | None) -> str:
        """Name `optimizer`, which `frame` has made. One that a line makes anew takes the name of one that is gone."""
        at = user_frame(frame)
        line = f" ({Path(at.f_code.co_filename).name}:{at.f_lineno})" if at else ""
        label = type(optimizer).__name__ + line
        alive = {name for _, name in self._of.values()}
        number = 1
        while (name := label if number == 1 else f"{label} #{number}") in alive:
            number += 1
        key = id(optimizer)
        self._of[key] = weakref.ref(optimizer, lambda gone: self._forget(key, gone)), name
        return name

    def of(self, optimizer: Any, depth: int) -> str:
        """The name of an optimizer; one whose making we have not seen is named after the line so many callers out."""
        known = self._of.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        return self.made(optimizer, caller(depth + 1))

    def _forget(self, key: int, gone: weakref.ref[Any]) -> None:
        if key in self._of and self._of[key][0] is gone:
            del self._of[key]
