"""What the traces of torch's profiler in a run hold that its tables do not: every operator, and the annotations.

They are read when a timeline is written and at no other time: of 5 steps there may be a million, and nothing that is
measured needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.run import tables
from profiler.run.archive import unpacked
from profiler.run.ingest.attached import TRACE_FILE, clock_pairs, shifted
from profiler.run.ingest.events import read_trace
from profiler.run.model import Table, Traced
from profiler.run.source import Source, read_source

_ROW: Final = np.dtype([(name, "<i8") for name in ("begin", "end", "pid", "tid", "name", "annotation")])


def read_traced(path: Path) -> Traced | None:
    """The operators of every trace in the run at `path`, a directory or a .zip of one; None where it has no trace."""
    with _directory(path) as folder:
        files = sorted(folder.glob(f"*/{TRACE_FILE}")) if folder.is_dir() else []
        return _of(files) if files else None


@contextmanager
def _directory(path: Path) -> Iterator[Path]:
    if path.suffix == ".zip" and path.is_file():
        with unpacked(path) as folder:
            yield folder
    else:
        yield path.parent if path.name == tables.MANIFEST else path


def _of(files: list[Path]) -> Traced:
    numbers: dict[str, int] = {}
    parts, pids, problems = [], set(), []
    for file in files:
        source = read_source(file.parent)
        try:
            parts.append(_operators(file, source, numbers))
        except ProfilerError as error:  # said by the run in these words too, where it read the file itself
            problems.append(str(error).replace(str(file), _name(file)))
            continue
        if not len(source.tables["activities"]):
            pids.add(source.pid)
    whole = np.concatenate(parts) if parts else np.empty(0, _ROW)
    return Traced(whole, tuple(numbers), frozenset(pids), tuple(map(_name, files)), tuple(problems))


def _name(file: Path) -> str:
    return f"{file.parent.name}/{TRACE_FILE}"


def _operators(file: Path, source: Source, numbers: dict[str, int]) -> Table:
    """Those of one process, on the run's clock.

    :raises ProfilerError: the trace is damaged, or nothing ties its clock to the run's.
    """
    trace, pairs = read_trace(file), clock_pairs(source.facts)
    listed = [
        (event.begin, event.end, source.pid, event.tid, numbers.setdefault(event.name, len(numbers)), annotation)
        for annotation, events in enumerate((trace.operators, trace.annotations))
        for event in events
    ]
    return shifted(np.array(listed, _ROW), pairs)
