"""The rules of Chrome's trace event format, as its description has them, held against a file's text.

Only what the description says of the events that we write (B, E, X, i, C, M, s, f): what breaks one of these rules is
dropped or shown wrong by a reader.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import Any, NoReturn

NAMES = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
"""Metadata event: the argument that it has, and of what type."""
UINT32 = 1 << 32
"""Readers keep numbers of processes and threads in so many."""


def complaints(text: str, *, most: int = 20) -> list[str]:
    """What breaks a rule in the trace `text`: nothing in a good one."""
    return _Checked(text).found[:most]


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


class _Checked:
    """One pass over a trace."""

    def __init__(self, text: str) -> None:
        self.found: list[str] = []
        self._open: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        self._flows: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        self._used: set[tuple[int, int]] = set()
        self._named: Counter[tuple[str, int, int]] = Counter()
        trace = json.loads(text, parse_constant=_no_number)
        if trace.get("displayTimeUnit", "ms") not in {"ms", "ns"}:
            self.found.append(f"displayTimeUnit is {trace['displayTimeUnit']!r}")
        for event in trace["traceEvents"]:
            for wrong in self._event(event):
                self.found.append(f"{wrong}: {event}")
        self._end()

    def _event(self, event: dict[str, Any]) -> list[str]:
        phase = event.get("ph")
        rule = {
            "B": self._begin, "E": self._ended, "X": self._whole, "i": self._instant, "C": self._counter,
            "M": self._metadata, "s": self._flow, "f": self._flow,
        }.get(str(phase))  # fmt: skip
        if rule is None:
            return [f"phase {phase!r} is none of the format's that we write"]
        wrong = [f"{what} is {event.get(what)!r}" for what in ("pid", "tid") if not _number_of(event, what, phase)]
        if wrong:
            return wrong
        if phase != "M" and not _time(event.get("ts")):
            return [f"ts is {event.get('ts')!r}"]
        if phase not in "EM" and not (isinstance(event.get("name"), str) and event["name"]):
            return [f"name is {event.get('name')!r}"]
        if not isinstance(event.get("args", {}), dict):
            return ["args is no object"]
        return rule(event)

    def _begin(self, event: dict[str, Any]) -> list[str]:
        self._open[_track(event)].append(event)
        self._used.add(_track(event))
        return []

    def _ended(self, event: dict[str, Any]) -> list[str]:
        if not self._open[_track(event)]:
            return ["an end without a begin on its track"]
        begun = self._open[_track(event)].pop()
        if "name" in event and event["name"] != begun["name"]:
            return [f"the end of another slice than {begun['name']!r}"]
        return [] if event["ts"] >= begun["ts"] else [f"ends before its begin at {begun['ts']}"]

    def _whole(self, event: dict[str, Any]) -> list[str]:
        self._used.add(_track(event))
        return [] if _time(event.get("dur")) else [f"dur is {event.get('dur')!r}"]

    def _instant(self, event: dict[str, Any]) -> list[str]:
        return [] if event.get("s", "t") in {"g", "p", "t"} else [f"scope is {event['s']!r}"]

    def _counter(self, event: dict[str, Any]) -> list[str]:
        values = event.get("args", {})
        good = values and all(_finite(value) for value in values.values())
        return [] if good else ["a counter of something that is no finite number"]

    def _metadata(self, event: dict[str, Any]) -> list[str]:
        name = event.get("name")
        if name not in NAMES:
            return [f"metadata {name!r} is none of the format's"]
        argument, kind = NAMES[str(name)]
        value = event.get("args", {}).get(argument)
        self._named[str(name), *_track(event)] += 1
        return [] if isinstance(value, kind) and not isinstance(value, bool) else [f"{argument} is {value!r}"]

    def _flow(self, event: dict[str, Any]) -> list[str]:
        if not isinstance(event.get("id"), int | str):
            return [f"id is {event.get('id')!r}"]
        self._flows[event.get("cat"), event["name"], event["id"]].append(event)
        if event["ph"] == "f" and event.get("bp") != "e":
            return ["an arrow's end without bp: it would lead to the next slice, not to the one around it"]
        return [] if self._open[_track(event)] else ["an arrow's end in no slice"]

    def _end(self) -> None:
        """What only the whole file shows."""
        self.found += [f"never ends: {event}" for events in self._open.values() for event in events]
        for key, ends in self._flows.items():
            if [event["ph"] for event in ends] != ["s", "f"]:
                self.found.append(f"flow {key} is {[event['ph'] for event in ends]}, not s and then f")
            elif ends[0]["ts"] > ends[1]["ts"]:
                self.found.append(f"flow {key} leads back in time")
        for pid, tid in self._used:
            if not self._named["thread_name", pid, tid]:
                self.found.append(f"track {tid} of {pid} has no name")
        for pid in {pid for pid, _ in self._used}:
            if not any(name == "process_name" and pid == of for name, of, _ in self._named):
                self.found.append(f"process {pid} has no name")
        self.found += [f"{key} is said {count} times" for key, count in self._named.items() if count > 1]


def _number_of(event: dict[str, Any], what: str, phase: Any) -> bool:
    """A counter belongs to a process."""
    value = event.get(what, 0 if what == "tid" and phase in "CM" else None)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < UINT32


def _track(event: dict[str, Any]) -> tuple[int, int]:
    return event["pid"], event.get("tid", 0)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _time(value: Any) -> bool:
    return _finite(value) and value >= 0
