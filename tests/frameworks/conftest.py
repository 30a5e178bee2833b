"""What the tests of callbacks share."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler import marks
from profiler.run import store
from profiler.run.load import load
from tests.frameworks.examples import CLOCK, Clock, refuse
from tests.recorded.directories import info


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the marks, at 0. Nothing may open a connection."""
    CLOCK.ns = 0
    monkeypatch.setattr(marks, "now", CLOCK)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return CLOCK


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Records this process; call it for the run as it would be loaded."""
    folder = tmp_path / "run"
    store.create(folder)
    store.write_manifest(folder, info(state="complete"))
    recorder = marks.Recorder(folder, "standard")
    monkeypatch.setattr(marks, "_recorder", recorder)

    def loaded() -> Any:
        marks._finish()
        return load(folder)

    yield loaded
    recorder.close()
