"""Finds out what can be measured on this machine: runs all checks at once, each within its time."""

from __future__ import annotations

import pkgutil
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from profiler.core.machine import NOT_KNOWN, Answer, Capability
from profiler.core.plugins import entry_points

PACKAGE: Final = "profiler.record.checks"


@dataclass(frozen=True, slots=True)
class Setup:
    """The Python and the folder that the checks examine."""

    python: str
    """The interpreter that trains."""
    runs: Path
    """The folder of runs."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one thing can be measured. Checks run in threads of their own, at the same time."""

    name: str
    title: str
    """Name of the measurement in the table."""
    order: int
    """The position of the row in the table: smaller numbers come first."""
    needed: bool
    """Recording at level standard needs it."""
    patience_s: float
    """Seconds for which its answer is waited for."""
    examine: Callable[[Setup], Answer]


def check(
    name: str, title: str, *, order: int, needed: bool = False, patience_s: float = 5.0
) -> Callable[[Callable[[Setup], Answer]], Check]:
    """Make a function a check of the doctor. It tries the thing itself where that is harmless."""
    return lambda function: Check(name, title, order, needed, patience_s, function)


def all_checks() -> list[Check]:
    """Every check in the modules of PACKAGE and of the entry-point group `checks`, in the order of the table."""
    folder = import_module(PACKAGE).__path__
    modules = [import_module(f"{PACKAGE}.{entry.name}") for entry in pkgutil.iter_modules(folder)]
    objects = [*(value for module in modules for value in vars(module).values()), *entry_points("checks").values()]
    checks = [value for value in objects if isinstance(value, Check)]
    return sorted(checks, key=lambda check: (check.order, check.name))


def examine(setup: Setup, *, checks: Sequence[Check] | None = None) -> tuple[Capability, ...]:
    """The answer of every check. One that raises or takes too long is its own row and delays no other.

    Threads are daemons, not a pool of concurrent.futures, whose exit would wait for a driver that hangs.
    """
    checks = all_checks() if checks is None else checks
    answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

    def run(check: Check) -> None:
        try:
            answer = check.examine(setup)
        except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its row reports it
            message = " ".join(str(error).split())
            answer = Answer(NOT_KNOWN, f"the check failed: {type(error).__name__}: {message}")
        answers.put((check.name, answer))

    begin = time.monotonic()
    for check in checks:
        threading.Thread(target=run, args=(check,), name=f"check {check.name}", daemon=True).start()
    by_name: dict[str, Answer] = {}
    while pending := [check for check in checks if check.name not in by_name]:
        until = begin + max(check.patience_s for check in pending)
        try:
            name, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        by_name[name] = answer
    for check in pending:
        by_name[check.name] = Answer(NOT_KNOWN, f"no answer within {check.patience_s:g} s")
    return tuple(Capability(check.name, check.title, by_name[check.name], check.needed) for check in checks)
