"""A process that outlives its run, and one that is let in to look at us: what the recorder does once a process."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.agent import bootstrap, clocks, recorder
from profiler.run import store, tables
from tests.recorded.directories import info


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[recorder.Recorder]:
    """The recorder of a run whose own process has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setenv(tables.ENV_RECORDER, str(ended.pid))
    store.create(tmp_path / "run")
    yield (one := recorder.Recorder(tmp_path / "run", "standard"))
    one.close()


def wrote(made: recorder.Recorder) -> bool:
    """Whether a record reaches the disk when the recorder checks the run."""
    file = made.directory / "regions.bin"
    before = file.stat().st_size if file.exists() else 0
    made.regions.write(1, 2, 3, made.names["late"], 0)
    made._run_checked = made._flushed = 0
    made.flush_if_due(clocks.now())
    return file.exists() and file.stat().st_size > before


def test_nothing_is_written_into_a_run_that_has_ended(made: recorder.Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made.directory.parent
    store.write_manifest(run, info())
    assert wrote(made), "its recorder was killed: what comes still loads"
    store.write_manifest(run, info(state="complete"))
    with monkeypatch.context() as patched:
        patched.setenv(tables.ENV_RECORDER, "1")
        assert wrote(made), "a recorder that is there may have more to do"
    assert not wrote(made)
    assert not wrote(made)


def test_tracing_is_allowed_once_per_process_and_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a process: again in a fork, and for another recorder."""
    asked: list[object] = []
    real = builtins.open

    def scope(path: Any, *rest: Any, **more: Any) -> Any:
        if path != bootstrap._PTRACE_SCOPE:
            return real(path, *rest, **more)
        asked.append(path)
        return io.BytesIO(b"0")

    monkeypatch.setattr(builtins, "open", scope)
    monkeypatch.setattr(sys, bootstrap._ALLOWED, None, raising=False)
    monkeypatch.setenv(bootstrap.ENV_RECORDER, "1")
    for _ in range(3):
        bootstrap.allow_tracing()
    assert len(asked) == 1
    monkeypatch.setattr(os, "getpid", lambda: 2)
    bootstrap.allow_tracing()
    bootstrap.allow_tracing()
    assert len(asked) == 2
