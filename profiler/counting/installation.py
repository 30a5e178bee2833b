"""Counts in all threads of a process, until it is removed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from profiler.counting.files import FileCounter
from profiler.counting.operators import OperatorCounter, OperatorMode
from profiler.counting.reads import ReadMode
from profiler.virtual.counts import EventSink


class Counting:
    """Counts operators, memory, written files and, where `sink` is given, reads of values on the CPU."""

    def __init__(self, counter: OperatorCounter, sink: EventSink | None) -> None:
        self._counter = counter
        self.reads = ReadMode(sink) if sink is not None else None
        """The mode that counts reads."""
        counter.on_read = self.reads.read if self.reads is not None else None
        self._files = FileCounter(counter)
        self._stack = ExitStack()

    def install(self) -> None:
        """Count what this thread and those that it starts make torch do."""
        start = threading.Thread.start
        modes = self._modes

        def begin(self: threading.Thread) -> None:
            run = self.run

            def run_counted() -> None:
                with modes():
                    run()

            self.run = run_counted  # type: ignore[method-assign]
            start(self)

        threading.Thread.start = begin  # type: ignore[method-assign]
        self._stack.callback(setattr, threading.Thread, "start", start)
        self._files.install(self._stack)
        self._stack.enter_context(self._modes())

    def _modes(self) -> ExitStack:
        """The modes of one thread, entered."""
        stack = ExitStack()
        if self.reads is not None:
            stack.enter_context(self.reads)
        mode: Any = OperatorMode(self._counter)
        stack.enter_context(mode)
        return stack

    def remove(self) -> None:
        """Count no more in this thread."""
        self._stack.close()
