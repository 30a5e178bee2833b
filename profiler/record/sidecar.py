"""Runs the collectors beside a program that records itself, and closes the run when the program ends.

It reads lines from standard input and answers with lines on standard output: the request as JSON -> `ready PID` or
`error REASON`; `go`; how the block ended (a state of the manifest) -> `closed`. A program that ends without that line
was killed, and the run is closed as failed.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.masking import Privacy
from profiler.core.procfs import is_alive
from profiler.record.collectors import CollectorSet, Context
from profiler.record.launch import all_statuses, close_run, new_manifest
from profiler.run import store
from profiler.run.model import RunInfo, RunSpec
from profiler.run.source_text import ProgramFiles

_LOOK_S: Final = 0.2
"""Between two looks whether the program still runs: its children may keep its end of the pipe open."""
_EXIT_CODES: Final = {"complete": 0, "failed": 1}


def main() -> int:
    """Serve one recording."""
    lines = _Lines()
    request = json.loads(lines.next(None) or "{}")
    if not request:
        return 0
    pid = int(request.pop("pid"))
    privacy = Privacy(**request.pop("privacy"))
    spec = RunSpec(**{**request, "argv": tuple(request["argv"]), "out": Path(request["out"]), "privacy": privacy})
    try:
        collectors = CollectorSet(spec)
        info = _begin(spec, collectors)
    except ProfilerError as error:
        _answer(f"error {' '.join(str(error).split())}")
        return int(error.exit_code)
    files = ProgramFiles.of_process(pid)
    _answer(f"ready {os.getpid()}")
    writer = store.RunWriter(spec.out)
    state = lines.next(pid)
    if state == "go":
        collectors.start(Context(spec, pid, writer))
        state = lines.next(pid)
    end = time.monotonic_ns()
    collectors.stop()
    writer.close()
    statuses = all_statuses(spec, collectors, writer)
    code = _EXIT_CODES.get(state)
    info = replace(info, state=state or "failed", exit_code=code, end=end, collectors=statuses)
    close_run(spec, info, files)
    _answer("closed")
    return 0


def _begin(spec: RunSpec, collectors: CollectorSet) -> RunInfo:
    """Make the run directory, and write the manifest of a run that begins now."""
    existed = spec.out.exists()
    store.create(spec.out, shared=spec.privacy.shared)
    info = new_manifest(spec, collectors.describe())
    try:
        store.write_manifest(spec.out, info)
    except OSError as error:
        if not existed:
            shutil.rmtree(spec.out, ignore_errors=True)
        raise ProfilerError(f"cannot write into {spec.out}: {error.strerror}") from error
    return info


def _answer(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:  # the program has ended
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as this process


class _Lines:
    """Lines from standard input."""

    def __init__(self) -> None:
        self._buffer = b""

    def next(self, pid: int | None) -> str:
        """Return the next line; '' when the input has ended, or `pid` has."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([0], [], [], _LOOK_S)
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return ""
                self._buffer += data
            elif pid is not None and not is_alive(pid):
                return ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()
