"""Hooks installed in this process for a test, and the calls that they wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from profiler.agent import patching
from profiler.agent.recorder import Recorder
from profiler.run.model import Site, Table
from profiler.run.source import read_source
from profiler.run.tables import CallKind


@contextmanager
def installed(recorder: Recorder, *hooks: patching.Hook, module: ModuleType) -> Iterator[Recorder]:
    """`hooks` in place with `recorder`, all taken back at the end."""
    before, already = patching.STATE.recorder, patching.patch_count()
    patching.STATE.recorder = recorder
    try:
        for each in hooks:
            each.install(module)
        yield recorder
    finally:
        patching.unpatch(already)
        patching.STATE.recorder = before


def call_rows(recorder: Recorder) -> Table:
    """The calls written until now."""
    recorder.flush()
    rows: Table = read_source(recorder.directory).tables["calls"]
    return rows


def calls(recorder: Recorder) -> list[tuple[str, CallKind, Site]]:
    """Name, kind and site of each."""
    rows = call_rows(recorder)
    read = read_source(recorder.directory)
    return [(read.names[row["name"]], CallKind(row["kind"]), read.sites[row["site"]]) for row in rows]
