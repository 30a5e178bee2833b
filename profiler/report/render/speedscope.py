"""A run's stack samples as a file of speedscope.app: a sampled profile a thread, weights in nanoseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from profiler.report.render._traced import EXPORTER, Names, joined, need_stacks, outer_first, rows
from profiler.run.filter import group_rows
from profiler.run.model import Run, Site, Table

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def render(run: Run) -> Iterator[str]:
    """The file in pieces. Samples of a thread follow each other in time; gaps between them are left out.

    :raises ProfilerError: the run has no stack samples.
    """
    return _file(run, need_stacks(run))


def _file(run: Run, stacks: Table) -> Iterator[str]:
    frames: dict[Site, int] = {}
    texts = [json.dumps([frames.setdefault(site, len(frames)) for site in stack]) for stack in run.stack_frames]
    head = {"$schema": SCHEMA, "name": run.info.label or run.info.run_id, "exporter": EXPORTER, "activeProfileIndex": 0}
    yield json.dumps(head)[:-1] + ',\n"shared": {"frames": [\n'
    yield from joined(
        (json.dumps({"name": site.function or site.file, "file": site.file, "line": site.line}) for site in frames),
        ",\n",
    )
    yield '\n]},\n"profiles": [\n'
    for number, (name, thread) in enumerate(_threads(run, stacks)):
        spans = thread["end"] - thread["begin"]
        profile = {
            "type": "sampled",
            "name": name,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": int(spans.sum()),
        }
        yield (",\n" if number else "") + json.dumps(profile)[:-1] + ', "samples": [\n'
        yield from joined((texts[stack] for (stack,) in rows(thread, ("stack",))), ",")
        yield '\n], "weights": [\n'
        yield from joined((str(end - begin) for begin, end in rows(thread, ("begin", "end"))), ",")
        yield "\n]}"
    yield "\n]}\n"


def _threads(run: Run, stacks: Table) -> Iterator[tuple[str, Table]]:
    """Name and samples of each thread; that of the steps first, then those with the most samples."""
    names = Names(run)
    order = sorted(group_rows(stacks, "pid", "tid"), key=lambda own: _place(names, own))
    for own in order:
        pid, tid = int(own["pid"][0]), int(own["tid"][0])
        yield f"{names.process(pid)}: {names.thread(pid, tid)} ({tid})", own[outer_first(own)]


def _place(names: Names, own: Table) -> tuple[bool, int, bool, int]:
    pid, tid = int(own["pid"][0]), int(own["tid"][0])
    return *names.first(pid), pid != tid, -len(own)
