"""Doubts about runs in few words; those about what else ran on the machine stand beside the verdict."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.analyse.model import LOADED_MACHINE, Comparison
from profiler.core.notice import Notice
from profiler.report.subject import Subject, views
from profiler.report.text import describe


def alike(warnings: Iterable[Notice]) -> list[str]:
    """Of warnings that differ in their numbers only, the first, and how many more there are: each run has its own."""
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        texts = [str(value) for value in warning.values.values() if not isinstance(value, int | float)]
        groups.setdefault(repr((warning.code, texts)), []).append(describe(warning))
    return [first + (f" (and {len(more)} more like this)" if more else "") for first, *more in groups.values()]


def company(warnings: Iterable[Notice]) -> list[str]:
    """Those that tell of other work on the machine, which makes all times longer."""
    return alike(warning for warning in warnings if warning.code in LOADED_MACHINE)


def not_alone(subject: Subject) -> str:
    """What else ran on the machine, of each side that says so, as a sentence; empty where nothing is known of it."""
    named = isinstance(subject, Comparison)
    said = [f"{view.label}: {note}" if named else note for view in views(subject) for note in company(view.warnings())]
    if not said:
        return ""
    text = "; ".join(said)
    return f"{text if named else text[0].upper() + text[1:]}. Times are longer than on a quiet machine, and vary more."
