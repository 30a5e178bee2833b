"""The rules of Chrome's trace event format for the events that we write (B, E, C, M, s, f).

A reader drops what breaks one of these rules, or shows it wrong.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

Event = dict[str, Any]
_METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
"""Metadata event: the argument that it has, and of what type."""


def _is_uint32(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _is_finite(value: Any) -> bool:
    return type(value) in {int, float} and math.isfinite(value)


def _is_metadata(event: Event) -> bool:
    argument, kind = _METADATA.get(event.get("name", ""), ("", str))
    return type(event.get("args", {}).get(argument)) is kind


_RULES: tuple[tuple[str, str, Callable[[Event], Any]], ...] = (
    ("BECMsf", "pid is no number of 32 bits", lambda event: _is_uint32(event.get("pid"))),
    ("BEsf", "tid is no number of 32 bits", lambda event: _is_uint32(event.get("tid"))),
    ("CM", "tid is no number of 32 bits", lambda event: _is_uint32(event.get("tid", 0))),
    ("BECsf", "ts is no time", lambda event: _is_finite(event.get("ts")) and event["ts"] >= 0),
    ("BCsf", "no name", lambda event: isinstance(event.get("name"), str) and event["name"]),
    ("C", "a counter of no finite number", lambda event: all(map(_is_finite, event.get("args", {"": None}).values()))),
    ("M", "no metadata of the format", _is_metadata),
    ("sf", "an arrow without id", lambda event: isinstance(event.get("id"), int | str)),
    ("f", "without bp an arrow leads to the next slice, not the one around it", lambda event: event.get("bp") == "e"),
)  # fmt: skip
"""Phases, what is wrong with an event, and the condition that a good one meets."""


def complaints(text: str) -> list[str]:
    """The events of the trace `text` that break a rule: none in a good one."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    events = json.loads(text, parse_constant=refuse)["traceEvents"]
    single = [f"{wrong}: {event}" for event in events for wrong in _broken_rules(event)]
    return (single or list(_sequence(events)))[:20]


def _broken_rules(event: Event) -> list[str]:
    phase = str(event.get("ph"))
    if phase not in set("BECMsf"):
        return [f"phase {phase!r} is none that we write"]
    return [wrong for phases, wrong, is_good in _RULES if phase in phases and not is_good(event)]


def _sequence(events: list[Event]) -> Iterator[str]:
    """Faults that only several events show: slices that do not nest, arrows with one end, tracks without a name."""
    slices: dict[tuple[int, int], list[Event]] = defaultdict(list)
    flows: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in events:
        track, phase = (event["pid"], event.get("tid", 0)), event["ph"]
        if phase == "B":
            slices[track].append(event)
        elif phase == "E" and not slices[track]:
            yield f"an end without a begin: {event}"
        elif phase == "E":
            begun = slices[track].pop()
            if event["ts"] < begun["ts"] or event.get("name", begun["name"]) != begun["name"]:
                yield f"not the end of {begun}: {event}"
        elif phase in "sf":
            flows[event.get("cat"), event["name"], event["id"]].append(event)
            if not slices[track]:
                yield f"an arrow's end in no slice: {event}"
    yield from (f"never ends: {event}" for waiting in slices.values() for event in waiting)
    for ends in flows.values():
        if [event["ph"] for event in ends] != ["s", "f"] or ends[0]["ts"] > ends[1]["ts"]:
            yield f"no arrow from one end to a later one: {ends}"
    named = Counter((event["name"], event["pid"], event.get("tid", 0)) for event in events if event["ph"] == "M")
    yield from (f"{key} is there {count} times" for key, count in named.items() if count > 1)
    processes = {pid for name, pid, _ in named if name == "process_name"}
    for pid, tid in slices:
        if pid not in processes or not named["thread_name", pid, tid]:
            yield f"track {tid} of {pid} has no name"
