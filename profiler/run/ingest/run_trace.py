"""Joins the trace that torch's profiler wrote of some steps of a run to the run's own records on one clock.

Its operators and annotations are read only when a timeline is written: 5 steps may have a million of them, and no
measurement needs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import fits
from profiler.run import tables
from profiler.run.ingest import trace_rows
from profiler.run.ingest.trace_events import read_trace
from profiler.run.model import Run, Table, Traced
from profiler.run.source import Source, read_source, unpacked

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
    calls["site"] = _sites(calls, source.tables["calls"])
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


def _sites(calls: Table, hook_calls: Table) -> npt.NDArray[np.int32]:
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
