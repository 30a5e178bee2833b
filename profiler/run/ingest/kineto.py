"""Loads a trace of torch's profiler (Kineto), as `export_chrome_trace` writes it, as a Run.

Its clock is the time of day, and it has no samples and stacks. The lines of calls come from the calls of Python
functions in the trace, which show where a function begins and not which of its lines runs: so a line is that of `def`.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from profiler.core.errors import Notice
from profiler.core.files import fits
from profiler.run import tables
from profiler.run.declared import Rank
from profiler.run.ingest import trace_rows
from profiler.run.ingest.trace_events import OnHost, Trace, read_trace
from profiler.run.model import Run, RunInfo, Site, Table
from profiler.run.source import dtype_of

_NS_PER_S: Final = 1_000_000_000
_FRAME: Final = re.compile(r"^(.*\.py)\((\d+)\): (.*)$", re.DOTALL)
_GENERIC: Final = frozenset({"numpy", "torch", "triton", "typing_extensions", "tqdm"}) | sys.stdlib_module_names
"""Packages whose lines tell how something was done, and not what. torch removes the folder of the packages from paths,
so a package of the program cannot be distinguished from an installed one."""
_WRAPPERS: Final = frozenset({"wrapper", "wrapped", "inner", "_wrapper"})
"""Names that functions made by decorators have."""
_COMPILED: Final = "/torchinductor_"
"""Part of the path of every file that torch.compile writes."""


def read_run(path: Path) -> Run:
    """Return the trace at `path` as a run of level full.

    :raises ProfilerError: it cannot be read, or is no trace of torch's profiler.
    """
    trace = read_trace(path)
    names: dict[str, int] = {}

    def name_of(text: str) -> int:
        return names.setdefault(text, len(names))

    step_rows, definition = trace_rows.steps(trace)
    parts = {table: np.empty(0, dtype_of(table)) for table in tables.TABLES}
    parts |= {
        "steps": step_rows,
        "activities": trace_rows.activities(trace, name_of, loaded=True),
        "calls": trace_rows.calls(trace, name_of, loaded=True),
        "regions": trace_rows.regions(trace, name_of),
    }
    if trace.runtime and trace.device_kind == "cuda":  # what the calls of other accelerators do is not known
        parts["values"] = trace_rows.counters(parts["calls"], step_rows, names, name_of)
    sites = _sites(trace.frames)
    _add_sites(parts["calls"], trace.frames, sites)
    rank = _distributed(trace.meta, "rank") or 0
    for table in parts.values():
        if "rank" in (table.dtype.names or ()):
            table["pid"], table["rank"] = trace.pid, rank
        table.setflags(write=False)
    return Run(
        path=path,
        info=_info(path, trace, step_rows),
        names=tuple(names),
        sites=tuple(sites),
        stack_frames=(),
        problems=(Notice("events-without-time", {"file": path.name, "events": trace.broken}),) if trace.broken else (),
        step=definition,
        results=(),
        made={},
        **parts,
    )


def _info(path: Path, trace: Trace, steps: Table) -> RunInfo:
    """Return the manifest of a trace, which does not contain the program's command."""
    begin, end = int(steps["begin"].min()), int(steps["end"].max())
    facts = {name: _distributed(trace.meta, name) for name in ("rank", "world_size")}
    return RunInfo(
        schema=tables.SCHEMA,
        run_id=str(trace.meta.get("trace_id", "")) or path.name,
        started_at=datetime.fromtimestamp(begin / _NS_PER_S, UTC).isoformat(timespec="seconds"),
        argv=(),
        label=path.name,
        level="full",
        state="complete",
        begin=begin,
        end=end,
        devices=_devices(trace),
        versions={
            name.removesuffix("_version"): str(value) for name, value in trace.meta.items() if name.endswith("_version")
        },
        facts={"device": trace.device_kind} | {name: value for name, value in facts.items() if value is not None},
    )


def _devices(trace: Trace) -> tuple[Mapping[str, Any], ...]:
    """Return the devices with activity, or all devices if none has any; old traces only have their numbers."""
    used = sorted({event.device for event in trace.device})
    listed = trace.meta.get("deviceProperties")
    listed = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    described: dict[int, dict[str, Any]] = {}
    for properties in listed:
        if isinstance(properties.get("id"), int):
            name, memory = str(properties.get("name") or ""), properties.get("totalGlobalMem")
            described[properties["id"]] = {"name": name or f"device {properties['id']}", "memory_bytes": memory}
    named = {str(properties.get("name") or "") for properties in listed}
    # HIP numbers the devices of activities differently from those of the properties
    only = named.pop() if len(named) == 1 else ""
    if used:
        return tuple(described.get(number, {"name": only or f"device {number}"}) for number in used)
    return tuple(described.values())


def _distributed(meta: Mapping[str, Any], name: str) -> int | None:
    """Return the rank of the traced process, or the number of ranks (world_size); None where the trace does not tell
    it."""
    distributed = meta.get("distributedInfo")
    value = distributed.get(name) if isinstance(distributed, dict) else None
    return value if fits(value, Rank) else None


# ---------------------------------------------------------------- the lines of calls


def _is_generic(file: str) -> bool:
    """Return whether a file of a frame belongs to Python, torch or another package that works for any program."""
    if file.startswith(("/", "<")):
        return _COMPILED in file or file.startswith("<")
    return re.split(r"[/.]", file, maxsplit=1)[0] in _GENERIC


def _sites(frames: Iterable[OnHost]) -> dict[Site, int]:
    """Return a number for each function of the program, or of a library that is not generic."""
    numbers: dict[Site, int] = {}
    for name in dict.fromkeys(event.name for event in frames):
        match = _FRAME.match(name)
        site = Site(match[1], int(match[2]), match[3]) if match else None
        if site is not None and site.function not in _WRAPPERS and not _is_generic(site.file):
            numbers.setdefault(site, len(numbers))
    return numbers


def _add_sites(calls: Table, frames: Iterable[OnHost], numbers: dict[Site, int]) -> None:
    """Write the site of the innermost function of `numbers` around each call into `calls`."""
    if not numbers or not len(calls):
        return
    by_name = {f"{site.file}({site.line}): {site.function}": number for site, number in numbers.items()}
    threads: dict[int, list[tuple[int, int, int]]] = {}
    for event in frames:
        number = by_name.get(event.name)
        if number is not None:
            threads.setdefault(event.tid, []).append((event.begin, -event.end, number))
    for tid, spans in threads.items():
        rows = np.flatnonzero(calls["tid"] == tid)
        moments, site_at = _innermost(sorted(spans))
        calls["site"][rows] = [site_at[bisect_right(moments, begin) - 1] for begin in calls["begin"][rows].tolist()]


def _innermost(spans: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Moments in ascending order, and the innermost span's number from each of them on; -1: none.

    :param spans: begin, minus end and number, sorted; they are nested.
    """
    moments, numbers = [-1], [-1]
    open_spans: list[tuple[int, int]] = []

    def leave(until: int) -> None:
        while open_spans and open_spans[-1][0] <= until:
            moments.append(open_spans.pop()[0])
            numbers.append(open_spans[-1][1] if open_spans else -1)

    for begin, minus_end, number in spans:
        leave(begin)
        open_spans.append((-minus_end, number))
        moments.append(begin)
        numbers.append(number)
    leave(sys.maxsize)
    return moments, numbers
