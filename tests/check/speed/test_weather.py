"""What a round says of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.speed import weather
from profiler.check.speed.weather import Weather


def test_load_steal_and_throttling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, load = tmp_path / "stat", tmp_path / "loadavg"
    monkeypatch.setattr(weather, "_STAT", stat)
    monkeypatch.setattr(weather, "_LOADAVG", load)
    stat.write_text("cpu 100 0 0 100 0 0 0 10 5 5\ncpu0 1 2\n")
    load.write_text("0.5 0.4 0.3 4/200 17\n")
    looked = Weather(lambda: ("GPU 0: power cap",))
    looked.look()
    load.write_text("0.5 0.4 0.3 2/200 17\n")
    looked.look()
    stat.write_text("cpu 160 0 0 120 0 0 0 30 9 9\ncpu0 1 2\n")
    found = looked.conditions()
    assert (found.load, found.steal, found.throttled) == (2.0, 0.2, ("GPU 0: power cap",))
    assert found.cores


def test_what_cannot_be_read_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weather, "_STAT", tmp_path / "none")
    monkeypatch.setattr(weather, "_LOADAVG", tmp_path / "none")
    looked = Weather()
    looked.look()
    assert (looked.conditions().load, looked.conditions().steal) == (None, None)
