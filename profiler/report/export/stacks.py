"""Writes a run's stack samples in the formats of speedscope.app and of flamegraph.pl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.report.export.tracks import EXPORTER, ProcessNames, join, outer_first, rows
from profiler.run.filter import group_rows
from profiler.run.model import Run, Site, Table

SPEEDSCOPE_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_ESCAPED: Final = str.maketrans({";": "%3B", "\n": "%0A", "\r": "%0D"})
"""The separators of collapsed stacks, percent-encoded so that they can be read back."""


def speedscope(run: Run) -> Iterator[str]:
    """Return the file of speedscope.app in chunks: a sampled profile per thread, with weights in nanoseconds.

    Samples of a thread follow each other in time; gaps between them are left out.

    :raises ProfilerError: the run has no stack samples.
    """
    return _speedscope(run, _stack_samples(run))


def _speedscope(run: Run, stacks: Table) -> Iterator[str]:
    frames: dict[Site, int] = {}
    texts = [json.dumps([frames.setdefault(site, len(frames)) for site in stack]) for stack in run.stack_frames]
    label = run.info.label or run.info.run_id
    head = {"$schema": SPEEDSCOPE_SCHEMA, "name": label, "exporter": EXPORTER, "activeProfileIndex": 0}
    yield json.dumps(head)[:-1] + ',\n"shared": {"frames": [\n'
    yield from join(
        (json.dumps({"name": site.function or site.file, "file": site.file, "line": site.line}) for site in frames),
        ",\n",
    )
    yield '\n]},\n"profiles": [\n'
    for number, (name, thread) in enumerate(_threads(run, stacks)):
        total = int((thread["end"] - thread["begin"]).sum())
        profile = {"type": "sampled", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": total}
        yield (",\n" if number else "") + json.dumps(profile)[:-1] + ', "samples": [\n'
        yield from join((texts[stack] for (stack,) in rows(thread, ("stack",))), ",")
        yield '\n], "weights": [\n'
        yield from join((str(end - begin) for begin, end in rows(thread, ("begin", "end"))), ",")
        yield "\n]}"
    yield "\n]}\n"


def _threads(run: Run, stacks: Table) -> Iterator[tuple[str, Table]]:
    """Yield name and samples of each thread: the process with the steps first, then main threads, then by samples."""
    names = ProcessNames(run)

    def position(samples: Table) -> tuple[bool, int, bool, int]:
        pid, tid = int(samples["pid"][0]), int(samples["tid"][0])
        return pid != names.main_pid, pid, pid != tid, -len(samples)

    for samples in sorted(group_rows(stacks, "pid", "tid"), key=position):
        pid, tid = int(samples["pid"][0]), int(samples["tid"][0])
        yield f"{names.process(pid)}: {names.thread(pid, tid)} ({tid})", samples[outer_first(samples)]


def collapsed(run: Run, *, threads: bool = False) -> Iterator[str]:
    """Write collapsed stacks in chunks, outermost frame first: `main;train;forward 1234`. Equal stacks share a line.

    The number is microseconds of wall time, not a count: samples stand for spans of different length. The format is
    read by flamegraph.pl, inferno and speedscope.

    :param threads: put a frame for the process and one for the thread before each stack.
    :raises ProfilerError: the run has no stack samples.
    """
    return join(_collapsed(run, _stack_samples(run), threads), "")


def _collapsed(run: Run, stacks: Table, threads: bool) -> Iterator[str]:
    names = ProcessNames(run)
    columns = ["pid", "tid", "stack"] if threads else ["stack"]
    keys, group = np.unique(stacks[columns], return_inverse=True)
    spans = np.zeros(len(keys), np.int64)
    np.add.at(spans, group, stacks["end"] - stacks["begin"])
    frames = {
        number: ";".join(_frame(site) for site in run.stack_frames[number])
        for number in np.unique(stacks["stack"]).tolist()
    }
    for key, ns in zip(keys.tolist(), spans.tolist(), strict=True):
        if microseconds := (ns + 500) // 1000:
            prefix, stack = "", key[-1]
            if threads:
                pid, tid, stack = key
                prefix = f"{names.process(pid).translate(_ESCAPED)};{names.thread(pid, tid).translate(_ESCAPED)};"
            yield f"{prefix}{frames[stack]} {microseconds}\n"


def _frame(site: Site) -> str:
    location = f"{site.file}:{site.line}" if site.line else site.file
    return (f"{site.function} ({location})" if site.function else location).translate(_ESCAPED)


def _stack_samples(run: Run) -> Table:
    """Return the stack samples of `run`, or a ProfilerError with the reason why it has none."""
    if len(run.stacks):
        return run.stacks
    reason = next((status.reason for status in run.info.collectors if status.name == "stacks" and status.reason), "")
    if run.info.level == "light":
        reason = "level light takes none: record again with --level standard"
    raise ProfilerError(f"there is nothing to export: this run has no stack samples ({reason or 'none were recorded'})")
