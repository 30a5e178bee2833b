"""Runs all checks at once, each within its time: a driver that hangs delays the answer and stops nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from profiler.core.capability import NOT_KNOWN, Answer, Capability
from profiler.core.plugins import discover
from profiler.record.checks import Check, Place

PACKAGE: Final = "profiler.record.checks"


def examine(
    place: Place, *, checks: Sequence[Check] | None = None, clock: Callable[[], float] = time.monotonic
) -> tuple[Capability, ...]:
    """Every check's answer, in the order of the table."""
    found = sorted(checks if checks is not None else discover(PACKAGE), key=lambda check: (check.order, check.name))
    answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

    def look(check: Check) -> None:
        try:
            answer = check.look(place)
        except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its line reports it
            message = " ".join(str(error).split())
            answer = Answer(NOT_KNOWN, f"the check failed: {type(error).__name__}: {message}")
        answers.put((check.name, answer))

    begin = clock()
    for check in found:
        threading.Thread(target=look, args=(check,), name=f"check {check.name}", daemon=True).start()
    known: dict[str, Answer] = {}
    while waiting := [check for check in found if check.name not in known]:
        until = begin + max(check.patience_s for check in waiting)
        try:
            name, answer = answers.get(timeout=max(0.0, until - clock()))
        except queue.Empty:
            break
        known[name] = answer
    return tuple(
        Capability(check.name, check.title, known.get(check.name) or _late(check), check.needed) for check in found
    )


def _late(check: Check) -> Answer:
    return Answer(NOT_KNOWN, f"no answer within {check.patience_s:g} s")
