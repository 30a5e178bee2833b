"""Loads a trace of torch's profiler (Kineto) as a Run, and joins the trace of some steps of a run to its own records.

The clock of such a Run is the time of day, and it has no samples and stacks. The lines of calls come from the calls of
Python functions in the trace, which show where a function begins and not which of its lines runs: so a line is that of
`def`. The operators and annotations of the trace of some steps are read only when a timeline is written: 5 steps may
have a million of them, and no measurement needs them.
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import fits
from profiler.run import tables
from profiler.run.declared import Rank
from profiler.run.ingest import trace_rows
from profiler.run.ingest.trace_events import OnHost, Trace, read_trace
from profiler.run.model import Run, RunInfo, Site, Table, Traced
from profiler.run.source import Source, dtype_of, read_source, unpacked

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


# ---------------------------------------------------------------- the trace of some steps of a run

TRACE_FILE: Final = "kineto.json.gz"
FACT: Final = "trace"
"""Name of the fact that profiler.agent.hooks.torch_trace writes."""
_Pair = tuple[Annotated[int, 0], Annotated[int, 0]]
_NEVER: Final = np.iinfo(np.int64).max
_SLACK_NS: Final = 1_000  # two clocks, each read with an error below a µs


def with_trace(source: Source, folder: Path) -> Source:
    """Add the calls and activities of the trace in `folder` to `source`, on its clock; damage becomes a problem.

    Nothing is added if the program recorded its device itself: everything would be there twice.
    """
    path = folder / TRACE_FILE
    if not os.path.lexists(path) or len(source.tables["activities"]):
        return source
    try:
        trace = read_trace(path)
        pairs = clock_pairs(source.facts)
    except ProfilerError as error:
        text = str(error).replace(str(path), f"{folder.name}/{TRACE_FILE}")
        source.problems.append(Notice("trace-damaged", {"text": text}))
        return source
    numbers = {text: number for number, text in source.names.items()}
    free = max(source.names, default=-1) + 1

    def name_of(text: str) -> int:
        nonlocal free
        if text not in numbers:
            numbers[text], source.names[free] = free, text
            free += 1
        return numbers[text]

    calls = shifted(trace_rows.calls(trace, name_of, loaded=False), pairs)
    calls["site"] = _sites_of_trace(calls, source.tables["calls"])
    source.tables["calls"] = np.concatenate([source.tables["calls"], calls])
    source.tables["activities"] = shifted(trace_rows.activities(trace, name_of, loaded=False), pairs)
    return source


def clock_pairs(facts: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the pairs (our clock, time of day) from both ends of a trace, out of the facts of its process.

    :raises ProfilerError: they are missing.
    """
    clock = facts.get(FACT, {}).get("clock")
    if not fits(clock, tuple[_Pair, _Pair]):
        raise ProfilerError(f"{TRACE_FILE}: left out: the pairs that tie its clock to the run's are missing")
    (ours, day), (later, later_day) = clock
    return (ours, day), (later, later_day)


def shifted(table: Table, pairs: tuple[tuple[int, int], tuple[int, int]]) -> Table:
    """Convert times from time of day to CLOCK_MONOTONIC; the drift between the pairs is interpolated."""
    (ours, day), (later, later_day) = pairs
    drift = ((later - later_day) - (ours - day)) / max(1, later_day - day)
    for column in ("begin", "end"):
        since = table[column].astype(np.int64) - day
        table[column] = ours + since + np.rint(drift * since).astype(np.int64)
    if "blocked" in (table.dtype.names or ()):  # rounding may have changed the call by a ns
        table["blocked"] = np.minimum(table["blocked"], table["end"] - table["begin"])
    return table


def _sites_of_trace(calls: Table, hook_calls: Table) -> npt.NDArray[np.int32]:
    """For each runtime call the site of the hook's call (`item`, `to`) that contains it; -1 for none."""
    sites = np.full(len(calls), -1, np.int32)
    located = hook_calls[hook_calls["site"] >= 0]
    for tid in np.intersect1d(calls["tid"], located["tid"]).tolist():
        rows_of_thread = np.flatnonzero(calls["tid"] == tid)
        around = np.sort(located[located["tid"] == tid], order="begin")
        begin, end = around["begin"].astype(np.int64), around["end"].astype(np.int64)
        at = np.searchsorted(begin, calls["begin"][rows_of_thread] + _SLACK_NS, "right") - 1
        inside = (at >= 0) & (calls["end"][rows_of_thread] <= end[np.maximum(at, 0)] + _SLACK_NS)
        sites[rows_of_thread[inside]] = around["site"][at[inside]]
    return sites


def outside_traces(run: Run, sources: Iterable[Source]) -> Run:
    """Exclude the steps that a trace touched from measurement, because tracing slows them.

    If no other steps are left they are measured anyway, and a problem says so. So are the few whose operators were
    counted, without a word.
    """
    touched, counted = np.zeros((2, len(run.steps)), np.bool_)
    for source in sources:
        touched |= _touched(run, source, FACT)
        counted |= _touched(run, source, tables.OPERATORS)
    measured = run.steps["warmup"] == 0
    if (measured & ~touched & ~counted).any():
        touched |= counted
    if not (touched & measured).any():
        return run
    if not (measured & ~touched).any():
        return replace(run, problems=(*run.problems, Notice("all-steps-traced")))
    problems = run.problems
    left = run.steps[measured & ~touched]
    if int(left["end"].max()) <= int(run.steps["begin"][touched].min()):
        problems += (Notice("only-first-steps-measured", {"steps": len(left)}),)
    steps = run.steps.copy()
    steps["warmup"][touched] = 1
    steps.setflags(write=False)
    return replace(run, steps=steps, problems=problems)


def _touched(run: Run, source: Source, name: str) -> npt.NDArray[np.bool_]:
    """Return the steps of a process within the window of torch's profiler that the fact `name` describes."""
    fact = source.facts.get(name)
    if not isinstance(fact, Mapping) or not isinstance(fact.get("began"), int):
        return np.zeros(len(run.steps), np.bool_)
    ended = fact.get("ended")
    until = ended if isinstance(ended, int) else _NEVER
    in_time = (run.steps["begin"] < until) & (run.steps["end"] > fact["began"])
    return np.asarray((run.steps["pid"] == source.pid) & in_time, np.bool_)


_ROW: Final = np.dtype([(name, "<i8") for name in ("begin", "end", "pid", "tid", "name", "annotation")])


def read_traced(path: Path) -> Traced | None:
    """Return the operators of every trace in the run at `path`, a directory or a .zip of one; None if it has no
    trace."""
    with _directory(path) as folder:
        files = sorted(folder.glob(f"*/{TRACE_FILE}")) if folder.is_dir() else []
        return _read_files(files) if files else None


@contextmanager
def _directory(path: Path) -> Iterator[Path]:
    if path.suffix == ".zip" and path.is_file():
        with unpacked(path) as folder:
            yield folder
    else:
        yield path.parent if path.name == tables.MANIFEST else path


def _read_files(files: list[Path]) -> Traced:
    numbers: dict[str, int] = {}
    parts, pids, problems = [], set(), []
    for file in files:
        source = read_source(file.parent)
        try:
            parts.append(_operators(file, source, numbers))
        except ProfilerError as error:  # the run reports the same problem
            problems.append(Notice("trace-damaged", {"text": str(error).replace(str(file), _name(file))}))
            continue
        if not len(source.tables["activities"]):
            pids.add(source.pid)
    operators = np.concatenate(parts) if parts else np.empty(0, _ROW)
    return Traced(operators, tuple(numbers), frozenset(pids), tuple(map(_name, files)), tuple(problems))


def _name(file: Path) -> str:
    return f"{file.parent.name}/{TRACE_FILE}"


def _operators(file: Path, source: Source, numbers: dict[str, int]) -> Table:
    """Return the operators of one process, on the run's clock.

    :raises ProfilerError: the trace is damaged, or nothing ties its clock to the run's.
    """
    trace, pairs = read_trace(file), clock_pairs(source.facts)
    listed = [
        (event.begin, event.end, source.pid, event.tid, numbers.setdefault(event.name, len(numbers)), annotation)
        for annotation, events in enumerate((trace.operators, trace.annotations))
        for event in events
    ]
    return shifted(np.array(listed, _ROW), pairs)
