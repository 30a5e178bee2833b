"""The process beside a program that records itself: runs the collectors on it, and closes the run when it ends.

It is told what to do by lines on standard input, and answers by lines on standard output: the request as JSON ->
`ready PID` or `error REASON`; `go`; how the block ended (a state of the manifest) -> `closed`. A program that ends
without a word was killed, and the run is closed as failed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive
from profiler.record.collector import Context
from profiler.record.crew import Crew
from profiler.record.launch import hook_statuses, opened, write_last, writer_status
from profiler.run import store
from profiler.run.model import RunInfo, RunSpec

_LOOK_S: Final = 0.2
"""Between two looks whether the program still runs: its children may hold its end of the pipe when it is gone."""
_CODES: Final = {"complete": 0, "failed": 1}
_LOST: Final = "failed"


def main() -> int:
    """Serve one recording."""
    words = _Words()
    request = json.loads(words.next(None) or "{}")
    if not request:
        return 0
    pid = int(request.pop("pid"))
    spec = RunSpec(**{**request, "argv": tuple(request["argv"]), "out": Path(request["out"])})
    try:
        crew, info = _prepared(spec)
    except ProfilerError as error:
        _answer(f"error {' '.join(str(error).split())}")
        return int(error.exit_code)
    _answer(f"ready {os.getpid()}")
    _record(spec, pid, crew, info, words)
    _answer("closed")
    return 0


def _prepared(spec: RunSpec) -> tuple[Crew, RunInfo]:
    """The collectors, and the manifest of the run that begins now, written."""
    crew = Crew(spec)
    existed = spec.out.exists()
    store.create(spec.out)
    info = opened(spec, crew.describe())
    try:
        store.write_manifest(spec.out, info)
    except OSError as error:
        if not existed:
            shutil.rmtree(spec.out, ignore_errors=True)
        raise ProfilerError(f"cannot write into {spec.out}: {error.strerror}") from error
    return crew, info


def _record(spec: RunSpec, pid: int, crew: Crew, info: RunInfo, words: _Words) -> None:
    state = words.next(pid)
    writer = store.RunWriter(spec.out)
    if state == "go":
        crew.start(Context(spec, pid, writer))
        state = words.next(pid)
    end = time.monotonic_ns()
    crew.stop()
    writer.close()
    closed = dataclasses.replace(
        info,
        state=state or _LOST,
        exit_code=_CODES.get(state),
        end=end,
        collectors=(*crew.statuses, *hook_statuses(spec), *writer_status(writer)),
    )
    write_last(spec.out, closed)


def _answer(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # nobody is left to hear it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as we do


class _Words:
    """Lines from standard input; '' once nobody is left to write one."""

    def __init__(self) -> None:
        self._waiting = b""

    def next(self, pid: int | None) -> str:
        """The next line; '' when the input has ended, or `pid` has."""
        while b"\n" not in self._waiting:
            ready, _, _ = select.select([0], [], [], _LOOK_S)
            if ready:
                read = os.read(0, 1 << 16)
                if not read:
                    return ""
                self._waiting += read
            elif pid is not None and not is_alive(pid):
                return ""
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode()
