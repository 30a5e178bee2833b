"""Says once, and again when it changes, which of the user's functions a region stands for: with its file and line."""

from __future__ import annotations

import threading
from types import CodeType, FrameType
from typing import Any, Final, cast

from profiler.agent.patching import is_user_code
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import CallKind

_LAYERS: Final = 5
"""Wrappers around a dataset that are looked through: Subset of a Subset, a shard of those, ..."""


class _Start:
    """The first line of a function, as a frame at it would be."""

    def __init__(self, code: CodeType) -> None:
        self.f_code = code
        self.f_lineno = code.co_firstlineno
        self.f_lasti = -1


class _Said(threading.local):
    def __init__(self) -> None:
        self.last: dict[str, tuple[int, CodeType | None]] = {}


class Origins:
    """What this process has said: a call of no length before the first region of each origin."""

    def __init__(self) -> None:
        self._said = _Said()

    def say(self, recorder: Recorder, name: str, code: CodeType | None) -> None:
        """From now on this thread's regions of that name come from `code`; None: from no code of the user's."""
        origin = recorder.serial, code
        if self._said.last.get(name) == origin:
            return
        self._said.last[name] = origin
        site = -1 if code is None else recorder.site(cast("FrameType", _Start(code)))
        recorder.call(CallKind.OTHER, name, now(), site=site)

    def say_of(self, recorder: Recorder, name: str, dataset: Any, methods: tuple[str, ...]) -> None:
        """As `say`, of the first of a dataset's `methods` that is the user's own; about 1 µs."""
        self.say(recorder, name, _code_of(dataset, methods))


def _code_of(dataset: Any, methods: tuple[str, ...]) -> CodeType | None:
    for _ in range(_LAYERS):
        for method in methods:
            code = getattr(getattr(type(dataset), method, None), "__code__", None)
            if isinstance(code, CodeType) and is_user_code(code):
                return code
        inner = getattr(dataset, "__dict__", {}).get("dataset")  # no getattr: a dataset may answer to any name
        if inner is None:
            return None
        dataset = inner
    return None
